package cudaops

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
	"pgregory.net/rapid"
)

// recurrence is a graph of drawn ops with states.
type recurrence struct {
	g            *G.ExprGraph
	x            *G.Node
	states, next []*G.Node
	out          []*G.Node // of a run
}

// newRecurrence draws a graph. Next values are results, views, inputs, constants and other states, some of them twice.
func newRecurrence(t testing.TB, seed uint64) *recurrence {
	node, r := testutil.Get[*G.Node](t), rand.New(rand.NewPCG(seed, 5))
	dt := []tensor.Dtype{tensor.Float32, tensor.Float64}[r.IntN(2)]
	n := 1 + r.IntN(9)
	c := &recurrence{g: G.NewGraph()}
	c.x = G.NewMatrix(c.g, dt, G.WithName("x"), G.WithShape(n, n))
	list := []*G.Node{c.x, node(G.Neg(c.x)), c.g.AddNode(G.NewConstant(draw(r, dt, n, n), G.WithName("constant")))}
	for i := range 1 + r.IntN(4) {
		s := G.NewMatrix(c.g, dt, G.WithName(fmt.Sprint("state", i)), G.WithShape(n, n))
		if r.IntN(2) == 0 {
			testutil.Do(t, G.Let(s, draw(r, dt, n, n)))
		}
		c.states, list = append(c.states, s), append(list, s)
	}
	any := func() *G.Node { return list[r.IntN(len(list))] }
	for range r.IntN(12) {
		var v *G.Node
		switch a := any(); r.IntN(12) {
		case 0:
			v = node(ops.MatMul(a, list[1]))
		case 1:
			v = node(G.Transpose(node(ops.Map("a+1", a))))
		case 2:
			v = node(ops.Map("tanh(a-b)", list[1], a))
		case 3:
			v = node(G.Transpose(node(ops.Map("a*b", list[1], a)), 1, 0))
		case 4:
			v = node(ops.Map("a+b*0.5", list[1], node(ops.Broadcast(node(ops.Sum(node(ops.Map("a+b", a, list[1])), 1)), n, 1))))
		case 5:
			v = node(ops.Map("a+b*0.25", list[1], c.states[r.IntN(len(c.states))]))
		case 6: // rows of any value, also of a itself, that overlap
			k, from, to := r.IntN(2), r.IntN(n), r.IntN(n)
			at := node(ops.Constant(c.g, to))
			rows := []tensor.Slice{nil, nil}
			rows[k] = G.S(from, min(n, from+n-to))
			v = node(ops.Update(a, node(ops.Slice([]*G.Node{a, any()}[r.IntN(2)], rows...)), at, k))
		case 7: // the rows after the first, and the first
			if k := r.IntN(2); n > 1 {
				first, rest := []tensor.Slice{nil, nil}, []tensor.Slice{nil, nil}
				first[k], rest[k] = G.S(0), G.S(1, n)
				v = node(ops.Concat(k, node(ops.Slice(a, rest...)), node(ops.Slice([]*G.Node{a, any()}[r.IntN(2)], first...))))
			}
		case 8:
			v = node(ops.CumSum(a, r.IntN(2)))
		case 9:
			v = node(ops.Permute(a, 1, 0))
		case 10:
			v = node(ops.Map("a*0.5+b*0.25", a, node(ops.Permute(any(), 1, 0))))
		case 11:
			v = node(ops.Reshape(node(ops.Reshape(a, -1)), n, n))
		}
		if v == nil {
			continue
		}
		list = append(list, v)
	}
	for range c.states {
		c.next = append(c.next, any())
	}
	for range 1 + r.IntN(3) {
		c.out = append(c.out, node(ops.Map("a*2", any())))
	}
	for _, s := range append(c.states, c.next...) { // all are in the graph and read
		c.out = append(c.out, node(ops.Map("a+b", c.x, s)))
	}
	return c
}

