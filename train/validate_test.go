package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/checkpoint"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
)

// job is a training with a validation: the loss falls, then rises as the learning rate grows too much.
type job struct {
	*line
	store   *cudaops.Store
	data    *Data
	test    *cudaops.VM
	held    *Data
	metrics []Metric
	options []Option
}

func newJob(t testing.TB) *job {
	j := &job{store: cudaops.NewStore()}
	t.Cleanup(func() { testutil.Do(t, j.store.Close()) })
	j.line = newLine(t, false, cudaops.In(j.store))
	testutil.Do(t, j.vm.Close())
	j.solver = G.NewAdamSolver()
	var err error
	j.vm, err = cudaops.NewVM(j.g, cudaops.OnHost(), cudaops.Seed(1), cudaops.In(j.store), cudaops.Train(j.solver, j.learnables...))
	testutil.Do(t, err)
	t.Cleanup(func() { testutil.Do(t, j.vm.Close()) })
	x, y := batch(0, 4*points)
	j.data = testutil.Get[*Data](t)(NewData(Columns{j.x: x, j.y: y})).Shuffle(1)

	held := newLine(t, false)
	square := testutil.Get[*G.Node](t)(G.Square(testutil.Get[*G.Node](t)(G.Sub(testutil.Get[*G.Node](t)(G.Add(testutil.Get[*G.Node](t)(G.Mul(held.x, held.learnables[0])), held.learnables[1])), held.y))))
	j.test, err = cudaops.NewVM(held.g, cudaops.OnHost(), cudaops.In(j.store), cudaops.Inference(), cudaops.Outputs(square))
	testutil.Do(t, err)
	t.Cleanup(func() { testutil.Do(t, j.test.Close()) })
	x, y = batch(1, 2*points+1)
	j.held = testutil.Get[*Data](t)(NewData(Columns{held.x: x, held.y: y}))
	j.metrics = []Metric{Mean("mse", square), named("root", Metric{Nodes: G.Nodes{square}, Sums: Mean("", square).Sums, Value: func(s []float64) float64 { return math.Sqrt(ratio(s)) }})}
	rate := StepDecay(0.02, 1.12, 4)
	j.options = []Option{Epochs(200), LearnRate(j.solver, rate), Validate(j.test, j.held, j.metrics...), EarlyStop(6)}
	return j
}

// mse is the mean squared error of the held-out rows, by hand.
func mse(slope, offset float64) (sum float64) {
	x, y := batch(1, 2*points+1)
	for i := range x {
		d := slope*x[i] + offset - y[i]
		sum += d * d / float64(len(x))
	}
	return sum
}

// A training with a validation stops when the score no longer improves, and the file of the best epoch has its parameters.
func TestValidate(t *testing.T) {
	noLeaks(t)
	j := newJob(t)
	path := filepath.Join(t.TempDir(), "best.safetensors")
	type learnt struct{ slope, offset float64 }
	var by []learnt
	var log strings.Builder
	h, err := Run(t.Context(), j.vm, j.loss, j.data, append(j.options, KeepBest(path), Progress(&log), AfterEpoch(func(e Epoch) error {
		testutil.Do(t, j.vm.Pull())
		at := learnt{j.learnables[0].Value().Data().(float64), j.learnables[1].Value().Data().(float64)}
		by = append(by, at)
		if want := mse(at.slope, at.offset); !(math.Abs(e.Scores["mse"]-want) <= 1e-12*(1+want)) || e.Scores["root"] != math.Sqrt(e.Scores["mse"]) {
			t.Errorf("epoch %d: scores %v, want %v", e.Number, e.Scores, want)
		}
		return nil
	}))...)
	testutil.Do(t, err)
	best := 0
	for i, e := range h.Epochs {
		if e.Scores["mse"] < h.Epochs[best].Scores["mse"] {
			best = i
		}
	}
	if !h.Stopped || h.Best != best+1 || len(h.Epochs) != h.Best+6 || h.Best < 2 {
		t.Errorf("stopped: %v after %d epochs, the best %d, want %d and six more", h.Stopped, len(h.Epochs), h.Best, best+1)
	}
	if want := fmt.Sprintf("mse %.4g  root ", h.Epochs[len(h.Epochs)-1].Scores["mse"]); !strings.Contains(log.String(), want) {
		t.Errorf("the progress is %q, want %q in it", log.String(), want)
	}
	other := cudaops.NewStore()
	defer other.Close()
	testutil.Get[checkpoint.Loaded](t)(checkpoint.LoadStore(path, other))
	list := testutil.Get[[]cudaops.Learnable](t)(other.Parameters())
	if len(list) != 2 || list[0].Value.Data() != by[best].offset || list[1].Value.Data() != by[best].slope {
		t.Errorf("the best file has %v, want %v", list, by[best])
	}
}

