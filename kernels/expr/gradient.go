package expr

import (
	"fmt"
	"math"
)

// Gradient returns the adjoint of the function for some of its operands, given by their numbers: a
// function of the same operands followed by the derivative of a loss by each output of f; its
// outputs are the derivatives of the loss by those operands. The operands and the outputs concerned
// are Float32 or Float64.
//
// Sign, Ceil, Floor and comparisons have the derivative 0, Abs has 0 at 0, and Min and Max pass the
// whole derivative to their first argument if both are equal.
func (f Func) Gradient(operands ...int) (Func, error) {
	g := f.graph()
	b := NewBuilder(append(g.operands, f.Outputs()...)...)
	inputs := make([]Value, len(g.operands))
	for i := range inputs {
		inputs[i] = b.Operand(i)
	}
	d := differ{Builder: b, graph: g, here: b.values(g, inputs), adjoints: make([]Value, len(g.nodes))}
	for i := range d.adjoints {
		d.adjoints[i] = none
	}
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
	here     []Value // of the graph's nodes in the builder
	adjoints []Value // of the graph's nodes in the builder, so far; none at first
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

// back adds the contributions of node n, of value y and derivative dy, to the derivatives by its
// arguments.
func (d *differ) back(n *node, y, dy Value) {
	switch n.op {
	case operand, constant, Sign, Ceil, Floor:
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
		if n.op.Arity() == 2 {
			d.binary(n, y, dy)
			return
		}
		d.add(n.args[0], d.unary(n, y, dy))
	}
}

// unary returns dy times the derivative of y = op(x).
func (d *differ) unary(n *node, y, dy Value) Value {
	x := d.here[n.args[0]]
	number := func(v float64) Value { return d.Constant(n.dtype, v) }
	mul := func(a, b Value) Value { return d.Apply(Mul, a, b) }
	div := func(a, b Value) Value { return d.Apply(Div, a, b) }
	switch n.op {
	case Neg:
		return d.Apply(Neg, dy)
	case Abs:
		return mul(dy, d.Apply(Sign, x))
	case Sqrt:
		return div(dy, mul(number(2), y))
	case Exp:
		return mul(dy, y)
	case Expm1:
		return mul(dy, d.Apply(Exp, x))
	case Log:
		return div(dy, x)
	case Log2:
		return div(dy, mul(x, number(math.Ln2)))
	case Log1p:
		return div(dy, d.Apply(Add, number(1), x))
	case Sin:
		return mul(dy, d.Apply(Cos, x))
	case Cos:
		return d.Apply(Neg, mul(dy, d.Apply(Sin, x)))
	case Tanh:
		return mul(dy, d.Apply(Sub, number(1), mul(y, y)))
	case Erf:
		return mul(dy, mul(number(2/math.Sqrt(math.Pi)), d.Apply(Exp, d.Apply(Neg, mul(x, x)))))
	case Sigmoid:
		return mul(dy, mul(y, d.Apply(Sub, number(1), y)))
	case Softplus:
		return mul(dy, d.Apply(Sigmoid, x))
	}
	return d.fail("%v has no derivative", n.op)
}

// binary adds the contributions of y = op(a, b) to the derivatives by a and b.
func (d *differ) binary(n *node, y, dy Value) {
	a, b := d.here[n.args[0]], d.here[n.args[1]]
	zero := d.Constant(n.dtype, 0)
	var da, db Value
	switch n.op {
	case Add:
		da, db = dy, dy
	case Sub:
		da, db = dy, d.Apply(Neg, dy)
	case Mul:
		da, db = d.Apply(Mul, dy, b), d.Apply(Mul, dy, a)
	case Div: // y = a/b
		da = d.Apply(Div, dy, b)
		db = d.Apply(Neg, d.Apply(Mul, da, y))
	case Min, Max:
		op := Le
		if n.op == Max {
			op = Ge
		}
		first := d.Apply(op, a, b)
		da, db = d.Apply(Select, first, dy, zero), d.Apply(Select, first, zero, dy)
	case Pow:
		less := d.Apply(Sub, b, d.Constant(n.dtype, 1))
		da = d.Apply(Mul, dy, d.Apply(Mul, b, d.Apply(Pow, a, less)))
		// y ln a goes to 0 with y; the product of its factors would be NaN
		log := d.Apply(Mul, y, d.Apply(Log, a))
		db = d.Apply(Mul, dy, d.Apply(Select, d.Apply(Eq, y, zero), zero, log))
	default: // comparisons have no derivative, and are no floats
		d.fail("%v has no derivative", n.op)
	}
	d.add(n.args[0], da)
	d.add(n.args[1], db)
}
