package cudaops

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The values that count: the device's from the first run on, the host's for values that are bound or
// pushed, and for all after Close.
func TestPullPush(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		node := testutil.Get[*G.Node](t)
		build := func(opts ...Option) (vm *VM, w, v *G.Node, read *G.Value) {
			g := G.NewGraph()
			w = G.NewVector(g, tensor.Float64, G.WithName("w"), G.WithShape(2), G.WithValue(vector(1, 2)))
			v = G.NewVector(g, tensor.Float64, G.WithName("v"), G.WithShape(2), G.WithValue(vector(5, 6)))
			read = new(G.Value)
			G.Read(w, read)
			testutil.Get[G.Nodes](t)(G.Grad(node(G.Sum(node(G.Add(w, v)))), w, v)) // each step takes 1 off
			vm, err := NewVM(g, append([]Option{on, Train(G.NewVanillaSolver(G.WithLearnRate(1)), w, v)}, opts...)...)
			testutil.Do(t, err)
			return vm, w, v, read
		}
		vm, w, v, read := build()
		testutil.Do(t, vm.Pull()) // nothing was run
		own := w.Value()
		testutil.Do(t, vm.RunAll())
		testutil.Do(t, vm.RunAll())
		equal(t, "read, before the second step", *read, vector(0, 1), 0)
		equal(t, "w that was not pulled", w.Value(), vector(1, 2), 0)
		testutil.Do(t, vm.Pull(w))
		equal(t, "w", w.Value(), vector(-1, 0), 0)
		equal(t, "v that was not pulled", v.Value(), vector(5, 6), 0)
		if equal(t, "the tensor that w had", own, vector(-1, 0), 0); w.Value() != own {
			t.Error("Pull bound another value")
		}

		testutil.Do(t, G.Let(w, vector(10, 20))) // goes to the device in the next run
		testutil.Do(t, vm.RunAll())
		testutil.Do(t, vm.Pull())
		equal(t, "w after Let", w.Value(), vector(9, 19), 0)
		equal(t, "v", v.Value(), vector(2, 3), 0)

		w.Value().(*tensor.Dense).Float64s()[0] = 100 // nobody knows
		testutil.Do(t, vm.RunAll())
		testutil.Do(t, vm.Pull())
		equal(t, "w changed in place", w.Value(), vector(8, 18), 0)
		w.Value().(*tensor.Dense).Float64s()[0] = 100
		testutil.Do(t, vm.Push(w))
		testutil.Do(t, vm.RunAll())
		equal(t, "w pushed", *read, vector(100, 18), 0)

		testutil.Do(t, G.Let(w, vector(7, 7))) // newer than the device's value
		testutil.Do(t, vm.Pull())
		equal(t, "w after Let and Pull", w.Value(), vector(7, 7), 0)
		testutil.Do(t, vm.RunAll())
		testutil.Do(t, G.Let(v, vector(50, 60)))
		testutil.Do(t, vm.Close())
		equal(t, "w after Close", w.Value(), vector(6, 6), 0)
		equal(t, "v bound before Close", v.Value(), vector(50, 60), 0)
		for _, err := range []error{vm.Pull(), vm.Push(), vm.RunAll()} {
			if err == nil || !strings.Contains(err.Error(), "after Close") {
				t.Errorf("after Close the error is %v", err)
			}
		}

		vm, _, _, _ = build()
		testutil.Do(t, vm.RunAll())
		for what, err := range map[string]error{
			"Push of another graph's node": vm.Push(G.NewScalar(G.NewGraph(), tensor.Float64)), "Pull of nil": vm.Pull(nil),
		} {
			if err == nil || !strings.Contains(err.Error(), "want a learnable") {
				t.Errorf("%s: the error is %v", what, err)
			}
		}
		testutil.Do(t, vm.Close())
	})
}

