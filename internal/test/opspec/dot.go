package opspec

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

var _ = register(Spec{
	Name:      "Dot",
	Formula:   "out[i] = Σ_j a[i,j] b[i,j]",
	Doc:       "Inner product of two vectors, or of two matrices row by row.",
	Tolerance: 1,
	Cases: slices.Concat([]Case{
		dotCase(tensor.Shape{1}), dotCase(tensor.Shape{3}), dotCase(tensor.Shape{1025}), dotCase(tensor.Shape{100003}),
		dotCase(tensor.Shape{1, 1}), dotCase(tensor.Shape{5, 3}), dotCase(tensor.Shape{3, 5003}), dotCase(tensor.Shape{1031, 17}), dotCase(tensor.Shape{2, 50021}),
		dotCase(tensor.Shape{7919}), dotCase(tensor.Shape{1, 7919}), dotCase(tensor.Shape{7919, 1}),
		large(dotCase(tensor.Shape{1<<29 + 3}), kernels.Float32),
		timed("2^28", dotCase(tensor.Shape{1 << 28}), inBoth...),
		timed("rows 16384x16384", dotCase(tensor.Shape{1 << 14, 1 << 14})),
		against("2^22", dotCase(tensor.Shape{1 << 22}), binary(gorgonia.Mul)),
	}, dotVersionCases()),
	Bad: []Bad{
		bad("other length", binary(ops.Dot), "got shapes (3) and (4), want two vectors", tensor.Shape{3}, tensor.Shape{4}),
		bad("column and vector", binary(ops.Dot), "got shapes (3, 1) and (3), want two vectors", tensor.Shape{3, 1}, tensor.Shape{3}),
		bad("rank 3", binary(ops.Dot), "want two vectors of one length or two matrices", tensor.Shape{2, 3, 4}, tensor.Shape{2, 3, 4}),
		bad("scalars", binary(ops.Dot), "want two vectors of one length or two matrices", tensor.Shape{}, tensor.Shape{}),
		bad("matrices by a version", binary(versions.Version(2).Dot), "Dot version 2: got shapes (3, 4), want two vectors", tensor.Shape{3, 4}, tensor.Shape{3, 4}),
		bad("version too large", binary(versions.Version(4).Dot), "got version 4, want 0 to 3", tensor.Shape{3}, tensor.Shape{3}),
	},
	Random: func(r *rand.Rand) Case { return dotCase(randomShape(r, 1, 2)) },
	Wide:   func(s *Sizes) Case { return dotCase(s.Shape(s.Elements(2), 1, 2)) },
	Peers: `
def peers(c, d):
    s = c["shapes"][0]
    make = lambda: (drawn(d, s), drawn(d, s))
    if len(s) == 1:
        yield TORCH + " dot", make, torch.dot
    else:
        yield TORCH + " linalg.vecdot", make, torch.linalg.vecdot
`,
})

func dotCase(s tensor.Shape) Case {
	return Case{
		Name:   fmt.Sprint([]int(s)),
		Shapes: []tensor.Shape{s, s},
		Build:  binary(ops.Dot),
		Reference: func(in ...[]float64) (out, magnitude []float64) {
			n := s[len(s)-1]
			for row := 0; row < len(in[0]); row += n {
				y, m := products(0, n, func(i int) (x, y float64) { return in[0][row+i], in[1][row+i] })
				out, magnitude = append(out, y), append(magnitude, m)
			}
			return out, magnitude
		},
	}
}
