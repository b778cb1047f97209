package expr

import "fmt"

// ParseReduction reads an expression of a, the result so far, and b, the next element, both Float64, in the language of [Parse]. Chunks of the input
// are reduced in parallel and their results combined, so the expression must have one of the forms
//
//	a + f(b)   a * f(b)   max(a, f(b))   min(a, f(b))
//
// with a once and any f of b, as in "a + b*b", "max(abs(b), a)" or "a - b/2 + 1". It returns the operation and f. Any other expression is an error
// that names the position, in characters from 1.
func ParseReduction(text string) (Op, Func, error) {
	p, v := read(text, []Dtype{Float64, Float64}, Float64, false, "a", "b")
	if p.err != nil {
		return 0, Func{}, p.err
	}
	s := splitter{p, p.Operand(0), make([]bool, len(p.nodes))}
	for i, n := range p.nodes { // arguments come first
		s.holds[i] = Value(i) == s.a
		for _, x := range n.inputs() {
			s.holds[i] = s.holds[i] || s.holds[x]
		}
	}
	op, f, err := s.split(v)
	if err != nil {
		return 0, Func{}, err
	}
	of, err := p.Func(f)
	if err != nil {
		return 0, Func{}, err
	}
	b := NewBuilder(Float64)
	of, err = b.Func(b.Inline(of, b.Operand(0), b.Operand(0))...) // of b alone
	return op, of, err
}

// splitter splits an expression a op f(b) into op and f(b).
type splitter struct {
	*parser
	a     Value
	holds []bool // whether a node depends on a
}

// split returns the operation and f of a operation f(b).
func (s *splitter) split(v Value) (Op, Value, error) {
	switch {
	case len(s.first) == 0:
		return 0, 0, fmt.Errorf("at 1: got no a, want a, the result so far, and b, the next element, as in a + b")
	case v == s.a:
		return 0, 0, fmt.Errorf("at %d: got a alone, want a and b, as in a + b", s.first[0])
	case len(s.first) > 1:
		return 0, 0, fmt.Errorf("at %d: got a second a, want one, so that chunks can be joined", s.first[1])
	}
	op := s.nodes[v].op
	switch op {
	case Sub:
		op = Add
	case Div:
		op = Mul
	case Add, Mul, Min, Max:
	default:
		return 0, 0, fmt.Errorf("at %d: got a within %s, want a + f(b), a * f(b), max(a, f(b)) or min(a, f(b))", s.first[0], describe(op))
	}
	f, err := s.without(v, op)
	return op, f, err
}

// inverses are the inverse operations.
var inverses = map[Op]Op{Add: Sub, Mul: Div}

// without returns the rest of v besides a: v = a op without(v).
func (s *splitter) without(v Value, op Op) (Value, error) {
	n := s.nodes[v]
	inverse, x, y := inverses[op], n.args[0], n.args[1]
	switch {
	case n.op != op && (n.op != inverse || inverse == 0), s.holds[x] && s.holds[y]:
		return 0, fmt.Errorf("at %d: got a within %s, want it as an operand of %v and once, so that chunks can be joined", s.first[0], describe(n.op), op)
	case s.holds[y] && n.op == inverse:
		return 0, fmt.Errorf("at %d: got a behind %v, want it before, so that chunks can be joined", s.first[0], n.op)
	case s.holds[y]:
		x, y = y, x
	}
	// x holds a, y does not: (a op f) op y, (a op f) inverse y
	switch {
	case x == s.a && n.op == Sub:
		return s.Apply(Neg, y), nil
	case x == s.a && n.op == Div:
		return s.Apply(Inverse, y), nil
	case x == s.a:
		return y, nil
	}
	f, err := s.without(x, op)
	return s.Apply(n.op, f, y), err
}

func describe(op Op) string {
	switch op {
	case Neg:
		return "a minus sign"
	case convert:
		return "a comparison"
	}
	return op.String()
}
