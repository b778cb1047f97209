package cudaops

import (
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/internal/must"
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
	m, node := &modesGraph{g: G.NewGraph()}, must.Get[*G.Node](t)
	m.x = G.NewMatrix(m.g, tensor.Float64, G.WithName("x"), G.WithShape(6, 4))
	scale := G.NewMatrix(m.g, tensor.Float64, G.WithName("scale"), G.WithShape(1, 4), G.WithInit(G.Ones()))
	bias := G.NewMatrix(m.g, tensor.Float64, G.WithName("bias"), G.WithShape(1, 4), G.WithInit(G.Zeroes()))
	m.learnables = G.Nodes{scale, bias}
	y, _, _, op, err := G.BatchNorm(m.x, scale, bias, 0.25, normEpsilon)
	must.Do(t, err)
	m.norm = op
	if dropout {
		y = node(G.Dropout(y, 0.5))
		m.drop = y.Op().(G.TrainModeOp)
	}
	loss := node(G.Mean(node(G.Square(node(G.Sub(y, m.x))))))
	G.Read(loss, &m.loss)
	must.Get[G.Nodes](t)(G.Grad(loss, m.learnables...))
	return m
}

// Ops that keep something, draw random numbers or change their mode train with Train as they do
// with a solver on the host, and a BatchNorm's running moments go along in every run, under
// ReadEvery, too.
func TestTrainModes(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		for _, dropout := range []bool{false, true} {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			r := rand.New(rand.NewPCG(seed, 5))
			a, b := newModesGraph(t, dropout), newModesGraph(t, dropout)
			s := G.NewAdamSolver(G.WithLearnRate(0.1))
			host := machine(t, a.g, on, Seed(seed))
			device := machine(t, b.g, on, Seed(seed), Train(G.NewAdamSolver(G.WithLearnRate(0.1)), b.learnables...), ReadEvery(3))
			for run := range 8 {
				x := draw(r, tensor.Float64, 6, 4)
				for _, m := range []*modesGraph{a, b} {
					must.Do(t, G.Let(m.x, x))
					must.Do(t, m.norm.SetTraining(run/2 != 2))
					if dropout {
						must.Do(t, m.drop.SetTraining(run/2 != 1))
					}
				}
				must.Do(t, host.RunAll())
				must.Do(t, s.Step(G.NodesToValueGrads(a.learnables)))
				must.Do(t, device.RunAll())
				mean, variance := a.norm.Stats()
				gotMean, gotVariance := b.norm.Stats()
				equal(t, "running mean", gotMean, mean, 1e-12)
				equal(t, "running variance", gotVariance, variance, 1e-12)
				if run%3 == 2 {
					equal(t, "loss", b.loss, a.loss, 1e-9)
				}
			}
			must.Do(t, device.Pull())
			for i, n := range b.learnables {
				equal(t, n.Name(), n.Value(), a.learnables[i].Value(), 1e-9)
			}
		}
	})
}
