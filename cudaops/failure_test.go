package cudaops

import (
	"errors"
	"fmt"
	"hash"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chewxy/hm"
	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/must"
	"github.com/stheno-ml/stheno/kernels"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// mayFail is a host op, v -> v, that fails or panics on demand.
type mayFail struct {
	err   *error
	panic *bool
}

func (mayFail) Arity() int { return 1 }

func (mayFail) Type() hm.Type { return hm.NewFnType(hm.TypeVariable('a'), hm.TypeVariable('a')) }

func (mayFail) InferShape(in ...G.DimSizer) (tensor.Shape, error) {
	return in[0].(tensor.Shape).Clone(), nil
}

func (m mayFail) Do(in ...G.Value) (G.Value, error) {
	if *m.panic {
		panic("boom")
	}
	return in[0], *m.err // the input itself, as some of Gorgonia's own ops do
}

func (mayFail) ReturnsPtr() bool { return true }

func (mayFail) CallsExtern() bool { return false }

func (mayFail) OverwritesInput() int { return -1 }

func (mayFail) WriteHash(h hash.Hash) { fmt.Fprint(h, "mayFail") }

func (mayFail) Hashcode() uint32 { return 77 }

func (mayFail) String() string { return "mayFail" }

func TestFailureInTheMiddle(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		g, a, b, z := sum2(t, 2)
		var fail error
		var boom bool
		out := must.Get[*G.Node](t)(G.ApplyOp(mayFail{&fail, &boom}, z))
		same := must.Get[*G.Node](t)(G.ApplyOp(mayFail{&fail, &boom}, a))
		var into G.Value
		G.Read(z, &into)
		must.Do(t, G.Let(a, vector(1, 2)))
		must.Do(t, G.Let(b, vector(3, 4)))
		vm := machine(t, g, on)
		must.Do(t, vm.RunAll())
		if same.Value() == a.Value() {
			t.Error("a root shares an input's value")
		}
		before := z.Value()
		must.Do(t, G.Let(a, vector(0, 0)))
		for _, c := range []struct {
			err   error
			panic bool
			want  string
		}{{errors.New("broken"), false, "broken"}, {nil, true, "boom"}} {
			fail, boom = c.err, c.panic
			err := vm.RunAll()
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "mayFail") {
				t.Errorf("got error %v, want one with %q and the op", err, c.want)
			}
			if z.Value() != before || floats(t, into)[0] != 4 {
				t.Error("a run that failed changed values")
			}
		}
		fail, boom = nil, false
		must.Do(t, vm.RunAll())
		equal(t, "out", out.Value(), vector(3, 4), 0)
	})
}

// fake is a host backend that can be told to fail and counts how often it is
// closed.
type fake struct {
	exec.HostBackend
	arena       int64
	closes      *atomic.Int32
	outOfMemory bool
	broken      bool
}

var errFake = errors.New("the device is broken")

func (f *fake) Alloc(bytes int64) error {
	if f.outOfMemory {
		return fmt.Errorf("cannot allocate %d bytes", bytes)
	}
	f.arena = bytes
	return f.HostBackend.Alloc(bytes)
}

func (f *fake) Download(dst []byte, from exec.Span) error {
	if f.broken {
		return errFake
	}
	return f.HostBackend.Download(dst, from)
}

func (f *fake) Close() error {
	f.closes.Add(1)
	return f.HostBackend.Close()
}

func TestDroppedVMGivesMemoryBack(t *testing.T) {
	g, a, b, _ := sum2(t, 2)
	must.Do(t, G.Let(a, vector(1, 2)))
	must.Do(t, G.Let(b, vector(1, 2)))
	closes := new(atomic.Int32)
	func() {
		vm, err := newVM(g, &config{}, &fake{closes: closes})
		must.Do(t, err)
		must.Do(t, vm.RunAll())
	}()
	for range 100 {
		runtime.GC()
		if closes.Load() > 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("a VM dropped without Close keeps its memory")
}

func TestDeviceFailure(t *testing.T) {
	g, a, b, z := sum2(t, 2)
	must.Do(t, G.Let(a, vector(1, 2)))
	must.Do(t, G.Let(b, vector(1, 2)))
	closes := new(atomic.Int32)
	f := &fake{closes: closes, outOfMemory: true}
	if vm, err := newVM(g, &config{}, f); err == nil || vm != nil || !strings.Contains(err.Error(), "512 bytes") {
		t.Errorf("a full device gives %v", err)
	}
	f.outOfMemory = false
	vm, err := newVM(g, &config{}, f)
	must.Do(t, err)
	f.broken = true
	if err := vm.RunAll(); !errors.Is(err, errFake) || z.Value() != nil {
		t.Errorf("a broken device gives %v and value %v", err, z.Value())
	}
	must.Do(t, vm.Close())
	if closes.Load() != 1 {
		t.Errorf("Close closes %d times", closes.Load())
	}
}

// Values must not depend on the arena's earlier contents.
func TestPoisonedArena(t *testing.T) {
	m := newMLP(t, tensor.Float64, 5, 4, 6, 3)
	b := &fake{closes: new(atomic.Int32)}
	vm := must.Get[*VM](t)(newVM(m.g, &config{}, b))
	must.Do(t, vm.RunAll())
	want := must.Get[G.Value](t)(m.weights[0].Grad())
	kept := map[*program.Buffer][]byte{} // constants, which are uploaded once
	for _, in := range vm.graph.Program.Setup {
		if m := in.Out[0].Buffer; m != nil {
			kept[m] = slices.Clone(b.Memory(exec.Span{Offset: m.Offset, Size: m.Size}))
		}
	}
	arena := kernels.Elements[float64](b.Memory(exec.Span{Offset: 0, Size: b.arena}))
	for i := range arena {
		arena[i] = math.NaN()
	}
	for m, bytes := range kept {
		copy(b.Memory(exec.Span{Offset: m.Offset, Size: m.Size}), bytes)
	}
	must.Do(t, vm.RunAll())
	equal(t, "gradient", must.Get[G.Value](t)(m.weights[0].Grad()), want, 0)
}
