package cudaops

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func TestEqualsTapeMachine(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			a, b := newMLP(t, dt, 7, 5, 9, 3), newMLP(t, dt, 7, 5, 9, 3)
			tape := tapeMachine(t, a.g)
			testutil.Do(t, tape.RunAll())
			testutil.Do(t, machine(t, b.g, on).RunAll())
			equal(t, "cost", b.cost.Value(), a.cost.Value(), tolerance(dt))
			equal(t, "cost as read", b.costRead, a.costRead, tolerance(dt))
			for i, w := range b.weights {
				got, want := testutil.Get[G.Value](t)(w.Grad()), testutil.Get[G.Value](t)(a.weights[i].Grad())
				if !got.Shape().Eq(want.Shape()) {
					t.Errorf("gradient of %v has shape %v, want %v", w, got.Shape(), want.Shape())
				}
				equal(t, "gradient of "+w.Name(), got, want, tolerance(dt))
			}
			testutil.Do(t, tape.Close())
		}
	})
}

func TestTrainingEqualsTapeMachine(t *testing.T) {
	solvers := map[string]func() G.Solver{
		"sgd":      func() G.Solver { return G.NewVanillaSolver(G.WithLearnRate(0.1)) },
		"momentum": func() G.Solver { return G.NewMomentum(G.WithLearnRate(0.1)) },
		"adam":     func() G.Solver { return G.NewAdamSolver(G.WithLearnRate(0.01)) },
	}
	onBackends(t, func(t *testing.T, on Option) {
		for name, solver := range solvers {
			train := func(machine func(m *mlp) G.VM) ([]float64, *mlp) {
				m, s := newMLP(t, tensor.Float64, 6, 4, 8, 3), solver()
				vm := machine(m)
				defer vm.Close()
				var costs []float64
				for range 15 {
					testutil.Do(t, vm.RunAll())
					testutil.Do(t, s.Step(G.NodesToValueGrads(m.weights)))
					vm.Reset()
					costs = append(costs, floats(t, m.costRead)...)
				}
				return costs, m
			}
			want, a := train(func(m *mlp) G.VM { return tapeMachine(t, m.g, G.BindDualValues(m.weights...)) })
			got, b := train(func(m *mlp) G.VM { return testutil.Get[*VM](t)(NewVM(m.g, on)) })
			for i := range want {
				if math.Abs(got[i]-want[i]) > 1e-9 {
					t.Fatalf("%s: cost of step %d is %v, want %v", name, i, got[i], want[i])
				}
			}
			if want[0] <= want[len(want)-1] {
				t.Errorf("%s: the cost does not fall: %v", name, want)
			}
			for i, w := range b.weights {
				equal(t, name+" "+w.Name(), w.Value(), a.weights[i].Value(), 1e-8)
			}
		}
	})
}

func TestRunAgain(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		g, a, b, z := sum2(t, 3)
		av := vector(1, 2, 3)
		testutil.Do(t, G.Let(a, av))
		testutil.Do(t, G.Let(b, vector(10, 20, 30)))
		vm := machine(t, g, on)
		testutil.Do(t, vm.RunAll())
		first := z.Value()
		equal(t, "z", first, vector(11, 22, 33), 0)
		av.Set(0, 5.0) // in place
		vm.Reset()
		testutil.Do(t, vm.RunAll())
		equal(t, "z after a change in place", z.Value(), vector(15, 22, 33), 0)
		testutil.Do(t, G.Let(b, vector(0, 0, 1)))
		testutil.Do(t, vm.RunAll()) // without Reset
		equal(t, "z after Let", z.Value(), vector(5, 2, 4), 0)
		equal(t, "the first value", first, vector(11, 22, 33), 0)
		equal(t, "input a", a.Value(), vector(5, 2, 3), 0)
		if r := vm.Report(); r.Runs != 3 || r.Time <= 0 {
			t.Errorf("report of 3 runs: %d runs, %v", r.Runs, r.Time)
		}
	})
}

func TestKeep(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		m := newMLP(t, tensor.Float64, 3, 4, 5, 2)
		testutil.Do(t, machine(t, m.g, on).RunAll())
		if m.hidden.Value() != nil {
			t.Error("an intermediate value is bound although nobody asked")
		}
		testutil.Do(t, machine(t, m.g, on, Keep(m.hidden)).RunAll())
		if got := m.hidden.Value(); got == nil || !got.Shape().Eq(tensor.Shape{3, 5}) {
			t.Errorf("Keep gives %v", got)
		}
		other := newMLP(t, tensor.Float64, 3, 4, 5, 2)
		if _, err := NewVM(m.g, on, Keep(other.hidden)); err == nil || !strings.Contains(err.Error(), "Keep") {
			t.Errorf("Keep of another graph's node gives %v", err)
		}
		if _, err := NewVM(m.g, on, Keep(nil)); err == nil {
			t.Error("Keep(nil) gives no error")
		}
	})
}

