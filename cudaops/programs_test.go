package cudaops

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A program is one as people write it for gorgonia.NewTapeMachine: a graph, the
// parameters that a solver trains, the cost, the variables of Read, and the values bound
// to inputs before each step.
type gorgoniaProgram struct {
	g      *G.ExprGraph
	params G.Nodes
	cost   *G.Node
	reads  []*G.Value
	feed   func(step int)
}

// programs are typical ones, made of Gorgonia's ops, of Stheno's and of both.
var programs = map[string]func(t *testing.T) gorgoniaProgram{
	"linear regression": func(t *testing.T) gorgoniaProgram {
		node, r, g := testutil.Get[*G.Node](t), rand.New(rand.NewPCG(1, 1)), G.NewGraph()
		x := G.NewVector(g, tensor.Float64, G.WithName("x"), G.WithShape(20))
		y := G.NewVector(g, tensor.Float64, G.WithName("y"), G.WithShape(20))
		m := G.NewScalar(g, tensor.Float64, G.WithName("m"), G.WithValue(0.3))
		c := G.NewScalar(g, tensor.Float64, G.WithName("c"), G.WithValue(-0.1))
		pred := node(G.Add(node(G.Mul(x, m)), c))
		cost := node(G.Mean(node(G.Square(node(G.Sub(pred, y))))))
		testutil.Get[G.Nodes](t)(G.Grad(cost, m, c))
		return gorgoniaProgram{g, G.Nodes{m, c}, cost, nil, func(int) {
			xs := draw(r, tensor.Float64, 20)
			ys := xs.Clone().(*tensor.Dense)
			for i, v := range ys.Float64s() {
				ys.Float64s()[i] = 2*v + 1
			}
			testutil.Do(t, G.Let(x, xs))
			testutil.Do(t, G.Let(y, ys))
		}}
	},
	"logistic regression": func(t *testing.T) gorgoniaProgram {
		const n, feats = 40, 5
		node, r, g := testutil.Get[*G.Node](t), rand.New(rand.NewPCG(1, 2)), G.NewGraph()
		x := G.NewMatrix(g, tensor.Float64, G.WithName("x"), G.WithShape(n, feats))
		y := G.NewVector(g, tensor.Float64, G.WithName("y"), G.WithShape(n))
		w := G.NewVector(g, tensor.Float64, G.WithName("w"), G.WithShape(feats), G.WithValue(draw(r, tensor.Float64, feats)))
		b := G.NewScalar(g, tensor.Float64, G.WithName("b"), G.WithValue(0.5))
		one := G.NewConstant(1.0)
		prob := node(G.Sigmoid(node(G.Add(node(G.Mul(x, w)), b))))
		pred := node(G.Gt(prob, G.NewConstant(0.5), false)) // of bool
		var predicted G.Value
		G.Read(pred, &predicted)
		first := node(G.HadamardProd(node(G.Neg(y)), node(G.Log(prob))))
		second := node(G.HadamardProd(node(G.Sub(one, y)), node(G.Log(node(G.Sub(one, prob))))))
		loss := node(G.Mean(node(G.Sub(first, second))))
		cost := node(G.Add(loss, node(G.Mul(G.NewConstant(0.01), node(G.Sum(node(G.Square(w))))))))
		testutil.Get[G.Nodes](t)(G.Grad(cost, w, b))
		return gorgoniaProgram{g, G.Nodes{w, b}, cost, []*G.Value{&predicted}, func(int) {
			ys := make([]float64, n)
			for i := range ys {
				ys[i] = float64(r.IntN(2))
			}
			testutil.Do(t, G.Let(x, draw(r, tensor.Float64, n, feats)))
			testutil.Do(t, G.Let(y, vector(ys...)))
		}}
	},
	// As Gorgonia's own example for MNIST, with smaller layers and no dropout,
	// whose random numbers no two machines share.
	"convolutions": func(t *testing.T) gorgoniaProgram {
		const n = 3
		node, r, g := testutil.Get[*G.Node](t), rand.New(rand.NewPCG(1, 3)), G.NewGraph()
		x := G.NewTensor(g, tensor.Float64, 4, G.WithName("x"), G.WithShape(n, 1, 12, 12))
		y := G.NewMatrix(g, tensor.Float64, G.WithName("y"), G.WithShape(n, 4))
		w0 := G.NewTensor(g, tensor.Float64, 4, G.WithName("w0"), G.WithShape(2, 1, 3, 3), G.WithValue(draw(r, tensor.Float64, 2, 1, 3, 3)))
		w1 := G.NewTensor(g, tensor.Float64, 4, G.WithName("w1"), G.WithShape(3, 2, 3, 3), G.WithValue(draw(r, tensor.Float64, 3, 2, 3, 3)))
		w2 := G.NewMatrix(g, tensor.Float64, G.WithName("w2"), G.WithShape(3*3*3, 4), G.WithValue(draw(r, tensor.Float64, 27, 4)))
		layer := func(x, w *G.Node) *G.Node {
			c := node(G.Rectify(node(G.Conv2d(x, w, tensor.Shape{3, 3}, []int{1, 1}, []int{1, 1}, []int{1, 1}))))
			return node(G.MaxPool2D(c, tensor.Shape{2, 2}, []int{0, 0}, []int{2, 2}))
		}
		h := node(G.Reshape(layer(layer(x, w0), w1), tensor.Shape{n, 27}))
		out := node(G.SoftMax(node(G.Mul(h, w2))))
		cost := node(G.Neg(node(G.Mean(node(G.HadamardProd(out, y))))))
		var predicted, costRead G.Value
		G.Read(out, &predicted)
		G.Read(cost, &costRead)
		testutil.Get[G.Nodes](t)(G.Grad(cost, w0, w1, w2))
		return gorgoniaProgram{g, G.Nodes{w0, w1, w2}, cost, []*G.Value{&predicted, &costRead}, func(step int) {
			ys := make([]float64, n*4)
			for i := range n {
				ys[i*4+(i+step)%4] = 1
			}
			testutil.Do(t, G.Let(x, draw(r, tensor.Float64, n, 1, 12, 12)))
			testutil.Do(t, G.Let(y, tensor.New(tensor.WithShape(n, 4), tensor.WithBacking(ys))))
		}}
	},
	"batch norm": func(t *testing.T) gorgoniaProgram {
		const n = 4
		node, r, g := testutil.Get[*G.Node](t), rand.New(rand.NewPCG(1, 4)), G.NewGraph()
		x := G.NewTensor(g, tensor.Float64, 4, G.WithName("x"), G.WithShape(n, 2, 3, 3))
		scale := G.NewTensor(g, tensor.Float64, 4, G.WithName("scale"), G.WithShape(n, 2, 3, 3), G.WithValue(draw(r, tensor.Float64, n, 2, 3, 3)))
		bias := G.NewTensor(g, tensor.Float64, 4, G.WithName("bias"), G.WithShape(n, 2, 3, 3), G.WithValue(draw(r, tensor.Float64, n, 2, 3, 3)))
		w := G.NewMatrix(g, tensor.Float64, G.WithName("w"), G.WithShape(18, 5), G.WithValue(draw(r, tensor.Float64, 18, 5)))
		h, gamma, beta, _, err := G.BatchNorm(x, scale, bias, 0.9, 1e-5)
		testutil.Do(t, err)
		out := node(ops.MatMul(node(G.Reshape(node(G.Tanh(h)), tensor.Shape{n, 18})), w))
		cost := node(ops.Mean(node(G.Square(out))))
		_, _ = gamma, beta
		testutil.Get[G.Nodes](t)(G.Grad(cost, scale, bias, w))
		return gorgoniaProgram{g, G.Nodes{scale, bias, w}, cost, nil, func(int) {
			testutil.Do(t, G.Let(x, draw(r, tensor.Float64, n, 2, 3, 3)))
		}}
	},
	// A recurrence: a state that is read after each run and bound before the next.
	"recurrence": func(t *testing.T) gorgoniaProgram {
		const n = 6
		node, r, g := testutil.Get[*G.Node](t), rand.New(rand.NewPCG(1, 5)), G.NewGraph()
		vec := func(name string) *G.Node {
			return G.NewVector(g, tensor.Float64, G.WithName(name), G.WithShape(n))
		}
		x, state := vec("x"), vec("state")
		w := G.NewMatrix(g, tensor.Float64, G.WithName("w"), G.WithShape(n, 2*n), G.WithValue(draw(r, tensor.Float64, n, 2*n)))
		u := G.NewMatrix(g, tensor.Float64, G.WithName("u"), G.WithShape(n, n), G.WithValue(draw(r, tensor.Float64, n, n)))
		next := node(G.Tanh(node(ops.MatMul(w, node(G.Concat(0, x, state))))))
		out := node(G.SoftMax(node(G.Mul(u, next))))
		var after, last G.Value
		G.Read(next, &after)
		cost := node(G.Neg(node(G.Log(node(G.Slice(out, G.S(2)))))))
		G.Read(cost, &last)
		testutil.Get[G.Nodes](t)(G.Grad(cost, w, u))
		return gorgoniaProgram{g, G.Nodes{w, u}, cost, []*G.Value{&after, &last}, func(step int) {
			testutil.Do(t, G.Let(x, draw(r, tensor.Float64, n)))
			if step == 0 {
				testutil.Do(t, G.Let(state, draw(r, tensor.Float64, n)))
			} else {
				testutil.Do(t, G.Let(state, after.(*tensor.Dense).Clone().(*tensor.Dense)))
			}
		}}
	},
	// The derivative of a root needs the root, so the cost is no root of the graph.
	"cost that its own gradient uses": func(t *testing.T) gorgoniaProgram {
		node, r, g := testutil.Get[*G.Node](t), rand.New(rand.NewPCG(1, 6)), G.NewGraph()
		x := G.NewVector(g, tensor.Float64, G.WithName("x"), G.WithShape(9), G.WithValue(draw(r, tensor.Float64, 9)))
		cost := node(G.Sqrt(node(ops.Dot(x, x))))
		testutil.Get[G.Nodes](t)(G.Grad(cost, x))
		return gorgoniaProgram{g, G.Nodes{x}, cost, nil, func(int) {}}
	},
	"exponential of a mean": func(t *testing.T) gorgoniaProgram {
		node, r, g := testutil.Get[*G.Node](t), rand.New(rand.NewPCG(1, 7)), G.NewGraph()
		x := G.NewMatrix(g, tensor.Float64, G.WithName("x"), G.WithShape(5, 4), G.WithValue(draw(r, tensor.Float64, 5, 4)))
		w := G.NewMatrix(g, tensor.Float64, G.WithName("w"), G.WithShape(4, 4), G.WithValue(draw(r, tensor.Float64, 4, 4)))
		h := node(ops.WindowSum(node(ops.MatMul(x, w)), 1, ops.Same()))
		cost := node(G.Exp(node(ops.Mean(h))))
		testutil.Get[G.Nodes](t)(G.Grad(cost, x, w))
		return gorgoniaProgram{g, G.Nodes{x, w}, cost, nil, func(int) {}}
	},
}

