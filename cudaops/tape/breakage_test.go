//go:build cuda

package tape_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/tape"
	"github.com/stheno-ml/stheno/internal/results"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Each known breakage of Gorgonia's CUDA machine is a program of its own, so
// that a hang or a crash is an outcome like any other: the test starts itself
// again with the program's name in STHENO_PROGRAM.
func TestMain(m *testing.M) {
	if name := os.Getenv("STHENO_PROGRAM"); name != "" {
		for _, p := range programs {
			if p.graph+" on "+p.machine == name {
				if err := p.run(); err != nil {
					fmt.Println("ERROR:", err)
					os.Exit(3)
				}
				fmt.Println("RIGHT")
				os.Exit(0)
			}
		}
		fmt.Println("no program", name)
		os.Exit(4)
	}
	os.Exit(m.Run())
}

type newMachine func(g *G.ExprGraph, opts ...G.VMOpt) (G.VM, error)

func gorgonias(g *G.ExprGraph, opts ...G.VMOpt) (G.VM, error) {
	return inStages(func() (G.VM, error) { return G.NewTapeMachine(g, opts...), nil })
}

func stheno(g *G.ExprGraph, opts ...G.VMOpt) (G.VM, error) {
	return inStages(func() (G.VM, error) { return tape.NewMachine(g, opts...) })
}

// staged is a machine that prints what it begins and the errors of its runs, so
// that a program that hangs has said where, and what came before.
type staged struct{ G.VM }

func inStages(make func() (G.VM, error)) (G.VM, error) {
	fmt.Println("stage: New")
	vm, err := make()
	return staged{vm}, err
}

func (s staged) RunAll() error {
	fmt.Println("stage: RunAll")
	err := s.VM.RunAll()
	if err != nil {
		fmt.Println("found:", err)
	}
	return err
}

