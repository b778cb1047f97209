package cudaops

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// sameSnapshot ends the test unless two states are the same bit for bit.
func sameSnapshot(t testing.TB, what string, got, want *Snapshot) {
	t.Helper()
	if !reflect.DeepEqual(got.Solvers, want.Solvers) || got.Steps != want.Steps || got.Added != want.Added || got.Runs != want.Runs || got.Seed != want.Seed {
		t.Fatalf("%s: got %+v, want %+v", what, got, want)
	}
	a, b := stateValues(got), stateValues(want)
	if len(a) != len(b) {
		t.Fatalf("%s: got %d values, want %d", what, len(a), len(b))
	}
	for i := range a {
		x, y := testutil.Get[[]byte](t)(values.Bytes(a[i])), testutil.Get[[]byte](t)(values.Bytes(b[i]))
		if !slices.Equal(x, y) || a[i].Dtype() != b[i].Dtype() || !a[i].Shape().Eq(b[i].Shape()) {
			t.Fatalf("%s: value %d is %v, want %v", what, i, a[i], b[i])
		}
	}
}

func stateValues(s *Snapshot) (all []G.Value) {
	for _, l := range s.Learnables {
		all = append(append(all, l.Value, values.Number(kernels.Int, float64(l.Solver))), l.Moments...)
		if l.EMA != nil {
			all = append(all, l.EMA)
		}
	}
	for _, a := range s.Averages {
		all = append(all, a.Mean, a.Variance)
	}
	return all
}

// A VM that takes a state over goes on as the one that it comes from, with a BatchNorm, random
// numbers, a learning rate that changed and results of every third run: all is the same bits.
func TestState(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		build := func(seed uint64) (*modesGraph, *VM, G.Solver) {
			m, s := newModesGraph(t, true), G.NewAdamSolver(G.WithLearnRate(0.1), G.WithL2Reg(0.01))
			return m, machine(t, m.g, on, Seed(seed), Train(s, m.learnables...), ClipNorm(0.3), ReadEvery(3)), s
		}
		run := func(m *modesGraph, vm *VM, s G.Solver, from, to int) {
			for step := from; step < to; step++ {
				if step == 3 {
					G.WithLearnRate(0.03)(s)
				}
				testutil.Do(t, G.Let(m.x, draw(rand.New(rand.NewPCG(9, uint64(step))), tensor.Float64, 6, 4)))
				testutil.Do(t, vm.RunAll())
			}
		}
		whole, vm, s := build(7)
		run(whole, vm, s, 0, 5)
		middle := testutil.Get[*Snapshot](t)(vm.Snapshot())
		kept := testutil.Get[*Snapshot](t)(vm.Snapshot())
		run(whole, vm, s, 5, 11)
		want := testutil.Get[*Snapshot](t)(vm.Snapshot())
		sameSnapshot(t, "a state that was got before more runs", middle, kept)
		if names := fmt.Sprint(want.Learnables[0].Name, want.Learnables[1].Name); names != "scalebias" || want.Steps != 11 || want.Runs != 11 || want.Seed != 7 {
			t.Errorf("got %s, %+v", names, want)
		}

		again, other, s := build(8)
		run(again, other, s, 0, 2) // what it was does not matter
		testutil.Do(t, other.Restore(middle))
		equal(t, "the scale that Restore bound", again.learnables[0].Value(), middle.Learnables[0].Value, 0)
		sameSnapshot(t, "a state that was set", testutil.Get[*Snapshot](t)(other.Snapshot()), middle)
		run(again, other, s, 5, 11)
		sameSnapshot(t, "after 11 runs", testutil.Get[*Snapshot](t)(other.Snapshot()), want)
		equal(t, "the loss of run 9", again.loss, whole.loss, 0)
		if r := other.Report(); r.Runs != 8 {
			t.Errorf("the report says %d runs, want those of this VM, 8", r.Runs)
		}

		// A fresh one, whose learnables need no values of their own; a value bound after
		// Restore counts.
		third, vm, s := build(8)
		testutil.Do(t, vm.Restore(middle))
		testutil.Do(t, G.Let(third.learnables[1], draw(whole.rand(), tensor.Float64, 1, 4)))
		bound := third.learnables[1].Value()
		changed := testutil.Get[*Snapshot](t)(vm.Snapshot())
		equal(t, "the bias that was bound", changed.Learnables[1].Value, bound, 0)
		testutil.Do(t, vm.Restore(middle))
		run(third, vm, s, 5, 11)
		sameSnapshot(t, "of the third", testutil.Get[*Snapshot](t)(vm.Snapshot()), want)
	})
}

