package codegen

import (
	"math"

	"github.com/stheno-ml/stheno/kernels/expr"
)

// Normal numbers of float32 (Box and Muller, 1958): a block of words makes four, two words two of them, with one radius,
// sqrt(-2 ln u), at an angle and a quarter of a turn less. The first word and the lower 8 bits of the second are u, in (0, 1] and as small
// as 2^-40, so no number is beyond 7.45 deviations; the upper 24 bits of the second are the angle. Logarithm, sine and
// cosine are polynomials that both bodies evaluate in the same operations, each rounded once, so that numbers
// are the same on every device to the bit. CUDA's functions take three times as many instructions, and leave the last bits open.

// The coefficients of the polynomials, by rising powers:
//
//	              approximates          argument           max error
//	normalLog     -2 ln(1 + f) / f      -1/3 <= f <= 1/3   1.7e-7
//	normalSine    sin(πt/4) / t         t² <= 1            3.3e-9
//	normalCosine  (cos(πt/4) - 1) / t²  t² <= 1            3.3e-8
var (
	normalLog    = []float32{-1.9999996423721313, 0.9999987483024597, -0.6667597889900208, 0.5001524090766907, -0.3959007263183594, 0.32840171456336975, -0.34222379326820374, 0.3073139786720276}
	normalSine   = []float32{0.7853981852531433, -0.08074543625116348, 0.00249000103212893, -3.59504520019982e-05}
	normalCosine = []float32{1, -0.3084245026111603, 0.01585039682686329, -0.0003191601426806301}
)

const (
	normalThird  = 0x3f2aaaab              // 2/3 as a float32: significands are taken from there on
	normalLow    = 0xff                    // bits of the second word that are u's
	normalDigits = 40                      // of u
	normalLn2    = -2 * math.Ln2 * 0x1p-23 // of an exponent in its place
)

// normals returns the normal numbers of two words.
func normals(a, b uint32) (z [2]float32) {
	s := fma32(float32(a), normalLow+1, float32(b&normalLow|1))
	i := int32(math.Float32bits(s))
	exponent := (i - normalThird) &^ (1<<23 - 1)
	f := math.Float32frombits(uint32(i-exponent)) - 1
	product := f * horner(normalLog, f)
	square := fma32(float32(exponent-normalDigits<<23), normalLn2, product)
	radius := float32(math.Sqrt(float64(square)))

	turn := b &^ normalLow
	t := float32(int32(turn<<2)) * 0x1p-31 // of an eighth, from the nearest quarter
	tt := t * t
	sine, cosine := t*horner(normalSine, tt), horner(normalCosine, tt)
	quarter := turn + 1<<29
	if quarter&(1<<30) != 0 {
		sine, cosine = cosine, sine
	}
	z[0], z[1] = radius*withSign(cosine, quarter+1<<30), radius*withSign(sine, quarter)
	return z
}

// withSign returns x, or -x if the highest bit of a word is set.
func withSign(x float32, word uint32) float32 {
	return math.Float32frombits(math.Float32bits(x) ^ word&(1<<31))
}

// horner evaluates a polynomial.
func horner(p []float32, x float32) float32 {
	sum := p[len(p)-1]
	for i := len(p) - 2; i >= 0; i-- {
		sum = fma32(sum, x, p[i])
	}
	return sum
}

// fma32 returns x*y + z, rounded once.
func fma32(x, y, z float32) float32 {
	product, c := float64(x)*float64(y), float64(z) // exact
	sum := product + c
	back := sum - product
	if rest := (product - (sum - back)) + (c - back); rest != 0 { // rounded to odd, the sum is rounded to float32 as if it was exact
		if bits := math.Float64bits(sum); bits&1 == 0 {
			if (rest > 0) == (sum > 0) {
				bits++
			} else {
				bits--
			}
			sum = math.Float64frombits(bits)
		}
	}
	return float32(sum)
}

// normals returns the normal numbers of two words.
func (w *codeWriter) normals(a, b string) (z [2]string) {
	word := func(format string, args ...any) string { return w.result(expr.B32, format, args...) }
	float := func(format string, args ...any) string { return w.result(expr.Float32.Kind(), format, args...) }
	low := word("and.b32 %s, %s, %d", b, normalLow)
	low = word("or.b32 %s, %s, 1", low)
	s := float("fma.rn.f32 %s, %s, %s, %s", float("cvt.rn.f32.u32 %s, %s", a), literal(normalLow+1), float("cvt.rn.f32.u32 %s, %s", low))
	i := word("mov.b32 %s, %s", s)
	exponent := word("sub.s32 %s, %s, %d", i, normalThird)
	exponent = word("and.b32 %s, %s, %d", exponent, -1<<23)
	f := float("mov.b32 %s, %s", word("sub.s32 %s, %s, %s", i, exponent))
	f = float("add.rn.f32 %s, %s, %s", f, literal(-1))
	product := float("mul.rn.f32 %s, %s, %s", f, w.horner(normalLog, f))
	exponent = word("sub.s32 %s, %s, %d", exponent, normalDigits<<23)
	square := float("fma.rn.f32 %s, %s, %s, %s", float("cvt.rn.f32.s32 %s, %s", exponent), literal(normalLn2), product)
	radius := float("sqrt.rn.f32 %s, %s", square)

	turn := word("and.b32 %s, %s, %d", b, ^normalLow)
	t := float("cvt.rn.f32.s32 %s, %s", word("shl.b32 %s, %s, 2", turn))
	t = float("mul.rn.f32 %s, %s, %s", t, literal(0x1p-31))
	tt := float("mul.rn.f32 %s, %s, %s", t, t)
	sine, cosine := float("mul.rn.f32 %s, %s, %s", t, w.horner(normalSine, tt)), w.horner(normalCosine, tt)
	quarter := word("add.u32 %s, %s, %d", turn, 1<<29)
	for k, sign := range []string{word("add.u32 %s, %s, %d", quarter, 1<<30), quarter} {
		x := w.one(quarter, 1<<30, word("mov.b32 %s, %s", []string{cosine, sine}[k]), word("mov.b32 %s, %s", []string{sine, cosine}[k]))
		x = word("xor.b32 %s, %s, %s", x, word("and.b32 %s, %s, %d", sign, math.MinInt32))
		z[k] = float("mul.rn.f32 %s, %s, %s", radius, float("mov.b32 %s, %s", x))
	}
	return z
}

func literal(x float32) string { return expr.Literal(expr.Float32, float64(x)) }

// horner evaluates a polynomial.
func (w *codeWriter) horner(p []float32, x string) string {
	sum := literal(p[len(p)-1])
	for i := len(p) - 2; i >= 0; i-- {
		sum = w.result(expr.Float32.Kind(), "fma.rn.f32 %s, %s, %s, %s", sum, x, literal(p[i]))
	}
	return sum
}