func (s staged) Close() error {
	fmt.Println("stage: Close")
	return s.VM.Close()
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func ok[T any](v T, err error) T {
	must(err)
	return v
}

// numbers is a copy of a value's elements, true as 1.
func numbers(v G.Value) []float64 {
	var x []float64
	all := reflect.ValueOf(v.Data())
	if all.Kind() != reflect.Slice { // a scalar
		all = reflect.Append(reflect.MakeSlice(reflect.SliceOf(all.Type()), 0, 1), all)
	}
	for i := range all.Len() {
		switch e := all.Index(i); {
		case e.CanFloat():
			x = append(x, e.Float())
		case e.CanInt():
			x = append(x, float64(e.Int()))
		case e.Bool():
			x = append(x, 1)
		default:
			x = append(x, 0)
		}
	}
	return x
}

// model is a graph with leaves, a cost, and the nodes whose values count.
type model struct {
	g      *G.ExprGraph
	leaves G.Nodes
	out    G.Nodes
	grads  bool
}

func input(g *G.ExprGraph, name string, shape ...int) *G.Node {
	return inputOf(g, tensor.Float64, name, shape...)
}

func inputOf(g *G.ExprGraph, dt tensor.Dtype, name string, shape ...int) *G.Node {
	x := tensor.New(tensor.Of(dt), tensor.WithShape(shape...))
	for i := range x.Shape().TotalSize() {
		v := math.Sin(float64(i+len(name)+int(name[0]))) / 2
		x.Set(i, reflect.ValueOf(v).Convert(dt.Type).Interface())
	}
	return G.NewTensor(g, dt, len(shape), G.WithName(name), G.WithShape(shape...), G.WithValue(x))
}

// result is a copy of a value.
type result struct {
	of tensor.Dtype
	x  []float64
}

// compare runs a model on a machine and on Stheno's host backend.
func compare(build func() model, make newMachine, opts ...G.VMOpt) (err error) {
	values := func(make newMachine, seen func([]result), opts ...G.VMOpt) (vs []result) {
		m := build()
		if m.grads {
			ok(G.Grad(m.out[len(m.out)-1], m.leaves...))
		}
		reads := makeReads(m.out)
		vm := ok(make(m.g, opts...))
		defer func() { must(vm.Close()) }()
		for range 2 {
			must(vm.RunAll())
			vs = nil
			for _, v := range reads {
				vs = append(vs, result{(*v).Dtype(), numbers(*v)})
			}
			if m.grads {
				for _, n := range m.leaves {
					g := ok(n.Grad())
					vs = append(vs, result{g.Dtype(), numbers(g)})
					must(g.(*tensor.Dense).Memset(0.0)) // as solvers do: bound gradients add up
				}
			}
			vm.Reset()
		}
		seen(vs)
		return vs
	}
	want := values(func(g *G.ExprGraph, _ ...G.VMOpt) (G.VM, error) { return cudaops.NewVM(g, cudaops.OnHost()) }, func([]result) {})
	values(make, func(got []result) { // before Close, which may hang
		if err = difference(got, want); err != nil {
			fmt.Println("found:", err)
		} else {
			fmt.Println("found: right values")
		}
	}, opts...)
	return err
}

// difference is an error that tells the first value that is not as wanted.
func difference(got, want []result) error {
	for i, want := range want {
		got := got[i]
		if got.of != want.of || len(got.x) != len(want.x) {
			return fmt.Errorf("value %d: got %d of %v, want %d of %v", i, len(got.x), got.of, len(want.x), want.of)
		}
		tolerance := 1e-12
		if want.of == tensor.Float32 {
			tolerance = 1e-5
		}
		for k, x := range want.x {
			if !(math.Abs(got.x[k]-x) <= tolerance*(1+math.Abs(x))) {
				return fmt.Errorf("value %d, element %d of %d: got %v, want %v", i, k, len(want.x), got.x[k], x)
			}
		}
	}
	return nil
}

// makeReads has a graph read the nodes' values.
func makeReads(nodes G.Nodes) (reads []*G.Value) {
	for _, n := range nodes {
		v := new(G.Value)
		G.Read(n, v)
		reads = append(reads, v)
	}
	return reads
}

func add() model {
	g := G.NewGraph()
	x, y := input(g, "x", 1000), input(g, "y", 1000)
	return model{g: g, leaves: G.Nodes{x, y}, out: G.Nodes{ok(ops.Add(x, y))}}
}

func sthenoLoss() model {
	g := G.NewGraph()
	x, w := input(g, "x", 5, 7), input(g, "w", 7, 3)
	cost := ok(ops.Sum(ok(G.Tanh(ok(ops.MatMul(x, w))))))
	return model{g: g, leaves: G.Nodes{x, w}, out: G.Nodes{cost}, grads: true}
}

func sthenoOnly() model {
	g := G.NewGraph()
	x, w := input(g, "x", 5, 7), input(g, "w", 7, 3)
	y := ok(ops.MatMul(x, w))
	cost := ok(ops.Sum(ok(ops.Add(y, y))))
	return model{g: g, leaves: G.Nodes{x, w}, out: G.Nodes{cost}, grads: true}
}

func gorgoniaLoss() model {
	g := G.NewGraph()
	x, w := input(g, "x", 5, 7), input(g, "w", 7, 3)
	cost := ok(G.Sum(ok(G.Tanh(ok(G.Mul(x, w))))))
	return model{g: g, leaves: G.Nodes{x, w}, out: G.Nodes{cost}, grads: true}
}

func gSum() model {
	g := G.NewGraph()
	x := input(g, "x", 5, 7)
	return model{g: g, leaves: G.Nodes{x}, out: G.Nodes{ok(G.Sum(ok(G.Tanh(x))))}}
}

func gTanh() model {
	g := G.NewGraph()
	x := input(g, "x", 5, 7)
	return model{g: g, leaves: G.Nodes{x}, out: G.Nodes{ok(G.Tanh(x))}}
}

func gSumOnly() model {
	g := G.NewGraph()
	x := input(g, "x", 5, 7)
	return model{g: g, leaves: G.Nodes{x}, out: G.Nodes{ok(G.Sum(x))}}
}

// many queues more CUDA calls than the machine's queue has room for.
func many() model {
	g := G.NewGraph()
	x, z := input(g, "x", 10), input(g, "z", 10)
	for range 100 {
		x = ok(G.Add(x, z))
	}
	return model{g: g, leaves: G.Nodes{z}, out: G.Nodes{x}}
}

// scalars are all alive at a time.
func scalars() model {
	g := G.NewGraph()
	var xs G.Nodes
	for i := range 60 {
		x := G.NewScalar(g, tensor.Float64, G.WithName(fmt.Sprint("x", i)), G.WithValue(float64(i)))
		xs = append(xs, ok(ops.Add(x, x)))
	}
	sum := xs[0]
	for _, x := range xs[1:] {
		sum = ok(ops.Add(sum, x))
	}
	return model{g: g, out: G.Nodes{sum}}
}

func gSumAxis() model {
	g := G.NewGraph()
	x := input(g, "x", 5, 7)
	return model{g: g, leaves: G.Nodes{x}, out: G.Nodes{ok(G.Sum(ok(G.Tanh(x)), 0))}}
}

func gMulVectors() model {
	g := G.NewGraph()
	x, w := input(g, "x", 7), input(g, "w", 7)
	return model{g: g, leaves: G.Nodes{x, w}, out: G.Nodes{ok(G.Mul(x, w))}}
}

func gMul() model {
	g := G.NewGraph()
	x, w := input(g, "x", 5, 7), input(g, "w", 7, 3)
	return model{g: g, leaves: G.Nodes{x, w}, out: G.Nodes{ok(G.Mul(x, w))}}
}

func mixed() model {
	g := G.NewGraph()
	x, y, w := input(g, "x", 6, 9), input(g, "y", 6, 9), input(g, "w", 9, 4)
	h := ok(G.Add(ok(G.HadamardProd(x, y)), ok(G.Tanh(x))))
	h = ok(G.Sub(h, ok(G.Sigmoid(y))))
	h = ok(G.HadamardDiv(h, ok(G.Exp(y))))
	z := ok(G.Square(ok(ops.MatMul(h, w))))
	cost := ok(ops.Mean(z))
	return model{g: g, leaves: G.Nodes{x, y, w}, out: G.Nodes{h, z, cost}, grads: true}
}

// unary has every function of one operand, of numbers where all are finite.
func unary(dt tensor.Dtype) func() model {
	return func() model {
		g := G.NewGraph()
		x := inputOf(g, dt, "x", 77)
		p := ok(ops.Add(ok(G.Square(x)), ok(G.Exp(x)))) // positive
		m := model{g: g, leaves: G.Nodes{x}}
		for _, f := range []func(*G.Node) (*G.Node, error){G.Abs, G.Sign, G.Ceil, G.Floor, G.Sin, G.Cos, G.Exp, G.Log, G.Log2,
			G.Neg, G.Square, G.Sqrt, G.Inverse, G.InverseSqrt, G.Cube, G.Tanh, G.Sigmoid, G.Log1p, G.Expm1, G.Softplus} {
			m.out = append(m.out, ok(f(p)))
		}
		return m
	}
}

// binary has every function of two operands, of vectors and scalars in all
// combinations.
func binary(dt tensor.Dtype) func() model {
	return func() model {
		g := G.NewGraph()
		x, y, s, r := inputOf(g, dt, "x", 77), inputOf(g, dt, "y", 77), scalarOf(g, dt, "s", 0.25), scalarOf(g, dt, "r", 0.75)
		m := model{g: g, leaves: G.Nodes{x, y}}
		p, q := ok(G.Exp(x)), ok(G.Exp(s)) // positive
		for _, f := range []func(a, b *G.Node) (*G.Node, error){G.Add, G.Sub, G.HadamardProd, G.HadamardDiv, G.Pow} {
			for _, a := range (G.Nodes{p, q}) {
				for _, b := range (G.Nodes{y, r}) {
					m.out = append(m.out, ok(f(a, b)))
				}
			}
		}
		for _, f := range []func(a, b *G.Node, same bool) (*G.Node, error){G.Lt, G.Lte, G.Gt, G.Gte, G.Eq, G.Ne} {
			for _, a := range (G.Nodes{x, s}) {
				for _, b := range (G.Nodes{y, r}) {
					m.out = append(m.out, ok(f(a, b, true)))
				}
			}
		}
		return m
	}
}

func scalarOf(g *G.ExprGraph, dt tensor.Dtype, name string, v float64) *G.Node {
	return G.NewScalar(g, dt, G.WithName(name), G.WithValue(reflect.ValueOf(v).Convert(dt.Type).Interface()))
}

// strided has a transposed, a sliced and a column-major input.
func strided() model {
	g := G.NewGraph()
	count := func(n int) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = float64(i) - 7.5
		}
		return x
	}
	transposed := tensor.New(tensor.WithShape(7, 5), tensor.WithBacking(count(35)))
	must(transposed.T())
	sliced := ok(tensor.New(tensor.WithShape(9, 8), tensor.WithBacking(count(72))).Slice(tensor.S(2, 7), tensor.S(1, 8))).(*tensor.Dense)
	columns := tensor.New(tensor.WithShape(5, 7), tensor.AsFortran(count(35)))
	var in G.Nodes
	for i, v := range []*tensor.Dense{transposed, sliced, columns} {
		in = append(in, G.NewMatrix(g, tensor.Float64, G.WithName(fmt.Sprint("x", i)), G.WithShape(5, 7), G.WithValue(v)))
	}
	sum := ok(ops.Add(ok(G.Tanh(in[0])), in[1]))
	return model{g: g, leaves: in, out: G.Nodes{ok(ops.Add(sum, in[2]))}}
}