// A training whose context ends, or whose metric fails, during a validation evaluates that epoch when it is run again, and ends as if nothing had
// happened.
func TestValidateAgain(t *testing.T) {
	noLeaks(t)
	whole := t.TempDir()
	h, own := newJob(t).run(t, whole)
	want, folder := result(t, whole, h, own), t.TempDir()
	for k, fails := range []bool{true, false} {
		j := newJob(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		breaking, batches := j.metrics[0], 0
		breaking.Sums = func(v []G.Value) ([]float64, error) {
			if batches++; batches == 7 { // of three an epoch
				if fails {
					return nil, errors.New("enough")
				}
				cancel(errors.New("enough"))
			}
			return j.metrics[0].Sums(v)
		}
		j.options = append(j.options[:2:2], Validate(j.test, j.held, breaking, j.metrics[1]), EarlyStop(6))
		var own tally
		h, err := Run(ctx, j.vm, j.loss, j.data, j.jobOptions(folder, &own)...)
		wantError(t, err, "enough")
		if len(h.Epochs) != 2*(k+1) {
			t.Errorf("%d epochs before the error, want %d", len(h.Epochs), 2*(k+1))
		}
		cancel(nil)
	}
	h, own = newJob(t).run(t, folder)
	if got := result(t, folder, h, own); got != want {
		t.Errorf("got\n%.2000s\nwant\n%.2000s", got, want)
	}
}

// Losses are those of the training's runs, though a validation of the same graph sets the same node.
func TestLossOfTheSameGraph(t *testing.T) {
	store := cudaops.NewStore()
	defer store.Close()
	l := newLine(t, false, cudaops.In(store), cudaops.ReadEvery(3))
	test, err := cudaops.NewVM(l.g, cudaops.OnHost(), cudaops.In(store), cudaops.Inference())
	testutil.Do(t, err)
	defer test.Close()
	source := Seq(l.batches(4, nil))
	h := testutil.Get[History](t)(Run(t.Context(), l.vm, l.loss, source, Epochs(3), Validate(test, source, Mean("loss", l.loss))))
	var at []int
	for _, loss := range h.Losses {
		at = append(at, loss.Step)
	}
	if !slices.Equal(at, []int{3, 6, 9, 12}) || len(h.Epochs) != 3 || h.Best != 3 {
		t.Errorf("losses of the steps %v in %d epochs, the best %d, want 3, 6, 9 and 12 in 3", at, len(h.Epochs), h.Best)
	}
}

// Ties and NaN do not count as better, in either direction.
func TestBest(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		lower         bool
		scores        []float64
		epoch, behind int
	}{
		{true, []float64{3, 2, 2, nan, math.Inf(-1), 5}, 5, 1},
		{false, []float64{nan, nan, -1, -1, nan}, 3, 2},
		{false, []float64{nan, nan}, 0, 2},
		{true, []float64{math.Inf(1), 7, nan, 8}, 2, 2},
	} {
		var b best
		for i, x := range c.scores {
			b.update(i+1, Metric{Name: "m", Min: c.lower}, x)
		}
		text := testutil.Get[[]byte](t)(json.Marshal(b))
		var back best
		testutil.Do(t, json.Unmarshal(text, &back))
		if b.Epoch != c.epoch || b.Behind != c.behind || back != b {
			t.Errorf("%v: got %+v, and %+v from %s, want epoch %d and %d behind", c.scores, b, back, text, c.epoch, c.behind)
		}
	}
}