func TestUnsetInput(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		g, a, b, z := sum2(t, 2)
		var into G.Value
		G.Read(z, &into)
		testutil.Do(t, G.Let(a, vector(1, 2)))
		vm := machine(t, g, on)
		if err := vm.RunAll(); err == nil || !strings.Contains(err.Error(), "input b has no value") {
			t.Fatalf("a run without b gives %v", err)
		}
		if into != nil || z.Value() != nil {
			t.Error("a run that failed left values")
		}
		bv := tensor.New(tensor.WithShape(2), tensor.WithBacking([]float64{1, 2}))
		testutil.Do(t, G.Let(b, bv))
		testutil.Do(t, vm.RunAll())
		equal(t, "z", z.Value(), vector(2, 4), 0)
		testutil.Do(t, bv.Reshape(1, 2, 1))
		if err := vm.RunAll(); err == nil || !strings.Contains(err.Error(), "input b") || !strings.Contains(err.Error(), "(1, 2, 1)") {
			t.Errorf("a value of another shape gives %v", err)
		}
	})
}

func TestStrict(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		m := newMLP(t, tensor.Float64, 3, 4, 5, 2)
		testutil.Do(t, machine(t, m.g, on, Strict()).RunAll())
		n := testutil.Get[*G.Node](t)(foreign(m.hidden))
		_, err := NewVM(m.g, on, Strict())
		if err == nil {
			t.Fatal("Strict takes a graph with an op that has no kernel")
		}
		for _, word := range []string{internal.Name(n), "Strict"} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("error does not say %q: %v", word, err)
			}
		}
		g, a, b, z := sum2(t, 2)
		var into G.Value
		G.Read(testutil.Get[*G.Node](t)(G.Reshape(z, tensor.Shape{2, 1})), &into)
		testutil.Do(t, G.Let(a, vector(1, 2)))
		testutil.Do(t, G.Let(b, vector(1, 2)))
		testutil.Do(t, machine(t, g, on, Strict()).RunAll())
		equal(t, "read", into, vector(2, 4), 0)
	})
}

func TestClose(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		g, a, b, z := sum2(t, 2)
		testutil.Do(t, G.Let(a, vector(1, 2)))
		testutil.Do(t, G.Let(b, vector(1, 2)))
		vm := testutil.Get[*VM](t)(NewVM(g, on))
		testutil.Do(t, vm.RunAll())
		testutil.Do(t, vm.Close())
		testutil.Do(t, vm.Close())
		if err := vm.RunAll(); err == nil || !strings.Contains(err.Error(), "Close") {
			t.Errorf("RunAll after Close gives %v", err)
		}
		equal(t, "z after Close", z.Value(), vector(2, 4), 0)
		_ = vm.Report().String()
	})
	testutil.Do(t, (*VM)(nil).Close())
}

func TestConcurrentVMs(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		const n = 6
		var graphs [n]*mlp
		for i := range graphs {
			graphs[i] = newMLP(t, tensor.Float64, 4+i, 5, 6, 3)
		}
		var wg sync.WaitGroup
		errs := make(chan error, 2*n)
		for _, m := range graphs {
			wg.Go(func() {
				vm, err := NewVM(m.g, on)
				if err != nil {
					errs <- err
					return
				}
				for range 10 {
					if err := vm.RunAll(); err != nil {
						errs <- err
					}
				}
				errs <- vm.Close()
			})
		}
		wg.Wait()
		close(errs)
		for err := range errs {
			testutil.Do(t, err)
		}
		for i, m := range graphs {
			want := newMLP(t, tensor.Float64, 4+i, 5, 6, 3)
			testutil.Do(t, machine(t, want.g, on).RunAll())
			equal(t, "cost", m.cost.Value(), want.cost.Value(), 0)
		}
	})
}

// One VM in several goroutines: they wait for each other.
func TestOneVMTwoGoroutines(t *testing.T) {
	m := newMLP(t, tensor.Float64, 3, 4, 5, 2)
	vm := machine(t, m.g, OnHost())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := vm.RunAll(); err != nil {
				t.Error(err)
			}
			_ = vm.Report()
		})
	}
	wg.Wait()
	if r := vm.Report(); r.Runs != 4 {
		t.Errorf("%d runs, want 4", r.Runs)
	}
}