func loop(n int, f func() error) func() error {
	return func() error {
		for i := range n {
			if err := f(); err != nil {
				return fmt.Errorf("turn %d: %w", i+1, err)
			}
		}
		return nil
	}
}

func on(build func() model, make newMachine, opts ...G.VMOpt) func() error {
	return func() error { return compare(build, make, opts...) }
}

// held runs f with the goroutine bound to its thread.
func held(f func() error) func() error {
	return func() error {
		runtime.LockOSThread()
		return f()
	}
}

// tooLarge is a graph that no device has the memory for.
func tooLarge(make newMachine) func() error {
	return func() error {
		g := G.NewGraph()
		x := G.NewTensor(g, tensor.Float64, 1, G.WithName("x"), G.WithShape(1<<40))
		ok(ops.Add(x, x))
		if _, err := make(g); err == nil || !strings.Contains(err.Error(), "bytes") {
			return fmt.Errorf("2^40 elements give %v", err)
		}
		return nil
	}
}

// watches has the machine watch for what the op makes of negative numbers.
func watches(make newMachine, what string, f func(*G.Node) (*G.Node, error), option G.VMOpt) func() error {
	return func() error {
		g := G.NewGraph()
		ok(f(ok(G.Neg(ok(G.Abs(input(g, "x", 5, 7)))))))
		vm := ok(make(g, option))
		if err := vm.RunAll(); err == nil || !strings.Contains(err.Error(), what) {
			return fmt.Errorf("got error %v, want one about %s", err, what)
		}
		return vm.Close()
	}
}

