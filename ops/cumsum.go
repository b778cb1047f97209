package ops

import (
	"fmt"

	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// CumSum is the sum of the elements of x up to each one along an axis; a negative axis counts from the end:
//
//	out[i, k, j] = sum over l <= k of x[i, l, j]
//
// x has elements of any type; sums of integers and of bool are of int64 and wrap. The order of a sum follows from the shape alone.
func CumSum(x *gorgonia.Node, axis int) (*gorgonia.Node, error) {
	axis, err := inputAxis("CumSum", x, axis)
	if err != nil {
		return nil, err
	}
	if t, _ := typeOf(x); t.Dtype == kernels.Uint8 || t.Dtype == kernels.Bool {
		if x, err = Cast(x, tensor.Int64); err != nil {
			return nil, fmt.Errorf("ops: CumSum: %w", err)
		}
	}
	return Apply(cumSum{axis, false}, x)
}

type cumSum struct {
	axis     int
	reversed bool // sums from the end
}

func (p cumSum) String() string { return fmt.Sprintf("CumSum[%d]", p.axis) }

func (p cumSum) Infer(in ...Type) (Type, error) {
	if len(in) != 1 {
		return Type{}, fmt.Errorf("got %d inputs, want 1", len(in))
	}
	switch t := in[0]; {
	case t.Dtype.IsFloat():
		return t, nil
	case t.Dtype.IsInteger() && t.Dtype != kernels.Uint8:
		return Type{kernels.Int64, t.Shape}, nil
	}
	return Type{}, fmt.Errorf("input 0: got %v, want float32, float64, int32, int64 or int", values.Tensor(in[0].Dtype))
}

func (p cumSum) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	return basic.CumSum(dev, in[0].Dtype, in[0].Shape, p.axis, p.reversed)
}

func (p cumSum) Adjoints(b *Backward) []Term {
	return []Term{b.Apply(cumSum{p.axis, !p.reversed}, b.Grad())}
}
