package cudaops

import (
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chewxy/hm"
	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/passes"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/test/testutil"
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
		out := testutil.Get[*G.Node](t)(G.ApplyOp(mayFail{&fail, &boom}, z))
		same := testutil.Get[*G.Node](t)(G.ApplyOp(mayFail{&fail, &boom}, a))
		var into G.Value
		G.Read(z, &into)
		testutil.Do(t, G.Let(a, vector(1, 2)))
		testutil.Do(t, G.Let(b, vector(3, 4)))
		vm := machine(t, g, on)
		testutil.Do(t, vm.RunAll())
		if same.Value() == a.Value() {
			t.Error("a root shares an input's value")
		}
		before := z.Value()
		testutil.Do(t, G.Let(a, vector(0, 0)))
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
		testutil.Do(t, vm.RunAll())
		equal(t, "out", out.Value(), vector(3, 4), 0)
	})
}

// fake is a host backend that can be made to fail and counts how often it is
// closed.
type fake struct {
	exec.HostBackend
	arena       int64
	closes      *atomic.Int32
	outOfMemory bool
	broken      bool
	downloads   int // that are still made then
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
		if f.downloads == 0 {
			return errFake
		}
		f.downloads--
	}
	return f.HostBackend.Download(dst, from)
}

func (f *fake) Close() error {
	f.closes.Add(1)
	return f.HostBackend.Close()
}

func TestDroppedVMGivesMemoryBack(t *testing.T) {
	g, a, b, _ := sum2(t, 2)
	testutil.Do(t, G.Let(a, vector(1, 2)))
	testutil.Do(t, G.Let(b, vector(1, 2)))
	closes := new(atomic.Int32)
	func() {
		vm, err := newVM(g, &config{}, &fake{closes: closes})
		testutil.Do(t, err)
		testutil.Do(t, vm.RunAll())
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
	testutil.Do(t, G.Let(a, vector(1, 2)))
	testutil.Do(t, G.Let(b, vector(1, 2)))
	closes := new(atomic.Int32)
	f := &fake{closes: closes, outOfMemory: true}
	if vm, err := newVM(g, &config{}, f); err == nil || vm != nil || !strings.Contains(err.Error(), "512 bytes") {
		t.Errorf("a full device gives %v", err)
	}
	f.outOfMemory = false
	vm, err := newVM(g, &config{}, f)
	testutil.Do(t, err)
	f.broken = true
	if err := vm.RunAll(); !errors.Is(err, errFake) || z.Value() != nil {
		t.Errorf("a broken device gives %v and value %v", err, z.Value())
	}
	testutil.Do(t, vm.Close())
	if closes.Load() != 1 {
		t.Errorf("Close closes %d times", closes.Load())
	}
}

// Values must not depend on the arena's earlier contents.
func TestPoisonedArena(t *testing.T) {
	m := newMLP(t, tensor.Float64, 5, 4, 6, 3)
	b := &fake{closes: new(atomic.Int32)}
	vm := testutil.Get[*VM](t)(newVM(m.g, &config{}, b))
	testutil.Do(t, vm.RunAll())
	want := testutil.Get[G.Value](t)(m.weights[0].Grad())
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
	testutil.Do(t, vm.RunAll())
	equal(t, "gradient", testutil.Get[G.Value](t)(m.weights[0].Grad()), want, 0)
}

// failing is a writer that fails on demand.
type failing struct{ err error }

func (f *failing) Write(p []byte) (int, error) { return len(p), f.err }

// A run that fails has made its step or has not: Steps and the state tell, and the next batches go on from
// there to the bits of a training that made the same steps without a failure.
func TestStepsAfterFailure(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		fail func(f *fake, w *failing, op *error)
		made bool
	}{
		"the first copy":      {func(f *fake, _ *failing, _ *error) { f.broken, f.downloads = true, 0 }, false}, // for an op on the host
		"the second copy":     {func(f *fake, _ *failing, _ *error) { f.broken, f.downloads = true, 1 }, true},
		"the trace's writer":  {func(_ *fake, w *failing, _ *error) { w.err = broken }, true},
		"an op on the host":   {func(_ *fake, _ *failing, op *error) { *op = broken }, false},
		"an op and the trace": {func(_ *fake, w *failing, op *error) { w.err, *op = broken, broken }, false},
	} {
		for _, every := range []int{1, 4} {
			f, w, op, never := &fake{closes: new(atomic.Int32)}, new(failing), error(nil), false
			build := func(c config, b exec.Backend, err *error) (*perceptron, *VM) {
				p := newPerceptron(t, tensor.Float64, 3)
				testutil.Get[*G.Node](t)(G.ApplyOp(mayFail{err, &never}, testutil.Get[*G.Node](t)(G.Square(p.x))))
				seed := uint64(4)
				c.seed, c.every = &seed, []int{every}
				Train(G.NewAdamSolver(), p.learnables...)(&c)
				return p, testutil.Get[*VM](t)(newVM(p.g, &c, b))
			}
			p, vm := build(config{trace: []io.Writer{w}}, f, &op)
			q, want := build(config{}, &exec.HostBackend{}, new(error))
			steps := 0
			for run := range 12 {
				p.feed(t)
				q.feed(t)
				fails := run == 5 || run == 7
				if fails {
					c.fail(f, w, &op)
				}
				if err := vm.RunAll(); (err != nil) != fails {
					t.Fatalf("%s: run %d gives the error %v", name, run, err)
				}
				if f.broken, w.err, op = false, nil, nil; c.made || !fails {
					testutil.Do(t, want.RunAll())
					steps++
				}
				s := testutil.Get[*Snapshot](t)(vm.Snapshot())
				if sameSnapshot(t, name, s, testutil.Get[*Snapshot](t)(want.Snapshot())); s.Steps != steps || s.Runs != steps || vm.Runs() != steps {
					t.Fatalf("%s: after run %d the state has %d steps and %d runs, Runs %d, want %d", name, run, s.Steps, s.Runs, vm.Runs(), steps)
				}
			}
			testutil.Do(t, vm.Close())
			testutil.Do(t, want.Close())
		}
	}
}