// Pull writes every element of whatever is bound to a learnable, a view of any order or a scalar, and
// nothing else: gob writes the same, and a second graph with the same tensor computes with it.
func TestPullIntoViews(t *testing.T) {
	part := func(s ...tensor.Slice) func(*testing.T, *tensor.Dense) *tensor.Dense {
		return func(t *testing.T, whole *tensor.Dense) *tensor.Dense {
			return testutil.Get[tensor.View](t)(whole.Slice(s...)).(*tensor.Dense)
		}
	}
	transposed := func(view func(*testing.T, *tensor.Dense) *tensor.Dense) func(*testing.T, *tensor.Dense) *tensor.Dense {
		return func(t *testing.T, whole *tensor.Dense) *tensor.Dense {
			v := view(t, whole)
			testutil.Do(t, v.T())
			return v
		}
	}
	whole := func(_ *testing.T, whole *tensor.Dense) *tensor.Dense { return whole }
	onBackends(t, func(t *testing.T, on Option) {
		for name, view := range map[string]func(*testing.T, *tensor.Dense) *tensor.Dense{
			"whole": whole, "rows": part(G.S(1, 3)), "columns": part(nil, G.S(2, 5)), "a block": part(G.S(1, 4), G.S(1, 3)),
			"a row": part(G.S(2)), "a column": part(nil, G.S(4)), "other columns": part(nil, G.S(0, 6, 2)), "an element": part(G.S(2), G.S(3)),
			"transposed": transposed(whole), "a transposed block": transposed(part(G.S(1, 4), G.S(1, 3))),
			"column-major": func(_ *testing.T, whole *tensor.Dense) *tensor.Dense {
				return tensor.New(tensor.WithShape(6, 5), tensor.AsFortran(whole.Data()))
			},
		} {
			for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
				node, what := testutil.Get[*G.Node](t), fmt.Sprint(name, " of ", dt)
				all := tensor.New(tensor.WithShape(5, 6), tensor.WithBacking(tensor.Range(dt, 0, 30)))
				bound := view(t, all)
				around, before, inside := elementsOf(t, all), elementsOf(t, bound), map[float64]bool{}
				for _, x := range before {
					inside[x] = true
				}
				g, second := G.NewGraph(), G.NewGraph()
				input := func(g *G.ExprGraph) *G.Node {
					if bound.IsScalar() {
						return G.NewScalar(g, dt, G.WithName("w"), G.WithValue(bound))
					}
					return G.NewTensor(g, dt, bound.Dims(), G.WithName("w"), G.WithShape(bound.Shape()...), G.WithValue(bound))
				}
				w, x := input(g), input(second)
				testutil.Get[G.Nodes](t)(G.Grad(node(G.Sum(node(G.Add(w, w)))), w)) // each step takes 1 off
				doubled := node(G.Add(x, x))
				other := machine(t, second, on)
				testutil.Do(t, other.RunAll())
				vm := testutil.Get[*VM](t)(NewVM(g, on, Train(G.NewVanillaSolver(G.WithLearnRate(0.5)), w)))
				testutil.Do(t, vm.RunAll())
				testutil.Do(t, vm.Pull())
				testutil.Do(t, vm.RunAll())
				testutil.Do(t, vm.Close())
				testutil.Do(t, other.RunAll())
				if w.Value() != G.Value(bound) {
					t.Fatalf("%s: Pull bound another value", what)
				}
				decoded := bound
				if bound.DataSize() == len(before) { // gob decodes no tensor with memory between its elements, and no scalar
					var file bytes.Buffer
					testutil.Do(t, gob.NewEncoder(&file).Encode(bound))
					decoded = new(tensor.Dense)
					testutil.Do(t, gob.NewDecoder(&file).Decode(decoded))
				}
				for k, x := range elementsOf(t, bound) {
					if file := elementsOf(t, decoded)[k]; x != before[k]-2 || file != x || floats(t, doubled.Value())[k] != 2*x {
						t.Fatalf("%s: element %d is %v, in a file %v, in the second graph's double %v, want %v", what, k, x, file, floats(t, doubled.Value())[k], before[k]-2)
					}
				}
				for i, x := range elementsOf(t, all) {
					want := around[i]
					if inside[want] {
						want -= 2
					}
					if x != want {
						t.Fatalf("%s: element %d of the whole tensor is %v, want %v", what, i, x, want)
					}
				}
			}
		}
	})
}

