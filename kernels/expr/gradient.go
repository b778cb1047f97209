package expr

import (
	"fmt"
	"slices"
)

// Gradient returns the adjoint of the function for some of its operands, given by their numbers: a function of the same operands followed by the
// derivative of a loss by each output of f; its outputs are the derivatives of the loss by those operands. The operands and the outputs concerned are
// Float32 or Float64.
//
// Sign, Ceil, Floor and comparisons have the derivative 0, Abs has 0 at 0, and Min and Max pass the
// whole derivative to their first argument if both are equal.
func (f Func) Gradient(operands ...int) (Func, error) {
	d := newDiffer(f)
	b, g := d.Builder, d.graph
	for i, v := range g.outputs {
		d.add(v, adjoint{b.Operand(len(g.operands) + i), none})
	}
	for i := len(g.nodes) - 1; i >= 0; i-- {
		if n := &g.nodes[i]; d.adjoints[i].of != none && n.dtype.IsFloat() {
			d.back(n, d.here[i], d.adjoints[i])
		}
	}
	list := make([]Value, len(operands))
	for i, k := range operands {
		if k < 0 || k >= len(g.operands) || !g.operands[k].IsFloat() {
			return Func{}, fmt.Errorf("expr: got operand %d for the gradient of %v, want one of f32 or f64", k, f)
		}
		list[i] = b.Constant(g.operands[k], 0)
		for j, n := range g.nodes {
			if n.op == operand && n.bits == uint64(k) && d.adjoints[j].of != none {
				list[i] = d.value(d.adjoints[j])
			}
		}
	}
	return b.Func(list...)
}

// adjoint is the derivative of the loss w.r.t. a value: of times factor, or of alone if factor is none.
type adjoint struct{ of, factor Value }

// differ goes backward through a graph whose values have been built.
type differ struct {
	*Builder
	*graph
	here     []Value   // the builder's values of the graph's nodes
	adjoints []adjoint // w.r.t. the graph's nodes, accumulated so far; initially of none
}

// newDiffer returns a differ of a function of f's operands, then the derivative by each output.
func newDiffer(f Func) differ {
	g := f.graph()
	b := NewBuilder(append(g.operands, f.Outputs()...)...)
	return differ{Builder: b, graph: g, here: b.values(g, b.Inputs()), adjoints: slices.Repeat([]adjoint{{none, none}}, len(g.nodes))}
}

// none is no derivative: 0.
const none Value = -1

// value returns the value of an adjoint that is not none.
func (d *differ) value(a adjoint) Value {
	if a.factor == none {
		return a.of
	}
	return d.Apply(Mul, a.of, a.factor)
}

// add adds a term to the derivative by a node.
func (d *differ) add(v Value, term adjoint) {
	n, sum := &d.graph.nodes[v], &d.adjoints[v]
	switch {
	case !n.dtype.IsFloat():
	case sum.of == none:
		*sum = term
	case sum.of == term.of && (sum.factor != none || term.factor != none):
		for _, a := range []*adjoint{sum, &term} {
			if a.factor == none {
				a.factor = d.Constant(n.dtype, 1)
			}
		}
		sum.factor = d.Apply(Add, sum.factor, term.factor)
	default:
		*sum = adjoint{d.Apply(Add, d.value(*sum), d.value(term)), none}
	}
}

// saturated reports whether node n is a value times a saturating function of it, such as SiLU. Of such a product the derivative is multiplied by dy last: dy times
// the value may overflow where the function's derivative is 0.
func (d *differ) saturated(n *node) bool {
	if n.op != Mul {
		return false
	}
	for k, v := range n.args[:2] {
		f := d.stripped(n.args[1-k], Add, Sub, Mul, Div)
		if op := d.graph.nodes[f].op; (op == Tanh || op == Erf || op == Sigmoid) && d.reaches(f, d.stripped(v, Mul, Div)) {
			return true
		}
	}
	return false
}

// stripped returns a value without the constants that the given operations combine with it.
func (d *differ) stripped(v Value, by ...Op) Value {
	for n := &d.graph.nodes[v]; slices.Contains(by, n.op); n = &d.graph.nodes[v] {
		x, y := n.args[0], n.args[1]
		switch {
		case d.graph.nodes[x].op == constant:
			v = y
		case d.graph.nodes[y].op == constant:
			v = x
		default:
			return v
		}
	}
	return v
}

// reaches reports whether value v is computed from value from. Values come after those that they are computed from.
func (d *differ) reaches(v, from Value) bool {
	uses := make([]bool, len(d.graph.nodes))
	uses[from] = true
	for i := from + 1; i <= v; i++ {
		n := &d.graph.nodes[i]
		uses[i] = slices.ContainsFunc(n.args[:n.op.Arity()], func(x Value) bool { return uses[x] })
	}
	return uses[v]
}

// back adds the contributions of node n, of value y and derivative dy, to the derivatives by its arguments.
func (d *differ) back(n *node, y Value, dy adjoint) {
	seed, term := dy.of, func(v Value) adjoint { return adjoint{v, none} }
	if dy.factor != none || d.saturated(n) {
		if seed = dy.factor; seed == none {
			seed = d.Constant(n.dtype, 1)
		}
		term = func(v Value) adjoint { return adjoint{dy.of, v} }
	}
	switch n.op {
	case operand, constant:
		return
	case convert:
		if from := d.graph.nodes[n.args[0]].dtype; from.IsFloat() {
			d.add(n.args[0], adjoint{d.Convert(d.value(dy), from), none})
		}
	case Select:
		c, zero := d.here[n.args[0]], d.Constant(n.dtype, 0)
		d.add(n.args[1], term(d.Apply(Select, c, seed, zero)))
		d.add(n.args[2], term(d.Apply(Select, c, zero, seed)))
	default:
		if ops[n.op].gradients == nil {
			d.fail("%v has no gradient", n.op)
			return
		}
		x := d.here[n.args[0]]
		operands := []Value{x, x, y, seed}
		if n.op.Arity() == 2 {
			operands[1] = d.here[n.args[1]]
		}
		for k, text := range ops[n.op].gradients {
			if text == "0" {
				continue
			}
			f, err := Parse(text, n.dtype, "x", "y", "z", "dz")
			if err != nil {
				d.fail("the gradient of %v: %v", n.op, err)
				return
			}
			d.add(n.args[k], term(d.Inline(f, operands...)[0]))
		}
	}
}
