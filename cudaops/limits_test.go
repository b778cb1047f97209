package cudaops

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/internal/hostmem"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// fakeGPU is a host backend that claims to be a GPU.
type fakeGPU struct{ fake }

func (*fakeGPU) Device() kernels.Device {
	return kernels.Device{Name: "NVIDIA H200", Major: 9, SMs: 132, SharedOptin: 227 << 10, L2: 50 << 20, Memory: 140 << 30, Cooperative: true}
}

// A launch that no GPU can make is an error of NewVM.
func TestGridTooLarge(t *testing.T) {
	g := G.NewGraph()
	a := G.NewVector(g, tensor.Float32, G.WithName("a"), G.WithShape(1<<40))
	b := G.NewVector(g, tensor.Float32, G.WithName("b"), G.WithShape(1))
	testutil.Get[*G.Node](t)(G.OuterProd(a, b))
	_, err := newVM(g, &config{}, &fakeGPU{fake{closes: new(atomic.Int32)}})
	if want := "no kernel for NVIDIA H200 multiplies 1 matrices of 1099511627776 x 1 x 1 of f32 in launches of at most 2147483647 blocks"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got the error %v, want one with %s", err, want)
	}
}

// A graph that does not fit into the host's memory is an error of NewVM; the process goes on.
func TestGraphTooLarge(t *testing.T) {
	if hostmem.Check(hostmem.Most) == nil {
		t.Skip("SKIPPED, NOT TESTED: this system does not report how much memory there is")
	}
	vector := func(g *G.ExprGraph, name string, n int) *G.Node {
		return G.NewVector(g, tensor.Float64, G.WithName(name), G.WithShape(n))
	}
	for want, build := range map[string]func(g *G.ExprGraph) (*G.Node, error){
		// two values in the arena and a result, each of 4 TiB
		"memory for the graph's values on the host: got 13194139533312 bytes (12288.0 GiB)": func(g *G.ExprGraph) (*G.Node, error) {
			return ops.Add(vector(g, "a", 1<<39), vector(g, "b", 1<<39))
		},
		// a view that is a result
		"memory for the graph's values on the host: got 8796093022208 bytes": func(g *G.ExprGraph) (*G.Node, error) {
			return ops.Broadcast(G.NewScalar(g, tensor.Float64, G.WithName("a")), 1<<40, 0)
		},
		"want at most 140737488355328 bytes": func(g *G.ExprGraph) (*G.Node, error) { // 2^129 bytes, which is 0 in 64 bits
			return G.OuterProd(vector(g, "a", 1<<63-1), vector(g, "b", 1<<63-1))
		},
		"node a: got float64 of shape (1073741824, 1073741824, 16), want": func(g *G.ExprGraph) (*G.Node, error) {
			return G.Tanh(G.NewTensor(g, tensor.Float64, 3, G.WithName("a"), G.WithShape(1<<30, 1<<30, 16)))
		},
		"got 17592186044416 bytes (16384.0 GiB) of host memory, want at most": func(g *G.ExprGraph) (*G.Node, error) {
			return G.ApplyOp(userOp{}, vector(g, "a", 1<<41)) // made by the host alone
		},
	} {
		g := G.NewGraph()
		testutil.Get[*G.Node](t)(build(g))
		if vm, err := NewVM(g, OnHost()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, the error %v, want one with %q", vm, err, want)
		}
	}
}

// deadDevice is a session's device whose context is dead.
type deadDevice struct {
	*exec.HostBackend
	closed *atomic.Int32
}

func (d deadDevice) Close() error {
	d.closed.Add(1)
	dead := &driver.Error{Call: "cuMemFree_v2", Code: 700, Name: "CUDA_ERROR_ILLEGAL_ADDRESS", Text: "an illegal memory access was encountered"}
	return driver.Join(fmt.Errorf("free: %w", dead), dead, dead)
}

