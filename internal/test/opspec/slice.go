package opspec

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// moved is a case of an op that moves elements: from returns the index of the input's element at an index of the output, or false for 0.
func moved(name string, in, out tensor.Shape, build Build, from func(at []int) (index []int, ok bool)) Case {
	return Case{
		Name: name, Shapes: []tensor.Shape{in}, Build: build,
		Reference: func(x ...[]float64) (y, magnitude []float64) {
			y = make([]float64, out.TotalSize())
			index(out, func(k int, at []int) {
				if at, ok := from(at); ok {
					y[k] = x[0][flatten(in, at, nil)]
				}
			})
			return y, make([]float64, len(y))
		},
	}
}

var _ = register(Spec{
	Name: "Slice", Formula: "out[i, j, ...] = x[start + step i, j, ...]", Doc: "A range along each axis, a view on Stheno's machine.", Generated: true, AnyType: true,
	Cases: []Case{
		sliceCase(tensor.Shape{1}, [3]int{0, 1, 1}), sliceCase(tensor.Shape{9}, [3]int{2, 7, 1}), sliceCase(tensor.Shape{9}, [3]int{2, 9, 3}), sliceCase(tensor.Shape{9}, [3]int{1, 9, 4}),
		sliceCase(tensor.Shape{3, 768}, [3]int{0, 3, 1}, [3]int{0, 256, 1}), sliceCase(tensor.Shape{3, 768}, [3]int{0, 3, 1}, [3]int{256, 512, 1}), sliceCase(tensor.Shape{3, 768}, [3]int{0, 3, 1}, [3]int{512, 768, 1}),
		sliceCase(tensor.Shape{5, 7, 4}, [3]int{1, 4, 2}, [3]int{0, 7, 1}, [3]int{3, 4, 1}), sliceCase(tensor.Shape{5, 7, 1, 4, 3}, [3]int{1, 4, 2}, [3]int{2, 7, 5}, [3]int{0, 1, 1}, [3]int{1, 3, 1}),
	},
	Bad: []Bad{
		bad("beyond the end", slice(gorgonia.S(0, 4)), "got the range 0:4:1 of axis 0 of shape (3, 4), want 0 <= start < end <= 3", tensor.Shape{3, 4}),
		bad("before the start", slice(nil, gorgonia.S(-1, 2)), "got the range -1:2", tensor.Shape{3, 4}),
		bad("empty", slice(nil, gorgonia.S(2, 2)), "got the range 2:2", tensor.Shape{3, 4}),
		bad("step below 0", slice(gorgonia.S(0, 3, -1)), "a step of 1 or more", tensor.Shape{3, 4}),
		bad("too many ranges", slice(nil, nil, nil), "got 3 ranges for shape (3, 4)", tensor.Shape{3, 4}),
	},
	Random: func(r *rand.Rand) Case {
		s := randomShape(r, 1, 5)
		ranges := make([][3]int, len(s))
		for a, d := range s {
			from := r.IntN(d)
			ranges[a] = [3]int{from, from + 1 + r.IntN(d-from), 1 + r.IntN(3)}
		}
		return sliceCase(s, ranges...)
	},
})

func slice(ranges ...tensor.Slice) Build {
	return unary(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Slice(x, ranges...) })
}

// sliceCase takes ranges of start, end and step. Several are several ops.
func sliceCase(s tensor.Shape, ranges ...[3]int) Case {
	out, list, parts := slices.Clone(s), make([]tensor.Slice, len(ranges)), 0
	for a, r := range ranges {
		list[a], out[a] = gorgonia.S(r[0], r[1], r[2]), 0
		for i := r[0]; i < r[1]; i += r[2] {
			out[a]++
		}
		if out[a] < s[a] {
			parts++
		}
	}
	c := moved(fmt.Sprint([]int(s), ranges), s, out, slice(list...), func(at []int) ([]int, bool) {
		at = slices.Clone(at)
		for a, r := range ranges {
			at[a] = r[0] + at[a]*r[2]
		}
		return at, true
	})
	c.Composed = parts != 1
	return c
}

