package checkpoint

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A training with dynamic loss scaling that skips steps continues from its file with the same bits, from the middle of a step whose sum of gradients is infinite, too. A file
// without a scale begins one, after a step.
func TestLossScaling(t *testing.T) {
	onBackends(t, func(t *testing.T, on cudaops.Option) {
		dir := t.TempDir()
		scaling := cudaops.LossScaling(cudaops.GradScaler{Interval: 2})
		build := func(seed uint64, opts ...cudaops.Option) (*model, *cudaops.VM) {
			m := newModel(t, tensor.Float32, seed, 5)
			m.norms = nil
			return m, m.machine(t, on, G.NewAdamSolver(), append(opts, cudaops.Seed(seed), cudaops.StepEvery(2), cudaops.EMA(0.9), cudaops.ClipNorm(1), cudaops.EvalMode())...)
		}
		// run makes a run whose gradients are infinite if hard.
		run := func(m *model, vm *cudaops.VM, number int, hard bool) {
			x := draw(rand.New(rand.NewPCG(5, uint64(number))), tensor.Float32, 8, 4)
			if hard {
				x.Float32s()[0] = 3e38
			}
			testutil.Do(t, G.Let(m.x, x))
			testutil.Do(t, vm.RunAll())
		}
		for _, runs := range []int{4, 6, 7, 9} { // the steps of runs 4 and 5, and 6 and 7, are skipped
			path := filepath.Join(dir, "scaled")
			m, want := build(1, scaling)
			hard := func(number int) bool { return number == 4 || number == 6 }
			for number := range runs {
				run(m, want, number, hard(number))
			}
			testutil.Do(t, Save(path, want, nil))
			other, got := build(2, scaling)
			checked(t)(Load(path, got, nil))
			same(t, "loaded", got, want)
			for number := runs; number < 20; number++ {
				run(m, want, number, hard(number))
				run(other, got, number, hard(number))
			}
			same(t, "continued", got, want)
			if s := testutil.Get[cudaops.LossScale](t)(got.LossScale()); s.Steps != 8 || s.Scale != math.Ldexp(65536, 1-2+3) {
				t.Errorf("after 8 of 10 steps: got %+v, want the scale to grow after each second step made, and to halve after the others", s)
			}
		}

		m, plain := build(3)
		for number := range 4 {
			run(m, plain, number, false)
		}
		old := filepath.Join(dir, "old")
		testutil.Do(t, Save(old, plain, nil))
		for path, want := range map[string]int{old: versionSets, filepath.Join(dir, "scaled"): versionScale} {
			f := testutil.Get[*file](t)(open(path))
			var h struct{ Version int }
			testutil.Do(t, json.Unmarshal([]byte(f.Metadata[headerKey]), &h))
			if testutil.Do(t, f.Close()); h.Version != want {
				t.Errorf("%s is a file of version %d, want %d", path, h.Version, want)
			}
		}
		_, scaled := build(4, scaling)
		checked(t)(Load(old, scaled, nil))
		if s := testutil.Get[cudaops.LossScale](t)(scaled.LossScale()); s != (cudaops.LossScale{Scale: 65536, Steps: 2}) {
			t.Errorf("of a file without a scale: got %+v, want the first scale after 2 steps", s)
		}
		run(m, plain, 4, false)
		testutil.Do(t, Save(old, plain, nil))
		if _, err := Load(old, scaled, nil); err == nil || !strings.Contains(err.Error(), "got a state without a scale of the loss after 1 runs since the last step") {
			t.Errorf("a file without a scale in the middle of a step: got %v", err)
		}
		if _, err := Load(filepath.Join(dir, "scaled"), plain, nil); err == nil || !strings.Contains(err.Error(), "got a state with a scale of the loss") {
			t.Errorf("a file with a scale without LossScaling: got %v", err)
		}
		testutil.Do(t, os.Remove(old))
	})
}
