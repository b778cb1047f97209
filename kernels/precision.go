package kernels

import (
	"fmt"
	"math"
)

// Precision is the number of bits to which a product of float32 matrices rounds its operands. Sums are
// float32 in any precision, and so is the result.
type Precision uint8

// The precisions. A kernel may be more precise than it is asked to be: products that are small, or a GPU without tensor cores for it, use all bits.
const (
	FullPrecision Precision = iota // all 24 bits of float32
	TF32                           // 11 bits, the exponents of float32
	BF16                           // 8 bits, the exponents of float32
	precisionCount
)

var precisions = [...]struct {
	name string
	bits int // of a significand
}{{"float32", 24}, {"TF32", 11}, {"BF16", 8}}

// String returns float32, TF32 or BF16.
func (p Precision) String() string {
	if p >= precisionCount {
		return fmt.Sprintf("Precision(%d)", p)
	}
	return precisions[p].name
}

// Check returns an error unless p is one of the precisions.
func (p Precision) Check() error {
	if p >= precisionCount {
		return fmt.Errorf("got precision %d, want FullPrecision, TF32 or BF16", p)
	}
	return nil
}

// Round rounds x to the bits of an operand, to nearest, ties to even. Beyond the largest number
// lies infinity, as in float32; numbers below the least normal one keep fewer bits, and NaN stays NaN.
func (p Precision) Round(x float32) float32 {
	bits := math.Float32bits(x)
	if p == FullPrecision || p >= precisionCount || bits&0x7f800000 == 0x7f800000 {
		return x
	}
	cut := 24 - precisions[p].bits
	return math.Float32frombits((bits + 1<<(cut-1) - 1 + bits>>cut&1) &^ (1<<cut - 1))
}
