package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// childPath is the variable of the environment that makes the test's program train, with its
// checkpoint there, and nothing else.
const childPath = "STHENO_CHECKPOINT_CHILD"

// childSteps is how many steps the child makes, with a checkpoint after every second.
const childSteps = 150

// newChild returns the training of the child, which skips steps. The larger its checkpoint, the likelier is a kill
// while it is written.
func newChild(t testing.TB, seed uint64) (*model, *cudaops.VM) {
	m := newModel(t, tensor.Float32, seed, 300)
	return m, m.machine(t, cudaops.OnHost(), G.NewAdamSolver(G.WithLearnRate(0.01)), cudaops.Seed(seed), cudaops.LossScaling(cudaops.GradScaler{Scale: 0x1p125, Growth: 4, Interval: 5}))
}

// TestChild is the child. It goes on from its checkpoint, if there is one, or from the seed 1.
func TestChild(t *testing.T) {
	path := os.Getenv(childPath)
	if path == "" {
		return // the test is TestKill
	}
	m, vm := newChild(t, testutil.Seed(t))
	var at position
	_, err := Load(path, vm, &at)
	if errors.Is(err, fs.ErrNotExist) {
		m, vm = newChild(t, 1)
		err = Save(path, vm, at)
	}
	testutil.Do(t, err)
	for at.Step < childSteps {
		m.steps(t, vm, at.Step, at.Step+2)
		at.Step += 2
		testutil.Do(t, Save(path, vm, at))
	}
}

// A training that is killed at any time, again and again, ends with the bits of one that was not,
// and its file is whole whenever somebody looks.
func TestKill(t *testing.T) {
	program := testutil.Get[string](t)(os.Executable())
	r := testutil.Random(t)
	path := filepath.Join(t.TempDir(), "run.safetensors")

	// step returns the step that the file has reached, -1 if there is no file.
	step := func() int {
		f, err := open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return -1
		}
		testutil.Do(t, err)
		defer f.Close()
		var at position
		set := testutil.Get[func()](t)(f.position(&at))
		testutil.Get[*cudaops.Snapshot](t)(f.state())
		set()
		return at.Step
	}
	// temporaries are the files that are being written, or were when the child was killed.
	temporaries := func() []string {
		return testutil.Get[[]string](t)(filepath.Glob(filepath.Join(filepath.Dir(path), ".*.tmp")))
	}
	kills, left := 0, 0
	for end := false; !end; {
		before := step()
		cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestChild$")
		cmd.Env = append(os.Environ(), childPath+"="+path)
		var output = new(tail)
		cmd.Stdout, cmd.Stderr = output, output
		testutil.Do(t, cmd.Start())
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		if kills < 6 {
			for step() == before && len(done) == 0 { // until it has made a step at least
				time.Sleep(time.Millisecond)
			}
			time.Sleep(time.Duration(r.Int64N(int64(10 * time.Millisecond))))
			for kills%2 == 0 && len(temporaries()) == 0 && len(done) == 0 { // until it writes one
				time.Sleep(50 * time.Microsecond)
			}
			if err := cmd.Process.Kill(); !errors.Is(err, os.ErrProcessDone) {
				testutil.Do(t, err)
			}
		}
		err := <-done
		if end = err == nil; end {
			break
		}
		if kills >= 6 || cmd.ProcessState.Exited() {
			t.Fatalf("the child failed: %v\n%s", err, output.b)
		}
		kills++
		if len(temporaries()) > 0 {
			left++
		}
		t.Logf("killed after step %d", step())
	}
	t.Logf("%d kills, %d of them while a file was written", kills, left)
	if kills < 3 {
		t.Errorf("the child was killed %d times, want 3 at least: let it make more steps", kills)
	}
	m, want := newChild(t, 1)
	m.steps(t, want, 0, childSteps)
	_, got := newChild(t, 2)
	checked(t)(Load(path, got, nil))
	same(t, fmt.Sprintf("after %d kills", kills), got, want)
	if names := testutil.Get[[]os.DirEntry](t)(os.ReadDir(filepath.Dir(path))); len(names) != 1 {
		t.Errorf("got the files %v, want one", names)
	}
}

// tail keeps the last bytes that are written.
type tail struct{ b []byte }

func (w *tail) Write(b []byte) (int, error) {
	w.b = append(w.b, b...)
	w.b = w.b[max(0, len(w.b)-10_000):]
	return len(b), nil
}