// infinity is x + Inf by an op of Stheno's.
func infinity(x *G.Node) (*G.Node, error) {
	inf := tensor.New(tensor.WithShape(x.Shape()...), tensor.Of(tensor.Float64))
	must(inf.Memset(math.Inf(1)))
	return ops.Add(x, G.NewTensor(x.Graph(), tensor.Float64, x.Dims(), G.WithName("inf"), G.WithShape(x.Shape()...), G.WithValue(inf)))
}

// several has several machines open at a time, used in turn.
func several(make newMachine) func() error {
	return func() error {
		const n = 4
		var ms []model
		var vms []G.VM
		for range n {
			m := sthenoOnly()
			ms, vms = append(ms, m), append(vms, ok(make(m.g)))
		}
		for range 3 {
			for i := range n {
				must(vms[i].RunAll())
				if got, want := numbers(ms[i].out[0].Value()), numbers(ms[0].out[0].Value()); got[0] != want[0] {
					return fmt.Errorf("machine %d gives %v, machine 0 %v", i, got, want)
				}
			}
			for i := range n {
				vms[i].Reset()
			}
		}
		var errs []error
		for i := range n {
			errs = append(errs, vms[i].Close())
		}
		return errors.Join(errs...)
	}
}

// leak runs a graph of the op again and again and watches the process grow, by
// no more than a number of bytes for each launch. What a process has not given
// back yet is tens of bytes for each.
func leak(op func(a, b *G.Node) (*G.Node, error), make newMachine, most int) func() error {
	return func() error {
		g := G.NewGraph()
		const launches = 16 // which the queue has room for
		y := ok(op(input(g, "x", 10), input(g, "y", 10)))
		for range launches - 1 {
			y = ok(op(y, input(g, "z", 10)))
		}
		vm := ok(make(g))
		runs := func(n int) {
			for range n {
				must(vm.RunAll())
				vm.Reset()
			}
		}
		runs(100)
		before := resident()
		const more = 2000
		runs(more)
		grown := max(resident()-before, 0) / (launches * more)
		if grown > most {
			return fmt.Errorf("grew %d bytes for each of %d launches, want %d at most", grown, launches*more, most)
		}
		fmt.Printf("grew %d bytes for each of %d launches\n", grown, launches*more)
		return vm.Close()
	}
}

