package expr

import "slices"

// Matches returns the ways in which f, a function with one output, equals pattern with functions in place of the pattern's operands: for each way
// those functions, which have the operands of f. The arguments of sums and products may be in either order: that changes no bit of a result except
// the sign and the payload of NaN.
//
//	a + tanh(b)  matches  x + y  with  x = a, y = tanh(b)  and with  x = tanh(b), y = a
func (f Func) Matches(pattern Func) [][]Func {
	m := matcher{of: f.graph(), pattern: pattern.graph()}
	if len(m.of.outputs) != 1 || len(m.pattern.outputs) != 1 {
		return nil
	}
	var list [][]Func
	none := slices.Repeat([]Value{-1}, len(m.pattern.operands))
	for _, found := range m.match(m.pattern.outputs[0], m.of.outputs[0], [][]Value{none}) {
		parts := make([]Func, len(found))
		for i, v := range found {
			if v >= 0 {
				parts[i] = m.of.part(v)
			}
		}
		list = append(list, parts)
	}
	return list
}

// IsOperand reports whether f is one of its operands, and returns which.
func (f Func) IsOperand() (int, bool) {
	g := f.graph()
	if len(g.outputs) != 1 || g.nodes[g.outputs[0]].op != operand {
		return 0, false
	}
	return int(g.nodes[g.outputs[0]].bits), true
}

// part returns the function that ends at a node.
func (g *graph) part(v Value) Func {
	p := graph{operands: g.operands, outputs: make([]Value, 1)}
	b := Builder{operands: g.operands, nodes: g.nodes}
	p.outputs[0] = b.visit(&p, make([]Value, len(g.nodes)), v)
	return p.encode()
}

// matcher finds a pattern in a function.
type matcher struct{ of, pattern *graph }

// match extends the ways found so far, each a node for each operand of the pattern or -1, and
// returns those in which node v of the function matches node p of the pattern.
func (m matcher) match(p, v Value, ways [][]Value) [][]Value {
	x, y := &m.pattern.nodes[p], &m.of.nodes[v]
	if x.op == operand {
		var list [][]Value
		for _, way := range ways {
			switch way[x.bits] {
			case -1:
				way = slices.Clone(way)
				way[x.bits] = v
				list = append(list, way)
			case v:
				list = append(list, way)
			}
		}
		return list
	}
	if x.op != y.op || x.dtype != y.dtype || x.op == constant && x.bits != y.bits {
		return nil
	}
	orders := [][]Value{y.inputs()}
	if x.op == Add || x.op == Mul {
		orders = append(orders, []Value{y.args[1], y.args[0]})
	}
	var list [][]Value
	for _, order := range orders {
		found := ways
		for i, a := range x.inputs() {
			found = m.match(a, order[i], found)
		}
		list = append(list, found...)
	}
	return list
}
