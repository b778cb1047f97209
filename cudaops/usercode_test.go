package cudaops

import (
	"bytes"
	"errors"
	"fmt"
	"hash"
	"log"
	"strings"
	"testing"

	"github.com/chewxy/hm"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/gemm"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// userOp is an op of a user, v -> v, whose behaviour a test chooses.
type userOp struct{ *deeds }

type deeds struct {
	do   func(in ...G.Value) (G.Value, error)
	name func() string
}

func (userOp) Arity() int { return 1 }

func (userOp) Type() hm.Type { return hm.NewFnType(hm.TypeVariable('a'), hm.TypeVariable('a')) }

func (userOp) InferShape(in ...G.DimSizer) (tensor.Shape, error) {
	return in[0].(tensor.Shape).Clone(), nil
}

func (u userOp) Do(in ...G.Value) (G.Value, error) {
	if u.deeds == nil || u.do == nil {
		return in[0], nil
	}
	return u.do(in...)
}

func (userOp) ReturnsPtr() bool { return true }

func (userOp) CallsExtern() bool { return false }

func (userOp) OverwritesInput() int { return -1 }

func (userOp) WriteHash(h hash.Hash) { fmt.Fprint(h, "userOp") }

func (userOp) Hashcode() uint32 { return 78 }

func (u userOp) String() string {
	if u.deeds != nil && u.name != nil {
		return u.name()
	}
	return "userOp"
}

// doing returns an op that does that on the host.
func doing(do func(in ...G.Value) (G.Value, error)) userOp { return userOp{&deeds{do: do}} }

// plannedOp is one that has a plan.
type plannedOp struct {
	userOp
	plan func(kernels.Device) (*kernels.Plan, error)
}

func (p plannedOp) Plan(dev kernels.Device) (*kernels.Plan, error) { return p.plan(dev) }

// functionOp is one that is a function of elements, or a product.
type functionOp struct {
	plannedOp
	f       func() (expr.Func, bool)
	product func() (gemm.Product, bool)
}

func (f functionOp) Pointwise() (expr.Func, bool)  { return f.f() }
func (f functionOp) Product() (gemm.Product, bool) { return f.product() }

// modeOp is one that trains.
type modeOp struct{ userOp }

func (modeOp) SetTraining(bool) error { panic("boom") }

// applied returns a graph of tanh, whose value is read, and after it an op.
func applied(t *testing.T, op G.Op) (g *G.ExprGraph, first, second *G.Node, read *G.Value) {
	t.Helper()
	g, read = G.NewGraph(), new(G.Value)
	x := G.NewVector(g, tensor.Float64, G.WithName("x"), G.WithShape(2), G.WithValue(vector(1, 2)))
	first = testutil.Get[*G.Node](t)(G.Tanh(x))
	G.Read(first, read)
	return g, first, testutil.Get[*G.Node](t)(G.ApplyOp(op, x)), read
}

// The result of an op is checked against its node before anything of the run is handed over.
func TestWrongValues(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		for want, do := range map[string]func(in ...G.Value) (G.Value, error){
			"returned no value":                           func(...G.Value) (G.Value, error) { return nil, nil },
			"op userOp returned no value":                 func(...G.Value) (G.Value, error) { return (*tensor.Dense)(nil), nil },
			"userOp returned no value":                    func(...G.Value) (G.Value, error) { return (*G.F64)(nil), nil },
			"returned a value without element type, want": func(...G.Value) (G.Value, error) { return new(tensor.Dense), nil },
			"float32 of shape (2), want float64 of shape (2)": func(...G.Value) (G.Value, error) {
				return tensor.New(tensor.WithBacking([]float32{1, 2})), nil
			},
			"float64 of shape (3), want float64 of shape (2)": func(...G.Value) (G.Value, error) { return vector(1, 2, 3), nil },
			"int of shape (), want float64 of shape (2)":      func(...G.Value) (G.Value, error) { return G.NewI(3), nil },
			"panicked: runtime error: invalid memory address": func(...G.Value) (G.Value, error) { return nil, fmt.Errorf("%d", *(*int)(nil)) },
			"panicked: panic called with nil argument":        func(...G.Value) (G.Value, error) { panic(nil) },
			"broken": func(...G.Value) (G.Value, error) { return vector(1, 2), errors.New("broken") },
		} {
			for _, last := range []bool{true, false} { // a result of the graph, or not
				bad := false
				g, first, second, read := applied(t, doing(func(in ...G.Value) (G.Value, error) {
					if bad {
						return do(in...)
					}
					return in[0], nil
				}))
				if !last {
					testutil.Get[*G.Node](t)(G.Square(second))
				}
				vm := machine(t, g, on)
				testutil.Do(t, vm.RunAll())
				bound, bits := first.Value(), floats(t, *read)
				testutil.Do(t, G.Let(g.ByName("x")[0], vector(3, 4)))
				bad = true
				if err := vm.RunAll(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "node userOp(") {
					t.Errorf("got the error %v, want one with %q", err, want)
				}
				if first.Value() != bound || floats(t, *read)[0] != bits[0] {
					t.Errorf("%s: a run that failed changed values", want)
				}
				bad = false
				testutil.Do(t, vm.RunAll())
			}
		}
	})
}

