package passes

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
)

// recompute computes gradients w.r.t. the arguments of ReLUs where they are read, if the argument is a normalized x. Launches that compute sums of such a gradient, and the gradient w.r.t. x
// of these sums, read x anyway. If rows are split, another launch otherwise reads the ReLU and the gradient w.r.t. it and stores their product; with recompute both read the gradient
// w.r.t. the ReLU in the product's place. If rows are not split, one launch computes all, and otherwise reads the ReLU as a third operand, which it keeps on chip with the other two.
func (s *rewriter) recompute() {
	for _, in := range s.p.Instrs {
		if s.replaced(in) || !program.Elementwise(in.Op) || len(in.In) != 2 || s.liveOut[in.Out[0]] {
			continue
		}
		for i, v := range in.In {
			if step := v.Def; program.Elementwise(step.Op) && len(step.In) == 2 && isReLUGradient(step, step.In[0]) && s.readCount[v] == 1 && s.recomputes(in, step, in.In[1-i]) {
				s.repeat(in, step, i)
			}
		}
	}
}

// recomputes reports whether a product of the derivative of a ReLU and a gradient is recomputed by its readers.
func (s *rewriter) recomputes(product, step *program.Instr, gradient *program.Value) bool {
	stored := func(v *program.Value) bool { return v.Base == v && !program.Is[program.Map](v.Def.Op) }
	out, argument := product.Out[0], step.In[0].Def
	if s.replaced(argument) || !program.Elementwise(argument.Op) || !stored(gradient) || gradient.Elements() != out.Elements() {
		return false
	}
	var x *program.Value // the only operand with an element for each of the argument
	for _, v := range argument.In {
		if v.Reach() < out.Elements() { // the base may be the memory of all parameters
			continue
		}
		if x != nil || !stored(v) {
			return false
		}
		x = v
	}
	reads := [2]bool{} // x, with the product: elements, and rows
	for _, r := range s.readers[out] {
		if s.replaced(r) {
			continue
		}
		op, mapped := r.Op.(program.Map)
		if !mapped || slices.ContainsFunc(r.In, func(v *program.Value) bool { return v.Base == out && v != out }) {
			return false
		}
		k := 0
		if len(op.Axes) > 0 {
			k = 1
		}
		reads[k] = reads[k] || slices.Contains(r.In, x)
	}
	return x != nil && reads[0] && reads[1]
}

// repeat computes a product, whose operand i is the derivative of a ReLU, once for the elements that are computed of it and once for the sums.
func (s *rewriter) repeat(product, step *program.Instr, i int) {
	again := func(in *program.Instr, k int, v *program.Value) *program.Value {
		op, def := in.Op.(program.Map), &program.Instr{In: slices.Clone(in.In), Nodes: in.Nodes}
		if op.FuseWithConsumers = true; v != nil {
			def.In[k] = v
		}
		def.Op = op
		for _, v := range def.In {
			s.addReader(v.Base, def)
		}
		return s.p.NewValue(def, in.Out[0].Name, in.Out[0].Type)
	}
	out := product.Out[0]
	var copies [2]*program.Value
	for _, r := range s.readers[out] {
		if s.replaced(r) {
			continue
		}
		k := 0
		if !program.Elementwise(r.Op) {
			k = 1
		}
		if copies[k] == nil {
			copies[k] = again(product, i, again(step, 0, again(step.In[0].Def, 0, nil)))
		}
		for n, v := range r.In {
			if v == out {
				r.In[n] = copies[k]
			}
		}
		s.addReader(copies[k], r)
	}
	s.replacement[product], s.replacement[step] = nil, nil
}
