package cudaops

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/internal/values"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// storeOnRanks makes VMs in a Store on ranks, a training one with the solver's state divided or not, one that evaluates on all ranks and one
// on the first, and compares them with VMs without Store.
func storeOnRanks(t *testing.T, on func(n int) (Option, int), single Option) {
	for _, more := range [][]Option{nil, {ShardSolver(), ClipNorm(0.1), EMA(0.9)}} {
		seed := testutil.Seed(t)
		r := rand.New(rand.NewPCG(seed, 0))
		ranks, n := on(2 + r.IntN(3))
		rows, widths := 1+r.IntN(4), []int{1 + r.IntN(9), 1 + r.IntN(70), 1 + r.IntN(5)}
		build := func(opts ...Option) (*shareNet, *VM) {
			net := newShare(t, tensor.Float64, rows, widths, seed)
			opts = append(opts, ranks, Seed(1), Split(net.x, net.y), Train(G.NewAdamSolver(), net.learnables[1:]...), Train(G.NewMomentum(), net.learnables[0]))
			return net, machine(t, net.g, slices.Concat(more, opts)...)
		}
		s := NewStore()
		defer s.Close()
		a, plain := build()
		b, stored := build(In(s))
		evaluate := func(seed uint64, opts ...Option) (*shareNet, *VM) {
			net := newShare(t, tensor.Float64, rows, widths, seed)
			return net, machine(t, net.g, append(opts, Inference(), In(s), Split(net.x, net.y), Outputs(net.loss))...)
		}
		c, all := evaluate(seed+1, ranks)
		d, first := evaluate(seed+2, single)
		for step := range 6 {
			if step == 3 { // a VM on ranks that changes parameters of the Store
				w := draw(r, tensor.Float64, widths[0], widths[1])
				testutil.Do(t, s.SetParameters([]Learnable{{Name: "w0", Value: w}}))
				testutil.Do(t, G.Let(a.learnables[0], w))
			}
			x, y := draw(r, tensor.Float64, n*rows, widths[0]), draw(r, tensor.Float64, n*rows, widths[2])
			a.feed(t, plain, x, y)
			b.feed(t, stored, x, y)
			testutil.Do(t, plain.RunAll())
			testutil.Do(t, stored.RunAll())
			c.feed(t, all, x, y)
			testutil.Do(t, all.RunAll())
			d.feed(t, first, testutil.Get[*tensor.Dense](t)(pickRows(x, 0, rows)), testutil.Get[*tensor.Dense](t)(pickRows(y, 0, rows)))
			testutil.Do(t, first.RunAll())
			whole := newShare(t, tensor.Float64, n*rows, widths, seed)
			testutil.Do(t, plain.Pull())
			for i, p := range whole.learnables {
				testutil.Do(t, G.Let(p, testutil.Get[G.Value](t)(values.Clone(a.learnables[i].Value()))))
			}
			one := machine(t, whole.g, single, Inference(), Outputs(whole.loss))
			whole.feed(t, one, x, y)
			testutil.Do(t, one.RunAll())
			if diff := maxDiff(t, c.loss.Value(), whole.loss.Value()); !(diff < 1e-12) {
				t.Errorf("step %d: the ranks evaluate to %v, want %v", step, c.loss.Value(), whole.loss.Value())
			}
			share := newShare(t, tensor.Float64, rows, widths, seed)
			for i, p := range share.learnables {
				testutil.Do(t, G.Let(p, whole.learnables[i].Value()))
			}
			firstOne := machine(t, share.g, single, Inference(), Outputs(share.loss))
			share.feed(t, firstOne, d.x.Value().(*tensor.Dense), d.y.Value().(*tensor.Dense))
			testutil.Do(t, firstOne.RunAll())
			if diff := maxDiff(t, d.loss.Value(), share.loss.Value()); diff != 0 {
				t.Errorf("step %d: the first rank evaluates to %v, want %v", step, d.loss.Value(), share.loss.Value())
			}
		}
		kept := nearSnapshot(t, "in a Store", stored, plain, 0)
		sameOnRanks(t, stored)
		testutil.Do(t, stored.RunAll())
		testutil.Do(t, stored.Restore(kept))
		nearSnapshot(t, "restored", stored, plain, 0)
		net := newShare(t, tensor.Float64, rows, widths, seed)
		if vm, err := NewVM(net.g, single, In(s), Train(G.NewVanillaSolver(), net.learnables...)); err == nil || !strings.Contains(err.Error(), "got a VM of one rank with Train or State, want one of ") {
			vm.Close()
			t.Errorf("a VM of one rank that trains: got error %v", err)
		}
	}
}

func TestStoreOnRanks(t *testing.T) { onRanks(t, storeOnRanks) }

