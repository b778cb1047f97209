package passes

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/attention"
	"github.com/stheno-ml/stheno/kernels/basic"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// attentions joins instructions of attention that have the same problem and inputs: the result and its statistics become one instruction, and so do the gradients w.r.t. q, k
// and v. The joined instruction is where the first one was, and has its values in the order of the planner's outputs.
func attentions(p *program.Program) {
	type place struct {
		problem  attention.Problem
		backward bool
	}
	first := map[place][]*program.Instr{}
	gone := map[*program.Instr]bool{}
	for _, in := range p.Instrs {
		planner, ok := program.AttentionOf(in.Op)
		if !ok {
			continue
		}
		var at place
		switch op := planner.(type) {
		case attention.Forward:
			at.problem = op.Problem
		case attention.Backward:
			at = place{op.Problem, true}
		}
		i := slices.IndexFunc(first[at], func(f *program.Instr) bool { return slices.Equal(f.In, in.In) })
		if i < 0 {
			first[at] = append(first[at], in)
			continue
		}
		if join(first[at][i], in, planner) {
			gone[in] = true
		}
	}
	p.Instrs = slices.DeleteFunc(p.Instrs, func(in *program.Instr) bool { return gone[in] })
}

// join adds the result of an instruction to another one, and reports whether it did: two that compute the same are left alone.
func join(to, in *program.Instr, planner kernels.Planner) bool {
	a, _ := program.AttentionOf(to.Op)
	outputs := slices.Clone(to.Out)
	switch a := a.(type) {
	case attention.Forward:
		b := planner.(attention.Forward)
		if a.Out && b.Out || a.Statistics && b.Statistics {
			return false
		}
		if outputs = append(outputs, in.Out...); b.Out {
			slices.Reverse(outputs)
		}
		a.Out, a.Statistics = true, true
		to.Op = program.Kernel{Planner: a}
	case attention.Backward:
		b := planner.(attention.Backward)
		has, adds := []bool{a.Q, a.K, a.V}, []bool{b.Q, b.K, b.V}
		own := slices.Index(adds, true)
		if has[own] {
			return false
		}
		before := 0
		for _, is := range has[:own] {
			if is {
				before++
			}
		}
		outputs = slices.Insert(outputs, before, in.Out...)
		a.Q, a.K, a.V = a.Q || b.Q, a.K || b.K, a.V || b.V
		to.Op = program.Kernel{Planner: a}
	}
	for _, v := range in.Out {
		v.Def = to
	}
	to.Out, to.Nodes = outputs, append(slices.Clone(to.Nodes), in.Nodes...)
	return true
}

// packGradients makes attention write gradients w.r.t. q, k and v that are parts of one value, such as the result of a Linear, where the gradient w.r.t. that value has them: a Map that adds the three,
// each padded with zeros, is gone. Where the kernels cannot, the Map becomes a Concat.
func packGradients(p *program.Program, dev kernels.Device) {
	backward := func(in *program.Instr) (attention.Backward, bool) {
		planner, _ := program.AttentionOf(in.Op)
		b, is := planner.(attention.Backward)
		return b, is
	}
	if !slices.ContainsFunc(p.Instrs, func(in *program.Instr) bool { _, is := backward(in); return is }) {
		return
	}
	s := newRewriter(p)
	sums, parts := map[*program.Instr]bool{}, map[*program.Value]bool{}
	for _, in := range p.Instrs {
		b, is := backward(in)
		if !is {
			continue
		}
		sum := s.readers[in.Out[0]]
		b, packs := b.Packs(dev)
		if len(sum) != 1 || slices.ContainsFunc(in.Out, func(v *program.Value) bool { return s.liveOut[v] || !slices.Equal(s.readers[v], sum) }) || !addsParts(sum[0], in.Out, b.Widths()) {
			continue
		}
		if !packs {
			concatenate(sum[0], in.Out)
			continue
		}
		for _, v := range in.Out {
			parts[v] = true
		}
		sums[sum[0]] = true
		in.Op, in.Out, in.Nodes = program.Kernel{Planner: b}, sum[0].Out, program.NodesOf(in, sum[0])
		in.Out[0].Def = in
	}
	p.Instrs = slices.DeleteFunc(p.Instrs, func(in *program.Instr) bool {
		return sums[in] || program.Is[program.Alias](in.Op) && parts[in.Out[0].Base]
	})
}

// concatenate makes a Map that adds parts of its rows (see addsParts) copy them instead: each element is read once, and no bounds are compared. A gradient -0 stays -0.
func concatenate(in *program.Instr, parts []*program.Value) {
	shape := in.Out[0].Shape
	last := len(shape) - 1
	views := in.In
	in.Op, in.In = program.Concat{Axis: last}, nil
	for _, part := range parts {
		v := views[slices.IndexFunc(views, func(v *program.Value) bool { return v.Base == part })]
		narrow := slices.Clone(shape)
		narrow[last] = v.View.Bounds.To - v.View.Bounds.From
		v.Shape, v.View = narrow, program.Contiguous(narrow)
		in.In = append(in.In, v)
	}
}

