package cudaops

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// targets is a graph of the loss Σ(w-x)² + Σ(b-y)², whose gradients are 2(w-x) and 2(b-y).
type targets struct {
	g          *G.ExprGraph
	r          *rand.Rand
	inputs     G.Nodes // x, y
	learnables G.Nodes // w, b
}

func newTargets(t testing.TB, dt tensor.Dtype, seed uint64) *targets {
	node, m := testutil.Get[*G.Node](t), &targets{g: G.NewGraph(), r: rand.New(rand.NewPCG(seed, 2))}
	var parts G.Nodes
	for i, name := range []string{"w", "b"} {
		shape := []int{5 - 2*i, 7}
		l := G.NewMatrix(m.g, dt, G.WithName(name), G.WithShape(shape...), G.WithValue(draw(m.r, dt, shape...)))
		x := G.NewMatrix(m.g, dt, G.WithName([]string{"x", "y"}[i]), G.WithShape(shape...))
		m.learnables, m.inputs = append(m.learnables, l), append(m.inputs, x)
		parts = append(parts, node(G.Sum(node(G.Square(node(G.Sub(l, x)))))))
	}
	testutil.Get[G.Nodes](t)(G.Grad(node(G.Add(parts[0], parts[1])), m.learnables...))
	return m
}

// run binds the next inputs and runs.
func (m *targets) run(t testing.TB, vm *VM) {
	for _, x := range m.inputs {
		testutil.Do(t, G.Let(x, draw(m.r, x.Dtype(), x.Shape()...)))
	}
	testutil.Do(t, vm.RunAll())
}

// AdamW's decay by its name, of one set alone, and the averages are those of a plain program in float64.
func TestWeightDecayAndEMA(t *testing.T) {
	const rate, decay, b1, b2, eps, ema, limit = 0.02, 0.3, 0.9, 0.999, 1e-8, 0.9, 3.0
	onBackends(t, func(t *testing.T, on Option) {
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			m := newTargets(t, dt, testutil.Seed(t))
			solver := func(decay float64) G.Solver { return G.NewAdamW(G.WithLearnRate(rate), WeightDecay(decay)) }
			vm := machine(t, m.g, on, Train(solver(decay), m.learnables[0]), Train(solver(0), m.learnables[1]), EMA(ema), StepEvery(2), ClipNorm(limit))
			var p, first, second, average, sum [2][]float64
			for i, n := range m.learnables {
				p[i] = slices.Clone(floats(t, n.Value()))
				first[i], second[i], average[i], sum[i] = make([]float64, len(p[i])), make([]float64, len(p[i])), make([]float64, len(p[i])), make([]float64, len(p[i]))
			}
			for run := range 40 {
				m.run(t, vm)
				norm := 0.0
				for i := range p {
					for k, x := range floats(t, m.inputs[i].Value()) {
						sum[i][k] += 2 * (p[i][k] - x)
						norm += sum[i][k] * sum[i][k]
					}
				}
				if run%2 == 0 {
					continue
				}
				step := float64(run/2 + 1)
				for i := range p {
					for k, g := range sum[i] {
						g *= limit / max(limit, math.Sqrt(norm))
						first[i][k] = b1*first[i][k] + (1-b1)*g
						second[i][k] = b2*second[i][k] + (1-b2)*g*g
						if i == 0 {
							p[i][k] -= rate * decay * p[i][k]
						}
						p[i][k] -= rate * first[i][k] / (1 - math.Pow(b1, step)) / (math.Sqrt(second[i][k]/(1-math.Pow(b2, step))) + eps)
						if step == 1 {
							average[i][k] = p[i][k]
						} else {
							average[i][k] = ema*average[i][k] + (1-ema)*p[i][k]
						}
						sum[i][k] = 0
					}
				}
			}
			testutil.Do(t, vm.Pull())
			for i, l := range testutil.Get[[]Learnable](t)(vm.EMA()) {
				if n := m.learnables[i]; l.Name != n.Name() || !l.Value.Shape().Eq(n.Shape()) {
					t.Errorf("average %d is %s of shape %v, want %s of shape %v", i, l.Name, l.Value.Shape(), n.Name(), n.Shape())
				}
				for what, got := range map[string][2][]float64{"value": {floats(t, m.learnables[i].Value()), p[i]}, "average": {floats(t, l.Value), average[i]}} {
					for k, want := range got[1] {
						if x := got[0][k]; !(math.Abs(x-want) <= 10*tolerance(dt)*(1+math.Abs(want))) {
							t.Fatalf("%v, %s of %s: element %d is %v, want %v", dt, what, l.Name, k, x, want)
						}
					}
				}
			}
		}
	})
}

