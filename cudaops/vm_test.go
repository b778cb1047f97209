package cudaops

import (
	"errors"
	"fmt"
	"hash"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chewxy/hm"
	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// onBackends runs a test on the host backend and on the GPU. Without a GPU that
// half is skipped, or fails if STHENO_REQUIRE_GPU=1 says that there is one.
func onBackends(t *testing.T, test func(t *testing.T, on Option)) {
	t.Run("host", func(t *testing.T) { test(t, OnHost()) })
	t.Run("gpu", func(t *testing.T) {
		if _, err := Devices(); err != nil {
			if os.Getenv("STHENO_REQUIRE_GPU") == "1" {
				t.Fatalf("STHENO_REQUIRE_GPU=1, but: %v", err)
			}
			t.Skipf("SKIPPED, NOT TESTED: %v", err)
		}
		test(t, OnDevice(0))
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func ok[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		must(t, err)
		return v
	}
}

func machine(t testing.TB, g *G.ExprGraph, opts ...Option) *VM {
	t.Helper()
	vm, err := NewVM(g, opts...)
	must(t, err)
	t.Cleanup(func() { must(t, vm.Close()) })
	return vm
}

// draw gives a tensor of normal numbers.
func draw(r *rand.Rand, dt tensor.Dtype, shape ...int) *tensor.Dense {
	d := tensor.New(tensor.Of(dt), tensor.WithShape(shape...))
	for i := range d.Size() {
		switch s := d.Data().(type) {
		case []float64:
			s[i] = r.NormFloat64()
		case []float32:
			s[i] = float32(r.NormFloat64())
		}
	}
	return d
}

func floats(t testing.TB, v G.Value) []float64 {
	t.Helper()
	if v == nil {
		t.Fatal("no value")
	}
	b, err := values.Bytes(v)
	must(t, err)
	var out []float64
	if v.Dtype() == tensor.Float64 {
		return append(out, kernels.Elements[float64](b)...)
	}
	for _, x := range kernels.Elements[float32](b) {
		out = append(out, float64(x))
	}
	return out
}

func equal(t testing.TB, what string, got, want G.Value, tolerance float64) {
	t.Helper()
	a, b := floats(t, got), floats(t, want)
	if len(a) != len(b) {
		t.Fatalf("%s: got %d elements, want %d", what, len(a), len(b))
	}
	for i := range a {
		if !(math.Abs(a[i]-b[i]) <= tolerance*(1+math.Abs(b[i]))) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, a[i], b[i])
		}
	}
}

func tolerance(dt tensor.Dtype) float64 {
	if dt == tensor.Float32 {
		return 1e-4
	}
	return 1e-11
}

// An mlp is a classifier of ops of Stheno and of Gorgonia, with its gradients.
type mlp struct {
	g        *G.ExprGraph
	x, y     *G.Node
	weights  G.Nodes
	hidden   *G.Node
	cost     *G.Node
	costRead G.Value
}

func newMLP(t testing.TB, dt tensor.Dtype, batch, in, hid, out int) *mlp {
	r := rand.New(rand.NewPCG(11, 12))
	node := ok[*G.Node](t)
	m := &mlp{g: G.NewGraph()}
	matrix := func(name string, rows, cols int) *G.Node {
		return G.NewMatrix(m.g, dt, G.WithName(name), G.WithShape(rows, cols), G.WithValue(draw(r, dt, rows, cols)))
	}
	m.x, m.y = matrix("x", batch, in), matrix("y", batch, out)
	w0, w1 := matrix("w0", in, hid), matrix("w1", hid, out)
	b0 := matrix("b0", batch, hid)
	m.weights = G.Nodes{w0, b0, w1}
	m.hidden = node(G.Tanh(node(ops.Add(node(G.Mul(m.x, w0)), b0))))
	p := node(G.SoftMax(node(ops.MatMul(m.hidden, w1))))
	m.cost = node(G.Neg(node(ops.Mean(node(G.HadamardProd(m.y, p))))))
	G.Read(m.cost, &m.costRead)
	ok[G.Nodes](t)(G.Grad(m.cost, m.weights...))
	return m
}

// tapeMachine is Gorgonia's machine on the CPU, to compare with.
func tapeMachine(t *testing.T, g *G.ExprGraph, opts ...G.VMOpt) G.VM {
	t.Helper()
	if G.CUDA {
		t.Skip("in a build with the tag cuda, Gorgonia's tape machine is its CUDA machine: cudaops/tape tests that")
	}
	return G.NewTapeMachine(g, opts...)
}

func TestEqualsTapeMachine(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			a, b := newMLP(t, dt, 7, 5, 9, 3), newMLP(t, dt, 7, 5, 9, 3)
			tape := tapeMachine(t, a.g)
			must(t, tape.RunAll())
			must(t, machine(t, b.g, on).RunAll())
			equal(t, "cost", b.cost.Value(), a.cost.Value(), tolerance(dt))
			equal(t, "cost as read", b.costRead, a.costRead, tolerance(dt))
			for i, w := range b.weights {
				got, want := ok[G.Value](t)(w.Grad()), ok[G.Value](t)(a.weights[i].Grad())
				if !got.Shape().Eq(want.Shape()) {
					t.Errorf("gradient of %v has shape %v, want %v", w, got.Shape(), want.Shape())
				}
				equal(t, "gradient of "+w.Name(), got, want, tolerance(dt))
			}
			must(t, tape.Close())
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
					must(t, vm.RunAll())
					must(t, s.Step(G.NodesToValueGrads(m.weights)))
					vm.Reset()
					costs = append(costs, floats(t, m.costRead)...)
				}
				return costs, m
			}
			want, a := train(func(m *mlp) G.VM { return tapeMachine(t, m.g, G.BindDualValues(m.weights...)) })
			got, b := train(func(m *mlp) G.VM { return ok[*VM](t)(NewVM(m.g, on)) })
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

