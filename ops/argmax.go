package ops

import (
	"fmt"

	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
)

// ArgMax returns the index of the greatest element of x along an axis, which is removed from the shape; -1 is the last axis. x has
// floating-point numbers or integers, the output is of int.
//
//	out[kept] = the first i for which x[..., i, ...] is greatest
//
// NaN counts as greater than all numbers, and -0 as equal to 0. There is no gradient.
func ArgMax(x *gorgonia.Node, axis int) (*gorgonia.Node, error) {
	return argument("ArgMax", expr.RowMax, x, axis)
}

// ArgMin is [ArgMax] of the least element: NaN counts as less than all numbers.
func ArgMin(x *gorgonia.Node, axis int) (*gorgonia.Node, error) {
	return argument("ArgMin", expr.RowMin, x, axis)
}

func argument(name string, op expr.Op, x *gorgonia.Node, axis int) (*gorgonia.Node, error) {
	axis, err := inputAxis(name, x, axis)
	if err != nil {
		return nil, err
	}
	return Apply(argExtreme{name, op, axis}, x)
}

// argExtreme is ArgMax or ArgMin.
type argExtreme struct {
	name string
	op   expr.Op
	axis int
}

func (p argExtreme) String() string { return fmt.Sprintf("%s[%d]", p.name, p.axis) }

func (p argExtreme) Infer(in ...Type) (Type, error) {
	if len(in) != 1 {
		return Type{}, fmt.Errorf("got %d inputs, want 1", len(in))
	}
	if in[0].Dtype == kernels.Bool {
		return Type{}, fmt.Errorf("input 0: got %v, want numbers", values.Tensor(kernels.Bool))
	}
	if err := checkAxes([]int{p.axis}, in[0].Shape); err != nil {
		return Type{}, fmt.Errorf("input 0: %w", err)
	}
	return Type{kernels.Int, without(in[0].Shape, []int{p.axis})}, nil
}

// Rows returns the least index of those whose elements equal the extreme, or are NaN: if any is, the extreme is NaN and equals none.
func (p argExtreme) Rows(in ...Type) (Rows, error) {
	shape := in[0].Shape
	b := expr.NewBuilder(in[0].Dtype, kernels.Int64)
	x, index := b.Operand(0), b.Operand(1)
	found := b.Apply(expr.Eq, x, b.Apply(p.op, x))
	if in[0].Dtype.IsFloat() {
		found = b.Apply(expr.Or, found, b.Apply(expr.Ne, x, x))
	}
	first := b.Apply(expr.RowMin, b.Apply(expr.Select, found, index, b.Integer(kernels.Int64, int64(shape[p.axis]))))
	f, err := b.Func(b.Convert(first, kernels.Int))
	return Rows{Func: f, Shape: shape, Axes: []int{p.axis}, PerRow: true, Iotas: [][]int{indexAlong(p.axis, shape)}}, err
}

func (p argExtreme) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	return planRows(p, dev, in)
}

func (p argExtreme) below(in ...Type) int { return in[0].Shape[p.axis] }

func (argExtreme) Adjoints(*Backward) []Term { return []Term{{}} }

// planRows is the Plan of a Rowwise primitive.
func planRows(p Rowwise, dev kernels.Device, in []Type) (*kernels.Plan, error) {
	r, err := p.Rows(in...)
	if err != nil {
		return nil, err
	}
	return r.Plan(dev, in...)
}
