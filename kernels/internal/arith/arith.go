// Package arith has the integer arithmetic of plans and the sum of Go bodies.
package arith

import (
	"math/bits"

	"github.com/stheno-ml/stheno/kernels"
)

// Pow2 returns the least power of two that is at least n.
func Pow2(n int64) int64 {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len64(uint64(n-1))
}

// RoundUp returns the least multiple of n that is at least a.
func RoundUp(a, n int64) int64 { return kernels.CeilDiv(a, n) * n }

// Divisor returns the constants of a division by d >= 2 with a product: n / d is the upper half of n * magic, shifted right, for n < 2³¹, or n < 2⁶³
// of wide indices (Granlund and Montgomery, 1994).
func Divisor(d int64, wide bool) (magic uint64, shift int) {
	l := bits.Len64(uint64(d - 1)) // d <= 2ˡ
	if wide {
		q, rest := bits.Div64(1<<(l-1), 0, uint64(d)) // 2⁶³⁺ˡ / d
		if rest > 0 {
			q++
		}
		return q, l - 1
	}
	return (1<<(31+l) + uint64(d) - 1) / uint64(d), l - 1
}

// Divide holds the arguments of a division by D: windows.cuh's Divide.
type Divide struct {
	D            int64 `arg:"int32"`
	Magic, Shift int32
}

// DivideBy returns the arguments of a division by d.
func DivideBy(d int64) Divide {
	if d == 1 {
		return Divide{D: 1}
	}
	magic, shift := Divisor(d, false)
	return Divide{d, int32(uint32(magic)), int32(shift)}
}

// Sum sums in double with eight accumulators, which hide the latency of the additions.
func Sum[T kernels.Float](x []T) float64 {
	var a, b, c, d, e, f, g, h float64
	for ; len(x) >= 8; x = x[8:] {
		a += float64(x[0])
		b += float64(x[1])
		c += float64(x[2])
		d += float64(x[3])
		e += float64(x[4])
		f += float64(x[5])
		g += float64(x[6])
		h += float64(x[7])
	}
	for _, v := range x {
		a += float64(v)
	}
	return ((a + b) + (c + d)) + ((e + f) + (g + h))
}

// Flag is a bool as a kernel takes it.
func Flag(b bool) int32 {
	if b {
		return 1
	}
	return 0
}

// LayOut returns where outputs of those sizes begin, at multiples of 256, as [kernels.Plan.Parts] has it, and the bytes of all.
func LayOut(sizes []int64) (parts []int64, bytes int64) {
	for _, size := range sizes {
		at := (bytes + 255) &^ 255
		parts, bytes = append(parts, at), at+size
	}
	return parts, bytes
}
