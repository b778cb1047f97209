// Package own has an op of its own for Gorgonia graphs, with a CUDA kernel.
package own

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

// Swish is out[i] = x[i] / (1 + exp(-x[i])) for a tensor of any shape, float32 or
// float64.
func Swish(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Apply(swish{}, x) }

type swish struct{}

func (swish) String() string { return "Swish" }

func (swish) Infer(in ...ops.Type) (ops.Type, error) {
	if err := ops.CheckFloats(in, 1); err != nil {
		return ops.Type{}, err
	}
	return in[0], nil
}

func (swish) Plan(dev kernels.Device, in ...ops.Type) (*kernels.Plan, error) {
	return swishPlan(dev, in[0].Dtype, in[0].Elements()), nil
}

func (swish) Adjoints(b *ops.Backward) []ops.Term {
	return []ops.Term{b.Apply(swishGrad{}, b.In(0), b.Grad())}
}

// swishGrad takes x and the derivative by Swish(x) to the derivative by x.
type swishGrad struct{}

func (swishGrad) String() string { return "SwishGrad" }

func (swishGrad) Infer(in ...ops.Type) (ops.Type, error) {
	if err := ops.CheckFloats(in, 2); err != nil {
		return ops.Type{}, err
	}
	if !slices.Equal(in[0].Shape, in[1].Shape) {
		return ops.Type{}, fmt.Errorf("got shapes %v and %v, want equal ones", in[0].Shape, in[1].Shape)
	}
	return in[0], nil
}

func (swishGrad) Plan(dev kernels.Device, in ...ops.Type) (*kernels.Plan, error) {
	return gradPlan(dev, in[0].Dtype, in[0].Elements()), nil
}

func (swishGrad) Adjoints(b *ops.Backward) []ops.Term {
	return b.None("there is no kernel for the second derivative of Swish")
}
