package ops

import (
	"fmt"
	"math"

	"gorgonia.org/gorgonia"
)

// LayerNorm normalizes x over its last axes, those of scale, which has their shape, as bias has. A nil bias is none.
//
//	out = (x - mean) / sqrt(variance + epsilon) * scale + bias
//
// mean and variance are those of the elements that are normalized together; the variance is divided by their number. It is computed from the
// differences from the mean. Means are computed in double precision and rounded once, so that equal elements of float32 become bias. It is an error if epsilon is negative or NaN.
func LayerNorm(x, scale, bias *gorgonia.Node, epsilon float64) (*gorgonia.Node, error) {
	inputs, expression := []*gorgonia.Node{x, scale, bias}, "(a - %[1]s) * (1 / sqrt(rowmean(square(a - %[1]s), %[2]d) + %[3]v)) * b + c"
	if bias == nil {
		inputs, expression = inputs[:2], expression[:len(expression)-len(" + c")]
	}
	return normalized("LayerNorm", expression, epsilon, inputs, func(r rowFunc) Primitive { return layerNorm{r, epsilon} })
}

// RMSNorm divides x by the root of its mean square over the last axes, those of scale, which has their shape.
//
//	out = x / sqrt((mean of x²) + epsilon) * scale
//
// The mean is computed in double precision and rounded once. It is an error if epsilon is negative or NaN.
func RMSNorm(x, scale *gorgonia.Node, epsilon float64) (*gorgonia.Node, error) {
	return normalized("RMSNorm", "a * (1 / sqrt(rowmean(square(a), %[2]d) + %[3]v)) * b", epsilon, []*gorgonia.Node{x, scale}, func(r rowFunc) Primitive { return rmsNorm{r, epsilon} })
}

// normalized applies a normalization of the first input over the axes of the others. Its expression is formatted with the mean of a row, the number
// of its elements, and epsilon.
func normalized(name, expression string, epsilon float64, inputs []*gorgonia.Node, of func(rowFunc) Primitive) (*gorgonia.Node, error) {
	inputs, types, err := floatsOf(inputs...)
	if err != nil {
		return nil, fmt.Errorf("ops: %s: %w", name, err)
	}
	if err := checkEpsilon(epsilon); err != nil {
		return nil, fmt.Errorf("ops: %s: %w", name, err)
	}
	shape, scale := types[0].Shape, types[1].Shape
	first := len(shape) - len(scale)
	if len(scale) == 0 || first < 0 || !sameShape(shape[first:], scale) {
		return nil, fmt.Errorf("ops: %s: got x of shape %v and scale of shape %v, want scale of the shape of the last axes of x", name, shape, scale)
	}
	if len(types) > 2 && !sameShape(types[2].Shape, scale) {
		return nil, fmt.Errorf("ops: %s: got scale of shape %v and bias of shape %v, want one shape", name, scale, types[2].Shape)
	}
	var axes []int
	for a := range scale {
		axes = append(axes, first+a)
	}
	n := scale.TotalSize()
	r, err := newRowFunc(name, fmt.Sprintf(expression, meanOf(n), n, number(epsilon)), len(types), types[0].Dtype, shape, axes, ofElements)
	if err != nil {
		return nil, fmt.Errorf("ops: %s: %w", name, err)
	}
	return Apply(of(r), inputs...)
}

// checkEpsilon returns an error unless epsilon, which a normalization adds to a variance, is finite and not negative.
func checkEpsilon(epsilon float64) error {
	if !(epsilon >= 0) || math.IsInf(epsilon, 1) {
		return fmt.Errorf("got epsilon %v, want a number of 0 or more", epsilon)
	}
	return nil
}

// meanOf is the mean of a row of n elements.
func meanOf(n int) string { return fmt.Sprintf("rowmean(a, %d)", n) }

type layerNorm struct {
	rowFunc
	epsilon float64
}

// Adjoints: the mean and the inverse deviation of each row are those of the forward pass, whose kernel computes them too.
func (p layerNorm) Adjoints(b *Backward) []Term {
	x, scale, g := b.In(0), b.In(1), b.Grad()
	n := scale.Type().Shape.TotalSize()
	mean := b.rows("Mean", meanOf(n), p.shape, p.axes, ofRowsKept, x)
	inverse := b.rows("InverseDeviation", fmt.Sprintf("1 / sqrt(rowmean(square(a - b), %d) + %s)", n, number(p.epsilon)), p.shape, p.axes, ofRowsKept, x, mean)
	dx := b.rows("LayerNormGradient", fmt.Sprintf("d * (e*b - rowmean(e*b, %[1]d) - (a - c) * d * rowmean(e*b * ((a - c) * d), %[1]d))", n), p.shape, p.axes, ofElements, x, scale, mean, inverse, g)
	terms := []Term{dx, sumTo(b, b.elements("a * ((b - c) * d)", g, x, mean, inverse), scale.Type().Shape)}
	if len(b.in) > 2 {
		terms = append(terms, sumTo(b, g, scale.Type().Shape))
	}
	return terms
}

type rmsNorm struct {
	rowFunc
	epsilon float64
}

func (p rmsNorm) Adjoints(b *Backward) []Term {
	x, scale, g := b.In(0), b.In(1), b.Grad()
	n := scale.Type().Shape.TotalSize()
	inverse := b.rows("InverseRootMeanSquare", fmt.Sprintf("1 / sqrt(rowmean(square(a), %d) + %s)", n, number(p.epsilon)), p.shape, p.axes, ofRowsKept, x)
	dx := b.rows("RMSNormGradient", fmt.Sprintf("c * (d*b - a * c * rowmean(d*b * (a * c), %d))", n), p.shape, p.axes, ofElements, x, scale, inverse, g)
	return []Term{dx, sumTo(b, b.elements("a * (b * c)", g, x, inverse), scale.Type().Shape)}
}
