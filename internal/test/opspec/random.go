package opspec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The ops of this file draw numbers. The cases are those in which every draw gives the same result; package ops tests the shares that are drawn.

var _ = register(Spec{
	Name: "Dropout", Formula: "out[i] = x[i] / (1 - p), or 0", Doc: "Zeros with a probability; the gradient drops the same elements.",
	Generated: true,
	Cases: composed(dropoutCase(tensor.Shape{1}, 0), dropoutCase(tensor.Shape{1}, 1), dropoutCase(tensor.Shape{}, 0), dropoutCase(tensor.Shape{1021}, 0), dropoutCase(tensor.Shape{1021}, 1),
		dropoutCase(tensor.Shape{7, 33, 5}, 0), dropoutCase(tensor.Shape{7, 33, 5}, 1)),
	Bad: []Bad{bad("a probability above 1", dropout(1.5), "got probability 1.5, want 0 to 1", tensor.Shape{3}), bad("a probability that is NaN", dropout(math.NaN()), "got probability NaN", tensor.Shape{3})},
	Random: func(r *rand.Rand) Case {
		return composed(dropoutCase(randomShape(r, 0, 4), r.IntN(2)))[0]
	},
})

func dropout(probability float64) Build {
	return unary(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Dropout(x, probability) })
}

// dropoutCase drops no element or all.
func dropoutCase(s tensor.Shape, probability int) Case {
	return exact(fmt.Sprintf("probability %d", probability), dropout(float64(probability)), func(x []float64) float64 {
		if probability == 1 {
			return 0
		}
		return x[0]
	}, s)
}

var _ = register(Spec{
	Name: "Categorical", Formula: "out[i] ~ exp(logits[i] / temperature), of the k largest and of the first ones that add up to p", Doc: "Draws an index a row of logits.",
	Generated: true, Stops: true,
	Cases: composed(categoricalCase(tensor.Shape{1}, 0), categoricalCase(tensor.Shape{7}, 1), categoricalCase(tensor.Shape{3, 5}, 0), categoricalCase(tensor.Shape{3, 5}, 1), categoricalCase(tensor.Shape{3, 5}, 2),
		categoricalCase(tensor.Shape{2, 3, 1031}, 0), categoricalCase(tensor.Shape{2, 3, 1031}, 1), categoricalCase(tensor.Shape{40, 1}, 2), categoricalCase(tensor.Shape{2, 50304}, 2)),
	Bad: []Bad{
		bad("a scalar", categorical(nil, nil, nil), "want rows", tensor.Shape{}), bad("temperature below 0", categorical(-1, nil, nil), "temperature: got -1, want 0 or more", tensor.Shape{3}),
		bad("temperature of text", categorical("1", nil, nil), "temperature: got a string, want a number", tensor.Shape{3}),
		bad("k of 0", categorical(nil, 0, nil), "k: got 0, want an integer of 1 or more", tensor.Shape{3}), bad("p of 0", categorical(nil, nil, 0), "p: got 0, want a number above 0", tensor.Shape{3}),
	},
	Random: func(r *rand.Rand) Case {
		return composed(categoricalCase(randomShape(r, 1, 3), r.IntN(3)))[0]
	},
})

func categorical(temperature, k, p any) Build {
	return unary(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Categorical(x, temperature, k, p) })
}

// categoricalCase draws the largest logit of each row, the first of equal ones: by a temperature of 0, by a k of 1, or by a small p. Logits that
// are not finite become 0, or the draw is an error.
func categoricalCase(s tensor.Shape, way int) Case {
	draw := []Build{categorical(float32(0), nil, nil), categorical(nil, uint16(1), nil), categorical(nil, nil, 1e-30)}[way]
	finite := func(x float64) float64 {
		if math.Abs(x) < 1e30 {
			return x
		}
		return 0
	}
	c := rowCase(s, []int{len(s) - 1}, func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
		logits, err := ops.Map("select(abs(a) < 1e30, a, 0)", in[0])
		if err != nil || logits.Dtype() != in[0].Dtype() { // Map takes bool
			return draw(in...) // which has an error of its own
		}
		return draw(logits)
	}, func(x []float64) (out, magnitude []float64) {
		best := 0
		for i, v := range x {
			if finite(v) > finite(x[best]) {
				best = i
			}
		}
		return []float64{float64(best)}, []float64{0}
	})
	c.Name += fmt.Sprintf(", way %d", way)
	return c
}

