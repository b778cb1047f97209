package cudaops

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// onRanks runs a test on host backends and, where there are several GPUs, on these: on(n) is the option of n ranks, or of as many as there
// are, and their number; one is that of one rank. Without two GPUs STHENO_REQUIRE_GPUS=1 makes it fail.
func onRanks(t *testing.T, test func(t *testing.T, on func(n int) (Option, int), one Option)) {
	t.Run("hosts", func(t *testing.T) {
		test(t, func(n int) (Option, int) { return OnHosts(n), n }, OnHost())
	})
	t.Run("gpus", func(t *testing.T) {
		list, err := Devices()
		if err == nil && len(list) < 2 {
			err = fmt.Errorf("got %d GPU, want two", len(list))
		}
		testutil.SkipUnless(t, "GPUS", err)
		test(t, func(n int) (Option, int) {
			all := []int{0, 1, 2, 3, 4, 5, 6, 7}[:min(n, len(list))]
			return OnDevices(all...), len(all)
		}, OnDevice(0))
	})
}

// shareNet is a perceptron with a batch of rows; equal seeds give equal weights.
type shareNet struct {
	g          *G.ExprGraph
	x, y, loss *G.Node
	learnables G.Nodes
}

func newShare(t testing.TB, dt tensor.Dtype, rows int, widths []int, seed uint64) *shareNet {
	node := testutil.Get[*G.Node](t)
	r := rand.New(rand.NewPCG(seed, 2))
	n := &shareNet{g: G.NewGraph()}
	n.x = G.NewMatrix(n.g, dt, G.WithName("x"), G.WithShape(rows, widths[0]))
	n.y = G.NewMatrix(n.g, dt, G.WithName("y"), G.WithShape(rows, widths[len(widths)-1]))
	h := n.x
	for i := range widths[1:] {
		w := G.NewMatrix(n.g, dt, G.WithName(fmt.Sprint("w", i)), G.WithShape(widths[i], widths[i+1]), G.WithValue(draw(r, dt, widths[i], widths[i+1])))
		b := G.NewVector(n.g, dt, G.WithName(fmt.Sprint("b", i)), G.WithShape(widths[i+1]), G.WithValue(draw(r, dt, widths[i+1])))
		n.learnables = append(n.learnables, w, b)
		h = node(G.Tanh(node(G.BroadcastAdd(node(G.Mul(h, w)), b, nil, []byte{0}))))
	}
	n.loss = node(G.Mean(node(G.Square(node(G.Sub(h, n.y))))))
	testutil.Get[G.Nodes](t)(G.Grad(n.loss, n.learnables...))
	return n
}

func (n *shareNet) feed(t testing.TB, vm *VM, x, y *tensor.Dense) {
	testutil.Do(t, vm.Let(n.x, x))
	testutil.Do(t, vm.Let(n.y, y))
}

// maxDiff returns the greatest difference of two values, relative to the magnitude of the second.
func maxDiff(t testing.TB, got, want G.Value) (most float64) {
	t.Helper()
	a, b := testutil.Get[[]float64](t)(asFloats(got)), testutil.Get[[]float64](t)(asFloats(want))
	if len(a) != len(b) {
		t.Fatalf("got %d elements, want %d", len(a), len(b))
	}
	for i := range a {
		if d := math.Abs(a[i]-b[i]) / (1 + math.Abs(b[i])); !(d <= most) {
			most = d
		}
	}
	return most
}

// sameOnRanks fails unless the learnables and their moments, unless each rank has a part of these, are equal on all ranks, bit for bit.
func sameOnRanks(t testing.TB, vm *VM) {
	t.Helper()
	for _, l := range vm.trainer.graph.Trained.Learned {
		for k, state := range l.States {
			if state.Def.Op.(program.State).Sharded {
				continue
			}
			part := l.Part(k)
			first := make([]byte, part.Bytes())
			for r, rank := range vm.exec.Ranks() {
				m := make([]byte, len(first))
				if r == 0 {
					m = first
				}
				testutil.Do(t, rank.State(part, m))
				if !bytes.Equal(m, first) {
					t.Fatalf("rank %d: state %d of %s differs from that of rank 0", r, k, l.Node.Name())
				}
			}
		}
	}
}

// 100 steps on several ranks end with the parameters of as many on one at the whole batch, for every solver and option of a step; the
// losses agree too, and the states are equal on all ranks.
func TestRanks(t *testing.T) { onRanks(t, testRanks) }