func (m *modesGraph) rand() *rand.Rand { return rand.New(rand.NewPCG(3, 3)) }

// A snapshot that does not fit is an error that names the difference, and changes nothing.
func TestRestoreErrors(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		m := newModesGraph(t, false)
		vm := machine(t, m.g, on, Seed(1), Train(G.NewAdamSolver(G.WithClip(5)), m.learnables...))
		testutil.Do(t, G.Let(m.x, draw(m.rand(), tensor.Float64, 6, 4)))
		testutil.Do(t, vm.RunAll())
		before := testutil.Get[*Snapshot](t)(vm.Snapshot())
		option := func(name string, x float64) func(s *Snapshot) {
			return func(s *Snapshot) { s.Solvers[0].Options[name] = x }
		}
		for want, change := range map[string]func(s *Snapshot){
			`the solver "Momentum", want AdamSolver`:                             func(s *Snapshot) { s.Solvers[0].Kind = "Momentum" },
			"with Beta1 0.5, want 0.9":                                           option("Beta1", 0.5),
			"with L1Reg 0, want a solver without it":                             option("L1Reg", 0),
			"without Clip, want 5":                                               func(s *Snapshot) { delete(s.Solvers[0].Options, "Clip") },
			"without a learning rate":                                            func(s *Snapshot) { delete(s.Solvers[0].Options, "LearnRate") },
			"ClipNorm 1, want a solver without it":                               option("ClipNorm", 1),
			"after -1 steps":                                                     func(s *Snapshot) { s.Steps = -1 },
			fmt.Sprint("after ", math.MaxInt, " steps"):                          func(s *Snapshot) { s.Steps = math.MaxInt },
			fmt.Sprint(math.MaxInt, " runs, want 0 to"):                          func(s *Snapshot) { s.Runs = math.MaxInt },
			"the learnables scale, want bias too":                                func(s *Snapshot) { s.Learnables = s.Learnables[:1] },
			"of learnable more, which Train does not train":                      func(s *Snapshot) { s.Learnables = append(s.Learnables, Learnable{Name: "more"}) },
			"two learnables scale":                                               func(s *Snapshot) { s.Learnables[1].Name = "scale" },
			"bias: got a state with 1 moments, want the 2":                       func(s *Snapshot) { s.Learnables[1].Moments = s.Learnables[1].Moments[1:] },
			"bias, moment 2: got no value, want float64 of shape (1, 4)":         func(s *Snapshot) { s.Learnables[1].Moments[1] = nil },
			"bias: got float64 of shape (4, 1), want float64 of shape (1, 4)":    func(s *Snapshot) { s.Learnables[1].Value = draw(m.rand(), tensor.Float64, 4, 1) },
			"bias: got float32 of shape (1, 4), want float64":                    func(s *Snapshot) { s.Learnables[1].Value = draw(m.rand(), tensor.Float32, 1, 4) },
			"of 0 BatchNorms, want 1":                                            func(s *Snapshot) { s.Averages = nil },
			"BatchNorm 0, mean: got no value":                                    func(s *Snapshot) { s.Averages[0].Mean = nil },
			"BatchNorm 0, variance: got float64 of shape (3), want float64 of s": func(s *Snapshot) { s.Averages[0].Variance = draw(m.rand(), tensor.Float64, 3) },
		} {
			bad := testutil.Get[*Snapshot](t)(vm.Snapshot())
			for _, v := range stateValues(bad) {
				clear(testutil.Get[[]byte](t)(values.Bytes(v)))
			}
			change(bad)
			if err := vm.Restore(bad); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got the error %v, want one with %q", err, want)
			}
			sameSnapshot(t, want, testutil.Get[*Snapshot](t)(vm.Snapshot()), before)
		}
		if err := vm.Restore(nil); err == nil {
			t.Error("Restore of nil returned no error")
		}
	})
}