var _ = register(Spec{
	Name: "TopK", Formula: "out[..., j, ...] = the j-th largest x[..., i, ...]", Doc: "The k largest elements along an axis and their indices; k is at most 1024.",
	Tolerance: 1, Generated: true,
	Cases: composed(topKCase(tensor.Shape{1}, 0, 1, false), topKCase(tensor.Shape{1}, 0, 1, true), topKCase(tensor.Shape{9}, 0, 4, true), topKCase(tensor.Shape{3, 5}, 1, 5, true), topKCase(tensor.Shape{5, 3}, 0, 2, true),
		topKCase(tensor.Shape{4, 6, 9}, 1, 3, true), topKCase(tensor.Shape{2, 1031}, 1, 50, true), topKCase(tensor.Shape{1031, 2}, 0, 1, true)),
	Bad: []Bad{bad("k of 0", topK(0, 0, false), "got k = 0 of 3 elements, want 1 to 3", tensor.Shape{3}), bad("k beyond the axis", topK(5, -1, false), "got k = 5 of 4 elements", tensor.Shape{3, 4}),
		bad("another axis", topK(1, 2, false), "got axis 2 of shape (3, 4)", tensor.Shape{3, 4})},
	Random: func(r *rand.Rand) Case {
		s := randomShape(r, 1, 4)
		axis := r.IntN(len(s))
		return composed(topKCase(s, axis, 1+r.IntN(min(s[axis], 20)), true))[0]
	},
})

// topK builds the k largest elements, plus their indices if that is asked for.
func topK(k, axis int, indices bool) Build {
	return unary(func(x *gorgonia.Node) (*gorgonia.Node, error) {
		largest, at, err := ops.TopK(x, k, axis)
		if err != nil || !indices {
			return largest, err
		}
		if at, err = ops.Cast(at, x.Dtype()); err != nil {
			return nil, err
		}
		return ops.Map("a + b", largest, at)
	})
}

func topKCase(s tensor.Shape, axis, k int, indices bool) Case {
	c := rowCase(s, []int{axis}, topK(k, axis-len(s), indices), nil)
	c.Name += fmt.Sprintf(", k = %d, indices %v", k, indices)
	to := s.Clone()
	to[axis] = k
	inner := behind(s, axis)
	c.Reference = func(in ...[]float64) (out, magnitude []float64) {
		out, magnitude = make([]float64, to.TotalSize()), make([]float64, to.TotalSize())
		eachRow(s, []int{axis}, func(row int, elements []int) {
			order := make([]int, len(elements))
			for i := range order {
				order[i] = i
			}
			slices.SortStableFunc(order, func(a, b int) int { return falling(in[0][elements[a]], in[0][elements[b]]) })
			for j, i := range order[:k] {
				at := (row/inner*k+j)*inner + row%inner
				out[at], magnitude[at] = in[0][elements[i]], 0
				if indices {
					out[at], magnitude[at] = out[at]+float64(i), math.Abs(out[at])+float64(i)
				}
			}
		})
		return out, magnitude
	}
	return c
}

// falling compares numbers for a falling order, in which NaN is first.
func falling(a, b float64) int {
	switch {
	case math.IsNaN(a) && math.IsNaN(b) || a == b:
		return 0
	case math.IsNaN(a) || a > b:
		return -1
	}
	return 1
}