func testRanks(t *testing.T, on func(n int) (Option, int), single Option) {
	options := map[string][]Option{"": nil, "ClipNorm and EMA": {ClipNorm(0.05), EMA(0.9)}, "StepEvery": {StepEvery(3)}}
	for name, solver := range trainingSolvers {
		for with, opts := range options { // in random order
			t.Run(name+" "+with, func(t *testing.T) {
				seed := testutil.Seed(t)
				r := rand.New(rand.NewPCG(seed, 0))
				ranks, n := on(2 + r.IntN(3))
				rows, widths := 1+r.IntN(6), []int{1 + r.IntN(9), 1 + r.IntN(20), 1 + r.IntN(5)}
				whole, share := newShare(t, tensor.Float64, n*rows, widths, seed), newShare(t, tensor.Float64, rows, widths, seed)
				one := machine(t, whole.g, append(opts, single, Train(solver(), whole.learnables...))...)
				all := machine(t, share.g, append(opts, ranks, Split(share.x, share.y), Train(solver(), share.learnables...))...)
				for step := range 100 {
					x, y := draw(r, tensor.Float64, n*rows, widths[0]), draw(r, tensor.Float64, n*rows, widths[2])
					whole.feed(t, one, x, y)
					share.feed(t, all, x, y)
					testutil.Do(t, one.RunAll())
					testutil.Do(t, all.RunAll())
					if d := maxDiff(t, share.loss.Value(), whole.loss.Value()); !(d < 1e-9) {
						t.Fatalf("step %d: loss %v, want %v", step, share.loss.Value(), whole.loss.Value())
					}
				}
				sameOnRanks(t, all)
				testutil.Do(t, one.Pull())
				defer func() { // the snapshot of ranks continues on one
					testutil.Do(t, one.Restore(testutil.Get[*Snapshot](t)(all.Snapshot())))
					testutil.Do(t, one.Pull())
					for i, p := range share.learnables {
						if d := maxDiff(t, whole.learnables[i].Value(), p.Value()); d != 0 {
							t.Errorf("%s: a snapshot restored differs by %g", p.Name(), d)
						}
					}
				}()
				testutil.Do(t, all.Pull())
				for i, p := range share.learnables {
					if d := maxDiff(t, p.Value(), whole.learnables[i].Value()); !(d < 1e-9) {
						t.Errorf("%s: differs by %g of one VM at the whole batch, %d ranks", p.Name(), d, n)
					}
				}
			})
			if strings.HasSuffix(t.Name(), "gpus") { // each VM connects the GPUs anew, a quarter of a second each
				break
			}
		}
	}
}

// A run with the same seed gives the same bits, with float32 and random numbers, also from a snapshot and with ReadEvery and without
// reading; ranks draw different random numbers.
func TestRanksRepeat(t *testing.T) { onRanks(t, testRanksRepeat) }

func testRanksRepeat(t *testing.T, on func(n int) (Option, int), _ Option) {
	seed := testutil.Seed(t)
	node := testutil.Get[*G.Node](t)
	ranks, n := on(3)
	train := func(every int, restart bool) (G.Value, []G.Value) {
		r := rand.New(rand.NewPCG(seed, 0))
		g := G.NewGraph()
		x := G.NewMatrix(g, tensor.Float32, G.WithName("x"), G.WithShape(4, 6))
		w := G.NewMatrix(g, tensor.Float32, G.WithName("w"), G.WithShape(6, 3), G.WithValue(draw(r, tensor.Float32, 6, 3)))
		kept := node(ops.Dropout(x, 0.5))
		gathered := node(ops.AllGather(kept, n))
		loss := node(G.Mean(node(G.Square(node(G.Mul(kept, w))))))
		testutil.Get[G.Nodes](t)(G.Grad(loss, w))
		vm := machine(t, g, ranks, Split(x), Seed(7), ReadEvery(every), Keep(gathered), Train(G.NewAdamSolver(), w))
		for step := range 12 {
			testutil.Do(t, vm.Let(x, tensor.Ones(tensor.Float32, 4*n, 6)))
			if restart && step == 5 {
				s := testutil.Get[*Snapshot](t)(vm.Snapshot())
				testutil.Do(t, vm.RunAll())
				testutil.Do(t, vm.Restore(s))
			}
			testutil.Do(t, vm.RunAll())
		}
		sameOnRanks(t, vm)
		testutil.Do(t, vm.Pull())
		return w.Value(), []G.Value{gathered.Value()}
	}
	want, kept := train(1, false)
	rows := testutil.Get[[]float64](t)(asFloats(kept[0]))
	if share := len(rows) / n; slices.Equal(rows[:share], rows[share:2*share]) {
		t.Errorf("ranks 0 and 1 have dropped the same elements: %v", rows)
	}
	for _, every := range []int{1, 4} {
		for _, restart := range []bool{false, true} {
			got, _ := train(every, restart)
			if !bytes.Equal(kernels.Bytes(got.Data().([]float32)), kernels.Bytes(want.Data().([]float32))) {
				t.Errorf("ReadEvery(%d), restart %v: got %v, want %v", every, restart, got, want)
			}
		}
	}
}

