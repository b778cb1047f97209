package train_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// carrying has all that a training keeps from step to step: dropout, running means, and with nn.Carry a hidden state.
func carrying(s *nn.Scope, x *G.Node, opts ...nn.LayerOption) *G.Node {
	h := nn.LSTM(s.At("rnn"), nn.Dropout(s, nn.Embedding(s.At("in"), x, 5, 6), 0.3), 7, opts...)
	h = nn.BatchNorm(s.At("norm"), s.Keep(ops.Reshape(h, -1, 7)))
	return s.Keep(ops.Reshape(nn.Linear(s.At("head"), h, 5), -1, 3, 5))
}

// A validation whose runs would change the hidden state of the training is refused. One for batches of another size has a state of its own, and changes no bit of the training.
func TestValidateCarried(t *testing.T) {
	parameters := func(rows int) (result string, err error) {
		store := cudaops.NewStore()
		defer store.Close()
		s, e := nn.New(G.NewGraph(), nn.In(store), nn.Seed(1)), nn.New(G.NewGraph(), nn.In(store), nn.Evaluation())
		x, y := s.Input("x", tensor.Int, 4, 3), s.Input("y", tensor.Int, 4, 3)
		loss := nn.CrossEntropy(s, carrying(s, x, nn.Carry()), y)
		testutil.Do(t, s.Grad(loss))
		vm := testutil.Get[*cudaops.VM](t)(s.NewVM(cudaops.OnHost(), cudaops.Seed(3), cudaops.Train(G.NewAdamSolver(), s.Parameters()...)))
		defer vm.Close()
		ids := make([]int, 16*3)
		for i := range ids {
			ids[i] = i * i % 5
		}
		opts := []train.Option{train.Epochs(3)}
		if rows > 0 {
			heldX, heldY := e.Input("x", tensor.Int, rows, 3), e.Input("y", tensor.Int, rows, 3)
			each := nn.CrossEntropy(e, carrying(e, heldX, nn.Carry()), heldY, ops.PerRow())
			test := testutil.Get[*cudaops.VM](t)(e.NewVM(cudaops.OnHost(), cudaops.Outputs(each)))
			defer test.Close()
			opts = append(opts, train.Validate(test, testutil.Get[*train.Data](t)(train.NewData(train.Columns{heldX: ids, heldY: ids})), train.Mean("loss", each)))
		}
		_, err = train.Run(t.Context(), vm, loss, testutil.Get[*train.Data](t)(train.NewData(train.Columns{x: ids, y: ids})), opts...)
		for _, p := range testutil.Get[[]cudaops.Learnable](t)(store.Parameters()) {
			result += fmt.Sprintln(p.Name, p.Value.Data())
		}
		return result, err
	}
	want := testutil.Get[string](t)(parameters(0))
	if got := testutil.Get[string](t)(parameters(2)); got != want {
		t.Error("a validation changes the training")
	}
	if _, err := parameters(4); err == nil || !strings.Contains(err.Error(), "Validate got a VM whose runs change the state rnn.") {
		t.Errorf("got the error %v of a shared state", err)
	}
}

