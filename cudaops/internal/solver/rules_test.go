package solver

import (
	"fmt"
	"math"
	"strings"
	"testing"

	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels/expr"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// makers make Gorgonia's solvers.
var makers = map[internal.SolverKind]func(...G.SolverOpt) G.Solver{
	internal.Vanilla:         func(o ...G.SolverOpt) G.Solver { return G.NewVanillaSolver(o...) },
	internal.Momentum:        func(o ...G.SolverOpt) G.Solver { return G.NewMomentum(o...) },
	internal.RMSProp:         func(o ...G.SolverOpt) G.Solver { return G.NewRMSPropSolver(o...) },
	internal.Adam:            func(o ...G.SolverOpt) G.Solver { return G.NewAdamSolver(o...) },
	internal.AdamW:           func(o ...G.SolverOpt) G.Solver { return G.NewAdamW(o...) },
	internal.AdaGrad:         func(o ...G.SolverOpt) G.Solver { return G.NewAdaGradSolver(o...) },
	internal.BarzilaiBorwein: func(o ...G.SolverOpt) G.Solver { return G.NewBarzilaiBorweinSolver(o...) },
}

// options are Gorgonia's, with values that matter for gradients of about 1.
var options = map[string]G.SolverOpt{
	"rate": G.WithLearnRate(0.03), "L1": G.WithL1Reg(0.02), "L2": G.WithL2Reg(0.05),
	"clip": G.WithClip(0.7), "no clip": G.WithClip(0), "batch": G.WithBatchSize(7),
	"eps": G.WithEps(1e-3), "beta1": G.WithBeta1(0.8), "beta2": G.WithBeta2(0.95), "rho": G.WithRho(0.9), "momentum": G.WithMomentum(0.6),
}

// combinations returns none, each and all of the options, with names.
func combinations() map[string][]G.SolverOpt {
	all := map[string][]G.SolverOpt{"none": nil}
	var most []G.SolverOpt
	for name, o := range options {
		all[name] = []G.SolverOpt{o}
		if name != "no clip" {
			most = append(most, o)
		}
	}
	all["all"] = most
	return all
}

const steps, elements = 100, 90

// Every solver, with every option, makes the parameters of Gorgonia's Step, bit for bit.
// AdamW and BarzilaiBorwein have tests of their own.
func TestRulesAreGorgonias(t *testing.T) {
	r := testutil.Random(t)
	for kind, maker := range makers {
		if kind == internal.AdamW || kind == internal.BarzilaiBorwein {
			continue
		}
		for name, opts := range combinations() {
			for _, dt := range []expr.Dtype{expr.Float32, expr.Float64} {
				start := gradients(r, elements)
				start[0] = 0 // whose sign is 0
				want := pair{tensorOf(dt, start), nil}
				theirs, ours := maker(opts...), newStepper(t, maker(opts...), dt, false, start)
				for step := range steps {
					g := gradients(r, elements)
					want.grad = tensorOf(dt, g)
					testutil.Do(t, theirs.Step([]G.ValueGrad{want}))
					ours.make(g)
					what := fmt.Sprintf("%s with %s of %v, step %d", kind, name, dt, step+1)
					compare(t, what, get(ours.state[0], dt), get(testutil.Get[[]byte](t)(values.Bytes(want.value)), dt), 0)
				}
			}
		}
	}
}

// compare wants elements to differ by a tolerance times their size at most, and NaN where
// it is wanted.
func compare(t testing.TB, what string, got, want []float64, tolerance float64) {
	t.Helper()
	for i := range want {
		if math.IsNaN(got[i]) && math.IsNaN(want[i]) {
			continue
		}
		if !(math.Abs(got[i]-want[i]) <= tolerance*(1+math.Abs(want[i]))) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// A schedule changes numbers, not the function.
func TestNumbersChange(t *testing.T) {
	r := testutil.Random(t)
	start := gradients(r, elements)
	want := pair{tensorOf(expr.Float32, start), nil}
	theirs := G.NewAdamSolver()
	ours := newStepper(t, G.NewAdamSolver(), expr.Float32, false, start)
	for range steps {
		rate, g := G.WithLearnRate(r.Float64()), gradients(r, elements)
		rate(theirs)
		rate(ours.solver)
		want.grad = tensorOf(expr.Float32, g)
		testutil.Do(t, theirs.Step([]G.ValueGrad{want}))
		ours.make(g)
	}
	compare(t, "Adam with a schedule", get(ours.state[0], expr.Float32), get(testutil.Get[[]byte](t)(values.Bytes(want.value)), expr.Float32), 0)
}

// AdamW is compared with its definition in float64.
func TestAdamW(t *testing.T) {
	r := testutil.Random(t)
	for _, dt := range []expr.Dtype{expr.Float32, expr.Float64} {
		const rate, lambda, b1, b2, small = 0.02, 0.3, 0.8, 0.95, 1e-6
		s := G.NewAdamW(G.WithLearnRate(rate), G.WithRho(lambda), G.WithBeta1(b1), G.WithBeta2(b2), G.WithEps(small))
		start := gradients(r, elements)
		ours := newStepper(t, s, dt, false, start)
		p, m, v := append([]float64{}, start...), make([]float64, elements), make([]float64, elements)
		for step := range steps {
			g := gradients(r, elements)
			ours.make(g)
			for i := range p {
				p[i] -= rate * lambda * p[i]
				m[i] = b1*m[i] + (1-b1)*g[i]
				v[i] = b2*v[i] + (1-b2)*g[i]*g[i]
				t := float64(step + 1)
				p[i] -= rate * (m[i] / (1 - math.Pow(b1, t))) / (math.Sqrt(v[i]/(1-math.Pow(b2, t))) + small)
			}
		}
		tolerance := map[expr.Dtype]float64{expr.Float32: 2e-4, expr.Float64: 1e-11}[dt]
		compare(t, fmt.Sprint("AdamW of ", dt), get(ours.state[0], dt), p, tolerance)
	}
}

// 1 - beta is rounded once, so that a float32 step of AdamW has the size of the learning rate to the last bits, whatever the betas are.
func TestAdamWStep(t *testing.T) {
	r := testutil.Random(t)
	for _, beta2 := range []float64{0.9, 0.95, 0.99, 0.999, 0.9999} {
		const rate, eps = 0.01, 1e-8
		s := newStepper(t, G.NewAdamW(G.WithLearnRate(rate), G.WithBeta2(beta2), G.WithEps(eps)), expr.Float32, false, make([]float64, elements))
		g := gradients(r, elements)
		s.make(g)
		for i, p := range get(s.state[0], expr.Float32) {
			if want := -rate * g[i] / (math.Abs(g[i]) + eps); !(math.Abs(p-want) <= 5e-7*rate) {
				t.Fatalf("beta2 %v: the step of gradient %v is %v, want %v", beta2, g[i], p, want)
			}
		}
	}
}

// Gorgonia's AdamW does not change the parameters. If this test fails, compare Stheno's AdamW with it.
func TestGorgoniasAdamWStandsStill(t *testing.T) {
	if G.CUDA {
		t.Skip("in a build with the tag cuda, Gorgonia's tape machine needs a GPU")
	}
	g := G.NewGraph()
	x := G.NewVector(g, tensor.Float64, G.WithName("x"), G.WithShape(3), G.WithInit(G.RangedFrom(1)))
	testutil.Get[G.Nodes](t)(G.Grad(G.Must(G.Sum(G.Must(G.Square(x)))), x))
	vm := G.NewTapeMachine(g, G.BindDualValues(x))
	testutil.Do(t, vm.RunAll())
	testutil.Do(t, G.NewAdamW(G.WithLearnRate(1)).Step(G.NodesToValueGrads(G.Nodes{x})))
	compare(t, "the parameter", x.Value().Data().([]float64), []float64{1, 2, 3}, 0)
	testutil.Do(t, vm.Close())
}

func TestSame(t *testing.T) {
	read := func(opts ...G.SolverOpt) internal.Solver {
		s, _, _ := internal.ReadSolver(G.NewAdamSolver(opts...))
		return s
	}
	plain := read()
	for name, o := range options {
		want := map[string]bool{"L1": false, "L2": false, "clip": false, "no clip": false, "batch": false}
		same, listed := want[name]
		if got := Same(plain, read(o)); got != (same || !listed) {
			t.Errorf("Adam with %s is the same function: %v", name, got)
		}
	}
	if _, err := NewRule(internal.Solver{Kind: "Other"}, expr.Float32, Options{}); err == nil || !strings.Contains(err.Error(), "Other") {
		t.Errorf("an unknown solver gives the error %v", err)
	}
}

// number64 is a parameter without axes.
type number64 struct{ value, grad *G.F64 }

func (n number64) Value() G.Value         { return n.value }
func (n number64) Grad() (G.Value, error) { return n.grad, nil }

// Gorgonia has separate code for parameters without axes, which omits some solver state and clips differently. Stheno handles them
// like tensors. This test fails when Gorgonia does the same.
func TestGorgoniasNumbersDiffer(t *testing.T) {
	for name, c := range map[string]struct {
		kind    internal.SolverKind
		opts    []G.SolverOpt
		differs bool
	}{
		"Vanilla":                         {internal.Vanilla, nil, false},
		"Vanilla with L2":                 {internal.Vanilla, []G.SolverOpt{G.WithL2Reg(0.1)}, false},
		"Vanilla that clips to 0":         {internal.Vanilla, []G.SolverOpt{G.WithClip(0)}, true},
		"Vanilla with L1":                 {internal.Vanilla, []G.SolverOpt{G.WithL1Reg(0.1)}, true},
		"Adam":                            {internal.Adam, nil, false},
		"RMSProp":                         {internal.RMSProp, nil, false},
		"RMSProp that clips":              {internal.RMSProp, []G.SolverOpt{G.WithClip(0.1)}, true},
		"Momentum, whose velocity is 0":   {internal.Momentum, nil, true},
		"AdaGrad, which collects nothing": {internal.AdaGrad, nil, true},
	} {
		theirs, ours := makers[c.kind](c.opts...), newStepper(t, makers[c.kind](c.opts...), expr.Float64, false, []float64{0})
		value := G.F64(0) // whose sign is 0, or 1
		for range 5 {
			grad := G.F64(0.5)
			testutil.Do(t, theirs.Step([]G.ValueGrad{number64{&value, &grad}}))
			ours.make([]float64{0.5})
		}
		got := get(ours.state[0], expr.Float64)[0]
		if differs := math.Abs(got-float64(value)) > 1e-12; differs != c.differs {
			t.Errorf("%s: a number is %v, Gorgonia's %v, want them to differ: %v", name, got, value, c.differs)
		}
	}
	single := pair{tensorOf(expr.Float32, []float64{1}), tensorOf(expr.Float32, []float64{1})}
	if err := G.NewBarzilaiBorweinSolver().Step([]G.ValueGrad{single}); err == nil {
		t.Error("Gorgonia's BarzilaiBorweinSolver takes float32")
	}
}
