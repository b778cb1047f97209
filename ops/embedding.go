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

// Embedding returns the rows of a table at ids, integers of any type and shape:
//
//	out[i..., j...] = table[ids[i...], j...]
//
// The table has rows along axis 0 and elements of any type. An id that is no row is an error of the run. The gradient by the table adds up
// the rows of the output's gradient with equal ids, in the order of the ids.
func Embedding(table, ids *gorgonia.Node) (*gorgonia.Node, error) {
	return Apply(embedding{}, table, ids)
}

type embedding struct{}

func (embedding) String() string { return "Embedding" }

func (embedding) Infer(in ...Type) (Type, error) {
	if len(in) != 2 {
		return Type{}, fmt.Errorf("got %d inputs, want 2", len(in))
	}
	table, ids := in[0], in[1]
	if len(table.Shape) == 0 {
		return Type{}, fmt.Errorf("input 0: got a scalar, want rows along axis 0")
	}
	if !ids.Dtype.IsInteger() {
		return Type{}, fmt.Errorf("input 1: got %v, want integers", values.Tensor(ids.Dtype))
	}
	return Type{table.Dtype, slices.Concat(ids.Shape, table.Shape[1:])}, nil
}

func (embedding) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	return basic.GatherBy(dev, in[0].Dtype, in[1].Dtype, in[0].Shape, 0, in[1].Elements())
}

// Limit makes ids beyond the table an error.
func (embedding) Limit(input int, in ...Type) (count, also int, limited bool) {
	return in[0].Shape[0], 0, input == 1
}

func (embedding) Adjoints(b *Backward) []Term {
	return []Term{b.Apply(embeddingGradient{b.In(0).Type().Shape}, b.Grad(), b.In(1)), {}}
}

// embeddingGradient adds up rows of its first input by ids in a tensor of a shape.
type embeddingGradient struct{ shape tensor.Shape }

func (embeddingGradient) String() string { return "EmbeddingGradient" }

func (e embeddingGradient) Infer(in ...Type) (Type, error) { return Type{in[0].Dtype, e.shape}, nil }

func (e embeddingGradient) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	return basic.ScatterBy(dev, in[0].Dtype, in[1].Dtype, e.shape, 0, in[1].Elements())
}

func (e embeddingGradient) Adjoints(b *Backward) []Term {
	return []Term{b.Apply(embedding{}, b.Grad(), b.In(1)), {}}
}

// Onto returns a planner of the gradient of [Embedding] that adds it to a tensor of its type: that is the first input, which has the memory of the output, and the op's
// inputs follow. ok is false for any other op, and if the device has no kernel for it.
func (o *Op) Onto(dev kernels.Device) (p kernels.Planner, ok bool) {
	e, is := o.primitive.(embeddingGradient)
	if !is {
		return nil, false
	}
	_, ok, err := basic.ScatterOnto(dev, o.in[0].Dtype, o.in[1].Dtype, e.shape, int64(o.in[1].Elements()))
	return onto{o}, ok && err == nil
}

// onto plans the gradient of Embedding that is added to a tensor.
type onto struct{ *Op }

// Plan implements kernels.Planner.
func (o onto) Plan(dev kernels.Device) (*kernels.Plan, error) {
	p, ok, err := basic.ScatterOnto(dev, o.in[0].Dtype, o.in[1].Dtype, o.primitive.(embeddingGradient).shape, int64(o.in[1].Elements()))
	if err == nil && !ok {
		err = fmt.Errorf("got %v, want a device for which Onto has returned it", dev.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("ops: %v: %w", o, err)
	}
	return p, nil
}

// String names the op.
func (o onto) String() string { return o.name + " onto a tensor" }
