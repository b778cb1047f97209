// Package bigmath evaluates the functions of package kernels/expr to more than 150 bits, as
// references for tests of floating-point results.
package bigmath

import (
	"math"
	"math/big"
	"sync"
)

// bits is the precision of the arithmetic. Angles are reduced with as many more bits as the largest
// float64 needs.
const (
	bits      = 256
	angleBits = bits + 1100
)

// Function returns a function by its name in an expression, nil if there is none. Its
// arguments are finite and [Defined]; its value is neither 0 nor
// infinite but where that is the exact value.
func Function(name string) func(args ...float64) *big.Float {
	switch f := functions[name].(type) {
	case func(x *big.Float) *big.Float:
		return func(args ...float64) *big.Float { return f(number(args[0])) }
	case func(x, y *big.Float) *big.Float:
		return func(args ...float64) *big.Float { return f(number(args[0]), number(args[1])) }
	}
	return nil
}

// Defined reports whether a function has a finite value at x, its first argument.
func Defined(name string, x float64) bool {
	switch name {
	case "sqrt", "log", "log2", "inverseSqrt", "pow":
		return x > 0
	case "log1p":
		return x > -1
	}
	return true
}

var functions = map[string]any{
	"sqrt": sqrt, "exp": exp, "expm1": expm1, "log": log, "log1p": log1p, "sin": sin, "cos": cos, "tanh": tanh, "erf": erf,
	"log2":     func(x *big.Float) *big.Float { return div(log(x), ln2()) },
	"sigmoid":  func(x *big.Float) *big.Float { return div(number(1), add(number(1), exp(neg(x)))) },
	"softplus": softplus,
	"pow":      func(x, y *big.Float) *big.Float { return exp(mul(y, log(x))) },
	"inverseSqrt": func(x *big.Float) *big.Float {
		return div(number(1), sqrt(x))
	},
}

// Error returns how far a result is from the true value, in units in the last
// place of the true value as a number of that many bits, 24 or 53. Denormal
// numbers have the last place of the least normal one, and where the true value
// is beyond all numbers, an infinite result is right.
func Error(got float64, truth *big.Float, bits int) float64 {
	least, most := -1021, 1024
	if bits == 24 {
		least, most = -125, 128
	}
	if math.IsNaN(got) {
		return math.Inf(1)
	}
	if math.IsInf(got, 0) { // the next number after the greatest
		got = math.Copysign(1, got)
		if truth.MantExp(nil) > most && truth.Signbit() == math.Signbit(got) {
			return 0
		}
		return ulps(new(big.Float).SetMantExp(number(got), most), truth, most-bits)
	}
	return ulps(number(got), truth, max(truth.MantExp(nil), least)-bits)
}

// ulps returns |x - y| / 2ᵉ.
func ulps(x, y *big.Float, e int) float64 {
	d := sub(x, y)
	f, _ := d.SetMantExp(d, -e).Float64()
	return math.Abs(f)
}

func number(x float64) *big.Float          { return new(big.Float).SetPrec(bits).SetFloat64(x) }
func zero() *big.Float                     { return new(big.Float).SetPrec(bits) }
func add(x, y *big.Float) *big.Float       { return zero().Add(x, y) }
func sub(x, y *big.Float) *big.Float       { return zero().Sub(x, y) }
func mul(x, y *big.Float) *big.Float       { return zero().Mul(x, y) }
func div(x, y *big.Float) *big.Float       { return zero().Quo(x, y) }
func neg(x *big.Float) *big.Float          { return zero().Neg(x) }
func scale(x *big.Float, e int) *big.Float { return zero().SetMantExp(x, e) }
func sqrt(x *big.Float) *big.Float         { return zero().Sqrt(x) }

// small reports whether |x| < 2ᵉ.
func small(x *big.Float, e int) bool { return x.Sign() == 0 || x.MantExp(nil) <= e }

// series returns first + first*ratio(1) + first*ratio(1)*ratio(2) + ..., down to terms
// that no longer count.
func series(first *big.Float, ratio func(n float64) *big.Float) *big.Float {
	sum, term := first, first
	for n := 1.0; term.Sign() != 0 && term.MantExp(nil) > sum.MantExp(nil)-bits; n++ {
		term = mul(term, ratio(n))
		sum = add(sum, term)
	}
	return sum
}