// A value whose shape differs from its node's, but not in the number of elements, gets the node's shape, as with Gorgonia's ops.
func TestValueOfAnotherShape(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		g, _, second, _ := applied(t, doing(func(...G.Value) (G.Value, error) {
			return tensor.New(tensor.WithShape(2, 1), tensor.WithBacking([]float64{5, 6})), nil
		}))
		testutil.Do(t, machine(t, g, on).RunAll())
		if v := second.Value(); !v.Shape().Eq(tensor.Shape{2}) {
			t.Errorf("got shape %v, want (2)", v.Shape())
		}
	})
}

// An op's fault while the graph is compiled is an error of NewVM.
func TestWrongPlans(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		launch := func(l kernels.Launch) func(kernels.Device) (*kernels.Plan, error) {
			return func(kernels.Device) (*kernels.Plan, error) {
				return &kernels.Plan{Inputs: []int64{16}, Out: 16, Launches: []kernels.Launch{l}}, nil
			}
		}
		none := func() (gemm.Product, bool) { return gemm.Product{}, false }
		good := plannedOp{plan: func(dev kernels.Device) (*kernels.Plan, error) { return nil, errors.New("its plan is used") }}
		for want, op := range map[string]G.Op{
			"its Plan panicked: boom":             plannedOp{plan: func(kernels.Device) (*kernels.Plan, error) { panic("boom") }},
			"its Plan returned nil and no error":  plannedOp{plan: func(kernels.Device) (*kernels.Plan, error) { return nil, nil }},
			"launch 0 of the plan has no kernel":  plannedOp{plan: launch(kernels.Launch{})},
			"got operand 7 of a plan of 1 inputs": plannedOp{plan: launch(kernels.Launch{Kernel: &kernels.Kernel{Entry: "e"}, Args: []any{kernels.Ref{Operand: 7}}})},
			"got a plan of 2 outputs, want 1": plannedOp{plan: func(kernels.Device) (*kernels.Plan, error) {
				return &kernels.Plan{Inputs: []int64{16}, Out: 16, Parts: []int64{0, 8}}, nil
			}},
			"-8 of scratch memory": plannedOp{plan: func(kernels.Device) (*kernels.Plan, error) {
				return &kernels.Plan{Inputs: []int64{16}, Out: 16, Scratch: -8}, nil
			}},
			"its Pointwise panicked: boom":                functionOp{plannedOp: good, f: func() (expr.Func, bool) { panic("boom") }, product: none},
			"its plan is used":                            functionOp{plannedOp: good, f: func() (expr.Func, bool) { return expr.Func{}, true }, product: none},
			"panicked: runtime error: invalid memory add": plannedOp{},
		} {
			g, _, second, _ := applied(t, op)
			vm, err := NewVM(g, on)
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "node userOp(") {
				t.Errorf("got %v, the error %v, want one with %q", vm, err, want)
			}
			if second.Value() != nil {
				t.Errorf("%s: the node has a value", want)
			}
		}
		// A product whose description panics is taken for what its plan computes.
		g, _, _, _ := applied(t, functionOp{good, func() (expr.Func, bool) { return expr.Func{}, false }, func() (gemm.Product, bool) { panic("boom") }})
		if _, err := NewVM(g, on); err == nil || !strings.Contains(err.Error(), "its plan is used") {
			t.Errorf("got the error %v", err)
		}
	})
}