// What Validate, EarlyStop, KeepBest and Checkpoint with a value refuse.
func TestValidateErrors(t *testing.T) {
	j, path := newJob(t), filepath.Join(t.TempDir(), "job")
	valid := Validate(j.test, j.held, j.metrics...)
	alone := newPassing(t, rand.New(rand.NewPCG(1, 2)), 4, 10, 3)
	relative := testutil.Get[string](t)(filepath.Rel(testutil.Get[string](t)(os.Getwd()), path))
	for want, opts := range map[string][]Option{
		"EarlyStop got 0, want a number above 0":             {valid, EarlyStop(0)},
		"got EarlyStop without Validate":                     {EarlyStop(1)},
		"got KeepBest without Validate":                      {KeepBest(path)},
		"KeepBest got no path":                               {valid, KeepBest("")},
		"for KeepBest and Checkpoint, want two files":        {valid, KeepBest(path), Checkpoint(filepath.Dir(path)+"/./job", 1)},
		"want one in a folder that is there":                 {Checkpoint(filepath.Join(path, "not", "there"), 1000)},
		"want one in a folder that":                          {valid, KeepBest(filepath.Join(path, "not", "there"))},
		"and Checkpoint, want two files":                     {valid, KeepBest(relative), Checkpoint(path, 1)},
		"got the option Validate twice":                      {valid, valid},
		"Validate: got no metric":                            {Validate(j.test, j.held)},
		"Validate: got a VM that makes steps":                {Validate(j.vm, j.held, j.metrics...)},
		"want the option cudaops.In of the same Store":       {Validate(alone.vm, alone.data, Mean("mean", alone.loss))},
		"Validate: batch 0: metric mse: oh":                  {Validate(j.test, j.held, Metric{Name: "mse", Nodes: j.metrics[0].Nodes, Value: ratio, Sums: func([]G.Value) ([]float64, error) { return nil, errors.New("oh") }})},
		"Checkpoint got 1 values, one of them a int":         {Checkpoint(path, 1, 7)},
		"Checkpoint got 1 values, one of them a *int":        {Checkpoint(path, 1, (*int)(nil))},
		"Checkpoint got 2 values":                            {Checkpoint(path, 1, new(int), new(int))},
		"the value of Checkpoint: json: unsupported type":    {Checkpoint(path, 1, new(chan int))},
		"LearnRate: got the rate NaN, want a finite number":  {LearnRate(j.solver, StepDecay(1, 0.5, 0))},
		"LearnRate: got the rate +Inf, want a finite number": {LearnRate(j.solver, Linear(math.Inf(1), 0, 10))},
	} {
		_, err := Run(t.Context(), j.vm, j.loss, j.data, opts...)
		wantError(t, err, want)
	}
	testutil.Get[History](t)(Run(t.Context(), j.vm, j.loss, j.data, valid, Checkpoint(path, 1)))
	_, err := Run(t.Context(), j.vm, j.loss, j.data, Validate(j.test, j.held, j.metrics[1]), Checkpoint(path, 1))
	wantError(t, err, `the metric "mse", Validate has "root" first`)
	testutil.Do(t, os.Remove(path))
	text := "seven"
	testutil.Get[History](t)(Run(t.Context(), j.vm, j.loss, j.data, Checkpoint(path, 1, &text)))
	number := 5
	_, err = Run(t.Context(), j.vm, j.loss, j.data, Checkpoint(path, 1, &number))
	wantError(t, err, "the value \"seven\": json: cannot unmarshal")
	if number != 5 {
		t.Errorf("the value is %d after an error, want 5", number)
	}
}

// childFolder is the variable of the environment that makes the test's program train in that folder, and nothing else.
const childFolder = "STHENO_TRAIN_CHILD"

// tally is the caller's value.
type tally struct {
	Steps  int
	Losses map[string]float64
}

// run trains in a folder, and goes on if there is a checkpoint.
func (j *job) run(t *testing.T, folder string) (History, tally) {
	var own tally
	h, err := Run(t.Context(), j.vm, j.loss, j.data, j.jobOptions(folder, &own)...)
	testutil.Do(t, err)
	return h, own
}

