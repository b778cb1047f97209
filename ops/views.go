package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// viewing is a primitive that is its input seen through a view.
type viewing struct{ layout }

// layout is the part of a view that is its own. The views below have each other as their gradients.
type layout interface {
	String() string
	// see returns the view of a tensor of a shape, in row-major order, and the shape of the view.
	see(in tensor.Shape) (v codegen.View, out tensor.Shape, err error)
	Adjoints(b *Backward) []Term
}

func (p viewing) Infer(in ...Type) (Type, error) {
	if len(in) != 1 {
		return Type{}, fmt.Errorf("got %d inputs, want 1", len(in))
	}
	_, shape, err := p.see(in[0].Shape)
	return Type{in[0].Dtype, shape}, err
}

func (p viewing) View(in ...Type) (codegen.View, error) {
	v, _, err := p.see(in[0].Shape)
	return v, err
}

func (p viewing) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	v, shape, err := p.see(in[0].Shape)
	if err != nil {
		return nil, err
	}
	f, err := expr.Identity(in[0].Dtype)
	if err != nil {
		return nil, err
	}
	return codegen.Map(dev, f, shape, v)
}

// view returns a view of a term.
func (b *Backward) view(l layout, t Term) Term { return b.Apply(viewing{l}, t) }

// reshape returns a term in another shape.
func (b *Backward) reshape(t Term, shape tensor.Shape) Term {
	if sameShape(t.Type().Shape, shape) {
		return t
	}
	return b.view(reshape{shape}, t)
}

// reshaped returns a node in another shape.
func reshaped(x *gorgonia.Node, shape tensor.Shape) (*gorgonia.Node, error) {
	if sameShape(x.Shape(), shape) {
		return x, nil
	}
	return Apply(viewing{reshape{shape}}, x)
}

// reshape is its input in another shape.
type reshape struct{ shape tensor.Shape }

func (p reshape) String() string { return fmt.Sprintf("Reshape%v", []int(p.shape)) }

func (p reshape) see(in tensor.Shape) (codegen.View, tensor.Shape, error) {
	if n, want := kernels.Count(in), kernels.Count(p.shape); n != want {
		return codegen.View{}, nil, fmt.Errorf("got shape %v of %d elements, want the %d of %v", in, n, want, p.shape)
	}
	return codegen.Dense(p.shape), p.shape, nil
}

func (p reshape) Adjoints(b *Backward) []Term {
	return []Term{b.reshape(b.Grad(), b.In(0).Type().Shape)}
}

// section is count elements of its input along an axis: from, from + step, ...
type section struct{ axis, from, count, step int }

func (p section) String() string {
	return fmt.Sprintf("Slice[axis %d: %d elements from %d on, step %d]", p.axis, p.count, p.from, p.step)
}

func (p section) see(in tensor.Shape) (codegen.View, tensor.Shape, error) {
	v, out := codegen.Dense(in), slices.Clone(in)
	v.Offset = int64(p.from * v.Strides[p.axis])
	v.Strides[p.axis] *= p.step
	out[p.axis] = p.count
	return v, out, nil
}

// Adjoints returns the gradient with zeros around its elements and, for steps, between them.
func (p section) Adjoints(b *Backward) []Term {
	g, shape, extent := b.Grad(), slices.Clone(b.Grad().Type().Shape), b.In(0).Type().Shape[p.axis]
	if p.step > 1 {
		apart := b.view(pad{p.axis + 1, 0, p.step - 1}, b.reshape(g, slices.Insert(slices.Clone(shape), p.axis+1, 1)))
		shape[p.axis] *= p.step
		if g = b.reshape(apart, slices.Clone(shape)); p.from+shape[p.axis] > extent {
			shape[p.axis] = extent - p.from
			g = b.view(section{p.axis, 0, shape[p.axis], 1}, g)
		}
	}
	if after := extent - p.from - shape[p.axis]; p.from+after > 0 {
		g = b.view(pad{p.axis, p.from, after}, g)
	}
	return []Term{g}
}

// pad is its input with zeros before and after its elements along an axis.
type pad struct{ axis, before, after int }

func (p pad) String() string { return fmt.Sprintf("Pad[axis %d: %d, %d]", p.axis, p.before, p.after) }

func (p pad) see(in tensor.Shape) (codegen.View, tensor.Shape, error) {
	v, out := codegen.Dense(in), slices.Clone(in)
	v.Bounds = codegen.Bounds{Axis: p.axis, From: p.before, To: p.before + in[p.axis]}
	out[p.axis] += p.before + p.after
	return v, out, nil
}

func (p pad) Adjoints(b *Backward) []Term {
	return []Term{b.view(section{p.axis, p.before, b.In(0).Type().Shape[p.axis], 1}, b.Grad())}
}

// permute is its input with its axes in another order.
type permute struct{ axes []int }

func (p permute) String() string { return fmt.Sprintf("Permute%v", p.axes) }

func (p permute) see(in tensor.Shape) (codegen.View, tensor.Shape, error) {
	dense, out := codegen.Dense(in), slices.Clone(in)
	v := codegen.View{Elements: dense.Elements, Strides: make([]int, len(in))}
	for i, a := range p.axes {
		v.Strides[i], out[i] = dense.Strides[a], in[a]
	}
	return v, out, nil
}

func (p permute) Adjoints(b *Backward) []Term {
	inverse := make([]int, len(p.axes))
	for i, a := range p.axes {
		inverse[a] = i
	}
	return []Term{b.view(permute{inverse}, b.Grad())}
}

// expand is its input broadcast to a shape.
type expand struct{ shape tensor.Shape }

func (p expand) String() string { return fmt.Sprintf("Expand%v", []int(p.shape)) }

func (p expand) see(in tensor.Shape) (codegen.View, tensor.Shape, error) {
	v, ok := broadcastView(in, p.shape)
	if !ok {
		return v, nil, fmt.Errorf("got shape %v, want one that broadcasts to %v", in, p.shape)
	}
	return v, p.shape, nil
}

func (p expand) Adjoints(b *Backward) []Term { return []Term{sumTo(b, b.Grad(), b.In(0).Type().Shape)} }
