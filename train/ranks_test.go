package train

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Trainings of shuffled data, on the host and on the device, end on several ranks as on one at the whole batch, with equal losses and positions.
func TestRunOnRanks(t *testing.T) {
	r := testutil.Random(t)
	ranks, rows, count := 2+r.IntN(3), 1+r.IntN(4), 30+r.IntN(30)
	xs, ys := tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(count, 2)), tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(count, 1))
	for i := range count {
		a, b := r.NormFloat64(), r.NormFloat64()
		xs.Data().([]float64)[2*i], xs.Data().([]float64)[2*i+1] = a, b
		ys.Data().([]float64)[i] = 2*a - b + 0.1*r.NormFloat64()
	}
	for _, onDevice := range []bool{false, true} {
		train := func(ranks, rows, epochs int) (History, []float64) {
			node := testutil.Get[*G.Node](t)
			g := G.NewGraph()
			var source Source
			var x, y *G.Node
			var option cudaops.Option
			if onDevice {
				d := testutil.Get[*DeviceData](t)(NewDeviceData(g, rows, xs, ys))
				x, y, source, option = d.Nodes[0], d.Nodes[1], d.Shuffle(3), d.Option()
			} else {
				x = G.NewMatrix(g, tensor.Float64, G.WithName("x"), G.WithShape(rows, 2))
				y = G.NewMatrix(g, tensor.Float64, G.WithName("y"), G.WithShape(rows, 1))
				source, option = testutil.Get[*Data](t)(NewData(Columns{x: xs, y: ys})).Shuffle(3), cudaops.Split(x, y)
			}
			w := G.NewMatrix(g, tensor.Float64, G.WithName("w"), G.WithShape(2, 1), G.WithValue(tensor.New(tensor.WithShape(2, 1), tensor.WithBacking([]float64{0.5, 0.5}))))
			loss := node(G.Mean(node(G.Square(node(G.Sub(node(G.Mul(x, w)), y))))))
			testutil.Get[G.Nodes](t)(G.Grad(loss, w))
			vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(g, cudaops.OnHosts(ranks), option, cudaops.Train(G.NewMomentum(G.WithLearnRate(0.05)), w)))
			defer func() { testutil.Do(t, vm.Close()) }()
			h := testutil.Get[History](t)(Run(t.Context(), vm, loss, source, Epochs(epochs)))
			return h, append([]float64{}, w.Value().Data().([]float64)...)
		}
		same := func(what string, h, want History, got, w []float64) {
			t.Helper()
			for i := range w {
				if !(math.Abs(got[i]-w[i]) < 1e-9) {
					t.Errorf("%s, data on the device %v: got weights %v, want %v", what, onDevice, got, w)
				}
			}
			if h.End != want.End || h.Left != want.Left {
				t.Errorf("%s, data on the device %v: ends at %v with %d rows left, want %v with %d", what, onDevice, h.End, h.Left, want.End, want.Left)
			}
		}
		want, w := train(1, ranks*rows, 4)
		h, got := train(ranks, rows, 4)
		same("ranks", h, want, got, w)
		for i, l := range want.Losses {
			if len(h.Losses) != len(want.Losses) || !(math.Abs(h.Losses[i].Loss-l.Loss) < 1e-9) {
				t.Fatalf("loss %d: got %v, want %v", i, h.Losses, want.Losses)
			}
		}
	}
}

// Data whose inputs are not split, and weights, are errors on several ranks.
func TestRanksNeedSplit(t *testing.T) {
	l := newLine(t, true, cudaops.OnHosts(2))
	_, err := Run(t.Context(), l.vm, l.loss, testutil.Get[*Data](t)(NewData(Columns{l.x: make([]float64, 16)})))
	if err == nil || !strings.Contains(err.Error(), "input x: want it in cudaops.Split for 2 ranks") {
		t.Errorf("inputs that are not split: got error %v", err)
	}
	if _, err := Run(t.Context(), l.vm, l.loss, Seq(nil), Weights(l.weights)); err == nil || !strings.Contains(err.Error(), "Weights and a VM of 2 ranks") {
		t.Errorf("weights: got error %v", err)
	}
}

// The shares that processes take of a shuffled data set are, together and in their order, the batches of one process.
func TestShares(t *testing.T) {
	random := testutil.Random(t)
	for range 50 {
		count, batch, all := 1+random.IntN(60), 1+random.IntN(5), 1+random.IntN(4)
		one := rows{count: count, batch: batch * all, shuffled: true, seed: random.Uint64()}
		epoch, from := random.IntN(3), random.IntN(3)
		batches := func(r rows) (list [][]int) {
			for b, err := range r.chunks(epoch, from, func(order []int) (Batch, error) { list = append(list, order); return nil, nil }) {
				if b != nil || err != nil {
					t.Fatal(b, err)
				}
			}
			return list
		}
		want := batches(one)
		if n := len(want); n > 0 && len(want[n-1]) < one.batch {
			want = want[:n-1]
		}
		got := make([][]int, len(want))
		for first := 0; first < all; {
			ranks := 1 + random.IntN(all-first)
			share := rows{count: count, batch: batch, shuffled: true, seed: one.seed}
			if all > 1 {
				share.onRanks(ranks, first, all)
			}
			if share.Order() != one.Order() || share.batches(false) != one.batches(false) {
				t.Fatalf("got order %s, want %s", share.Order(), one.Order())
			}
			for i, b := range batches(share) {
				if i < len(got) {
					got[i] = append(got[i], b...)
				} else if len(b) == share.batch {
					t.Fatalf("got %d full batches, want %d", i+1, len(want))
				}
			}
			first += ranks
		}
		if !slices.EqualFunc(got, want, slices.Equal) {
			t.Fatalf("%d rows in batches of %d for %d ranks: got %v, want %v", count, batch, all, got, want)
		}
	}
}
