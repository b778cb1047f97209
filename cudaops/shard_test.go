package cudaops

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/internal/values"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// shardSolvers are trainingSolvers and those whose steps differ most from these.
func shardSolvers() map[string]func() G.Solver {
	list := map[string]func() G.Solver{
		"AdamW":                func() G.Solver { return G.NewAdamW(G.WithLearnRate(0.01), WeightDecay(0.1)) },
		"Barzilai and Borwein": func() G.Solver { return G.NewBarzilaiBorweinSolver(G.WithLearnRate(0.01)) },
	}
	for name, s := range trainingSolvers {
		list[name] = s
	}
	return list
}

// nearSnapshot ends the test unless the values of two states of one training differ by at most limit; 0 wants equal bits.
func nearSnapshot(t testing.TB, what string, got, want *VM, limit float64) *Snapshot {
	t.Helper()
	s, w := testutil.Get[*Snapshot](t)(got.Snapshot()), testutil.Get[*Snapshot](t)(want.Snapshot())
	if limit == 0 {
		sameSnapshot(t, what, s, w)
		return s
	}
	a, b := stateValues(s), stateValues(w)
	if len(a) != len(b) || s.Steps != w.Steps || s.Added != w.Added {
		t.Fatalf("%s: got %+v, want %+v", what, s, w)
	}
	for i := range a {
		if a[i].Dtype() == tensor.Int {
			continue
		}
		if d := maxDiff(t, a[i], b[i]); !(d <= limit) {
			t.Fatalf("%s: value %d is %v, want %v", what, i, a[i], b[i])
		}
	}
	return s
}

// Trainings whose solver's state is divided among 1 to 4 ranks have the parameters, moments and averages of those whose state is not, bit
// for bit on the host unless sums go over all learnables. Snapshots continue on any number of ranks, divided or not.
func TestShardSolver(t *testing.T) {
	onRanks(t, func(t *testing.T, on func(n int) (Option, int), single Option) {
		ranks, onGPUs := 0, strings.HasSuffix(t.Name(), "gpus")
		for name, solver := range shardSolvers() {
			modes := map[string][]Option{"": nil, "ClipNorm": {ClipNorm(0.05)}, "EMA, StepEvery": {EMA(0.9), StepEvery(3)}, "LossScaling": {LossScaling(GradScaler{Interval: 3}), StepEvery(2)}, "ClipNorm, EMA, StepEvery": {EMA(0.9), StepEvery(2), ClipNorm(0.05)}}
			for with, opts := range modes { // in random order
				if strings.HasPrefix(name, "Barzilai") && with == "LossScaling" { // an error
					continue
				}
				ranks = ranks%4 + 1
				limit := 0.0
				if strings.HasPrefix(with, "ClipNorm") || strings.HasPrefix(name, "Barzilai") || onGPUs {
					limit = 1e-9
				}
				t.Run(fmt.Sprint(name, " ", with), func(t *testing.T) { testShardSolver(t, on, single, ranks, limit, solver, opts) })
				if onGPUs || testing.Short() { // each VM connects the GPUs anew, a quarter of a second each
					break
				}
			}
		}
	})
}