func resident() int {
	debug.FreeOSMemory()
	text := ok(os.ReadFile("/proc/self/statm"))
	return ok(strconv.Atoi(strings.Fields(string(text))[1])) * os.Getpagesize()
}

func outlives() error {
	m := mixed()
	vm := ok(stheno(m.g))
	must(vm.RunAll())
	before := numbers(m.out[len(m.out)-1].Value())
	must(vm.Close())
	if after := numbers(m.out[len(m.out)-1].Value()); after[0] != before[0] {
		return fmt.Errorf("%v before Close, %v after", before, after)
	}
	return nil
}

func lisp(opts ...G.VMOpt) newMachine {
	return func(g *G.ExprGraph, _ ...G.VMOpt) (G.VM, error) {
		return inStages(func() (G.VM, error) { return G.NewLispMachine(g, opts...), nil })
	}
}

// lispGradients holds DoDiff against SymDiff on the host.
func lispGradients(build func() model, make newMachine) func() error {
	return func() error {
		a, b := build(), build()
		ok(G.Grad(a.out[len(a.out)-1], a.leaves...))
		host := ok(cudaops.NewVM(a.g, cudaops.OnHost()))
		must(host.RunAll())
		runtime.LockOSThread() // for Gorgonia's
		vm := ok(make(b.g))
		must(vm.RunAll())
		for i := range a.leaves {
			got, want := numbers(ok(b.leaves[i].Grad())), numbers(ok(a.leaves[i].Grad()))
			for k := range want {
				if !(math.Abs(got[k]-want[k]) <= 1e-12*(1+math.Abs(want[k]))) {
					return fmt.Errorf("gradient %d, element %d: got %v, want %v", i, k, got[k], want[k])
				}
			}
		}
		return vm.Close()
	}
}

func bound(build func() model, make newMachine) func() error {
	return func() error {
		m := build()
		return compare(func() model { m = build(); return m }, func(g *G.ExprGraph, opts ...G.VMOpt) (G.VM, error) {
			return make(g, G.BindDualValues(m.leaves...))
		})
	}
}

// Names of machines in the programs.
const (
	ours     = "tape.NewMachine"
	plain    = "gorgonia.NewTapeMachine"
	locked   = "gorgonia.NewTapeMachine, thread locked"
	oursLisp = "tape.NewLispMachine"
	lispGPU  = "gorgonia.NewLispMachine, thread locked"
)

