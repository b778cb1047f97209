package cudaops

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/internal/values"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// net is a perceptron of float64 inside, with inputs and outputs of float32, for a batch of any size.
type net struct {
	g            *G.ExprGraph
	x, out, loss *G.Node
	read         G.Value // of out
	learnables   G.Nodes
	dt           tensor.Dtype
}

// newNet returns a net with parameters of a seed.
func newNet(t testing.TB, dt tensor.Dtype, batch int, seed uint64) *net {
	node, r := testutil.Get[*G.Node](t), rand.New(rand.NewPCG(seed, 2))
	n := &net{g: G.NewGraph(), dt: dt}
	n.x = G.NewMatrix(n.g, dt, G.WithName("x"), G.WithShape(batch, 7))
	n.out = n.x
	for i, width := range []int{13, 3} {
		in := n.out.Shape()[1]
		w := G.NewMatrix(n.g, dt, G.WithName(fmt.Sprint("w", i)), G.WithShape(in, width), G.WithValue(draw(r, dt, in, width)))
		b := G.NewVector(n.g, dt, G.WithName(fmt.Sprint("b", i)), G.WithShape(width), G.WithValue(draw(r, dt, width)))
		n.learnables = append(n.learnables, w, b)
		n.out = node(G.Tanh(node(G.BroadcastAdd(node(G.Mul(n.out, w)), b, nil, []byte{0}))))
	}
	G.Read(n.out, &n.read)
	n.loss = node(G.Mean(node(G.Square(n.out))))
	testutil.Get[G.Nodes](t)(G.Grad(n.loss, n.learnables...))
	return n
}

// run runs a VM with a batch of a number and returns the output.
func (n *net) run(t testing.TB, vm *VM, batch int) G.Value {
	t.Helper()
	testutil.Do(t, G.Let(n.x, draw(rand.New(rand.NewPCG(uint64(batch), 3)), n.dt, n.x.Shape()...)))
	testutil.Do(t, vm.RunAll())
	return n.read
}

// take sets the learnables to the values of another net.
func (n *net) take(t testing.TB, from *net) {
	for i, w := range n.learnables {
		testutil.Do(t, G.Let(w, testutil.Get[G.Value](t)(G.CloneValue(from.learnables[i].Value()))))
	}
}

// storeMachines make VMs of one kind: on the host, on a fake device that computes late, and on the GPU if there is one.
func storeMachines(t *testing.T) map[string]func(g *G.ExprGraph, opts ...Option) (*VM, error) {
	list := stagings(t)
	list["host"] = func(g *G.ExprGraph, opts ...Option) (*VM, error) { return NewVM(g, append(opts, OnHost())...) }
	return list
}

// sameValue ends the test unless two values have the same bits.
func sameValue(t testing.TB, what string, got, want G.Value) {
	t.Helper()
	a, b := testutil.Get[[]byte](t)(values.Bytes(got)), testutil.Get[[]byte](t)(values.Bytes(want))
	if !got.Shape().Eq(want.Shape()) || !slices.Equal(a, b) {
		t.Fatalf("%s: got %v, want the bits of %v", what, got, want)
	}
}

// bitsOf is the bits of a Store's parameters by name.
func bitsOf(t testing.TB, s *Store) map[string]G.Value {
	all := map[string]G.Value{}
	for _, l := range testutil.Get[[]Learnable](t)(s.Parameters()) {
		all[l.Name] = l.Value
	}
	return all
}