// A Go body that panics is the error of its node, whatever ran before it.
func TestWrongBodies(t *testing.T) {
	for want, body := range map[string]func(kernels.Call){
		"the Go body of kernel e panicked: boom": func(kernels.Call) { panic("boom") },
		"kernel e panicked: piece":               func(kernels.Call) { kernels.Parallel(8, 1, func(int64, int64) { panic("piece") }) },
		"kernel e has no Go body":                nil,
	} {
		g, first, _, read := applied(t, plannedOp{plan: func(kernels.Device) (*kernels.Plan, error) {
			return &kernels.Plan{Inputs: []int64{16}, Out: 16, Launches: []kernels.Launch{{Kernel: &kernels.Kernel{Entry: "e", Body: body}}}}, nil
		}})
		err := machine(t, g, OnHost()).RunAll()
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "cudaops: node userOp(") {
			t.Errorf("got the error %v, want one with %q", err, want)
		}
		if first.Value() != nil || *read != nil {
			t.Errorf("%s: a run that failed left values", want)
		}
	}
}

// panicWriter is a writer that panics.
type panicWriter struct{}

func (panicWriter) Write([]byte) (int, error) { panic("boom") }

// failingSolver is a solver of another module.
type failingSolver struct{ fail func() error }

func (s *failingSolver) Step([]G.ValueGrad) error { return s.fail() }

// Solvers, loggers and writers of users are called with care.
func TestWrongSolversAndWriters(t *testing.T) {
	failure := errors.New("broken")
	p := newPerceptron(t, tensor.Float64, 3)
	p.feed(t)
	for want, s := range map[string]G.Solver{
		"its Step panicked: boom":       &failingSolver{func() error { panic("boom") }},
		"failingSolver: broken":         &failingSolver{func() error { return failure }},
		"got a nil *cudaops.failingSol": (*failingSolver)(nil),
	} {
		vm, err := NewVM(p.g, OnHost(), Train(s, p.learnables...))
		if err == nil {
			err = vm.RunAll()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got the error %v, want one with %q", err, want)
		}
	}
	g, _, _, _ := applied(t, userOp{})
	vm := machine(t, g, OnHost(), Log(log.New(panicWriter{}, "", 0)))
	if err := vm.RunAll(); err == nil || !strings.Contains(err.Error(), "the log's writer panicked: boom") {
		t.Errorf("a log that panics gives %v", err)
	}
	if r := vm.Report(); r.Runs != 1 {
		t.Errorf("the report says %d runs, want 1", r.Runs)
	}
	for want, err := range map[string]error{
		"Explain got no writer":     vm.Explain(nil),
		"the writer panicked: boom": vm.Explain(panicWriter{}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got the error %v, want one with %q", err, want)
		}
	}
	testutil.Do(t, machine(t, g, OnHost(), Log(nil)).RunAll())
}

// An op, a log and a writer may query the VM that calls them.
func TestVMAskedWhileItRuns(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		var vm *VM
		var reports []Report
		ask := func() {
			r := vm.Report()
			if r.Device != vm.Device() {
				t.Errorf("the report is of %s, the VM on %s", r.Device, vm.Device())
			}
			reports = append(reports, r)
		}
		g, _, _, _ := applied(t, doing(func(in ...G.Value) (G.Value, error) { ask(); return in[0], nil }))
		writer := askingWriter{ask}
		vm = machine(t, g, on, Log(log.New(writer, "", 0)))
		testutil.Do(t, vm.RunAll())
		testutil.Do(t, vm.RunAll())
		testutil.Do(t, vm.Explain(writer))
		var runs []int
		for _, r := range reports {
			runs = append(runs, r.Runs)
			if len(r.Steps) != 2 || len(r.Nodes) != 4 {
				t.Errorf("a report of %d steps and %d nodes, want 2 and 4", len(r.Steps), len(r.Nodes))
			}
		}
		if got, want := fmt.Sprint(runs), "[0 1 1 1 1 2 2 2 2]"; got != want {
			t.Errorf("reports are of %s runs, want %s", got, want)
		}
	})
}

