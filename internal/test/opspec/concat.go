package opspec

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

var _ = register(Spec{
	Name: "Concat", Formula: "out[..., i, ...] = xₖ[..., i - start of xₖ, ...]", Doc: "Tensors one after the other along an axis.", Generated: true, AnyType: true,
	Cases: []Case{
		concatCase(tensor.Shape{1}, 0, 1, 1), concatCase(tensor.Shape{1}, 0, 1), concatCase(tensor.Shape{7}, 0, 3, 4), concatCase(tensor.Shape{3, 5}, 0, 2, 1), concatCase(tensor.Shape{3, 5}, 1, 1, 2, 2),
		concatCase(tensor.Shape{2, 768}, 1, 256, 256, 256), concatCase(tensor.Shape{4, 3, 1, 5}, 2, 1, 4), concatCase(tensor.Shape{33, 40}, 1, 5, 30, 1, 4),
	},
	Bad: []Bad{
		bad("no inputs", concat(0), "got no inputs"),
		bad("other extents", concat(0), "input 1: got shape (3, 5), want (3, 4) but for axis 0", tensor.Shape{3, 4}, tensor.Shape{3, 5}),
		bad("other ranks", concat(0), "input 1: got shape (3)", tensor.Shape{3, 4}, tensor.Shape{3}),
		bad("axis too large", concat(1), "got axis 1 of shape (3)", tensor.Shape{3}, tensor.Shape{3}),
		bad("scalars", concat(0), "got axis 0 of shape ()", tensor.Shape{}, tensor.Shape{}),
	},
	Random: func(r *rand.Rand) Case {
		s := randomShape(r, 1, 5)
		sizes := make([]int, 1+r.IntN(5))
		for i := range sizes {
			sizes[i] = 1 + r.IntN(9)
		}
		return concatCase(s, r.IntN(len(s)), sizes...)
	},
})

func concat(axis int) Build {
	return func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.Concat(axis, in...) }
}

// concatCase has inputs of a shape, with the given sizes along the axis.
func concatCase(s tensor.Shape, axis int, sizes ...int) Case {
	shapes, whole := make([]tensor.Shape, len(sizes)), slices.Clone(s)
	whole[axis] = 0
	for i, size := range sizes {
		shapes[i] = slices.Clone(s)
		shapes[i][axis] = size
		whole[axis] += size
	}
	return Case{
		Name: fmt.Sprint([]int(s), axis, sizes), Shapes: shapes, Build: concat(axis - len(s)),
		Reference: func(in ...[]float64) (out, magnitude []float64) {
			out = make([]float64, whole.TotalSize())
			index(whole, func(k int, at []int) {
				i, at := 0, slices.Clone(at)
				for ; at[axis] >= sizes[i]; i++ {
					at[axis] -= sizes[i]
				}
				out[k] = in[i][flatten(shapes[i], at, nil)]
			})
			return out, make([]float64, len(out))
		},
	}
}

var _ = register(Spec{
	Name: "Stack", Formula: "out[..., k, ...] = xₖ[...]", Doc: "Tensors one after the other along a new axis.", Generated: true, AnyType: true,
	Cases: []Case{stackCase(tensor.Shape{1}, 0, 2), stackCase(tensor.ScalarShape(), 0, 3), stackCase(tensor.Shape{3, 5}, 0, 2), stackCase(tensor.Shape{3, 5}, 1, 3), stackCase(tensor.Shape{3, 5}, 2, 2)},
	Bad: []Bad{
		bad("no inputs", stack(0), "got no inputs"),
		bad("other extents", stack(0), "input 1: got shape (3, 5), want (3, 4)", tensor.Shape{3, 4}, tensor.Shape{3, 5}),
		bad("axis too large", stack(2), "got axis 2 of shape (3, 1), want -2 <= axis < 2", tensor.Shape{3}, tensor.Shape{3}),
	},
	Random: func(r *rand.Rand) Case {
		s := randomShape(r, 0, 4)
		return stackCase(s, r.IntN(len(s)+1), 1+r.IntN(4))
	},
})

func stack(axis int) Build {
	return func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.Stack(axis, in...) }
}

func stackCase(s tensor.Shape, axis, n int) Case {
	c := concatCase(slices.Insert(slices.Clone(s), axis, 1), axis, slices.Repeat([]int{1}, n)...)
	c.Name, c.Shapes, c.Build, c.Composed = fmt.Sprint([]int(s), axis, n), slices.Repeat([]tensor.Shape{s}, n), stack(axis), true
	return c
}
