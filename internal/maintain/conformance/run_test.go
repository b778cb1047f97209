package conformance

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

// build compiles a suite, without cgo, as Stheno's users do.
func (s suite) build(t *testing.T, tree string) {
	args := []string{"build"}
	if s.test != "" {
		args = []string{"test", "-c", "-vet=off"}
	}
	binary := testutil.Get[string](t)(filepath.Abs(s.binary(tree)))
	goCommand(t, s.folder(tree), append(args, "-tags", "native", "-trimpath", "-ldflags=-s -w", "-o", binary, ".")...) // native: the BLAS of Go
}

// goCommand runs the go command in a folder.
func goCommand(t *testing.T, dir string, args ...string) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v in %s: %v\n%s", cmd, dir, err, out)
	}
}

// pack puts the built suites, the files that they read, and this test into a folder.
func pack(t *testing.T, tree, to string) {
	copyFile := func(from, to string) {
		testutil.Write(t, to, string(testutil.Get[[]byte](t)(os.ReadFile(from))))
		testutil.Do(t, os.Chmod(to, testutil.Get[os.FileInfo](t)(os.Stat(from)).Mode()))
	}
	for _, s := range suites {
		testutil.Do(t, os.MkdirAll(s.folder(to), 0o777))
		for _, f := range s.files {
			copyFile(filepath.Join(s.folder(tree), f), filepath.Join(s.folder(to), f))
		}
		copyFile(s.binary(tree), s.binary(to))
	}
	digits(t, to)
	goCommand(t, ".", "test", "-c", "-trimpath", "-o", filepath.Join(to, "conformance"), ".")
}

// makeWeights writes small random numbers in place of the files of weights that are not there: a packed folder has none.
func (s suite) makeWeights(t *testing.T, tree string) {
	for name, size := range s.weights {
		path := filepath.Join(s.folder(tree), filepath.FromSlash(name))
		if _, err := os.Stat(path); err == nil {
			continue
		}
		r, numbers := rand.New(rand.NewPCG(1, 0)), make([]float32, size/4)
		for i := range numbers {
			numbers[i] = float32(math.Abs(r.NormFloat64()) / 20)
		}
		testutil.Write(t, path, string(kernels.Bytes(numbers)))
	}
}

// limit is how long a run may take.
const limit = 10 * time.Minute

// run runs a suite in a mode. Its environment has the settings for the random numbers that the tests were written with, and the variables
// that the hook reads.
func (s suite) run(t *testing.T, tree, mode string) {
	record := testutil.Get[string](t)(filepath.Abs(s.log(tree, mode, "jsonl")))
	testutil.Do(t, os.MkdirAll(filepath.Dir(record), 0o777))
	testutil.Do(t, os.RemoveAll(record))
	s.makeWeights(t, tree)
	out := testutil.Get[*os.File](t)(os.Create(s.log(tree, mode, "log")))
	defer out.Close()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	args := s.args
	if s.test != "" {
		args = append([]string{"-test.v"}, args...)
	}
	cmd := exec.CommandContext(ctx, testutil.Get[string](t)(filepath.Abs(s.binary(tree))), args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.folder(tree), out, out
	cmd.Env = slices.Concat(os.Environ(), []string{"GODEBUG=randautoseed=0,randseednop=0", "STHENO_CONFORMANCE=" + mode, "STHENO_CONFORMANCE_LOG=" + record}, s.env)
	if failed := new(exec.ExitError); !errors.As(cmd.Run(), &failed) && cmd.ProcessState == nil {
		t.Fatalf("%v did not run", cmd)
	}
	testutil.Write(t, s.log(tree, mode, "exit"), strconv.Itoa(cmd.ProcessState.ExitCode())+"\n")
}

// modes are how it is run, one after the other.
func (s suite) modes() []string {
	if !s.timed {
		return modes
	}
	return slices.Concat(modes, timedModes)
}
