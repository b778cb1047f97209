package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/reduce"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Sum adds up a tensor over the given axes, or over all axes if none is given. As with Gorgonia's
// Sum the axes are removed from the shape, the sum over all axes is a scalar, and the sum of a
// scalar is the scalar itself.
//
//	out[kept] = sum over the axes' indexes of x[...]
//
// The sum is made in double precision whatever the type, so a float32 result is
// the float64 sum rounded once. The sum of integers, or of bool, is an int64 that wraps; it has no gradient. A negative axis counts from
// the end. An axis beyond the rank or given twice is an error.
func Sum(x *gorgonia.Node, along ...int) (*gorgonia.Node, error) { return overAxes(false, x, along) }

// Mean is Sum divided by the number of terms.
//
//	out[kept] = (sum over the axes' indexes of x[...]) / (product of the axes' extents)
//
// The quotient is computed in double precision, so a float32 result is the float64 quotient rounded
// once. The gradient by each of n terms is g / n, for the gradient g by their mean, rounded once. A
// loss that is itself a mean has g = 1: its gradient by x in Mean(f(x)) is the rounded 1 / n times
// the derivative of f, as with Gorgonia's Mean.
func Mean(x *gorgonia.Node, along ...int) (*gorgonia.Node, error) { return overAxes(true, x, along) }

func overAxes(mean bool, x *gorgonia.Node, along []int) (*gorgonia.Node, error) {
	t, err := typeOf(x)
	if err != nil {
		return nil, fmt.Errorf("ops: %v: input 0: %w", sum{mean, along}, err)
	}
	integers := !mean && !t.Dtype.IsFloat()
	if x.IsScalar() && len(along) == 0 && (integers || t.Dtype.IsFloat()) {
		if integers {
			return Cast(x, tensor.Int64)
		}
		return x, nil
	}
	axes, err := axesOf(along, x.Shape())
	if err != nil {
		return nil, fmt.Errorf("ops: %v: %w", sum{mean, along}, err)
	}
	if integers {
		return Apply(reduceIntegers{"Sum", expr.RowSum, kernels.Int64, axes}, x)
	}
	return Apply(sum{mean, axes}, x)
}

// sum reduces over sorted axes.
type sum struct {
	mean bool
	axes []int
}

func (s sum) String() string {
	if s.mean {
		return fmt.Sprintf("Mean%v", s.axes)
	}
	return fmt.Sprintf("Sum%v", s.axes)
}

func (s sum) Infer(in ...Type) (Type, error) {
	if err := CheckFloats(in, 1); err != nil {
		return Type{}, err
	}
	x := in[0].Shape
	if err := checkAxes(s.axes, x); err != nil {
		return Type{}, err
	}
	return Type{in[0].Dtype, without(x, s.axes)}, nil
}

func (s sum) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	return reduce.Sum(dev, in[0].Dtype, in[0].Shape, s.axes, s.mean), nil
}

func (s sum) Adjoints(b *Backward) []Term {
	return []Term{b.Apply(broadcast{b.In(0).Type().Shape, s.axes, s.mean}, b.Grad())}
}

// reduceIntegers is a reduction of integers, or of bool, with a result of a type.
type reduceIntegers struct {
	name string
	op   expr.Op
	to   kernels.Dtype
	axes []int
}

func (r reduceIntegers) String() string { return fmt.Sprintf("%s%v", r.name, r.axes) }

func (r reduceIntegers) Infer(in ...Type) (Type, error) {
	if len(in) != 1 {
		return Type{}, fmt.Errorf("got %d inputs, want 1", len(in))
	}
	return Type{r.to, without(in[0].Shape, r.axes)}, checkAxes(r.axes, in[0].Shape)
}

func (r reduceIntegers) Rows(in ...Type) (Rows, error) {
	b := expr.NewBuilder(in[0].Dtype)
	f, err := b.Func(b.Apply(r.op, b.Operand(0)))
	return Rows{Func: f, Shape: in[0].Shape, Axes: r.axes, PerRow: true}, err
}

func (r reduceIntegers) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	return planRows(r, dev, in)
}

func (reduceIntegers) Adjoints(*Backward) []Term { return []Term{{}} }

// checkAxes returns an error unless sorted axes are axes of a shape.
func checkAxes(axes []int, shape tensor.Shape) error {
	for i, a := range axes {
		if a < 0 || a >= shape.Dims() {
			return fmt.Errorf("got axis %d for shape %v, want 0 <= axis < %d", a, shape, shape.Dims())
		}
		if i > 0 && axes[i-1] == a {
			return fmt.Errorf("got axis %d twice", a)
		}
	}
	return nil
}

// without returns a shape with the axes removed.
func without(shape tensor.Shape, axes []int) tensor.Shape {
	rest := tensor.Shape{}
	for a, d := range shape {
		if !slices.Contains(axes, a) {
			rest = append(rest, d)
		}
	}
	if len(rest) == 0 {
		return tensor.ScalarShape()
	}
	return rest
}