// programs must be right, but for those that are Gorgonia's own machines in a
// case that is known to go wrong: there the outcome is only told.
var programs = []struct {
	graph, machine string
	known          bool
	run            func() error
}{
	{"ops.Add", ours, false, on(add, stheno)},
	{"ops.Add", locked, false, held(on(add, gorgonias))},
	{"ops.Add", plain, true, on(add, gorgonias)},
	{"ops of Stheno, gradients", ours, false, on(sthenoOnly, stheno)},
	{"ops of Stheno, gradients", locked, false, held(on(sthenoOnly, gorgonias))},
	{"ops of Stheno, bound gradients", ours, false, bound(sthenoOnly, stheno)},
	{"ops of Stheno, bound gradients", locked, true, held(bound(sthenoOnly, gorgonias))},
	{"ops of Stheno and Tanh, gradients", ours, false, on(sthenoLoss, stheno)},
	{"ops of Stheno and Tanh, bound gradients", ours, false, bound(sthenoLoss, stheno)},
	{"mixed graph, gradients", ours, false, on(mixed, stheno)},
	{"mixed graph, gradients", locked, true, held(on(mixed, gorgonias))},
	{"mixed graph, bound gradients", ours, false, bound(mixed, stheno)},
	{"every function of one operand", ours, false, on(unary(tensor.Float64), stheno)},
	{"every function of one operand, float32", ours, false, on(unary(tensor.Float32), stheno)},
	{"every function of two operands", ours, false, on(binary(tensor.Float64), stheno)},
	{"every function of two operands, float32", ours, false, on(binary(tensor.Float32), stheno)},
	{"product of two integers", ours, false, on(integers, stheno)},
	{"product of two integers", locked, true, held(on(integers, gorgonias))},
	{"comparison of tensors, to Bool", ours, false, on(lessTensors, stheno)},
	{"comparison of tensors, to Bool", locked, true, held(on(lessTensors, gorgonias))},
	{"comparison of scalars, to Bool", ours, false, on(lessScalars, stheno)},
	{"comparison of scalars, to Bool", locked, true, held(on(lessScalars, gorgonias))},
	{"Add, no kernels registered", locked, true, held(on(gAdd, bare))},
	{"Tanh, no kernels registered", locked, true, held(on(gTanh, bare))},
	{"Tanh, while another goroutine works", ours, false, crowded(on(gTanh, stheno))},
	{"Tanh, while another goroutine works", plain, true, crowded(on(gTanh, gorgonias))},
	{"Tanh, made on one thread and run on another", ours, false, held(on(gTanh, elsewhere(stheno)))},
	{"Tanh, made on one thread and run on another", plain, true, held(on(gTanh, elsewhere(gorgonias)))},
	{"Sum of Tanh", ours, false, on(gSum, stheno)},
	{"Sum of Tanh", locked, true, held(on(gSum, gorgonias))},
	{"Sum over an axis of Tanh", ours, false, on(gSumAxis, stheno)},
	{"Sum alone", ours, false, on(gSumOnly, stheno)},
	{"Sum alone", locked, true, held(on(gSumOnly, gorgonias))},
	{"Mul of matrices", ours, false, on(gMul, stheno)},
	{"Mul of matrices", locked, true, held(on(gMul, gorgonias))},
	{"Mul of matrix and vector, gradients", ours, false, on(gMatVec, stheno)},
	{"Mul of matrix and vector, gradients", locked, true, held(on(gMatVec, gorgonias))},
	{"OuterProd", ours, false, on(gOuter, stheno)},
	{"OuterProd", locked, true, held(on(gOuter, gorgonias))},
	{"BatchedMatMul, gradients, 20 runs", ours, false, on(gBatched, repeated(20, stheno))},
	{"BatchedMatMul, gradients, 20 runs", locked, true, held(on(gBatched, repeated(20, gorgonias)))},
	{"Mul of vectors", ours, false, on(gMulVectors, stheno)},
	{"Mul of vectors", locked, true, held(on(gMulVectors, gorgonias))},
	{"Sum of Tanh of Mul, gradients", ours, false, on(gorgoniaLoss, stheno)},
	{"Sum of Tanh of Mul, gradients", locked, true, held(on(gorgoniaLoss, gorgonias))},
	{"Sum of Tanh of Mul, bound gradients", ours, false, bound(gorgoniaLoss, stheno)},
	{"Sum of Tanh of Mul, bound gradients", locked, true, held(bound(gorgoniaLoss, gorgonias))},
	{"inputs transposed, sliced and column-major", ours, false, on(strided, stheno)},
	{"inputs transposed, sliced and column-major", locked, true, held(on(strided, gorgonias))},
	{"WithNaNWatch, logarithms of negative numbers", ours, false, watches(stheno, "NaN", G.Log, G.WithNaNWatch())},
	{"WithNaNWatch, logarithms of negative numbers", locked, true, held(watches(gorgonias, "NaN", G.Log, G.WithNaNWatch()))},
	{"WithInfWatch, ops.Add of infinity", ours, false, watches(stheno, "Inf", infinity, G.WithInfWatch())},
	{"WithInfWatch, ops.Add of infinity", locked, true, held(watches(gorgonias, "Inf", infinity, G.WithInfWatch()))},
	{"100 times Add", ours, false, on(many, stheno)},
	{"100 times Add", locked, true, held(on(many, gorgonias))},
	{"10 machines one after the other, ops of Stheno", ours, false, loop(10, on(sthenoOnly, stheno))},
	{"10 machines one after the other, ops of Stheno", locked, false, held(loop(10, on(sthenoOnly, gorgonias)))},
	{"10 machines one after the other, ops of Stheno", plain, true, loop(10, on(sthenoOnly, gorgonias))},
	{"10 machines one after the other, Tanh", ours, false, loop(10, on(gTanh, stheno))},
	{"10 machines one after the other, Tanh", locked, true, held(loop(10, on(gTanh, gorgonias)))},
	{"4 machines at a time", ours, false, several(stheno)},
	{"4 machines at a time", locked, false, held(several(gorgonias))},
	{"4 machines at a time", plain, true, several(gorgonias)},
	{"4 machines in 4 goroutines", ours, false, together(stheno)},
	{"4 machines in 4 goroutines", locked, true, together(lockedGorgonias)},
	{"4 machines in 4 goroutines", plain, true, together(gorgonias)},
	{"values outlive the machine", ours, false, outlives},
	{"120 scalars", ours, false, on(scalars, stheno)},
	{"120 scalars", locked, true, held(on(scalars, gorgonias))},
	{"2^40 elements", ours, false, tooLarge(stheno)},
	{"2^40 elements", locked, true, held(tooLarge(gorgonias))},
	{"memory that launches take, ops.Add", ours, false, leak(ops.Add, stheno, 256)},
	{"memory that launches take, Gorgonia's Add", ours, false, leak(G.Add, stheno, 256)},
	{"memory that launches take, Gorgonia's Add", locked, true, held(leak(G.Add, gorgonias, math.MaxInt))},
	{"mixed graph, gradients", oursLisp, false, lispGradients(mixed, tape.NewLispMachine)},
	{"ops of Stheno, forward", lispGPU, true, held(on(sthenoLoss0, lisp(G.ExecuteFwdOnly())))},
	{"ops of Stheno, gradients", lispGPU, true, lispGradients(sthenoLoss0, lisp())},
	{"ops.Sum, gradient", lispGPU, true, lispGradients(sumOnly, lisp())},
}

