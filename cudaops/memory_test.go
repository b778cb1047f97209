package cudaops

import (
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// In a chain two consecutive values are alive at once, and a value can overwrite its predecessor.
func TestMemory(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		const n = 1 << 12 // 32 KiB each
		g := G.NewGraph()
		x := G.NewVector(g, tensor.Float64, G.WithName("x"), G.WithShape(n), G.WithValue(tensor.Ones(tensor.Float64, n)))
		c := G.NewConstant(tensor.Ones(tensor.Float64, n), G.WithName("c"))
		w := testutil.Get[*G.Node](t)(ops.WindowSum(x, 1, ops.Same()))
		v := testutil.Get[*G.Node](t)(ops.WindowSum(w, 1, ops.Same()))
		testutil.Get[*G.Node](t)(ops.Add(v, c))
		vm := machine(t, g, on)
		m := vm.Memory()
		want := Memory{Constants: 8 * n, Activations: 16 * n, Peak: 24 * n, Reserved: 24 * n, At: internal.Name(v)}
		if m.At == internal.Name(w) { // x and w
			want = Memory{Constants: 8 * n, Inputs: 8 * n, Activations: 8 * n, Peak: 24 * n, Reserved: 24 * n, At: internal.Name(w)}
		}
		if m != want {
			t.Errorf("got %+v, want %+v", m, want)
		}
		if r := vm.Report(); r.Peak != m.Peak || r.Arena != m.Reserved {
			t.Errorf("the report has a peak of %d and %d reserved, want %d and %d", r.Peak, r.Arena, m.Peak, m.Reserved)
		}
		for _, part := range []string{"constants      32.0 KiB\n", "peak           96.0 KiB\n", "the peak is at " + m.At} {
			if !strings.Contains(m.String(), part) {
				t.Errorf("got %s, want it to say %q", m, part)
			}
		}
	})
	if m := (*VM)(nil).Memory(); m != (Memory{}) {
		t.Errorf("no VM takes %+v", m)
	}
}

// The parts of a training make the peak: Adam keeps two moments of each parameter.
func TestMemoryOfTraining(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			p := newPerceptron(t, dt, 3)
			p.feed(t)
			vm := machine(t, p.g, on, Train(G.NewAdamSolver(), p.learnables...))
			padded := int64(0) // parameters begin at multiples of 256 bytes
			for _, w := range p.learnables {
				padded += (int64(w.Shape().TotalSize())*int64(dt.Size()) + 255) / 256 * 256
			}
			m := vm.Memory()
			if m.Parameters != padded || m.Solver != 2*padded || m.Activations == 0 {
				t.Errorf("%v: got %+v, want parameters of %d bytes and twice as much for the solver", dt, m, padded)
			}
			sum := m.Parameters + m.Solver + m.Constants + m.Inputs + m.Activations + m.Workspace
			if sum != m.Peak || m.Peak > m.Reserved {
				t.Errorf("%v: the parts are %d bytes, want the peak, %d, of %d reserved", dt, sum, m.Peak, m.Reserved)
			}
			before := m
			testutil.Do(t, vm.RunAll())
			if m = vm.Memory(); m != before {
				t.Errorf("%v: after a run it is %+v, before it was %+v", dt, m, before)
			}
		}
	})
}

// Inputs that stay on the device are inputs.
func TestMemoryOfResidents(t *testing.T) {
	c := newChooser(t, draw(rand.New(rand.NewPCG(1, 2)), tensor.Float64, 64, 8), 2)
	if m := machine(t, c.g, OnHost(), Resident(c.data)).Memory(); m.Inputs != 64*8*8+256 || m.Parameters != 0 || m.Activations != 256 {
		t.Errorf("got %+v, want inputs of 4096 bytes and two indices, and two rows", m)
	}
}

// The workspace of a step is separate from values.
func TestWorkspace(t *testing.T) {
	g := G.NewGraph()
	x := G.NewVector(g, tensor.Float64, G.WithName("x"), G.WithShape(1<<20), G.WithValue(tensor.Ones(tensor.Float64, 1<<20)))
	testutil.Get[*G.Node](t)(ops.Sum(x))
	vm, err := newVM(g, &config{}, &fakeGPU{fake{closes: new(atomic.Int32)}}) // whose sums join partial ones
	testutil.Do(t, err)
	m := vm.Memory()
	if m.Workspace == 0 || m.Inputs != 8<<20 || m.Inputs+m.Activations+m.Workspace != m.Peak {
		t.Errorf("got %+v, want some workspace and an input of 8 MiB", m)
	}
}
