package opspec

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/tensor"
)

var _ = register(Spec{
	Name:      "Scale",
	Formula:   "out[i,j] = s[i] x[i,j]",
	Doc:       "A vector times a scalar, or each row of a matrix times its own.",
	Tolerance: 1,
	Cases: []Case{
		scaleCase(tensor.Shape{1}), scaleCase(tensor.Shape{1031}), scaleCase(tensor.Shape{7, 5}), scaleCase(tensor.Shape{3, 70001}), scaleCase(tensor.Shape{5003, 3}),
		scaleCase(tensor.Shape{1, 1}), scaleCase(tensor.Shape{1, 7919}), scaleCase(tensor.Shape{7919, 1}),
		large(scaleCase(tensor.Shape{1<<15 + 1, 1<<14 + 1}), kernels.Float32),
		timed("rows 16384x16384", scaleCase(tensor.Shape{1 << 14, 1 << 14})),
	},
	Bad: []Bad{
		bad("x is a scalar", binary(ops.Scale), "want a vector or a matrix", tensor.Shape{}, tensor.Shape{}),
		bad("x of rank 3", binary(ops.Scale), "want a vector or a matrix", tensor.Shape{2, 3, 4}, tensor.Shape{2, 3}),
		bad("a vector by a vector", binary(ops.Scale), "want s of shape ()", tensor.Shape{3}, tensor.Shape{3}),
		bad("a row's length", binary(ops.Scale), "want s of shape (3)", tensor.Shape{3, 4}, tensor.Shape{4}),
	},
	Random: func(r *rand.Rand) Case { return scaleCase(randomShape(r, 1, 2)) },
	Wide:   func(s *Sizes) Case { return scaleCase(s.Shape(s.Elements(2), 1, 2)) },
	Peers: `
def peers(c, d):
    x, s = c["shapes"]
    yield TORCH + " mul", lambda: (drawn(d, x), drawn(d, s), empty(d, x)), lambda x, s, o: torch.mul(x, s.unsqueeze(-1), out=o)
`,
})

func scaleCase(s tensor.Shape) Case {
	return Case{
		Name:   fmt.Sprint([]int(s)),
		Shapes: []tensor.Shape{s, without(s, len(s)-1)},
		Build:  binary(ops.Scale),
		Reference: func(in ...[]float64) (out, magnitude []float64) {
			n := s[len(s)-1]
			out, magnitude = make([]float64, len(in[0])), make([]float64, len(in[0]))
			for i, x := range in[0] {
				out[i] = in[1][i/n] * x
				magnitude[i] = math.Abs(out[i])
			}
			return out, magnitude
		},
	}
}
