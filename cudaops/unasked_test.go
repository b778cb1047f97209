package cudaops

import (
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// product returns the graph of sum(x * w) with the gradient w.r.t. w. stray is the derivative w.r.t. x, which Gorgonia makes too.
func product(t *testing.T) (g *G.ExprGraph, w, cost, stray *G.Node) {
	node := testutil.Get[*G.Node](t)
	g = G.NewGraph()
	x := G.NewMatrix(g, tensor.Float64, G.WithName("x"), G.WithShape(2, 3), G.WithInit(G.RangedFrom(1)))
	w = G.NewMatrix(g, tensor.Float64, G.WithName("w"), G.WithShape(3, 2), G.WithInit(G.RangedFrom(2)))
	cost = node(G.Sum(node(G.Mul(x, w))))
	testutil.Get[G.Nodes](t)(G.Grad(cost, w))
	for _, n := range g.AllNodes() {
		if n.Shape().Eq(tensor.Shape{2, 3}) && n != x {
			stray = n
		}
	}
	return g, w, cost, stray
}

// Derivatives w.r.t. inputs that were not passed to Grad are computed only if they are needed.
func TestUnaskedDerivatives(t *testing.T) {
	want := tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float64{5, 9, 13, 5, 9, 13}))
	onBackends(t, func(t *testing.T, on Option) {
		g, w, _, stray := product(t)
		vm := machine(t, g, on)
		testutil.Do(t, vm.RunAll())
		if stray.Value() != nil {
			t.Errorf("the derivative by x has the value %v", stray.Value())
		}
		for _, n := range vm.Report().Nodes {
			if n.Name == stray.Name() && n.Where != "unneeded" {
				t.Errorf("the derivative by x is computed: %+v", n)
			}
		}
		equal(t, "gradient of w", testutil.Get[G.Value](t)(w.Grad()), tensor.New(tensor.WithShape(3, 2), tensor.WithBacking([]float64{5, 5, 7, 7, 9, 9})), 0)

		testutil.Do(t, machine(t, g, on, Keep(stray)).RunAll())
		equal(t, "the derivative that is kept", stray.Value(), want, 0)

		g, _, _, stray = product(t)
		var read G.Value
		G.Read(stray, &read)
		testutil.Do(t, machine(t, g, on).RunAll())
		equal(t, "the derivative that is read", read, want, 0)

		g, w, cost, stray := product(t)
		second := testutil.Get[G.Nodes](t)(G.Grad(testutil.Get[*G.Node](t)(G.Square(testutil.Get[*G.Node](t)(G.Sum(w)))), w))
		testutil.Do(t, machine(t, g, on).RunAll())
		equal(t, "the gradient of a second cost", second[0].Value(), tensor.New(tensor.WithShape(3, 2), tensor.WithBacking([]float64{54, 54, 54, 54, 54, 54})), 0)
		equal(t, "the derivative beside two costs", stray.Value(), want, 0)
		if cost.Value() == nil {
			t.Error("the first cost has no value")
		}
	})
}