func sthenoLoss0() model {
	m := sthenoOnly()
	m.grads = false
	return m
}

func sumOnly() model {
	g := G.NewGraph()
	x := input(g, "x", 5, 7)
	return model{g: g, leaves: G.Nodes{x}, out: G.Nodes{ok(ops.Sum(x))}}
}

// TestPrograms runs the programs. With STHENO_RECORD=file it also writes their
// outcomes as the table of docs/cuda-tag.md.
func TestPrograms(t *testing.T) {
	if err := tape.Available(); err != nil {
		if os.Getenv("STHENO_REQUIRE_GPU") == "1" {
			t.Fatalf("STHENO_REQUIRE_GPU=1, but: %v", err)
		}
		t.Skipf("SKIPPED, NOT TESTED: %v", err)
	}
	outcomes := make([]string, len(programs))
	t.Cleanup(func() { record(t, outcomes) })
	for i, p := range programs {
		t.Run(p.graph+" on "+p.machine, func(t *testing.T) {
			t.Parallel()
			text, err := start(t.Context(), p.graph+" on "+p.machine)
			outcomes[i] = outcome(text, err)
			switch {
			case err == nil || p.known:
				t.Logf("%s (%v)\n%s", outcomes[i], err, text)
			default:
				t.Errorf("%v\n%s", err, text)
			}
		})
	}
}