var (
	ln2 = sync.OnceValue(func() *big.Float { // 2 atanh(1/3)
		sum, power := zero(), div(number(2), number(3))
		for n := 1.0; n < 2*bits; n += 2 {
			sum = add(sum, div(power, number(n)))
			power = div(power, number(9))
		}
		return sum
	})
	pi = sync.OnceValue(func() *big.Float { // Machin: 16 atan(1/5) - 4 atan(1/239)
		wide := func(x float64) *big.Float { return new(big.Float).SetPrec(angleBits).SetFloat64(x) }
		atan := func(inverse float64) *big.Float {
			sum, power := wide(0), wide(1)
			power.Quo(power, wide(inverse))
			for n := 1.0; power.MantExp(nil) > -angleBits; n += 2 {
				sum.Add(sum, wide(0).Quo(power, wide(n)))
				power.Quo(power, wide(-inverse*inverse))
			}
			return sum
		}
		a, b := atan(5), atan(239)
		return a.Sub(a.Mul(a, wide(16)), b.Mul(b, wide(4)))
	})
)

func exp(x *big.Float) *big.Float {
	k, _ := div(x, ln2()).Float64()
	k = math.Round(k)
	if math.Abs(k) > 1<<20 { // far beyond the range
		return scale(number(1), int(math.Copysign(1<<20, k)))
	}
	const halvings = 16
	r := scale(sub(x, mul(number(k), ln2())), -halvings)
	e := series(number(1), func(n float64) *big.Float { return div(r, number(n)) })
	for range halvings {
		e = mul(e, e)
	}
	return scale(e, int(k))
}

func expm1(x *big.Float) *big.Float {
	if small(x, -20) {
		return series(x, func(n float64) *big.Float { return div(x, number(n+1)) })
	}
	return sub(exp(x), number(1))
}

func log(x *big.Float) *big.Float {
	m := zero()
	e := x.MantExp(m)
	if d := sub(x, number(1)); small(d, -20) {
		return log1p(d)
	}
	start, _ := m.Float64()
	y := number(math.Log(start))
	for range 3 { // each takes three times as many digits
		v := exp(y)
		y = add(y, scale(div(sub(m, v), add(m, v)), 1))
	}
	return add(y, mul(number(float64(e)), ln2()))
}

func log1p(x *big.Float) *big.Float {
	if small(x, -20) { // x - x²/2 + x³/3 - ...
		return series(x, func(n float64) *big.Float { return mul(neg(x), div(number(n), number(n+1))) })
	}
	return log(add(number(1), x))
}

// reduce returns r and k mod 4 with x = k pi/2 + r, |r| <= pi/4.
func reduce(x *big.Float) (r *big.Float, k int64) {
	wide := func() *big.Float { return new(big.Float).SetPrec(angleBits) }
	half := wide().SetMantExp(pi(), -1)
	q := wide().Quo(x, half)
	n, _ := q.Add(q, big.NewFloat(math.Copysign(0.5, float64(x.Sign())))).Int(nil)
	rest := wide().Sub(x, wide().Mul(wide().SetInt(n), half))
	return zero().Set(rest), n.And(n, big.NewInt(3)).Int64()
}

// circle returns the sine of r + k pi/2.
func circle(r *big.Float, k int64) *big.Float {
	square := neg(mul(r, r))
	first, odd := r, 1.0
	if k%2 == 1 {
		first, odd = number(1), 0
	}
	s := series(first, func(n float64) *big.Float { return div(square, number((2*n-1+odd)*(2*n+odd))) })
	if k >= 2 {
		return neg(s)
	}
	return s
}

func sin(x *big.Float) *big.Float {
	r, k := reduce(x)
	return circle(r, k)
}

func cos(x *big.Float) *big.Float {
	r, k := reduce(x)
	return circle(r, (k+1)%4)
}

func tanh(x *big.Float) *big.Float {
	e := expm1(scale(x, 1))
	return div(e, add(e, number(2)))
}

// softplus is max(x, 0) + ln(1 + e^-|x|).
func softplus(x *big.Float) *big.Float {
	tail := log1p(exp(neg(zero().Abs(x))))
	if x.Sign() > 0 {
		return add(x, tail)
	}
	return tail
}

// erf is 2/sqrt(pi) x e^(-x²) (1 + 2x²/3 + (2x²)²/(3*5) + ...).
func erf(x *big.Float) *big.Float {
	if !small(x, 4) { // 1 to more than bits bits
		return number(float64(x.Sign()))
	}
	square := mul(x, x)
	s := series(x, func(n float64) *big.Float { return div(scale(square, 1), number(2*n+1)) })
	return mul(mul(s, exp(neg(square))), div(number(2), sqrt(zero().Set(pi()))))
}
