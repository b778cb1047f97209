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

var _ = register(Spec{
	Name: "LayerNorm", Formula: "out = (x - mean) / √(variance + ε) * scale + bias", Doc: "Normalizes the last axes.",
	Tolerance: 8, Generated: true, Cases: append([]Case{withoutBias(layerNormCase(tensor.Shape{7, 33}, 1), layerNorm)}, normCases(layerNormCase)...),
	Bad: []Bad{
		badNorm("scale of another axis", 1e-5, "want scale of the shape of the last axes of x", tensor.Shape{3, 4}, tensor.Shape{3}, tensor.Shape{3}),
		badNorm("scale of more axes", 1e-5, "want scale of the shape of the last axes of x", tensor.Shape{4}, tensor.Shape{3, 4}, tensor.Shape{3, 4}),
		badNorm("a scalar as scale", 1e-5, "want scale of the shape", tensor.Shape{4}, tensor.Shape{}, tensor.Shape{4}),
		badNorm("bias of another shape", 1e-5, "want one shape", tensor.Shape{3, 4}, tensor.Shape{4}, tensor.Shape{3, 4}),
		badNorm("epsilon below 0", -1, "got epsilon -1", tensor.Shape{3, 4}, tensor.Shape{4}, tensor.Shape{4}),
		badNorm("epsilon that is NaN", math.NaN(), "got epsilon NaN", tensor.Shape{3, 4}, tensor.Shape{4}, tensor.Shape{4}),
	},
	Random: func(r *rand.Rand) Case { return randomNorm(r, layerNormCase) },
})

var _ = register(Spec{
	Name: "RMSNorm", Formula: "out = x / √(mean of x² + ε) * scale", Doc: "Divides the last axes by their root mean square.",
	Tolerance: 8, Generated: true, Cases: normCases(rmsNormCase),
	Bad: []Bad{
		bad("scale of another axis", rmsNorm(1e-5), "want scale of the shape of the last axes of x", tensor.Shape{3, 4}, tensor.Shape{3}),
		bad("infinite epsilon", rmsNorm(math.Inf(1)), "got epsilon +Inf", tensor.Shape{3, 4}, tensor.Shape{4}),
	},
	Random: func(r *rand.Rand) Case { return randomNorm(r, rmsNormCase) },
})

func normCases(of func(s tensor.Shape, last int) Case) []Case {
	return []Case{
		of(tensor.Shape{1}, 1), of(tensor.Shape{3, 5}, 1), of(tensor.Shape{7}, 1), of(tensor.Shape{1031}, 1), of(tensor.Shape{257, 31}, 1), of(tensor.Shape{4, 6, 9}, 2), of(tensor.Shape{4, 6, 9}, 3), of(tensor.Shape{4, 1, 9, 1}, 1),
		of(tensor.Shape{2, 3, 1, 3, 5}, 1), of(tensor.Shape{3, 20011}, 1), of(tensor.Shape{5, 768}, 1),
	}
}

func randomNorm(r *rand.Rand, of func(s tensor.Shape, last int) Case) Case {
	s := randomShape(r, 1, 5)
	return of(s, 1+r.IntN(len(s)))
}

func badNorm(name string, epsilon float64, want string, shapes ...tensor.Shape) Bad {
	return bad(name, func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.LayerNorm(in[0], in[1], in[2], epsilon) }, want, shapes...)
}

const (
	normEpsilon = 1e-3
	leastNormal = 0x1p-126 // of float32; the error of smaller numbers is not relative to them
)

func layerNorm(x, scale, bias *gorgonia.Node) (*gorgonia.Node, error) {
	return ops.LayerNorm(x, scale, bias, normEpsilon)
}

// layerNormCase normalizes over a number of last axes.
func layerNormCase(s tensor.Shape, last int) Case {
	scale := s[len(s)-last:]
	return Case{
		Name:   fmt.Sprintf("%v by %v", []int(s), []int(scale)),
		Shapes: []tensor.Shape{s, scale, scale},
		Build:  func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return layerNorm(in[0], in[1], in[2]) },
		Reference: func(in ...[]float64) (out, magnitude []float64) {
			for x := range slices.Chunk(in[0], len(in[1])) {
				m := moments(x)
				for i, v := range x {
					y, size := m.normalize(v, in[1][i], in[2][i])
					out, magnitude = append(out, y), append(magnitude, size)
				}
			}
			return out, magnitude
		},
	}
}

// normalize returns an element of a row normalized, scaled and biased, and the sum of the absolute values of its terms.
func (m rowMoments) normalize(x, scale, bias float64) (y, magnitude float64) {
	scale /= math.Sqrt(m.variance + normEpsilon)
	y = (x - m.mean) * scale
	off := (math.Abs(x) + math.Abs(m.mean) + leastNormal) * math.Abs(scale)
	return y + bias, off + math.Abs(y)*(1+m.error/(m.variance+normEpsilon)) + math.Abs(bias)
}

func rmsNorm(epsilon float64) Build {
	return binary(func(x, scale *gorgonia.Node) (*gorgonia.Node, error) { return ops.RMSNorm(x, scale, epsilon) })
}

func rmsNormCase(s tensor.Shape, last int) Case {
	scale := s[len(s)-last:]
	return Case{
		Name:   fmt.Sprintf("%v by %v", []int(s), []int(scale)),
		Shapes: []tensor.Shape{s, scale},
		Build:  rmsNorm(normEpsilon),
		Reference: func(in ...[]float64) (out, magnitude []float64) {
			for x := range slices.Chunk(in[0], len(in[1])) {
				var squares total
				for _, v := range x {
					squares.addProduct(v, v)
				}
				inverse := 1 / math.Sqrt(squares.value()/float64(len(x))+normEpsilon)
				for i, v := range x {
					out, magnitude = append(out, v*inverse*in[1][i]), append(magnitude, (math.Abs(v)+leastNormal)*inverse*math.Abs(in[1][i]))
				}
			}
			return out, magnitude
		},
	}
}