// Collectives compute their definitions on all ranks, for each element type; AllGather shows those of all ranks.
func TestRankCollectives(t *testing.T) { onRanks(t, testRankCollectives) }

func testRankCollectives(t *testing.T, on func(n int) (Option, int), _ Option) {
	ranks, n := on(4)
	node := testutil.Get[*G.Node](t)
	for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
		g := G.NewGraph()
		x := G.NewVector(g, dt, G.WithName("x"), G.WithShape(2*n))
		k := G.NewVector(g, dt, G.WithName("k"), G.WithShape(2*n))
		from := node(ops.BroadcastFrom(x, n-1))
		cost := node(G.Sum(node(G.HadamardProd(k, from))))
		testutil.Get[G.Nodes](t)(G.Grad(cost, x)) // a Reduce of k
		part := node(ops.ReduceScatter(x, n, ops.MeanOfRanks))
		all := []*G.Node{from, node(ops.AllReduce(x, ops.SumOfRanks)), x.Deriv()}
		for i, y := range all {
			all[i] = node(ops.AllGather(y, n))
		}
		all = append(all, node(ops.AllGather(part, n)))
		vm := machine(t, g, ranks, Split(x, k), Keep(all...))
		seed := testutil.Seed(t)
		r := rand.New(rand.NewPCG(seed, 0))
		xs, ks := make([]float64, 2*n*n), make([]float64, 2*n*n)
		for i := range xs {
			xs[i], ks[i] = float64(r.IntN(9)), float64(r.IntN(9))
		}
		var wantFrom, wantSum, wantDeriv, wantPart []float64
		for rank := range n {
			for i := range 2 * n {
				sum, derivative := 0.0, 0.0
				for s := range n {
					sum += xs[2*n*s+i]
					derivative += ks[2*n*s+i]
				}
				if rank < n-1 {
					derivative = 0
				}
				wantFrom, wantSum, wantDeriv = append(wantFrom, xs[2*n*(n-1)+i]), append(wantSum, sum), append(wantDeriv, derivative)
				if rank == 0 {
					wantPart = append(wantPart, sum/float64(n))
				}
			}
		}
		let := func(to *G.Node, x []float64) {
			v := tensor.New(tensor.WithShape(len(x)), tensor.Of(dt))
			for i, e := range x {
				testutil.Do(t, v.SetAt(map[tensor.Dtype]any{tensor.Float32: float32(e), tensor.Float64: e}[dt], i))
			}
			testutil.Do(t, vm.Let(to, v))
		}
		let(x, xs)
		let(k, ks)
		testutil.Do(t, vm.RunAll())
		for i, want := range [][]float64{wantFrom, wantSum, wantDeriv, wantPart} {
			got := testutil.Get[[]float64](t)(asFloats(all[i].Value()))
			for j := range want {
				if len(got) != len(want) || !(math.Abs(got[j]-want[j]) <= 1e-6*want[j]) {
					t.Fatalf("seed %d, %v, %d ranks, result %d: got %v, want %v", seed, dt, n, i, got, want)
				}
			}
		}
	}
}

// SumRanks makes the step of the sum of the ranks' losses. Resident inputs and pushed values are equal on all ranks.
func TestRanksSum(t *testing.T) {
	g := G.NewGraph()
	x := G.NewVector(g, tensor.Float64, G.WithName("x"), G.WithShape(2))
	k := G.NewVector(g, tensor.Float64, G.WithName("k"), G.WithShape(2), G.WithValue(tensor.New(tensor.WithBacking([]float64{2, 3}))))
	w := G.NewVector(g, tensor.Float64, G.WithName("w"), G.WithShape(2), G.WithValue(tensor.New(tensor.WithBacking([]float64{0, 0}))))
	loss := G.Must(G.Sum(G.Must(G.HadamardProd(k, G.Must(G.HadamardProd(x, w))))))
	testutil.Get[G.Nodes](t)(G.Grad(loss, w))
	vm := machine(t, g, OnHosts(3), Split(x), SumRanks(), Resident(k), Train(G.NewVanillaSolver(G.WithLearnRate(1)), w))
	testutil.Do(t, vm.Let(x, tensor.New(tensor.WithBacking([]float64{1, 2, 3, 4, 5, 6}))))
	testutil.Do(t, vm.RunAll()) // gradient k * (9, 12)
	w.Value().Data().([]float64)[0] = 1
	testutil.Do(t, vm.Push(w)) // w = (1, 0)
	testutil.Do(t, vm.RunAll())
	sameOnRanks(t, vm)
	testutil.Do(t, vm.Pull())
	if got := w.Value().Data().([]float64); !slices.Equal(got, []float64{1 - 18, -36}) {
		t.Errorf("got %v, want [-17 -36]", got)
	}
	if got := loss.Value().Data().(float64); got != 2*9 {
		t.Errorf("got loss %v, want 18", got)
	}
	if text := vm.Report().String(); !strings.Contains(text, "3 ranks of host backend") {
		t.Errorf("got report %s, want 3 ranks of host backend in it", text)
	}
}

