package expr

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// longest is the most characters of an expression: it is read by recursion, which needs an end.
const longest = 4096

// Parse reads an expression of operands that have those names and the element type d, Float32 or Float64, which is the output's too:
//
//	Parse("tanh(a*b) + c", Float32, "a", "b", "c")
//
// An expression holds names, numbers, + - * /, parentheses, comparisons, which count as 1 or 0 where a number is wanted, && || ! of comparisons, and
// the functions that constants of [Op] name in their lower case, such as exp(x), pow(x, y) and select(condition, x, y).
//
// An error, also that the text has more than 4096 characters, names the position, in characters from 1.
func Parse(text string, d Dtype, names ...string) (Func, error) {
	return parseAs(text, d, false, names)
}

// ParseRows reads an expression in the language of [Parse] that may also name the reductions of a row, rowsum(x), rowmax(x) and rowmin(x):
//
//	ParseRows("exp(x - rowmax(x)) / rowsum(exp(x - rowmax(x)))", Float32, "x")
//
// and rowmean(x, n), the sum divided by the number n. Of Float32, it is rounded once, so the mean of equal elements is that element: rowsum(x) / n
// is rounded twice, and x - rowsum(x) / n of equal elements is not 0.
func ParseRows(text string, d Dtype, names ...string) (Func, error) {
	return parseAs(text, d, true, names)
}

// ParseTypes is [Parse] of an expression of operands of those element types, one for each name. If they are not all Float32 or all
// Float64, types follow the rules of PyTorch:
//
//   - Operands of + - *, comparisons, min, max and select become the last of Bool, Uint8, Int32, Int, Int64, Float32, Float64 among their
//     types. Arithmetic wraps. Bool becomes Int64 where a number is wanted.
//   - / and all other functions convert integers to the greatest floating-point type among the operands, Float32 if there is none.
//   - A number takes the type of what it is combined with, but one with a fraction makes integers floating-point numbers, and one beyond
//     the type makes them Int64.
//   - Comparisons and && || ! are Bool, also as the output.
func ParseTypes(text string, types []Dtype, names ...string) (Func, error) {
	if len(types) != len(names) {
		return Func{}, fmt.Errorf("expr: got %d types of operands %v", len(types), names)
	}
	float := Float32
	if slices.Contains(types, Float64) {
		float = Float64
	}
	return made(read(text, types, float, false, names...))
}

func parseAs(text string, d Dtype, rows bool, names []string) (Func, error) {
	if !d.IsFloat() {
		return Func{}, fmt.Errorf("expr: got an expression of %v, want f32 or f64", d)
	}
	return made(read(text, slices.Repeat([]Dtype{d}, len(names)), d, rows, names...))
}

// made returns the function that a parser has read.
func made(p *parser, v Value) (Func, error) {
	if p.err != nil {
		return Func{}, p.err
	}
	return p.Func(v)
}

// read returns the parser after it has read the text, with its error if there is
// one, and the value of the expression. With rows it may name reductions.
func read(text string, types []Dtype, float Dtype, rows bool, names ...string) (*parser, Value) {
	p := &parser{text: text, names: names, float: float, rows: rows, Builder: NewBuilder(types...)}
	p.mixed = slices.ContainsFunc(types, func(d Dtype) bool { return d != float })
	if len(text) > longest {
		p.err = fmt.Errorf("at %d: got %d characters, want at most %d", longest+1, len(text), longest)
		return p, -1
	}
	p.next()
	v := p.alternative()
	if !p.mixed {
		v = p.Convert(v, float)
	}
	if p.err == nil && p.token != "" {
		p.unexpected("the end of the expression")
	}
	return p, v
}

// A parser reads an expression by recursive descent: alternative, conjunction, comparison, sum, product,
// unary, primary. Its errors are those of its builder.
type parser struct {
	*Builder
	text  string
	names []string
	float Dtype  // of numbers and of functions
	mixed bool   // operands have other types too
	rows  bool   // whether the text may name reductions of rows
	pos   int    // where the text goes on after the token, from 0
	token string // "" at the end
	at    int    // of the token, from 1
	first []int  // where the first name stands, from 1
}

// unexpected records the error that the token is not the expected one.
func (p *parser) unexpected(want string) {
	got := p.token
	if got == "" {
		got = "the end"
	}
	if p.err == nil {
		p.err = fmt.Errorf("at %d: got %s, want %s", p.at, got, want)
	}
	p.token, p.pos = "", len(p.text)
}

// next reads a token: a name, a number, an operator or another character.
func (p *parser) next() {
	for p.pos < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.pos]) >= 0 {
		p.pos++
	}
	start := p.pos
	for p.pos < len(p.text) && isWord(p.text[p.pos]) {
		p.pos++
		// the sign of an exponent, as in 1e-3
		if isNumber(p.text[start]) && (p.text[p.pos-1]|0x20) == 'e' && p.pos < len(p.text) && (p.text[p.pos] == '-' || p.text[p.pos] == '+') {
			p.pos++
		}
	}
	if p.pos == start && p.pos < len(p.text) {
		p.pos++
		if p.pos < len(p.text) && operators[p.text[start:p.pos+1]] {
			p.pos++
		}
	}
	p.token, p.at = p.text[start:p.pos], start+1
}

func isNumber(c byte) bool { return c >= '0' && c <= '9' || c == '.' }