// VMs of a Store, which share a workspace, compute what VMs compute whose parameters are pulled from the VM that trains, and set, before each run.
func TestStore(t *testing.T) {
	for name, open := range storeMachines(t) {
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			for what, opts := range map[string][]Option{"each run": nil, "clipped": {ClipNorm(0.1), ReadEvery(3)}, "every other run": {StepEvery(2), ReadEvery(4)}} {
				t.Run(fmt.Sprint(name, dt, what), func(t *testing.T) {
					get := testutil.Get[*VM](t)
					s := NewStore()
					defer s.Close()
					own, ref := newNet(t, dt, 16, 1), newNet(t, dt, 16, 1)
					training := get(open(own.g, append(opts, In(s), Seed(1), Train(G.NewAdamSolver(G.WithLearnRate(0.05)), own.learnables...))...))
					defer training.Close()
					plain := get(open(ref.g, append(opts, Seed(1), Train(G.NewAdamSolver(G.WithLearnRate(0.05)), ref.learnables...))...))
					defer plain.Close()
					var nets, refs []*net
					var vms, plains []*VM
					for i, batch := range []int{5, 40, 1} { // the second needs a larger workspace than the others
						n := newNet(t, dt, batch, 100) // with other parameters, which don't count
						nets, refs = append(nets, n), append(refs, newNet(t, dt, batch, 100))
						vms = append(vms, get(open(n.g, In(s), Inference())))
						plains = append(plains, get(open(refs[i].g, Inference())))
						defer vms[i].Close()
						defer plains[i].Close()
					}
					how := rand.New(rand.NewPCG(1, 2))
					for step := range 30 {
						own.run(t, training, step)
						ref.run(t, plain, step)
						if how.IntN(2) == 0 { // runs depend on nothing in the workspace
							testutil.Do(t, s.use("test", func() error { return s.work.Write(0, bytes.Repeat([]byte{0xff}, int(s.size))) }))
						}
						if k := how.IntN(4); k < 3 {
							testutil.Do(t, plain.Pull())
							refs[k].take(t, ref)
							sameValue(t, fmt.Sprintf("step %d, a batch of %v", step, nets[k].x.Shape()), nets[k].run(t, vms[k], step), refs[k].run(t, plains[k], step))
						}
					}
					a, b := testutil.Get[*Snapshot](t)(training.Snapshot()), testutil.Get[*Snapshot](t)(plain.Snapshot())
					in := bitsOf(t, s)
					for i, l := range a.Learnables {
						sameValue(t, l.Name, l.Value, b.Learnables[i].Value)
						sameValue(t, l.Name, in[l.Name], l.Value)
						for k, m := range l.Moments {
							sameValue(t, l.Name, m, b.Learnables[i].Moments[k])
						}
					}
					if a.Steps != b.Steps || a.Added != b.Added || a.Runs != b.Runs {
						t.Errorf("got %d steps, %d runs and %d added, want %d, %d and %d", a.Steps, a.Runs, a.Added, b.Steps, b.Runs, b.Added)
					}
				})
			}
		}
	}
}

// The parameters of a VM that came first move when a VM trains them: both go on with the same values. After the VM that
// trained is closed, another one may train, and two VMs may train different parameters in turn.
func TestStoreMoves(t *testing.T) {
	for name, open := range storeMachines(t) {
		t.Run(name, func(t *testing.T) {
			get := testutil.Get[*VM](t)
			s := NewStore()
			defer s.Close()
			first := newNet(t, tensor.Float64, 4, 7)
			evaluating := get(open(first.g, In(s, first.learnables...), Inference()))
			defer evaluating.Close()
			before := testutil.Get[G.Value](t)(G.CloneValue(first.run(t, evaluating, 0)))

			ref := newNet(t, tensor.Float64, 4, 7)
			plain := get(open(ref.g, Inference()))
			defer plain.Close()
			agree := func(when string) {
				t.Helper()
				in := bitsOf(t, s)
				for _, w := range ref.learnables {
					testutil.Do(t, G.Let(w, in[w.Name()]))
				}
				sameValue(t, when, first.run(t, evaluating, 0), ref.run(t, plain, 0))
			}
			for i, learned := range [][]int{{0, 1, 2, 3}, {3, 0}, {1}, {0, 1, 2, 3}} {
				n := newNet(t, tensor.Float64, 8, 20)
				var learnables G.Nodes
				for _, k := range learned {
					learnables = append(learnables, n.learnables[k])
				}
				training := get(open(n.g, In(s), Train(G.NewMomentum(G.WithLearnRate(0.1)), learnables...)))
				agree("before a step")
				was := bitsOf(t, s)
				n.run(t, training, i)
				agree("after a step")
				for name, v := range bitsOf(t, s) {
					trained := slices.ContainsFunc(learnables, func(w *G.Node) bool { return w.Name() == name })
					if changed := !slices.Equal(floats(t, v), floats(t, was[name])); changed != trained {
						t.Errorf("training %v: parameter %s changed: %v", learned, name, changed)
					}
				}
				testutil.Do(t, training.Close())
			}
			if slices.Equal(floats(t, before), floats(t, first.read)) {
				t.Error("nothing was learnt")
			}
			a, b := newNet(t, tensor.Float64, 8, 20), newNet(t, tensor.Float64, 8, 20)
			one := get(open(a.g, In(s), Train(G.NewAdamSolver(), a.learnables[:2]...)))
			defer one.Close()
			other := get(open(b.g, In(s), Train(G.NewAdamSolver(), b.learnables[2:]...)))
			defer other.Close()
			for i := range 3 {
				a.run(t, one, i)
				b.run(t, other, i)
				agree("two VMs train")
			}
		})
	}
}