// sum2 is the graph z = a + b of vectors.
func sum2(t testing.TB, n int) (g *G.ExprGraph, a, b, z *G.Node) {
	g = G.NewGraph()
	a = G.NewVector(g, tensor.Float64, G.WithName("a"), G.WithShape(n))
	b = G.NewVector(g, tensor.Float64, G.WithName("b"), G.WithShape(n))
	return g, a, b, ok[*G.Node](t)(ops.Add(a, b))
}

func vector(x ...float64) *tensor.Dense { return tensor.New(tensor.WithBacking(x)) }

func TestRunAgain(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		g, a, b, z := sum2(t, 3)
		av := vector(1, 2, 3)
		must(t, G.Let(a, av))
		must(t, G.Let(b, vector(10, 20, 30)))
		vm := machine(t, g, on)
		must(t, vm.RunAll())
		first := z.Value()
		equal(t, "z", first, vector(11, 22, 33), 0)
		av.Set(0, 5.0) // in place
		vm.Reset()
		must(t, vm.RunAll())
		equal(t, "z after a change in place", z.Value(), vector(15, 22, 33), 0)
		must(t, G.Let(b, vector(0, 0, 1)))
		must(t, vm.RunAll()) // without Reset
		equal(t, "z after Let", z.Value(), vector(5, 2, 4), 0)
		equal(t, "the first value", first, vector(11, 22, 33), 0)
		equal(t, "input a", a.Value(), vector(5, 2, 3), 0)
		if r := vm.Report(); r.Runs != 3 || r.Time <= 0 {
			t.Errorf("report of 3 runs: %d runs, %v", r.Runs, r.Time)
		}
	})
}

func TestReadFillsInPlace(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		g, a, b, z := sum2(t, 2)
		var into, input G.Value
		G.Read(z, &into)
		G.Read(a, &input)
		must(t, G.Let(a, vector(1, 2)))
		must(t, G.Let(b, vector(3, 4)))
		vm := machine(t, g, on)
		must(t, vm.RunAll())
		held := into
		equal(t, "read", into, vector(4, 6), 0)
		equal(t, "read input", input, vector(1, 2), 0)
		must(t, G.Let(a, vector(0, 0)))
		must(t, vm.RunAll())
		equal(t, "what was read first", held, vector(3, 4), 0)
		equal(t, "bound", z.Value(), vector(3, 4), 0)
		into.(*tensor.Dense).Set(0, 99.0)
		equal(t, "bound after a write to what was read", z.Value(), vector(3, 4), 0)
		input.(*tensor.Dense).Set(0, 99.0)
		equal(t, "input after a write to what was read", a.Value(), vector(0, 0), 0)
	})
}

