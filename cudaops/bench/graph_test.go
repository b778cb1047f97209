package bench

import (
	"errors"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// foreign is Gorgonia's tanh as an op that nobody knows, so that it runs on the host.
type foreign struct{ gorgonia.Op }

func hidden(x *gorgonia.Node) *gorgonia.Node {
	like := gorgonia.NewMatrix(gorgonia.NewGraph(), tensor.Float32, gorgonia.WithShape(x.Shape()...), gorgonia.WithName("like"))
	return gorgonia.Must(gorgonia.ApplyOp(foreign{gorgonia.Must(gorgonia.Tanh(like)).Op()}, x))
}

// counted is a graph of launches around an op that no kernel does.
func counted(rows int) (*gorgonia.ExprGraph, *gorgonia.Node) {
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(rows, 70), gorgonia.WithInit(gorgonia.Uniform(-1, 1)))
	y := hidden(gorgonia.Must(gorgonia.Exp(x)))
	gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.Neg(y)), 1))
	return g, x
}

func TestTimeGraph(t *testing.T) {
	backends := map[string]exec.Backend{"host": new(exec.HostBackend)}
	if _, err := cudaops.Devices(); err == nil {
		backends["GPU"] = testutil.Get[*exec.GPUBackend](t)(exec.OpenGPU(0))
	}
	for name, b := range backends {
		g, x := counted(30)
		before := gorgonia.Value(x.Value())
		timing := testutil.Get[*GraphTiming](t)(timeGraph(b, g, nil, 7, time.Second))
		if len(timing.Runs) != 7 {
			t.Errorf("%s: got %d runs, want 7", name, len(timing.Runs))
		}
		for _, d := range timing.Runs {
			if d <= 0 {
				t.Errorf("%s: a run took %v", name, d)
			}
		}
		if timing.Launches < 2 || len(timing.Host) != 1 || len(timing.Kernels) == 0 {
			t.Errorf("%s: got %d launches, host ops %v and kernels %v, want two launches or more and one op on the host", name, timing.Launches, timing.Host, timing.Kernels)
		}
		if x.Value() != before {
			t.Errorf("%s: the input has another value", name)
		}
		testutil.Do(t, b.Close())
	}
}

// A graph without launches has no times, one without values and a device that is
// not there are errors.
func TestTimeGraphBad(t *testing.T) {
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(3, 4), gorgonia.WithName("x"), gorgonia.WithInit(gorgonia.Ones()))
	hidden(x)
	timing := testutil.Get[*GraphTiming](t)(timeGraph(new(exec.HostBackend), g, nil, 7, time.Second))
	if timing.Runs != nil || timing.Launches != 0 || len(timing.Host) != 1 {
		t.Errorf("got %+v, want no launches", timing)
	}
	g = gorgonia.NewGraph()
	gorgonia.Must(gorgonia.Exp(gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(3, 4), gorgonia.WithName("x"))))
	if _, err := timeGraph(new(exec.HostBackend), g, nil, 1, time.Second); err == nil {
		t.Error("no error for an input without a value")
	}
	if _, err := TimeGraph(99, g, nil, 1, time.Second); !errors.Is(err, cudaops.ErrNoDevice) {
		t.Errorf("device 99: %v, want cudaops.ErrNoDevice", err)
	}
}

// notOurs is a solver of another module.
type notOurs struct{}

func (notOurs) Step([]gorgonia.ValueGrad) error { return nil }

// A timed training step includes the launches of its update, or only these with UpdateAlone. Learnables on the host do not
// change.
func TestTimeStep(t *testing.T) {
	g := gorgonia.NewGraph()
	vector := func(name string) *gorgonia.Node {
		return gorgonia.NewVector(g, tensor.Float32, gorgonia.WithName(name), gorgonia.WithShape(1000), gorgonia.WithInit(gorgonia.Uniform(-1, 1)))
	}
	x, w := vector("x"), vector("w")
	loss := gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.HadamardProd(x, w))))
	testutil.Get[gorgonia.Nodes](t)(gorgonia.Grad(loss, w))
	before := testutil.Get[gorgonia.Value](t)(gorgonia.CloneValue(w.Value()))
	launches := map[bool]int{}
	for _, alone := range []bool{false, true} {
		train := &Training{Solver: gorgonia.NewAdamSolver(), Learnables: gorgonia.Nodes{w}, UpdateAlone: alone, Parts: true}
		timing := testutil.Get[*GraphTiming](t)(timeGraph(new(exec.HostBackend), g, train, 7, time.Second))
		if len(timing.Runs) != 7 || timing.Runs[0] <= 0 {
			t.Errorf("got times %v, want 7", timing.Runs)
		}
		if len(timing.Parts) == 0 || timing.Parts[0].Time <= 0 || len(timing.Parts[0].Op) == 0 {
			t.Errorf("got parts %v, want those of the step", timing.Parts)
		}
		launches[alone] = timing.Launches
	}
	if plain := testutil.Get[*GraphTiming](t)(timeGraph(new(exec.HostBackend), g, nil, 1, time.Second)); launches[false] <= plain.Launches {
		t.Errorf("got %d launches with an update and %d without, want more with", launches[false], plain.Launches)
	}
	if launches[true] >= launches[false] {
		t.Errorf("got %d launches with the loss and %d for the update alone, want fewer", launches[false], launches[true])
	}
	if !w.Value().(*tensor.Dense).Eq(before.(*tensor.Dense)) {
		t.Error("the learnable has other values")
	}
	if _, err := timeGraph(new(exec.HostBackend), g, &Training{Solver: notOurs{}, Learnables: gorgonia.Nodes{w}}, 1, time.Second); err == nil {
		t.Error("no error for a solver of another module")
	}
	if _, err := timeGraph(new(exec.HostBackend), g, &Training{Solver: gorgonia.NewVanillaSolver(), Learnables: gorgonia.Nodes{x}}, 1, time.Second); err == nil {
		t.Error("no error for a learnable without gradient")
	}
}