// What ranks cannot do is an error that says so, and rows that do not fit change nothing.
func TestRanksErrors(t *testing.T) {
	n := newShare(t, tensor.Float32, 2, []int{3, 2}, 1)
	train := Train(G.NewVanillaSolver(), n.learnables...)
	for want, opts := range map[string][]Option{
		"got no ranks":         {OnHosts(0)},
		"OnDevices or OnHosts": {OnDevices()},
		"got device 1 twice":   {OnDevices(1, 0, 1)},
		"Split: got node w0":   {OnHosts(2), train, Split(n.learnables[0])},
		"Split: got node":      {OnHosts(2), train, Split(n.loss)},
	} {
		vm, err := NewVM(n.g, opts...)
		if err == nil {
			vm.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q in it", err, want)
		}
	}
	vm := machine(t, n.g, OnHosts(2), Split(n.x, n.y), train)
	r := rand.New(rand.NewPCG(1, 1))
	if err := vm.Let(n.x, draw(r, tensor.Float32, 5, 3)); err == nil || !strings.Contains(err.Error(), "got float32 of shape (5, 3), want float32 of shape (4, 3), the rows of 2 ranks") {
		t.Errorf("5 rows for 2 ranks of 2: got error %v", err)
	}
	testutil.Do(t, G.Let(n.x, draw(r, tensor.Float32, 2, 3)))
	if err := vm.RunAll(); err == nil || !strings.Contains(err.Error(), "input x has a value of float32 and shape (2, 3), want float32 and shape (4, 3)") {
		t.Errorf("2 rows for 2 ranks of 2: got error %v", err)
	}
	n.feed(t, vm, draw(r, tensor.Float32, 4, 3), draw(r, tensor.Float32, 4, 2))
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	cancel(stop)
	if err := vm.RunContext(ctx); !errors.Is(err, stop) {
		t.Errorf("a cancelled run: got error %v, want %v", err, stop)
	}
	testutil.Do(t, vm.RunAll())
	if vm.Runs() != 1 {
		t.Errorf("got %d runs, want 1", vm.Runs())
	}
}

// failingOp is an op of the host that fails for a rank whose rows are negative.
type failingOp struct{ G.Op }

// WriteHash distinguishes the op from the one that it wraps.
func (f failingOp) WriteHash(h hash.Hash) { h.Write([]byte("failing")); f.Op.WriteHash(h) }

func (f failingOp) Do(in ...G.Value) (G.Value, error) {
	x, err := asFloats(in[0])
	if err == nil && x[0] < 0 {
		err = errors.New("negative rows")
	}
	if err != nil {
		return nil, err
	}
	return f.Op.Do(in...)
}

// A rank that fails ends the run on all ranks with an error that names it; the VM goes on.
func TestRankFails(t *testing.T) {
	g := G.NewGraph()
	x := G.NewVector(g, tensor.Float64, G.WithName("x"), G.WithShape(2))
	y := G.Must(G.ApplyOp(failingOp{G.Must(G.Tanh(x)).Op()}, x))
	sum := G.Must(ops.AllReduce(G.Must(G.Square(y)), ops.SumOfRanks))
	vm := machine(t, g, OnHosts(3), Split(x), Keep(sum))
	for _, rank := range []int{0, 2, 1} {
		rows := []float64{1, 1, 1, 1, 1, 1}
		testutil.Do(t, vm.Let(x, tensor.New(tensor.WithBacking(slices.Clone(rows)))))
		testutil.Do(t, vm.RunAll())
		if got, want := sum.Value().Data().([]float64), 3*math.Pow(math.Tanh(1), 2); math.Abs(got[0]-want) > 1e-12 {
			t.Errorf("got %v, want %v", got, want)
		}
		rows[2*rank] = -1
		testutil.Do(t, vm.Let(x, tensor.New(tensor.WithBacking(rows))))
		if err := vm.RunAll(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("rank %d: ", rank)) || !strings.Contains(err.Error(), "negative rows") {
			t.Errorf("rank %d fails: got error %v", rank, err)
		}
	}
}

func asFloats(v G.Value) ([]float64, error) {
	switch x := v.Data().(type) {
	case []float64:
		return x, nil
	case float64:
		return []float64{x}, nil
	case []float32:
		list := make([]float64, len(x))
		for i := range x {
			list[i] = float64(x[i])
		}
		return list, nil
	}
	return nil, fmt.Errorf("got a %T", v.Data())
}