var _ = register(Spec{
	Name: "Pad", Formula: "out[before + i] = x[i], 0 elsewhere", Doc: "Zeros before and after an axis.", Generated: true,
	Cases:   []Case{padCase(tensor.Shape{1}, 0, 1, 0), padCase(tensor.Shape{7}, 0, 2, 5), padCase(tensor.Shape{3, 5}, 0, 0, 2), padCase(tensor.Shape{3, 5}, 1, 3, 0), padCase(tensor.Shape{4, 3, 1, 5}, 2, 1, 1)},
	AnyType: true, Bad: []Bad{
		bad("fewer than no zeros", padded(0, -1, 2), "got -1 and 2 zeros", tensor.Shape{3}),
		bad("axis too large", padded(1, 1, 1), "got axis 1 of shape (3)", tensor.Shape{3}),
		bad("more elements than memory can hold", padded(0, 1<<48, 1<<48), "too many elements", tensor.Shape{3, 1 << 20}),
	},
	Random: func(r *rand.Rand) Case {
		s := randomShape(r, 1, 5)
		return padCase(s, r.IntN(len(s)), 1+r.IntN(9), r.IntN(9))
	},
})

func padded(axis, before, after int) Build {
	return unary(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Pad(x, axis, before, after) })
}

func padCase(s tensor.Shape, axis, before, after int) Case {
	out := slices.Clone(s)
	out[axis] += before + after
	return moved(fmt.Sprint([]int(s), axis, before, after), s, out, padded(axis-len(s), before, after), func(at []int) ([]int, bool) {
		at = slices.Clone(at)
		at[axis] -= before
		return at, at[axis] >= 0 && at[axis] < s[axis]
	})
}

var _ = register(Spec{
	Name: "Reshape", Formula: "out = x in another shape", Doc: "Another shape of the same elements.", Generated: true, AnyType: true,
	Cases: []Case{reshapeCase(tensor.Shape{1}), reshapeCase(tensor.Shape{6}, 2, 3), reshapeCase(tensor.Shape{2, 3, 4}, 6, -1), reshapeCase(tensor.Shape{4, 6}, 2, 2, 1, 6)},
	Bad: []Bad{
		bad("other elements", reshaped(2, 2), "got shape (3) of 3 elements, want the 4 of (2, 2)", tensor.Shape{3}),
		bad("two free extents", reshaped(-1, -1), "at most one -1", tensor.Shape{3}),
		bad("free extent that does not divide", reshaped(2, -1), "ops: Reshape[2 -1]: got shape (3) of 3 elements, want extents of 1 or more whose product divides it", tensor.Shape{3}),
		bad("free extent beside none", reshaped(0, -1), "want extents of 1 or more", tensor.Shape{3}),
	},
	Random: func(r *rand.Rand) Case {
		s := randomShape(r, 1, 5)
		return reshapeCase(s, s.TotalSize())
	},
})

func reshaped(shape ...int) Build {
	return unary(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Reshape(x, shape...) })
}

func reshapeCase(s tensor.Shape, to ...int) Case {
	n := s.TotalSize()
	return moved(fmt.Sprint([]int(s), to), s, tensor.Shape{n}, reshaped(to...), func(at []int) (index []int, ok bool) {
		index = make([]int, len(s))
		for a, k := len(s)-1, at[0]; a >= 0; a-- {
			index[a], k = k%s[a], k/s[a]
		}
		return index, true
	})
}

var _ = register(Spec{
	Name: "Permute", Formula: "out[..., i, ...] = x[..., i, ...], axes in another order", Doc: "Axes in another order, a view on Stheno's machine.", Generated: true, AnyType: true,
	Cases: []Case{permuteCase(tensor.Shape{1}, 0), permuteCase(tensor.Shape{3, 5}, 1, 0), permuteCase(tensor.Shape{2, 3, 4}, 2, 0, 1), permuteCase(tensor.Shape{2, 7, 1, 4, 3}, 0, 3, 2, 4, 1)},
	Bad: []Bad{
		bad("axis twice", permuted(0, 0), "got axis 0 twice", tensor.Shape{3, 4}),
		bad("too few axes", permuted(0), "got 1 axes for shape (3, 4), want each axis once", tensor.Shape{3, 4}),
		bad("axis too large", permuted(0, 2), "got axis 2 of shape (3, 4)", tensor.Shape{3, 4}),
	},
	Random: func(r *rand.Rand) Case {
		s := randomShape(r, 1, 5)
		return permuteCase(s, r.Perm(len(s))...)
	},
})

func permuted(axes ...int) Build {
	return unary(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Permute(x, axes...) })
}

func permuteCase(s tensor.Shape, axes ...int) Case {
	out := make(tensor.Shape, len(s))
	for i, a := range axes {
		out[i] = s[a]
	}
	return moved(fmt.Sprint([]int(s), axes), s, out, permuted(axes...), func(at []int) (index []int, ok bool) {
		index = make([]int, len(s))
		for i, a := range axes {
			index[a] = at[i]
		}
		return index, true
	})
}
