package gradcheck

import (
	"fmt"
	"hash"
	"hash/fnv"

	"github.com/chewxy/hm"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// loss is the op sum_k w[k] * y[k] on y and w of one shape, a scalar shape
// included. It is an op of its own because Gorgonia's Sum and HadamardProd have
// limits (scalars, some ranks) that would show as faults of what is checked.
type loss struct{ adjoint bool }

// With adjoint set, the op maps w and the derivative of the scalar to w times
// it, the derivative by y.

func newLoss(y *gorgonia.Node, weights gorgonia.Value) (*gorgonia.Node, error) {
	w := gorgonia.NewTensor(y.Graph(), y.Dtype(), y.Dims(), gorgonia.WithShape(y.Shape()...),
		gorgonia.WithName("weights of gradcheck"), gorgonia.WithValue(weights))
	return gorgonia.ApplyOp(&loss{}, y, w)
}
