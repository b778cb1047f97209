package expr

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// String returns the function in a normal form, with the operands' types before it, as in
//
//	f32, f32: tanh(x0 * x1) + 1
//	f64: t0 = exp(x0); t0 / (t0 + 1)
//
// Operands are x0, x1, ..., subexpressions that are used more than once t0, t1, ... Functions that differ have different strings.
func (f Func) String() string {
	types := f.Operands()
	names, list := make([]string, len(types)), make([]string, len(types))
	for i, d := range types {
		names[i], list[i] = "x"+strconv.Itoa(i), d.String()
	}
	return strings.Join(list, ", ") + ": " + f.Text(names...)
}

// Text returns the function in terms of operands of those names, without their types: String's normal form behind the colon. Operands beyond the
// names are called x and their number.
func (f Func) Text(names ...string) string {
	g := f.graph()
	for i := len(names); i < len(g.operands); i++ {
		names = append(slices.Clip(names), "x"+strconv.Itoa(i))
	}
	var w strings.Builder
	p := printer{graph: g, operands: names, names: make([]string, len(g.nodes)), plain: g.plain()}
	uses := make([]int, len(g.nodes))
	for _, n := range g.nodes {
		for _, a := range n.inputs() {
			uses[a]++
		}
	}
	for _, v := range g.outputs {
		uses[v]++
	}
	shared := 0
	for i, n := range g.nodes {
		if uses[i] > 1 && n.op >= convert {
			name := "t" + strconv.Itoa(shared)
			shared++
			fmt.Fprintf(&w, "%s = %s; ", name, p.text(Value(i), 0))
			p.names[i] = name
		}
	}
	for i, v := range g.outputs {
		if i > 0 {
			w.WriteString(", ")
		}
		w.WriteString(p.text(v, 0))
	}
	return w.String()
}

// plain returns the type of numbers that are written without it: that of all floating-point nodes, if an operand shows it too.
func (g *graph) plain() Dtype {
	found := dtypeCount
	for _, d := range g.operands {
		if d.IsFloat() {
			found = d
		}
	}
	for _, n := range g.nodes {
		if n.dtype.IsFloat() && n.dtype != found {
			return dtypeCount
		}
	}
	return found
}

type printer struct {
	*graph
	operands []string
	names    []string // of shared nodes that have been written
	plain    Dtype
}

// tightest is the level of a minus sign and of Not.
const tightest = 6

// levels of binary operators: those of a higher level bind more tightly.
var levels = map[Op]int{Or: 1, And: 2, Eq: 3, Ne: 3, Lt: 3, Le: 3, Add: 4, Sub: 4, Mul: 5, Div: 5}

// text returns a node, in parentheses if it binds less tightly than level.
func (p *printer) text(v Value, level int) string {
	n := &p.nodes[v]
	own := levels[n.op]
	switch {
	case p.names[v] != "":
		return p.names[v]
	case n.op == operand:
		return p.operands[n.bits]
	case n.op == number:
		return "n" + strconv.FormatUint(n.bits, 10)
	case n.op == constant && n.dtype == p.plain:
		return strconv.FormatFloat(n.value(), 'g', -1, 64)
	case n.op == constant && n.dtype.IsInteger():
		return fmt.Sprintf("%v(%d)", n.dtype, n.integer())
	case n.op == constant:
		return fmt.Sprintf("%v(%v)", n.dtype, n.value())
	case n.op == Neg: // of something other than a number: numbers have their sign
		return "-" + p.text(n.args[0], tightest)
	case n.op == Not:
		return "!" + p.text(n.args[0], tightest)
	case own > 0: // operators group from the left
		s := p.text(n.args[0], own) + " " + n.op.String() + " " + p.text(n.args[1], own+1)
		if own < level {
			return "(" + s + ")"
		}
		return s
	}
	args := make([]string, n.op.Arity())
	for i, a := range n.inputs() {
		args[i] = p.text(a, 0)
	}
	name := n.op.String()
	if n.op == convert {
		name = n.dtype.String()
	}
	return name + "(" + strings.Join(args, ", ") + ")"
}