// elementsOf returns the elements of a tensor, as package tensor finds them, in row-major order.
func elementsOf(t *testing.T, d *tensor.Dense) (list []float64) {
	number := func(x any) float64 {
		if x, single := x.(float32); single {
			return float64(x)
		}
		return x.(float64)
	}
	switch s := d.Shape(); d.Dims() {
	case 0:
		list = append(list, number(d.Data()))
	case 1:
		for i := range s[0] {
			list = append(list, number(testutil.Get[any](t)(d.At(i))))
		}
	default:
		for i := range s[0] {
			for j := range s[1] {
				list = append(list, number(testutil.Get[any](t)(d.At(i, j))))
			}
		}
	}
	return list
}

// After a Pull, every other VM that holds the tensor uses the pulled values in its next run. A VM that has trained the
// tensor too uses them only after a Push.
func TestPullSeenByOthers(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		node := testutil.Get[*G.Node](t)
		// trained returns a graph of w, with the loss Σw, and what a run reads of w.
		trained := func(shared *tensor.Dense) (w *G.Node, read *G.Value) {
			g := G.NewGraph()
			w, read = G.NewVector(g, tensor.Float64, G.WithName("w"), G.WithShape(3), G.WithValue(shared)), new(G.Value)
			G.Read(node(G.Add(w, w)), read)
			testutil.Get[G.Nodes](t)(G.Grad(node(G.Sum(w)), w))
			return w, read
		}
		sgd := func(w *G.Node) Option { return Train(G.NewVanillaSolver(G.WithLearnRate(1)), w) } // each step takes 1 off
		for name, c := range map[string]struct {
			option func(w *G.Node) []Option
			runs   int // between Pulls
			pull   bool
			want   float64 // twice the first element, which is 10 before 2 steps of the first VM
		}{
			"input":                   {func(w *G.Node) []Option { return nil }, 1, false, 16},
			"resident":                {func(w *G.Node) []Option { return []Option{Resident(w)} }, 1, false, 16},
			"learnable":               {func(w *G.Node) []Option { return []Option{sgd(w)} }, 1, true, 14},
			"learnable, with steps":   {func(w *G.Node) []Option { return []Option{sgd(w)} }, 2, false, 0},
			"resident part of a view": {func(w *G.Node) []Option { return []Option{Resident(w)} }, 1, false, 16},
		} {
			shared := vector(10, 20, 30)
			w, _ := trained(shared)
			if strings.Contains(name, "view") {
				shared = testutil.Get[tensor.View](t)(shared.Slice(G.S(0, 3))).(*tensor.Dense)
			}
			x, read := trained(shared)
			first := machine(t, w.Graph(), on, sgd(w))
			second := testutil.Get[*VM](t)(NewVM(x.Graph(), append(c.option(x), on)...))
			for range c.runs {
				testutil.Do(t, second.RunAll())
			}
			if c.pull {
				testutil.Do(t, second.Pull())
			}
			testutil.Do(t, first.RunAll())
			testutil.Do(t, first.RunAll())
			testutil.Do(t, first.Pull())
			err := second.RunAll()
			if c.want != 0 {
				testutil.Do(t, err)
				if got := floats(t, *read)[0]; got != c.want {
					t.Errorf("%s: the second VM computes with %v, want %v", name, got/2, c.want/2)
				}
				testutil.Do(t, second.Close())
				continue
			}
			_, of := second.Snapshot()
			for what, err := range map[string]error{"RunAll": err, "Pull": second.Pull(), "Snapshot": of} {
				if err == nil || !strings.Contains(err.Error(), "learnable w") || !strings.Contains(err.Error(), "call Push") {
					t.Errorf("%s: %s returns the error %v", name, what, err)
				}
			}
			testutil.Do(t, second.Push(x))
			testutil.Do(t, second.RunAll())
			testutil.Do(t, second.Close())
			equal(t, name, w.Value(), vector(7, 17, 27), 0)
		}
	})
}

