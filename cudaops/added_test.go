package cudaops

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// forgetful is a solver of another module that leaves the gradients as they are.
type forgetful struct{ rate float64 }

func (s forgetful) Step(model []G.ValueGrad) error {
	for _, n := range model {
		d, err := n.Grad()
		if err != nil {
			return err
		}
		switch w, g := n.Value().Data(), d.Data(); w := w.(type) {
		case []float64:
			for i, x := range g.([]float64) {
				w[i] -= s.rate * x
			}
		case []float32:
			for i, x := range g.([]float32) {
				w[i] -= float32(s.rate) * x
			}
		}
	}
	return nil
}

// Steps of the gradients of three runs are those of Gorgonia's tape machine, which adds gradients up until a solver
// steps: made on the device, on the host by a solver of another module, and by the program itself.
func TestAddedGradients(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		const every, runs = 3, 30
		compare := func(what string, maker func() G.Solver, step func() G.Solver, dt tensor.Dtype, opts func(p *perceptron) []Option) {
			seed := testutil.Seed(t)
			theirs, ours := newPerceptron(t, dt, seed), newPerceptron(t, dt, seed)
			tape, s := tapeMachine(t, theirs.g, G.BindDualValues(theirs.learnables...)), maker()
			own := step()
			vm := machine(t, ours.g, append(opts(ours), on)...)
			for run := range runs {
				theirs.feed(t)
				ours.feed(t)
				testutil.Do(t, tape.RunAll())
				testutil.Do(t, vm.RunAll())
				if vm.trainer == nil {
					for i, n := range ours.learnables {
						equal(t, fmt.Sprintf("%s, run %d: gradient of %s", what, run+1, n.Name()), testutil.Get[G.Value](t)(n.Grad()), testutil.Get[G.Value](t)(theirs.learnables[i].Grad()), 100*tolerance(dt))
					}
				}
				if (run+1)%every == 0 {
					testutil.Do(t, s.Step(G.NodesToValueGrads(theirs.learnables)))
					if own != nil {
						testutil.Do(t, own.Step(G.NodesToValueGrads(ours.learnables)))
					}
				}
				tape.Reset()
				equal(t, fmt.Sprintf("%s, run %d: loss", what, run+1), ours.read, theirs.read, 100*tolerance(dt))
			}
			if vm.Learnables() != nil {
				testutil.Do(t, vm.Pull())
			}
			for i, n := range ours.learnables {
				equal(t, what+": "+n.Name(), n.Value(), theirs.learnables[i].Value(), 100*tolerance(dt))
			}
			testutil.Do(t, tape.Close())
		}
		none := func() G.Solver { return nil }
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			for name, maker := range trainingSolvers {
				compare(fmt.Sprint(name, " of ", dt, ", Train"), maker, none, dt, func(p *perceptron) []Option {
					return []Option{Train(maker(), p.learnables...), StepEvery(every)}
				})
			}
			vanilla := func() G.Solver { return G.NewVanillaSolver(G.WithLearnRate(0.1)) }
			compare(fmt.Sprint(dt, ", a solver of another module"), vanilla, none, dt, func(p *perceptron) []Option {
				return []Option{Train(forgetful{0.1}, p.learnables...), StepEvery(every), ReadEvery(4)}
			})
			compare(fmt.Sprint(dt, ", the program's own steps"), vanilla, vanilla, dt, func(*perceptron) []Option { return []Option{AddGradients()} })
		}
	})
}

// Gradients of both types, of scalars too, are added to those that the program has left.
func TestAddGradientsOfTwoTypes(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		a, want := twoTypes(t)
		b, got := twoTypes(t)
		tape, vm := tapeMachine(t, a, G.BindDualValues(want...)), machine(t, b, on, AddGradients())
		s := G.NewVanillaSolver(G.WithLearnRate(1e-3))
		for run := range 7 {
			testutil.Do(t, tape.RunAll())
			tape.Reset()
			testutil.Do(t, vm.RunAll())
			for i, n := range got {
				equal(t, fmt.Sprintf("run %d: %s", run+1, n.Name()), testutil.Get[G.Value](t)(n.Grad()), testutil.Get[G.Value](t)(want[i].Grad()), 100*tolerance(n.Dtype()))
			}
			if run%3 == 1 {
				testutil.Do(t, s.Step(G.NodesToValueGrads(want)))
				testutil.Do(t, s.Step(G.NodesToValueGrads(got)))
			}
		}
		testutil.Do(t, tape.Close())
	})
}