// TestNoDevice: with the tag and no device Gorgonia's machine panics on a graph
// with an op of its own for CUDA; tape.NewMachine gives an error that says what
// to do. Graphs of Stheno's ops alone run on the host with both.
func TestNoDevice(t *testing.T) {
	if tape.Available() == nil {
		t.Skip("there is a device")
	}
	panics := func() (p any) {
		defer func() { p = recover() }()
		G.NewTapeMachine(gTanh().g).Close()
		return nil
	}
	if p := panics(); p == nil {
		t.Error("Gorgonia's machine does not panic any more: docs/cuda-tag.md says so")
	}
	if _, err := tape.NewMachine(gTanh().g); !errors.Is(err, cudaops.ErrNoDevice) || !strings.Contains(err.Error(), "stheno.NewVM") {
		t.Errorf("tape.NewMachine: %v, want ErrNoDevice and what to do", err)
	}
	for name, make := range map[string]newMachine{ours: tape.NewMachine, plain: gorgonias} {
		m := add()
		vm := ok(make(m.g))
		if err := vm.RunAll(); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		x, y, sum := numbers(m.leaves[0].Value()), numbers(m.leaves[1].Value()), numbers(m.out[0].Value())
		if sum[999] != x[999]+y[999] {
			t.Errorf("%s: got %v last, want %v", name, sum[999], x[999]+y[999])
		}
		must(vm.Close())
	}
}

var errHangs = errors.New("hangs")

// start runs a program as a process of its own and gives what it prints.
func start(ctx context.Context, name string) (text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 25*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), "STHENO_PROGRAM="+name, "GOTRACEBACK=all")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) } // with the stacks
	cmd.WaitDelay = 3 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	text = out.String()
	if ctx.Err() != nil {
		err = errHangs
		if all := stages.FindAllStringSubmatch(text, -1); all != nil {
			err = fmt.Errorf("%w in %s", errHangs, all[len(all)-1][1])
		}
	}
	if len(text) > 6000 {
		text = text[:3000] + "\n...\n" + text[len(text)-3000:]
	}
	return text, err
}

// stages are the lines of what a machine began.
var stages = regexp.MustCompile(`(?m)^stage: (\w+)$`)

// findings are what a program knew before it ended or hung.
var findings = regexp.MustCompile(`(?m)^found: (.*)$`)

var telling = regexp.MustCompile(`(?m)^(?:panic|ERROR|grew).*`)

// outcome is what a program did, in a few words.
func outcome(text string, err error) string {
	line := telling.FindString(text)
	switch {
	case errors.Is(err, errHangs):
		line = err.Error()
		if all := findings.FindAllStringSubmatch(text, -1); all != nil {
			line += ", after: " + all[len(all)-1][1]
		}
	case err == nil && line != "":
		return line
	case err == nil:
		return "right"
	case line == "":
		return "**" + err.Error() + "**"
	}
	line = strings.TrimPrefix(line, "ERROR: ")
	if r := []rune(line); len(r) > 110 {
		line = string(r[:110]) + "..."
	}
	return "**" + strings.ReplaceAll(line, "|", "/") + "**"
}

// record writes the outcomes.
func record(t *testing.T, outcomes []string) {
	file := os.Getenv("STHENO_RECORD")
	if file == "" {
		return
	}
	devices, err := cudaops.Devices()
	if err != nil {
		t.Error(err)
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n| Graph | Machine | Outcome |\n|---|---|---|\n",
		results.RunOn(devices[0].Name, devices[0].Driver, time.Now().UTC().Format(time.DateOnly)))
	for i, p := range programs {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", p.graph, p.machine, outcomes[i])
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		t.Error(err)
	}
}
