package ops

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
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

// function returns the function of elements of a [Pointwise] primitive; ok is false for any other
// primitive.
func function(p Primitive, in []Type, out Type) (f expr.Func, ok bool, err error) {
	pointwise, ok := p.(Pointwise)
	if !ok {
		return f, false, nil
	}
	err = guard.Recover("Func", func() error {
		if f, err = pointwise.Func(in...); err != nil {
			return err
		}
		return checkFunction(f, in, out)
	})
	return f, true, err
}

// checkFunction returns an error if a function does not fit the types of an op.
func checkFunction(f expr.Func, in []Type, out Type) error {
	operands, results := f.Operands(), f.Outputs()
	if len(operands) != len(in) || len(results) != 1 {
		return fmt.Errorf("Func: got a function of %d operands with %d results, want %d and 1", len(operands), len(results), len(in))
	}
	for i, t := range in {
		if operands[i] != t.Dtype {
			return fmt.Errorf("Func: operand %d is %v, want %v", i, values.Tensor(operands[i]), values.Tensor(t.Dtype))
		}
		if !t.Shape.IsScalar() && !sameShape(t.Shape, out.Shape) {
			return fmt.Errorf("Func: input %d is of shape %v, want a scalar or %v, the output's", i, t.Shape, out.Shape)
		}
	}
	if results[0] != out.Dtype {
		return fmt.Errorf("Func: its result is %v, want %v", values.Tensor(results[0]), values.Tensor(out.Dtype))
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
