package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Update returns x with the rows from a position along an axis replaced by those of rows:
//
//	out[..., position + k, ...] = rows[..., k, ...]   for each k below the extent n of rows along axis
//	out[..., i, ...]            = x[..., i, ...]      elsewhere
//
// rows has the element type and shape of x, except that n may be less. A negative axis counts from the end. The position, of int or int64, is a scalar, or a vector with
// one for each index of axis 0, if axis is not 0. A position below 0, or above the extent of x less n, is the error of a run, in
// which nothing is written; [cudaops.State] describes positions that a run computes. Any element type is accepted.
//
// If x is a state of [cudaops.State] and the result its next value, only the rows are written. So a cache of keys and values grows.
//
// [cudaops.State]: https://pkg.go.dev/github.com/stheno-ml/stheno/cudaops#State
func Update(x, rows, position *gorgonia.Node, axis int) (*gorgonia.Node, error) {
	axis, err := inputAxis("Update", x, axis)
	if err != nil {
		return nil, err
	}
	return Apply(update{axis}, x, rows, position)
}

// RowsAt returns n rows of x from a position along an axis on, the inverse of [Update], with the same rules for the axis and the position:
//
//	out[..., k, ...] = x[..., position + k, ...]   for each k below n
func RowsAt(x, position *gorgonia.Node, n, axis int) (*gorgonia.Node, error) {
	axis, err := inputAxis("RowsAt", x, axis)
	if err != nil {
		return nil, err
	}
	return Apply(rowsAt{n, axis}, x, position)
}

type update struct{ axis int }

func (u update) String() string { return fmt.Sprintf("Update[%d]", u.axis) }

func (u update) Infer(in ...Type) (Type, error) {
	if len(in) != 3 {
		return Type{}, fmt.Errorf("got %d inputs, want 3", len(in))
	}
	x, rows := in[0], in[1]
	want := x.Shape.Clone()
	if u.axis < rows.Shape.Dims() {
		want[u.axis] = min(rows.Shape[u.axis], want[u.axis])
	}
	if rows.Dtype != x.Dtype || !sameShape(rows.Shape, want) {
		return Type{}, fmt.Errorf("input 1: got %v, want rows of %v along axis %d", rows, x, u.axis)
	}
	return x, checkPosition(x, in[2], u.axis)
}

// checkPosition returns an error unless a position along an axis fits x.
func checkPosition(x, position Type, axis int) error {
	if position.Dtype != kernels.Int && position.Dtype != kernels.Int64 {
		return fmt.Errorf("got a position of %v, want int or int64", values.Tensor(position.Dtype))
	}
	if position.Shape.IsScalar() || axis > 0 && sameShape(position.Shape, tensor.Shape{x.Shape[0]}) {
		return nil
	}
	if axis == 0 {
		return fmt.Errorf("got a position of shape %v, want a scalar along axis 0", position.Shape)
	}
	return fmt.Errorf("got a position of shape %v, want a scalar or shape (%d)", position.Shape, x.Shape[0])
}

// updateOf describes n rows of x for the kernels.
func updateOf(x, position Type, n, axis int) basic.Rows {
	return basic.Rows{Dtype: x.Dtype, Shape: x.Shape, Axis: axis, Count: int64(n), Positions: position.Elements()}
}

func (u update) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	return u.plan(dev, false, in)
}

func (u update) planInPlace(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	return u.plan(dev, true, in)
}

func (u update) plan(dev kernels.Device, inPlace bool, in []Type) (*kernels.Plan, error) {
	return updateOf(in[0], in[2], in[1].Shape[u.axis], u.axis).Update(dev, inPlace)
}

func (u update) Limit(input int, in ...Type) (count, also int, limited bool) {
	return in[0].Shape[u.axis] - in[1].Shape[u.axis] + 1, 0, input == 2
}

func (u update) Adjoints(b *Backward) []Term {
	position := b.In(2)
	return []Term{b.Apply(u, b.Grad(), zeros(b, b.In(1)), position), b.Apply(rowsAt{b.In(1).Type().Shape[u.axis], u.axis}, b.Grad(), position), {}}
}

type rowsAt struct{ n, axis int }

func (r rowsAt) String() string { return fmt.Sprintf("RowsAt[%d along %d]", r.n, r.axis) }

func (r rowsAt) Infer(in ...Type) (Type, error) {
	if len(in) != 2 {
		return Type{}, fmt.Errorf("got %d inputs, want 2", len(in))
	}
	if err := checkPosition(in[0], in[1], r.axis); err != nil {
		return Type{}, err
	}
	out := Type{in[0].Dtype, in[0].Shape.Clone()}
	if r.n < 1 || r.n > out.Shape[r.axis] {
		return Type{}, fmt.Errorf("got %d rows, want 1 to %d along axis %d of %v", r.n, out.Shape[r.axis], r.axis, in[0])
	}
	out.Shape[r.axis] = r.n
	return out, nil
}

func (r rowsAt) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	return updateOf(in[0], in[1], r.n, r.axis).Read(dev)
}

func (r rowsAt) Limit(input int, in ...Type) (count, also int, limited bool) {
	return in[0].Shape[r.axis] - r.n + 1, 0, input == 1
}

func (r rowsAt) Adjoints(b *Backward) []Term {
	return []Term{b.Apply(update{r.axis}, zeros(b, b.In(0)), b.Grad(), b.In(1)), {}}
}

// inPlace is a primitive whose output differs from its first input in the elements that its launches write over it.
type inPlace interface {
	planInPlace(dev kernels.Device, in ...Type) (*kernels.Plan, error)
}

// InPlace returns a planner of the op that writes over the first input only the elements in which the output differs; ok is false
// for an op that has none.
func (o *Op) InPlace() (p kernels.Planner, ok bool) {
	_, ok = o.primitive.(inPlace)
	return overInput{o}, ok
}

// overInput plans an op in place.
type overInput struct{ *Op }

// Plan implements kernels.Planner.
func (o overInput) Plan(dev kernels.Device) (*kernels.Plan, error) {
	p, err := o.primitive.(inPlace).planInPlace(dev, o.in...)
	if err == nil {
		err = o.checkPlan(p, dev)
	}
	if err != nil {
		return nil, fmt.Errorf("ops: %v in place: %w", o, err)
	}
	return p, nil
}

// String names the op.
func (o overInput) String() string { return o.name + " in place" }

// Updated returns the rows that [Update] replaces; ok is false for any other op.
func (o *Op) Updated() (r basic.Rows, ok bool) {
	u, ok := o.primitive.(update)
	if !ok {
		return r, false
	}
	return updateOf(o.in[0], o.in[2], o.in[1].Shape[u.axis], u.axis), true
}

// InHalf returns a planner of [Update] of float32 whose tensor, rows and result are stored in BF16 or F16; ok is false for any other op.
func (o *Op) InHalf(d kernels.Dtype) (p kernels.Planner, ok bool) {
	if _, ok := o.primitive.(update); !ok || o.in[0].Dtype != kernels.Float32 {
		return nil, false
	}
	half := *o
	half.in = slices.Clone(o.in)
	half.in[0].Dtype, half.in[1].Dtype, half.out.Dtype = d, d, d
	return &half, true
}
