package ops_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// withoutTag skips a test in a build with the tag cuda, where Gorgonia's machines want a device: cudaops/tape tests those.
func withoutTag(t testing.TB) {
	t.Helper()
	if G.CUDA {
		t.Skip("in a build with the tag cuda, Gorgonia's machines are its CUDA machines")
	}
}

// dropped is two Dropouts of ones, and the sum of the first one's products with weights.
type dropped struct {
	g             *G.ExprGraph
	x, a, b, loss *G.Node
}

const dropShare = 0.25

func newDropped(t testing.TB) *dropped {
	node, d := testutil.Get[*G.Node](t), &dropped{g: G.NewGraph()}
	d.x = G.NewMatrix(d.g, tensor.Float32, G.WithName("x"), G.WithShape(100, 100), G.WithInit(G.Ones()))
	d.a, d.b = node(ops.Dropout(d.x, dropShare)), node(ops.Dropout(d.x, dropShare))
	d.loss = node(ops.Sum(node(ops.Map("a*3 + 0*b", d.a, d.b))))
	return d
}

func floats(v G.Value) []float32 { return slices.Clone(v.Data().([]float32)) }

// dropoutMachines run a graph once more.
func dropoutMachines(t testing.TB, d *dropped) map[string]func() {
	testutil.Get[G.Nodes](t)(G.Grad(d.loss, d.x))
	vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(d.g, cudaops.OnAny(), cudaops.Strict(), cudaops.Keep(d.a, d.b), cudaops.Seed(3)))
	tape := G.NewTapeMachine(d.g)
	t.Cleanup(func() { vm.Close(); tape.Close() })
	return map[string]func(){
		"stheno": func() { testutil.Do(t, vm.RunAll()) },
		"tape":   func() { tape.Reset(); testutil.Do(t, tape.RunAll()) },
	}
}

// TestDropout: the share that is dropped, the scale of the rest, the same elements in the gradient, others in the other op and the next run.
func TestDropout(t *testing.T) {
	withoutTag(t)
	for _, machine := range []string{"stheno", "tape"} {
		t.Run(machine, func(t *testing.T) {
			d := newDropped(t)
			run := dropoutMachines(t, d)[machine]
			run()
			a, b, g := floats(d.a.Value()), floats(d.b.Value()), floats(testutil.Get[G.Value](t)(d.x.Grad()))
			zeros := 0
			for i, v := range a {
				if v == 0 {
					zeros++
				} else if v != 1/float32(1-dropShare) {
					t.Fatalf("element %d is %v, want 0 or 1 / %v", i, v, 1-dropShare)
				}
				if g[i] != 3*v {
					t.Fatalf("element %d: got the gradient %v of an element that became %v", i, g[i], v)
				}
			}
			n := float64(len(a))
			if got, off := float64(zeros), 6*math.Sqrt(n*dropShare*(1-dropShare)); math.Abs(got-n*dropShare) > off {
				t.Errorf("%v of %v elements are dropped, want %v ± %v", got, n, n*dropShare, off)
			}
			if slices.Equal(a, b) {
				t.Error("two Dropouts drop the same elements")
			}
			run()
			if slices.Equal(a, floats(d.a.Value())) {
				t.Error("two runs drop the same elements")
			}
		})
	}
}

// TestFixDraws: Gorgonia's machines draw the same numbers in each run, also the Lisp machine, whose gradient drops what its output does.
func TestFixDraws(t *testing.T) {
	withoutTag(t)
	d := newDropped(t)
	run := dropoutMachines(t, d)["tape"]
	ops.FixDraws(d.g, 7)
	ops.FixDraws(nil, 7)
	run()
	a := floats(d.a.Value())
	run()
	if !slices.Equal(a, floats(d.a.Value())) {
		t.Error("draws change though they are fixed")
	}
	l := newDropped(t)
	ops.FixDraws(l.g, 7)
	lisp := G.NewLispMachine(l.g)
	defer lisp.Close()
	testutil.Do(t, lisp.RunAll())
	if !slices.Equal(a, floats(l.a.Value())) {
		t.Error("the Lisp machine draws other numbers for the same graph, op and run")
	}
	g := floats(testutil.Get[G.Value](t)(l.x.Grad()))
	for i, v := range a {
		if g[i] != 3*v {
			t.Fatalf("element %d: got the gradient %v of an element that became %v", i, g[i], v)
		}
	}
}

// TestModes: WhenTraining and Dropout follow the option EvalMode, SetTraining, and gorgonia.EvalMode.
func TestModes(t *testing.T) {
	withoutTag(t)
	node := testutil.Get[*G.Node](t)
	build := func() (d *dropped, which *G.Node) {
		d = newDropped(t)
		return d, node(ops.WhenTraining(node(ops.Map("a*2", d.x)), node(ops.Map("a*5", d.x))))
	}
	check := func(how string, d *dropped, which *G.Node, training bool) {
		t.Helper()
		want := float32(5)
		if training {
			want = 2
		}
		if got := floats(which.Value())[0]; got != want {
			t.Errorf("%s: got %v, want %v", how, got, want)
		}
		if dropped := slices.Contains(floats(d.a.Value()), 0); dropped != training {
			t.Errorf("%s: Dropout drops: %v, want %v", how, dropped, training)
		}
	}
	for _, evaluates := range []bool{false, true} {
		d, which := build()
		opts := []cudaops.Option{cudaops.OnAny(), cudaops.Strict(), cudaops.Keep(d.a, which)}
		if evaluates {
			opts = append(opts, cudaops.EvalMode())
		}
		vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(d.g, opts...))
		testutil.Do(t, vm.RunAll())
		check("a VM", d, which, !evaluates)
		for _, n := range d.g.AllNodes() {
			if op, ok := n.Op().(G.TrainModeOp); ok {
				testutil.Do(t, op.SetTraining(false))
			}
		}
		testutil.Do(t, vm.RunAll())
		check("a VM after SetTraining(false)", d, which, false)
		testutil.Do(t, vm.Close())
		var tapeOpts []G.VMOpt
		if evaluates {
			tapeOpts = append(tapeOpts, G.EvalMode())
		}
		tape := G.NewTapeMachine(d.g, tapeOpts...)
		testutil.Do(t, tape.RunAll())
		check("a tape machine", d, which, !evaluates)
		tape.Close()
	}
	d, which := build()
	testutil.Get[G.Nodes](t)(G.Grad(node(ops.Sum(which)), d.x))
	vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(d.g, cudaops.OnAny()))
	defer vm.Close()
	testutil.Do(t, vm.RunAll())
	if g := floats(testutil.Get[G.Value](t)(d.x.Grad())); g[0] != 2 {
		t.Errorf("got the gradient %v of the input that training selects, want 2", g[0])
	}
}

// TestWhenTrainingErrors: values of two types.
func TestWhenTrainingErrors(t *testing.T) {
	g := G.NewGraph()
	x, y := G.NewVector(g, tensor.Float32, G.WithShape(3)), G.NewVector(g, tensor.Float64, G.WithShape(3))
	if _, err := ops.WhenTraining(x, y); err == nil || !strings.Contains(err.Error(), "got float64 (3), want float32 (3)") {
		t.Errorf("got error %v", err)
	}
}
