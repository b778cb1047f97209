package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Broadcast repeats x, of any type, n times along a new axis, which becomes the given axis of the result, as a bias is repeated over a
// batch: Broadcast(bias, batch, 0) makes (batch, h) of (h). A scalar becomes a vector. -1 is a new last axis.
//
//	out[..., j, ...] = x[..., ...]   for 0 <= j < n
//
// It is an error if n < 1.
func Broadcast(x *gorgonia.Node, n, axis int) (*gorgonia.Node, error) {
	p := broadcast{axes: []int{axis}}
	t, err := typeOf(x)
	if err != nil {
		return nil, fmt.Errorf("ops: %v: input 0: %w", p, err)
	}
	in := t.Shape
	if axis, err = axisOf(axis, append(slices.Clone(in), 1)); n < 1 || err != nil {
		return nil, fmt.Errorf("ops: %v: got %d copies of shape %v, want at least 1 copy and %d <= axis <= %d", p, n, in, -1-in.Dims(), in.Dims())
	}
	p.axes, p.shape = []int{axis}, slices.Insert(slices.Clone(in), axis, n)
	if t.Dtype.IsFloat() {
		return Apply(p, x)
	}
	if x, err = reshaped(x, slices.Insert(slices.Clone(in), axis, 1)); err != nil {
		return nil, err
	}
	return Apply(viewing{expand{p.shape}}, x)
}

// broadcast is the adjoint of sum: it repeats its input along sorted axes so
// that the output has the given shape, divided by the number of copies if mean.
type broadcast struct {
	shape tensor.Shape
	axes  []int
	mean  bool
}

func (p broadcast) String() string {
	if p.mean {
		return fmt.Sprintf("BroadcastMean%v%v", p.axes, []int(p.shape))
	}
	return fmt.Sprintf("Broadcast%v%v", p.axes, []int(p.shape))
}

func (p broadcast) Infer(in ...Type) (Type, error) {
	if err := CheckFloats(in, 1); err != nil {
		return Type{}, err
	}
	if want := without(p.shape, p.axes); !slices.Equal(want, in[0].Shape) {
		return Type{}, fmt.Errorf("got shape %v, want %v", in[0].Shape, want)
	}
	return Type{in[0].Dtype, p.shape}, nil
}

func (p broadcast) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	return basic.Broadcast(dev, in[0].Dtype, p.shape, p.axes, p.mean), nil
}

func (p broadcast) Adjoints(b *Backward) []Term {
	return []Term{b.Apply(sum{mean: p.mean, axes: p.axes}, b.Grad())}
}

// Broadcast returns the axes along which a Broadcast, or the gradient of a Sum or Mean, repeats its input, and the number that it divides by;
// ok is false for any other op.
func (o *Op) Broadcast() (axes []int, divisor int, ok bool) {
	p, ok := o.primitive.(broadcast)
	divisor = 1
	for _, a := range p.axes {
		if p.mean {
			divisor *= p.shape[a]
		}
	}
	return p.axes, divisor, ok
}
