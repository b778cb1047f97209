package ops

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// This file holds what keeps a primitive's faults from becoming panics.

// guard calls a method of a primitive and returns its panic as an error.
func guard(method string, call func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s panicked: %v", method, r)
		}
	}()
	return call()
}

// nameOf returns the name of a primitive, or an error where there is none.
func nameOf(p Primitive) (name string, err error) {
	if p == nil {
		return "", errors.New("got a nil primitive")
	}
	switch v := reflect.ValueOf(p); v.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan:
		if v.IsNil() {
			return "", fmt.Errorf("got a nil %T as primitive", p)
		}
	}
	err = guard(fmt.Sprintf("String of %T", p), func() error { name = p.String(); return nil })
	return name, err
}

// checkPlan returns an error if a plan is not one for the op.
func (o *Op) checkPlan(p *kernels.Plan) error {
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
		return fmt.Errorf("the plan gives %d bytes, want the %d of %v", p.Out, o.out.Bytes(), o.out)
	}
	for i, l := range p.Launches {
		if l.Kernel == nil {
			return fmt.Errorf("launch %d of the plan has no kernel", i)
		}
	}
	return nil
}

// checkValues returns an error if values are not of the op's types.
func (o *Op) checkValues(in []gorgonia.Value) error {
	if len(in) != len(o.in) {
		return fmt.Errorf("ops: %v: got %d inputs, want %d", o, len(in), len(o.in))
	}
	for i, v := range in {
		if v == nil {
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
