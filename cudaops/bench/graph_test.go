package bench

import (
	"errors"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/internal/must"
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
		backends["GPU"] = must.Get[*exec.GPUBackend](t)(exec.OpenGPU(0))
	}
	for name, b := range backends {
		g, x := counted(30)
		before := gorgonia.Value(x.Value())
		timing := must.Get[*GraphTiming](t)(timeGraph(b, g, nil, 7, time.Second))
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
		must.Do(t, b.Close())
	}
}

// A graph without launches has no times, one without values and a device that is
// not there are errors.
func TestTimeGraphBad(t *testing.T) {
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(3, 4), gorgonia.WithName("x"), gorgonia.WithInit(gorgonia.Ones()))
	hidden(x)
	timing := must.Get[*GraphTiming](t)(timeGraph(new(exec.HostBackend), g, nil, 7, time.Second))
	if timing.Runs != nil || timing.Launches != 0 || len(timing.Host) != 1 {
		t.Errorf("got %+v, want no launches", timing)
	}
	g = gorgonia.NewGraph()
	gorgonia.Must(gorgonia.Exp(gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(3, 4), gorgonia.WithName("x"))))
	if _, err := timeGraph(new(exec.HostBackend), g, nil, 1, time.Second); err == nil {
		t.Error("no error for an input without a value")
	}
	if _, err := TimeGraph(99, g, 1, time.Second); !errors.Is(err, cudaops.ErrNoDevice) {
		t.Errorf("device 99: %v, want cudaops.ErrNoDevice", err)
	}
}
