package cudaops

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// modesGraph trains the scale and bias of a BatchNorm that a Dropout follows.
type modesGraph struct {
	g          *G.ExprGraph
	x          *G.Node
	learnables G.Nodes
	norm       *G.BatchNormOp
	drop       G.TrainModeOp
	loss       G.Value
}

func newModesGraph(t *testing.T, dropout bool) *modesGraph {
	m, node := &modesGraph{g: G.NewGraph()}, testutil.Get[*G.Node](t)
	m.x = G.NewMatrix(m.g, tensor.Float64, G.WithName("x"), G.WithShape(6, 4))
	scale := G.NewMatrix(m.g, tensor.Float64, G.WithName("scale"), G.WithShape(1, 4), G.WithInit(G.Ones()))
	bias := G.NewMatrix(m.g, tensor.Float64, G.WithName("bias"), G.WithShape(1, 4), G.WithInit(G.Zeroes()))
	m.learnables = G.Nodes{scale, bias}
	y, _, _, op, err := G.BatchNorm(m.x, scale, bias, 0.25, normEpsilon)
	testutil.Do(t, err)
	m.norm = op
	if dropout {
		y = node(G.Dropout(y, 0.5))
		m.drop = y.Op().(G.TrainModeOp)
	}
	loss := node(G.Mean(node(G.Square(node(G.Sub(y, m.x))))))
	G.Read(loss, &m.loss)
	testutil.Get[G.Nodes](t)(G.Grad(loss, m.learnables...))
	return m
}

// Ops that keep something, draw random numbers or change their mode train with Train as they do
// with a solver on the host, and a BatchNorm's running moments go along in every run, under
// ReadEvery, too.
func TestTrainModes(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		for _, dropout := range []bool{false, true} {
			seed := testutil.Seed(t)
			r := rand.New(rand.NewPCG(seed, 5))
			a, b := newModesGraph(t, dropout), newModesGraph(t, dropout)
			s := G.NewAdamSolver(G.WithLearnRate(0.1))
			host := machine(t, a.g, on, Seed(seed))
			device := machine(t, b.g, on, Seed(seed), Train(G.NewAdamSolver(G.WithLearnRate(0.1)), b.learnables...), ReadEvery(3))
			for run := range 8 {
				x := draw(r, tensor.Float64, 6, 4)
				for _, m := range []*modesGraph{a, b} {
					testutil.Do(t, G.Let(m.x, x))
					testutil.Do(t, m.norm.SetTraining(run/2 != 2))
					if dropout {
						testutil.Do(t, m.drop.SetTraining(run/2 != 1))
					}
				}
				testutil.Do(t, host.RunAll())
				testutil.Do(t, s.Step(G.NodesToValueGrads(a.learnables)))
				testutil.Do(t, device.RunAll())
				mean, variance := a.norm.Stats()
				gotMean, gotVariance := b.norm.Stats()
				equal(t, "running mean", gotMean, mean, 1e-12)
				equal(t, "running variance", gotVariance, variance, 1e-12)
				if run%3 == 2 {
					equal(t, "loss", b.loss, a.loss, 1e-9)
				}
			}
			testutil.Do(t, device.Pull())
			for i, n := range b.learnables {
				equal(t, n.Name(), n.Value(), a.learnables[i].Value(), 1e-9)
			}
		}
	})
}

// evaluated is the loss of an evaluation with the values that the nodes and the BatchNorm have.
func (m *modesGraph) evaluated(t *testing.T) (loss float64) {
	mean, variance := m.norm.Stats()
	x, scale, bias := floats(t, m.x.Value()), floats(t, m.learnables[0].Value()), floats(t, m.learnables[1].Value())
	for i, v := range x {
		c := i % len(scale)
		y := (v-floats(t, mean)[c])/math.Sqrt(floats(t, variance)[c]+normEpsilon)*scale[c] + bias[c]
		loss += (y - v) * (y - v) / float64(len(x))
	}
	return loss
}

// A machine of the graph of another one that trains changes nothing there, by its options, by being made or
// by an evaluation.
func TestModeBelongsToVM(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		for name, c := range map[string]struct {
			options   []Option
			evaluates bool
		}{
			"no option":   {nil, false},
			"ForwardOnly": {[]Option{ForwardOnly()}, false},
			"EvalMode":    {[]Option{EvalMode()}, true},
			"Inference":   {[]Option{Inference()}, true},
		} {
			alone, shared := newModesGraph(t, true), newModesGraph(t, true)
			x := draw(testutil.Random(t), tensor.Float64, 6, 4)
			train := func(m *modesGraph) *VM {
				testutil.Do(t, G.Let(m.x, x))
				return machine(t, m.g, on, Seed(1), Train(G.NewAdamSolver(G.WithLearnRate(0.1)), m.learnables...))
			}
			a, b := train(alone), train(shared)
			var other *VM
			for run := range 4 {
				testutil.Do(t, a.RunAll())
				testutil.Do(t, b.RunAll())
				equal(t, name+": the loss", shared.loss, alone.loss, 0)
				if run == 1 {
					other = machine(t, shared.g, append(c.options, on)...)
				}
				if run > 0 && c.evaluates {
					testutil.Do(t, b.Pull())
					want := shared.evaluated(t)
					testutil.Do(t, other.RunAll())
					equal(t, name+": the loss of an evaluation", shared.loss, G.NewF64(want), 1e-12)
				}
				mean, variance := alone.norm.Stats()
				gotMean, gotVariance := shared.norm.Stats()
				equal(t, name+": running mean", gotMean, mean, 0)
				equal(t, name+": running variance", gotVariance, variance, 0)
			}
		}
	})
}

// Without EvalMode a machine does as SetTraining determined, before it was made or after, and with it it evaluates.
func TestModeFollowsSetTraining(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		for name, options := range map[string][]Option{"no option": nil, "ForwardOnly": {ForwardOnly()}, "EvalMode": {EvalMode()}} {
			m := newModesGraph(t, true)
			testutil.Do(t, G.Let(m.x, draw(testutil.Random(t), tensor.Float64, 6, 4)))
			set := func(training bool) {
				testutil.Do(t, m.norm.SetTraining(training))
				testutil.Do(t, m.drop.SetTraining(training))
			}
			testutil.Do(t, machine(t, m.g, on).RunAll()) // running moments that differ from those of a batch
			set(false)
			vm := machine(t, m.g, append(options, on)...)
			for run, training := range []bool{false, true, false} {
				if run > 0 {
					set(training)
				}
				want := m.evaluated(t)
				testutil.Do(t, vm.RunAll())
				if evaluated := math.Abs(floats(t, m.loss)[0]-want) < 1e-12; evaluated != (!training || name == "EvalMode") {
					t.Errorf("%s: run %d after SetTraining(%v) evaluates: %v", name, run, training, evaluated)
				}
			}
		}
	})
}

// An op of another module keeps its own mode, which EvalMode cannot set for a single machine.
func TestModeOfUserOp(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		g, _, second, _ := applied(t, modeOp{doing(func(in ...G.Value) (G.Value, error) { return in[0], nil })})
		for _, want := range []string{"node userOp(", "EvalMode", "SetTraining"} {
			if vm, err := NewVM(g, on, EvalMode()); vm != nil || err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, the error %v, want one with %q", vm, err, want)
			}
		}
		testutil.Do(t, machine(t, g, on).RunAll())
		equal(t, "value", second.Value(), vector(1, 2), 0)
	})
}
