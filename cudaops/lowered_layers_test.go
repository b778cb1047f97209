package cudaops

import (
	"fmt"
	"math"
	"slices"

	G "gorgonia.org/gorgonia"
)

// activations are the functions that follow a product and its bias, by name.
var activations = map[string]struct {
	node func(*G.Node) (*G.Node, error)
	f    func(float64) float64
}{
	"rectifier": {G.Rectify, func(x float64) float64 { return max(x, 0) }},
	"tanh":      {G.Tanh, math.Tanh},
	"sigmoid":   {G.Sigmoid, func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }},
	"none":      {func(x *G.Node) (*G.Node, error) { return x, nil }, func(x float64) float64 { return x }},
}

// layerCases are products with everything that can be fused into them: biases, activations, sums with
// another operand and with another product; one layer, and a second one behind it, whose
// gradient goes through the first. Sums of many terms are made in parts on a GPU.
func layerCases() (list []lowered) {
	matrices := func(m, k, n int, shapes ...[]int) [][]int { return append([][]int{{m, k}, {k, n}}, shapes...) }
	bias := func(x array, b array, along int) array {
		return generate(x.shape, func(i []int) float64 { return x.at(i...) + b.at(i[1-along]) })
	}
	for name, a := range activations {
		for _, s := range [][3]int{{3, 4, 5}, {17, 9, 33}, {1, 6, 7}, {7, 6, 1}, {3, 1, 2}, {4, 3000, 3}} {
			m, k, n := s[0], s[1], s[2]
			for along := range 2 {
				list = append(list, lowered{
					name: fmt.Sprintf("layer of %v, bias along %d, %s", s, along, name), shapes: matrices(m, k, n, []int{[]int{n, m}[along]}), noGradient: m*k*n > 1000, // it takes long
					build: func(x ...*G.Node) (*G.Node, error) {
						return a.node(G.Must(G.BroadcastAdd(G.Must(G.Mul(x[0], x[1])), x[2], nil, []byte{byte(along)})))
					},
					ref: func(x ...array) array {
						return bias(contract(x[0], x[1], []int{1}, []int{0}), x[2], along).apply(a.f)
					},
				})
			}
		}
		list = append(list, lowered{
			name: "two layers, " + name, shapes: matrices(5, 4, 6, []int{6}, []int{6, 3}),
			build: func(x ...*G.Node) (*G.Node, error) {
				h := G.Must(a.node(G.Must(G.BroadcastAdd(G.Must(G.Mul(x[0], x[1])), x[2], nil, []byte{0}))))
				return G.Square(G.Must(G.Mul(h, x[3])))
			},
			ref: func(x ...array) array {
				h := bias(contract(x[0], x[1], []int{1}, []int{0}), x[2], 0).apply(a.f)
				return contract(h, x[3], []int{1}, []int{0}).apply(func(v float64) float64 { return v * v })
			},
		}, lowered{
			name: "sum of two products and a matrix, " + name, shapes: matrices(5, 4, 6, []int{5, 6}, []int{6, 7}, []int{5, 7}),
			build: func(x ...*G.Node) (*G.Node, error) {
				first := G.Must(a.node(G.Must(G.Mul(x[0], x[1]))))
				second := G.Must(G.Mul(G.Must(G.Tanh(G.Must(G.Add(first, x[2])))), x[3]))
				return a.node(G.Must(G.Add(x[4], second)))
			},
			ref: func(x ...array) array {
				first := contract(x[0], x[1], []int{1}, []int{0}).apply(a.f)
				second := contract(first.plus(x[2]).apply(math.Tanh), x[3], []int{1}, []int{0})
				return x[4].plus(second).apply(a.f)
			},
		})
	}
	return append(list, lowered{
		name: "a weight used twice", shapes: [][]int{{3, 4}, {4, 4}},
		build: func(x ...*G.Node) (*G.Node, error) {
			return G.Square(G.Must(G.Mul(G.Must(G.Mul(x[0], x[1])), x[1])))
		},
		ref: func(x ...array) array {
			return contract(contract(x[0], x[1], []int{1}, []int{0}), x[1], []int{1}, []int{0}).apply(func(v float64) float64 { return v * v })
		},
	}, lowered{
		name: "batches and a matrix", shapes: [][]int{{3, 4, 5}, {3, 5, 6}, {3, 4, 6}},
		build: func(x ...*G.Node) (*G.Node, error) {
			return G.Tanh(G.Must(G.Sub(G.Must(G.BatchedMatMul(x[0], x[1])), x[2])))
		},
		ref: func(x ...array) array {
			return batched(x[0], x[1], false, false).plus(x[2].apply(func(v float64) float64 { return -v })).apply(math.Tanh)
		},
	}, lowered{
		name: "product times a transpose", shapes: [][]int{{3, 4}, {4, 5}, {5, 3}},
		build: func(x ...*G.Node) (*G.Node, error) {
			return G.HadamardProd(G.Must(G.Mul(x[0], x[1])), G.Must(G.Transpose(x[2])))
		},
		ref: func(x ...array) array {
			y := contract(x[0], x[1], []int{1}, []int{0})
			return generate(y.shape, func(i []int) float64 { return y.at(i...) * x[2].at(i[1], i[0]) })
		},
	})
}

// plus returns the sum of two arrays.
func (a array) plus(b array) array {
	sum := array{a.shape, slices.Clone(a.v)}
	for i, v := range b.v {
		sum.v[i] += v
	}
	return sum
}
