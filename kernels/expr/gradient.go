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
		d.add(v, b.Operand(len(g.operands)+i))
	}
	for i := len(g.nodes) - 1; i >= 0; i-- {
		if n := &g.nodes[i]; d.adjoints[i] != none && n.dtype.IsFloat() {
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
			if n.op == operand && n.bits == uint64(k) && d.adjoints[j] != none {
				list[i] = d.adjoints[j]
			}
		}
	}
	return b.Func(list...)
}

// differ goes backward through a graph whose values have been built.
type differ struct {
	*Builder
	*graph
	here     []Value // the builder's values of the graph's nodes
	adjoints []Value // the builder's gradients w.r.t. the graph's nodes, accumulated so far; initially none
}

// newDiffer returns a differ of a function of f's operands, then the derivative by each output.
func newDiffer(f Func) differ {
	g := f.graph()
	b := NewBuilder(append(g.operands, f.Outputs()...)...)
	return differ{Builder: b, graph: g, here: b.values(g, b.Inputs()), adjoints: slices.Repeat([]Value{none}, len(g.nodes))}
}

// none is no derivative: 0.
const none Value = -1

// add adds a term to the derivative by a node.
func (d *differ) add(v, term Value) {
	switch {
	case !d.graph.nodes[v].dtype.IsFloat():
	case d.adjoints[v] == none:
		d.adjoints[v] = term
	default:
		d.adjoints[v] = d.Apply(Add, d.adjoints[v], term)
	}
}

// back adds the contributions of node n, of value y and derivative dy, to the derivatives by its arguments.
func (d *differ) back(n *node, y, dy Value) {
	switch n.op {
	case operand, constant:
		return
	case convert:
		if from := d.graph.nodes[n.args[0]].dtype; from.IsFloat() {
			d.add(n.args[0], d.Convert(dy, from))
		}
	case Select:
		c, zero := d.here[n.args[0]], d.Constant(n.dtype, 0)
		d.add(n.args[1], d.Apply(Select, c, dy, zero))
		d.add(n.args[2], d.Apply(Select, c, zero, dy))
	default:
		if ops[n.op].gradients == nil {
			d.fail("%v has no gradient", n.op)
			return
		}
		x := d.here[n.args[0]]
		operands := []Value{x, x, y, dy}
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
			d.add(n.args[k], d.Inline(f, operands...)[0])
		}
	}
}
