package kernels

import (
	"fmt"
	"math"
	"strconv"
	"strings"
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

// String is the reduction in a normal form, which is the same for expressions
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

// find gives the first a of a term, or nil.
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

// without gives what t is beside a: t = a operator without(t).
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

// A parser reads an expression by recursive descent: sum, product, unary, operand.
type parser struct {
	text  string
	pos   int    // of what follows the token, from 0
	token string // "" at the end
	at    int    // of the token, from 1
	err   error  // the first one
}

func (p *parser) fail(at int, format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("at %d: %s", at, fmt.Sprintf(format, args...))
	}
	p.token, p.pos = "", len(p.text)
}

func (p *parser) next() {
	for p.pos < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.pos]) >= 0 {
		p.pos++
	}
	start := p.pos
	word := func(c byte) bool {
		return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '.' || c >= 0x80
	}
	for p.pos < len(p.text) && word(p.text[p.pos]) {
		p.pos++
		// the sign of an exponent, as in 1e-3
		if c := p.text[start]; (c >= '0' && c <= '9' || c == '.') && (p.text[p.pos-1]|0x20) == 'e' && p.pos < len(p.text) && (p.text[p.pos] == '-' || p.text[p.pos] == '+') {
			p.pos++
		}
	}
	if p.pos == start && p.pos < len(p.text) {
		p.pos++
	}
	p.token, p.at = p.text[start:p.pos], start+1
}

func (p *parser) sum() *term {
	t := p.Count()
	for p.token == "+" || p.token == "-" {
		name, at := p.token, p.at
		p.next()
		t = &term{name: name, x: t, y: p.Count(), at: at}
	}
	return t
}

func (p *parser) Count() *term {
	t := p.unary()
	for p.token == "*" || p.token == "/" {
		name, at := p.token, p.at
		p.next()
		t = &term{name: name, x: t, y: p.unary(), at: at}
	}
	return t
}

func (p *parser) unary() *term {
	negative, at := false, p.at
	for p.token == "-" || p.token == "+" {
		negative = negative != (p.token == "-")
		p.next()
	}
	t := p.operand()
	if negative {
		return &term{name: "neg", x: t, at: at}
	}
	return t
}

// functions by their number of arguments.
var functions = map[string]int{"max": 2, "min": 2, "abs": 1, "sqrt": 1}

const wanted = "want a, b, a number, (, max(, min(, abs( or sqrt("

func (p *parser) operand() *term {
	t := &term{name: p.token, at: p.at}
	switch n := functions[p.token]; {
	case p.token == "":
		p.fail(p.at, "got the end, "+wanted)
	case p.token == "a" || p.token == "b":
		p.next()
	case p.token == "(":
		p.next()
		t = p.sum()
		p.expect(")")
	case n > 0:
		p.next()
		p.expect("(")
		t.x = p.sum()
		if n == 2 {
			p.expect(",")
			t.y = p.sum()
		}
		p.expect(")")
	default:
		v, err := strconv.ParseFloat(p.token, 64)
		if c := p.token[0]; err != nil || c != '.' && (c < '0' || c > '9') {
			p.fail(p.at, "got %s, "+wanted, p.token)
		}
		t.name, t.value = "", v
		p.next()
	}
	return t
}

func (p *parser) expect(token string) {
	if p.err != nil {
		return
	}
	if p.token != token {
		got := p.token
		if got == "" {
			got = "the end"
		}
		p.fail(p.at, "got %s, want %s", got, token)
		return
	}
	p.next()
}

