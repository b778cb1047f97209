package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
)

// Add is the element-wise sum a + b of two tensors. Those of other shapes or types than one another broadcast and become one type as in [Map].
//
//	out[i] = a[i] + b[i]
func Add(a, b *gorgonia.Node) (*gorgonia.Node, error) {
	types, err := anyTypesOf([]*gorgonia.Node{a, b})
	if err != nil || CheckFloats(types, 2) == nil && slices.Equal(types[0].Shape, types[1].Shape) {
		return Apply(add{}, a, b)
	}
	return applyExpression("Add", "", "a + b", a, b)
}

type add struct{}

func (add) String() string { return "Add" }

func (add) Infer(in ...Type) (Type, error) {
	if err := CheckFloats(in, 2); err != nil {
		return Type{}, err
	}
	if a, b := in[0].Shape, in[1].Shape; !slices.Equal(a, b) {
		return Type{}, fmt.Errorf("got shapes %v and %v, want equal ones", a, b)
	}
	return in[0], nil
}

func (add) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	return basic.Add(dev, in[0].Dtype, in[0].Elements()), nil
}

func (add) Func(in ...Type) (expr.Func, error) {
	b := expr.NewBuilder(in[0].Dtype, in[1].Dtype)
	return b.Func(b.Apply(expr.Add, b.Operand(0), b.Operand(1)))
}

func (add) Adjoints(b *Backward) []Term { return []Term{b.Grad(), b.Grad()} }