// Learnables without unique names, and VMs without learnables, are errors.
func TestStateErrors(t *testing.T) {
	node := testutil.Get[*G.Node](t)
	build := func(first, second []G.NodeConsOpt, opts func(learnables ...*G.Node) []Option) *VM {
		g := G.NewGraph()
		a := G.NewVector(g, tensor.Float64, append(first, G.WithShape(2), G.WithValue(vector(1, 2)))...)
		b := G.NewVector(g, tensor.Float64, append(second, G.WithShape(3), G.WithValue(vector(1, 2, 3)))...)
		testutil.Get[G.Nodes](t)(G.Grad(node(G.Add(node(G.Sum(a)), node(G.Sum(b)))), a, b))
		return machine(t, g, append(opts(a, b), OnHost())...)
	}
	named := func(s string) []G.NodeConsOpt { return []G.NodeConsOpt{G.WithName(s)} }
	train := func(learnables ...*G.Node) []Option { return []Option{Train(G.NewVanillaSolver(), learnables...)} }
	for want, vm := range map[string]*VM{
		"learnable 1, of shape (3), has no name":          build(named("a"), nil, train),
		`learnable 0 and learnable 1 are both called "w"`: build(named("w"), named("w"), train),
		"want a VM with the option Train": build(named("a"), named("b"),
			func(...*G.Node) []Option { return nil }),
		"one of Gorgonia's solvers": build(named("a"), named("b"),
			func(l ...*G.Node) []Option { return []Option{Train(otherSolver{G.NewVanillaSolver()}, l...)} }),
	} {
		_, err := vm.Snapshot()
		for what, err := range map[string]error{"Snapshot": err, "Restore": vm.Restore(&Snapshot{})} {
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), what) {
				t.Errorf("%s: got the error %v, want one with %q", what, err, want)
			}
		}
	}
	vm := build(named("a"), named("b"), train)
	testutil.Do(t, vm.Close())
	if _, err := vm.Snapshot(); err == nil || !strings.Contains(err.Error(), "after Close") {
		t.Errorf("after Close the error is %v", err)
	}
	if _, err := (*VM)(nil).Snapshot(); err == nil {
		t.Error("State of no VM returned no error")
	}
}

// A device that fails is an error, not half a state.
func TestStateOfBrokenDevice(t *testing.T) {
	p := newPerceptron(t, tensor.Float64, 3)
	p.feed(t)
	f := &fake{closes: new(atomic.Int32)}
	var c config
	Train(G.NewAdamSolver(), p.learnables...)(&c)
	vm := testutil.Get[*VM](t)(newVM(p.g, &c, f))
	testutil.Do(t, vm.RunAll())
	f.broken = true
	if s, err := vm.Snapshot(); !errors.Is(err, errFake) || s != nil {
		t.Errorf("got %v and the error %v", s, err)
	}
	f.broken = false
	testutil.Do(t, vm.Close())
}

// A graph that cannot be compiled again loses nothing: the error is that of the next call, and
// once the graph is right again, so is the state.
func TestStateOfBrokenGraph(t *testing.T) {
	node, g := testutil.Get[*G.Node](t), G.NewGraph()
	w := G.NewVector(g, tensor.Float64, G.WithName("w"), G.WithShape(6), G.WithInit(G.RangedFrom(1)))
	parts := G.Nodes{node(G.Slice(w, G.S(0, 3))), node(G.Slice(w, G.S(0, 2)))}
	wrong := false
	node(G.ApplyOp(plannedOp{plan: func(dev kernels.Device) (*kernels.Plan, error) {
		if wrong {
			return nil, errors.New("no plan")
		}
		return exec.CopyPlan(dev, 48)
	}}, w))
	testutil.Get[G.Nodes](t)(G.Grad(node(G.Sum(w)), w)) // each step takes 1 off
	vm := testutil.Get[*VM](t)(NewVM(g, OnHost(), Train(G.NewVanillaSolver(G.WithLearnRate(1)), w)))
	testutil.Do(t, vm.RunAll())
	wrong = true
	testutil.Do(t, G.UnsafeLet(parts[0], G.S(1, 4))) // the graph is compiled again
	if err := vm.RunAll(); err == nil {
		t.Fatal("an op without a plan returned no error")
	}
	if _, err := vm.Snapshot(); err == nil {
		t.Error("the state of a VM that has no device memory returned no error")
	}
	if err := vm.Pull(); err == nil {
		t.Error("Pull from a VM that has no device memory returned no error")
	}
	wrong = false
	s := testutil.Get[*Snapshot](t)(vm.Snapshot())
	equal(t, "w", s.Learnables[0].Value, vector(0, 1, 2, 3, 4, 5), 0)
	wrong = true
	testutil.Do(t, G.UnsafeLet(parts[1], G.S(4, 6)))
	if err := vm.RunAll(); err == nil {
		t.Fatal("an op without a plan returned no error")
	}
	if err := vm.Close(); err == nil || !strings.Contains(err.Error(), "no plan") {
		t.Errorf("Close of a VM that has no device memory gives the error %v", err)
	}
}
