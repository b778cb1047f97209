package cudaops

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A perceptron is one of Gorgonia's ops alone, with weights, biases and a scalar factor.
type perceptron struct {
	g          *G.ExprGraph
	x, y, loss *G.Node
	learnables G.Nodes
	r          *rand.Rand
	dt         tensor.Dtype
	read       G.Value
}

// newPerceptron returns the same one for the same seed.
func newPerceptron(t testing.TB, dt tensor.Dtype, seed uint64) *perceptron {
	node := testutil.Get[*G.Node](t)
	p := &perceptron{g: G.NewGraph(), r: rand.New(rand.NewPCG(seed, 1)), dt: dt}
	p.x = G.NewMatrix(p.g, dt, G.WithName("x"), G.WithShape(16, 9))
	p.y = G.NewMatrix(p.g, dt, G.WithName("y"), G.WithShape(16, 5))
	h, widths := p.x, []int{9, 21, 5}
	for i := range 2 {
		w := G.NewMatrix(p.g, dt, G.WithName(fmt.Sprint("w", i)), G.WithShape(widths[i], widths[i+1]), G.WithValue(draw(p.r, dt, widths[i], widths[i+1])))
		b := G.NewVector(p.g, dt, G.WithName(fmt.Sprint("b", i)), G.WithShape(widths[i+1]), G.WithValue(draw(p.r, dt, widths[i+1])))
		p.learnables = append(p.learnables, w, b)
		if h = node(G.BroadcastAdd(node(G.Mul(h, w)), b, nil, []byte{0})); i == 0 {
			h = node(G.Tanh(h))
		}
	}
	p.loss = node(G.Mean(node(G.Square(node(G.Sub(h, p.y))))))
	G.Read(p.loss, &p.read)
	testutil.Get[G.Nodes](t)(G.Grad(p.loss, p.learnables...))
	return p
}

// feed binds the next batch.
func (p *perceptron) feed(t testing.TB) {
	testutil.Do(t, G.Let(p.x, draw(p.r, p.dt, 16, 9)))
	testutil.Do(t, G.Let(p.y, draw(p.r, p.dt, 16, 5)))
}

// trainingSolvers are those that learn on any machine, each with the options that it
// has.
var trainingSolvers = map[string]func() G.Solver{
	"vanilla": func() G.Solver { return G.NewVanillaSolver(G.WithLearnRate(0.1)) },
	"vanilla, all": func() G.Solver {
		return G.NewVanillaSolver(G.WithLearnRate(0.5), G.WithL1Reg(0.01), G.WithL2Reg(0.02), G.WithClip(0.1), G.WithBatchSize(4))
	},
	"momentum": func() G.Solver { return G.NewMomentum(G.WithLearnRate(0.02), G.WithMomentum(0.8)) },
	"momentum, all": func() G.Solver {
		return G.NewMomentum(G.WithLearnRate(0.05), G.WithL1Reg(0.01), G.WithL2Reg(0.02), G.WithClip(0.1), G.WithBatchSize(2))
	},
	"RMSProp": func() G.Solver { return G.NewRMSPropSolver(G.WithLearnRate(0.001), G.WithRho(0.9)) },
	"RMSProp, all": func() G.Solver {
		return G.NewRMSPropSolver(G.WithLearnRate(0.001), G.WithL2Reg(0.001), G.WithClip(0.1), G.WithEps(1e-4))
	},
	"Adam": func() G.Solver { return G.NewAdamSolver(G.WithLearnRate(0.005)) },
	"Adam, all": func() G.Solver {
		return G.NewAdamSolver(G.WithLearnRate(0.01), G.WithL1Reg(0.001), G.WithL2Reg(0.01), G.WithClip(0.3), G.WithBatchSize(3),
			G.WithEps(1e-4), G.WithBeta1(0.8), G.WithBeta2(0.99))
	},
	"AdaGrad": func() G.Solver { return G.NewAdaGradSolver() },
}

