package opspec

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// This file holds what the Specs of ops along axes share.

// eachRow calls f with the row-major indices of the elements of each row along axes, for the rows in their order.
func eachRow(shape tensor.Shape, axes []int, f func(row int, elements []int)) {
	rows := make([][]int, without(shape, axes...).TotalSize())
	index(shape, func(flat int, at []int) {
		k := flatten(shape, at, axes)
		rows[k] = append(rows[k], flat)
	})
	for k, elements := range rows {
		f(k, elements)
	}
}

// rowCases are cases of an op along axes that test every shape of a row.
func rowCases(of func(shape tensor.Shape, axes ...int) Case) []Case {
	return []Case{
		of(tensor.Shape{1}, 0), of(tensor.Shape{7}, 0), of(tensor.Shape{1031}, 0), of(tensor.Shape{3, 5}, 0), of(tensor.Shape{3, 5}, 1), of(tensor.Shape{257, 31}, 1),
		of(tensor.Shape{31, 257}, 0), of(tensor.Shape{4, 1, 9}, 1), of(tensor.Shape{4, 6, 9}, 1), of(tensor.Shape{2, 3, 2, 3, 5}, 3), of(tensor.Shape{3, 20011}, 1),
	}
}

// randomRows draws an op along one axis of a tensor of rank 1 to 5.
func randomRows(r *rand.Rand, of func(shape tensor.Shape, axes ...int) Case) Case {
	s := randomShape(r, 1, 5)
	return of(s, r.IntN(len(s)))
}

// fromEnd returns axes counted from the end.
func fromEnd(shape tensor.Shape, axes []int) []int {
	list := slices.Clone(axes)
	for i := range list {
		list[i] -= len(shape)
	}
	return list
}

// elementsOfRows is a case of an op with one output element for each element of x. reference computes those of a row.
func elementsOfRows(shape tensor.Shape, axes []int, build Build, reference func(x []float64) (out, magnitude []float64)) Case {
	return Case{
		Name:   fmt.Sprintf("%v along %v", []int(shape), axes),
		Shapes: []tensor.Shape{shape},
		Build:  build,
		Reference: func(in ...[]float64) (out, magnitude []float64) {
			out, magnitude = make([]float64, len(in[0])), make([]float64, len(in[0]))
			eachRow(shape, axes, func(_ int, elements []int) {
				y, m := reference(pickAll(in[0], elements))
				for i, at := range elements {
					out[at], magnitude[at] = y[i], m[i]
				}
			})
			return out, magnitude
		},
	}
}

// rowCase is a case of an op with one output element for each row of x.
func rowCase(shape tensor.Shape, axes []int, build Build, reference func(x []float64) (out, magnitude []float64)) Case {
	c := elementsOfRows(shape, axes, build, nil)
	c.Reference = func(in ...[]float64) (out, magnitude []float64) {
		eachRow(shape, axes, func(_ int, elements []int) {
			y, m := reference(pickAll(in[0], elements))
			out, magnitude = append(out, y...), append(magnitude, m...)
		})
		return out, magnitude
	}
	return c
}

// pickAll returns the elements of x at some places.
func pickAll(x []float64, places []int) []float64 {
	picked := make([]float64, len(places))
	for i, at := range places {
		picked[i] = x[at]
	}
	return picked
}

// alongBad are inputs that every op over axes refuses.
func alongBad(f func(x *gorgonia.Node, along ...int) (*gorgonia.Node, error)) []Bad {
	return []Bad{
		bad("axis too small", along(f, -3), "got axis -3 of shape (3, 4), want -2 <= axis < 2", tensor.Shape{3, 4}),
		bad("axis too large", along(f, 0, 5), "got axis 5 of shape (3, 4)", tensor.Shape{3, 4}),
		bad("axis twice", along(f, 1, -1), "got axis 1 twice", tensor.Shape{3, 4}),
		bad("axis of a scalar", along(f, 0), "got axis 0 of shape ()", tensor.Shape{}),
	}
}

// reductionCases are cases over one axis, several axes and all of them, and of a scalar.
func reductionCases(of func(shape tensor.Shape, axes ...int) Case) []Case {
	return append(rowCases(of), of(tensor.Shape{4, 9, 5, 7}, 0, 2), of(tensor.Shape{4, 9, 5, 7}, 1, 3), of(tensor.Shape{33, 65}, 0, 1), of(tensor.Shape{1, 1}, 0, 1), of(tensor.Shape{}))
}

// randomReduction draws an op over some axes.
func randomReduction(r *rand.Rand, of func(shape tensor.Shape, axes ...int) Case) Case {
	s := randomShape(r, 1, 5)
	axes := []int{r.IntN(len(s))}
	for a := range s {
		if a != axes[0] && r.IntN(3) == 0 {
			axes = append(axes, a)
		}
	}
	slices.Sort(axes)
	return of(s, axes...)
}