func isWord(c byte) bool {
	return isNumber(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c >= 0x80
}

// operators are those of two characters.
var operators = map[string]bool{"<=": true, ">=": true, "==": true, "!=": true, "&&": true, "||": true}

// promotion are the element types in the order in which operands take one another's.
var promotion = []Dtype{Bool, Uint8, Int32, Int, Int64, Float32, Float64}

// Promote returns the type that operands of those types are combined in, at least one and none of 16 bits: the last of Bool, Uint8,
// Int32, Int, Int64, Float32, Float64 among them.
func Promote(types ...Dtype) Dtype {
	return slices.MaxFunc(types, func(a, b Dtype) int { return slices.Index(promotion, a) - slices.Index(promotion, b) })
}

// arguments converts the arguments of an operation to one type that it takes.
func (p *parser) arguments(op Op, args ...Value) []Value {
	to := p.float
	if p.mixed {
		to = p.common(op, args)
	}
	for i, v := range args {
		args[i] = p.Convert(v, to)
	}
	return args
}

// common returns the type that arguments of an operation are converted to: see [ParseTypes].
func (p *parser) common(op Op, args []Value) Dtype {
	to := Bool
	for _, constants := range []bool{false, true} {
		for _, v := range args {
			d, ok := p.dtype(v)
			if !ok || constants != (p.nodes[v].op == constant) {
				continue
			}
			if n := p.nodes[v]; constants && (d.IsFloat() && to.IsFloat() || d.IsInteger() && to.IsInteger() && to.wrap(n.integer()) == n.integer()) {
				continue
			}
			to = Promote(to, d)
		}
	}
	if to == Bool && !op.takes(Bool) {
		to = Int64
	}
	if !op.takes(to) {
		to = p.float
	}
	return to
}

// condition returns a value as Bool.
func (p *parser) condition(v Value) Value { return p.Convert(v, Bool) }

// operators of one level, by their text.
var (
	alternatives = map[string]Op{"||": Or}
	conjunctions = map[string]Op{"&&": And}
	comparisons  = map[string]Op{"<": Lt, "<=": Le, ">": Gt, ">=": Ge, "==": Eq, "!=": Ne}
	sums         = map[string]Op{"+": Add, "-": Sub}
	products     = map[string]Op{"*": Mul, "/": Div}
)

// level reads operators of one level, which group from the left.
func (p *parser) level(operators map[string]Op, argument func() Value) Value {
	v := argument()
	for op, ok := operators[p.token]; ok; op, ok = operators[p.token] {
		p.next()
		w := argument()
		if op == And || op == Or {
			v = p.Apply(op, p.condition(v), p.condition(w))
		} else {
			v = p.Apply(op, p.arguments(op, v, w)...)
		}
	}
	return v
}

func (p *parser) alternative() Value { return p.level(alternatives, p.conjunction) }
func (p *parser) conjunction() Value { return p.level(conjunctions, p.comparison) }
func (p *parser) comparison() Value  { return p.level(comparisons, p.sum) }
func (p *parser) sum() Value         { return p.level(sums, p.product) }
func (p *parser) product() Value     { return p.level(products, p.unary) }

func (p *parser) unary() Value {
	if p.token == "!" {
		p.next()
		return p.Apply(Not, p.condition(p.unary()))
	}
	negative := false
	for p.token == "-" || p.token == "+" {
		negative = negative != (p.token == "-")
		p.next()
	}
	v := p.primary()
	if negative {
		return p.Apply(Neg, p.arguments(Neg, v)...)
	}
	return v
}

// functions are the operations that are called by name.
var functions = func() map[string]Op {
	m := map[string]Op{}
	for op := Neg; op < opCount; op++ {
		if isWord(op.String()[0]) {
			m[op.String()] = op
		}
	}
	return m
}()

func (p *parser) primary() Value {
	if i := slices.Index(p.names, p.token); i >= 0 {
		if i == 0 {
			p.first = append(p.first, p.at)
		}
		p.next()
		return p.Operand(i)
	}
	if op, ok := functions[p.token]; ok && (p.rows || !op.reduces()) {
		p.next()
		return p.call(op)
	}
	if p.token == "rowmean" && p.rows {
		p.next()
		return p.mean()
	}
	if p.token == "(" {
		p.next()
		v := p.alternative()
		p.expect(")")
		return v
	}
	if whole, err := strconv.ParseInt(p.token, 10, 64); err == nil && p.mixed {
		p.next()
		return p.Integer(Int64, whole)
	}
	v, err := strconv.ParseFloat(p.token, 64)
	if err != nil || !isNumber(p.token[0]) {
		p.unexpected("a number, a name of " + strings.Join(p.names, ", ") + ", a function or (")
		return -1
	}
	p.next()
	return p.Constant(p.float, v)
}

// call reads the arguments of a function.
func (p *parser) call(op Op) Value {
	args := make([]Value, op.Arity())
	p.expect("(")
	for i := range args {
		if i > 0 {
			p.expect(",")
		}
		args[i] = p.alternative()
	}
	p.expect(")")
	if op == Select {
		args[0] = p.condition(args[0])
		p.arguments(op, args[1:]...)
	} else {
		p.arguments(op, args...)
	}
	return p.Apply(op, args...)
}

// mean reads the arguments of rowmean. In double precision the product by 1/n is as precise as the quotient, and much faster.
func (p *parser) mean() Value {
	p.expect("(")
	sum := p.Apply(RowSum, p.Convert(p.alternative(), Float64))
	p.expect(",")
	n, err := strconv.ParseFloat(p.token, 64)
	if err != nil || !(n > 0) {
		p.unexpected("a number above 0")
		return -1
	}
	p.next()
	p.expect(")")
	if p.float == Float64 {
		return p.Apply(Div, sum, p.Constant(Float64, n))
	}
	return p.Convert(p.Apply(Mul, sum, p.Constant(Float64, 1/n)), p.float)
}

func (p *parser) expect(token string) {
	if p.token != token {
		p.unexpected(token)
		return
	}
	p.next()
}