// Learnables that share memory cannot both be pulled: the first run is an error.
func TestLearnablesShareMemory(t *testing.T) {
	node, g, both := testutil.Get[*G.Node](t), G.NewGraph(), tensor.New(tensor.WithBacking([]float64{1, 2, 3, 4}))
	learnable := func(name string, from, to int) *G.Node {
		return G.NewVector(g, tensor.Float64, G.WithName(name), G.WithShape(2), G.WithValue(testutil.Get[tensor.View](t)(both.Slice(G.S(from, to))).(*tensor.Dense)))
	}
	v, w := learnable("v", 0, 2), learnable("w", 2, 4)
	testutil.Get[G.Nodes](t)(G.Grad(node(G.Sum(node(G.Add(v, w)))), v, w))
	vm := machine(t, g, OnHost(), Train(G.NewVanillaSolver(G.WithLearnRate(1)), v, w))
	testutil.Do(t, vm.RunAll())
	testutil.Do(t, vm.Pull())
	equal(t, "both", both, vector(0, 1, 2, 3), 0)
	testutil.Do(t, G.Let(v, testutil.Get[tensor.View](t)(both.Slice(G.S(1, 3))).(*tensor.Dense)))
	for what, err := range map[string]error{"RunAll": vm.RunAll(), "Pull": vm.Pull(), "Push": vm.Push(v)} {
		if err == nil || !strings.Contains(err.Error(), "learnables v and w have values in the same memory") {
			t.Errorf("%s gives the error %v", what, err)
		}
	}
	testutil.Do(t, G.Let(v, vector(1, 2)))
}

// Results that arrive in every third run are those of that run.
func TestReadEvery(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		every, third := newPerceptron(t, tensor.Float32, 8), newPerceptron(t, tensor.Float32, 8)
		a := machine(t, every.g, on, Train(G.NewAdamSolver(), every.learnables...))
		b := machine(t, third.g, on, Train(G.NewAdamSolver(), third.learnables...), ReadEvery(3))
		var last G.Value
		for step := range 11 {
			every.feed(t)
			third.feed(t)
			testutil.Do(t, a.RunAll())
			testutil.Do(t, b.RunAll())
			if step%3 == 2 {
				last = third.loss.Value()
				equal(t, "loss", third.read, every.read, 0)
			} else if step < 2 && third.read != nil || step > 2 && third.loss.Value() != last {
				t.Errorf("in run %d there are results", step+1)
			}
		}
		testutil.Do(t, a.Pull())
		testutil.Do(t, b.Pull())
		for i, n := range third.learnables {
			equal(t, n.Name(), n.Value(), every.learnables[i].Value(), 0)
		}
	})
}

// otherSolver is one that is not Gorgonia's.
type otherSolver struct{ own G.Solver }

func (s otherSolver) Step(model []G.ValueGrad) error { return s.own.Step(model) }

// Its steps are made on the host, and the report names the reason.
func TestTrainOnTheHost(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		want, got := newPerceptron(t, tensor.Float64, 9), newPerceptron(t, tensor.Float64, 9)
		a := machine(t, want.g, on, Train(G.NewMomentum(), want.learnables...))
		b := machine(t, got.g, on, Train(otherSolver{G.NewMomentum()}, got.learnables...))
		for range 10 {
			want.feed(t)
			got.feed(t)
			testutil.Do(t, a.RunAll())
			testutil.Do(t, b.RunAll())
		}
		testutil.Do(t, a.Pull())
		for i, n := range got.learnables {
			equal(t, n.Name(), n.Value(), want.learnables[i].Value(), 1e-12)
		}
		if b.Runs() != 10 || a.Runs() != 10 {
			t.Errorf("%d steps on the host and %d on the device, want 10", b.Runs(), a.Runs())
		}
		if r := b.Report(); !strings.Contains(r.Solver, "otherSolver on the host") || !strings.Contains(r.String(), r.Solver) {
			t.Errorf("the report says %q", r.Solver)
		}
		if err := b.Pull(); err == nil {
			t.Error("Pull of what is on the host returned no error")
		}
	})
}

