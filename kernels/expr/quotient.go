package expr

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// divisor is a float32 that much is divided by.
type divisor struct {
	value   string
	inverse string // rounded to nearest
	exact   bool   // so is the product with the inverse: the divisor is a power of two
	mask    string // inRange, or 0 if quotients are not to be computed with the inverse
}

// divided describes a quotient by an inverse.
type divided struct {
	far  string // predicate that it was divided instead
	mask string // of the divisor
}

// Of a number x, 2⁻⁶³ <= |x| < 2⁶⁵, the exponent and 64 have the highest bit of an exponent.
const (
	shifted = "0x20000000"
	inRange = "0x40000000"
)

// quotients adds x / y, in float32 and rounded to nearest, lane by lane, for divisors that more is divided by; registers that are there already stay,
// and those of elements not given are "".
//
// With r = 1/y rounded to nearest, q = x r is less than 2 ulp from the quotient, the rest x - q y is exact, and q + r (x - q y) is the quotient
// rounded to nearest (Markstein, 1990): off by less than 2⁻²² ulp before it is rounded, and the x whose quotients by a significand are so near to the
// middle between two floats were all tried, for each significand. That holds where nothing leaves the normal numbers: for 2⁻³⁰ <= |y| <= 2³⁰ and x in
// range, or itself such a quotient. If a lane has others, all lanes are divided.
func (a *Assembler) quotients(to, x, y []string, exists string) {
	var lanes []int
	var by []divisor
	for lane := range to {
		d := a.divisor(y[lane])
		if d.inverse == "" || x[lane] == "" {
			continue
		}
		in := instruction{op: Div, from: Float32, to: Float32, x: x[lane], y: y[lane]}
		r, known := a.look(in)
		if !known {
			r = a.Register(F32)
			a.known[in] = r
			a.Line("mul.rn.f32 %s, %s, %s", r, x[lane], d.inverse)
		}
		if to[lane] = r; !known && !d.exact {
			lanes, by = append(lanes, lane), append(by, d)
		}
	}
	if len(lanes) == 0 {
		return
	}
	far := a.chained(x, lanes, by)
	good, look := "", far == ""
	if look {
		good, far = a.Register(B32), a.Register(Pred)
		a.Line("mov.b32 %s, %s", good, by[0].mask)
	}
	for k, lane := range lanes {
		rest, bits := a.Register(F32), a.Register(B32)
		a.Line("neg.f32 %s, %s", rest, to[lane])
		a.Line("fma.rn.f32 %s, %s, %s, %s", rest, rest, by[k].value, x[lane])
		a.Line("fma.rn.f32 %s, %s, %s, %s", to[lane], rest, by[k].inverse, to[lane])
		if !look {
			continue
		}
		a.divided[to[lane]] = divided{far, by[k].mask}
		a.Line("mov.b32 %s, %s", bits, x[lane])
		a.Line("add.u32 %s, %s, %s", bits, bits, shifted)
		a.Line("and.b32 %s, %s, %s", good, good, bits)
		if by[k] != by[0] {
			a.Line("and.b32 %s, %s, %s", good, good, by[k].mask)
		}
	}
	if look && exists == "" {
		a.Line("setp.eq.u32 %s, %s, 0", far, good)
	} else if look {
		a.Line("setp.eq.and.u32 %s, %s, 0, %s", far, good, exists)
	}
	a.labels++
	near := fmt.Sprintf("near%d", a.labels)
	a.Line("@!%s bra %s", far, near)
	for k, lane := range lanes {
		a.Line("div.rn.f32 %s, %s, %s", to[lane], x[lane], by[k].value)
	}
	a.Label(near)
}

// chained returns the predicate that numbers x, quotients themselves by the same divisors, were divided, "" if they are not of one.
func (a *Assembler) chained(x []string, lanes []int, by []divisor) (far string) {
	for k, lane := range lanes {
		d := a.divided[x[lane]]
		if d.mask != by[k].mask || k > 0 && d.far != far {
			return ""
		}
		far = d.far
	}
	return far
}

// divisor prepares a number that more is divided by; of one not given, "", there is nothing to prepare.
func (a *Assembler) divisor(y string) divisor {
	const least, most = 0x1p-30, 0x1p30
	if hex, literal := strings.CutPrefix(y, "0f"); literal {
		bits, _ := strconv.ParseUint(hex, 16, 32) // as literal wrote it
		v := math.Float32frombits(uint32(bits))
		d := divisor{value: y, inverse: Literal(Float32, float64(1/v)), mask: "0"}
		if size := math.Abs(float64(v)); size >= least && size <= most {
			fraction, _ := math.Frexp(size)
			d.exact, d.mask = fraction == 0.5, inRange
		}
		return d
	}
	if y == "" {
		return divisor{}
	}
	inverse, mask := instruction{op: Div, to: Float32, y: y}, instruction{op: Div, to: Int32, y: y}
	if r, known := a.known[inverse]; known {
		return divisor{value: y, inverse: r, mask: a.known[mask]}
	}
	d := divisor{value: y, inverse: a.Register(F32), mask: a.Register(B32)}
	a.known[inverse], a.known[mask] = d.inverse, d.mask
	size, low, both := a.Register(F32), a.Register(Pred), a.Register(Pred)
	a.Line("rcp.rn.f32 %s, %s", d.inverse, y)
	a.Line("abs.f32 %s, %s", size, y)
	a.Line("setp.ge.f32 %s, %s, %s", low, size, Literal(Float32, least))
	a.Line("setp.le.and.f32 %s, %s, %s, %s", both, size, Literal(Float32, most), low)
	a.Line("selp.b32 %s, %s, 0, %s", d.mask, inRange, both)
	return d
}