// 100 steps on the device end with the parameters of as many of Gorgonia's tape machine and
// solver.
func TestTrain(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		for name, maker := range trainingSolvers {
			for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
				seed := testutil.Seed(t)
				theirs, ours := newPerceptron(t, dt, seed), newPerceptron(t, dt, seed)
				tape, s := tapeMachine(t, theirs.g, G.BindDualValues(theirs.learnables...)), maker()
				vm := machine(t, ours.g, on, Train(maker(), ours.learnables...))
				for step := range 100 {
					theirs.feed(t)
					ours.feed(t)
					testutil.Do(t, tape.RunAll())
					testutil.Do(t, s.Step(G.NodesToValueGrads(theirs.learnables)))
					tape.Reset()
					testutil.Do(t, vm.RunAll())
					if step%20 == 0 {
						equal(t, fmt.Sprintf("%s of %v: loss in step %d", name, dt, step+1), ours.read, theirs.read, 100*tolerance(dt))
					}
				}
				testutil.Do(t, vm.Pull())
				for i, n := range ours.learnables {
					equal(t, fmt.Sprintf("%s of %v: %s after 100 steps", name, dt, n.Name()), n.Value(), theirs.learnables[i].Value(), 100*tolerance(dt))
				}
				testutil.Do(t, tape.Close())
			}
		}
	})
}

// Programs as people write them, some with ops that run on the host, learn on the device the values that
// they learn on Gorgonia's tape machine.
func TestTrainPrograms(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		for name, build := range programs {
			t.Run(name, func(t *testing.T) {
				want, got := build(t), build(t)
				tape, s := tapeMachine(t, want.g, G.BindDualValues(want.params...)), G.NewAdamSolver(G.WithLearnRate(0.05))
				vm := machine(t, got.g, on, Train(G.NewAdamSolver(G.WithLearnRate(0.05)), got.params...))
				for step := range 8 {
					want.feed(step)
					got.feed(step)
					testutil.Do(t, tape.RunAll())
					testutil.Do(t, s.Step(G.NodesToValueGrads(want.params)))
					tape.Reset()
					testutil.Do(t, vm.RunAll())
				}
				testutil.Do(t, vm.Pull())
				for i, n := range got.params {
					equal(t, n.Name(), n.Value(), want.params[i].Value(), 1e-7)
				}
				testutil.Do(t, tape.Close())
			})
		}
	})
}

// twoTypes is a graph with two costs, of float32 and of float64, and learnables of both,
// scalars too. The shapes differ, and the derivatives begin at inputs, since constants
// that print alike are one node to Gorgonia, whatever their types.
func twoTypes(t *testing.T) (g *G.ExprGraph, learnables G.Nodes) {
	node, r := testutil.Get[*G.Node](t), rand.New(rand.NewPCG(3, 4))
	g = G.NewGraph()
	for i, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
		scalar := func(name string) *G.Node {
			n := G.NewScalar(g, dt, G.WithName(fmt.Sprint(name, dt)))
			testutil.Do(t, G.Let(n, testutil.Get[any](t)(draw(r, dt, 1).At(0))))
			return n
		}
		x := G.NewMatrix(g, dt, G.WithName(fmt.Sprint("x", dt)), G.WithShape(7+i, 33+i), G.WithValue(draw(r, dt, 7+i, 33+i)))
		w := G.NewVector(g, dt, G.WithName(fmt.Sprint("w", dt)), G.WithShape(33+i), G.WithValue(draw(r, dt, 33+i)))
		c := scalar("c")
		y := node(G.Add(node(G.Mul(x, w)), c))
		cost := node(G.Sum(node(G.HadamardProd(y, y))))
		testutil.Get[G.Nodes](t)(G.Backpropagate(G.Nodes{cost}, G.Nodes{scalar("d")}, G.Nodes{w, c}))
		learnables = append(learnables, w, c)
	}
	return g, learnables
}