func testShardSolver(t *testing.T, on func(n int) (Option, int), single Option, ranks int, limit float64, solver func() G.Solver, opts []Option) {
	seed := testutil.Seed(t)
	t.Logf("seed %d, %d ranks", seed, ranks)
	r := rand.New(rand.NewPCG(seed, 0))
	ranked, n := on(ranks)
	rows, widths, sets := 1+r.IntN(6), []int{1 + r.IntN(9), 1 + r.IntN(20), 1 + r.IntN(5)}, 1+r.IntN(2)
	build := func(rows int, on Option, more ...Option) (*shareNet, *VM) {
		net := newShare(t, tensor.Float64, rows, widths, seed)
		train := Train(solver(), net.learnables...)
		if sets == 2 {
			train = Options(Train(solver(), net.learnables[1:3]...), Train(solver(), net.learnables[3], net.learnables[0]))
		}
		return net, machine(t, net.g, slices.Concat(opts, more, []Option{on, Seed(seed), Split(net.x, net.y), train})...)
	}
	steps := func(n int, a, b *shareNet, vms ...*VM) {
		for range 7 {
			x, y := draw(r, tensor.Float64, n*rows, widths[0]), draw(r, tensor.Float64, n*rows, widths[2])
			a.feed(t, vms[0], x, y)
			b.feed(t, vms[1], x, y)
			testutil.Do(t, vms[0].RunAll())
			testutil.Do(t, vms[1].RunAll())
		}
	}
	a, plain := build(rows, ranked)
	b, shards := build(rows, ranked, ShardSolver())
	steps(n, a, b, plain, shards)
	s := nearSnapshot(t, "divided", shards, plain, limit)
	sameOnRanks(t, shards)
	testutil.Do(t, plain.Restore(s))
	nearSnapshot(t, "restored", plain, shards, 0)
	steps(n, a, b, plain, shards)
	s = nearSnapshot(t, "continued", shards, plain, limit)

	other, m := on(1 + r.IntN(4))
	a, one := build(m*rows, single)
	b, others := build(rows, other, ShardSolver())
	testutil.Do(t, one.Restore(s))
	testutil.Do(t, others.Restore(s))
	nearSnapshot(t, "on other ranks", others, shards, 0)
	steps(m, a, b, one, others)
	nearSnapshot(t, "other ranks and one", others, one, 1e-9)
	s = nearSnapshot(t, "one", one, one, 0)
	testutil.Do(t, shards.Restore(s))
	nearSnapshot(t, "from one", shards, one, 0)
	if s.Learnables[0].EMA == nil {
		return
	}
	for i, l := range testutil.Get[[]Learnable](t)(shards.EMA()) {
		if d := maxDiff(t, l.Value, s.Learnables[i].EMA); d != 0 {
			t.Errorf("EMA of %s differs by %g", l.Name, d)
		}
	}
}

// Each of n ranks has 1/n of the solver's state, up to the alignment, also of learnables that are reduced in several operations.
func TestShardSolverMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED, NOT TESTED: 16.8 MB of parameters on three ranks")
	}
	trained := func(n int, more ...Option) (Memory, G.Value) {
		net := newShare(t, tensor.Float32, 1, []int{2050, 2050, 3, 7}, 5) // w0 has 16.8 MB
		vm := machine(t, net.g, append(more, OnHosts(n), Split(net.x, net.y), Train(G.NewAdamSolver(), net.learnables...))...)
		r := rand.New(rand.NewPCG(1, 2))
		for range 2 {
			net.feed(t, vm, draw(r, tensor.Float32, n, 2050), draw(r, tensor.Float32, n, 7))
			testutil.Do(t, vm.RunAll())
		}
		sameOnRanks(t, vm)
		testutil.Do(t, vm.Pull())
		defer vm.Store().Close()
		if text, want := vm.Report().Solver, fmt.Sprintf("state divided among %d ranks", n); strings.Contains(text, want) != (len(more) > 0) {
			t.Errorf("got the report %q, want %q in it: %v", text, want, len(more) > 0)
		}
		if of := vm.trainer.graph.Trained.Learned; len(more) > 0 && of[0].States[0] == of[3].States[0] {
			t.Errorf("got one operation for 16.8 MB and the rest, want several")
		}
		return vm.Memory(), testutil.Get[G.Value](t)(values.Clone(net.learnables[2].Value()))
	}
	whole, want := trained(3)
	for _, c := range []struct {
		ranks int64
		more  []Option
	}{{3, []Option{ShardSolver()}}, {3, []Option{ShardSolver(), In(NewStore())}}, {2, []Option{ShardSolver()}}} {
		used, got := trained(int(c.ranks), c.more...)
		if d := maxDiff(t, got, want); d != 0 && c.ranks == 3 {
			t.Errorf("%d ranks: parameters differ by %g", c.ranks, d)
		}
		if least := whole.Solver / c.ranks; used.Solver < least || used.Solver > least+8<<10 {
			t.Errorf("%d ranks: got %d bytes of solver state, want 1/%d of %d", c.ranks, used.Solver, c.ranks, whole.Solver)
		}
		t.Logf("%d ranks, undivided\n%vdivided\n%v", c.ranks, whole, used)
	}
}