// A program written for NewTapeMachine computes the same numbers on this machine.
func TestProgramsEqualTapeMachine(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		for name, build := range programs {
			t.Run(name, func(t *testing.T) {
				a, b := build(t), build(t)
				tape := tapeMachine(t, a.g, G.BindDualValues(a.params...))
				defer tape.Close()
				vm := machine(t, b.g, on)
				train := func(p gorgoniaProgram, vm G.VM, s G.Solver, step int) {
					p.feed(step)
					testutil.Do(t, vm.RunAll())
				}
				sa, sb := G.NewRMSPropSolver(G.WithLearnRate(0.01)), G.NewRMSPropSolver(G.WithLearnRate(0.01))
				for step := range 5 {
					train(a, tape, sa, step)
					train(b, vm, sb, step)
					what := fmt.Sprintf("step %d: ", step)
					equal(t, what+"cost", b.cost.Value(), a.cost.Value(), 1e-9)
					for i := range a.reads {
						same(t, fmt.Sprint(what, "read ", i), *b.reads[i], *a.reads[i])
					}
					for i, n := range a.params {
						equal(t, what+"gradient of "+n.Name(), testutil.Get[G.Value](t)(b.params[i].Grad()), testutil.Get[G.Value](t)(n.Grad()), 1e-9)
					}
					testutil.Do(t, sa.Step(G.NodesToValueGrads(a.params)))
					testutil.Do(t, sb.Step(G.NodesToValueGrads(b.params)))
					tape.Reset()
					vm.Reset()
					for i, n := range a.params {
						equal(t, what+n.Name(), b.params[i].Value(), n.Value(), 1e-9)
					}
				}
			})
		}
	})
}

// same is equal for values of any type.
func same(t *testing.T, what string, got, want G.Value) {
	t.Helper()
	if want.Dtype() == tensor.Float64 {
		equal(t, what, got, want, 1e-9)
	} else if g, w := fmt.Sprintf("%v", got), fmt.Sprintf("%v", want); g != w {
		t.Errorf("%s: got %s, want %s", what, g, w)
	}
}
