package expr

import "slices"

// Stage is a step of a function with reductions: the part that is computed at each element of a row before those reductions can be made.
type Stage struct {
	// Func computes the arguments of the reductions. Its operands are those of the whole
	// function, then the results of the reductions of earlier stages.
	Func       Func
	Reductions []Op // RowSum, RowMax or RowMin, for each output of Func but those that are kept
	Kept       int  // outputs of Func behind those: see [Func.StagesKept]
}

// Staged is a function with reductions, split into stages. After the stages, Elements and Row compute the function's outputs; their operands are
// those of the whole function, then the results of all reductions.
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

// Widens reports whether output l is output k, of float32, converted to float64.
func (f Func) Widens(l, k int) bool {
	g := f.graph()
	n := g.nodes[g.outputs[l]]
	return n.op == convert && n.dtype == Float64 && n.args[0] == g.outputs[k] && g.nodes[g.outputs[k]].dtype == Float32
}

// Stages takes a function apart at its reductions. perRow reports for each output whether a row has one of it: it depends on no operand that differs
// along a row but through a reduction.
func (f Func) Stages(perRow []bool) (Staged, error) {
	whole, _, err := f.stages(perRow, false)
	return whole, err
}

// StagesKept is [Func.Stages] for callers with memory for more than one element of a row: a value that takes long and a later step needs again, such
// as the exponentials of a softmax, is kept. The operands of all steps are those of the function, then the kept values, in the order in which stages
// compute them, then the results of reductions. Row reads no kept value: it has one element for each row, a kept value one for each element.
func (f Func) StagesKept(perRow []bool) (whole Staged, kept []Dtype, err error) {
	return f.stages(perRow, true)
}

func (f Func) stages(perRow []bool, keep bool) (whole Staged, kept []Dtype, err error) {
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
	var elements, row []Value
	for k, v := range g.outputs {
		if perRow[k] {
			row = append(row, v)
		} else {
			elements = append(elements, v)
		}
	}
	keeps := make([][]Value, deepest)
	if keep {
		keeps = s.keeps(deepest, elements)
	}
	for _, v := range slices.Concat(keeps...) {
		kept = append(kept, g.nodes[v].dtype)
	}
	s.types = slices.Concat(s.types, kept)
	known := len(g.operands)
	for at := range deepest {
		var stage Stage
		var arguments, results []Value
		for i, n := range g.nodes {
			if n.op.reduces() && s.depth[i] == at+1 {
				stage.Reductions = append(stage.Reductions, n.op)
				arguments, results = append(arguments, n.args[0]), append(results, Value(i))
			}
		}
		if stage.Func, err = s.part(append(arguments, keeps[at]...)); err != nil {
			return whole, kept, err
		}
		for _, v := range keeps[at] {
			s.result[v] = known
			known++
		}
		stage.Kept = len(keeps[at])
		for _, v := range results {
			s.result[v] = len(s.types)
			s.types = append(s.types[:len(s.types):len(s.types)], g.nodes[v].dtype)
		}
		whole.Stages = append(whole.Stages, stage)
	}
	if whole.Elements, err = s.part(elements); err == nil {
		for _, v := range slices.Concat(keeps...) {
			delete(s.result, v)
		}
		whole.Row, err = s.part(row)
	}
	return whole, kept, err
}

// keeps returns, for each stage, the transcendental functions of an element in it that later stages, or the outputs at each element, need as well.
func (s *stager) keeps(stages int, elements []Value) [][]Value {
	varies := make([]bool, len(s.nodes))
	first, seen := make([]int, len(s.nodes)), make([]int, len(s.nodes)) // the step that computes a node, and that looked at it last
	for i := range s.nodes {
		n := &s.nodes[i]
		varies[i], first[i], seen[i] = n.op == operand, -1, -1
		for _, a := range n.inputs() {
			varies[i] = varies[i] || varies[a] && !n.op.reduces()
		}
	}
	keeps := make([][]Value, stages)
	var visit func(v Value, step int)
	visit = func(v Value, step int) {
		switch n := &s.nodes[v]; {
		case n.op.reduces() || seen[v] == step:
		case first[v] >= 0 && n.op.transcendental() && varies[v]:
			if at := first[v]; !slices.Contains(keeps[at], v) {
				keeps[at] = append(keeps[at], v)
			}
		default:
			if seen[v] = step; first[v] < 0 {
				first[v] = step
			}
			for _, a := range n.inputs() {
				visit(a, step)
			}
		}
	}
	for at := range stages {
		for i := range s.nodes {
			if n := &s.nodes[i]; n.op.reduces() && s.depth[i] == at+1 {
				visit(n.args[0], at)
			}
		}
	}
	for _, v := range elements {
		visit(v, stages)
	}
	return keeps
}

// stager splits one graph into functions.
type stager struct {
	*graph
	depth  []int         // reductions on the longest way to a node
	result map[Value]int // operand that is the result of a reduction
	types  []Dtype       // of the operands so far
}

// part returns the function of the operands so far that computes some values of the graph, the zero Func for none.
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