// mixedStoreOnRanks runs VMs under Mixed, on all ranks and on the first alone, in a Store that changes between their runs: whoever reads it first after a change, all ranks compute with its parameters.
func mixedStoreOnRanks(t *testing.T, on func(n int) (Option, int), single Option) {
	seed := testutil.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	ranks, n := on(2)
	rows, widths := 8, []int{16, 24, 8}
	s := NewStore()
	defer s.Close()
	build := func(opts ...Option) (*shareNet, *VM) {
		net := newShare(t, tensor.Float32, rows, widths, seed)
		return net, machine(t, net.g, append(opts, Mixed(BF16), Split(net.x, net.y), Outputs(net.loss))...)
	}
	trains := func(net *shareNet) Option { return Train(G.NewAdamSolver(), net.learnables...) }
	net := newShare(t, tensor.Float32, rows, widths, seed)
	training := machine(t, net.g, ranks, In(s), Mixed(BF16), Split(net.x, net.y), Outputs(net.loss), trains(net))
	a, all := build(ranks, In(s), Inference())
	b, first := build(single, In(s), Inference())
	for step := range 24 {
		x, y := draw(r, tensor.Float32, n*rows, widths[0]), draw(r, tensor.Float32, n*rows, widths[2])
		switch r.IntN(4) {
		case 0:
			testutil.Do(t, s.SetParameters([]Learnable{{Name: "w0", Value: draw(r, tensor.Float32, widths[0], widths[1])}}))
		case 1:
			b.feed(t, first, testutil.Get[*tensor.Dense](t)(pickRows(x, 0, rows)), testutil.Get[*tensor.Dense](t)(pickRows(y, 0, rows)))
			testutil.Do(t, first.RunAll())
		case 2:
			net.feed(t, training, x, y)
			testutil.Do(t, training.RunAll())
		default:
			values := bitsOf(t, s)
			whole, plain := build(ranks, Inference())
			for _, p := range whole.learnables {
				testutil.Do(t, G.Let(p, values[p.Name()]))
			}
			for _, of := range []struct {
				*shareNet
				vm *VM
			}{{a, all}, {whole, plain}} {
				of.feed(t, of.vm, x, y)
				testutil.Do(t, of.vm.RunAll())
			}
			sameValue(t, fmt.Sprintf("step %d", step), a.loss.Value(), whole.loss.Value())
		}
	}
}

func TestMixedStoreOnRanks(t *testing.T) { onRanks(t, mixedStoreOnRanks) }

// rowsOf returns a copy of the rows from one to below another.
func pickRows(m *tensor.Dense, from, to int) (*tensor.Dense, error) {
	v, err := m.Slice(G.S(from, to))
	if err != nil {
		return nil, err
	}
	shape := m.Shape().Clone()
	shape[0] = to - from
	out := tensor.New(tensor.WithShape(shape...), tensor.Of(m.Dtype()))
	b, err := values.Bytes(v.(*tensor.Dense))
	if err != nil {
		return nil, err
	}
	return out, values.Set(out, b)
}

// A Store that VMs of one rank use first cannot be that of ranks.
func TestStoreOfOneRank(t *testing.T) {
	s := NewStore()
	defer s.Close()
	a, b := newShare(t, tensor.Float64, 1, []int{2, 2}, 1), newShare(t, tensor.Float64, 1, []int{2, 2}, 1)
	machine(t, a.g, OnHost(), In(s, a.learnables...), Inference())
	if vm, err := NewVM(b.g, OnHosts(2), In(s), Inference()); err == nil || !strings.Contains(err.Error(), "got a VM of 2 ranks, want one of one rank, as the Store's first VM") {
		vm.Close()
		t.Errorf("got error %v", err)
	}
}

// Processes train in a Store each; parameters that a process has set before are those of rank 0.
func TestStoreProcesses(t *testing.T) {
	if flag.NArg() == 0 {
		succeed(t, "TestStoreProcesses")
		return
	}
	seed := processSeed(t)
	rank := testutil.Get[int](t)(strconv.Atoi(os.Getenv("RANK")))
	widths := []int{3, 5, 2}
	s := NewStore()
	defer s.Close()
	n, whole := newShare(t, tensor.Float64, 2, widths, seed+uint64(rank)), newShare(t, tensor.Float64, 2, widths, seed) // other initial values on each rank
	testutil.Do(t, s.SetParameters([]Learnable{{Name: "w0", Value: n.learnables[0].Value()}}))
	vm := testutil.Get[*VM](t)(NewVM(n.g, OnHost(), Processes(), In(s), Split(n.x, n.y), ShardSolver(), Train(G.NewAdamSolver(), n.learnables...)))
	all := processes
	one := machine(t, whole.g, OnHosts(all), Split(whole.x, whole.y), Train(G.NewAdamSolver(), whole.learnables...))
	r := rand.New(rand.NewPCG(seed, 0))
	for range 4 {
		x, y := draw(r, tensor.Float64, 2*all, widths[0]), draw(r, tensor.Float64, 2*all, widths[2])
		whole.feed(t, one, x, y)
		testutil.Do(t, one.RunAll())
		n.feed(t, vm, testutil.Get[*tensor.Dense](t)(pickRows(x, 2*rank, 2*rank+2)), testutil.Get[*tensor.Dense](t)(pickRows(y, 2*rank, 2*rank+2)))
		testutil.Do(t, vm.RunAll())
	}
	got, want := testutil.Get[*Snapshot](t)(vm.Snapshot()), testutil.Get[*Snapshot](t)(one.Snapshot())
	got.Seed = want.Seed
	sameSnapshot(t, "processes", got, want)
	testutil.Do(t, vm.Close())
	fmt.Println(asOnOneHost)
}