// Runs of small batches make the step of one large batch, its norm limited after the sum, with learnables of both types
// and without axes.
func TestSmallBatches(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		const rows, every = 5, 4
		build := func(rows int, opts ...Option) (vm *VM, inputs, learnables G.Nodes) {
			g, node, r := G.NewGraph(), testutil.Get[*G.Node](t), rand.New(rand.NewPCG(1, 2))
			for i, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
				x := G.NewMatrix(g, dt, G.WithName(fmt.Sprint("x", dt)), G.WithShape(rows, 7+i))
				w := G.NewVector(g, dt, G.WithName(fmt.Sprint("w", dt)), G.WithShape(7+i), G.WithValue(draw(r, dt, 7+i)))
				c := G.NewScalar(g, dt, G.WithName(fmt.Sprint("c", dt)))
				one := G.NewScalar(g, dt, G.WithName(fmt.Sprint("one", dt)))
				for n, v := range map[*G.Node][2]any{c: {float32(0.5), 0.5}, one: {float32(1), 1.0}} {
					testutil.Do(t, G.Let(n, v[i]))
				}
				y := node(G.Add(node(G.Mul(x, w)), c))
				testutil.Get[G.Nodes](t)(G.Backpropagate(G.Nodes{node(G.Sum(node(G.HadamardProd(y, y))))}, G.Nodes{one}, G.Nodes{w, c}))
				inputs, learnables = append(inputs, x), append(learnables, w, c)
			}
			return machine(t, g, append(opts, on, Train(G.NewAdamSolver(G.WithLearnRate(0.01)), learnables...))...), inputs, learnables
		}
		for _, opts := range [][]Option{nil, {ClipNorm(0.5)}} {
			large, largeIn, want := build(rows*every, opts...)
			small, smallIn, got := build(rows, append(opts, StepEvery(every))...)
			r := rand.New(rand.NewPCG(3, 4))
			for range 6 {
				for i, n := range largeIn {
					testutil.Do(t, G.Let(n, draw(r, n.Dtype(), rows*every, 7+i)))
				}
				testutil.Do(t, large.RunAll())
				for k := range every {
					for i, n := range smallIn {
						testutil.Do(t, G.Let(n, testutil.Get[tensor.View](t)(largeIn[i].Value().(*tensor.Dense).Slice(G.S(rows*k, rows*(k+1))))))
					}
					testutil.Do(t, small.RunAll())
				}
			}
			testutil.Do(t, large.Pull())
			testutil.Do(t, small.Pull())
			for i, n := range got {
				equal(t, n.Name(), n.Value(), want[i].Value(), 100*tolerance(n.Dtype()))
			}
			if s := testutil.Get[*Snapshot](t)(small.Snapshot()); s.Steps != 6 || s.Added != 0 || s.Runs != 6*every {
				t.Errorf("got %d steps, %d runs added and %d runs, want 6, 0 and %d", s.Steps, s.Added, s.Runs, 6*every)
			}
			if r := small.Report(); !strings.Contains(r.Solver, "each of 4 runs") {
				t.Errorf("the report says %q", r.Solver)
			}
		}
	})
}

// A run that fails adds nothing, and a slice that has the graph compiled again loses nothing, in the middle of a step.
func TestAddedGradientsStay(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		build := func(opts ...Option) (vm *VM, x, part *G.Node) {
			g, node := G.NewGraph(), testutil.Get[*G.Node](t)
			w := G.NewVector(g, tensor.Float64, G.WithName("w"), G.WithShape(3), G.WithValue(vector(1, 2, 3)))
			x = G.NewVector(g, tensor.Float64, G.WithName("x"), G.WithShape(6))
			part = node(G.Slice(x, G.S(0, 3)))
			testutil.Get[G.Nodes](t)(G.Grad(node(G.Sum(node(G.HadamardProd(part, w)))), w))
			return machine(t, g, append(opts, on, Seed(1), Train(G.NewMomentum(G.WithLearnRate(0.1)), w), StepEvery(3))...), x, part
		}
		a, ax, apart := build()
		b, bx, bpart := build(Watch(NaN))
		for run := range 8 {
			testutil.Do(t, G.Let(bx, vector(math.NaN(), 1, math.NaN(), 1, math.NaN(), 1)))
			if err := b.RunAll(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("training step %d:", run/3+1)) {
				t.Fatalf("run %d: got the error %v", run+1, err)
			}
			for x, part := range map[*G.Node]*G.Node{ax: apart, bx: bpart} {
				testutil.Do(t, G.Let(x, vector(1, 2, 3, 4, 5, float64(run))))
				testutil.Do(t, G.UnsafeLet(part, G.S(run%3, run%3+3)))
			}
			testutil.Do(t, a.RunAll())
			testutil.Do(t, b.RunAll())
			state := testutil.Get[*Snapshot](t)(b.Snapshot())
			if sameSnapshot(t, fmt.Sprint("run ", run+1), state, testutil.Get[*Snapshot](t)(a.Snapshot())); state.Steps != (run+1)/3 || state.Added != (run+1)%3 {
				t.Errorf("run %d: got %d steps and %d runs added", run+1, state.Steps, state.Added)
			}
		}
		state := testutil.Get[*Snapshot](t)(b.Snapshot())
		for want, change := range map[string]func(){
			"after 3 runs since the last step, want 0 to 2": func() { state.Added = 3 },
			"with StepEvery 2, want 3":                      func() { state.Solvers[0].Options["StepEvery"] = 2 },
			"without StepEvery, want 3":                     func() { delete(state.Solvers[0].Options, "StepEvery") },
		} {
			state = testutil.Get[*Snapshot](t)(b.Snapshot())
			change()
			if err := b.Restore(state); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got the error %v, want one with %q", err, want)
			}
		}
	})
}

func TestAddedGradientsErrors(t *testing.T) {
	p := newPerceptron(t, tensor.Float64, 1)
	train := Train(G.NewVanillaSolver(), p.learnables...)
	for want, opts := range map[string][]Option{
		"StepEvery got [0]":                  {train, StepEvery(0)},
		"StepEvery got [2 3]":                {train, StepEvery(2), StepEvery(3)},
		"StepEvery without Train":            {StepEvery(2)},
		"options AddGradients and ReadEvery": {AddGradients(), ReadEvery(2)},
	} {
		if vm, err := NewVM(p.g, append(opts, OnHost())...); err == nil || vm != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got the error %v, want one with %q", err, want)
		}
	}
}
