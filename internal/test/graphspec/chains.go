package graphspec

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// chains are the element-wise programs at the sizes that are timed.
func chains() (cases []Case) {
	cases = append(cases, Chain("map tanh(a*b)+c", 1<<16))
	for _, name := range []string{"chain of 2", "chain of 5", "chain of 10"} {
		cases = append(cases, Chain(name, 1<<14), Chain(name, 1<<16))
	}
	return cases
}

// chained are element-wise programs of vectors a, b and c by name.
var chained = map[string]struct {
	ops   int64
	build func(a, b, c *G.Node) *G.Node
	f     func(a, b, c float64) float64
}{
	"map tanh(a*b)+c": {
		3, func(a, b, c *G.Node) *G.Node { return G.Must(ops.Map("tanh(a*b) + c", a, b, c)) },
		func(a, b, c float64) float64 { return math.Tanh(a*b) + c },
	},
	"chain of 2": {
		2, func(a, b, c *G.Node) *G.Node { return G.Must(G.Add(G.Must(G.HadamardProd(a, b)), c)) },
		func(a, b, c float64) float64 { return a*b + c },
	},
	"chain of 5": {
		5, func(a, b, c *G.Node) *G.Node {
			gate := G.Must(G.Sigmoid(G.Must(G.HadamardProd(a, b))))
			return G.Must(G.Add(G.Must(G.HadamardProd(gate, G.Must(G.Tanh(c)))), a))
		},
		func(a, b, c float64) float64 { return sigmoid(a*b)*math.Tanh(c) + a },
	},
	"chain of 10": {
		10, func(a, b, c *G.Node) *G.Node {
			gate := G.Must(G.Sigmoid(G.Must(G.Add(G.Must(G.Tanh(G.Must(G.HadamardProd(a, b)))), c))))
			bell := G.Must(G.Exp(G.Must(G.Neg(G.Must(G.Square(G.Must(G.HadamardProd(gate, a))))))))
			return G.Must(G.Add(G.Must(G.HadamardProd(bell, b)), c))
		},
		func(a, b, c float64) float64 {
			x := sigmoid(math.Tanh(a*b)+c) * a
			return math.Exp(-x*x)*b + c
		},
	},
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// Chain is an element-wise program, by its name, on vectors of a number of rows of 4096
// elements.
func Chain(name string, rows int) Case {
	const row = 4096
	p, n := chained[name], rows*row
	c := Case{
		Name: name, Size: fmt.Sprint(n), Rows: rows, Flops: p.ops * int64(n), Tolerance: 1e-5,
		Outputs: []Output{{Name: "out", Elements: row}},
		Build:   func(in G.Nodes) G.Nodes { return G.Nodes{p.build(in[0], in[1], in[2])} },
		Row: func(in, out [][]float64, _ *Decisions) {
			for i := range out[0] {
				out[0][i] = p.f(in[0][i], in[1][i], in[2][i])
			}
		},
	}
	if n&(n-1) == 0 {
		c.Size = fmt.Sprintf("2^%d", int(math.Log2(float64(n))))
	}
	for _, input := range []string{"a", "b", "c"} {
		c.Inputs = append(c.Inputs, Input{Name: input, Shape: tensor.Shape{n}})
	}
	return c
}