// An index outside of its axis is an error of the run that has it, also where runs hand nothing over. Of an
// input it changes nothing; where the run computes it, the step is made, and its state is not given away.
func TestIndexOutsideOfAxis(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		var none error
		var never bool
		for name, c := range map[string]struct {
			shape    tensor.Shape
			indices  func(at *G.Node) (*G.Node, error)
			computed bool
			opts     func(at *G.Node) []Option
		}{
			"input":    {tensor.Shape{3}, func(at *G.Node) (*G.Node, error) { return at, nil }, false, nil},
			"reshaped": {tensor.Shape{1, 3}, func(at *G.Node) (*G.Node, error) { return G.Reshape(at, tensor.Shape{3}) }, false, nil},
			"resident": {tensor.Shape{3}, func(at *G.Node) (*G.Node, error) { return at, nil }, false, func(at *G.Node) []Option { return []Option{Resident(at)} }},
			"sliced":   {tensor.Shape{5}, func(at *G.Node) (*G.Node, error) { return G.Slice(at, G.S(0, 3)) }, true, nil},
			"computed": {tensor.Shape{3}, func(at *G.Node) (*G.Node, error) { return G.ApplyOp(mayFail{&none, &never}, at) }, true, nil},
		} {
			node, g := testutil.Get[*G.Node](t), G.NewGraph()
			table := G.NewMatrix(g, tensor.Float64, G.WithName("table"), G.WithShape(4, 2), G.WithInit(G.RangedFrom(1)))
			at := G.NewTensor(g, tensor.Int, len(c.shape), G.WithName("at"), G.WithShape(c.shape...))
			rows := node(G.ByIndices(table, node(c.indices(at)), 0))
			testutil.Get[G.Nodes](t)(G.Grad(node(G.Sum(node(G.Square(rows)))), table))
			opts := []Option{on, Train(G.NewAdamSolver(), table), ReadEvery(1000)}
			if c.opts != nil {
				opts = append(opts, c.opts(at)...)
			}
			vm := testutil.Get[*VM](t)(NewVM(g, opts...))
			bind := func(index int) {
				all := make([]int, c.shape.TotalSize())
				all[1] = index
				testutil.Do(t, G.Let(at, tensor.New(tensor.WithShape(c.shape...), tensor.WithBacking(all))))
			}
			bind(3)
			testutil.Do(t, vm.RunAll())
			before := testutil.Get[*Snapshot](t)(vm.Snapshot())
			for _, wrong := range []int{9, -1} {
				bind(wrong)
				if err := vm.RunAll(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("got index %d at 1, want 0 to 3", wrong)) {
					t.Fatalf("%s: got the error %v", name, err)
				}
				if c.computed {
					if _, err := vm.Snapshot(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("step 2 was made with a wrong index, node %s", internal.Name(rows))) {
						t.Fatalf("%s: State gives the error %v", name, err)
					}
					testutil.Do(t, vm.Restore(before))
				}
				sameSnapshot(t, name, testutil.Get[*Snapshot](t)(vm.Snapshot()), before)
			}
			bind(0)
			testutil.Do(t, vm.RunAll())
			testutil.Do(t, vm.Close())
		}
		g := G.NewGraph()
		testutil.Get[*G.Node](t)(G.ByIndices(G.NewVector(g, tensor.Float64, G.WithShape(4)), G.NewConstant(tensor.New(tensor.WithBacking([]int{0, 4}))), 0))
		if _, err := NewVM(g, on); err == nil || !strings.Contains(err.Error(), "got index 4 at 1") {
			t.Errorf("a constant gives the error %v", err)
		}
	})
}

// A panic of the compiler is an error of NewVM, which leaves the graph and the Store for the next VM.
func TestCompilerPanics(t *testing.T) {
	g, s := G.NewGraph(), NewStore()
	w := G.NewVector(g, tensor.Float64, G.WithName("w"), G.WithShape(2), G.WithValue(vector(1, 2)))
	testutil.Get[*G.Node](t)(G.Tanh(w))
	panics := func(c *config) {
		c.passes = func(*program.Program, passes.Target, func(string, *program.Program) error) error {
			_ = kernels.CeilDiv(1, 0)
			return nil
		}
	}
	for _, opts := range [][]Option{{OnHost(), panics}, {OnHost(), panics, In(s, w)}} {
		_, err := NewVM(g, opts...)
		if want := "cudaops: the compiler panicked: runtime error: integer divide by zero, at kernels/plan.go:"; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got the error %v, want %s", err, want)
		}
		testutil.Do(t, testutil.Get[*VM](t)(NewVM(g, opts[0], In(s, w))).RunAll())
	}
}