// values evaluates t for all elements b into out, which is as long. scratch, up to
// t.operations() times as long, holds right operands: made anew for each piece they
// cost as much time as the arithmetic.
func (t *term) values(b, out, scratch []float64) {
	var right []float64
	if t.x != nil {
		t.x.values(b, out, scratch)
	}
	if t.y != nil {
		right, scratch = scratch[:len(b)], scratch[len(b):]
		t.y.values(b, right, scratch)
	}
	switch t.name {
	case "":
		for i := range out {
			out[i] = t.value
		}
	case "b":
		copy(out, b)
	case "neg":
		for i := range out {
			out[i] = -out[i]
		}
	case "abs":
		for i := range out {
			out[i] = math.Abs(out[i])
		}
	case "sqrt":
		for i := range out {
			out[i] = math.Sqrt(out[i])
		}
	case "+":
		for i, y := range right {
			out[i] += y
		}
	case "-":
		for i, y := range right {
			out[i] -= y
		}
	case "*":
		for i, y := range right {
			out[i] = float64(out[i] * y) // no fused multiply-add
		}
	case "/":
		for i, y := range right {
			out[i] /= y
		}
	case "max":
		for i, y := range right {
			out[i] = max(out[i], y)
		}
	case "min":
		for i, y := range right {
			out[i] = min(out[i], y)
		}
	}
}

// fold joins values, halves first, so that the rounding errors of long sums stay
// as small as those of the kernel's many accumulators.
func (r *Reduction) fold(values []float64) float64 {
	if n := len(values); n > 16 {
		return r.join(r.fold(values[:n/2]), r.fold(values[n/2:]))
	}
	a := values[0]
	for _, b := range values[1:] {
		a = r.join(a, b)
	}
	return a
}

func (r *Reduction) join(a, b float64) float64 {
	switch r.Operator {
	case "+":
		return a + b
	case "*":
		return a * b
	case "max":
		return max(a, b)
	}
	return min(a, b)
}

// ptx writes instructions for t to w and gives the register or literal of its value. n
// counts registers.
func (t *term) ptx(w *strings.Builder, n *int, b string) string {
	switch t.name {
	case "":
		return fmt.Sprintf("0d%016X", math.Float64bits(t.value))
	case "b":
		return b
	}
	x := t.x.ptx(w, n, b)
	y := ""
	if t.y != nil {
		y = t.y.ptx(w, n, b)
	}
	r := fmt.Sprintf("%%value%d", *n)
	*n++
	instruction(w, t.name, r, x, y)
	return r
}

// instruction writes r = x name y. Sums and products are not fused, so that
// they are rounded as in Go. max and min of a NaN are NaN, as in Go, which PTX's
// own are not for double.
func instruction(w *strings.Builder, name, r, x, y string) {
	switch name {
	case "+":
		fmt.Fprintf(w, "\tadd.rn.f64 %s, %s, %s;\n", r, x, y)
	case "-":
		fmt.Fprintf(w, "\tsub.rn.f64 %s, %s, %s;\n", r, x, y)
	case "*":
		fmt.Fprintf(w, "\tmul.rn.f64 %s, %s, %s;\n", r, x, y)
	case "/":
		fmt.Fprintf(w, "\tdiv.rn.f64 %s, %s, %s;\n", r, x, y)
	case "neg":
		fmt.Fprintf(w, "\tneg.f64 %s, %s;\n", r, x)
	case "abs":
		fmt.Fprintf(w, "\tabs.f64 %s, %s;\n", r, x)
	case "sqrt":
		fmt.Fprintf(w, "\tsqrt.rn.f64 %s, %s;\n", r, x)
	case "max", "min":
		fmt.Fprintf(w, "\tsetp.nan.f64 %%unordered, %s, %s;\n\tadd.rn.f64 %%nan, %s, %s;\n\t%s.f64 %%best, %s, %s;\n\tselp.f64 %s, %%nan, %%best, %%unordered;\n",
			x, y, x, y, name, x, y, r)
	}
}

// lines gives PTX for r = a operator f(b), or for r = a operator b where b is an
// accumulator itself.
func (r *Reduction) lines(to, a, b string, step bool) string {
	var w strings.Builder
	n := 0
	if step {
		b = r.f.ptx(&w, &n, b)
	}
	instruction(&w, r.Operator, to, a, b)
	return fmt.Sprintf("\t{\n\t.reg .pred %%unordered;\n\t.reg .f64 %%nan, %%best, %%value<%d>;\n%s\t}\n", n+1, w.String())
}