// run sets x and runs a VM. It returns copies of the outputs.
func (c *recurrence) run(t testing.TB, vm *VM, number int) (out []G.Value) {
	t.Helper()
	testutil.Do(t, G.Let(c.x, draw(rand.New(rand.NewPCG(uint64(number), 6)), c.x.Dtype(), c.x.Shape()...)))
	testutil.Do(t, vm.RunAll())
	for _, n := range c.out {
		out = append(out, testutil.Get[G.Value](t)(G.CloneValue(n.Value())))
	}
	return out
}

// TestStates: a VM with states computes what a program does that sets the inputs to the next values itself.
func TestStates(t *testing.T) {
	for name, newVM := range storeMachines(t) {
		t.Run(name, func(t *testing.T) {
			testutil.CheckProperty(t, func(rt *rapid.T) {
				seed := rapid.Uint64().Draw(rt, "seed")
				own, other := newRecurrence(t, seed), newRecurrence(t, seed)
				opts := []Option{Keep(own.out...)}
				for i, s := range own.states {
					opts = append(opts, State(s, own.next[i]))
				}
				vm := testutil.Get[*VM](t)(newVM(own.g, opts...))
				by := testutil.Get[*VM](t)(newVM(other.g, Keep(append(other.next, other.out...)...)))
				for _, s := range other.states {
					if s.Value() == nil {
						testutil.Do(t, G.Let(s, tensor.New(tensor.Of(s.Dtype()), tensor.WithShape(s.Shape()...))))
					}
				}
				for k := range 3 {
					got, want := own.run(t, vm, k), other.run(t, by, k)
					for i := range got {
						sameValue(t, fmt.Sprintf("seed %d, run %d, output %d", seed, k, i), got[i], want[i])
					}
					var next []G.Value
					for _, n := range other.next {
						next = append(next, testutil.Get[G.Value](t)(G.CloneValue(n.Value())))
					}
					for i, s := range other.states {
						testutil.Do(t, G.Let(s, next[i]))
					}
				}
				testutil.Do(t, vm.Pull())
				for i, s := range own.states {
					sameValue(t, fmt.Sprintf("seed %d, state %d", seed, i), s.Value(), other.states[i].Value())
				}
				testutil.Do(t, vm.Close())
				testutil.Do(t, by.Close())
			})
		})
	}
}

// counter is a graph that counts runs in a state of an integer type or a float: total is the sum of all x.
func counter(t testing.TB) (g *G.ExprGraph, x, total, next *G.Node) {
	g = G.NewGraph()
	x = G.NewVector(g, tensor.Float64, G.WithName("x"), G.WithShape(3))
	total = G.NewVector(g, tensor.Float64, G.WithName("total"), G.WithShape(3))
	next = testutil.Get[*G.Node](t)(ops.Map("a+b", total, x))
	return g, x, total, next
}

// TestStateLife: Let, Push, Pull, ReadEvery, failures, a Store.
func TestStateLife(t *testing.T) {
	for name, newVM := range storeMachines(t) {
		t.Run(name, func(t *testing.T) {
			g, x, total, next := counter(t)
			vm := testutil.Get[*VM](t)(newVM(g, State(total, next), ReadEvery(1000)))
			defer vm.Close()
			run := func(v float64) {
				t.Helper()
				testutil.Do(t, G.Let(x, vector(v, 2*v, 3*v)))
				testutil.Do(t, vm.RunAll())
			}
			pulled := func(want ...float64) {
				t.Helper()
				testutil.Do(t, vm.Pull(total))
				sameValue(t, "total", total.Value(), vector(want...))
			}
			run(1)
			run(2)
			pulled(3, 6, 9)
			run(1)
			sameValue(t, "the value last pulled", total.Value(), vector(3, 6, 9))
			testutil.Do(t, G.Let(total, vector(10, 20, 30)))
			run(1)
			pulled(11, 22, 33)
			total.Value().Data().([]float64)[0] = 5
			run(0)
			pulled(11, 22, 33)
			total.Value().Data().([]float64)[0] = 5
			testutil.Do(t, vm.Push())
			run(1)
			pulled(6, 24, 36)
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if err := vm.RunContext(ctx); err == nil {
				t.Error("got no error of a cancelled run")
			}
			pulled(6, 24, 36)
		})
	}
}

