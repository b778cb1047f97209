package expr

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// longest is the most characters of an expression: it is read by recursion, which
// needs an end.
const longest = 4096

// Parse reads an expression of operands that have those names and the element
// type d, Float32 or Float64, which is the output's too:
//
//	Parse("tanh(a*b) + c", Float32, "a", "b", "c")
//
// An expression holds names, numbers, + - * /, parentheses, comparisons, which count
// as 1 or 0 where a number is wanted, and the functions that constants of [Op] name in their lower case, such as exp(x), pow(x, y)
// and select(condition, x, y).
//
// An error, also that the text has more than 4096 characters, names the position,
// in characters from 1.
func Parse(text string, d Dtype, names ...string) (Func, error) {
	return parseAs(text, d, false, names)
}

// ParseRows reads an expression in the language of [Parse] that may also name the reductions of a row, rowsum(x), rowmax(x)
// and rowmin(x):
//
//	ParseRows("exp(x - rowmax(x)) / rowsum(exp(x - rowmax(x)))", Float32, "x")
func ParseRows(text string, d Dtype, names ...string) (Func, error) {
	return parseAs(text, d, true, names)
}

func parseAs(text string, d Dtype, rows bool, names []string) (Func, error) {
	p, v := read(text, d, rows, names...)
	if p.err != nil {
		return Func{}, p.err
	}
	return p.Func(v)
}

// read returns the parser after it has read the text, with its error if there is
// one, and the value of the expression. With rows it may name reductions.
func read(text string, d Dtype, rows bool, names ...string) (*parser, Value) {
	p := &parser{text: text, names: names, float: d, rows: rows, Builder: NewBuilder(slices.Repeat([]Dtype{d}, len(names))...)}
	if len(text) > longest {
		p.err = fmt.Errorf("at %d: got %d characters, want at most %d", longest+1, len(text), longest)
		return p, -1
	}
	p.next()
	v := p.number(p.comparison())
	if p.err == nil && p.token != "" {
		p.unexpected("the end of the expression")
	}
	return p, v
}

// A parser reads an expression by recursive descent: comparison, sum, product,
// unary, primary. Its errors are those of its builder.
type parser struct {
	*Builder
	text  string
	names []string
	float Dtype
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
		if strings.IndexByte("<>=!", p.text[start]) >= 0 && p.pos < len(p.text) && p.text[p.pos] == '=' {
			p.pos++
		}
	}
	p.token, p.at = p.text[start:p.pos], start+1
}

func isNumber(c byte) bool { return c >= '0' && c <= '9' || c == '.' }

func isWord(c byte) bool {
	return isNumber(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c >= 0x80
}

// number returns a value as a number: 1 or 0 for a comparison.
func (p *parser) number(v Value) Value { return p.Convert(v, p.float) }

// operators of one level, by their text.
var (
	comparisons = map[string]Op{"<": Lt, "<=": Le, ">": Gt, ">=": Ge, "==": Eq, "!=": Ne}
	sums        = map[string]Op{"+": Add, "-": Sub}
	products    = map[string]Op{"*": Mul, "/": Div}
)

// level reads operators of one level, which group from the left.
func (p *parser) level(operators map[string]Op, argument func() Value) Value {
	v := argument()
	for op, ok := operators[p.token]; ok; op, ok = operators[p.token] {
		p.next()
		w := argument()
		v = p.Apply(op, p.number(v), p.number(w))
	}
	return v
}

func (p *parser) comparison() Value { return p.level(comparisons, p.sum) }
func (p *parser) sum() Value        { return p.level(sums, p.product) }
func (p *parser) product() Value    { return p.level(products, p.unary) }

func (p *parser) unary() Value {
	negative := false
	for p.token == "-" || p.token == "+" {
		negative = negative != (p.token == "-")
		p.next()
	}
	v := p.primary()
	if negative {
		return p.Apply(Neg, p.number(v))
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
	if p.token == "(" {
		p.next()
		v := p.comparison()
		p.expect(")")
		return v
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
		args[i] = p.comparison()
		if op != Select || i > 0 {
			args[i] = p.number(args[i])
		} else if d, ok := p.dtype(args[i]); ok && d != Bool {
			args[i] = p.Apply(Ne, args[i], p.Constant(d, 0))
		}
	}
	p.expect(")")
	return p.Apply(op, args...)
}

func (p *parser) expect(token string) {
	if p.token != token {
		p.unexpected(token)
		return
	}
	p.next()
}
