package kernels

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/kernels/expr"
)

// Precision is the number of bits to which a product of float32 matrices rounds its operands. Sums are
// float32 in any precision, and so is the result.
type Precision uint8

// The precisions. A kernel may be more precise than it is asked to be: products that are small, or a GPU without tensor cores for it, use all bits.
const (
	FullPrecision Precision = iota // all 24 bits of float32
	TF32                           // 11 bits, the exponents of float32
	BF16                           // 8 bits, the exponents of float32
	F16                            // 11 bits, numbers of at most 65504; below 2^-14 multiples of 2^-24
	precisionCount
)

var precisions = [...]struct {
	name string
	bits int // of a significand
}{{"float32", 24}, {"TF32", 11}, {"BF16", 8}, {"F16", 11}}

// String returns float32, TF32, BF16 or F16.
func (p Precision) String() string {
	if p >= precisionCount {
		return fmt.Sprintf("Precision(%d)", p)
	}
	return precisions[p].name
}

// Check returns an error unless p is one of the precisions.
func (p Precision) Check() error {
	if p >= precisionCount {
		return fmt.Errorf("got precision %d, want FullPrecision, TF32, BF16 or F16", p)
	}
	return nil
}

// Half returns the type that holds operands of p in 16 bits, BF16 or F16; ok is false for the other precisions.
func (p Precision) Half() (d Dtype, ok bool) {
	return [...]Dtype{BF16: expr.BF16, F16: expr.F16}[min(p, F16)], p == BF16 || p == F16
}

// Round rounds x to the bits of an operand, to nearest, ties to even. Beyond the largest number
// lies infinity, as in float32; numbers below the least normal one keep fewer bits, and NaN stays NaN.
func (p Precision) Round(x float32) float32 {
	bits := math.Float32bits(x)
	if p == FullPrecision || p >= precisionCount || bits&0x7f800000 == 0x7f800000 {
		return x
	}
	if p == F16 {
		return expr.FromHalf(expr.F16, expr.ToHalf(expr.F16, x))
	}
	cut := 24 - precisions[p].bits
	return math.Float32frombits((bits + 1<<(cut-1) - 1 + bits>>cut&1) &^ (1<<cut - 1))
}