// TestStateOfFailedRun: a run that fails after the device has computed leaves the states as they were.
func TestStateOfFailedRun(t *testing.T) {
	for name, newVM := range storeMachines(t) {
		t.Run(name, func(t *testing.T) {
			g, x, total, next := counter(t)
			vm := testutil.Get[*VM](t)(newVM(g, State(total, next), Watch(NaN)))
			defer vm.Close()
			for _, v := range []float64{1, math.NaN(), 2} {
				testutil.Do(t, G.Let(x, vector(v, v, v)))
				if err := vm.RunAll(); (err != nil) != math.IsNaN(v) {
					t.Fatalf("x = %v: got error %v", v, err)
				}
			}
			testutil.Do(t, vm.Pull())
			sameValue(t, "total", total.Value(), vector(3, 3, 3))

			g, x, total, next = counter(t)
			table := G.NewVector(g, tensor.Float64, G.WithName("table"), G.WithShape(2), G.WithValue(vector(7, 8)))
			at := testutil.Get[*G.Node](t)(G.ConvType(x, tensor.Float64, tensor.Int))
			read := testutil.Get[*G.Node](t)(G.ByIndices(table, at, 0))
			vm = testutil.Get[*VM](t)(newVM(g, State(total, next), ReadEvery(7)))
			defer vm.Close()
			run := func(v float64) error {
				t.Helper()
				testutil.Do(t, G.Let(x, vector(v, 0, v)))
				return vm.RunAll()
			}
			testutil.Do(t, run(1))
			testutil.Do(t, vm.Pull())
			if err := run(5); err == nil {
				t.Fatal("got no error of a wrong index")
			}
			_, snapshot := vm.Snapshot()
			for what, err := range map[string]error{"a run": run(1), "Pull": vm.Pull(), "Snapshot": snapshot} {
				if err == nil || !strings.Contains(err.Error(), "state total: a run with a wrong index has changed it") {
					t.Errorf("%s after a wrong index gives %v", what, err)
				}
			}
			testutil.Do(t, vm.Push())
			testutil.Do(t, run(1))
			testutil.Do(t, vm.Pull())
			sameValue(t, "total", total.Value(), vector(2, 0, 2))
			_ = read
		})
	}
}

// TestStateInStore: two VMs advance one state of a Store.
func TestStateInStore(t *testing.T) {
	for name, newVM := range storeMachines(t) {
		t.Run(name, func(t *testing.T) {
			s := NewStore()
			defer s.Close()
			var vms []*VM
			var inputs []*G.Node
			for range 2 {
				g, x, total, next := counter(t)
				vm := testutil.Get[*VM](t)(newVM(g, State(total, next), In(s)))
				defer vm.Close()
				vms, inputs = append(vms, vm), append(inputs, x)
			}
			g, _, total, _ := counter(t) // reads it
			reader := testutil.Get[*VM](t)(newVM(g, In(s)))
			defer reader.Close()
			for k := range 6 {
				testutil.Do(t, G.Let(inputs[k%2], vector(1, 10, 100)))
				testutil.Do(t, vms[k%2].RunAll())
			}
			testutil.Do(t, reader.Pull())
			sameValue(t, "total", total.Value(), vector(6, 60, 600))
			list := testutil.Get[[]Learnable](t)(s.Parameters())
			if len(list) != 1 || list[0].Name != "total" {
				t.Fatalf("got parameters %v, want total", list)
			}
			sameValue(t, "total of the Store", list[0].Value, vector(6, 60, 600))
		})
	}
}