// A node's value counts as the documentation of In and Train says.
func TestStoreValues(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		s := NewStore()
		defer s.Close()
		n := newNet(t, tensor.Float64, 4, 1)
		w := n.learnables[0]
		start := testutil.Get[G.Value](t)(G.CloneValue(w.Value()))
		training := machine(t, n.g, on, In(s), Train(G.NewVanillaSolver(G.WithLearnRate(0.1)), n.learnables...))
		same := machine(t, n.g, on, In(s), Inference()) // of the same graph
		sameValue(t, "the first VM's value", bitsOf(t, s)["w0"], start)

		n.run(t, training, 0)
		sameValue(t, "before Pull", w.Value(), start)
		n.run(t, same, 0)
		after := bitsOf(t, s)["w0"]
		testutil.Do(t, same.Pull(w))
		sameValue(t, "after Pull of another VM", w.Value(), after)
		n.run(t, training, 1)
		n.run(t, same, 1) // takes no value of the node
		if slices.Equal(floats(t, bitsOf(t, s)["w0"]), floats(t, after)) {
			t.Error("a step was lost")
		}

		own := testutil.Get[G.Value](t)(G.CloneValue(start))
		testutil.Do(t, G.Let(w, own))
		n.run(t, same, 2)
		sameValue(t, "after Let", bitsOf(t, s)["w0"], start)
		n.run(t, training, 2)
		n.run(t, same, 2)
		if slices.Equal(floats(t, bitsOf(t, s)["w0"]), floats(t, start)) {
			t.Error("a step after Let was lost")
		}
		own.Data().([]float64)[0] = 42
		testutil.Do(t, same.Push(w))
		if got := floats(t, bitsOf(t, s)["w0"])[0]; got != 42 {
			t.Errorf("after Push the element is %v, want 42", got)
		}

		other := newNet(t, tensor.Float64, 2, 9)
		testutil.Do(t, G.Let(other.learnables[0], start)) // before NewVM: it does not count
		vm := machine(t, other.g, on, In(s), Inference())
		before := bitsOf(t, s)["w0"]
		other.run(t, vm, 0)
		sameValue(t, "a node of another graph", bitsOf(t, s)["w0"], before)
		testutil.Do(t, s.SetParameters([]Learnable{{Name: "w0", Value: start}, {Name: "new", Value: vector(1, 2)}}))
		testutil.Do(t, vm.Pull())
		sameValue(t, "after SetParameters", other.learnables[0].Value(), start)
		sameValue(t, "a new parameter", bitsOf(t, s)["new"], vector(1, 2))
		if got := training.Learnables(); !slices.Equal(got, n.learnables) || len(vm.Learnables()) > 0 {
			t.Errorf("the learnables are %v and %v", got, vm.Learnables())
		}
		testutil.Do(t, training.Close()) // pulls
		sameValue(t, "after Close", w.Value(), start)
	})
}

