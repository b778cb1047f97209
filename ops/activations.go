package ops

import (
	"fmt"

	"gorgonia.org/gorgonia"
)

// GELU is the Gaussian error linear unit, element by element.
//
//	out = 0.5 x (1 + erf(x / √2))
func GELU(x *gorgonia.Node) (*gorgonia.Node, error) {
	return applyExpression("GELU", "GELU", "0.5 * a * (1 + erf(a * 0.7071067811865476))", x)
}

// GELUTanh is the approximation of [GELU] by tanh: PyTorch's GELU with approximate="tanh", and that of GPT-2.
//
//	out = 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))
//
// (1 + tanh(z)) / 2 is computed as sigmoid(2 z): in fewer instructions, and without cancellation where it is near 0.
func GELUTanh(x *gorgonia.Node) (*gorgonia.Node, error) {
	return applyExpression("GELUTanh", "GELUTanh", "a * sigmoid(1.5957691216057308 * (a + 0.044715 * cube(a)))", x)
}

// SiLU is the sigmoid linear unit, element by element, also called swish.
//
//	out = x / (1 + e⁻ˣ)
func SiLU(x *gorgonia.Node) (*gorgonia.Node, error) {
	return applyExpression("SiLU", "SiLU", "a * sigmoid(a)", x)
}

// Clip limits each element to lo <= x <= hi; NaN stays NaN. The gradient is 0 for elements beyond the limits. It is an error if a limit is
// NaN or lo is greater than hi.
func Clip(x *gorgonia.Node, lo, hi float64) (*gorgonia.Node, error) {
	name := fmt.Sprintf("Clip[%v, %v]", lo, hi)
	if !(lo <= hi) {
		return nil, fmt.Errorf("ops: %s: got limits %v and %v, want numbers with the first at most the second", name, lo, hi)
	}
	return applyExpression(name, name, fmt.Sprintf("min(max(a, %s), %s)", number(lo), number(hi)), x)
}
