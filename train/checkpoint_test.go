package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/checkpoint/safetensors"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
)

// A training that is interrupted repeatedly, in any way, and continues from its checkpoint in another machine makes the
// same steps, bit for bit, as an uninterrupted one, with the state of Adam.
func TestCheckpoint(t *testing.T) {
	noLeaks(t)
	x, y := set(10)
	adam := func() (*line, *Data) {
		l := newLine(t, true)
		l.vm = testutil.Get[*cudaops.VM](t)(cudaops.NewVM(l.g, cudaops.OnHost(), cudaops.Train(G.NewAdamSolver(G.WithLearnRate(0.1)), l.learnables...)))
		t.Cleanup(func() { testutil.Do(t, l.vm.Close()) })
		return l, testutil.Get[*Data](t)(NewData(Columns{l.x: x, l.y: y})).Shuffle(4)
	}
	whole, data := adam()
	want := testutil.Get[History](t)(Run(t.Context(), whole.vm, whole.loss, data, Epochs(6), Weights(whole.weights)))

	path := filepath.Join(t.TempDir(), "line.safetensors")
	var losses []Loss
	at := 0
	for i, end := range []struct {
		opts []Option
		want string
	}{
		{[]Option{AfterStep(3, func(Step) error { return ErrStop })}, ""},
		{[]Option{Steps(4)}, ""},
		{[]Option{AfterEpoch(func(Epoch) error { return errors.New("enough") })}, "enough"},
		{[]Option{Steps(6)}, ""}, // is there already
		{[]Option{Prefetch(4), AfterStep(1, func(s Step) error {
			if s.Step == 11 {
				panic("killed") // between two checkpoints
			}
			return nil
		})}, "killed"},
		{nil, ""},
	} {
		l, data := adam()
		h, err := func() (h History, err error) {
			defer func() {
				if r := recover(); r != nil {
					err = fmt.Errorf("%v", r)
				}
			}()
			return Run(t.Context(), l.vm, l.loss, data, append(end.opts, Epochs(6), Weights(l.weights), Checkpoint(path, 2))...)
		}()
		if (err == nil) != (end.want == "") || err != nil && !strings.Contains(err.Error(), end.want) {
			t.Fatalf("%d: got error %v, want %q", i, err, end.want)
		}
		if end.want == "killed" { // after the checkpoint of step 10
			losses = append(losses, want.Losses[at:10]...)
			at = 10
			continue
		}
		if h.Begin.Step != at || h.End.Step != at+h.Steps {
			t.Errorf("%d: began at %v and ended at %v, want to begin at step %d", i, h.Begin, h.End, at)
		}
		losses = append(losses, h.Losses...)
		at = h.End.Step
		if at == want.End.Step {
			for k, n := range l.learnables {
				if n.Value().Data() != whole.learnables[k].Value().Data() {
					t.Errorf("%s is %v, want %v", n.Name(), n.Value(), whole.learnables[k].Value())
				}
			}
		}
	}
	if at != want.End.Step || !slices.Equal(losses, want.Losses) {
		t.Errorf("at step %d, losses %v, want %v", at, losses, want.Losses)
	}
}

// broken is a writer that fails in its n-th call.
type broken struct{ n int }

func (b *broken) Write(p []byte) (int, error) {
	if b.n--; b.n == 0 {
		return 0, errors.New("the disk is full")
	}
	return len(p), nil
}