// Parameters may come before the first VM, and a node without a value takes the Store's.
func TestStoreSetFirst(t *testing.T) {
	for name, open := range storeMachines(t) {
		t.Run(name, func(t *testing.T) {
			s := NewStore()
			defer s.Close()
			x := G.NewVector(G.NewGraph(), tensor.Float64, G.WithName("x"), G.WithShape(3))
			w := G.NewVector(x.Graph(), tensor.Float64, G.WithName("w"), G.WithShape(3))
			z := testutil.Get[*G.Node](t)(G.HadamardProd(x, w))
			testutil.Do(t, s.SetParameters([]Learnable{{Name: "w", Value: vector(1, 2, 3)}}))
			vm := testutil.Get[*VM](t)(open(x.Graph(), In(s)))
			defer vm.Close()
			testutil.Do(t, G.Let(x, vector(2, 2, 2)))
			testutil.Do(t, vm.RunAll())
			equal(t, "z", z.Value(), vector(2, 4, 6), 0)
			testutil.Do(t, vm.Pull())
			equal(t, "w", w.Value(), vector(1, 2, 3), 0)
		})
	}
}

// A run that Watch ends leaves the Store as it was.
func TestStoreWatch(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		s := NewStore()
		defer s.Close()
		n := newNet(t, tensor.Float64, 4, 1)
		training := machine(t, n.g, on, In(s), Watch(NaN|Inf), Train(G.NewAdamSolver(), n.learnables...))
		other := newNet(t, tensor.Float64, 4, 1)
		vm := machine(t, other.g, on, In(s), Inference(), Watch(NaN))
		n.run(t, training, 0)
		testutil.Do(t, s.SetParameters([]Learnable{{Name: "b1", Value: vector(1, 2, 3)}})) // between two watched runs
		before := bitsOf(t, s)
		testutil.Do(t, G.Let(n.x, tensor.New(tensor.WithShape(4, 7), tensor.WithBacking(slices.Repeat([]float64{math.NaN()}, 28)))))
		var found *NotFinite
		if err := training.RunAll(); !errors.As(err, &found) {
			t.Fatalf("a batch of NaN gives %v", err)
		}
		for name, v := range bitsOf(t, s) {
			sameValue(t, name, v, before[name])
		}
		testutil.Do(t, s.SetParameters([]Learnable{{Name: "b1", Value: vector(1, math.NaN(), 3)}}))
		testutil.Do(t, G.Let(other.x, draw(rand.New(rand.NewPCG(1, 1)), tensor.Float64, 4, 7)))
		if err := vm.RunAll(); !errors.As(err, &found) || found.Input == nil || found.Input.Name() != "b1" {
			t.Errorf("a parameter with NaN gives %v", err)
		}
	})
}

