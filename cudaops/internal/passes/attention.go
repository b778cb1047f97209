package passes

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/attention"
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
		planner, ok := attentionOf(in.Op)
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

// attentionOf returns the launches of an instruction of attention, and false for other ones.
func attentionOf(op program.Op) (kernels.Planner, bool) {
	k, _ := op.(program.Kernel)
	switch p := k.Planner.(type) {
	case attention.Forward, attention.Backward:
		return p, true
	case interface {
		Attention() (kernels.Planner, bool)
	}:
		return p.Attention()
	}
	return nil, false
}

// join adds the result of an instruction to another one, and reports whether it did: two that compute the same are left alone.
func join(to, in *program.Instr, planner kernels.Planner) bool {
	a, _ := attentionOf(to.Op)
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
