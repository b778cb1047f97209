package opspec

import (
	"math"
	"slices"

	"gorgonia.org/tensor"
)

// This file holds code that references share.

// index walks all indexes of a shape in row-major order: f gets the flat index
// and the index per axis.
func index(shape []int, f func(flat int, at []int)) {
	at := make([]int, len(shape))
	n := 1
	for _, d := range shape {
		n *= d
	}
	for flat := range n {
		f(flat, at)
		for a := len(shape) - 1; a >= 0; a-- {
			if at[a]++; at[a] < shape[a] {
				break
			}
			at[a] = 0
		}
	}
}

// flatten returns the flat index of at in shape, leaving out the axes in skip.
func flatten(shape, at, skip []int) int {
	flat := 0
	for a, d := range shape {
		if !slices.Contains(skip, a) {
			flat = flat*d + at[a]
		}
	}
	return flat
}

// broadcast repeats operands of several shapes as numpy does, and returns their common shape.
func broadcast(shapes []tensor.Shape, in [][]float64) (out [][]float64, whole tensor.Shape) {
	for _, s := range shapes {
		for len(whole) < len(s) {
			whole = append(tensor.Shape{1}, whole...)
		}
	}
	for _, s := range shapes {
		for a, d := range s {
			k := len(whole) - len(s) + a
			whole[k] = max(whole[k], d)
		}
	}
	for i, s := range shapes {
		var x []float64
		index(whole, func(_ int, at []int) {
			own := slices.Clone(at[len(whole)-len(s):])
			for a, d := range s {
				own[a] = min(own[a], d-1)
			}
			x = append(x, in[i][flatten(s, own, nil)])
		})
		out = append(out, x)
	}
	return out, whole
}

// without returns a shape with axes taken out.
func without(shape tensor.Shape, axes ...int) tensor.Shape {
	rest := tensor.Shape{}
	for a, d := range shape {
		if !slices.Contains(axes, a) {
			rest = append(rest, d)
		}
	}
	return rest
}

// A total is a sum with the rounding error of every addition and product added
// up beside it, so that references round once, at the end.
type total struct{ sum, lost float64 }

// add adds by Knuth's two-sum, which has no branch to mispredict.
func (t *total) add(x float64) {
	s := t.sum + x
	b := s - t.sum
	t.lost += (t.sum - (s - b)) + (x - b)
	t.sum = s
}

func (t *total) addProduct(x, y float64) {
	p := x * y
	t.add(p)
	t.lost += math.FMA(x, y, -p)
}

// less returns the sum without the terms of u, NaN if either is not finite.
func (t total) less(u total) float64 {
	d := total{sum: t.sum, lost: t.lost - u.lost}
	d.add(-u.sum)
	return d.sum + d.lost
}

// value returns the sum. The lost part is no number once the sum is not finite.
func (t total) value() float64 {
	if v := t.sum + t.lost; !math.IsNaN(v) {
		return v
	}
	return t.sum
}
