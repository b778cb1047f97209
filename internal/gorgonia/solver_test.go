package gorgonia

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// solverDefaults are Gorgonia's solvers as they are made without options.
var solverDefaults = map[SolverKind]struct {
	make func(...G.SolverOpt) G.Solver
	want Solver
}{
	Vanilla:         {func(o ...G.SolverOpt) G.Solver { return G.NewVanillaSolver(o...) }, Solver{Rate: 0.001, Batch: 1}},
	Momentum:        {func(o ...G.SolverOpt) G.Solver { return G.NewMomentum(o...) }, Solver{Rate: 0.001, Batch: 1, Momentum: 0.9}},
	RMSProp:         {func(o ...G.SolverOpt) G.Solver { return G.NewRMSPropSolver(o...) }, Solver{Rate: 0.001, Eps: 1e-8, Rho: 0.999}},
	Adam:            {func(o ...G.SolverOpt) G.Solver { return G.NewAdamSolver(o...) }, Solver{Rate: 0.001, Batch: 1, Eps: 1e-8, Beta1: 0.9, Beta2: 0.999}},
	AdamW:           {func(o ...G.SolverOpt) G.Solver { return G.NewAdamW(o...) }, Solver{Rate: 0.001, Eps: 1e-8, Beta1: 0.9, Beta2: 0.999, WeightDecay: 0.01}},
	AdaGrad:         {func(o ...G.SolverOpt) G.Solver { return G.NewAdaGradSolver(o...) }, Solver{Rate: 0.001, Eps: 1e-8}},
	BarzilaiBorwein: {func(o ...G.SolverOpt) G.Solver { return G.NewBarzilaiBorweinSolver(o...) }, Solver{Rate: 0.001}},
}

// solverOptions are Gorgonia's options, the number that each sets, and the solvers that take it:
// the others ignore it.
var solverOptions = map[string]struct {
	option func(float64) G.SolverOpt
	set    func(s *Solver, v float64)
	takes  []SolverKind
}{
	"rate":  {G.WithLearnRate, func(s *Solver, v float64) { s.Rate = v }, []SolverKind{Vanilla, Momentum, RMSProp, Adam, AdamW, BarzilaiBorwein}},
	"L1":    {G.WithL1Reg, func(s *Solver, v float64) { s.L1, s.UseL1 = v, true }, []SolverKind{Vanilla, Momentum, Adam, AdamW}},
	"L2":    {G.WithL2Reg, func(s *Solver, v float64) { s.L2, s.UseL2 = v, true }, []SolverKind{Vanilla, Momentum, RMSProp, Adam, AdamW}},
	"clip":  {G.WithClip, func(s *Solver, v float64) { s.Clip, s.UseClip = v, true }, []SolverKind{Vanilla, Momentum, RMSProp, Adam, AdamW, BarzilaiBorwein}},
	"batch": {G.WithBatchSize, func(s *Solver, v float64) { s.Batch = v }, []SolverKind{Vanilla, Momentum, Adam, AdamW}},
	"eps":   {G.WithEps, func(s *Solver, v float64) { s.Eps = v }, []SolverKind{RMSProp, Adam, AdamW}},
	"beta1": {G.WithBeta1, func(s *Solver, v float64) { s.Beta1 = v }, []SolverKind{Adam, AdamW}},
	"beta2": {G.WithBeta2, func(s *Solver, v float64) { s.Beta2 = v }, []SolverKind{Adam, AdamW}},
	"rho": {G.WithRho, func(s *Solver, v float64) {
		if s.Kind == RMSProp {
			s.Rho = v
		} else {
			s.WeightDecay = v
		}
	}, []SolverKind{RMSProp, AdamW}},
	"momentum": {G.WithMomentum, func(s *Solver, v float64) { s.Momentum = v }, []SolverKind{Momentum}},
}

// Every option of every solver is read, and one that a solver ignores changes nothing.
func TestReadSolver(t *testing.T) {
	if len(solverDefaults) != len(solverKinds) {
		t.Errorf("%d kinds of solvers are tested, %d known", len(solverDefaults), len(solverKinds))
	}
	r := testutil.Random(t)
	for kind, c := range solverDefaults {
		read := func(s G.Solver, want Solver, what string) {
			t.Helper()
			want.Kind = kind
			if got, ok, err := ReadSolver(s); !ok || err != nil || got != want {
				t.Errorf("%s with %s is read as\n%+v, %v, %v, want\n%+v", kind, what, got, ok, err, want)
			}
		}
		read(c.make(), c.want, "no options")
		all, wantAll := []G.SolverOpt{}, c.want
		for name, o := range solverOptions {
			v := r.Float64()
			want := c.want
			want.Kind, wantAll.Kind = kind, kind
			all = append(all, o.option(v))
			for _, k := range o.takes {
				if k == kind {
					o.set(&want, v)
					o.set(&wantAll, v)
				}
			}
			read(c.make(o.option(v)), want, name)
			late := c.make()
			reader, err := NewSolverReader(late)
			if o.option(v)(late); err != nil || reader.Read() != want {
				t.Errorf("%s with %s set later is read as %+v, %v, want %+v", kind, name, reader.Read(), err, want)
			}
		}
		read(c.make(all...), wantAll, "all options")
	}
}

// A solver reports whether it has made a step.
func TestSteppedSolver(t *testing.T) {
	if G.CUDA {
		t.Skip("in a build with the tag cuda, Gorgonia's tape machine needs a GPU")
	}
	for kind, c := range solverDefaults {
		g := G.NewGraph()
		x := G.NewVector(g, tensor.Float64, G.WithName("x"), G.WithShape(3), G.WithInit(G.RangedFrom(1)))
		if _, err := G.Grad(G.Must(G.Sum(G.Must(G.Square(x)))), x); err != nil {
			t.Fatal(err)
		}
		vm := G.NewTapeMachine(g, G.BindDualValues(x))
		if err := vm.RunAll(); err != nil {
			t.Fatal(err)
		}
		s := c.make()
		if err := s.Step(G.NodesToValueGrads(G.Nodes{x})); err != nil {
			t.Fatal(err)
		}
		got, _, err := ReadSolver(s)
		if want := kind != Vanilla; err != nil || got.Stepped != want { // a VanillaSolver holds nothing
			t.Errorf("%s after a step: Stepped is %v, %v, want %v", kind, got.Stepped, err, want)
		}
		vm.Close()
	}
}

type otherSolver struct{}

func (otherSolver) Step([]G.ValueGrad) error { return nil }

func TestUnknownSolver(t *testing.T) {
	for _, s := range []G.Solver{otherSolver{}, nil} {
		if got, ok, err := ReadSolver(s); ok || err != nil {
			t.Errorf("%T is read as %+v, %v, %v", s, got, ok, err)
		}
	}
	if _, ok, err := ReadSolver((*G.AdamSolver)(nil)); ok || err == nil {
		t.Errorf("a nil *AdamSolver: %v, %v, want an error", ok, err)
	}
	r := SolverReader{of: reflect.ValueOf(struct{ eta float32 }{1})}
	if r.number("eta"); r.err == nil || !strings.Contains(r.err.Error(), `"eta"`) {
		t.Errorf("a field of another type gives the error %v", r.err)
	}
}
