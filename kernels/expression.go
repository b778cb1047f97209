package kernels

import (
	"fmt"
	"math"
	"strconv"
)

// longest is the most characters of an expression: it is read, and its code is
// written, by recursion, which needs an end.
const longest = 4096

// A Reduction is a small expression of a, what has been reduced so far, and b, the
// next element, that can be reduced in parallel: a operator f(b). See
// [ParseReduction].
type Reduction struct {
	Operator string // "+", "*", "max" or "min"
	f        *term  // of b alone
}

// ParseReduction reads an expression of a and b: numbers, + - * /, parentheses,
// and the functions max(x, y), min(x, y), abs(x), sqrt(x). Chunks of the input are
// reduced side by side and their results joined, so that the expression must
// say how: it must come down to one of
//
//	a + f(b)   a * f(b)   max(a, f(b))   min(a, f(b))
//
// with a once and any f of b, as in "a + b*b", "max(abs(b), a)" or "a - b/2 + 1". Any other
// expression, and one of more than 4096 characters, is an error that names the
// position, in characters from 1.
func ParseReduction(expression string) (*Reduction, error) {
	if len(expression) > longest {
		return nil, fmt.Errorf("at %d: got %d characters, want at most %d", longest+1, len(expression), longest)
	}
	p := parser{text: expression}
	p.next()
	t := p.sum()
	if p.err == nil && p.token != "" {
		p.fail(p.at, "got %s after the expression, want its end", p.token)
	}
	if p.err != nil {
		return nil, p.err
	}
	return split(t)
}

// Identity is the operator's neutral element: 0, 1, -Inf or +Inf.
func (r *Reduction) Identity() float64 {
	switch r.Operator {
	case "+":
		return 0
	case "*":
		return 1
	case "max":
		return math.Inf(-1)
	}
	return math.Inf(1)
}

// String returns the reduction in a normal form, which is the same for expressions
// that differ in spaces and parentheses alone.
func (r *Reduction) String() string {
	if r.Operator == "+" || r.Operator == "*" {
		return "a " + r.Operator + " " + r.f.String()
	}
	return r.Operator + "(a, " + r.f.String() + ")"
}

// A term is a node of an expression: a number, a name (a or b), or an operator or
// function of one or two terms.
type term struct {
	name  string // "a", "b", "" for a number, or the operator: + - * / neg max min abs sqrt
	value float64
	x, y  *term
	at    int // where it is in the text, from 1
}

func (t *term) String() string {
	switch t.name {
	case "":
		return strconv.FormatFloat(t.value, 'g', -1, 64)
	case "a", "b":
		return t.name
	case "neg":
		return "(-" + t.x.String() + ")"
	case "+", "-", "*", "/":
		return "(" + t.x.String() + " " + t.name + " " + t.y.String() + ")"
	case "abs", "sqrt":
		return t.name + "(" + t.x.String() + ")"
	}
	return t.name + "(" + t.x.String() + ", " + t.y.String() + ")"
}

// find returns the first a of a term, or nil.
func (t *term) find() *term {
	if t == nil || t.name == "a" {
		return t
	}
	if a := t.x.find(); a != nil {
		return a
	}
	return t.y.find()
}

// split takes an expression apart into operator and f.
func split(t *term) (*Reduction, error) {
	a := t.find()
	if a == nil {
		return nil, fmt.Errorf("at 1: got no a, want a, what has been reduced so far, and b, the next element, as in a + b")
	}
	operator := t.name
	switch operator {
	case "-":
		operator = "+"
	case "/":
		operator = "*"
	case "a":
		return nil, fmt.Errorf("at %d: got a alone, want a and b, as in a + b", t.at)
	case "+", "*", "max", "min":
	default:
		return nil, fmt.Errorf("at %d: got a within %s, want a + f(b), a * f(b), max(a, f(b)) or min(a, f(b))", a.at, describe(t))
	}
	f, err := without(t, operator)
	if err != nil {
		return nil, err
	}
	return &Reduction{operator, f}, nil
}

// inverses are the operators that go with an operator.
var inverses = map[string]string{"+": "-", "*": "/"}

// without returns the rest of t beside a, so that t = a operator rest.
func without(t *term, operator string) (*term, error) {
	inverse := inverses[operator]
	if t.name != operator && t.name != inverse || t.name == "" {
		a := t.find()
		return nil, fmt.Errorf("at %d: got a within %s, want it as an operand of %s and once, so that chunks can be joined", a.at, describe(t), operator)
	}
	x, y := t.x, t.y
	if other := y.find(); other != nil && x.find() != nil {
		return nil, fmt.Errorf("at %d: got a second a, want one, so that chunks can be joined", other.at)
	} else if other != nil { // y holds a
		if t.name == inverse {
			return nil, fmt.Errorf("at %d: got a behind %s, want it before, so that chunks can be joined", other.at, t.name)
		}
		x, y = y, x
	}
	// x holds a, y does not: (a op f) op y, (a op f) inverse y
	if x.name == "a" {
		switch t.name {
		case "-":
			return &term{name: "neg", x: y, at: t.at}, nil
		case "/":
			return &term{name: "/", x: &term{value: 1, at: t.at}, y: y, at: t.at}, nil
		}
		return y, nil
	}
	f, err := without(x, operator)
	if err != nil {
		return nil, err
	}
	return &term{name: t.name, x: f, y: y, at: t.at}, nil
}

func describe(t *term) string {
	if t.name == "neg" {
		return "a minus sign"
	}
	return t.name
}
