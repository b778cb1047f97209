package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reduce"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Dot is the inner product of two vectors of one length, a scalar, or of two
// matrices of one shape row by row, a vector.
//
//	out    = sum over j of a[j] * b[j]
//	out[i] = sum over j of a[i][j] * b[i][j]
//
// Products and sum are made in double precision whatever the type.
func Dot(a, b *gorgonia.Node) (*gorgonia.Node, error) { return Apply(dot{}, a, b) }

type dot struct{}

func (dot) String() string { return "Dot" }

func (dot) Infer(in ...Type) (Type, error) {
	if err := CheckFloats(in, 2); err != nil {
		return Type{}, err
	}
	x, y := in[0].Shape, in[1].Shape
	if !slices.Equal(x, y) || x.Dims() < 1 || x.Dims() > 2 {
		return Type{}, fmt.Errorf("got shapes %v and %v, want two vectors of one length or two matrices of one shape", x, y)
	}
	return Type{in[0].Dtype, without(x, []int{x.Dims() - 1})}, nil
}

func (dot) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	rows, n := rowsOf(in[0].Shape)
	return reduce.Dot(dev, in[0].Dtype, rows, n), nil
}

func (dot) Adjoints(b *Backward) []Term {
	return []Term{b.Apply(scale{}, b.In(1), b.Grad()), b.Apply(scale{}, b.In(0), b.Grad())}
}

// rowsOf returns a shape as rows along its last axis.
func rowsOf(s tensor.Shape) (rows, n int64) {
	n = int64(s[len(s)-1])
	rows = 1
	for _, d := range s[:len(s)-1] {
		rows *= int64(d)
	}
	return rows, n
}
