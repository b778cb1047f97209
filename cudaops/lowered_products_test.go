package cudaops

import (
	"fmt"
	"slices"

	G "gorgonia.org/gorgonia"
)

// contract returns sums of products along axes of either array, for each index along the
// others.
func contract(a, b array, sumA, sumB []int) array {
	var shape, freeA, freeB []int
	for i, d := range a.shape {
		if !slices.Contains(sumA, i) {
			freeA, shape = append(freeA, i), append(shape, d)
		}
	}
	for i, d := range b.shape {
		if !slices.Contains(sumB, i) {
			freeB, shape = append(freeB, i), append(shape, d)
		}
	}
	var inner []int
	for _, axis := range sumA {
		inner = append(inner, a.shape[axis])
	}
	indexA, indexB := make([]int, len(a.shape)), make([]int, len(b.shape))
	return generate(shape, func(index []int) (sum float64) {
		for i, axis := range freeA {
			indexA[axis] = index[i]
		}
		for i, axis := range freeB {
			indexB[axis] = index[len(freeA)+i]
		}
		each(inner, func(k []int) {
			for i := range k {
				indexA[sumA[i]], indexB[sumB[i]] = k[i], k[i]
			}
			sum += a.at(indexA...) * b.at(indexB...)
		})
		return sum
	})
}

// flat returns the array as a vector.
func (a array) flat() array { return array{[]int{len(a.v)}, a.v} }

// transposed returns the array with its axes in another order.
func (a array) transposed(pattern ...int) array {
	shape := make([]int, len(pattern))
	for i, p := range pattern {
		shape[i] = a.shape[p]
	}
	from := make([]int, len(pattern))
	return generate(shape, func(index []int) float64 {
		for i, p := range pattern {
			from[p] = index[i]
		}
		return a.at(from...)
	})
}

// batched returns the products of matrices of a batch, either transposed or not.
func batched(a, b array, transA, transB bool) array {
	n := len(a.shape)
	swap := upTo(n)
	swap[n-2], swap[n-1] = n-1, n-2
	if transA {
		a = a.transposed(swap...)
	}
	if transB {
		b = b.transposed(swap...)
	}
	shape := slices.Clone(a.shape)
	shape[n-1] = b.shape[n-1]
	return generate(shape, func(index []int) (sum float64) {
		at, bt := slices.Clone(index), slices.Clone(index)
		for k := range a.shape[n-1] {
			at[n-1], bt[n-2] = k, k
			sum += a.at(at...) * b.at(bt...)
		}
		return sum
	})
}

