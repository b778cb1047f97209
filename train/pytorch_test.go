package train_test

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// recorded is what testdata/optimizers.py wrote.
func recorded(t *testing.T) (r struct{ Steps, Rates map[string][]float64 }) {
	testutil.Do(t, json.Unmarshal(testutil.Get[[]byte](t)(os.ReadFile("testdata/optimizers.json")), &r))
	return r
}

// The solvers of docs/from-pytorch.md make the steps of PyTorch's optimizers.
func TestPyTorchOptimizers(t *testing.T) {
	rate, decay, b1, b2, eps := G.WithLearnRate(0.05), G.WithL2Reg(0.1), G.WithBeta1(0.8), G.WithBeta2(0.95), G.WithEps(1e-3)
	momentum, schedule := G.WithMomentum(0.9), train.StepDecay(0.05, 0.5, 4)
	cases := map[string]struct {
		solver   G.Solver
		schedule func(int) float64
	}{
		"SGD":                          {G.NewVanillaSolver(rate), nil},
		"SGD, decay":                   {G.NewVanillaSolver(rate, decay), nil},
		"SGD, momentum":                {G.NewMomentum(rate, momentum), nil},
		"SGD, momentum, decay, StepLR": {G.NewMomentum(momentum, decay), schedule},
		"Adam":                         {G.NewAdamSolver(), nil},
		"Adam, StepLR":                 {G.NewAdamSolver(b1, b2, eps), schedule},
		"Adam, decay":                  {G.NewAdamSolver(rate, decay), nil},
		"AdamW":                        {G.NewAdamW(), nil},
		"AdamW, StepLR":                {G.NewAdamW(b1, b2, eps, cudaops.WeightDecay(0.2)), schedule},
		"RMSprop":                      {G.NewRMSPropSolver(rate, G.WithRho(0.9), G.WithEps(1e-24)), nil},
	}
	for name, want := range recorded(t).Steps {
		c, ok := cases[name]
		if !ok {
			t.Errorf("no solver is compared with %s", name)
			continue
		}
		s := nn.New(G.NewGraph(), nn.Dtype(tensor.Float64))
		constant := func(v ...float64) *G.Node { return s.Keep(ops.Constant(s.Graph(), tensor.New(tensor.WithBacking(v)))) }
		p := s.Parameter("p", nn.Constant(0), 5)
		loss := s.Keep(ops.Sum(s.Keep(ops.Map("c*square(a - b)", p, constant(0, 1, -1, 0.4, 2), constant(1, 0.5, 2, 3, 0.1)))))
		testutil.Do(t, s.Grad(loss))
		steps := cudaops.Train(c.solver, p)
		if m, ok := c.solver.(*G.Momentum); ok {
			steps = cudaops.SGD(m, p)
		}
		vm := testutil.Get[*cudaops.VM](t)(s.NewVM(cudaops.OnAny(), steps))
		testutil.Do(t, vm.Let(p, []float64{1, -2, 3, 0.5, 0}))
		for i := range 12 {
			if c.schedule != nil {
				G.WithLearnRate(c.schedule(i))(c.solver)
			}
			testutil.Do(t, vm.RunAll())
			if i == 5 { // the state is whole: a step is gone, and made again
				at := testutil.Get[*cudaops.Snapshot](t)(vm.Snapshot())
				testutil.Do(t, vm.RunAll())
				testutil.Do(t, vm.Restore(at))
			}
		}
		testutil.Do(t, vm.Close())
		for i, got := range p.Value().Data().([]float64) {
			if !(math.Abs(got-want[i]) <= 1e-9) {
				t.Errorf("%s: element %d is %v, want %v", name, i, got, want[i])
			}
		}
	}
}

// The state of SGD is another than that of Gorgonia's Momentum.
func TestSGDState(t *testing.T) {
	machine := func(train func(*G.Momentum, ...*G.Node) cudaops.Option) (*cudaops.VM, error) {
		s := nn.New(G.NewGraph())
		p := s.Parameter("p", nn.Constant(1), 2)
		testutil.Do(t, s.Grad(s.Keep(ops.Sum(p))))
		return s.NewVM(cudaops.OnAny(), train(G.NewMomentum(), p))
	}
	sgd := testutil.Get[*cudaops.VM](t)(machine(cudaops.SGD))
	defer sgd.Close()
	testutil.Do(t, sgd.RunAll())
	at := testutil.Get[*cudaops.Snapshot](t)(sgd.Snapshot())
	gorgonias := testutil.Get[*cudaops.VM](t)(machine(func(s *G.Momentum, n ...*G.Node) cudaops.Option { return cudaops.Train(s, n...) }))
	defer gorgonias.Close()
	if err := gorgonias.Restore(at); err == nil || !strings.Contains(err.Error(), `got a state of the solver "SGD", want Momentum`) {
		t.Errorf("Restore gives %v", err)
	}
	if _, err := machine(func(_ *G.Momentum, n ...*G.Node) cudaops.Option { return cudaops.SGD(nil, n...) }); err == nil || !strings.Contains(err.Error(), "Train got a nil *gorgonia.Momentum") {
		t.Errorf("a nil solver gives %v", err)
	}
}

// Schedules are PyTorch's.
func TestPyTorchSchedules(t *testing.T) {
	for name, want := range recorded(t).Rates {
		f, ok := map[string]func(int) float64{
			"StepLR": train.StepDecay(0.1, 0.3, 6), "ExponentialLR": train.StepDecay(0.1, 0.8, 1),
			"CosineAnnealingLR": train.Cosine(0.1, 0, 20), "LinearLR": train.Linear(0.1, 0, 20),
		}[name]
		if !ok {
			t.Errorf("no schedule is compared with %s", name)
			continue
		}
		for i, rate := range want {
			if got := f(i); !(math.Abs(got-rate) <= 1e-12) {
				t.Errorf("%s: step %d has the rate %v, want %v", name, i, got, rate)
			}
		}
	}
}
