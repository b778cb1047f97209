package opspec

import (
	"fmt"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

var _ = register(Spec{
	Name: "Linear", Formula: "out[..., o] = b[o] + Σᵢ x[..., i] w[o, i]", Doc: "Product of the last axis with a matrix, and a bias.",
	Tolerance: 129, Generated: true,
	Cases: []Case{
		withoutBias(linearCase(tensor.Shape{3, 5}, 7), ops.Linear), linearCase(tensor.Shape{1}, 1), linearCase(tensor.Shape{7}, 3), linearCase(tensor.Shape{5, 7}, 3), linearCase(tensor.Shape{33, 65}, 70), linearCase(tensor.Shape{2, 3, 17}, 5), linearCase(tensor.Shape{2, 1, 3, 4, 6}, 9),
	},
	Bad: []Bad{
		bad("w transposed", linear, "want x (..., in) and w (out, in)", tensor.Shape{3, 4}, tensor.Shape{4, 5}, tensor.Shape{5}),
		bad("w of rank 3", linear, "want x (..., in) and w (out, in)", tensor.Shape{3, 4}, tensor.Shape{1, 5, 4}, tensor.Shape{5}),
		bad("a scalar", linear, "want x (..., in) and w (out, in)", tensor.Shape{}, tensor.Shape{5, 4}, tensor.Shape{5}),
		bad("b of another length", linear, "want b (out) and w (out, in)", tensor.Shape{3, 4}, tensor.Shape{5, 4}, tensor.Shape{4}),
	},
	Random: func(r *rand.Rand) Case { return linearCase(randomShape(r, 1, 5), 1+r.IntN(33)) },
})

func linear(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.Linear(in[0], in[1], in[2]) }

// withoutBias is a case with a nil bias, its third input.
func withoutBias(c Case, build func(x, y, bias *gorgonia.Node) (*gorgonia.Node, error)) Case {
	with, n := c.Reference, c.Shapes[2].TotalSize()
	c.Name, c.Shapes = c.Name+" without bias", c.Shapes[:2]
	c.Build = binary(func(x, y *gorgonia.Node) (*gorgonia.Node, error) { return build(x, y, nil) })
	c.Reference = func(in ...[]float64) (y, magnitude []float64) { return with(append(in, make([]float64, n))...) }
	return c
}

func linearCase(s tensor.Shape, out int) Case {
	n := s[len(s)-1]
	return Case{
		Name: fmt.Sprint([]int(s), " to ", out), Shapes: []tensor.Shape{s, {out, n}, {out}}, Build: linear, Composed: true,
		Reference: func(in ...[]float64) (y, magnitude []float64) {
			for row := 0; row < len(in[0]); row += n {
				for o := range out {
					sum, m := products(in[2][o], n, func(i int) (x, w float64) { return in[0][row+i], in[1][o*n+i] })
					y, magnitude = append(y, sum), append(magnitude, m)
				}
			}
			return y, magnitude
		},
	}
}