// Two VMs on one graph, on both backends at once where there are two.
func TestTwoVMsOneGraph(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		g, a, b, z := sum2(t, 2)
		testutil.Do(t, G.Let(a, vector(1, 2)))
		testutil.Do(t, G.Let(b, vector(1, 2)))
		one, two := machine(t, g, on), machine(t, g, OnHost())
		testutil.Do(t, one.RunAll())
		testutil.Do(t, two.RunAll())
		testutil.Do(t, one.RunAll())
		equal(t, "z", z.Value(), vector(2, 4), 0)
	})
}

func TestTooLarge(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		g, _, _, z := sum2(t, 1<<58)
		vm, err := NewVM(g, on)
		if err == nil || !strings.Contains(err.Error(), "want at most 140737488355328 bytes") || z.Value() != nil {
			t.Errorf("2^58 elements give %v", err)
		}
		testutil.Do(t, vm.Close())
	})
}

func TestBadGraphs(t *testing.T) {
	for _, g := range []*G.ExprGraph{nil, G.NewGraph()} {
		if _, err := NewVM(g, OnHost()); err == nil {
			t.Error("a graph without nodes gives no error")
		}
	}
	g, _, _, _ := sum2(t, 2)
	if _, err := NewVM(g, OnHost(), nil); err == nil {
		t.Error("a nil option gives no error")
	}
	for _, vm := range []*VM{nil, {}} { // an error that was not looked at
		if err := vm.RunAll(); err == nil {
			t.Error("RunAll of no VM gives no error")
		}
		_ = vm.Report()
		vm.Reset()
		testutil.Do(t, vm.Close())
	}
}

func TestOnDevice(t *testing.T) {
	g, _, _, _ := sum2(t, 2)
	devices, none := Devices()
	for _, i := range []int{-1, 0, 1000} {
		if none == nil && i == 0 {
			continue
		}
		_, err := NewVM(g, OnDevice(i))
		if !errors.Is(err, ErrNoDevice) {
			t.Errorf("OnDevice(%d) gives %v", i, err)
		}
		if none == nil && (!strings.Contains(err.Error(), fmt.Sprint(i)) || !strings.Contains(err.Error(), fmt.Sprint(len(devices)))) {
			t.Errorf("OnDevice(%d) of %d: %v", i, len(devices), err)
		}
	}
	if _, err := NewVM(g); none != nil && (!errors.Is(err, ErrNoDevice) || !strings.Contains(err.Error(), "the options OnAny and OnHost run on the host")) {
		t.Errorf("NewVM without a GPU gives %v", err)
	}
	want := "host backend"
	if none == nil {
		want = devices[0].Name
	}
	if got := machine(t, g, OnAny()).Report().Device; got != want {
		t.Errorf("OnAny runs on %s, want %s", got, want)
	}
}

func TestChainReusesMemory(t *testing.T) {
	const n, length = 1 << 12, 50
	g := G.NewGraph()
	x := G.NewVector(g, tensor.Float64, G.WithName("x"), G.WithShape(n), G.WithValue(tensor.Ones(tensor.Float64, n)))
	two := G.NewScalar(g, tensor.Float64, G.WithName("two"), G.WithValue(2.0))
	y := x
	for range length {
		y = testutil.Get[*G.Node](t)(ops.Scale(y, two))
	}
	vm := machine(t, g, OnHost())
	testutil.Do(t, vm.RunAll())
	if got := floats(t, y.Value())[n-1]; got != math.Ldexp(1, length) {
		t.Errorf("2^%d comes out as %v", length, got)
	}
	if r, want := vm.Report(), int64(2*n*8+256); r.Peak != want || r.Arena != r.Peak {
		t.Errorf("a chain takes %d bytes, peak %d, want %d", r.Arena, r.Peak, want)
	}
}

// A map writes over a value that is not needed afterwards, and over no other.
func TestMapsInPlace(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		const n = 1 << 12
		g := G.NewGraph()
		x := G.NewVector(g, tensor.Float64, G.WithName("x"), G.WithShape(n), G.WithValue(tensor.Ones(tensor.Float64, n)))
		w := testutil.Get[*G.Node](t)(ops.WindowSum(x, 1, ops.Same()))
		y := testutil.Get[*G.Node](t)(G.Square(w)) // overwrites w
		z := testutil.Get[*G.Node](t)(ops.WindowSum(y, 1, ops.Same()))
		u := testutil.Get[*G.Node](t)(ops.Add(y, z)) // overwrites z, since y is read
		var read G.Value
		G.Read(y, &read)
		vm := machine(t, g, on)
		testutil.Do(t, vm.RunAll())
		if y, u := floats(t, read)[n/2], floats(t, u.Value())[n/2]; y != 9 || u != 36 {
			t.Errorf("got %v and %v, want 9 and 36", y, u)
		}
		if r, want := vm.Report(), int64(2*n*8); r.Peak != want {
			t.Errorf("the graph takes %d bytes, want %d", r.Peak, want)
		}
	})
}
