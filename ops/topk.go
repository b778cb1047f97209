package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"gorgonia.org/gorgonia"
)

// TopK returns the k largest elements of x along an axis, in falling order, and their indices, of int, both of the shape of x with k elements along that
// axis. A negative axis counts from the end. Of equal elements the first one counts as larger, and NaN as largest.
//
// x has elements of float32 or float64, and k is at most 1024 (basic.MaxTopK). The values are a [Pick] of the indices, and so is their gradient;
// indices have none.
func TopK(x *gorgonia.Node, k, axis int) (largest, indices *gorgonia.Node, err error) {
	axis, err = inputAxis("TopK", x, axis)
	if err != nil {
		return nil, nil, err
	}
	order := make([]int, x.Dims()) // that exchanges the axis with the last one, also back
	for a := range order {
		order[a] = a
	}
	last := len(order) - 1
	order[axis], order[last] = last, axis
	rows := x
	if axis != last {
		if rows, err = Permute(x, order...); err != nil {
			return nil, nil, err
		}
	}
	if indices, err = Apply(topK{k}, rows); err == nil {
		largest, err = Pick(rows, indices, last)
	}
	for _, n := range []**gorgonia.Node{&largest, &indices} {
		if err == nil && axis != last {
			*n, err = Permute(*n, order...)
		}
	}
	return largest, indices, err
}

// topK is the indices of TopK along the last axis.
type topK struct{ k int }

func (p topK) String() string { return fmt.Sprintf("TopK[%d]", p.k) }

func (p topK) Infer(in ...Type) (Type, error) {
	if err := CheckFloats(in, 1); err != nil {
		return Type{}, err
	}
	shape := slices.Clone(in[0].Shape)
	n := &shape[len(shape)-1]
	if most := min(*n, basic.MaxTopK); p.k < 1 || p.k > most {
		return Type{}, fmt.Errorf("got k = %d of %d elements, want 1 to %d", p.k, *n, most)
	}
	*n = p.k
	return Type{kernels.Int, shape}, nil
}

func (p topK) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	if kernels.Int.Size() != kernels.Int64.Size() {
		return nil, fmt.Errorf("got %v of %d bytes, want 8", values.Tensor(kernels.Int), kernels.Int.Size())
	}
	return p.largest(in[0]).Plan(dev)
}

func (p topK) largest(x Type) basic.Largest {
	n := int64(x.Shape[len(x.Shape)-1])
	return basic.Largest{Dtype: x.Dtype, Rows: x.Elements() / n, N: n, K: int64(p.k)}
}

// Largest returns the launches of the indices of [TopK]; ok is false for any other op.
func (o *Op) Largest() (l basic.Largest, ok bool) {
	p, ok := o.primitive.(topK)
	if ok {
		l = p.largest(o.in[0])
	}
	return l, ok
}

func (p topK) below(in ...Type) int { return in[0].Shape[len(in[0].Shape)-1] }

func (topK) Adjoints(*Backward) []Term { return []Term{{}} }