func TestStoreErrors(t *testing.T) {
	s := NewStore()
	defer s.Close()
	n := newNet(t, tensor.Float64, 4, 1)
	training := machine(t, n.g, OnHost(), In(s), Train(G.NewAdamSolver(), n.learnables...))
	before := bitsOf(t, s)
	empty, closed := NewStore(), NewStore()
	testutil.Do(t, closed.Close())
	vector := func(dt tensor.Dtype, names ...string) *G.ExprGraph {
		g := G.NewGraph()
		for _, name := range names {
			v := G.NewVector(g, dt, G.WithName(name), G.WithShape(2))
			testutil.Get[*G.Node](t)(G.Add(v, v))
		}
		return g
	}
	inputs := func(g *G.ExprGraph) (list []*G.Node) {
		for _, n := range g.AllNodes() {
			if n.Op() == nil {
				list = append(list, n)
			}
		}
		return list
	}
	again, custom := newNet(t, tensor.Float64, 2, 1), newNet(t, tensor.Float64, 2, 1)
	twice, unnamed, whole := vector(tensor.Float64, "v"), G.NewGraph(), vector(tensor.Complex64, "i")
	testutil.Get[*G.Node](t)(G.Neg(G.NewVector(twice, tensor.Float64, G.WithName("v"), G.WithShape(3))))
	testutil.Get[*G.Node](t)(G.Neg(G.NewVector(unnamed, tensor.Float64, G.WithShape(2))))
	for want, open := range map[string]func() (*VM, error){
		"In: node b0: got float64 of shape (2), want float64 of shape (13) as in the Store":             func() (*VM, error) { return NewVM(vector(tensor.Float64, "b0"), OnHost(), In(s)) },
		"In: node b0: got float32 of shape (2), want float64 of shape (13) as in the Store":             func() (*VM, error) { return NewVM(vector(tensor.Float32, "b0"), OnHost(), In(s)) },
		"In: node b1: got int of shape (2), want float64 of shape (3) as in the Store":                  func() (*VM, error) { return NewVM(vector(tensor.Int, "b1"), OnHost(), In(s)) },
		"In: node i: got complex64 of shape (2), want at least one element of a type that kernels have": func() (*VM, error) { return NewVM(whole, OnHost(), In(s, inputs(whole)...)) },
		"In: got two inputs called \"v\", want unique names of parameters":                              func() (*VM, error) { return NewVM(twice, OnHost(), In(s, inputs(twice)...)) },
		"In: got a parameter of shape (2) without name":                                                 func() (*VM, error) { return NewVM(unnamed, OnHost(), In(s, inputs(unnamed)...)) },
		"In: got a nil node": func() (*VM, error) { return NewVM(whole, OnHost(), In(s, nil)) },
		"In: got a graph without parameters: want the options Train or State, nodes of In, or inputs with the names of the Store's 4 parameters": func() (*VM, error) {
			return NewVM(vector(tensor.Float64, "a"), OnHost(), In(s))
		},
		"In: learnable w0: another open VM of the Store trains it": func() (*VM, error) {
			return NewVM(again.g, OnHost(), In(s), Train(G.NewAdamSolver(), again.learnables...))
		},
		"In wants one of Gorgonia's solvers, got a cudaops.otherSolver": func() (*VM, error) {
			return NewVM(custom.g, OnHost(), In(s), Train(otherSolver{G.NewVanillaSolver()}, custom.learnables...))
		},
		"got the option In of two Stores, want one": func() (*VM, error) { return NewVM(n.g, OnHost(), In(s), In(closed)) },
		"In got a Store that NewStore did not make": func() (*VM, error) { return NewVM(n.g, OnHost(), In(nil)) },
		"In: the Store is closed":                   func() (*VM, error) { return NewVM(n.g, OnHost(), In(closed, n.learnables...)) },
		"In: got a VM on CUDA device 0, want the host, which the Store's other VMs use": func() (*VM, error) {
			return newVM(n.g, &config{stores: []stored{{s, nil}}}, &fakeGPU{fake{}})
		},
		" with an op, ": func() (*VM, error) { return NewVM(n.g, OnHost(), In(s, n.loss)) },
	} {
		if vm, err := open(); err == nil || vm != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got the error %v, want %q in it", err, want)
		}
	}
	for name, v := range bitsOf(t, s) {
		sameValue(t, name, v, before[name])
	}
	if len(s.list) != 4 || len(s.members) != 1 || len(empty.list) != 0 {
		t.Errorf("failed calls leave %d parameters and %d VMs, want 4 and 1", len(s.list), len(s.members))
	}
	tensors := func(name string, v G.Value) []Learnable {
		return []Learnable{{Name: "w1", Value: tensor.New(tensor.WithShape(13, 3), tensor.Of(tensor.Float64))}, {Name: name, Value: v}}
	}
	for want, list := range map[string][]Learnable{
		"Store.SetParameters: parameter b0: got float64 of shape (1), want float64 of shape (13) as in the Store": tensors("b0", tensor.New(tensor.WithShape(1), tensor.WithBacking([]float64{1}))),
		"parameter c: got no value":               tensors("c", nil),
		`got the name "w1" for parameter 1`:       tensors("w1", tensor.New(tensor.WithShape(1), tensor.WithBacking([]float64{1}))),
		`got the name "" for parameter 1`:         tensors("", tensor.New(tensor.WithShape(1), tensor.WithBacking([]float64{1}))),
		"parameter c: got complex64 of shape (1)": tensors("c", tensor.New(tensor.WithShape(1), tensor.WithBacking([]complex64{1}))),
	} {
		if err := s.SetParameters(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got the error %v, want %q in it", err, want)
		}
	}
	sameValue(t, "w1", bitsOf(t, s)["w1"], before["w1"])
	if err := closed.SetParameters(nil); err == nil || !strings.Contains(err.Error(), "the Store is closed") {
		t.Errorf("a closed Store gives %v", err)
	}
	if _, err := new(Store).Parameters(); err == nil || !strings.Contains(err.Error(), "NewStore") {
		t.Errorf("a zero Store gives %v", err)
	}
	testutil.Do(t, training.Close())
	testutil.Do(t, machine(t, again.g, OnHost(), In(s), Train(G.NewAdamSolver(), again.learnables...)).Close())
}

