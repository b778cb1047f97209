package train

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Trainings of shuffled data, on the host and on the device, end on several ranks as on one at the whole batch, with equal losses and positions.
func TestRunOnRanks(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
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
