package cudaops

import (
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A solver's step zeroes the gradients of inputs, but not the values of the
// derivatives' nodes.
func TestStepLeavesDerivatives(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		for _, dual := range []bool{false, true} {
			node := testutil.Get[*G.Node](t)
			g := G.NewGraph()
			input := func(name string, x ...float64) *G.Node {
				return G.NewVector(g, tensor.Float64, G.WithName(name), G.WithShape(len(x)), G.WithValue(vector(x...)))
			}
			a, b, c := input("a", 1, 2, 3), input("b", 4, 5, 6), input("c", 7, 8, 9)
			s := G.NewScalar(g, tensor.Float64, G.WithName("s"), G.WithValue(2.0))
			dense := G.NewScalar(g, tensor.Float64, G.WithName("dense"))
			testutil.Do(t, G.Let(dense, tensor.New(tensor.FromScalar(0.5))))
			// The derivative w.r.t. a is one node with that of b; c is used twice.
			sum := node(ops.Add(node(ops.Add(a, b)), node(ops.Scale(node(ops.Scale(c, node(ops.Dot(c, c)))), s))))
			cost := node(ops.Add(node(ops.Sum(sum)), node(ops.Add(dense, dense))))
			inputs := G.Nodes{a, b, c, s, dense}
			testutil.Get[G.Nodes](t)(G.Grad(cost, inputs...))
			if dual {
				tape := tapeMachine(t, g, G.BindDualValues(inputs...))
				testutil.Do(t, tape.RunAll())
				testutil.Do(t, tape.Close())
			}
			vm := machine(t, g, on)
			for step := range 2 {
				testutil.Do(t, vm.RunAll())
				var want []G.Value
				for _, n := range inputs {
					equal(t, n.Name(), testutil.Get[G.Value](t)(n.Grad()), n.Deriv().Value(), 0)
					want = append(want, testutil.Get[G.Value](t)(G.CloneValue(n.Deriv().Value())))
				}
				testutil.Do(t, G.NewVanillaSolver(G.WithLearnRate(1e-4)).Step(G.NodesToValueGrads(inputs)))
				for i, n := range inputs {
					equal(t, "derivative by "+n.Name(), n.Deriv().Value(), want[i], 0)
					for k, x := range floats(t, testutil.Get[G.Value](t)(n.Grad())) {
						if x != 0 {
							t.Errorf("dual %v, step %d: element %d of the gradient of %v is %v after the solver's step, want 0", dual, step, k, n, x)
						}
					}
					for k, x := range floats(t, want[i]) {
						if x == 0 {
							t.Errorf("element %d of the derivative by %v is 0: this test wants others", k, n)
						}
					}
				}
			}
		}
	})
}
