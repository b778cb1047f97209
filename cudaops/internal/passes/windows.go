package passes

import (
	"cmp"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// windows replaces a sum of windows that tile an axis by the row of their parts. The derivative of a
// slice is its operand among zeros, and Gorgonia adds up those of all slices of a value: with n
// slices, n terms for each element, all zeros but one. As parts of one value, each is moved once, or
// not at all if it can be computed in its place.
//
// If there are few parts and they cannot be computed in their places, the sum stays: it reads each part once, too.
//
// x + 0 is x except for -0, which becomes 0. So the parts, or all of them together, are added to 0.
//
// The parts of a Concat along the first axis are computed in their places, too.
func windows(p *program.Program, _ Target) error {
	w, err := newWindowing(p)
	if err != nil {
		return err
	}
	taken := map[*program.Instr]bool{}
	var found []*tiling
	for _, in := range p.Instrs {
		w.measure(in)
	}
	for _, in := range slices.Backward(p.Instrs) { // the last sum first: those before are terms of it
		if taken[in] {
			continue
		}
		if t := w.tiling(in); t != nil {
			found = append(found, t)
			for _, gone := range t.gone {
				taken[gone] = true
			}
		}
	}
	for _, t := range slices.Backward(found) {
		if err := w.rewrite(t); err != nil {
			return t.sum.InNode(err)
		}
	}
	for _, in := range p.Instrs {
		if c, concat := in.Op.(program.Concat); concat && w.now[in] == nil && joins(c.Axis, in.Out[0], in.In) {
			in.Op = program.Join{}
		}
	}
	w.finish()
	return nil
}

// windowing is a program whose sums of windows are rewritten.
type windowing struct {
	*surroundings
	addition, identity map[kernels.Dtype]expr.Func // of two operands, and of one
	sums               map[*program.Value]bool     // sums of windows, none of which is -0
	extents            map[*program.Instr]extent   // of sums whose terms are all windows along one axis
}

// extent is an axis and how many elements along it the windows of a sum have together.
type extent struct{ axis, elements int }

func newWindowing(p *program.Program) (*windowing, error) {
	w := &windowing{newSurroundings(p), map[kernels.Dtype]expr.Func{}, map[kernels.Dtype]expr.Func{}, map[*program.Value]bool{}, map[*program.Instr]extent{}}
	for _, dt := range []kernels.Dtype{kernels.Float32, kernels.Float64} {
		var err error
		if w.identity[dt], err = identity(dt); err != nil {
			return nil, err
		}
		b := expr.NewBuilder(dt, dt)
		if w.addition[dt], err = b.Func(b.Apply(expr.Add, b.Operand(0), b.Operand(1))); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// mostTerms is how many windows stay a sum where they cannot be computed in their place. Chains of twenty such sums with their
// products took, as sums and as Concats, 328 and 343 us for two windows, 359 and 361 for three, 430 and 424 for four, 674 and 635 for
// eight; an LSTM's step with fifty of four 1098 and 1090 (H200, launches as one graph, bench/notes/engine.md).
const mostTerms = 3

// tiling is a sum of values among zeros, which together fill an axis of the sum.
type tiling struct {
	sum     *program.Instr
	windows []*program.Value // views with bounds, in the order of the axis
	gone    []*program.Instr // the terms and the sums of some of them
}

// measure records the extent of an instruction that adds up windows along one axis. The terms come
// before the sum.
func (w *windowing) measure(in *program.Instr) {
	if !isMap(in, w.addition) {
		return
	}
	var whole extent
	for i, v := range in.In {
		if !w.isTerm(v) {
			return
		}
		part, sum := w.extents[v.Def]
		if !sum {
			if isMap(v.Def, w.addition) {
				return
			}
			b := v.Def.In[0].View.Bounds
			part = extent{b.Axis, b.To - b.From}
		}
		if i > 0 && part.axis != whole.axis {
			return
		}
		whole = extent{part.axis, whole.elements + part.elements}
	}
	w.extents[in] = whole
}

// tiling returns the windows that an instruction adds up; nil if it does not.
func (w *windowing) tiling(in *program.Instr) *tiling {
	e, ok := w.extents[in]
	if !ok || e.elements != in.Out[0].Shape[e.axis] {
		return nil
	}
	t := &tiling{sum: in}
	w.collect(t, in)
	slices.SortFunc(t.windows, func(a, b *program.Value) int { return cmp.Compare(a.View.Bounds.From, b.View.Bounds.From) })
	end := 0
	for _, v := range t.windows {
		if v.View.Bounds.From != end {
			return nil
		}
		end = v.View.Bounds.To
	}
	return t
}

// collect adds the terms of a sum to a tiling.
func (w *windowing) collect(t *tiling, sum *program.Instr) {
	for _, v := range sum.In {
		if isMap(v.Def, w.addition) {
			w.collect(t, v.Def)
		} else {
			t.windows = append(t.windows, v.Def.In[0])
		}
		t.gone = append(t.gone, v.Def)
	}
}

// isTerm reports whether a value is a sum or a window, and is read once.
func (w *windowing) isTerm(v *program.Value) bool {
	if v.Base != v || w.wanted[v] || w.reads[v] != 1 {
		return false
	}
	return isMap(v.Def, w.addition) || isMap(v.Def, w.identity) && v.Def.In[0].IsBounded()
}

// rewrite makes one value of the windows of a tiling, one after the other.
func (w *windowing) rewrite(t *tiling) error {
	out := t.sum.Out[0]
	w.sums[out] = true
	whole := &program.Instr{In: make([]*program.Value, len(t.windows)), Nodes: program.NodesOf(slices.Insert(slices.Clone(t.gone), 0, t.sum)...)}
	axis, within := t.windows[0].View.Bounds.Axis, true // whether each part's instruction can add it to 0
	for i, v := range t.windows {
		b := v.View.Bounds
		part := v.Type
		part.Shape = slices.Clone(v.Shape)
		part.Shape[axis] = b.To - b.From
		def := &program.Instr{Op: program.Alias{}, In: v.Def.In, Nodes: v.Def.Nodes}
		whole.In[i] = w.p.NewAlias(def, v.Name, part, v.Base, program.View{Offset: v.View.Offset, Strides: v.View.Strides})
		_, mapped := v.Base.Def.Op.(program.Map)
		within = within && (w.sums[v.Base] || mapped && w.reads[v.Base] == 1 && !w.wanted[v.Base])
	}
	add, err := plusZero(out.Dtype)
	if err != nil {
		return err
	}
	plus := func(v *program.Value) *program.Value {
		def := &program.Instr{Op: program.Map{Func: add, Shape: v.Shape}, In: []*program.Value{v}, Nodes: v.Def.Nodes}
		return w.p.NewValue(def, v.Name, v.Type)
	}
	if within {
		for i, v := range whole.In {
			if !w.sums[v.Base] {
				whole.In[i] = plus(v)
			}
		}
	}
	whole.Op = program.Concat{Axis: axis}
	if joins(axis, out, whole.In) {
		whole.Op = program.Join{}
	} else if len(t.windows) <= mostTerms {
		return nil
	}
	by := whole
	if within {
		whole.Out = []*program.Value{out}
	} else {
		v := w.p.NewValue(whole, out.Name, out.Type)
		by = &program.Instr{Op: program.Map{Func: add, Shape: v.Shape}, In: []*program.Value{v}, Out: []*program.Value{out}, Nodes: whole.Nodes}
	}
	out.Def = by
	w.replace(t.sum, by, t.gone)
	return nil
}

// joins reports whether parts can be computed in their places in a whole, one after the other along an axis: a
// launch computes each, and its place is aligned as a buffer is.
func joins(axis int, whole *program.Value, parts []*program.Value) bool {
	if kernels.Count(whole.Shape[:axis]) != 1 || whole.Elements() == 0 {
		return false
	}
	return !slices.ContainsFunc(parts, func(v *program.Value) bool {
		return v.Bytes()%program.Alignment != 0 || !v.IsContiguous() || v.Elements() != v.Base.Elements() || !program.Launches(v.Base.Def.Op)
	})
}

// isMap reports whether an instruction is a Map of the function for its type.
func isMap(in *program.Instr, function map[kernels.Dtype]expr.Func) bool {
	m, ok := in.Op.(program.Map)
	if !ok || len(in.Out) != 1 {
		return false
	}
	f, ok := function[in.Out[0].Dtype]
	return ok && f == m.Func
}

// plusZero returns the sum of an operand and 0.
func plusZero(dt kernels.Dtype) (expr.Func, error) {
	b := expr.NewBuilder(dt)
	return b.Func(b.Apply(expr.Add, b.Operand(0), b.Constant(dt, 0)))
}
