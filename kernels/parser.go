package kernels

import (
	"fmt"
	"strconv"
	"strings"
)

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
