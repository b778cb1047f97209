package cudaops

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// logs is the loss Σ(log(x) w)² of a vector x, whose logarithm is NaN where it is below 0.
type logs struct {
	g         *G.ExprGraph
	x, w, log *G.Node
	loss      G.Value
}

func newLogs(t testing.TB, dt tensor.Dtype) *logs {
	node, l := testutil.Get[*G.Node](t), &logs{g: G.NewGraph()}
	l.x = G.NewVector(l.g, dt, G.WithName("x"), G.WithShape(3))
	l.w = G.NewVector(l.g, dt, G.WithName("w"), G.WithShape(3), G.WithInit(G.Ones()))
	l.log = node(G.Log(l.x))
	loss := node(G.Sum(node(G.Square(node(G.HadamardProd(l.log, l.w))))))
	G.Read(loss, &l.loss)
	testutil.Get[G.Nodes](t)(G.Grad(loss, l.w))
	return l
}

// feed binds three numbers, given in float64.
func (l *logs) feed(t testing.TB, dt tensor.Dtype, x ...float64) {
	if dt == tensor.Float64 {
		testutil.Do(t, G.Let(l.x, vector(x...)))
		return
	}
	testutil.Do(t, G.Let(l.x, tensor.New(tensor.WithBacking([]float32{float32(x[0]), float32(x[1]), float32(x[2])}))))
}

// A step that would make a NaN, or an infinity, is not made: the error names the step and the
// first node, all is as after the step before, and a better batch goes on from there.
func TestWatchTrain(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			smooth, l := newLogs(t, dt), newLogs(t, dt)
			s := G.NewAdamSolver(G.WithLearnRate(0.1))
			want := machine(t, smooth.g, on, Seed(1), Train(G.NewAdamSolver(G.WithLearnRate(0.1)), smooth.w))
			vm := machine(t, l.g, on, Seed(1), Train(s, l.w), Watch(NaN|Inf), ReadEvery(5))
			refused := func(what string, change func(), node, input *G.Node, element int, texts ...string) {
				t.Helper()
				before := testutil.Get[*Snapshot](t)(vm.Snapshot())
				seen := testutil.Get[G.Value](t)(G.CloneValue(l.loss))
				change()
				err := vm.RunAll()
				var bad *NotFinite
				if !errors.As(err, &bad) || bad.What != what || bad.Node != node || bad.Element != element || bad.Run != before.Steps+1 || bad.Input != input {
					t.Fatalf("got the error %v, %+v, want %s in %s in step %d", err, bad, what, internal.Name(node), before.Steps+1)
				}
				for _, text := range append(texts, what, internal.Name(node), "training step 4", "as after step 3") {
					if !strings.Contains(err.Error(), text) {
						t.Errorf("got the error %v, want one with %q", err, text)
					}
				}
				equal(t, "the loss that was read", l.loss, seen, 0)
				after := testutil.Get[*Snapshot](t)(vm.Snapshot())
				before.Learnables[0].Value, before.Solvers = after.Learnables[0].Value, after.Solvers // a Let changes it
				sameSnapshot(t, "after a step that was not made", after, before)
			}
			both := func(x ...float64) {
				smooth.feed(t, dt, x...)
				l.feed(t, dt, x...)
				testutil.Do(t, want.RunAll())
				testutil.Do(t, vm.RunAll())
				sameSnapshot(t, "a watched run", testutil.Get[*Snapshot](t)(vm.Snapshot()), testutil.Get[*Snapshot](t)(want.Snapshot()))
			}
			both(2, 3, 4)
			both(3, 3, 4)
			both(2, 5, 6)
			refused("NaN", func() { l.feed(t, dt, 2, 3, -4) }, l.log, nil, 2, "made by step")
			refused("NaN", func() { l.feed(t, dt, 2, math.NaN(), -4) }, l.log, l.x, 1, "out of that in x")
			refused("Inf", func() { l.feed(t, dt, 0, 3, 4) }, l.log, nil, 0)
			w := testutil.Get[*Snapshot](t)(vm.Snapshot()).Learnables[0].Value
			l.feed(t, dt, 2, 3, 4)
			refused("Inf", func() { G.WithLearnRate(math.Inf(1))(s) }, l.w, nil, 0, "made by the step of *gorgonia.AdamSolver")
			G.WithLearnRate(0.1)(s)
			sameSnapshot(t, "the parameters", testutil.Get[*Snapshot](t)(vm.Snapshot()), testutil.Get[*Snapshot](t)(want.Snapshot()))
			both(4, 3, 2)

			l.feed(t, dt, 2, 3, 4)
			nan := testutil.Get[G.Value](t)(G.CloneValue(w)).(*tensor.Dense)
			testutil.Do(t, nan.Memset(map[tensor.Dtype]any{tensor.Float32: float32(math.NaN()), tensor.Float64: math.NaN()}[dt]))
			testutil.Do(t, G.Let(l.w, nan))
			var bad *NotFinite
			if err := vm.RunAll(); !errors.As(err, &bad) || bad.Input != l.w || bad.Run != 5 {
				t.Errorf("a NaN in a learnable gives the error %v", err)
			}
		}
	})
}

// A watch changes no bit, of a BatchNorm's averages and of random numbers neither.
func TestWatchChangesNothing(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		var states []*Snapshot
		for _, opts := range [][]Option{nil, {Watch(NaN)}} {
			m := newModesGraph(t, true)
			vm := machine(t, m.g, append(opts, on, Seed(5), Train(G.NewAdamSolver(), m.learnables...))...)
			r := rand.New(rand.NewPCG(1, 2))
			for range 6 {
				testutil.Do(t, G.Let(m.x, draw(r, tensor.Float64, 6, 4)))
				testutil.Do(t, vm.RunAll())
			}
			states = append(states, testutil.Get[*Snapshot](t)(vm.Snapshot()))
		}
		sameSnapshot(t, "watched", states[1], states[0])

		var params []G.Nodes
		for _, opts := range [][]Option{nil, {Watch(NaN | Inf)}} {
			p := newPerceptron(t, tensor.Float32, 4)
			vm := machine(t, p.g, append(opts, on, Train(G.NewMomentum(), p.learnables...), ClipNorm(0.5))...)
			for range 6 {
				p.feed(t)
				testutil.Do(t, vm.RunAll())
			}
			testutil.Do(t, vm.Pull())
			params = append(params, p.learnables)
		}
		for i, n := range params[1] {
			equal(t, n.Name(), n.Value(), params[0][i].Value(), 0)
		}
	})
}

// Steps on the host are not made either.
func TestWatchTrainOnTheHost(t *testing.T) {
	l := newLogs(t, tensor.Float64)
	vm := machine(t, l.g, OnHost(), Train(otherSolver{G.NewVanillaSolver()}, l.w), Watch(NaN))
	l.feed(t, tensor.Float64, 1, 2, 3)
	testutil.Do(t, vm.RunAll())
	before := testutil.Get[G.Value](t)(G.CloneValue(l.w.Value()))
	l.feed(t, tensor.Float64, 1, 2, -3)
	var bad *NotFinite
	if err := vm.RunAll(); !errors.As(err, &bad) || bad.Run != 2 || bad.Node != l.log {
		t.Errorf("got the error %v", err)
	}
	equal(t, "w", l.w.Value(), before, 0)
}
