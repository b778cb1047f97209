package checkpoint

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/checkpoint/safetensors"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Several solvers and averages are saved and go on with the same bits; parameters and averages load without the solvers.
func TestSets(t *testing.T) {
	onBackends(t, func(t *testing.T, on cudaops.Option) {
		path := filepath.Join(t.TempDir(), "run")
		build := func(seed uint64, store *cudaops.Store) (*model, *cudaops.VM) {
			m := newModel(t, tensor.Float32, seed, 5)
			opts := []cudaops.Option{on, cudaops.Seed(seed), cudaops.EMA(0.75), cudaops.StepEvery(2), cudaops.Train(G.NewAdamW(cudaops.WeightDecay(0.1)), m.learnables[:2]...),
				cudaops.Train(G.NewMomentum(), m.learnables[2:5]...), cudaops.Train(G.NewVanillaSolver(), m.learnables[5:]...)}
			if store != nil {
				opts = append(opts, cudaops.In(store))
			}
			vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(m.g, opts...))
			t.Cleanup(func() { testutil.Do(t, vm.Close()) })
			return m, vm
		}
		m, want := build(1, nil)
		m.steps(t, want, 0, 5)
		testutil.Do(t, Save(path, want, nil))
		other, got := build(2, cudaops.NewStore())
		checked(t)(Load(path, got, nil))
		same(t, "loaded", got, want)
		m.steps(t, want, 5, 9)
		other.steps(t, got, 5, 9)
		same(t, "continued", got, want)

		again, vm := build(3, nil)
		complete(t)(LoadParameters(path, again.learnables)) // whose solver state and averages nobody asks for
		checked(t)(Load(path, vm, nil))
		averages := cudaops.NewStore()
		complete(t)(LoadStore(path, averages, Rename(func(name string) string {
			of, is := strings.CutPrefix(name, "ema/")
			if !is {
				return ""
			}
			return of
		})))
		direct := cudaops.NewStore()
		testutil.Do(t, direct.SetParameters(testutil.Get[[]cudaops.Learnable](t)(vm.EMA())))
		if a, b := held(t, averages), held(t, direct); len(a) != len(m.learnables) || !maps.EqualFunc(a, b, func(x, y []byte) bool { return string(x) == string(y) }) {
			t.Errorf("the file has the averages %v, the VM %v", a, b)
		}

		good := testutil.Get[[]byte](t)(os.ReadFile(path))
		for want, change := range map[string]func(h *header){
			"got 32 tensors, want those of 7 learnables": func(h *header) { h.Training.More[0].Moments = 3 },
			"32 tensors, want those of 7 learnables":     func(h *header) { h.Training.More[1].First = 1 },
			"want those of 7 learnables, of the solver":  func(h *header) { h.Training.More[1].First = 8 },
			"tensors, want":                func(h *header) { h.Training.More[0].First = -1 },
			`state of the solver "AdaGrad`: func(h *header) { h.Training.More[1].Solver = "AdaGradSolver" },
			"file of version 5":            func(h *header) { h.Version = 5 },
		} {
			bad := filepath.Join(t.TempDir(), "bad")
			testutil.Do(t, os.WriteFile(bad, rewrite(t, good, func(_ *safetensors.File, h *header) { change(h) }), 0o666))
			if _, err := Load(bad, vm, nil); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got the error %v, want one with %q", err, want)
			}
		}
	})
}