// A Store and its VMs may be closed in any order: each works until its own Close, and the last Close frees the memory.
func TestStoreCloses(t *testing.T) {
	for name, open := range storeMachines(t) {
		for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
			t.Run(fmt.Sprint(name, order), func(t *testing.T) {
				s := NewStore()
				a, b := newNet(t, tensor.Float32, 4, 1), newNet(t, tensor.Float32, 2, 1)
				training := testutil.Get[*VM](t)(open(a.g, In(s), ReadEvery(5), Train(G.NewAdamSolver(), a.learnables...)))
				vm := testutil.Get[*VM](t)(open(b.g, In(s), Inference()))
				closed := map[int]bool{}
				for i, k := range order {
					if len(s.homes) == 0 {
						t.Fatalf("the memory is free after %v", order[:i])
					}
					for range 2 {
						testutil.Do(t, []func() error{s.Close, training.Close, vm.Close}[k]())
					}
					if closed[k] = true; !closed[1] {
						a.run(t, training, i)
					}
					if !closed[2] {
						b.run(t, vm, i)
					}
				}
				if len(s.homes) > 0 || len(s.members) > 0 || len(s.nodes) > 0 {
					t.Errorf("%d pieces of memory, %d VMs and %d nodes are left", len(s.homes), len(s.members), len(s.nodes))
				}
			})
		}
	}
}

