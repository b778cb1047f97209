//go:build cuda

package tape_test

import (
	"fmt"
	"math"
	"reflect"

	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// This file has the graphs of the programs of breakage_test.go.

// model is a graph with leaves, a cost, and the nodes whose values count.
type model struct {
	g      *G.ExprGraph
	leaves G.Nodes
	out    G.Nodes
	grads  bool
}

func input(g *G.ExprGraph, name string, shape ...int) *G.Node {
	return inputOf(g, tensor.Float64, name, shape...)
}

func inputOf(g *G.ExprGraph, dt tensor.Dtype, name string, shape ...int) *G.Node {
	x := tensor.New(tensor.Of(dt), tensor.WithShape(shape...))
	for i := range x.Shape().TotalSize() {
		v := math.Sin(float64(i+len(name)+int(name[0]))) / 2
		x.Set(i, reflect.ValueOf(v).Convert(dt.Type).Interface())
	}
	return G.NewTensor(g, dt, len(shape), G.WithName(name), G.WithShape(shape...), G.WithValue(x))
}

func add() model {
	g := G.NewGraph()
	x, y := input(g, "x", 1000), input(g, "y", 1000)
	return model{g: g, leaves: G.Nodes{x, y}, out: G.Nodes{ok(ops.Add(x, y))}}
}

func sthenoLoss() model {
	g := G.NewGraph()
	x, w := input(g, "x", 5, 7), input(g, "w", 7, 3)
	cost := ok(ops.Sum(ok(G.Tanh(ok(ops.MatMul(x, w))))))
	return model{g: g, leaves: G.Nodes{x, w}, out: G.Nodes{cost}, grads: true}
}

func sthenoOnly() model {
	g := G.NewGraph()
	x, w := input(g, "x", 5, 7), input(g, "w", 7, 3)
	y := ok(ops.MatMul(x, w))
	cost := ok(ops.Sum(ok(ops.Add(y, y))))
	return model{g: g, leaves: G.Nodes{x, w}, out: G.Nodes{cost}, grads: true}
}

func gorgoniaLoss() model {
	g := G.NewGraph()
	x, w := input(g, "x", 5, 7), input(g, "w", 7, 3)
	cost := ok(G.Sum(ok(G.Tanh(ok(G.Mul(x, w))))))
	return model{g: g, leaves: G.Nodes{x, w}, out: G.Nodes{cost}, grads: true}
}

func gSum() model {
	g := G.NewGraph()
	x := input(g, "x", 5, 7)
	return model{g: g, leaves: G.Nodes{x}, out: G.Nodes{ok(G.Sum(ok(G.Tanh(x))))}}
}

func gTanh() model {
	g := G.NewGraph()
	x := input(g, "x", 5, 7)
	return model{g: g, leaves: G.Nodes{x}, out: G.Nodes{ok(G.Tanh(x))}}
}

func gSumOnly() model {
	g := G.NewGraph()
	x := input(g, "x", 5, 7)
	return model{g: g, leaves: G.Nodes{x}, out: G.Nodes{ok(G.Sum(x))}}
}

// many queues more CUDA calls than the machine's queue has room for.
func many() model {
	g := G.NewGraph()
	x, z := input(g, "x", 10), input(g, "z", 10)
	for range 100 {
		x = ok(G.Add(x, z))
	}
	return model{g: g, leaves: G.Nodes{z}, out: G.Nodes{x}}
}

// scalars are all alive at a time.
func scalars() model {
	g := G.NewGraph()
	var xs G.Nodes
	for i := range 60 {
		x := G.NewScalar(g, tensor.Float64, G.WithName(fmt.Sprint("x", i)), G.WithValue(float64(i)))
		xs = append(xs, ok(ops.Add(x, x)))
	}
	sum := xs[0]
	for _, x := range xs[1:] {
		sum = ok(ops.Add(sum, x))
	}
	return model{g: g, out: G.Nodes{sum}}
}

func gSumAxis() model {
	g := G.NewGraph()
	x := input(g, "x", 5, 7)
	return model{g: g, leaves: G.Nodes{x}, out: G.Nodes{ok(G.Sum(ok(G.Tanh(x)), 0))}}
}

func gMulVectors() model {
	g := G.NewGraph()
	x, w := input(g, "x", 7), input(g, "w", 7)
	return model{g: g, leaves: G.Nodes{x, w}, out: G.Nodes{ok(G.Mul(x, w))}}
}

func gMul() model {
	g := G.NewGraph()
	x, w := input(g, "x", 5, 7), input(g, "w", 7, 3)
	return model{g: g, leaves: G.Nodes{x, w}, out: G.Nodes{ok(G.Mul(x, w))}}
}

func mixed() model {
	g := G.NewGraph()
	x, y, w := input(g, "x", 6, 9), input(g, "y", 6, 9), input(g, "w", 9, 4)
	h := ok(G.Add(ok(G.HadamardProd(x, y)), ok(G.Tanh(x))))
	h = ok(G.Sub(h, ok(G.Sigmoid(y))))
	h = ok(G.HadamardDiv(h, ok(G.Exp(y))))
	z := ok(G.Square(ok(ops.MatMul(h, w))))
	cost := ok(ops.Mean(z))
	return model{g: g, leaves: G.Nodes{x, y, w}, out: G.Nodes{h, z, cost}, grads: true}
}

// unary has every function of one operand, of numbers where all are finite.
func unary(dt tensor.Dtype) func() model {
	return func() model {
		g := G.NewGraph()
		x := inputOf(g, dt, "x", 77)
		p := ok(ops.Add(ok(G.Square(x)), ok(G.Exp(x)))) // positive
		m := model{g: g, leaves: G.Nodes{x}}
		for _, f := range []func(*G.Node) (*G.Node, error){G.Abs, G.Sign, G.Ceil, G.Floor, G.Sin, G.Cos, G.Exp, G.Log, G.Log2,
			G.Neg, G.Square, G.Sqrt, G.Inverse, G.InverseSqrt, G.Cube, G.Tanh, G.Sigmoid, G.Log1p, G.Expm1, G.Softplus} {
			m.out = append(m.out, ok(f(p)))
		}
		return m
	}
}

// binary has every function of two operands, of vectors and scalars in all
// combinations.
func binary(dt tensor.Dtype) func() model {
	return func() model {
		g := G.NewGraph()
		x, y, s, r := inputOf(g, dt, "x", 77), inputOf(g, dt, "y", 77), scalarOf(g, dt, "s", 0.25), scalarOf(g, dt, "r", 0.75)
		m := model{g: g, leaves: G.Nodes{x, y}}
		p, q := ok(G.Exp(x)), ok(G.Exp(s)) // positive
		for _, f := range []func(a, b *G.Node) (*G.Node, error){G.Add, G.Sub, G.HadamardProd, G.HadamardDiv, G.Pow} {
			for _, a := range (G.Nodes{p, q}) {
				for _, b := range (G.Nodes{y, r}) {
					m.out = append(m.out, ok(f(a, b)))
				}
			}
		}
		for _, f := range []func(a, b *G.Node, same bool) (*G.Node, error){G.Lt, G.Lte, G.Gt, G.Gte, G.Eq, G.Ne} {
			for _, a := range (G.Nodes{x, s}) {
				for _, b := range (G.Nodes{y, r}) {
					m.out = append(m.out, ok(f(a, b, true)))
				}
			}
		}
		return m
	}
}

func scalarOf(g *G.ExprGraph, dt tensor.Dtype, name string, v float64) *G.Node {
	return G.NewScalar(g, dt, G.WithName(name), G.WithValue(reflect.ValueOf(v).Convert(dt.Type).Interface()))
}

// strided has a transposed, a sliced and a column-major input.
func strided() model {
	g := G.NewGraph()
	count := func(n int) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = float64(i) - 7.5
		}
		return x
	}
	transposed := tensor.New(tensor.WithShape(7, 5), tensor.WithBacking(count(35)))
	panicOn(transposed.T())
	sliced := ok(tensor.New(tensor.WithShape(9, 8), tensor.WithBacking(count(72))).Slice(tensor.S(2, 7), tensor.S(1, 8))).(*tensor.Dense)
	columns := tensor.New(tensor.WithShape(5, 7), tensor.AsFortran(count(35)))
	var in G.Nodes
	for i, v := range []*tensor.Dense{transposed, sliced, columns} {
		in = append(in, G.NewMatrix(g, tensor.Float64, G.WithName(fmt.Sprint("x", i)), G.WithShape(5, 7), G.WithValue(v)))
	}
	sum := ok(ops.Add(ok(G.Tanh(in[0])), in[1]))
	return model{g: g, leaves: in, out: G.Nodes{ok(ops.Add(sum, in[2]))}}
}