// jobOptions keeps the training in a folder, and a tally.
func (j *job) jobOptions(folder string, own *tally) []Option {
	return append(j.options, Checkpoint(filepath.Join(folder, "last"), 3, own), KeepBest(filepath.Join(folder, "best")),
		AfterStep(1, func(Step) error { own.Steps++; return nil }),
		AfterEpoch(func(e Epoch) error {
			if own.Losses == nil {
				own.Losses = map[string]float64{}
			}
			own.Losses[fmt.Sprint(e.Number)] = e.Loss
			return nil
		}))
}

// result prints everything that must not depend on how often training was killed.
func result(t *testing.T, folder string, h History, own tally) string {
	for i := range h.Epochs {
		h.Epochs[i].Time = 0
	}
	files := ""
	for _, name := range []string{"last", "best"} {
		files += fmt.Sprintf(" %x", testutil.Get[[]byte](t)(os.ReadFile(filepath.Join(folder, name))))
	}
	text := testutil.Get[[]byte](t)(json.Marshal([]any{h.Epochs, h.End, h.Best, h.Stopped, own}))
	return string(text) + files
}

// TestChild is the child.
func TestChild(t *testing.T) {
	folder := os.Getenv(childFolder)
	if folder == "" {
		return // the test is TestKill
	}
	h, own := newJob(t).run(t, folder)
	testutil.Do(t, os.WriteFile(filepath.Join(folder, "result"), []byte(result(t, folder, h, own)), 0o666))
}

// A training that is killed at any time, again and again, ends with the files, the history and the caller's value of one that was
// not. One that EarlyStop ended returns at once when it is run again.
func TestKill(t *testing.T) {
	whole := t.TempDir()
	h, own := newJob(t).run(t, whole)
	want := result(t, whole, h, own)
	if !h.Stopped || own.Steps != h.End.Step || len(own.Losses) != len(h.Epochs) {
		t.Fatalf("stopped: %v at %v, the caller's value is %+v", h.Stopped, h.End, own)
	}

	program := testutil.Get[string](t)(os.Executable())
	seed := testutil.Seed(t)
	t.Logf("seed %d, %d steps", seed, h.End.Step)
	r := rand.New(rand.NewPCG(seed, 0))
	folder := t.TempDir()
	path := filepath.Join(folder, "last")
	changed := func() time.Time {
		info, err := os.Stat(path)
		if err != nil {
			return time.Time{}
		}
		return info.ModTime()
	}
	kills := 0
	for {
		before := changed()
		cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestChild$")
		cmd.Env = append(os.Environ(), childFolder+"="+folder)
		var output strings.Builder
		cmd.Stdout, cmd.Stderr = &output, &output
		testutil.Do(t, cmd.Start())
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		if kills < 8 {
			for changed().Equal(before) && len(done) == 0 {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(time.Duration(r.Int64N(int64(15 * time.Millisecond))))
			if err := cmd.Process.Kill(); !errors.Is(err, os.ErrProcessDone) {
				testutil.Do(t, err)
			}
		}
		if err := <-done; err == nil {
			break
		} else if cmd.ProcessState.Exited() {
			t.Fatalf("the child failed: %v\n%s", err, output.String())
		}
		kills++
	}
	if kills < 3 {
		t.Errorf("the child was killed %d times, want 3 at least", kills)
	}
	t.Logf("%d kills", kills)
	if got := string(testutil.Get[[]byte](t)(os.ReadFile(filepath.Join(folder, "result")))); got != want {
		t.Errorf("after %d kills the result is\n%.2000s\nwant\n%.2000s", kills, got, want)
	}

	again, own := newJob(t).run(t, folder)
	if again.Steps != 0 || !again.Stopped || again.Begin != h.End {
		t.Errorf("run again, %d steps from %v on, want none from %v on", again.Steps, again.Begin, h.End)
	}
	if got := result(t, folder, again, own); got != want || !reflect.DeepEqual(again.Epochs[0].Scores, h.Epochs[0].Scores) {
		t.Errorf("run again, the result is\n%.2000s\nwant\n%.2000s", got, want)
	}
}
