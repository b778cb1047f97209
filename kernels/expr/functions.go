package expr

import (
	"math"
	"math/bits"
)

// Functions of the Go bodies that package math lacks, or computes with errors above 2 units in the last place.

// sigmoid is 1 / (1 + e⁻ˣ), with an exponential that does not overflow.
func sigmoid(x float64) float64 {
	e := math.Exp(-math.Abs(x))
	if x < 0 {
		return e / (1 + e)
	}
	return 1 / (1 + e)
}

// exp is eˣ. math.Exp of Go 1.26 returns +Inf from 709.44 on where there is an assembly
// version of it, on amd64: there it is 2⁶⁴ times the exponential of the rest.
func exp(x float64) float64 {
	const (
		hi, lo = 0x1.62e42fefap+5, 0x1.cf79abc9e3b3ap-34 // 64 ln 2
		first  = 709
		last   = 0x1.62e42fefa39efp+9 // of a finite result
	)
	if !(x > first && x <= last) {
		return math.Exp(x)
	}
	e := math.Exp(x - hi)
	return (e - float64(e*lo)) * 0x1p64
}

// softplus is ln(1 + eˣ), with an exponential that does not overflow.
func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// log2 is the binary logarithm, exact for powers of two. math.Log2 loses all digits just above 1.
func log2(x float64) float64 {
	if !(x > 0) || math.IsInf(x, 1) {
		return math.Log2(x)
	}
	const inverse, rest = 0x1.71547652b82fep+0, 0x1.777d0ffda0d24p-56 // 1 / ln 2
	exponent, hi, lo := logParts(x)
	l := hi * inverse
	l2 := math.FMA(hi, inverse, -l) + (float64(lo*inverse) + float64(hi*rest))
	sum := exponent + l
	return sum + ((exponent - sum) + l + l2)
}

// pow is x to the power of y, within 0.6 units in the last place, as in FreeBSD's e_pow.c: e^(y ln x) with a logarithm of twice the precision.
// math.Pow is off by hundreds of units for large y.
func pow(x, y float64) float64 {
	switch {
	case x == 1 || y == 0 || x == 0 || math.IsInf(x, 0) || math.IsInf(y, 0) || x != x || y != y:
		return math.Pow(x, y)
	case x < 0 && y != math.Trunc(y):
		return math.NaN()
	case x < 0 && math.Mod(y, 2) != 0:
		return -pow(-x, y)
	}
	const ln2, rest = 0x1.62e42feep-1, 0x1.a39ef35793c76p-33 // ln 2, the first with 21 zeros at its end
	exponent, m, m2 := logParts(math.Abs(x))
	hi := exponent*ln2 + m // exponent*ln2 is exact
	lo := (exponent*ln2 - hi) + m + (m2 + float64(exponent*rest))
	p := y * hi
	switch {
	case p > 710:
		return math.Inf(1)
	case p < -746:
		return 0
	}
	p2 := math.FMA(y, hi, -p) + y*lo
	// e^(p + p2) = 2^k e^r, |r| <= ln 2 / 2
	k := math.RoundToEven(p * (1 / math.Ln2))
	r := p - k*ln2 // exact
	p2 -= k * rest
	s := r + p2
	p2 = (r - s) + p2
	t := 0.0
	for _, c := range inverseFactorials { // Taylor's series from s²/2 on
		t = float64(t*s) + c
	}
	t *= s * s
	one := 1 + s
	return math.Ldexp(one+(((1-one)+s)+(t+p2*one)), int(k))
}

// logParts returns the parts of ln x = exponent ln 2 + hi + lo for a finite x > 0, with |hi| <= ln 2 / 2 and an error below 2⁻⁶⁵ |hi|: ln m = 2 (s +
// s³/3 + s⁵/5 + ...), s = (m - 1) / (m + 1).
func logParts(x float64) (exponent, hi, lo float64) {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = 2*m, e-1
	}
	n, d := m-1, m+1
	s := n / d
	s2 := (math.FMA(-s, d, n) - s*(m-(d-1))) / d
	t := s * s
	t2 := math.FMA(s, s, -t) + 2*s*s2
	c := s * t
	c2 := math.FMA(s, t, -c) + (float64(s*t2) + float64(s2*t))
	third := c / 3
	third2 := (math.FMA(-third, 3, c) + c2) / 3
	tail := 0.0
	for _, c := range inverseOdds {
		tail = float64(tail*t) + c
	}
	hi = s + third
	lo = (s - hi) + third + (third2 + s2 + c*t*tail)
	return float64(e), 2 * hi, 2 * lo
}