func sthenoLoss0() model {
	m := sthenoOnly()
	m.grads = false
	return m
}

func sumOnly() model {
	g := G.NewGraph()
	x := input(g, "x", 5, 7)
	return model{g: g, leaves: G.Nodes{x}, out: G.Nodes{ok(ops.Sum(x))}}
}

func integers() model {
	g := G.NewGraph()
	a := G.NewScalar(g, tensor.Int, G.WithName("a"), G.WithValue(6))
	b := G.NewScalar(g, tensor.Int, G.WithName("b"), G.WithValue(7))
	return model{g: g, leaves: G.Nodes{a, b}, out: G.Nodes{ok(G.Mul(a, b))}}
}

// lessTensors has an op before the comparison and one beside it.
func lessTensors() model {
	g := G.NewGraph()
	x, y := input(g, "x", 77), input(g, "y", 77)
	h := ok(G.Tanh(x))
	return model{g: g, leaves: G.Nodes{x, y}, out: G.Nodes{ok(G.Lt(h, y, false)), ok(G.Add(h, y))}}
}

func lessScalars() model {
	g := G.NewGraph()
	s, r := scalarOf(g, tensor.Float64, "s", 0.25), scalarOf(g, tensor.Float64, "r", 0.75)
	return model{g: g, out: G.Nodes{ok(G.Lt(s, r, false)), ok(G.Gt(s, r, false))}}
}

func gAdd() model {
	g := G.NewGraph()
	x, y := input(g, "x", 77), input(g, "y", 77)
	return model{g: g, leaves: G.Nodes{x, y}, out: G.Nodes{ok(G.Add(x, y))}}
}

// squares sums the squares of a product up.
func squares(x, w, product *G.Node) model {
	return model{g: x.Graph(), leaves: G.Nodes{x, w}, out: G.Nodes{product, ok(ops.Sum(ok(ops.Add(product, ok(G.Square(product))))))}, grads: true}
}

func gMatVec() model {
	g := G.NewGraph()
	x, w := input(g, "x", 5, 7), input(g, "w", 7)
	return squares(x, w, ok(G.Mul(x, w)))
}

// gOuter has no gradients: Gorgonia's own for it has a wrong shape on any machine.
func gOuter() model {
	g := G.NewGraph()
	x, w := input(g, "x", 5), input(g, "w", 7)
	return model{g: g, leaves: G.Nodes{x, w}, out: G.Nodes{ok(G.OuterProd(x, w))}}
}

func gBatched() model {
	g := G.NewGraph()
	x, w := input(g, "x", 4, 5, 7), input(g, "w", 4, 7, 3)
	return squares(x, w, ok(G.BatchedMatMul(x, w)))
}
