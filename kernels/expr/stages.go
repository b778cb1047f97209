package expr

// Stage is a step of a function with reductions: what is computed at each element of
// a row before those reductions can be made.
type Stage struct {
	// Func gives the arguments of the reductions. Its operands are those of the whole
	// function, then the results of the reductions of earlier stages.
	Func       Func
	Reductions []Op // RowSum, RowMax or RowMin, for each output of Func
}

// Staged is a function with reductions taken apart. After the stages, Elements and Row
// give the function's outputs; their operands are those of the whole function, then
// the results of all reductions.
type Staged struct {
	Stages   []Stage
	Elements Func // the outputs that differ along a row, in order
	Row      Func // the outputs of which a row has one, in order
}

// Reductions returns the number of reductions in the function.
func (f Func) Reductions() int {
	n := 0
	for _, node := range f.graph().nodes {
		if node.op.reduces() {
			n++
		}
	}
	return n
}

// Stages takes a function apart at its reductions. perRow says of each output whether a
// row has one of it: it depends on no operand that differs along a row but through a
// reduction.
func (f Func) Stages(perRow []bool) (Staged, error) {
	g := f.graph()
	s := stager{graph: g, depth: make([]int, len(g.nodes)), result: map[Value]int{}, types: g.operands}
	deepest := 0
	for i, n := range g.nodes {
		for _, a := range n.inputs() {
			s.depth[i] = max(s.depth[i], s.depth[a])
		}
		if n.op.reduces() {
			s.depth[i]++
		}
		deepest = max(deepest, s.depth[i])
	}
	var whole Staged
	for at := range deepest {
		var stage Stage
		var arguments, results []Value
		for i, n := range g.nodes {
			if n.op.reduces() && s.depth[i] == at+1 {
				stage.Reductions = append(stage.Reductions, n.op)
				arguments, results = append(arguments, n.args[0]), append(results, Value(i))
			}
		}
		var err error
		if stage.Func, err = s.part(arguments); err != nil {
			return whole, err
		}
		for _, v := range results {
			s.result[v] = len(s.types)
			s.types = append(s.types[:len(s.types):len(s.types)], g.nodes[v].dtype)
		}
		whole.Stages = append(whole.Stages, stage)
	}
	var elements, row []Value
	for k, v := range g.outputs {
		if perRow[k] {
			row = append(row, v)
		} else {
			elements = append(elements, v)
		}
	}
	var err error
	if whole.Elements, err = s.part(elements); err == nil {
		whole.Row, err = s.part(row)
	}
	return whole, err
}

// stager takes one graph apart.
type stager struct {
	*graph
	depth  []int         // reductions on the longest way to a node
	result map[Value]int // operand that is the result of a reduction
	types  []Dtype       // of the operands so far
}

// part returns the function of the operands so far that gives some values of the
// graph, the zero Func for none.
func (s *stager) part(outputs []Value) (Func, error) {
	if len(outputs) == 0 {
		return Func{}, nil
	}
	b := NewBuilder(s.types...)
	here := make([]Value, len(s.nodes))
	for i := range s.nodes {
		n := &s.nodes[i]
		if k, known := s.result[Value(i)]; known {
			here[i] = b.Operand(k)
			continue
		}
		here[i] = none
		if n.op == operand {
			here[i] = b.Operand(int(n.bits))
			continue
		}
		ready := !n.op.reduces()
		copied := *n
		for k, a := range n.inputs() {
			ready = ready && here[a] != none
			copied.args[k] = here[a]
		}
		if ready {
			here[i] = b.add(copied)
		}
	}
	list := make([]Value, len(outputs))
	for k, v := range outputs {
		list[k] = here[v]
	}
	return b.Func(list...)
}