// Coefficients of power series, the highest power first: 1/16! to 1/2!, 1/29 to 1/5.
var (
	inverseFactorials = [...]float64{1. / 20922789888000, 1. / 1307674368000, 1. / 87178291200, 1. / 6227020800, 1. / 479001600,
		1. / 39916800, 1. / 3628800, 1. / 362880, 1. / 40320, 1. / 5040, 1. / 720, 1. / 120, 1. / 24, 1. / 6, 1. / 2}
	inverseOdds = [...]float64{1. / 29, 1. / 27, 1. / 25, 1. / 23, 1. / 21, 1. / 19, 1. / 17, 1. / 15, 1. / 13, 1. / 11, 1. / 9, 1. / 7, 1. / 5}
)

// twoOverPi holds a word of zeros and the bits of 2/pi behind the point.
var twoOverPi = [...]uint64{
	0x0000000000000000, 0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561, 0xb7246e3a424dd2e0,
	0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b,
	0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d, 0x7527bac7ebe5f17b, 0x3d0739f78a5292ea,
	0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab, 0xf0cfbc209af4361d,
}

// reduceAngle returns k mod 4 and r + r2 with x = k pi/2 + r + r2, |r| <= pi/4, for a finite x beyond that (Payne and Hanek, 1983): of the product
// with 2/pi, bits that are multiples of 4 and those beyond the result's precision are left out. math.Sin loses digits near multiples of pi.
func reduceAngle(x float64) (k int, r, r2 float64) {
	b := math.Float64bits(x)
	m := b&(1<<52-1) | 1<<52
	at := int(b>>52&0x7ff) - 1075 + 62 // the first bit that matters
	var z [3]uint64
	for i := range z {
		z[i] = twoOverPi[at/64+i]<<(at%64) | twoOverPi[at/64+i+1]>>(64-at%64)
	}
	h1, mid := bits.Mul64(z[1], m)
	h2, lo := bits.Mul64(z[2], m)
	mid, carry := bits.Add64(mid, h2, 0)
	hi := z[0]*m + h1 + carry
	k = int(hi >> 62)
	hi, mid, lo = hi<<2|mid>>62, mid<<2|lo>>62, lo<<2
	sign := 1.0
	if hi>>63 == 1 { // more than a half: the next k, minus the complement
		k, sign = k+1, -1
		hi, mid = ^hi, ^mid
	}
	zeros := bits.LeadingZeros64(hi)
	hi, mid = hi<<zeros|mid>>(64-zeros), mid<<zeros|lo>>(64-zeros)
	f := math.Ldexp(float64(hi>>11), -53-zeros)
	f2 := math.Ldexp(float64(hi<<53|mid>>11), -117-zeros)
	const half, rest = math.Pi / 2, 0x1.1a62633145c07p-54
	r = f * half
	r2 = math.FMA(f, half, -r) + (f*rest + f2*half)
	if math.Signbit(x) {
		k, sign = -k, -sign
	}
	return k & 3, sign * r, sign * r2
}

func sin(x float64) float64 { return sineFrom(x, 0) }
func cos(x float64) float64 { return sineFrom(x, 1) }

// sineFrom returns the sine of x + quarters pi/2.
func sineFrom(x float64, quarters int) float64 {
	k, r, r2 := 0, x, 0.0
	if math.Abs(x) > math.Pi/4 {
		if math.IsInf(x, 0) {
			return math.NaN()
		}
		k, r, r2 = reduceAngle(x)
	}
	k += quarters
	var y float64
	if k&1 == 0 {
		y = math.Sin(r)
		if r2 != 0 { // -0 stays
			y += r2 * math.Cos(r)
		}
	} else {
		y = math.Cos(r) - r2*math.Sin(r)
	}
	if k&2 != 0 {
		return -y
	}
	return y
}
