package cudaops

import (
	"fmt"
	"math"
	"slices"

	G "gorgonia.org/gorgonia"
)

func loweredCases() []lowered {
	return slices.Concat(softMaxCases(), reductionCases(), unaryCases(), binaryCases(), activationCases(), productCases(), contractionCases(), shapeCases(), joinCases(), diagonalCases(), indexCases(), normCases())
}

// softMaxCases are SoftMax and LogSoftMax along every axis.
func softMaxCases() (list []lowered) {
	for _, c := range []struct {
		shape []int
		axis  int // where it is taken
		axes  []int
		bad   string
	}{
		{shape: []int{5}},
		{shape: []int{4, 7}, axis: 1},
		{shape: []int{4, 7}, axis: 0, axes: []int{0}},
		{shape: []int{4, 7}, axis: 1, axes: []int{-1}},
		{shape: []int{6, 1}, axis: 0, bad: "its derivative of a column vector is along the other axis"},
		{shape: []int{1, 6}, axis: 1},
		{shape: []int{3, 4, 5}, axis: 2},
		{shape: []int{3, 4, 5}, axis: 1, axes: []int{1}},
		{shape: []int{3, 4, 5}, axis: 0, axes: []int{0}},
		{shape: []int{2, 3, 2, 3}, axis: 2, axes: []int{2}},
	} {
		name := fmt.Sprintf("softmax of %v along %v", c.shape, c.axes)
		list = append(list, lowered{
			name: name, shapes: [][]int{c.shape}, noTape: c.bad,
			build: func(x ...*G.Node) (*G.Node, error) { return G.SoftMax(x[0], c.axes...) },
			ref:   func(x ...array) array { return x[0].logSoftMax(c.axis).apply(math.Exp) },
		}, lowered{
			name: "log " + name, shapes: [][]int{c.shape}, noTape: c.bad,
			build: func(x ...*G.Node) (*G.Node, error) { return G.LogSoftMax(x[0], c.axes...) },
			ref:   func(x ...array) array { return x[0].logSoftMax(c.axis) },
		})
	}
	return list
}

// reductionCases are reductions along every set of axes.
func reductionCases() (list []lowered) {
	for _, c := range []struct {
		shape []int
		axes  []int
	}{
		{shape: []int{7}}, {shape: []int{1}},
		{shape: []int{3, 5}}, {shape: []int{3, 5}, axes: []int{0}}, {shape: []int{3, 5}, axes: []int{1}}, {shape: []int{3, 5}, axes: []int{0, 1}},
		{shape: []int{5, 1}, axes: []int{1}}, {shape: []int{5, 1}, axes: []int{0}}, {shape: []int{1, 5}, axes: []int{0}},
		{shape: []int{2, 3, 4}}, {shape: []int{2, 3, 4}, axes: []int{0}}, {shape: []int{2, 3, 4}, axes: []int{1}}, {shape: []int{2, 3, 4}, axes: []int{2}},
		{shape: []int{2, 3, 4}, axes: []int{0, 1}}, {shape: []int{2, 3, 4}, axes: []int{0, 2}}, {shape: []int{2, 3, 4}, axes: []int{1, 2}},
		{shape: []int{2, 3, 2, 3}, axes: []int{1, 3}}, {shape: []int{2, 3, 2, 3}, axes: []int{0, 2, 3}},
	} {
		name := fmt.Sprintf(" of %v along %v", c.shape, c.axes)
		list = append(list, lowered{
			name: "sum" + name, shapes: [][]int{c.shape},
			build: func(x ...*G.Node) (*G.Node, error) { return G.Sum(x[0], c.axes...) },
			ref:   func(x ...array) array { return x[0].sum(c.axes...) },
		}, lowered{
			name: "max" + name, shapes: [][]int{c.shape},
			build: func(x ...*G.Node) (*G.Node, error) { return G.Max(x[0], c.axes...) },
			ref:   func(x ...array) array { return x[0].max(c.axes...) },
		}, lowered{
			name: "mean" + name, shapes: [][]int{c.shape},
			build: func(x ...*G.Node) (*G.Node, error) { return G.Mean(x[0], c.axes...) },
			ref: func(x ...array) array {
				sum := x[0].sum(c.axes...)
				n := float64(len(x[0].v) / len(sum.v))
				return sum.apply(func(v float64) float64 { return v / n })
			},
		})
		if len(c.axes) != 1 {
			continue
		}
		list = append(list, lowered{
			name: "2-norm" + name, shapes: [][]int{c.shape},
			build: func(x ...*G.Node) (*G.Node, error) { return G.Norm(x[0], c.axes[0], 2) },
			ref: func(x ...array) array {
				return x[0].apply(func(v float64) float64 { return v * v }).sum(c.axes...).apply(math.Sqrt)
			},
		}, lowered{
			name: "3-norm" + name, shapes: [][]int{c.shape}, positive: true,
			build: func(x ...*G.Node) (*G.Node, error) { return G.Norm(x[0], c.axes[0], 3) },
			ref: func(x ...array) array {
				return x[0].apply(func(v float64) float64 { return v * v * v }).sum(c.axes...).apply(math.Cbrt)
			},
		})
	}
	return list
}
