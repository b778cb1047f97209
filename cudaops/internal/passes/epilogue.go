package passes

import (
	"cmp"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// epilogues fuses Maps into the epilogues of matmuls. If a single Map reads a matmul's result, element by element,
// the matmul applies the Map's function to each accumulator before it stores it. Bias and activation, the derivative
// of an activation and the sum of two gradients then need no launch, and the intermediate value is never stored.
//
// A matmul absorbs Maps as long as its kernels support the resulting epilogue: see [gemm.Product.With]. It absorbs no
// Map with operands that it would have to wait for or that would have to be stored for it. So the number of launches
// never grows.
//
// The derivative of a ReLU depends on the sign of the ReLU's argument. It is computed from the ReLU's result, so that the
// argument need not be stored.
func epilogues(p *program.Program, t Target) error {
	if err := cmp.Or(vectors(p, t), onto(p, t)); err != nil {
		return err
	}
	s := newRewriter(p)
	for _, in := range p.Instrs {
		product, ok := program.ProductOf(in.Op)
		if !ok || in.Out[0].Elements() == 0 {
			continue
		}
		e := &epilogue{rewriter: s, product: product, instr: in, out: in.Out[0]}
		var err error
		if e.f, err = expr.Identity(product.Dtype); err != nil {
			return in.InNode(err)
		}
		for e.extend() {
		}
		if len(e.absorbed) > 0 {
			e.rewrite()
		}
	}
	if err := s.pools(t); err != nil {
		return err
	}
	s.recompute()
	s.fromResults()
	return s.finish()
}

// hasEpilogue reports whether an op is a matmul with an epilogue.
func hasEpilogue(op program.Op) bool {
	p, ok := program.ProductOf(op)
	return ok && p.HasEpilogue()
}

// epilogue is a matmul with the Maps that it has absorbed.
type epilogue struct {
	*rewriter
	product   gemm.Product
	instr     *program.Instr   // the matmul
	out       *program.Value   // the result of the last absorbed Map, or of the matmul
	f         expr.Func        // a function of the matmul's element and the operands
	operands  []strided        // of f, after the element
	absorbed  []*program.Instr // Maps
	gradients []*program.Instr // derivatives of a ReLU that read its argument
}

// strided is an operand of an epilogue.
type strided struct {
	base *program.Value
	view codegen.View // by matrix, row and column
}

func (o strided) equal(p strided) bool {
	return o.base == p.base && o.view.Offset == p.view.Offset && slices.Equal(o.view.Strides, p.view.Strides)
}

// extend absorbs the only Map that reads the result so far, and reports whether it did. It also absorbs Maps that compute
// operands of that Map and have no other reader.
func (e *epilogue) extend() bool {
	if e.liveOut[e.out] || len(e.gradients) > 0 { // the result so far has other readers
		return false
	}
	m, steps := e.next()
	if m == nil || len(m.Out) != 1 {
		return false
	}
	for _, inline := range []bool{true, false} {
		for _, numbers := range []bool{true, false} {
			if e.absorb(m, inline, numbers) {
				e.gradients = append(e.gradients, steps...)
				return true
			}
		}
	}
	return false
}

// next returns the only Map that reads the result so far, or nil. If it is a ReLU, its derivatives may read the result too.
func (e *epilogue) next() (m *program.Instr, steps []*program.Instr) {
	for _, in := range e.readers[e.out] {
		if e.replaced(in) {
			continue
		}
		switch mapped := program.Elementwise(in.Op); {
		case mapped && isReLUGradient(in, e.out):
			steps = append(steps, in)
		case mapped && m == nil:
			m = in
		default:
			return nil, nil
		}
	}
	if m == nil || len(steps) > 0 && m.Op.(program.Map).Func != relus()[e.product.Dtype].f {
		return nil, nil
	}
	return m, steps
}

// absorb adds a Map to the epilogue and reports whether it could. With inline it also absorbs Maps that only this one reads;
// with numbers, constants become part of the function instead of operands.
func (e *epilogue) absorb(m *program.Instr, inline, numbers bool) bool {
	dt := e.product.Dtype
	w := &composer{epilogue: e, inline: inline, numbers: numbers, operands: slices.Clone(e.operands),
		Builder: expr.NewBuilder(slices.Repeat([]kernels.Dtype{dt}, maxOperands+1)...)}
	for i := range len(e.operands) + 1 {
		w.element = append(w.element, w.Operand(i))
	}
	v, ok := w.apply(m)
	if !ok {
		return false
	}
	whole, err := w.Func(v)
	if err != nil {
		return false
	}
	f, kept := whole.Trim()
	if len(kept) == 0 || kept[0] != 0 {
		return false
	}
	var operands []strided
	var views []codegen.View
	for _, k := range kept[1:] {
		operands, views = append(operands, w.operands[k-1]), append(views, w.operands[k-1].view)
	}
	product, ok := e.product.With(f, views...)
	if !ok || slices.ContainsFunc(operands, func(o strided) bool { return !e.ready(o.base.Def, e.instr) }) {
		return false
	}
	e.product, e.f, e.operands, e.out, e.absorbed = product, f, operands, m.Out[0], append(e.absorbed, w.absorbed...)
	return true
}

// rewrite replaces the matmul and the absorbed Maps by one instruction, at the position of the last Map.
func (e *epilogue) rewrite() {
	in := &program.Instr{Op: program.Kernel{Planner: e.product}, In: slices.Clone(e.instr.In), Out: []*program.Value{e.out}}
	for _, o := range e.operands {
		in.In = append(in.In, o.base)
	}
	last, gone := e.out.Def, append([]*program.Instr{e.instr}, e.absorbed...)
	in.Nodes = program.NodesOf(gone...)
	e.out.Def = in
	e.replace(last, in, gone)
	for _, step := range e.gradients {
		e.derive(step, e.out)
	}
}

// derive rewrites the derivative of a ReLU as a function of the ReLU's result.
func (s *rewriter) derive(step *program.Instr, result *program.Value) {
	v := step.In[0]
	step.Op, step.In = program.Map{Func: relus()[v.Dtype].byResult, Shape: v.Shape}, []*program.Value{result}
	if !slices.Equal(v.Shape, result.Shape) || !v.IsContiguous() {
		def := &program.Instr{Op: program.Alias{}, In: []*program.Value{result}, Nodes: step.Nodes}
		s.depth[def], s.positions[def] = s.depth[result.Def], s.positions[result.Def]
		step.In[0] = s.p.NewAlias(def, result.Name, v.Type, result, v.View)
	}
	s.addReader(result, step)
}

// fromResults rewrites the derivatives of ReLUs as functions of the ReLUs' results, where these are stored anyway, for launches other than Maps, and the arguments are results of Maps or
// convolutions that Maps alone read. The gradient then reads no value that is stored for it alone.
func (s *rewriter) fromResults() {
	live := func(v *program.Value, stored func(in *program.Instr) bool) bool {
		return slices.ContainsFunc(s.readers[v], func(in *program.Instr) bool {
			return !s.replaced(in) && stored(in)
		})
	}
	computes := func(in *program.Instr) bool { return !program.Elementwise(in.Op) }
	for _, in := range s.p.Instrs {
		op, mapped := in.Op.(program.Map)
		if s.replaced(in) || !mapped || len(in.In) != 1 {
			continue
		}
		v := in.In[0].Base
		_, convolves := program.ConvOf(v.Def.Op)
		if !v.Dtype.IsFloat() || op.Func != relus()[v.Dtype].f || !in.In[0].IsContiguous() || in.In[0].Elements() != v.Elements() || !convolves && !program.Elementwise(v.Def.Op) || s.liveOut[v] ||
			live(v, computes) || !live(in.Out[0], computes) {
			continue
		}
		for _, step := range s.readers[v] {
			if !s.replaced(step) && program.Elementwise(step.Op) && isReLUGradient(step, v) {
				s.derive(step, in.Out[0])
				op := step.Op.(program.Map)
				op.FuseWithConsumers = true
				step.Op, s.replacement[step] = op, step // which now follows the ReLU
			}
		}
	}
}
