package ops

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The functions of this file turn faults of a primitive into errors, so that they do not become
// panics.

// nameOf returns the name of a primitive, or an error if it has none.
func nameOf(p Primitive) (name string, err error) {
	if p == nil {
		return "", errors.New("got a nil primitive")
	}
	if guard.IsNil(p) {
		return "", fmt.Errorf("got a nil %T as primitive", p)
	}
	err = guard.Recover(fmt.Sprintf("String of %T", p), func() error { name = p.String(); return nil })
	return name, err
}

// forms are what a primitive computes, in the forms that compilers use.
type forms struct {
	pointwise, rowwise, viewer bool
	function                   expr.Func
	rows                       Rows
	view                       codegen.View
}

// formsOf returns the forms of a primitive.
func formsOf(p Primitive, in []Type, out Type) (f forms, err error) {
	if pointwise, ok := p.(Pointwise); ok {
		f.pointwise = true
		err = guard.Recover("Func", func() error {
			if f.function, err = pointwise.Func(in...); err != nil {
				return err
			}
			return checkFunction("Func", f.function, in, nil, out.Dtype, out.Shape)
		})
	}
	if rowwise, ok := p.(Rowwise); ok && err == nil {
		f.rowwise = true
		err = guard.Recover("Rows", func() error {
			if f.rows, err = rowwise.Rows(in...); err != nil {
				return err
			}
			if err := checkAxes(f.rows.Axes, f.rows.Shape); err != nil {
				return fmt.Errorf("Rows: %w", err)
			}
			if n := f.rows.Func.Reductions(); n > 0 && len(f.rows.Axes) == 0 {
				return fmt.Errorf("Rows: got a function with %d reductions and no axes, want one axis or more", n)
			}
			want := kernels.Count(f.rows.Shape)
			if f.rows.PerRow {
				want = kernels.Count(without(f.rows.Shape, f.rows.Axes))
			}
			if out.Elements() != want {
				return fmt.Errorf("Rows: its result has %d elements, want the %d of %v", want, out.Elements(), out)
			}
			return checkFunction("Rows", f.rows.Func, in, f.rows.Iotas, out.Dtype, f.rows.Shape)
		})
	}
	if viewer, ok := p.(Viewer); ok && err == nil {
		f.viewer = true
		err = guard.Recover("View", func() error {
			if f.view, err = viewer.View(in...); err != nil {
				return err
			}
			if err := f.view.Check(out.Shape); err != nil {
				return fmt.Errorf("View: %w", err)
			}
			if len(in) != 1 || in[0].Dtype != out.Dtype || f.view.Elements != in[0].Elements() {
				return fmt.Errorf("View: got a view of %d elements of inputs %v as %v, want one of all elements of one input of that type", f.view.Elements, in, out)
			}
			return nil
		})
	}
	return f, err
}

// checkFunction returns an error if a function does not fit the types of an op; its method returned it.
func checkFunction(method string, f expr.Func, in []Type, iotas [][]int, dt kernels.Dtype, shape tensor.Shape) error {
	operands, results := f.Operands(), f.Outputs()
	if len(operands) != len(in)+len(iotas) || len(results) != 1 {
		return fmt.Errorf("%s: got a function of %d operands with %d results, want %d and 1", method, len(operands), len(results), len(in)+len(iotas))
	}
	for i, strides := range iotas {
		if d := operands[len(in)+i]; d != kernels.Int64 || len(strides) != len(shape) {
			return fmt.Errorf("%s: operand %d is %v for iota %d of strides %v, want int64 and %d strides", method, len(in)+i, values.Tensor(d), i, strides, len(shape))
		}
	}
	for i, t := range in {
		if operands[i] != t.Dtype {
			return fmt.Errorf("%s: operand %d is %v, want %v", method, i, values.Tensor(operands[i]), values.Tensor(t.Dtype))
		}
		if _, ok := broadcastView(t.Shape, shape); !ok {
			return fmt.Errorf("%s: input %d is of shape %v, want one that broadcasts to %v, the output's", method, i, t.Shape, shape)
		}
	}
	if results[0] != dt {
		return fmt.Errorf("%s: its result is %v, want %v", method, values.Tensor(results[0]), values.Tensor(dt))
	}
	return nil
}

// checkPlan returns an error if a plan is not one for the op on a device.
func (o *Op) checkPlan(p *kernels.Plan, dev kernels.Device) error {
	if p == nil {
		return errors.New("Plan returned nil and no error")
	}
	if len(p.Inputs) != len(o.in) {
		return fmt.Errorf("the plan takes %d inputs, want %d", len(p.Inputs), len(o.in))
	}
	for i, t := range o.in {
		if p.Inputs[i] != t.Bytes() {
			return fmt.Errorf("the plan takes %d bytes of input %d, want the %d of %v", p.Inputs[i], i, t.Bytes(), t)
		}
	}
	if p.Out != o.out.Bytes() {
		return fmt.Errorf("the plan's output has %d bytes, want the %d of %v", p.Out, o.out.Bytes(), o.out)
	}
	return p.Check(dev)
}

// checkValues returns an error if values are not of the op's types.
func (o *Op) checkValues(in []gorgonia.Value) error {
	if len(in) != len(o.in) {
		return fmt.Errorf("ops: %v: got %d inputs, want %d", o, len(in), len(o.in))
	}
	for i, v := range in {
		if guard.IsNil(v) {
			return fmt.Errorf("ops: %v: input %d has no value", o, i)
		}
		if v.Dtype() != values.Tensor(o.in[i].Dtype) || !sameShape(v.Shape(), o.in[i].Shape) {
			return fmt.Errorf("ops: %v: input %d is %v of shape %v, want %v of shape %v",
				o, i, v.Dtype(), v.Shape(), values.Tensor(o.in[i].Dtype), o.in[i].Shape)
		}
	}
	return nil
}

func sameShape(a, b tensor.Shape) bool { return slices.Equal(a, b) }
