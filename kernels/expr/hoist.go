package expr

// Hoist splits a function at expensive values that depend only on constants and on operands from number `from` on. Results of reductions are such
// operands: they are constant along a row. early returns the hoisted values, and late the function's outputs. The operands of late are the function's
// operands, then early's outputs. Without such values, early is the zero Func and late is f.
func (f Func) Hoist(from int) (early, late Func, err error) {
	g := f.graph()
	fixed, costly := make([]bool, len(g.nodes)), make([]bool, len(g.nodes))
	for i, n := range g.nodes {
		switch n.op {
		case operand:
			fixed[i] = int(n.bits) >= from
			continue
		case constant, number:
			fixed[i] = true
			continue
		}
		fixed[i], costly[i] = true, n.op.transcendental() || n.op == Div || n.op == Sqrt
		for _, a := range n.inputs() {
			fixed[i], costly[i] = fixed[i] && fixed[a], costly[i] || costly[a]
		}
	}
	needed := make([]bool, len(g.nodes)) // by values that are not fixed
	for i, n := range g.nodes {
		for _, a := range n.inputs() {
			needed[a] = needed[a] || !fixed[i]
		}
	}
	for _, v := range g.outputs {
		needed[v] = true
	}
	s := stager{graph: g, result: map[Value]int{}, types: g.operands}
	var hoisted []Value
	for i := range g.nodes {
		if fixed[i] && costly[i] && needed[i] {
			hoisted = append(hoisted, Value(i))
		}
	}
	if len(hoisted) == 0 {
		return Func{}, f, nil
	}
	if early, err = s.part(hoisted); err != nil {
		return early, f, err
	}
	for _, v := range hoisted {
		s.result[v] = len(s.types)
		s.types = append(s.types[:len(s.types):len(s.types)], g.nodes[v].dtype)
	}
	late, err = s.part(g.outputs)
	return early, late, err
}