// killed trains in a folder, where the training that was there continues, and panics after a number of steps, or below 0 at the end of an epoch of that number. It
// returns all that must not depend on how often a training was killed, or "" if it was.
func killed(t *testing.T, folder string, at int) (result string) {
	store := cudaops.NewStore()
	defer store.Close()
	s, e := nn.New(G.NewGraph(), nn.In(store), nn.Seed(1)), nn.New(G.NewGraph(), nn.In(store), nn.Evaluation())
	x, y := s.Input("x", tensor.Int, 4, 3), s.Input("y", tensor.Int, 4, 3)
	loss := nn.CrossEntropy(s, carrying(s, x, nn.Carry()), y)
	testutil.Do(t, s.Grad(loss))
	decaying, plain := G.NewAdamW(cudaops.WeightDecay(0.1)), G.NewAdamSolver()
	n := len(s.Parameters()) / 2
	vm := testutil.Get[*cudaops.VM](t)(s.NewVM(cudaops.OnHost(), cudaops.Seed(3), cudaops.Train(decaying, s.Parameters()[:n]...), cudaops.Train(plain, s.Parameters()[n:]...),
		cudaops.ClipNorm(1), cudaops.EMA(0.9), cudaops.StepEvery(2)))
	defer vm.Close()
	heldX, heldY := e.Input("x", tensor.Int, 5, 3), e.Input("y", tensor.Int, 5, 3)
	scores := carrying(e, heldX)
	each := nn.CrossEntropy(e, scores, heldY, ops.PerRow())
	test := testutil.Get[*cudaops.VM](t)(e.NewVM(cudaops.OnHost(), cudaops.Outputs(scores, each)))
	defer test.Close()
	var ids, following []int
	for i := range 22 * 3 {
		ids, following = append(ids, i*i%5), append(following, (i+1)*(i+1)%5)
	}
	data := testutil.Get[*train.Data](t)(train.NewData(train.Columns{x: ids, y: following}))
	held := testutil.Get[*train.Data](t)(train.NewData(train.Columns{heldX: ids[:33], heldY: ids[33:]}))
	var own struct{ Losses float64 }
	steps := 0
	var h train.History
	var err error
	func() {
		defer func() { _ = recover() }()
		h, err = train.Run(context.Background(), vm, loss, data.Shuffle(4), train.Epochs(6), train.LearnRate(decaying, train.Cosine(0.05, 5, 30)),
			train.Validate(test, held, train.Accuracy(scores, heldY), train.Mean("loss", each)), train.ReduceOnPlateau(plain, 0.05, 0.5, 0), train.EarlyStop(2),
			train.KeepBest(filepath.Join(folder, "best")), train.Checkpoint(filepath.Join(folder, "last"), 3, &own),
			train.AfterStep(1, func(s train.Step) error {
				own.Losses += s.Loss
				if steps++; steps == at {
					panic("killed")
				}
				return nil
			}),
			train.AfterEpoch(func(e train.Epoch) error {
				if e.Number == -at {
					panic("killed")
				}
				return nil
			}))
	}()
	if len(h.Epochs) == 0 {
		testutil.Do(t, err)
		return ""
	}
	testutil.Do(t, err)
	for i := range h.Epochs {
		h.Epochs[i].Time = 0
	}
	text := testutil.Get[[]byte](t)(json.Marshal([]any{h.Epochs, h.End, h.Best, h.Stopped, own}))
	for _, name := range []string{"last", "best"} {
		text = append(text, testutil.Get[[]byte](t)(os.ReadFile(filepath.Join(folder, name)))...)
	}
	return string(text)
}

// A training is killed after each of its steps and while epochs end. In the end its files, its history and the caller's value equal those of a training that was not killed. It
// has two solvers, a schedule, a plateau, gradients of two runs, averages, dropout, running means, and a state that runs carry on. A training that continues from a copy of the
// best epoch's file ends with the same, too.
func TestKilledAtEachStep(t *testing.T) {
	whole, copied := t.TempDir(), t.TempDir()
	want := killed(t, whole, 0)
	best := testutil.Get[[]byte](t)(os.ReadFile(filepath.Join(whole, "best")))
	testutil.Do(t, errors.Join(os.WriteFile(filepath.Join(copied, "last"), best, 0o666), os.WriteFile(filepath.Join(copied, "best"), best, 0o666)))
	if got := killed(t, copied, 0); got != want {
		t.Errorf("from a copy of the best epoch: got\n%.900s\nwant\n%.900s", got, want)
	}
	for at := -4; at <= 20; at++ {
		folder := t.TempDir()
		if at != 0 && killed(t, folder, at) != "" {
			t.Fatalf("the training was not killed at %d", at)
		}
		if got := killed(t, folder, 0); got != want {
			t.Errorf("killed at %d: got\n%.900s\nwant\n%.900s", at, got, want)
		}
	}
}