// The derivative of sum(a + b) by a and by b is one node, and a constant for
// Gorgonia's Sum; each input still needs a gradient that it may write.
func TestSharedGradients(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		g, a, b, z := sum2(t, 3)
		cost := ok[*G.Node](t)(ops.Sum(z))
		ok[G.Nodes](t)(G.Grad(cost, a, b))
		must(t, G.Let(a, vector(1, 2, 3)))
		must(t, G.Let(b, vector(1, 1, 1)))
		vm := machine(t, g, on)
		s := G.NewVanillaSolver(G.WithLearnRate(1))
		for step := range 3 {
			must(t, vm.RunAll())
			must(t, s.Step(G.NodesToValueGrads(G.Nodes{a, b})))
			d := -1 - float64(step)
			equal(t, "a", a.Value(), vector(1+d, 2+d, 3+d), 0)
			equal(t, "b", b.Value(), vector(1+d, 1+d, 1+d), 0)
		}
	})
}

func TestGradientsAfterDualValues(t *testing.T) {
	m := newMLP(t, tensor.Float64, 3, 4, 5, 2)
	tape := tapeMachine(t, m.g, G.BindDualValues(m.weights...))
	must(t, tape.RunAll())
	must(t, tape.Close())
	m2 := newMLP(t, tensor.Float64, 3, 4, 5, 2)
	for i, w := range m.weights { // other weights, on a graph that holds old gradients
		d := w.Value().(*tensor.Dense)
		d.Set(0, 0.25)
		must(t, G.Let(m2.weights[i], d.Clone().(*tensor.Dense)))
	}
	must(t, machine(t, m.g, OnHost()).RunAll())
	tape = tapeMachine(t, m2.g)
	must(t, tape.RunAll())
	for i, w := range m.weights {
		equal(t, w.Name(), ok[G.Value](t)(w.Grad()), ok[G.Value](t)(m2.weights[i].Grad()), 1e-12)
	}
}

func TestReshapeIsAnAlias(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		node := ok[*G.Node](t)
		r := rand.New(rand.NewPCG(1, 1))
		g := G.NewGraph()
		x := G.NewMatrix(g, tensor.Float64, G.WithName("x"), G.WithShape(4, 6), G.WithValue(draw(r, tensor.Float64, 4, 6)))
		w := G.NewMatrix(g, tensor.Float64, G.WithName("w"), G.WithShape(3, 2), G.WithValue(draw(r, tensor.Float64, 3, 2)))
		// input -> reshape -> device -> reshape -> host -> root reshape
		a := node(ops.MatMul(node(G.Reshape(x, tensor.Shape{8, 3})), w))
		h := node(G.Square(node(G.Reshape(a, tensor.Shape{2, 8}))))
		z := node(G.Reshape(h, tensor.Shape{4, 4}))
		dev := node(G.Reshape(a, tensor.Shape{16}))
		vm := machine(t, g, on)
		must(t, vm.RunAll())
		gotZ, gotDev := z.Value(), dev.Value()
		if !gotZ.Shape().Eq(tensor.Shape{4, 4}) || !gotDev.Shape().Eq(tensor.Shape{16}) {
			t.Errorf("shapes %v and %v", gotZ.Shape(), gotDev.Shape())
		}
		tape := tapeMachine(t, g)
		must(t, tape.RunAll())
		equal(t, "z", gotZ, z.Value(), 1e-12)
		equal(t, "dev", gotDev, dev.Value(), 1e-12)
		aliases := 0
		for _, n := range vm.Report().Nodes {
			if n.Where == "alias" {
				aliases++
			}
		}
		if aliases != 4 {
			t.Errorf("%d aliases, want 4:\n%v", aliases, vm.Report())
		}
	})
}

func TestViewsAsInputs(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		g := G.NewGraph()
		a := G.NewMatrix(g, tensor.Float64, G.WithName("a"), G.WithShape(2, 3))
		z := ok[*G.Node](t)(ops.Add(a, a))
		av := tensor.New(tensor.WithShape(3, 2), tensor.WithBacking([]float64{1, 2, 3, 4, 5, 6}))
		must(t, av.T())
		must(t, G.Let(a, av))
		vm := machine(t, g, on)
		must(t, vm.RunAll())
		equal(t, "2a of a transposed a", z.Value(), vector(2, 6, 10, 4, 8, 12), 0)
		big := tensor.New(tensor.WithShape(3, 4), tensor.WithBacking(tensor.Range(tensor.Float64, 0, 12)))
		s := ok[tensor.View](t)(big.Slice(tensor.S(1, 3), tensor.S(1, 4)))
		must(t, G.Let(a, s))
		must(t, vm.RunAll())
		equal(t, "2a of a slice", z.Value(), vector(10, 12, 14, 18, 20, 22), 0)
	})
}

