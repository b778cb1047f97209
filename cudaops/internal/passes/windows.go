package passes

import (
	"cmp"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// windows replaces a sum of zero-padded windows that tile an axis by their concatenation. The gradient of a slice is its
// operand padded with zeros, and Gorgonia adds the gradients of all slices of a value: with n slices, each element is a sum
// of n terms of which n-1 are zeros. In a concatenation each window is moved once, or not at all if it can be
// computed in place.
//
// A sum of at most maxTerms windows that cannot be computed in place stays: it reads each window once, too.
//
// x + 0 is x except for -0, which becomes 0. Therefore 0 is added to the windows or to their concatenation.
//
// windows also turns a Concat whose inputs can be computed in place into a ConcatInPlace.
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
	for _, in := range slices.Backward(p.Instrs) { // the last sum first: earlier ones are its terms
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
		if c, concat := in.Op.(program.Concat); concat && w.replacement[in] == nil && joins(c.Axis, in.Out[0], in.In) {
			in.Op = program.ConcatInPlace{}
		}
	}
	return w.finish()
}

// windowing is a rewriter of sums of windows.
type windowing struct {
	*rewriter
	addition, identity map[kernels.Dtype]expr.Func // x + y and x
	sums               map[*program.Value]bool     // rewritten sums, which have no element -0
	extents            map[*program.Instr]extent   // by sum of windows along one axis
}

// extent is an axis and the number of elements along it that the windows of a sum have in total.
type extent struct{ axis, elements int }

func newWindowing(p *program.Program) (*windowing, error) {
	w := &windowing{newRewriter(p), map[kernels.Dtype]expr.Func{}, map[kernels.Dtype]expr.Func{}, map[*program.Value]bool{}, map[*program.Instr]extent{}}
	for _, dt := range []kernels.Dtype{kernels.Float32, kernels.Float64} {
		var err error
		if w.identity[dt], err = expr.Identity(dt); err != nil {
			return nil, err
		}
		b := expr.NewBuilder(dt, dt)
		if w.addition[dt], err = b.Func(b.Apply(expr.Add, b.Operand(0), b.Operand(1))); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// maxTerms is the maximum number of windows that stay a sum if they cannot be computed in place. Time of chains of twenty sums
// with their products, launched as one graph (H200, bench/notes/engine.md), in us:
//
//	windows                          sums  Concats
//	2                                 328      343
//	3                                 359      361
//	4                                 430      424
//	8                                 674      635
//	4, an LSTM's step with 50 sums   1098     1090
const maxTerms = 3

// tiling is a sum of zero-padded windows that tile an axis of the sum.
type tiling struct {
	sum     *program.Instr
	windows []*program.Value // views with bounds, in the order of the axis
	gone    []*program.Instr // the terms and partial sums
}

// measure records the extent of an instruction that adds windows along one axis. Its terms must have been measured.
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

// tiling returns the windows that an instruction adds, or nil if they do not tile an axis.
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

// isTerm reports whether a value is a sum or a window with a single reader.
func (w *windowing) isTerm(v *program.Value) bool {
	if v.Base != v || w.liveOut[v] || w.readCount[v] != 1 {
		return false
	}
	return isMap(v.Def, w.addition) || isMap(v.Def, w.identity) && v.Def.In[0].IsBounded()
}

// rewrite replaces the sum of a tiling by the concatenation of its windows.
func (w *windowing) rewrite(t *tiling) error {
	out := t.sum.Out[0]
	w.sums[out] = true
	whole := &program.Instr{In: make([]*program.Value, len(t.windows)), Nodes: program.NodesOf(slices.Insert(slices.Clone(t.gone), 0, t.sum)...)}
	axis, within := t.windows[0].View.Bounds.Axis, true // within: 0 can be added by the instruction that computes each window
	for i, v := range t.windows {
		b := v.View.Bounds
		part := v.Type
		part.Shape = slices.Clone(v.Shape)
		part.Shape[axis] = b.To - b.From
		def := &program.Instr{Op: program.Alias{}, In: v.Def.In, Nodes: v.Def.Nodes}
		whole.In[i] = w.p.NewAlias(def, v.Name, part, v.Base, program.View{Offset: v.View.Offset, Strides: v.View.Strides})
		within = within && (w.sums[v.Base] || program.Elementwise(v.Base.Def.Op) && w.readCount[v.Base] == 1 && !w.liveOut[v.Base])
	}
	add, err := plusZero(out.Dtype)
	if err != nil {
		return err
	}
	if within {
		for i, v := range whole.In {
			if !w.sums[v.Base] {
				whole.In[i] = w.p.Mapped(add, v).Out[0]
			}
		}
	}
	whole.Op = program.Concat{Axis: axis}
	if joins(axis, out, whole.In) {
		whole.Op = program.ConcatInPlace{}
	} else if len(t.windows) <= maxTerms {
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

// joins reports whether the parts of a concatenation can be computed in place: the whole is the parts in row-major
// order, launches compute them, and their offsets are aligned as buffers are.
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

// plusZero returns the function x + 0.
func plusZero(dt kernels.Dtype) (expr.Func, error) {
	b := expr.NewBuilder(dt)
	return b.Func(b.Apply(expr.Add, b.Operand(0), b.Constant(dt, 0)))
}
