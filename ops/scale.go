package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"gorgonia.org/gorgonia"
)

// Scale multiplies a vector x by the scalar s, or each row of a matrix x by its
// element of the vector s. It is the adjoint of Dot.
//
//	out[j]    = s * x[j]
//	out[i][j] = s[i] * x[i][j]
func Scale(x, s *gorgonia.Node) (*gorgonia.Node, error) { return Apply(scale{}, x, s) }

type scale struct{}

func (scale) String() string { return "Scale" }

func (scale) Infer(in ...Type) (Type, error) {
	if err := CheckFloats(in, 2); err != nil {
		return Type{}, err
	}
	x, s := in[0].Shape, in[1].Shape
	if x.Dims() < 1 || x.Dims() > 2 {
		return Type{}, fmt.Errorf("got x of shape %v, want a vector or a matrix", x)
	}
	if want := without(x, []int{x.Dims() - 1}); !slices.Equal(s, want) {
		return Type{}, fmt.Errorf("got x of shape %v and s of shape %v, want s of shape %v", x, s, want)
	}
	return in[0], nil
}

func (scale) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	rows, n := rowsOf(in[0].Shape)
	return basic.Scale(dev, in[0].Dtype, rows, n), nil
}

func (scale) Adjoints(b *Backward) []Term {
	return []Term{b.Apply(scale{}, b.Grad(), b.In(1)), b.Apply(dot{}, b.Grad(), b.In(0))}
}
