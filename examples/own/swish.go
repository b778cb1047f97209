// Package own has an op of its own for Gorgonia graphs, with a CUDA kernel.
package own

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Swish is out[i] = x[i] / (1 + exp(-x[i])) for a tensor of any shape, float32 or
// float64.
func Swish(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Apply(swish{}, x) }

type swish struct{}

func (swish) String() string { return "Swish" }

func (swish) Infer(in []tensor.Shape) (tensor.Shape, error) {
	if len(in) != 1 {
		return nil, fmt.Errorf("got %d inputs, want 1", len(in))
	}
	return in[0].Clone(), nil
}

func (swish) Plan(dev kernels.Device, dt kernels.Dtype, in []tensor.Shape) (*kernels.Plan, error) {
	return plan("swish", swishKernel[dt], dev, dt, 1, int64(in[0].TotalSize())), nil
}

func (swish) Adjoints([]tensor.Shape) []ops.Adjoint {
	return []ops.Adjoint{{Technique: swishGrad{}, Operands: []int{0, ops.Gradient}}}
}

// swishGrad takes x and the derivative by Swish(x) to the derivative by x.
type swishGrad struct{}

func (swishGrad) String() string { return "SwishGrad" }

func (swishGrad) Infer(in []tensor.Shape) (tensor.Shape, error) {
	if len(in) != 2 || !slices.Equal(in[0], in[1]) {
		return nil, fmt.Errorf("got inputs of shapes %v, want two of one shape", in)
	}
	return in[0].Clone(), nil
}

func (swishGrad) Plan(dev kernels.Device, dt kernels.Dtype, in []tensor.Shape) (*kernels.Plan, error) {
	return plan("swish_grad", gradKernel[dt], dev, dt, 2, int64(in[0].TotalSize())), nil
}

// There is no kernel for the second derivative.
func (swishGrad) Adjoints([]tensor.Shape) []ops.Adjoint { return nil }
