package opspec

import (
	"fmt"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

var _ = register(Spec{
	Name: "BatchNorm", Formula: "out = (x - mean) / √(variance + ε) * scale + bias", Doc: "Normalizes each channel of axis 1; the next running mean and variance for cudaops.State.",
	Tolerance: 16, Generated: true, Several: true,
	Cases: composed(batchNormCase(tensor.Shape{2, 1}), batchNormCase(tensor.Shape{7, 3}), batchNormCase(tensor.Shape{4, 6, 9}), batchNormCase(tensor.Shape{2, 5, 3, 7}), batchNormCase(tensor.Shape{1, 3, 4, 5}), batchNormCase(tensor.Shape{257, 31}), batchNormCase(tensor.Shape{3, 2, 70, 71})),
	Bad: []Bad{
		bad("one element a channel", batchNorm(0.1, normEpsilon), "want at least two elements in each channel", tensor.Shape{1, 1}, tensor.Shape{1}, tensor.Shape{1}),
		bad("one axis", batchNorm(0.1, normEpsilon), "want at least two axes", tensor.Shape{3}, tensor.Shape{3}, tensor.Shape{3}),
		bad("bias of another shape", batchNorm(0.1, normEpsilon), "got bias of shape (4) for x of shape (2, 3), want (3)", tensor.Shape{2, 3}, tensor.Shape{3}, tensor.Shape{4}),
		bad("momentum above 1", batchNorm(2, normEpsilon), "got momentum 2, want 0 to 1", tensor.Shape{2, 3}, tensor.Shape{3}, tensor.Shape{3}),
		bad("epsilon below 0", batchNorm(0.1, -1), "got epsilon -1", tensor.Shape{2, 3}, tensor.Shape{3}, tensor.Shape{3}),
	},
	Random: func(r *rand.Rand) Case {
		s := randomShape(r, 2, 4)
		s[0]++
		return composed(batchNormCase(s))[0]
	},
})

// batchNorm builds the output of runs that train, which does not depend on the running values.
func batchNorm(momentum, epsilon float64) Build {
	return func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
		out, _, _, err := ops.BatchNorm(in[0], in[1], in[2], in[1], in[1], momentum, epsilon)
		return out, err
	}
}

func batchNormCase(s tensor.Shape) Case {
	channels := tensor.Shape{s[1]}
	axes := []int{0}
	for a := 2; a < len(s); a++ {
		axes = append(axes, a)
	}
	return Case{
		Name: fmt.Sprint([]int(s)), Shapes: []tensor.Shape{s, channels, channels}, Build: batchNorm(0.1, normEpsilon),
		Reference: func(in ...[]float64) (out, magnitude []float64) {
			out, magnitude = make([]float64, len(in[0])), make([]float64, len(in[0]))
			eachRow(s, axes, func(c int, elements []int) {
				m := moments(pickAll(in[0], elements))
				for _, i := range elements {
					out[i], magnitude[i] = m.normalize(in[0][i], in[1][c], in[2][c])
				}
			})
			return out, magnitude
		},
	}
}