func TestScalarsAndConstants(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		node := ok[*G.Node](t)
		g := G.NewGraph()
		x := G.NewScalar(g, tensor.Float32, G.WithName("x"), G.WithValue(float32(3)))
		c := G.NewConstant(float32(4))
		y := node(ops.Add(x, g.AddNode(c)))
		m := G.NewConstant(tensor.New(tensor.WithShape(2), tensor.WithBacking([]float32{1, 2})))
		v := node(ops.Add(g.AddNode(m), g.AddNode(m)))
		z := node(G.HadamardProd(v, y))
		vm := machine(t, g, on, Keep(y))
		for range 2 {
			must(t, vm.RunAll())
			if s, scalar := y.Value().(*G.F32); !scalar || *s != 7 {
				t.Fatalf("y is %v, a %T", y.Value(), y.Value())
			}
			equal(t, "z", z.Value(), vector(14, 28), 0)
		}
		for _, n := range vm.Report().Nodes {
			if n.Where == "constant" && n.In != 0 {
				t.Errorf("constant %s is copied in every run", n.Name)
			}
		}
	})
}

func TestKeep(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		m := newMLP(t, tensor.Float64, 3, 4, 5, 2)
		must(t, machine(t, m.g, on).RunAll())
		if m.hidden.Value() != nil {
			t.Error("an intermediate value is bound although nobody asked")
		}
		must(t, machine(t, m.g, on, Keep(m.hidden)).RunAll())
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

// Gorgonia's Reshape moves the elements of a transposed tensor in place, under
// the feet of whoever else uses it.
func TestReshapeOfTransposed(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		node := ok[*G.Node](t)
		g := G.NewGraph()
		x := G.NewMatrix(g, tensor.Float64, G.WithName("x"), G.WithShape(2, 3))
		xv := tensor.New(tensor.WithShape(3, 2), tensor.WithBacking([]float64{1, 4, 2, 5, 3, 6}))
		must(t, xv.T())
		must(t, G.Let(x, xv)) // 1 2 3, 4 5 6
		flat := node(G.Reshape(x, tensor.Shape{6}))
		square, twice := node(G.Square(flat)), node(ops.Add(flat, flat))
		turned := node(G.Transpose(x)) // on the host: 1 4, 2 5, 3 6
		row, neg := node(G.Reshape(turned, tensor.Shape{1, 6})), node(G.Neg(turned))
		sum := node(ops.Sum(turned, 0))
		vm := machine(t, g, on)
		for range 2 {
			must(t, vm.RunAll())
			equal(t, "square", square.Value(), vector(1, 4, 9, 16, 25, 36), 0)
			equal(t, "twice", twice.Value(), vector(2, 4, 6, 8, 10, 12), 0)
			equal(t, "row", row.Value(), vector(1, 4, 2, 5, 3, 6), 0)
			equal(t, "neg", neg.Value(), vector(-1, -4, -2, -5, -3, -6), 0)
			equal(t, "sum", sum.Value(), vector(6, 15), 0)
			equal(t, "x", xv, vector(1, 2, 3, 4, 5, 6), 0)
		}
	})
}

func TestRandomAndDropout(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		node := ok[*G.Node](t)
		g := G.NewGraph()
		x := G.NewVector(g, tensor.Float64, G.WithName("x"), G.WithShape(1000), G.WithValue(tensor.Ones(tensor.Float64, 1000)))
		noise := G.GaussianRandomNode(g, tensor.Float64, 0, 1, 1000)
		z := node(ops.Add(x, noise))
		d := node(G.Dropout(x, 0.5))
		vm := machine(t, g, on)
		must(t, vm.RunAll())
		first := floats(t, z.Value())
		zeros := 0
		for _, v := range floats(t, d.Value()) {
			if v == 0 {
				zeros++
			}
		}
		if zeros < 300 || zeros > 700 {
			t.Errorf("dropout of a half gives %d zeros of 1000", zeros)
		}
		time.Sleep(time.Millisecond)
		must(t, vm.RunAll())
		if second := floats(t, z.Value()); first[0] == second[0] && first[1] == second[1] {
			t.Error("two runs draw the same noise")
		}
		must(t, machine(t, g, on, EvalMode()).RunAll())
		equal(t, "dropout in evaluation", d.Value(), x.Value(), 0)
	})
}