func TestTrainTwoTypes(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		a, want := twoTypes(t)
		b, got := twoTypes(t)
		tape, s := tapeMachine(t, a, G.BindDualValues(want...)), G.NewAdamSolver(G.WithLearnRate(0.05))
		vm := machine(t, b, on, Train(G.NewAdamSolver(G.WithLearnRate(0.05)), got[2], got[0], got[3], got[1]))
		for range 30 {
			testutil.Do(t, tape.RunAll())
			testutil.Do(t, s.Step(G.NodesToValueGrads(want)))
			tape.Reset()
			testutil.Do(t, vm.RunAll())
		}
		testutil.Do(t, vm.Pull())
		for i, n := range got {
			equal(t, n.Name(), n.Value(), want[i].Value(), 100*tolerance(n.Dtype()))
		}
		testutil.Do(t, tape.Close())
	})
}

// Barzilai and Borwein's method is Gorgonia's for float64, and learns float32, of which Gorgonia
// returns an error; AdamW learns, where Gorgonia's stands still.
func TestTrainHealed(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		theirs, ours := newPerceptron(t, tensor.Float64, 5), newPerceptron(t, tensor.Float64, 5)
		tape, s := tapeMachine(t, theirs.g, G.BindDualValues(theirs.learnables...)), G.NewBarzilaiBorweinSolver(G.WithClip(0.05))
		vm := machine(t, ours.g, on, Train(G.NewBarzilaiBorweinSolver(G.WithClip(0.05)), ours.learnables...))
		theirs.feed(t)
		ours.feed(t)
		for range 15 {
			testutil.Do(t, tape.RunAll())
			testutil.Do(t, s.Step(G.NodesToValueGrads(theirs.learnables)))
			tape.Reset()
			testutil.Do(t, vm.RunAll())
		}
		testutil.Do(t, vm.Pull())
		for i, n := range ours.learnables {
			equal(t, n.Name(), n.Value(), theirs.learnables[i].Value(), 1e-6)
		}
		testutil.Do(t, tape.Close())
		for name, s := range map[string]G.Solver{"BarzilaiBorwein": G.NewBarzilaiBorweinSolver(G.WithClip(0.05)), "AdamW": G.NewAdamW(G.WithLearnRate(0.01))} {
			p := newPerceptron(t, tensor.Float32, 6)
			vm := machine(t, p.g, on, Train(s, p.learnables...))
			p.feed(t)
			testutil.Do(t, vm.RunAll())
			first := floats(t, p.read)[0]
			for range 30 {
				testutil.Do(t, vm.RunAll())
			}
			if last := floats(t, p.read)[0]; !(last < first/2) {
				t.Errorf("%s: the loss goes from %v to %v", name, first, last)
			}
		}
	})
}

// The norm of all gradients together is limited, those of both types, and a run knows the
// learning rate of its time.
func TestClipNorm(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		a, want := twoTypes(t)
		vm := machine(t, a, on)
		testutil.Do(t, vm.RunAll())
		norm := 0.0
		for _, n := range want {
			for _, x := range floats(t, testutil.Get[G.Value](t)(n.Grad())) {
				norm += x * x
			}
		}
		norm = math.Sqrt(norm)
		for limit, scale := range map[float64]float64{norm / 4: 0.25, 2 * norm: 1} {
			for _, rate := range []float64{0.1, 0.7} {
				b, got := twoTypes(t)
				s := G.NewVanillaSolver()
				vm := machine(t, b, on, Train(s, got...), ClipNorm(limit))
				G.WithLearnRate(rate)(s)
				testutil.Do(t, vm.RunAll())
				testutil.Do(t, vm.Pull())
				for i, n := range got {
					before, after, d := floats(t, want[i].Value()), floats(t, n.Value()), floats(t, testutil.Get[G.Value](t)(want[i].Grad()))
					for k := range after {
						if w := before[k] - rate*scale*d[k]; !(math.Abs(after[k]-w) <= tolerance(n.Dtype())*(1+math.Abs(w))) {
							t.Fatalf("limit %v, %s: element %d is %v, want %v", limit, n.Name(), k, after[k], w)
						}
					}
				}
			}
		}
	})
}
