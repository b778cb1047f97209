package cudaops

import (
	"bytes"
	"errors"
	"flag"
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
)

// States are those of the first rank on all, a Transient is each rank's own. A snapshot has the first rank's.
func TestStatesOnRanks(t *testing.T) { onRanks(t, testStatesOnRanks) }

func testStatesOnRanks(t *testing.T, on func(n int) (Option, int), _ Option) {
	r := testutil.Random(t)
	ranks, n := on(2 + r.IntN(3))
	width := 1 + r.IntN(300)
	g := G.NewGraph()
	x := G.NewVector(g, tensor.Float64, G.WithName("x"), G.WithShape(width))
	m := G.NewVector(g, tensor.Float64, G.WithName("m"), G.WithShape(width))
	swapped := G.NewVector(g, tensor.Float64, G.WithName("swapped"), G.WithShape(width))
	own := G.NewVector(g, tensor.Float64, G.WithName("own"), G.WithShape(width))
	runs := G.NewVector(g, tensor.Int32, G.WithName("runs"), G.WithShape(1))
	next := G.Must(ops.Map("0.5 * a + b", m, x))
	more := G.Must(ops.Map("a + 2 * b", own, x))
	count := G.Must(ops.Map("a + 1", runs))
	all := []*G.Node{G.Must(ops.AllGather(m, n)), G.Must(ops.AllGather(own, n))}
	vm := machine(t, g, ranks, Split(x), State(m, next), State(swapped, m), Transient(own, more), State(runs, count), Keep(all...))
	wantM, wantOwn, wantSwapped := make([]float64, width), make([][]float64, n), make([]float64, width)
	for rank := range n {
		wantOwn[rank] = make([]float64, width)
	}
	var kept *Snapshot
	for run := range 6 {
		rows := draw(r, tensor.Float64, n*width)
		testutil.Do(t, vm.Let(x, rows))
		testutil.Do(t, vm.RunAll())
		got := [][]float64{testutil.Get[[]float64](t)(asFloats(all[0].Value())), testutil.Get[[]float64](t)(asFloats(all[1].Value()))}
		for rank := range n {
			if !slices.Equal(got[0][rank*width:(rank+1)*width], wantM) {
				t.Fatalf("run %d, rank %d: got the state %v, want %v", run, rank, got[0], wantM)
			}
			if !slices.Equal(got[1][rank*width:(rank+1)*width], wantOwn[rank]) {
				t.Fatalf("run %d, rank %d: got the transient state %v, want %v", run, rank, got[1], wantOwn)
			}
		}
		copy(wantSwapped, wantM)
		for i := range width {
			wantM[i] = 0.5*wantM[i] + rows.Data().([]float64)[i]
			for rank := range n {
				wantOwn[rank][i] += 2 * rows.Data().([]float64)[rank*width+i]
			}
		}
		if run == 3 {
			kept = testutil.Get[*Snapshot](t)(vm.Snapshot())
		}
	}
	testutil.Do(t, vm.Pull())
	if got := runs.Value().Data().([]int32)[0]; got != 6 || !slices.Equal(m.Value().Data().([]float64), wantM) || !slices.Equal(swapped.Value().Data().([]float64), wantSwapped) {
		t.Errorf("got %d runs, %v and %v, want 6, %v and %v", got, m.Value(), swapped.Value(), wantM, wantSwapped)
	}
	testutil.Do(t, vm.Restore(kept))
	if got := runs.Value().Data().([]int32)[0]; got != 4 {
		t.Errorf("got %d runs after Restore, want 4", got)
	}
}

// Ranks whose states differ, because one has failed when others had changed theirs, want a snapshot.
func TestStatesApart(t *testing.T) {
	g := G.NewGraph()
	x := G.NewVector(g, tensor.Float64, G.WithName("x"), G.WithShape(2))
	own := G.NewVector(g, tensor.Float64, G.WithName("own"), G.WithShape(2))
	next := G.Must(ops.Map("a + b", own, x))
	y := G.Must(G.ApplyOp(failingOp{G.Must(G.Tanh(x)).Op()}, next)) // after the state has changed on other ranks, or before
	vm := machine(t, g, OnHosts(3), Split(x), Transient(own, next), Keep(y))
	run := func(rows ...float64) error {
		testutil.Do(t, vm.Let(x, tensor.New(tensor.WithBacking(rows))))
		return vm.RunAll()
	}
	testutil.Do(t, run(1, 1, 1, 1, 1, 1))
	s := testutil.Get[*Snapshot](t)(vm.Snapshot())
	if err := run(1, 1, -9, 1, 1, 1); err == nil || !strings.Contains(err.Error(), "rank 1: ") {
		t.Fatalf("got error %v, want one that names rank 1", err)
	}
	if err := run(1, 1, 1, 1, 1, 1); err == nil || !strings.Contains(err.Error(), "want a snapshot restored") {
		t.Fatalf("got error %v, want one that wants a snapshot", err)
	}
	testutil.Do(t, vm.Restore(s))
	testutil.Do(t, run(1, 1, 1, 1, 1, 1))
}

