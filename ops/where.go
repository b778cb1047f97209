package ops

import (
	"fmt"

	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
)

// Where takes elements of a where cond is true, and of b elsewhere. cond is of bool, as comparisons are. The three broadcast to one shape
// by numpy's rule. a and b become the type that [expr.Promote] returns for both.
//
//	out[i] = a[i] if cond[i], else b[i]
//
// The gradient by a is that of the output where cond is true and 0 elsewhere, by b the reverse; an axis along which one repeats is summed.
func Where(cond, a, b *gorgonia.Node) (*gorgonia.Node, error) {
	e, x, err := promoted("Where", 1, cond, a, b)
	if err != nil {
		return nil, err
	}
	if t, _ := typeOf(cond); t.Dtype != kernels.Bool {
		return nil, fmt.Errorf("ops: Where: input 0: got %v, want bool", values.Tensor(t.Dtype))
	}
	return applyFunc("Where", e, e.Apply(expr.Select, x...), cond, a, b)
}