// A training whose runs fail after their steps counts these: history and state agree, and it goes on from there
// without training a batch twice.
func TestFailureAfterAStep(t *testing.T) {
	noLeaks(t)
	for _, every := range []int{1, 3} {
		whole := newLine(t, false, cudaops.ReadEvery(every))
		want := testutil.Get[History](t)(Run(t.Context(), whole.vm, whole.loss, Seq(whole.batches(4, nil)), Epochs(3)))
		for n := 1; n <= 12; n++ {
			l := newLine(t, false, cudaops.ReadEvery(every), cudaops.Trace(&broken{n}))
			path := filepath.Join(t.TempDir(), "line.safetensors")
			source := Seq(l.batches(4, nil))
			h, err := Run(t.Context(), l.vm, l.loss, source, Epochs(3), Checkpoint(path, 100))
			wantError(t, err, fmt.Sprintf("step %d (", n))
			wantError(t, err, "the disk is full")
			s := testutil.Get[*cudaops.Snapshot](t)(l.vm.Snapshot())
			if h.Steps != n || h.End.Step != n || s.Steps != n || s.Runs != n {
				t.Fatalf("step %d fails: the history has %d steps until %v, the state %d steps and %d runs", n, h.Steps, h.End, s.Steps, s.Runs)
			}
			if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("step %d fails: there is a checkpoint: %v", n, err)
			}
			rest := testutil.Get[History](t)(Run(t.Context(), l.vm, l.loss, source, Epochs(3), From(h.End)))
			if losses := slices.Concat(h.Losses, rest.Losses); !slices.Equal(losses, want.Losses) || rest.End != want.End {
				t.Errorf("step %d fails: losses %v until %v, want %v until %v", n, losses, rest.End, want.Losses, want.End)
			}
			for k, n := range l.learnables {
				if n.Value().Data() != whole.learnables[k].Value().Data() {
					t.Errorf("%s is %v, want %v", n.Name(), n.Value(), whole.learnables[k].Value())
				}
			}
		}
	}
}

// A training that diverges ends with an error, and its last good checkpoint stays. The loss becomes infinite, a parameter or a
// moment becomes NaN before the loss does, or no run has results.
func TestDivergence(t *testing.T) {
	for name, c := range map[string]struct {
		y, x, rate float64 // of the second step
		every      int
		want       string
	}{
		"a loss of NaN":            {math.NaN(), 1, 0.1, 1, "step 2 (epoch 0, batch 2): the loss is NaN: cudaops.Watch(cudaops.NaN) names"},
		"an infinite loss":         {1e200, 1, 0.1, 1, "step 2 (epoch 0, batch 2): the loss is +Inf: cudaops.Watch(cudaops.Inf) names"},
		"an infinite parameter":    {1, 1, math.MaxFloat64, 1, "slope: element 0 is Inf, want finite numbers"},
		"an infinite moment":       {1e153, 100, 0.1, 1, "moment2/slope: element 0 is Inf, want finite numbers"},
		"a loss that nobody reads": {math.NaN(), 1, 0.1, 100, "slope: element 0 is NaN, want finite numbers"},
	} {
		l := newLine(t, false)
		adam := G.NewAdamSolver(G.WithLearnRate(0.1))
		vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(l.g, cudaops.OnHost(), cudaops.Train(adam, l.learnables...), cudaops.ReadEvery(c.every)))
		sick := l.batch(1, points)
		sick[l.y].Data().([]float64)[0], sick[l.x].Data().([]float64)[0] = c.y, c.x
		var saved []byte
		path := filepath.Join(t.TempDir(), "line.safetensors")
		source := Seq(l.batches(1, func(yield func(Batch, error) bool) { yield(sick, nil) }))
		_, err := Run(t.Context(), vm, l.loss, source, Checkpoint(path, 1), Prefetch(0), LearnRate(adam, func(step int) float64 {
			if step == 1 {
				saved = testutil.Get[[]byte](t)(os.ReadFile(path))
				return c.rate
			}
			return 0.1
		}))
		wantError(t, err, c.want)
		if strings.Count(err.Error(), "checkpoint") > 1 {
			t.Errorf("%s: saved twice: %v", name, err)
		}
		if now := testutil.Get[[]byte](t)(os.ReadFile(path)); len(saved) == 0 || !slices.Equal(now, saved) {
			t.Errorf("%s: the checkpoint changed", name)
		}
		testutil.Do(t, vm.Close())
	}
}