// A step is one launch, and no learnable nor gradient is copied.
func TestTrainReport(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		p := newPerceptron(t, tensor.Float32, 10)
		p.feed(t)
		vm := machine(t, p.g, on, Train(G.NewAdamSolver(), p.learnables...))
		testutil.Do(t, vm.RunAll())
		r, updates := vm.Report(), 0
		for _, s := range r.Steps {
			if len(s.Nodes) == len(p.learnables) && s.Nodes[0] == "w0" {
				updates++
			}
		}
		if updates != 1 || !strings.Contains(r.Solver, "AdamSolver on "+r.Device) {
			t.Errorf("a step is %d launches; %s:\n%v", updates, r.Solver, r)
		}
		for _, n := range r.Nodes {
			learnable := slices.ContainsFunc(p.learnables, func(l *G.Node) bool { return l.Name() == n.Name })
			if learnable && (n.Where != "state" || n.In > 64) || n.Out > 4 {
				t.Errorf("%+v", n)
			}
		}
		if p.learnables[0].Deriv().Value() != nil {
			t.Error("the gradient of w0 is on the host")
		}
		p = newPerceptron(t, tensor.Float32, 10)
		p.feed(t)
		d := p.learnables[0].Deriv()
		testutil.Do(t, machine(t, p.g, on, Train(G.NewAdamSolver(), p.learnables...), Keep(d)).RunAll())
		if d.Value() == nil {
			t.Error("the gradient that is kept is not on the host")
		}
	})
}

// Unsupported arguments of Train are errors that name the argument and the supported ones.
func TestTrainErrors(t *testing.T) {
	p := newPerceptron(t, tensor.Float64, 11)
	used := G.NewAdamSolver()
	vm := machine(t, p.g, OnHost())
	p.feed(t)
	testutil.Do(t, vm.RunAll())
	testutil.Do(t, used.Step(G.NodesToValueGrads(p.learnables)))
	ints := G.NewVector(p.g, tensor.Int, G.WithName("ints"), G.WithShape(2))
	s, w := G.NewVanillaSolver(), p.learnables[0]
	for want, opts := range map[string][]Option{
		"nil solver":               {Train(nil, w)},
		"no learnables":            {Train(s)},
		"got it twice":             {Train(s, w, w)},
		"nil learnable":            {Train(s, w, nil)},
		"got a node with an op":    {Train(s, p.loss)},
		"x: got a node without":    {Train(s, p.x)},
		"ints: got a node without": {Train(s, ints)},
		"w0: got it twice":         {Train(s, w), Train(s, w)},
		"input b0 with a gradient": {Train(s, w), Train(s, p.learnables[2:]...)},
		"several Trains want":      {Train(s, w), Train(otherSolver{s}, p.learnables[1:]...)},
		"EMA without Train":        {EMA(0.5)},
		"EMA got [1]":              {Train(s, w), EMA(1)},
		"EMA got [0.5 0.5]":        {Train(s, w), EMA(0.5), EMA(0.5)},
		"EMA want one of":          {Train(otherSolver{s}, w), EMA(0.5)},
		"has made steps":           {Train(used, w)},
		"ClipNorm without Train":   {ClipNorm(1)},
		"ClipNorm got [0]":         {Train(s, w), ClipNorm(0)},
		"ClipNorm got [NaN]":       {Train(s, w), ClipNorm(math.NaN())},
		"ReadEvery got [0]":        {ReadEvery(0)},
		"nil *gorgonia.AdamSolver": {Train((*G.AdamSolver)(nil), w)},
		"ClipNorm and EMA want":    {Train(otherSolver{s}, w), ClipNorm(1)},
		"Train and ForwardOnly":    {Train(s, w), ForwardOnly()},
		"or Inference, want one":   {Train(s, w), Inference()},
		"and Strict is set":        {Train(otherSolver{s}, w), Strict()},
		"w0 is not in the graph":   {Train(s, newPerceptron(t, tensor.Float64, 1).learnables[0])},
	} {
		if vm, err := NewVM(p.g, append(opts, OnHost())...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got the error %v, want one with %q", err, want)
			if err == nil {
				testutil.Do(t, vm.Close())
			}
		}
	}

	q := newPerceptron(t, tensor.Float64, 12)
	q.feed(t)
	w = q.learnables[0]
	vm = machine(t, q.g, OnHost(), Train(s, q.learnables...))
	testutil.Do(t, vm.RunAll())
	testutil.Do(t, vm.Pull())
	pulled := w.Value()
	testutil.Do(t, G.Let(w, draw(q.r, tensor.Float64, 9, 21)))
	G.WithClip(3)(s)
	if err := vm.RunAll(); err == nil || !strings.Contains(err.Error(), "uses other options") {
		t.Errorf("a solver that clips all at once gives the error %v", err)
	}
	testutil.Do(t, G.Let(w, pulled))
	none := G.NewVector(q.g, tensor.Float64, G.WithName("none"), G.WithShape(3))
	testutil.Get[G.Nodes](t)(G.Grad(G.Must(G.Sum(G.Must(G.Square(none)))), none))
	vm = machine(t, q.g, OnHost(), Train(G.NewVanillaSolver(), none))
	if err := vm.RunAll(); err == nil || !strings.Contains(err.Error(), "none has no value") {
		t.Errorf("a learnable without value gives the error %v", err)
	}
}