// TestTrainSets: two solvers of any kinds in one VM, with or without a Store, make the same steps, bit for bit, as each makes in a separate VM.
func TestTrainSets(t *testing.T) {
	kinds := []func() G.Solver{
		func() G.Solver { return G.NewVanillaSolver(G.WithLearnRate(0.1)) },
		func() G.Solver { return G.NewMomentum(G.WithLearnRate(0.02)) },
		func() G.Solver { return G.NewRMSPropSolver(G.WithL2Reg(0.01)) },
		func() G.Solver { return G.NewAdamSolver(G.WithLearnRate(0.05), G.WithClip(0.5)) },
		func() G.Solver { return G.NewAdamW(G.WithLearnRate(0.05), WeightDecay(0.2)) },
		func() G.Solver { return G.NewAdaGradSolver() },
		func() G.Solver { return G.NewBarzilaiBorweinSolver(G.WithLearnRate(0.05), G.WithClip(0.2)) },
	}
	onBackends(t, func(t *testing.T, on Option) {
		r := testutil.Random(t)
		for i := range 12 {
			a, b := r.IntN(len(kinds)), r.IntN(len(kinds))
			if i == 0 { // both have step sizes from all gradients of their set
				a, b = len(kinds)-1, len(kinds)-1
			}
			dt, seed := []tensor.Dtype{tensor.Float32, tensor.Float64}[r.IntN(2)], r.Uint64()
			var opts []Option
			if r.IntN(2) == 0 {
				opts = append(opts, StepEvery(3))
			}
			if r.IntN(2) == 0 {
				opts = append(opts, EMA(0.75))
			}
			if r.IntN(2) == 0 || i == 0 {
				opts = append(opts, ClipNorm(1e30)) // by a factor of 1
			}
			store := NewStore()
			train := func(runs int, more ...func(m *targets) Option) (*targets, *Snapshot) {
				m := newTargets(t, dt, seed)
				all := append(slices.Clone(opts), on)
				for _, o := range more {
					all = append(all, o(m))
				}
				vm := testutil.Get[*VM](t)(NewVM(m.g, all...))
				defer func() { testutil.Do(t, vm.Close()) }()
				for range runs {
					m.run(t, vm)
				}
				return m, testutil.Get[*Snapshot](t)(vm.Snapshot())
			}
			first := func(m *targets) Option { return Train(kinds[a](), m.learnables[0]) }
			second := func(m *targets) Option { return Train(kinds[b](), m.learnables[1]) }
			_, w := train(11, first)
			_, x := train(11, second)
			_, both := train(11, first, second)
			_, held := train(11, first, second, func(*targets) Option { return In(store) })
			want := *both
			want.Solvers = append(slices.Clone(w.Solvers), x.Solvers...)
			want.Seed, held.Seed = both.Seed, both.Seed
			want.Learnables = append(slices.Clone(w.Learnables), x.Learnables...)
			want.Learnables[1].Solver = 1
			what := fmt.Sprint(a, " and ", b, " of ", dt, ", ", len(opts), " options")
			sameSnapshot(t, what, both, &want)
			sameSnapshot(t, what+" in a Store", held, both)
			testutil.Do(t, store.Close())
		}
	})
}