func TestUnsetInput(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		g, a, b, z := sum2(t, 2)
		var into G.Value
		G.Read(z, &into)
		must(t, G.Let(a, vector(1, 2)))
		vm := machine(t, g, on)
		if err := vm.RunAll(); err == nil || !strings.Contains(err.Error(), "input b has no value") {
			t.Fatalf("a run without b gives %v", err)
		}
		if into != nil || z.Value() != nil {
			t.Error("a run that failed left values")
		}
		bv := tensor.New(tensor.WithShape(2), tensor.WithBacking([]float64{1, 2}))
		must(t, G.Let(b, bv))
		must(t, vm.RunAll())
		equal(t, "z", z.Value(), vector(2, 4), 0)
		must(t, bv.Reshape(1, 2, 1))
		if err := vm.RunAll(); err == nil || !strings.Contains(err.Error(), "input b") || !strings.Contains(err.Error(), "(1, 2, 1)") {
			t.Errorf("a value of another shape gives %v", err)
		}
	})
}

// mayFail is a host op, v -> v, that fails or panics on demand.
type mayFail struct {
	err   *error
	panic *bool
}

func (mayFail) Arity() int    { return 1 }
func (mayFail) Type() hm.Type { return hm.NewFnType(hm.TypeVariable('a'), hm.TypeVariable('a')) }
func (mayFail) InferShape(in ...G.DimSizer) (tensor.Shape, error) {
	return in[0].(tensor.Shape).Clone(), nil
}
func (m mayFail) Do(in ...G.Value) (G.Value, error) {
	if *m.panic {
		panic("boom")
	}
	return in[0], *m.err // the input itself, as Gorgonia's own ops do at times
}
func (mayFail) ReturnsPtr() bool      { return true }
func (mayFail) CallsExtern() bool     { return false }
func (mayFail) OverwritesInput() int  { return -1 }
func (mayFail) WriteHash(h hash.Hash) { fmt.Fprint(h, "mayFail") }
func (mayFail) Hashcode() uint32      { return 77 }
func (mayFail) String() string        { return "mayFail" }

func TestFailureInTheMiddle(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		g, a, b, z := sum2(t, 2)
		var fail error
		var boom bool
		out := ok[*G.Node](t)(G.ApplyOp(mayFail{&fail, &boom}, z))
		same := ok[*G.Node](t)(G.ApplyOp(mayFail{&fail, &boom}, a))
		var into G.Value
		G.Read(z, &into)
		must(t, G.Let(a, vector(1, 2)))
		must(t, G.Let(b, vector(3, 4)))
		vm := machine(t, g, on)
		must(t, vm.RunAll())
		if same.Value() == a.Value() {
			t.Error("a root shares an input's value")
		}
		before := z.Value()
		must(t, G.Let(a, vector(0, 0)))
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
		must(t, vm.RunAll())
		equal(t, "out", out.Value(), vector(3, 4), 0)
	})
}

func TestStrict(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		m := newMLP(t, tensor.Float64, 3, 4, 5, 2)
		_, err := NewVM(m.g, on, Strict())
		if err == nil {
			t.Fatal("Strict takes a graph with Gorgonia's ops")
		}
		for _, word := range []string{"tanh", "Strict"} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("error does not say %q: %v", word, err)
			}
		}
		g, a, b, z := sum2(t, 2)
		var into G.Value
		G.Read(ok[*G.Node](t)(G.Reshape(z, tensor.Shape{2, 1})), &into)
		must(t, G.Let(a, vector(1, 2)))
		must(t, G.Let(b, vector(1, 2)))
		must(t, machine(t, g, on, Strict()).RunAll())
		equal(t, "read", into, vector(2, 4), 0)
	})
}