// TestStateOptionErrors: errors about options that do not fit name the node, the option and the accepted ones.
func TestStateOptionErrors(t *testing.T) {
	g, x, total, next := counter(t)
	single := testutil.Get[*G.Node](t)(ops.Sum(next))
	_, _, _, foreign := counter(t)
	for want, opts := range map[string][]Option{
		"State got a nil node":         {State(nil, next)},
		"State got node total twice":   {State(total, next), State(total, x)},
		"want an input of the graph":   {State(next, next)},
		"State: node total: got float": {State(total, single)},
		"which is not in the graph":    {State(total, foreign)},
		"got node total twice":         {State(total, next), Resident(total)},
	} {
		vm, err := NewVM(g, append(opts, OnHost())...)
		if err == nil {
			vm.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
}

// TestStateSnapshot: another VM that restores a snapshot goes on with the same states, of integers too, without a Train and with one.
func TestStateSnapshot(t *testing.T) {
	node := testutil.Get[*G.Node](t)
	build := func() (n *net, opts []Option, total, count *G.Node) {
		n = newNet(t, tensor.Float64, 4, 9)
		total = G.NewScalar(n.g, tensor.Float64, G.WithName("total"))
		count = G.NewVector(n.g, tensor.Int, G.WithName("count"), G.WithShape(2), G.WithValue(tensor.New(tensor.WithBacking([]int{3, 4}))))
		next := node(ops.Update(count, node(ops.RowsAt(count, node(ops.Constant(n.g, 1)), 1, 0)), node(ops.Constant(n.g, 0)), 0))
		return n, []Option{State(total, node(ops.Map("a+b", total, n.loss))), State(count, next), Seed(1)}, total, count
	}
	for name, newVM := range storeMachines(t) {
		for _, trains := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", trains: ", trains), func(t *testing.T) {
				var vms []*VM
				var nets []*net
				var totals, counts []*G.Node
				for range 2 {
					n, opts, total, count := build()
					if trains {
						opts = append(opts, Train(G.NewAdamSolver(), n.learnables...))
					}
					vm := testutil.Get[*VM](t)(newVM(n.g, opts...))
					defer vm.Close()
					vms, nets, totals, counts = append(vms, vm), append(nets, n), append(totals, total), append(counts, count)
				}
				for k := range 3 {
					nets[0].run(t, vms[0], k)
				}
				s := testutil.Get[*Snapshot](t)(vms[0].Snapshot())
				if len(s.States) != 2 || s.States[0].Name != "total" || s.Runs != 3 {
					t.Fatalf("got the states %v after %d runs", s.States, s.Runs)
				}
				testutil.Do(t, vms[1].Restore(s))
				sameValue(t, "total", totals[1].Value(), s.States[0].Value)
				for i := range 2 {
					nets[i].run(t, vms[i], 3)
					testutil.Do(t, vms[i].Pull())
				}
				sameValue(t, "total", totals[1].Value(), totals[0].Value())
				sameValue(t, "count", counts[1].Value(), tensor.New(tensor.WithBacking([]int{4, 4})))
				s.States[0].Value = tensor.New(tensor.WithBacking([]float64{1, 2}))
				if err := vms[1].Restore(s); err == nil || !strings.Contains(err.Error(), "state total: got float64 of shape (2)") {
					t.Errorf("a state of another shape gives %v", err)
				}
				s.States = s.States[:1]
				if err := vms[1].Restore(s); err == nil || !strings.Contains(err.Error(), "got the states total, want 2") {
					t.Errorf("a state too few gives %v", err)
				}
			})
		}
	}
}