// Watch finds a number that one rank makes, names the rank and leaves all states as they were; the training goes on as one without it.
func TestWatchOnRanks(t *testing.T) {
	for _, shard := range []bool{false, true} {
		seed := testutil.Seed(t)
		r := rand.New(rand.NewPCG(seed, 0))
		n, rows, widths := 2+r.IntN(3), 2, []int{3, 8, 2}
		build := func(opts ...Option) (*shareNet, *VM) {
			if shard {
				opts = append(opts, ShardSolver())
			}
			net := newShare(t, tensor.Float64, rows, widths, seed)
			return net, machine(t, net.g, append(opts, OnHosts(n), Seed(1), Split(net.x, net.y), EMA(0.5), Train(G.NewAdamSolver(), net.learnables...))...)
		}
		a, plain := build()
		b, watched := build(Watch(NaN | Inf))
		for range 5 {
			x, y := draw(r, tensor.Float64, n*rows, widths[0]), draw(r, tensor.Float64, n*rows, widths[2])
			a.feed(t, plain, x, y)
			testutil.Do(t, plain.RunAll())
			bad, rank := draw(r, tensor.Float64, n*rows, widths[2]), r.IntN(n)
			bad.Data().([]float64)[rank*rows*widths[2]] = math.NaN()
			b.feed(t, watched, x, bad)
			var found *NotFinite
			if err := watched.RunAll(); !errors.As(err, &found) || found.Rank != rank || !strings.Contains(err.Error(), fmt.Sprintf("rank %d: training step ", rank)) || found.Input != b.y {
				t.Fatalf("got error %v, want a NaN of rank %d out of y", err, rank)
			}
			b.feed(t, watched, x, y)
			testutil.Do(t, watched.RunAll())
		}
		nearSnapshot(t, "watched", watched, plain, 0)
		sameOnRanks(t, watched)
	}
}

// Processes agree about what one of them has found.
func TestWatchProcesses(t *testing.T) {
	if flag.NArg() == 0 {
		succeed(t, "TestWatchProcesses")
		return
	}
	seed := processSeed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	widths := []int{3, 5, 2}
	n := newShare(t, tensor.Float64, 2, widths, seed)
	vm := testutil.Get[*VM](t)(NewVM(n.g, OnHost(), Processes(), Split(n.x, n.y), Watch(NaN), ShardSolver(), Train(G.NewAdamSolver(), n.learnables...)))
	rank, all := vm.Process()
	whole := newShare(t, tensor.Float64, 2, widths, seed)
	one := machine(t, whole.g, OnHosts(all), Split(whole.x, whole.y), Train(G.NewAdamSolver(), whole.learnables...))
	for step := range 4 {
		x, y := draw(r, tensor.Float64, 2*all, widths[0]), draw(r, tensor.Float64, 2*all, widths[2])
		whole.feed(t, one, x, y)
		testutil.Do(t, one.RunAll())
		own := func(v *tensor.Dense) *tensor.Dense {
			return testutil.Get[*tensor.Dense](t)(pickRows(v, 2*rank, 2*rank+2))
		}
		bad := own(y)
		if rank == step%all {
			bad.Data().([]float64)[0] = math.NaN()
		}
		n.feed(t, vm, own(x), bad)
		var found *NotFinite
		if err := vm.RunAll(); !errors.As(err, &found) || found.Rank != step%all || found.Node == nil || found.Run != step+1 {
			t.Fatalf("got error %v, want a NaN of rank %d", err, step%all)
		}
		n.feed(t, vm, own(x), own(y))
		testutil.Do(t, vm.RunAll())
	}
	want := testutil.Get[*Snapshot](t)(one.Snapshot())
	got := testutil.Get[*Snapshot](t)(vm.Snapshot())
	got.Seed = want.Seed
	sameSnapshot(t, "processes", got, want)
	testutil.Do(t, vm.Close())
	fmt.Println(asOnOneHost)
}

// On several ranks an overflow in the rows of one rank makes all ranks skip the step.
func TestRanksLossScaling(t *testing.T) { onRanks(t, testRanksLossScaling) }

func testRanksLossScaling(t *testing.T, on func(n int) (Option, int), _ Option) {
	seed := testutil.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	ranks, n := on(2 + r.IntN(2))
	share := newShare(t, tensor.Float32, 3, []int{5, 8, 2}, seed)
	opts := []Option{ranks, Split(share.x, share.y), Train(G.NewAdamSolver(), share.learnables...), EMA(0.9), LossScaling(GradScaler{Interval: 4})}
	if r.IntN(2) == 0 {
		opts = append(opts, ShardSolver())
	}
	vm := machine(t, share.g, opts...)
	skipped := 0
	for range 30 {
		x, y := draw(r, tensor.Float32, 3*n, 5), draw(r, tensor.Float32, 3*n, 2)
		hard := r.IntN(3) == 0
		if hard {
			x.Float32s()[r.IntN(x.Size())] = float32(math.Inf(1))
			skipped++
		}
		share.feed(t, vm, x, y)
		before := testutil.Get[LossScale](t)(vm.LossScale())
		testutil.Do(t, vm.RunAll())
		if s := testutil.Get[LossScale](t)(vm.LossScale()); (s.Skipped > 0) != hard || (s.Steps == before.Steps) != hard {
			t.Fatalf("%+v after %+v with an infinity: %v", s, before, hard)
		}
		sameOnRanks(t, vm)
		for _, v := range vm.trainer.graph.Trained.Scaling.States() {
			first := make([]byte, v.Bytes())
			testutil.Do(t, vm.exec.State(v, first))
			for k, rank := range vm.exec.Ranks() {
				m := make([]byte, len(first))
				if testutil.Do(t, rank.State(v, m)); !bytes.Equal(m, first) {
					t.Fatalf("rank %d: the scaler's state is %v, want %v", k, m, first)
				}
			}
		}
	}
}
