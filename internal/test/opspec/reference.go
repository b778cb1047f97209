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

// broadcast returns the shape to which several broadcast, as in numpy.
func broadcast(shapes ...tensor.Shape) (whole tensor.Shape) {
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
	return whole
}

// elements is a case of an op of elements whose inputs broadcast: f computes an element of the output, and the sum of the absolute
// values of its terms, from elements of the inputs.
func elements(name string, build Build, f func(x []float64) (y, magnitude float64), shapes ...tensor.Shape) Case {
	return Case{
		Name: name, Shapes: shapes, Build: build,
		Reference: func(in ...[]float64) (out, magnitude []float64) {
			x := make([]float64, len(in))
			index(broadcast(shapes...), func(_ int, at []int) {
				for i, s := range shapes {
					k := 0
					for a, d := range s {
						k *= d
						if d > 1 {
							k += at[len(at)-len(s)+a]
						}
					}
					x[i] = in[i][k]
				}
				y, m := f(x)
				out, magnitude = append(out, y), append(magnitude, m)
			})
			return out, magnitude
		},
	}
}

// behind returns the number of elements for each index of an axis.
func behind(shape tensor.Shape, axis int) int {
	n := 1
	for _, d := range shape[axis+1:] {
		n *= d
	}
	return n
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

// products returns the sum of n products x y, beginning with a term, and the sum of their absolute values.
func products(first float64, n int, factors func(i int) (x, y float64)) (sum, magnitude float64) {
	s := total{sum: first}
	magnitude = math.Abs(first)
	for i := range n {
		x, y := factors(i)
		s.addProduct(x, y)
		magnitude += math.Abs(x * y)
	}
	return s.value(), magnitude
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