// TestStateOfIndices: indices in a state whose next value is an ArgMax are checked when they are set, not in each run.
func TestStateOfIndices(t *testing.T) {
	for name, newVM := range storeMachines(t) {
		t.Run(name, func(t *testing.T) {
			node, g := testutil.Get[*G.Node](t), G.NewGraph()
			table := G.NewMatrix(g, tensor.Float64, G.WithName("table"), G.WithShape(3, 3), G.WithValue(tensor.New(tensor.WithShape(3, 3), tensor.WithBacking([]float64{0, 1, 0, 0, 0, 1, 1, 0, 0}))))
			at := G.NewVector(g, tensor.Int, G.WithName("at"), G.WithShape(2), G.WithValue(tensor.New(tensor.WithBacking([]int{0, 1}))))
			next := node(ops.ArgMax(node(G.ByIndices(table, at, 0)), -1))
			vm := testutil.Get[*VM](t)(newVM(g, State(at, next), ReadEvery(100)))
			defer vm.Close()
			if vm.graph.ComputesIndices() {
				t.Error("the indices are checked in each run")
			}
			for range 5 {
				testutil.Do(t, vm.RunAll())
			}
			testutil.Do(t, vm.Pull())
			sameValue(t, "at", at.Value(), tensor.New(tensor.WithBacking([]int{2, 0})))
			testutil.Do(t, G.Let(at, tensor.New(tensor.WithBacking([]int{0, 3}))))
			if err := vm.RunAll(); err == nil || !strings.Contains(err.Error(), "got index 3 at 1, want 0 to 2") {
				t.Errorf("a wrong index gives the error %v", err)
			}
		})
	}
}

// countingGraph returns a graph whose input grows by 1 in each run.
func countingGraph(t testing.TB, name string) (count *G.Node, option func(func(node, next *G.Node) Option) Option) {
	count = G.NewScalar(G.NewGraph(), G.Float64, G.WithName(name))
	next := testutil.Get[*G.Node](t)(G.Add(count, testutil.Get[*G.Node](t)(ops.Constant(count.Graph(), 1.0))))
	return count, func(f func(node, next *G.Node) Option) Option { return f(count, next) }
}

// VMs of a Store share a state of Transient, which is no parameter of the Store, until the last of them is closed.
func TestTransient(t *testing.T) {
	s := NewStore()
	defer s.Close()
	testutil.Do(t, s.SetParameters([]Learnable{{Name: "w", Value: tensor.New(tensor.WithBacking([]float64{1}))}}))
	open := func() (*VM, *G.Node) {
		n, option := countingGraph(t, "count")
		return testutil.Get[*VM](t)(NewVM(n.Graph(), OnAny(), In(s, n), In(s), option(Transient))), n
	}
	a, m := open()
	b, n := open()
	testutil.Do(t, a.RunAll())
	testutil.Do(t, G.Let(m, 7.0))
	if err := s.Push(m, G.NewVector(G.NewGraph(), G.Float64, G.WithName("w"), G.WithShape(2), G.WithInit(G.Ones()))); err == nil {
		t.Error("Push of a value of another shape than the Store's: got no error")
	}
	testutil.Do(t, s.Push(m, G.NewScalar(G.NewGraph(), G.Float64, G.WithName("other"), G.WithValue(1.0))))
	testutil.Do(t, b.RunAll())
	testutil.Do(t, a.RunAll()) // does not set it to 7 again
	testutil.Do(t, a.Pull(m))
	if got := m.Value().Data(); got != 9.0 {
		t.Errorf("two VMs count to %v in two runs after Push of 7, want 9", got)
	}
	testutil.Do(t, G.Let(n, 1.0))
	testutil.Do(t, s.Push(n))
	testutil.Do(t, a.RunAll())
	testutil.Do(t, b.RunAll())
	testutil.Do(t, a.Close())
	testutil.Do(t, b.Pull(n))
	if got := n.Value().Data(); got != 3.0 {
		t.Errorf("two VMs count to %v in three runs, want 3", got)
	}
	if all, types := bitsOf(t, s), testutil.Get[[]ParameterType](t)(s.Types()); len(all) != 1 || len(types) != 1 {
		t.Errorf("the Store has %v and %v, want w alone", all, types)
	}
	state, option := countingGraph(t, "count")
	if _, err := NewVM(state.Graph(), OnAny(), In(s), option(State)); err == nil || !strings.Contains(err.Error(), "node count: got Transient false, want true as in the Store") {
		t.Errorf("a State of that name: got the error %v", err)
	}
	testutil.Do(t, b.Close())
	c, n := open()
	defer c.Close()
	testutil.Do(t, c.RunAll())
	testutil.Do(t, c.Pull(n))
	if got := n.Value().Data(); got != 1.0 {
		t.Errorf("a VM opened after all others were closed counts to %v in a run, want 1", got)
	}
}

