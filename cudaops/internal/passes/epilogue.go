package passes

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// epilogues makes Maps a part of the products that they follow: a product whose value
// one Map alone reads, element by element, applies the Map's function to each sum before it
// writes it. So a layer's bias and activation, the derivative of an activation and the sum of two
// gradients take no launch, and the value between is never in memory.
//
// A product takes Maps as long as its kernels support the resulting epilogue, see
// [kernels.Product.With]. It takes no Map whose operands it would have to wait for, or that would have
// to be written for it, so there are never more launches than before.
//
// The derivative of a rectifier needs the sign of its operand. The operand is not kept for that:
// the result shows it, too.
func epilogues(p *program.Program, _ Target) error {
	s := newSurroundings(p)
	for _, in := range p.Instrs {
		product, ok := program.ProductOf(in.Op)
		if !ok || in.Out[0].Elements() == 0 {
			continue
		}
		e := &epilogue{surroundings: s, product: product, instr: in, out: in.Out[0]}
		var err error
		if e.f, err = identity(product.Dtype); err != nil {
			return in.InNode(err)
		}
		for e.extend() {
		}
		if len(e.taken) > 0 {
			e.rewrite()
		}
	}
	s.finish()
	return nil
}

// hasEpilogue reports whether an op is a product that has taken Maps.
func hasEpilogue(op program.Op) bool {
	p, ok := program.ProductOf(op)
	return ok && p.HasEpilogue()
}

// epilogue is a product with the Maps that it has taken.
type epilogue struct {
	*surroundings
	product  gemm.Product
	instr    *program.Instr   // the product
	out      *program.Value   // of the product or of the last Map taken
	f        expr.Func        // of the product's element and the operands
	operands []strided        // of f, behind the element
	taken    []*program.Instr // Maps
	steps    []*program.Instr // derivatives of a rectifier that read its argument
}

// strided is an operand of a product: a base, and how it is read.
type strided struct {
	base *program.Value
	view codegen.View // by matrix, row and column
}

func (o strided) equal(p strided) bool {
	return o.base == p.base && o.view.Offset == p.view.Offset && slices.Equal(o.view.Strides, p.view.Strides)
}

// extend takes the Map that alone reads the result so far, with Maps that it
// alone reads, and reports whether it did.
func (e *epilogue) extend() bool {
	if e.wanted[e.out] || len(e.steps) > 0 { // these read the result so far
		return false
	}
	m, steps := e.next()
	if m == nil || len(m.Out) != 1 {
		return false
	}
	for _, inline := range []bool{true, false} {
		for _, numbers := range []bool{true, false} {
			if e.take(m, inline, numbers) {
				e.steps = append(e.steps, steps...)
				return true
			}
		}
	}
	return false
}

// next returns the Map that alone reads the value, nil if there is none. Beside a
// rectifier there may be its derivatives.
func (e *epilogue) next() (m *program.Instr, steps []*program.Instr) {
	for _, in := range e.readers[e.out] {
		if _, replaced := e.now[in]; replaced {
			continue
		}
		switch _, mapped := in.Op.(program.Map); {
		case mapped && e.isStep(in):
			steps = append(steps, in)
		case mapped && m == nil:
			m = in
		default:
			return nil, nil
		}
	}
	if m == nil || len(steps) > 0 && m.Op.(program.Map).Func != rectifiers()[e.product.Dtype].f {
		return nil, nil
	}
	return m, steps
}

// take takes a Map; inline reports that it takes Maps with it that this one alone reads,
// numbers that constants become part of the function.
func (e *epilogue) take(m *program.Instr, inline, numbers bool) bool {
	dt := e.product.Dtype
	w := &composer{epilogue: e, inline: inline, numbers: numbers, operands: slices.Clone(e.operands),
		Builder: expr.NewBuilder(slices.Repeat([]kernels.Dtype{dt}, mostOperands+1)...)}
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
	e.product, e.f, e.operands, e.out, e.taken = product, f, operands, m.Out[0], append(e.taken, w.taken...)
	return true
}

// rewrite makes one instruction of the product and the Maps that it has taken, at the place of the
// last Map.
func (e *epilogue) rewrite() {
	in := &program.Instr{Op: program.Kernel{Planner: e.product}, In: slices.Clone(e.instr.In), Out: []*program.Value{e.out}}
	for _, o := range e.operands {
		in.In = append(in.In, o.base)
	}
	last, gone := e.out.Def, append([]*program.Instr{e.instr}, e.taken...)
	in.Nodes = program.NodesOf(gone...)
	e.out.Def = in
	e.replace(last, in, gone)
	for _, step := range e.steps {
		e.derive(step)
	}
}

// derive makes the derivative of a rectifier one of its result.
func (e *epilogue) derive(step *program.Instr) {
	v := step.In[0]
	step.Op, step.In = program.Map{Func: rectifiers()[e.product.Dtype].byResult, Shape: v.Shape}, []*program.Value{e.out}
	if !slices.Equal(v.Shape, e.out.Shape) || !v.IsContiguous() {
		def := &program.Instr{Op: program.Alias{}, In: []*program.Value{e.out}, Nodes: step.Nodes}
		e.depth[def], e.places[def] = e.depth[e.out.Def], e.places[e.out.Def]
		step.In[0] = e.p.NewAlias(def, e.out.Name, v.Type, e.out, v.View)
	}
	e.read(e.out, step)
}