// States that must not be saved, and files that cannot be loaded.
func TestCheckpointErrors(t *testing.T) {
	l := newLine(t, false)
	path := filepath.Join(t.TempDir(), "line.safetensors")
	source := Seq(l.batches(3, nil))
	testutil.Get[History](t)(Run(t.Context(), l.vm, l.loss, source, Checkpoint(path, 10)))
	saved := testutil.Get[[]byte](t)(os.ReadFile(path))
	unchanged := func(what string) {
		t.Helper()
		if now := testutil.Get[[]byte](t)(os.ReadFile(path)); !slices.Equal(now, saved) {
			t.Errorf("%s changes the checkpoint", what)
		}
	}

	poison := l.batch(0, points)
	poison[l.y].Data().([]float64)[2] = math.NaN()
	sick := Seq(l.batches(1, func(yield func(Batch, error) bool) { yield(poison, nil) }))
	_, err := Run(t.Context(), l.vm, l.loss, sick, Epochs(2), Checkpoint(path, 10))
	wantError(t, err, "the loss is NaN")
	unchanged("a NaN")
	dying := newLine(t, false)
	_, err = Run(t.Context(), dying.vm, dying.loss, Seq(dying.batches(3, nil)), Epochs(3), Checkpoint(path, 10),
		AfterStep(5, func(Step) error { return dying.vm.Close() }))
	wantError(t, err, "step 6 (epoch 1, batch 2): cudaops: RunAll after Close")
	if strings.Contains(err.Error(), "checkpoint") {
		t.Errorf("a training whose step failed is saved: %v", err)
	}
	unchanged("a step that failed")
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Run(stopped, l.vm, l.loss, source, Epochs(2), Checkpoint(path, 10))
	wantError(t, err, "context canceled")
	unchanged("no step")

	for want, opts := range map[string][]Option{
		"From and Checkpoint": {Checkpoint(path, 1), From(Position{Step: 1})},
		"Checkpoint got 0":    {Checkpoint(path, 0)},
		"got no path":         {Checkpoint("", 1)},
	} {
		_, err := Run(t.Context(), l.vm, l.loss, source, opts...)
		wantError(t, err, want)
	}
	testutil.Do(t, os.WriteFile(path, saved[:len(saved)-3], 0o666))
	_, err = Run(t.Context(), l.vm, l.loss, source, Checkpoint(path, 1))
	wantError(t, err, path)
	testutil.Do(t, os.WriteFile(path, saved, 0o666))
	data := testutil.Get[*Data](t)(NewData(Columns{l.x: []float64{1, 2, 3, 4}, l.y: []float64{1, 2, 3, 4}}))
	ordered := testutil.Get[History](t)(Run(t.Context(), l.vm, l.loss, data, Epochs(9), Checkpoint(path, 1)))
	if ordered.Begin.Step != 3 {
		t.Errorf("began at %v, want the checkpoint's step 3", ordered.Begin)
	}
	_, err = Run(t.Context(), l.vm, l.loss, data.Shuffle(1), Epochs(9), Checkpoint(path, 1))
	wantError(t, err, "shuffled by seed 1")
}

// A training that goes on from a file of before files had checksums has a note in its history.
func TestCheckpointWithoutChecksum(t *testing.T) {
	l := newLine(t, false)
	path := filepath.Join(t.TempDir(), "line.safetensors")
	source := Seq(l.batches(3, nil))
	run := func(epochs int) History {
		return testutil.Get[History](t)(Run(t.Context(), l.vm, l.loss, source, Epochs(epochs), Checkpoint(path, 10)))
	}
	for epochs := range 2 {
		if h := run(epochs + 1); h.Note != "" || h.Steps != 3 {
			t.Errorf("got the note %q after %d steps, want none after 3", h.Note, h.Steps)
		}
	}
	b := testutil.Get[[]byte](t)(os.ReadFile(path))
	f := testutil.Get[*safetensors.File](t)(safetensors.New(bytes.NewReader(b), int64(len(b))))
	for i := range f.Tensors {
		x := &f.Tensors[i]
		x.Data = make([]byte, testutil.Get[int](t)(x.Bytes()))
		testutil.Do(t, x.Read(x.Data))
	}
	delete(f.Metadata, "stheno.sha256")
	f.Metadata["stheno"] = strings.Replace(f.Metadata["stheno"], `"version":2`, `"version":1`, 1)
	var old bytes.Buffer
	testutil.Do(t, safetensors.Write(&old, f.Metadata, f.Tensors))
	testutil.Do(t, os.WriteFile(path, old.Bytes(), 0o666))
	if h := run(3); !strings.Contains(h.Note, "no checksum") || h.Begin.Step != 6 || h.Steps != 3 {
		t.Errorf("got the note %q, from step %d on, %d steps, want one about the checksum, and 3 steps from 6 on", h.Note, h.Begin.Step, h.Steps)
	}
	if h := run(4); h.Note != "" {
		t.Errorf("got the note %q about a file that was written anew, want none", h.Note)
	}
}
