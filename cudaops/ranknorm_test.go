package cudaops

import (
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// normNet is a perceptron with a BatchNorm whose running values are states.
type normNet struct {
	*shareNet
	mean, variance, out *G.Node
	states              Option
}

func newNormNet(t testing.TB, rows int, widths []int, seed uint64, opts ...ops.BatchNormOption) *normNet {
	node := testutil.Get[*G.Node](t)
	r := rand.New(rand.NewPCG(seed, 3))
	g := G.NewGraph()
	random := func(name string, shape ...int) *G.Node {
		return G.NewTensor(g, tensor.Float64, len(shape), G.WithName(name), G.WithShape(shape...), G.WithValue(draw(r, tensor.Float64, shape...)))
	}
	x := G.NewMatrix(g, tensor.Float64, G.WithName("x"), G.WithShape(rows, widths[0]))
	y := G.NewMatrix(g, tensor.Float64, G.WithName("y"), G.WithShape(rows, widths[2]))
	w, scale, bias, v := random("w", widths[0], widths[1]), random("scale", widths[1]), random("bias", widths[1]), random("v", widths[1], widths[2])
	n := &normNet{mean: random("mean", widths[1]), variance: G.NewVector(g, tensor.Float64, G.WithName("variance"), G.WithShape(widths[1]), G.WithValue(tensor.Ones(tensor.Float64, widths[1])))}
	h, mean, variance, err := ops.BatchNorm(node(G.Mul(x, w)), scale, bias, n.mean, n.variance, 0.2, 1e-3, opts...)
	testutil.Do(t, err)
	n.out = h
	loss := node(G.Mean(node(G.Square(node(G.Sub(node(G.Mul(node(G.Tanh(h)), v)), y))))))
	n.shareNet = &shareNet{g: g, x: x, y: y, loss: loss, learnables: G.Nodes{w, scale, bias, v}}
	testutil.Get[G.Nodes](t)(G.Grad(loss, n.learnables...))
	n.states = Options(State(n.mean, mean), State(n.variance, variance))
	return n
}

// A BatchNorm over all ranks normalizes, trains and keeps the running values of one on one machine with the whole batch; one of each rank's own
// rows does not.
func TestBatchNormOverRanks(t *testing.T) {
	onRanks(t, func(t *testing.T, on func(n int) (Option, int), single Option) {
		seeds := testutil.Random(t)
		for range 3 {
			seed := seeds.Uint64()
			r := rand.New(rand.NewPCG(seed, 0))
			ranks, n := on(2 + r.IntN(3))
			rows, widths := 2+r.IntN(5), []int{1 + r.IntN(6), 1 + r.IntN(9), 1 + r.IntN(4)}
			whole, all := newNormNet(t, n*rows, widths, seed), newNormNet(t, rows, widths, seed, ops.OverRanks())
			own := newNormNet(t, rows, widths, seed)
			gathered := testutil.Get[*G.Node](t)(ops.AllGather(all.out, n))
			train := func(n *normNet, opts ...Option) *VM {
				return machine(t, n.g, append(opts, n.states, Split(n.x, n.y), Train(G.NewMomentum(G.WithLearnRate(0.05)), n.learnables...))...)
			}
			one, many, apart := train(whole, single, Keep(whole.out)), train(all, ranks, Keep(gathered)), train(own, ranks)
			for step := range 30 {
				x, y := draw(r, tensor.Float64, n*rows, widths[0]), draw(r, tensor.Float64, n*rows, widths[2])
				for vm, net := range map[*VM]*normNet{one: whole, many: all, apart: own} {
					net.feed(t, vm, x, y)
					testutil.Do(t, vm.RunAll())
				}
				for what, v := range map[string][2]*G.Node{"the output": {gathered, whole.out}, "the loss": {all.loss, whole.loss}} {
					if d := maxDiff(t, v[0].Value(), v[1].Value()); !(d < 1e-8) {
						t.Fatalf("step %d: %s differs by %g from that of one machine", step, what, d)
					}
				}
			}
			sameOnRanks(t, many)
			testutil.Do(t, one.Pull())
			testutil.Do(t, many.Pull())
			testutil.Do(t, apart.Pull())
			a, b, c := append(whole.learnables, whole.mean, whole.variance), append(all.learnables, all.mean, all.variance), append(own.learnables, own.mean, own.variance)
			most := 0.0
			for i, p := range a {
				if d := maxDiff(t, b[i].Value(), p.Value()); !(d < 1e-8) {
					t.Errorf("%s differs by %g from that of one machine, %d ranks", p.Name(), d, n)
				}
				most = max(most, maxDiff(t, c[i].Value(), p.Value()))
			}
			if most < 1e-6 {
				t.Errorf("statistics of each rank's own rows give the same: %g", most)
			}
		}
	})
}