// A Read slice of a learnable, at any alignment, has the values from before the step.
func TestReadPartOfLearnable(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			node, g := testutil.Get[*G.Node](t), G.NewGraph()
			w := G.NewVector(g, dt, G.WithName("w"), G.WithShape(7), G.WithInit(G.RangedFrom(1)))
			var part G.Value
			G.Read(node(G.Slice(w, G.S(1, 4))), &part)
			testutil.Get[G.Nodes](t)(G.Grad(node(G.Sum(w)), w)) // each step takes 1 off
			vm := machine(t, g, on, Train(G.NewVanillaSolver(G.WithLearnRate(1)), w))
			for step := range 3 {
				testutil.Do(t, vm.RunAll())
				d := float64(step)
				equal(t, "the part", part, vector(2-d, 3-d, 4-d), 0)
			}
		}
	})
}

// Where UnsafeLet sets slices, the parameters and what the solver keeps of them stay.
func TestTrainWhileSlicesChange(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		node := testutil.Get[*G.Node](t)
		build := func() (g *G.ExprGraph, w, part *G.Node) {
			g = G.NewGraph()
			w = G.NewVector(g, tensor.Float64, G.WithName("w"), G.WithShape(6), G.WithInit(G.RangedFrom(1)))
			part = node(G.Slice(w, G.S(0, 3)))
			testutil.Get[G.Nodes](t)(G.Grad(node(G.Sum(node(G.Square(w)))), w))
			return g, w, part
		}
		a, want, _ := build()
		b, got, part := build()
		s := func() G.Solver { return G.NewAdamSolver(G.WithLearnRate(0.1)) }
		whole, sliced := machine(t, a, on, Train(s(), want)), machine(t, b, on, Train(s(), got))
		for step := range 6 {
			testutil.Do(t, G.UnsafeLet(part, G.S(step%3, step%3+3)))
			testutil.Do(t, whole.RunAll())
			testutil.Do(t, sliced.RunAll())
		}
		testutil.Do(t, whole.Pull())
		testutil.Do(t, sliced.Pull())
		equal(t, "w", got.Value(), want.Value(), 0)
	})
}
