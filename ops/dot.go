package ops

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Dot is the inner product of two vectors of one length, a scalar, or of two
// matrices of one shape row by row, a vector.
//
//	out    = sum over j of a[j] * b[j]
//	out[i] = sum over j of a[i][j] * b[i][j]
//
// Products and sum are made in double precision whatever the type.
func Dot(a, b *gorgonia.Node) (*gorgonia.Node, error) { return apply(dot{}, a, b) }

type dot struct{}

func (dot) String() string { return "Dot" }

func (dot) infer(in []tensor.Shape) (tensor.Shape, error) {
	if !slices.Equal(in[0], in[1]) || in[0].Dims() < 1 || in[0].Dims() > 2 {
		return nil, fmt.Errorf("got shapes %v and %v, want two vectors of one length or two matrices of one shape", in[0], in[1])
	}
	return without(in[0], []int{in[0].Dims() - 1}), nil
}

func (dot) plan(dev kernels.Device, dt kernels.Dtype, in []tensor.Shape) (*kernels.Plan, error) {
	rows, n := rowsOf(in[0])
	return kernels.Dot(dev, dt, rows, n), nil
}

func (dot) adjoints([]tensor.Shape) []adjoint {
	return []adjoint{{scale{}, []int{1, gradient}}, {scale{}, []int{0, gradient}}}
}

// rowsOf is a shape as rows along its last axis.
func rowsOf(s tensor.Shape) (rows, n int64) {
	n = int64(s[len(s)-1])
	rows = 1
	for _, d := range s[:len(s)-1] {
		rows *= int64(d)
	}
	return rows, n
}

var _ = register(Spec{
	Name:      "Dot",
	Formula:   "out[i] = Σ_j a[i,j] b[i,j]",
	Doc:       "Inner product of two vectors, or of two matrices row by row.",
	Tolerance: 1,
	Cases: []Case{
		dotCase(tensor.Shape{1}), dotCase(tensor.Shape{3}), dotCase(tensor.Shape{1025}), dotCase(tensor.Shape{100003}),
		dotCase(tensor.Shape{1, 1}), dotCase(tensor.Shape{5, 3}), dotCase(tensor.Shape{3, 5003}), dotCase(tensor.Shape{1031, 17}), dotCase(tensor.Shape{2, 50021}),
		bench("2^28", dotCase(tensor.Shape{1 << 28})),
		bench("rows 16384x16384", dotCase(tensor.Shape{1 << 14, 1 << 14})),
	},
	Random: func(r *rand.Rand) Case { return dotCase(randomShape(r, 1, 2)) },
})

func dotCase(s tensor.Shape) Case {
	return Case{
		Name:   fmt.Sprint([]int(s)),
		Shapes: []tensor.Shape{s, s},
		Build:  func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return Dot(in[0], in[1]) },
		Reference: func(in ...[]float64) (out, magnitude []float64) {
			n := s[len(s)-1]
			for row := 0; row < len(in[0]); row += n {
				var sum total
				abs := 0.0
				for i := row; i < row+n; i++ {
					sum.addProduct(in[0][i], in[1][i])
					abs += math.Abs(in[0][i] * in[1][i])
				}
				out, magnitude = append(out, sum.value()), append(magnitude, abs)
			}
			return out, magnitude
		},
	}
}
