package program

import (
	"slices"

	"github.com/stheno-ml/stheno/kernels"
)

// update checks the value that becomes a State.
func (c *checker) update(i int, u Update) {
	if !Is[State](u.State.Def.Op) || !slices.Contains(c.p.Setup, u.State.Def) {
		c.fault("update %d: got %v, want a state of Setup", i, u.State)
		return
	}
	switch {
	case !c.defined[u.Next]:
		c.fault("update %d, to %v, is defined nowhere", i, u.Next)
	case u.Next.Dtype != u.State.Dtype || !slices.Equal(u.Next.Shape, u.State.Shape):
		c.fault("update %d is of %s to %s, want the same type", i, u.State.describe(), u.Next.describe())
	case c.p.Stage >= Planned && u.Next.Base != u.Next:
		c.fault("update %d is to %s, want memory of its own", i, u.Next.describe())
	case u.Next == u.State: // no run changes it
	case u.State.IsConstant():
		c.fault("update %d is of %v, which is constant", i, u.State)
	case c.p.Stage >= Placed && u.State.Buffer != u.Next.Buffer:
		c.fault("update %d is of %s to %s, want one place", i, u.State.describe(), u.Next.describe())
	case c.p.Stage >= Placed:
		c.inPlace(u)
	}
}

// inPlace checks that no instruction reads a State after its update has been computed over it.
func (c *checker) inPlace(u Update) {
	at := slices.Index(c.p.Instrs, u.Next.Def)
	if at < 0 {
		c.fault("%v is computed before the first run", u.Next)
		return
	}
	for _, in := range c.p.Instrs[at+1:] {
		if slices.ContainsFunc(in.In, func(v *Value) bool { return v.Base == u.State }) {
			c.fault("%v reads %v, which %v has written over", in.Op, u.State, u.Next.Def.Op)
		}
	}
}

// ReadsInOrder reports whether an instruction reads, for each element that it computes, only the element of an input's base
// at the same index. In a Map with reductions each row has one such element: all threads of the row read it before one of them writes the result.
func (in *Instr) ReadsInOrder(v *Value) bool {
	if op, mapped := in.Op.(Map); mapped && len(op.Axes) > 0 {
		return op.readsRows(v)
	}
	if k, kernel := in.Op.(Kernel); kernel && k.InPlace && v == in.In[0] {
		return true
	}
	c, collective := in.Op.(Collective)
	return (Elementwise(in.Op) || collective && c.Kind == kernels.AllReduce) && v.View.Offset == 0 && v.Elements() == v.Base.Elements() && v.IsContiguous()
}

// readsRows reports whether each row of a Map with reductions reads the element of its number of a value's base, and the base has no others.
func (op Map) readsRows(v *Value) bool {
	rows := *v
	rows.Shape, rows.View.Strides = Without(v.Shape, op.Axes), Without(v.View.Strides, op.Axes)
	for _, a := range op.Axes {
		if v.Shape[a] > 1 && v.View.Strides[a] != 0 {
			return false
		}
	}
	return v.View.Offset == 0 && !v.IsRandom() && !v.IsIota() && rows.IsContiguous() && rows.Elements() == v.Base.Elements()
}

// join checks the sizes of the inputs of a ConcatInPlace and, in a placed program, their offsets.
func (c *checker) join(in *Instr) {
	out := in.Out[0]
	var elements []int64
	for _, v := range in.In {
		if !v.Numeric || v.Dtype != out.Dtype || c.p.Stage >= Planned && !v.IsContiguous() {
			c.fault("a join of %s gives %s", v.describe(), out.describe())
			return
		}
		elements = append(elements, v.Elements())
	}
	offsets, total := Layout(out.Dtype, elements...)
	if total += in.Op.(ConcatInPlace).Tail; out.Elements() != total {
		c.fault("a join of %d elements gives %s", total, out.describe())
	}
	if c.p.Stage < Placed || out.Buffer == nil {
		return
	}
	for i, v := range in.In {
		b := v.Base.Buffer
		if want := out.Buffer.Offset + offsets[i]*out.Dtype.Size(); b == nil || v.Base != v || b.Parent != out.Buffer || b.Offset != want {
			c.fault("%s is not joined at %d", v.describe(), want)
		}
	}
}