func upTo(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// productCases are Mul in all its forms, outer products and batches, and layers.
func productCases() (list []lowered) {
	mul := func(a, b []int, sumA, sumB []int) lowered {
		return lowered{
			name: fmt.Sprintf("%v times %v", a, b), shapes: [][]int{a, b},
			build: func(x ...*G.Node) (*G.Node, error) { return G.Mul(x[0], x[1]) },
			ref:   func(x ...array) array { return contract(x[0], x[1], sumA, sumB) },
		}
	}
	list = append(layerCases(),
		mul([]int{3, 4}, []int{4, 5}, []int{1}, []int{0}), mul([]int{1, 4}, []int{4, 5}, []int{1}, []int{0}),
		mul([]int{3, 4}, []int{4, 1}, []int{1}, []int{0}), mul([]int{1, 1}, []int{1, 1}, []int{1}, []int{0}),
		mul([]int{3, 4}, []int{4}, []int{1}, []int{0}), mul([]int{4}, []int{4, 5}, []int{0}, []int{0}),
		mul([]int{6}, []int{6}, []int{0}, []int{0}), mul([]int{9, 17}, []int{17, 10}, []int{1}, []int{0}))
	for _, trans := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
		for _, batch := range [][]int{{2}, {2, 3}} {
			shapes := [][]int{append(slices.Clone(batch), 3, 4), append(slices.Clone(batch), 4, 5)}
			for i := range shapes {
				if s := shapes[i]; trans[i] {
					s[len(s)-2], s[len(s)-1] = s[len(s)-1], s[len(s)-2]
				}
			}
			list = append(list, lowered{
				name: fmt.Sprintf("batch of %v times %v", shapes[0], shapes[1]), shapes: shapes,
				build: func(x ...*G.Node) (*G.Node, error) { return G.BatchedMatMul(x[0], x[1], trans[0], trans[1]) },
				ref:   func(x ...array) array { return batched(x[0], x[1], trans[0], trans[1]) },
			})
		}
	}
	return append(list, lowered{
		name: "column times row", shapes: [][]int{{4, 1}, {1, 3}},
		build: func(x ...*G.Node) (*G.Node, error) { return G.Mul(x[0], x[1]) },
		ref:   func(x ...array) array { return contract(x[0], x[1], []int{1}, []int{0}) },
	}, lowered{
		name: "outer product", shapes: [][]int{{3}, {5}}, noGradient: true, // Gorgonia's is wrong
		build: func(x ...*G.Node) (*G.Node, error) { return G.OuterProd(x[0], x[1]) },
		ref:   func(x ...array) array { return contract(x[0], x[1], nil, nil) },
	}, lowered{
		name: "product of transposes", shapes: [][]int{{4, 3}, {5, 4}},
		build: func(x ...*G.Node) (*G.Node, error) {
			return G.Mul(G.Must(G.Transpose(x[0])), G.Must(G.Transpose(x[1])))
		},
		ref: func(x ...array) array { return contract(x[0], x[1], []int{0}, []int{1}) },
	}, lowered{
		name: "product of a slice", shapes: [][]int{{4, 7}, {3, 5}},
		build: func(x ...*G.Node) (*G.Node, error) { return G.Mul(G.Must(G.Slice(x[0], nil, G.S(2, 5))), x[1]) },
		ref: func(x ...array) array {
			return contract(generate([]int{4, 3}, func(i []int) float64 { return x[0].at(i[0], i[1]+2) }), x[1], []int{1}, []int{0})
		},
	}, lowered{
		name: "batch of transposes", shapes: [][]int{{4, 2, 3}, {5, 3, 2}},
		build: func(x ...*G.Node) (*G.Node, error) {
			return G.BatchedMatMul(G.Must(G.Transpose(x[0], 1, 0, 2)), G.Must(G.Transpose(x[1], 2, 1, 0)))
		},
		ref: func(x ...array) array {
			return batched(x[0].transposed(1, 0, 2), x[1].transposed(2, 1, 0), false, false)
		},
	})
}

// contractionCases are Tensordots.
func contractionCases() (list []lowered) {
	for _, c := range []struct{ a, b, sumA, sumB []int }{
		{[]int{3, 4}, []int{4, 5}, []int{1}, []int{0}},
		{[]int{4, 3}, []int{5, 4}, []int{0}, []int{1}},
		{[]int{2, 3, 4}, []int{4, 5}, []int{2}, []int{0}},
		{[]int{2, 3, 4}, []int{3, 5}, []int{1}, []int{0}},
		{[]int{2, 3, 4}, []int{5, 3, 2}, []int{0, 1}, []int{2, 1}},
		{[]int{2, 3, 4}, []int{4, 3, 5}, []int{2, 1}, []int{0, 1}},
		{[]int{2, 3, 4}, []int{3, 4, 2}, []int{1, 2, 0}, []int{0, 1, 2}},
		{[]int{4}, []int{4}, []int{0}, []int{0}},
		{[]int{4}, []int{4, 3}, []int{0}, []int{0}},
		{[]int{2, 4}, []int{4}, []int{1}, []int{0}},
	} {
		list = append(list, lowered{
			name: fmt.Sprintf("tensordot of %v along %v and %v along %v", c.a, c.sumA, c.b, c.sumB), shapes: [][]int{c.a, c.b},
			build: func(x ...*G.Node) (*G.Node, error) { return G.Tensordot(c.sumA, c.sumB, x[0], x[1]) },
			ref: func(x ...array) array {
				out := contract(x[0], x[1], c.sumA, c.sumB)
				if len(out.shape) == 0 {
					out.shape = []int{1} // as Gorgonia returns it
				}
				return out
			},
		})
	}
	return list
}