// A snapshot of two solvers and averages goes on with the same bits, and fits no other sets.
func TestSnapshotOfSets(t *testing.T) {
	build := func(seed uint64, opts ...func(w, b *G.Node) Option) (*targets, *VM) {
		m := newTargets(t, tensor.Float32, seed)
		all := []Option{OnHost(), Seed(1)}
		for _, o := range opts {
			all = append(all, o(m.learnables[0], m.learnables[1]))
		}
		return m, machine(t, m.g, all...)
	}
	type option = func(w, b *G.Node) Option
	adam := func(w, _ *G.Node) Option { return Train(G.NewAdamW(WeightDecay(0.5)), w) }
	momentum := func(_, b *G.Node) Option { return Train(G.NewMomentum(), b) }
	average := func(_, _ *G.Node) Option { return EMA(0.5) }
	every := func(_, _ *G.Node) Option { return StepEvery(3) }
	m, vm := build(1, adam, momentum, average, every)
	if _, err := vm.EMA(); err == nil || !strings.Contains(err.Error(), "no step yet") {
		t.Errorf("averages before the first step give the error %v", err)
	}
	for range 5 {
		m.run(t, vm)
	}
	s := testutil.Get[*Snapshot](t)(vm.Snapshot())
	other, again := build(2, adam, momentum, average, every)
	testutil.Do(t, again.Restore(s))
	other.r = rand.New(rand.NewPCG(9, 9))
	m.r = rand.New(rand.NewPCG(9, 9))
	for range 5 {
		m.run(t, vm)
		other.run(t, again)
	}
	sameSnapshot(t, "restored", testutil.Get[*Snapshot](t)(again.Snapshot()), testutil.Get[*Snapshot](t)(vm.Snapshot()))
	before := testutil.Get[*Snapshot](t)(again.Snapshot())
	for want, change := range map[string]func(s *Snapshot){
		"1 solvers, want 2":              func(s *Snapshot) { s.Solvers = s.Solvers[:1] },
		"of solver 1, want 0":            func(s *Snapshot) { s.Learnables[0].Solver = 1 },
		"learnable w, EMA: got no value": func(s *Snapshot) { s.Learnables[0].EMA = nil },
		"EMA 0.25, want 0.5":             func(s *Snapshot) { s.Solvers[1].Options["EMA"] = 0.25 },
		"b, moment 2: got float32":       func(s *Snapshot) { s.Learnables[1].Moments[1] = s.Learnables[0].Value },
		"WeightDecay 0.25, want 0.5":     func(s *Snapshot) { s.Solvers[0].Options["WeightDecay"] = 0.25 },
		"0 moments, want the 2 of Mom":   func(s *Snapshot) { s.Learnables[1].Moments = nil },
	} {
		s := testutil.Get[*Snapshot](t)(again.Snapshot())
		change(s)
		if err := again.Restore(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got the error %v, want one with %q", err, want)
		}
	}
	sameSnapshot(t, "after errors", testutil.Get[*Snapshot](t)(again.Snapshot()), before)
	for want, opts := range map[string][]option{
		`the solver "AdamW", want Momentum`: {momentum, adam, average, every}, "without it": {adam, momentum, every},
	} {
		_, vm := build(3, opts...)
		if err := vm.Restore(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got the error %v, want one with %q", err, want)
		}
		if _, err := vm.EMA(); err == nil {
			t.Error("averages that are not there give no error")
		}
	}
}

// WeightDecay sets what AdamW has, and nothing of other solvers.
func TestWeightDecayOfOthers(t *testing.T) {
	m := newTargets(t, tensor.Float64, 1)
	vm := machine(t, m.g, OnHost(), Train(G.NewRMSPropSolver(WeightDecay(0.5)), m.learnables[0]), Train(G.NewAdamW(WeightDecay(0.25)), m.learnables[1]))
	s := testutil.Get[*Snapshot](t)(vm.Snapshot()).Solvers
	if rho, decay := s[0].Options["Rho"], s[1].Options["WeightDecay"]; rho != 0.999 || decay != 0.25 {
		t.Errorf("got Rho %v of RMSProp and WeightDecay %v of AdamW, want 0.999 and 0.25", rho, decay)
	}
}