// addsParts reports whether an instruction only adds values of given widths of a row, which are the parts of its rows one after the other.
func addsParts(in *program.Instr, parts []*program.Value, widths []int64) bool {
	op, mapped := in.Op.(program.Map)
	if !mapped || len(op.Axes) > 0 || len(op.Shape) == 0 || len(in.Out) != 1 || len(in.In) != len(parts) { // parts of one element have no axes
		return false
	}
	types := program.Collect(in.In, func(v *program.Value) kernels.Dtype { return v.Dtype })
	f, err := expr.Parse("a + b + c", kernels.Float32, "a", "b", "c")
	if err == nil {
		f, err = f.Stored(types, []kernels.Dtype{in.Out[0].Dtype})
	}
	if err != nil || f != op.Func {
		return false
	}
	last, from := len(op.Shape)-1, int64(0)
	for i, part := range parts {
		k := slices.IndexFunc(in.In, func(v *program.Value) bool { return v.Base == part })
		if k < 0 || part.Dtype != in.Out[0].Dtype {
			return false
		}
		narrow := slices.Clone(op.Shape)
		narrow[last] = int(widths[i])
		view := program.Contiguous(narrow)
		view.Bounds = codegen.Bounds{Axis: last, From: int(from), To: int(from + widths[i])}
		if v := in.In[k].View; v.Offset != 0 || v.Bounds != view.Bounds || !slices.Equal(v.Strides, view.Strides) {
			return false
		}
		from += widths[i]
	}
	return from == int64(op.Shape[last])
}

// readsHeads makes attention read q, k or v with the strides of its view, and reports whether it can.
func readsHeads(in *program.Instr, i int) bool {
	planner, _ := program.AttentionOf(in.Op)
	v := in.In[i]
	if i > 2 || v.IsBounded() || v.IsRandom() || v.IsIota() || v.View.Offset*v.Dtype.Size()%16 != 0 { // TMA's alignment, and that of vector loads
		return false
	}
	ok := false
	switch p := planner.(type) {
	case attention.Forward:
		if p.Problem, ok = p.Strided(i, v.View.Strides); ok {
			in.Op = program.Kernel{Planner: p}
		}
	case attention.Backward:
		if p.Problem, ok = p.Strided(i, v.View.Strides); ok {
			in.Op = program.Kernel{Planner: p}
		}
	}
	return ok
}

// attendUpdated makes one launch of an update of a cache in place and the attention to it that alone reads the result.
func attendUpdated(p *program.Program, dev kernels.Device) {
	readers, defined := map[*program.Value][]*program.Instr{}, map[*program.Value]int{}
	for at, in := range p.Instrs {
		for _, v := range in.Out {
			defined[v] = at
		}
		for _, v := range in.In {
			if b := v.Base; !program.Is[program.Alias](in.Op) && (len(readers[b]) == 0 || readers[b][len(readers[b])-1] != in) {
				readers[b] = append(readers[b], in)
			}
		}
	}
	gone, instrs := map[*program.Instr]bool{}, p.Instrs
	p.Instrs = make([]*program.Instr, 0, len(instrs))
	for at, in := range instrs {
		if gone[in] {
			continue
		}
		cache := in.Out[0]
		if list := readers[cache]; len(list) == 1 {
			to := list[0]
			late := func(v *program.Value) bool { return v.Base != cache && defined[v.Base] > at }
			if u, ok := updatedAttention(in, to, dev); ok && !slices.ContainsFunc(to.In, late) {
				gone[to] = true
				others := program.Collect(slices.Concat(to.In[:1], to.In[3:]), func(v *program.Value) *program.Value {
					if defined[v] < at {
						return v
					}
					return p.EmitAlias(v.Def.Nodes, v.Name, v.Type, v.Base, v.View)
				})
				in.In = slices.Concat(in.In[:1], others, in.In[1:])
				in.Op, in.Out, in.Nodes = program.Kernel{Planner: u, InPlace: true}, append(in.Out, to.Out...), program.NodesOf(in, to)
				for _, v := range to.Out {
					v.Def = in
				}
			}
		}
		p.Instrs = append(p.Instrs, in)
	}
}

// updatedAttention returns attention to a cache that an update in place changes, with that update, if `to` is such attention.
func updatedAttention(in, to *program.Instr, dev kernels.Device) (u attention.Updated, ok bool) {
	k, _ := in.Op.(program.Kernel)
	update, is := k.Planner.(interface{ Updated() (basic.Rows, bool) })
	if !is || !k.InPlace {
		return u, false
	}
	rows, updates := update.Updated()
	planner, _ := program.AttentionOf(to.Op)
	f, forward := planner.(attention.Forward)
	if cache := in.Out[0]; !updates || !forward || rows.Axis != 1 || !slices.Equal(rows.Shape, []int{int(f.Batch), int(f.Keys), int(2 * f.KeyHeads), int(f.Dim)}) ||
		slices.ContainsFunc(to.In, func(v *program.Value) bool { return (v == to.In[1] || v == to.In[2]) != (v.Base == cache) }) {
		return u, false
	}
	return f.Updating(to.In[1].View.Offset, to.In[2].View.Offset, rows.Count, rows.Positions, dev)
}