// The error that a dead context returns to all calls is reported once.
func TestDeadContext(t *testing.T) {
	s := newSession(deadDevice{new(exec.HostBackend), new(atomic.Int32)})
	err := s.Close()
	if err == nil || strings.Count(err.Error(), "illegal") != 1 {
		t.Errorf("got the error %v", err)
	}
}

// A session that is dropped without Close releases its memory, but not as long as one of
// its buffers is there.
func TestDroppedSession(t *testing.T) {
	closed := new(atomic.Int32)
	collected := func() bool {
		for range 20 {
			runtime.GC()
			if closed.Load() > 0 {
				return true
			}
			time.Sleep(5 * time.Millisecond)
		}
		return false
	}
	m := testutil.Get[*Buffer](t)(newSession(deadDevice{new(exec.HostBackend), closed}).Alloc(8))
	if collected() {
		t.Error("a session is closed while one of its buffers is there")
	}
	if m.Size() != 8 {
		t.Errorf("the buffer has %d bytes", m.Size())
	}
	m = nil
	if !collected() {
		t.Error("a session dropped without Close keeps its memory")
	}
	s := newSession(deadDevice{new(exec.HostBackend), closed})
	_ = s.Close()
	runtime.KeepAlive(s)
	s, n := nil, closed.Load()
	_ = s
	runtime.GC()
	time.Sleep(5 * time.Millisecond)
	if n != 2 || closed.Load() != 2 {
		t.Errorf("closed %d times, then %d, want 2: each session once", n, closed.Load())
	}
}

// The arguments of a launch are those that the kernel takes, on the host too.
func TestLaunchArguments(t *testing.T) {
	kernel := basic.Add(kernels.HostDevice(), kernels.Float32, 8).Launches[0].Kernel
	one := [3]int{1, 1, 1}
	for name, s := range sessions(t) {
		m := testutil.Get[*Buffer](t)(s.Alloc(32))
		for want, args := range map[string][]any{
			"":                         {m, m, m, int64(8)},
			"got 0 arguments, want 4":  nil,
			"got 5 arguments, want 4":  {m, m, m, int64(8), int64(8)},
			"argument 2: got an int64": {m, m, int64(8), m},
			"argument 3: got a int32, want a 64-bit integer":   {m, m, m, int32(8)},
			"argument 3: got a float32, want a 64-bit integer": {m, m, m, float32(8)},
		} {
			err := s.Launch(kernel, one, [3]int{256, 1, 1}, 0, args...)
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "launch of add_f32: ")) {
				t.Errorf("%s: got the error %v, want %q", name, err, want)
			}
		}
		testutil.Do(t, s.Sync())
		for want, err := range map[string]error{
			"no entry point x in stheno/add":  s.Launch(&kernels.Kernel{Image: kernels.Builtin().Image("add"), Entry: "x"}, one, one, 0),
			"got blocks of 2048 threads":      s.Launch(kernel, one, [3]int{2048, 1, 1}, 0, m, m, m, int64(8)),
			"a nil buffer":                    s.Launch(kernel, one, one, 0, m, m, (*Buffer)(nil), int64(8)),
			"want *Buffer, int32":             s.Launch(kernel, one, one, 0, m, m, nil, int64(8)),
			"a session that Open did not mak": new(Session).Launch(kernel, one, one, 0),
		} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got the error %v, want %q", name, err, want)
			}
		}
	}
}

// Sessions and buffers that nobody opened are errors, as an error that was not looked at
// leaves them.
func TestNoSession(t *testing.T) {
	for _, s := range []*Session{nil, {}} {
		_, err := s.Alloc(1)
		for _, err := range []error{err, s.Sync(), s.Free(nil), s.CopyTo(nil, nil), s.CopyFrom(nil, nil), s.Launch(nil, [3]int{}, [3]int{}, 0)} {
			if err == nil || !strings.Contains(err.Error(), "that Open did not make") {
				t.Errorf("got the error %v", err)
			}
		}
		testutil.Do(t, s.Close())
	}
	if n := (*Buffer)(nil).Size(); n != 0 {
		t.Errorf("no buffer has %d bytes", n)
	}
}
