package train

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
)

// Under LossScaling a batch whose gradients are not finite is a step without an effect: its loss is left out, the learnables are those of a training without the batch, and
// checkpoints are saved. A training of such batches alone ends with an error.
func TestRunWithLossScaling(t *testing.T) {
	const sick = 2 // the number of the batch
	run := func(path string, n int, with ...cudaops.Option) (*line, History, error) {
		l := newLine(t, false)
		vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(l.g, append(with, cudaops.OnHost(), cudaops.Seed(1), cudaops.Train(G.NewAdamSolver(G.WithLearnRate(0.1)), l.learnables...))...))
		defer func() { testutil.Do(t, vm.Close()) }()
		source := Seq(func(yield func(Batch, error) bool) {
			for k := range n {
				b := l.batch(k, points)
				if k == sick {
					b[l.y].Data().([]float64)[1] = math.Inf(1)
				}
				if (k != sick || len(with) > 0) && !yield(b, nil) {
					return
				}
			}
		})
		h, err := Run(t.Context(), vm, l.loss, source, Checkpoint(path, 1))
		return l, h, err
	}
	dir := t.TempDir()
	a, want, err := run(filepath.Join(dir, "plain"), 6)
	testutil.Do(t, err)
	b, got, err := run(filepath.Join(dir, "scaled"), 6, cudaops.LossScaling(cudaops.GradScaler{}))
	testutil.Do(t, err)
	if got.Steps != 6 || want.Steps != 5 || len(got.Losses) != 5 || got.Epochs[0].Loss != want.Epochs[0].Loss {
		t.Errorf("got %d steps with %d losses, of %v in the mean, want 6, 5 and %v", got.Steps, len(got.Losses), got.Epochs[0].Loss, want.Epochs[0].Loss)
	}
	for i, l := range got.Losses {
		if l.Loss != want.Losses[i].Loss || l.Step == sick+1 {
			t.Errorf("loss %d: got %v, want %v and none of step %d", i, l, want.Losses[i], sick+1)
		}
	}
	for i, n := range b.learnables {
		if n.Value().Data() != a.learnables[i].Value().Data() {
			t.Errorf("%s: got %v, want %v", n.Name(), n.Value(), a.learnables[i].Value())
		}
	}
	if file := testutil.Get[[]byte](t)(os.ReadFile(filepath.Join(dir, "scaled"))); !bytes.Contains(file, []byte(`\"scale\"`)) {
		t.Error("the checkpoint has no scale")
	}

	l := newLine(t, false)
	vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(l.g, cudaops.OnHost(), cudaops.Train(G.NewAdamSolver(), l.learnables...), cudaops.LossScaling(cudaops.GradScaler{})))
	defer func() { testutil.Do(t, vm.Close()) }()
	h, err := Run(t.Context(), vm, l.loss, Seq(func(yield func(Batch, error) bool) {
		for {
			b := l.batch(1, points)
			if b[l.y].Data().([]float64)[1] = math.NaN(); !yield(b, nil) {
				return
			}
		}
	}))
	wantError(t, err, "LossScaling: got 100 skipped steps in a row")
	if h.Steps != 100 || len(h.Losses) != 0 {
		t.Errorf("got %d steps with %d losses, want 100 and none", h.Steps, len(h.Losses))
	}
}