// A VM that is dropped without Close leaves its Store, which another VM may then train.
func TestStoreDropped(t *testing.T) {
	s := NewStore()
	defer s.Close()
	func() {
		n := newNet(t, tensor.Float64, 4, 1)
		vm := testutil.Get[*VM](t)(NewVM(n.g, OnHost(), In(s), Train(G.NewAdamSolver(), n.learnables...)))
		n.run(t, vm, 0)
	}()
	for range 100 {
		runtime.GC()
		n := newNet(t, tensor.Float64, 4, 1)
		vm, err := NewVM(n.g, OnHost(), In(s), Train(G.NewAdamSolver(), n.learnables...))
		if err == nil {
			testutil.Do(t, vm.Close())
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("a VM dropped without Close still trains")
}

// One VM of a Store runs at a time: a second one waits, or returns the error of its context.
func TestStoreWaits(t *testing.T) {
	s := NewStore()
	defer s.Close()
	running, end := make(chan bool), make(chan bool)
	g := G.NewGraph()
	w := G.NewVector(g, tensor.Float64, G.WithName("w"), G.WithShape(2), G.WithValue(vector(1, 2)))
	testutil.Get[*G.Node](t)(G.ApplyOp(doing(func(in ...G.Value) (G.Value, error) {
		running <- true
		<-end
		return in[0], nil
	}), w))
	slow := machine(t, g, OnHost(), In(s, w))
	other := G.NewGraph()
	square := testutil.Get[*G.Node](t)(G.Square(G.NewVector(other, tensor.Float64, G.WithName("w"), G.WithShape(2))))
	quick := machine(t, other, OnHost(), In(s))

	var group sync.WaitGroup
	group.Go(func() { testutil.Do(t, slow.RunAll()) })
	<-running
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	if err := quick.RunContext(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, cause) || square.Value() != nil {
		t.Errorf("while another VM runs, a context that is done gives %v", err)
	}
	waited := make(chan error)
	go func() { waited <- quick.RunAll() }()
	select {
	case err := <-waited:
		t.Fatalf("a VM ran while another did: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	end <- true
	testutil.Do(t, <-waited)
	group.Wait()
	equal(t, "w²", square.Value(), vector(1, 4), 0)
}

// Two goroutines train and evaluate at once: each evaluation sees the parameters of between two steps.
func TestStoreConcurrently(t *testing.T) {
	for name, open := range storeMachines(t) {
		t.Run(name, func(t *testing.T) {
			s := NewStore()
			defer s.Close()
			// Each step subtracts 1 from all elements of w and of v.
			step := func() (g *G.ExprGraph, learnables G.Nodes) {
				g = G.NewGraph()
				for _, name := range []string{"w", "v"} {
					learnables = append(learnables, G.NewVector(g, tensor.Float64, G.WithName(name), G.WithShape(1000), G.WithInit(G.Zeroes())))
				}
				sum := testutil.Get[*G.Node](t)(G.Sum(testutil.Get[*G.Node](t)(G.Add(learnables[0], learnables[1]))))
				testutil.Get[G.Nodes](t)(G.Grad(sum, learnables...))
				return g, learnables
			}
			g, learnables := step()
			training := testutil.Get[*VM](t)(open(g, In(s), ReadEvery(7), Train(G.NewVanillaSolver(G.WithLearnRate(1)), learnables...)))
			defer training.Close()
			other, read := step()
			difference := testutil.Get[*G.Node](t)(G.Sub(read[0], read[1]))
			vm := testutil.Get[*VM](t)(open(other, In(s), Inference(), Keep(difference)))
			defer vm.Close()
			var group sync.WaitGroup
			group.Go(func() {
				for range 50 {
					testutil.Do(t, training.RunAll())
				}
			})
			group.Go(func() {
				for range 50 {
					testutil.Do(t, vm.RunAll())
					for _, x := range floats(t, difference.Value()) {
						if x != 0 {
							t.Errorf("the parameters differ by %v", x)
						}
					}
				}
			})
			group.Go(func() {
				for range 50 {
					testutil.Get[[]Learnable](t)(s.Parameters())
				}
			})
			group.Go(func() {
				for range 5 {
					testutil.Get[[]PassReport](t)(vm.Passes())
					own, learnables := step()
					c := G.NewVector(own, tensor.Float64, G.WithName("c"), G.WithShape(10), G.WithInit(G.Zeroes()))
					testutil.Get[G.Nodes](t)(G.Grad(testutil.Get[*G.Node](t)(G.Sum(c)), c))
					_, err := open(own, In(s), Train(G.NewVanillaSolver(), learnables[0], c))
					if err == nil || !strings.Contains(err.Error(), "another open VM") {
						t.Errorf("a second training gives %v", err)
					}
				}
			})
			group.Wait()
			if got := floats(t, bitsOf(t, s)["w"])[999]; got != -50 {
				t.Errorf("after 50 steps an element is %v", got)
			}
		})
	}
}

// A VM whose graph could not be compiled again takes the Store's parameters when it can, not those of before.
func TestStoreMended(t *testing.T) {
	s := NewStore()
	defer s.Close()
	n := newNet(t, tensor.Float64, 4, 1)
	training := machine(t, n.g, OnHost(), In(s, n.learnables[3]), Train(G.NewAdamSolver(), n.learnables[:3]...))
	n.run(t, training, 0)
	g := G.NewGraph()
	b := G.NewVector(g, tensor.Float64, G.WithName("b1"), G.WithShape(3))
	c := G.NewVector(g, tensor.Float64, G.WithName("c"), G.WithShape(3), G.WithValue(vector(1, 2, 3)))
	testutil.Get[G.Nodes](t)(G.Grad(testutil.Get[*G.Node](t)(G.Mul(b, c)), b, c))
	machine(t, g, OnHost(), In(s), Train(G.NewAdamSolver(), b, c)) // moves b1
	training.config.device, training.config.host = 99, false
	if err := training.RunAll(); !errors.Is(err, ErrNoDevice) {
		t.Fatalf("without a device the run gives %v", err)
	}
	testutil.Do(t, s.SetParameters([]Learnable{{Name: "b0", Value: tensor.New(tensor.WithShape(13), tensor.Of(tensor.Float64))}}))
	training.config.host = true
	testutil.Do(t, training.Pull())
	for _, x := range floats(t, n.learnables[1].Value()) {
		if x != 0 {
			t.Fatalf("b0 is %v, want zeros", n.learnables[1].Value())
		}
	}
}