func TestClose(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		g, a, b, z := sum2(t, 2)
		must(t, G.Let(a, vector(1, 2)))
		must(t, G.Let(b, vector(1, 2)))
		vm := ok[*VM](t)(NewVM(g, on))
		must(t, vm.RunAll())
		must(t, vm.Close())
		must(t, vm.Close())
		if err := vm.RunAll(); err == nil || !strings.Contains(err.Error(), "Close") {
			t.Errorf("RunAll after Close gives %v", err)
		}
		equal(t, "z after Close", z.Value(), vector(2, 4), 0)
		_ = vm.Report().String()
	})
	must(t, (*VM)(nil).Close())
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
			must(t, err)
		}
		for i, m := range graphs {
			want := newMLP(t, tensor.Float64, 4+i, 5, 6, 3)
			must(t, machine(t, want.g, on).RunAll())
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
		must(t, G.Let(a, vector(1, 2)))
		must(t, G.Let(b, vector(1, 2)))
		one, two := machine(t, g, on), machine(t, g, OnHost())
		must(t, one.RunAll())
		must(t, two.RunAll())
		must(t, one.RunAll())
		equal(t, "z", z.Value(), vector(2, 4), 0)
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
	must(t, G.Let(a, vector(1, 2)))
	must(t, G.Let(b, vector(1, 2)))
	closes := new(atomic.Int32)
	func() {
		vm, err := newVM(g, &config{}, &fake{closes: closes})
		must(t, err)
		must(t, vm.RunAll())
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
	must(t, G.Let(a, vector(1, 2)))
	must(t, G.Let(b, vector(1, 2)))
	closes := new(atomic.Int32)
	f := &fake{closes: closes, outOfMemory: true}
	if vm, err := newVM(g, &config{}, f); err == nil || vm != nil || !strings.Contains(err.Error(), "768 bytes") {
		t.Errorf("a full device gives %v", err)
	}
	f.outOfMemory = false
	vm, err := newVM(g, &config{}, f)
	must(t, err)
	f.broken = true
	if err := vm.RunAll(); !errors.Is(err, errFake) || z.Value() != nil {
		t.Errorf("a broken device gives %v and value %v", err, z.Value())
	}
	must(t, vm.Close())
	if closes.Load() != 1 {
		t.Errorf("Close closes %d times", closes.Load())
	}
}

func TestTooLarge(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		g, _, _, z := sum2(t, 1<<58)
		vm, err := NewVM(g, on)
		if err == nil || !strings.Contains(err.Error(), "bytes") || z.Value() != nil {
			t.Errorf("2^58 elements give %v", err)
		}
		must(t, vm.Close())
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
		must(t, vm.Close())
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
	if _, err := NewVM(g); none != nil && !errors.Is(err, ErrNoDevice) {
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

// Values must not depend on what the arena held before.
func TestPoisonedArena(t *testing.T) {
	m := newMLP(t, tensor.Float64, 5, 4, 6, 3)
	b := &fake{closes: new(atomic.Int32)}
	vm := ok[*VM](t)(newVM(m.g, &config{}, b))
	must(t, vm.RunAll())
	want := ok[G.Value](t)(m.weights[0].Grad())
	for _, in := range vm.graph.Program.Setup {
		if _, copied := in.Op.(program.Copy); copied {
			t.Fatal("this test wants a graph without constants on the device: they are uploaded once")
		}
	}
	arena := kernels.Elements[float64](b.Memory(exec.Span{Offset: 0, Size: b.arena}))
	for i := range arena {
		arena[i] = math.NaN()
	}
	must(t, vm.RunAll())
	equal(t, "gradient", ok[G.Value](t)(m.weights[0].Grad()), want, 0)
}

func TestChainReusesMemory(t *testing.T) {
	const n, length = 1 << 12, 50
	g := G.NewGraph()
	x := G.NewVector(g, tensor.Float64, G.WithName("x"), G.WithShape(n), G.WithValue(tensor.Ones(tensor.Float64, n)))
	y := x
	for range length {
		y = ok[*G.Node](t)(ops.Add(y, y))
	}
	vm := machine(t, g, OnHost())
	must(t, vm.RunAll())
	if got := floats(t, y.Value())[n-1]; got != math.Ldexp(1, length) {
		t.Errorf("2^%d comes out as %v", length, got)
	}
	if r := vm.Report(); r.Peak != 2*n*8 || r.Arena != r.Peak {
		t.Errorf("a chain takes %d bytes, peak %d, want %d", r.Arena, r.Peak, 2*n*8)
	}
}

// Random graphs of Add, Sum, Broadcast and host ops: right values, no two live
// values in one place, little waste.
func TestRandomGraphs(t *testing.T) {
	node := ok[*G.Node](t)
	onBackends(t, func(t *testing.T, on Option) {
		worst := 0.0
		for seed := range uint64(25) {
			r := rand.New(rand.NewPCG(seed, 5))
			g := G.NewGraph()
			const rows = 3
			var pool G.Nodes
			var reads [8]G.Value
			cols := func() int { return 16 * (1 + r.IntN(40)) }
			fresh := func(c int) *G.Node {
				return G.NewMatrix(g, tensor.Float64, G.WithName(fmt.Sprint("x", len(pool))), G.WithShape(rows, c), G.WithValue(draw(r, tensor.Float64, rows, c)))
			}
			pool = append(pool, fresh(cols()), fresh(cols()))
			for i := range 10 + r.IntN(40) {
				a := pool[r.IntN(len(pool))]
				c := a.Shape()[1]
				switch r.IntN(7) {
				case 0:
					a = fresh(cols())
				case 1:
					a = node(G.Tanh(a))
				case 2:
					a = node(ops.Broadcast(node(ops.Mean(a, 1)), cols(), 1))
				case 3:
					a = node(G.Reshape(node(G.Reshape(a, tensor.Shape{c * rows})), tensor.Shape{rows, c}))
				case 4:
					if i < len(reads) {
						G.Read(a, &reads[i])
					}
					a = node(G.Sigmoid(node(ops.Add(a, a))))
				default:
					b := a
					for _, p := range pool {
						if p.Shape()[1] == c && r.IntN(2) == 0 {
							b = p
						}
					}
					a = node(ops.Add(a, b))
				}
				pool = append(pool, a)
			}
			vm := machine(t, g, on)
			must(t, vm.RunAll())
			if err := vm.graph.Program.Verify(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if rep := vm.Report(); rep.Peak > 0 {
				ratio := float64(rep.Arena) / float64(rep.Peak)
				if worst = max(worst, ratio); ratio > 1.2 {
					t.Errorf("seed %d: arena %d, peak %d", seed, rep.Arena, rep.Peak)
				}
			}
			got := map[*G.Node]G.Value{}
			for _, o := range vm.graph.Outputs {
				if o.Read == nil {
					got[o.Node] = o.Node.Value()
				} else {
					equal(t, fmt.Sprintf("seed %d: read of %v", seed, o.Node), *o.Read, o.Node.Value(), 0)
				}
			}
			// The plainest machine: every op's Do in order.
			plain := map[*G.Node]G.Value{}
			for _, n := range vm.graph.Nodes {
				switch {
				case n.Op() == nil:
					plain[n.Node] = n.Node.Value()
				case n.Value != nil:
					var in []G.Value
					for _, c := range ok[G.Nodes](t)(internal.Children(n.Node)) {
						in = append(in, plain[c])
					}
					plain[n.Node] = ok[G.Value](t)(n.Op().Do(in...))
				}
			}
			for n, v := range got {
				equal(t, fmt.Sprintf("seed %d: %v", seed, n), v, plain[n], 1e-10)
			}
		}
		t.Logf("worst ratio of arena to peak %.3f", worst)
	})
}

func TestReport(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		g, a, b, z := sum2(t, 2)
		h := ok[*G.Node](t)(G.Square(z))
		must(t, G.Let(a, vector(1, 2)))
		must(t, G.Let(b, vector(1, 2)))
		vm := machine(t, g, on, Timed())
		for range 2 { // the figures are of the last run, not sums
			must(t, vm.RunAll())
		}
		r := vm.Report()
		if r.In() != 32 || r.Out() != 16 || r.Runs != 2 || r.Time <= 0 || r.Peak != 768 || r.Arena != 768 {
			t.Errorf("in %d, out %d, runs %d, time %v, peak %d, arena %d", r.In(), r.Out(), r.Runs, r.Time, r.Peak, r.Arena)
		}
		for _, n := range r.Nodes {
			switch n.Name {
			case z.Name():
				if n.Where != r.Device || len(n.Kernels) != 1 || n.Kernels[0] != "add_f64" || n.Time <= 0 || n.Out != 16 {
					t.Errorf("z: %+v", n)
				}
			case h.Name():
				if n.Where != "host" || len(n.Kernels) != 0 || n.Time <= 0 {
					t.Errorf("h: %+v", n)
				}
			}
		}
		text := r.String()
		for _, word := range []string{"add_f64", r.Device, "1 on the host", "copied 32 B in, 16 B out", "768 B"} {
			if !strings.Contains(text, word) {
				t.Errorf("report does not say %q:\n%s", word, text)
			}
		}
	})
}
