package cudaops

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Gorgonia removes nodes that it has replaced, such as the 1-p of log(1-p). The
// graph's edges are wrong from then on; these tests run such graphs.

// probabilities returns a matrix of numbers between 0 and 1.
func probabilities(r *rand.Rand, dt tensor.Dtype, shape ...int) *tensor.Dense {
	d := draw(r, dt, shape...)
	for i := range d.Size() {
		switch s := d.Data().(type) {
		case []float64:
			s[i] = 1 / (1 + math.Exp(s[i]))
		case []float32:
			s[i] = float32(1 / (1 + math.Exp(float64(s[i]))))
		}
	}
	return d
}

// equalsTape compares the values of roots and the gradients of inputs with those of
// Gorgonia's machine, which reuses the memory of other nodes. build makes the same graph
// at each call.
func equalsTape(t *testing.T, on Option, dt tensor.Dtype, build func() (g *G.ExprGraph, roots, inputs G.Nodes)) {
	t.Helper()
	g, want, wantInputs := build()
	tape := tapeMachine(t, g)
	testutil.Do(t, tape.RunAll())
	g, got, inputs := build()
	testutil.Do(t, machine(t, g, on).RunAll())
	for i, n := range got {
		equal(t, fmt.Sprintf("%v of %v", n, dt), n.Value(), want[i].Value(), tolerance(dt))
	}
	for i, n := range inputs {
		equal(t, fmt.Sprintf("gradient of %v of %v", n, dt), testutil.Get[G.Value](t)(n.Grad()), testutil.Get[G.Value](t)(wantInputs[i].Grad()), tolerance(dt))
	}
	testutil.Do(t, tape.Close())
}

func TestBinaryXent(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			for _, grad := range []bool{false, true} {
				equalsTape(t, on, dt, func() (*G.ExprGraph, G.Nodes, G.Nodes) {
					node, r := testutil.Get[*G.Node](t), rand.New(rand.NewPCG(7, 8))
					g := G.NewGraph()
					p := G.NewMatrix(g, dt, G.WithName("p"), G.WithShape(5, 3), G.WithValue(probabilities(r, dt, 5, 3)))
					y := G.NewMatrix(g, dt, G.WithName("y"), G.WithShape(5, 3), G.WithValue(probabilities(r, dt, 5, 3)))
					cost := node(ops.Mean(node(G.BinaryXent(p, y))))
					if !grad {
						return g, G.Nodes{cost}, nil
					}
					testutil.Get[G.Nodes](t)(G.Grad(cost, p))
					return g, G.Nodes{cost}, G.Nodes{p}
				})
			}
		}
	})
}

// Both parts have a log1p(-p), of two nodes; the difference of the two is 0.
func TestLog1pBesideBinaryXent(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		node, r := testutil.Get[*G.Node](t), rand.New(rand.NewPCG(9, 10))
		g := G.NewGraph()
		const n = 6
		ps := probabilities(r, tensor.Float64, n)
		p := G.NewVector(g, tensor.Float64, G.WithName("p"), G.WithShape(n), G.WithValue(ps))
		y := G.NewVector(g, tensor.Float64, G.WithName("y"), G.WithShape(n), G.WithValue(vector(make([]float64, n)...)))
		log := node(G.Log1p(node(G.Neg(p))))
		loss := node(G.BinaryXent(p, y)) // -log(1-p), as y is 0
		cost := node(ops.Sum(node(ops.Add(log, loss))))
		vm := machine(t, g, on, Keep(log, loss))
		testutil.Do(t, vm.RunAll())
		want := vector(make([]float64, n)...)
		for i, p := range ps.Float64s() {
			want.Set(i, math.Log1p(-p))
		}
		equal(t, "log1p(-p)", log.Value(), want, 1e-12)
		for i, p := range ps.Float64s() {
			want.Set(i, -math.Log1p(-p))
		}
		equal(t, "BinaryXent(p, 0)", loss.Value(), want, 1e-12)
		equal(t, "cost", cost.Value(), G.NewF64(0), 1e-12)
	})
}

// A denoising autoencoder with tied weights, as in Gorgonia's stacked_autoencoder.
func TestAutoencoder(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			equalsTape(t, on, dt, func() (*G.ExprGraph, G.Nodes, G.Nodes) {
				const batch, in, hidden = 4, 9, 5
				node, r := testutil.Get[*G.Node](t), rand.New(rand.NewPCG(11, 13))
				g := G.NewGraph()
				matrix := func(name string, v *tensor.Dense) *G.Node {
					return G.NewMatrix(g, dt, G.WithName(name), G.WithShape(v.Shape()...), G.WithValue(v))
				}
				x, mask := matrix("x", probabilities(r, dt, batch, in)), matrix("mask", probabilities(r, dt, batch, in))
				w, b, c := matrix("w", draw(r, dt, in, hidden)), matrix("b", draw(r, dt, batch, hidden)), matrix("c", draw(r, dt, batch, in))
				layer := func(x, w, b *G.Node) *G.Node { return node(G.Sigmoid(node(G.Add(node(G.Mul(x, w)), b)))) }
				code := layer(node(G.HadamardProd(mask, x)), w, b)
				cost := node(G.Mean(node(G.BinaryXent(layer(code, node(G.Transpose(w)), c), x))))
				testutil.Get[G.Nodes](t)(G.Grad(cost, w, b, c))
				return g, G.Nodes{cost}, G.Nodes{w, b, c}
			})
		}
	})
}
