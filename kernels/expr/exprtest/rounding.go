package exprtest

import (
	"math"
	"math/rand/v2"
)

// Round rounds x in float64 to a number of bits of a significand, to nearest and ties to even, with the exponents of float32.
func Round(x float64, bits int) float64 {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return x
	}
	_, e := math.Frexp(x)
	unit := math.Ldexp(1, max(e, -125)-bits)
	if x = math.RoundToEven(x/unit) * unit; math.Abs(x) >= 0x1p128 {
		return math.Inf(int(math.Copysign(1, x)))
	}
	return x
}

// RoundF16 rounds x in float64 to a number of F16, to nearest and ties to even.
func RoundF16(x float64) float64 {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return x
	}
	_, e := math.Frexp(x)
	unit := math.Ldexp(1, max(e, -13)-11)
	if x = math.RoundToEven(x/unit) * unit; math.Abs(x) > 65504 {
		return math.Inf(int(math.Copysign(1, x)))
	}
	return x
}

// HardFloat32 returns the i-th number of a sequence that is hard to round or to split. The sequence has special numbers first, then
// random numbers. Many random numbers are subnormal, large, infinite, NaN, or halfway between two numbers of TF32 or BF16.
func HardFloat32(r *rand.Rand, i int) float32 {
	special := []uint32{0, 1 << 31, 1, 0x807fffff, 0x00800000, 0x7f7fffff, 0xff7fffff, 0x7f7f8000, 0x7f7f7fff, 0x3f808000, 0x3f818000, 0x3f801000, 0x3f803000,
		0x7f800000, 0xff800000, 0x7f800001, 0xffffffff, 0x7fc00000, 0x7f7ff000, 0x7f7fefff, 0x3fffffff, 0x00ff8000, 0x09000001}
	bits := r.Uint32()
	switch {
	case i < len(special):
		bits = special[i]
	case i%4 == 0:
		bits &= 0x80ffffff // denormal, or the smallest normal numbers
	case i%4 == 1:
		bits |= 0x7f000000 // the largest, infinities and NaN
	case i%4 == 2:
		bits &^= 0x0fff // ties of TF32, and of BF16
	}
	return math.Float32frombits(bits)
}