// askingWriter asks something whenever it is written to.
type askingWriter struct{ ask func() }

func (w askingWriter) Write(p []byte) (int, error) { w.ask(); return len(p), nil }

// An op whose String panics has a strange name and nothing else.
func TestOpWithoutName(t *testing.T) {
	d := &deeds{}
	g, _, _, _ := applied(t, userOp{d})
	d.name = func() string { panic("boom") }
	vm := machine(t, g, OnHost())
	testutil.Do(t, vm.RunAll())
	var text bytes.Buffer
	testutil.Do(t, vm.Explain(&text))
	for what, s := range map[string]string{"the report": vm.Report().String(), "Explain": text.String()} {
		if !strings.Contains(s, "boom") {
			t.Errorf("%s does not say what is wrong with the op: %s", what, s)
		}
	}
}

// Inputs without a name are called by their type; other nodes by their op.
func TestUnnamedNodes(t *testing.T) {
	g := G.NewGraph()
	x := G.NewMatrix(g, tensor.Float32, G.WithShape(2, 3), G.WithName(""))
	y := testutil.Get[*G.Node](t)(G.Tanh(x))
	vm := machine(t, g, OnHost())
	err := vm.RunAll()
	if want := "cudaops: input (unnamed, Matrix float32 of shape (2, 3)) has no value: set it with gorgonia.Let"; err == nil || err.Error() != want {
		t.Errorf("got the error %v, want %s", err, want)
	}
	other := G.NewMatrix(G.NewGraph(), tensor.Float32, G.WithShape(2, 3), G.WithName(""))
	text := fmt.Sprint(vm.Report(), vm.Let(other, 1), vm.Set(x, y))
	if strings.Contains(text, "%!") || !strings.Contains(text, "tanh(") {
		t.Errorf("got %s", text)
	}
	var explained bytes.Buffer
	testutil.Do(t, vm.Explain(&explained))
	if strings.Contains(explained.String(), "%!") {
		t.Errorf("got %s", &explained)
	}
}

// A value that is none is the error of Let.
func TestLetNothing(t *testing.T) {
	g, _, _, _ := applied(t, userOp{})
	vm := machine(t, g, OnHost())
	x := g.ByName("x")[0]
	for _, v := range []any{(*tensor.Dense)(nil), nil, struct{}{}, new(tensor.Dense)} {
		if err := vm.Let(x, v); err == nil || !strings.Contains(err.Error(), "cudaops: Let: node x") {
			t.Errorf("Let of a %T gives %v", v, err)
		}
	}
	other, want := make([]float32, x.Shape().TotalSize()), "cudaops: Let: node x: got elements of float32, want float64"
	if err := vm.Let(x, other); err == nil || err.Error() != want {
		t.Errorf("Let of another type gives %v, want %s", err, want)
	}
	testutil.Do(t, vm.RunAll())
}

// Constants of Gorgonia are inputs of Stheno's ops, with the gradients of the others.
func TestConstantInputs(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		node, g := testutil.Get[*G.Node](t), G.NewGraph()
		x := G.NewVector(g, tensor.Float64, G.WithName("x"), G.WithShape(3), G.WithValue(vector(1, 2, 3)))
		y := node(ops.Scale(node(ops.Add(G.NewConstant(vector(10, 20, 30)), x)), G.NewConstant(2.0)))
		cost := node(ops.Sum(node(ops.Map("a*b", y, G.NewConstant(vector(1, 10, 100))))))
		testutil.Get[G.Nodes](t)(G.Grad(cost, x))
		testutil.Do(t, machine(t, g, on, Keep(y)).RunAll())
		equal(t, "y", y.Value(), vector(22, 44, 66), 0)
		equal(t, "gradient", testutil.Get[G.Value](t)(x.Grad()), vector(2, 20, 200), 0)
	})
}
