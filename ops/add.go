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

// Add is the element-wise sum a + b of two tensors of one shape and type.
//
//	out[i] = a[i] + b[i]
func Add(a, b *gorgonia.Node) (*gorgonia.Node, error) { return apply(add{}, a, b) }

type add struct{}

func (add) String() string { return "Add" }

func (add) infer(in []tensor.Shape) (tensor.Shape, error) {
	if !slices.Equal(in[0], in[1]) {
		return nil, fmt.Errorf("got shapes %v and %v, want equal ones", in[0], in[1])
	}
	return in[0].Clone(), nil
}

func (add) plan(dev kernels.Device, dt kernels.Dtype, in []tensor.Shape) (*kernels.Plan, error) {
	return kernels.Add(dev, dt, int64(in[0].TotalSize())), nil
}

func (add) adjoints([]tensor.Shape) []adjoint {
	return []adjoint{{nil, []int{gradient}}, {nil, []int{gradient}}}
}

var _ = register(Spec{
	Name:      "Add",
	Formula:   "out[i] = a[i] + b[i]",
	Doc:       "Element-wise sum of two tensors of one shape.",
	Tolerance: 1,
	Cases: []Case{
		addCase(tensor.Shape{1}), addCase(tensor.Shape{5}), addCase(tensor.Shape{1021}), addCase(tensor.Shape{100003}),
		addCase(tensor.Shape{17, 31}), addCase(tensor.Shape{2, 3, 4, 5}), addCase(tensor.ScalarShape()),
		bench("2^28", addCase(tensor.Shape{1 << 28})),
	},
	Random: func(r *rand.Rand) Case { return addCase(randomShape(r, 1, 4)) },
})

func addCase(s tensor.Shape) Case {
	return Case{
		Name:   fmt.Sprint([]int(s)),
		Shapes: []tensor.Shape{s, s},
		Build:  func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return Add(in[0], in[1]) },
		Reference: func(in ...[]float64) (out, magnitude []float64) {
			for i := range in[0] {
				out = append(out, in[0][i]+in[1][i])
				magnitude = append(magnitude, math.Abs(in[0][i])+math.Abs(in[1][i]))
			}
			return out, magnitude
		},
	}
}