// TestStateOfPositions: VMs of a Store write rows of a cache at positions that they advance. A run whose position is outside of the cache is an error and changes nothing,
// whichever VM has set the position.
func TestStateOfPositions(t *testing.T) {
	type member struct {
		vm                    *VM
		rows, cache, position *G.Node
		count, advance        int
	}
	for name, newVM := range storeMachines(t) {
		failed, ran := 0, 0
		for seed := range uint64(16) {
			node, r := testutil.Get[*G.Node](t), rand.New(rand.NewPCG(seed, 31))
			batch, extent, every := 1+r.IntN(3), 1+r.IntN(9), 1+r.IntN(3)
			positionOf := func(p []int) *tensor.Dense { // one for all, or one for each index of axis 0
				if seed%2 == 0 {
					return tensor.New(tensor.FromScalar(p[0]))
				}
				return tensor.New(tensor.WithBacking(slices.Clone(p)))
			}
			s := NewStore()
			defer s.Close()
			var list []member
			for i := range 3 {
				g, m := G.NewGraph(), member{count: 1 + r.IntN(extent), advance: r.IntN(4) - 1}
				m.cache = G.NewMatrix(g, tensor.Float64, G.WithName("cache"), G.WithShape(batch, extent))
				m.rows = G.NewMatrix(g, tensor.Float64, G.WithName("rows"), G.WithShape(batch, m.count))
				m.position = G.NodeFromAny(g, positionOf(make([]int, batch)), G.WithName("position"))
				opts := []Option{State(m.cache, node(ops.Update(m.cache, m.rows, m.position, 1))), In(s), ReadEvery(every)}
				if i < 2 { // the last one leaves the position to the others
					opts = append(opts, State(m.position, node(ops.Map(fmt.Sprintf("a+(%d)", m.advance), m.position))))
				} else {
					m.advance = 0
				}
				m.vm = testutil.Get[*VM](t)(newVM(g, opts...))
				defer m.vm.Close()
				list = append(list, m)
			}
			cache, positions := make([]float64, batch*extent), make([]int, batch)
			for run := range 40 {
				m := list[r.IntN(len(list))]
				testutil.Do(t, m.vm.Pull(m.position))
				if r.IntN(6) == 0 {
					for b := range positions {
						if positions[b] = r.IntN(extent - m.count + 1); seed%2 == 0 {
							positions[b] = positions[0]
						}
					}
					testutil.Do(t, G.Let(m.position, positionOf(positions)))
				}
				rows := draw(r, tensor.Float64, batch, m.count)
				testutil.Do(t, G.Let(m.rows, rows))
				outside := slices.ContainsFunc(positions, func(p int) bool { return p < 0 || p > extent-m.count })
				if err := m.vm.RunAll(); (err != nil) != outside || outside && !strings.Contains(err.Error(), "got index") {
					t.Fatalf("%s, seed %d, run %d: %d rows of %d at %d give error %v", name, seed, run, m.count, extent, positions, err)
				}
				if outside {
					failed++
				} else {
					ran++
					for b, p := range positions {
						copy(cache[b*extent+p:], rows.Data().([]float64)[b*m.count:(b+1)*m.count])
						positions[b] += m.advance
					}
				}
				if r.IntN(3) == 0 {
					testutil.Do(t, m.vm.Pull())
					sameValue(t, "cache", m.cache.Value(), tensor.New(tensor.WithShape(batch, extent), tensor.WithBacking(slices.Clone(cache))))
					sameValue(t, "position", m.position.Value(), positionOf(positions))
				}
			}
		}
		if failed < 50 || ran < 50 {
			t.Errorf("%s: %d runs failed and %d did not, want 50 of each", name, failed, ran)
		}
	}
}
