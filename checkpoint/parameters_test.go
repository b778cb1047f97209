package checkpoint

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/checkpoint/safetensors"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/internal/values"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// evaluated returns the bits of a model's loss without training, on one batch.
func evaluated(t testing.TB, m *model, vm *cudaops.VM) []byte {
	for _, op := range m.norms { // SetTraining(false) keeps the averages
		testutil.Do(t, op.SetTraining(false))
	}
	m.steps(t, vm, 100, 101)
	return testutil.Get[[]byte](t)(values.Bytes(m.loss.Value()))
}

// The parameters of a training compute the same in a graph that is not trained, with the averages
// of its BatchNorms; and so do those that were saved without a solver.
func TestParameters(t *testing.T) {
	onBackends(t, func(t *testing.T, on cudaops.Option) {
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			dir := t.TempDir()
			whole, plain := filepath.Join(dir, "whole"), filepath.Join(dir, "plain")
			m := newModel(t, dt, 1, 5)
			vm := m.machine(t, on, G.NewAdamSolver(G.WithLearnRate(0.1)))
			m.steps(t, vm, 0, 5)
			testutil.Do(t, Save(whole, vm, nil))
			testutil.Do(t, vm.Pull())
			testutil.Do(t, SaveParameters(plain, m.learnables...))

			var want []byte
			for i, path := range []string{whole, plain} {
				other := newModel(t, dt, 2, 5)
				vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(other.g, on, cudaops.Inference()))
				before := evaluated(t, other, vm)
				complete(t)(LoadParameters(path, other.learnables))
				got := evaluated(t, other, vm)
				if i == 0 {
					want = got
				}
				if !bytes.Equal(got, want) || bytes.Equal(got, before) {
					t.Errorf("%s: the loss with the loaded parameters is % x, want % x", path, got, want)
				}
				testutil.Do(t, vm.Close())
				for k, n := range m.learnables {
					a, b := testutil.Get[[]byte](t)(values.Bytes(n.Value())), testutil.Get[[]byte](t)(values.Bytes(other.learnables[k].Value()))
					if !bytes.Equal(a, b) {
						t.Errorf("%s: %s differs from the saved value", path, n.Name())
					}
				}
				for k, op := range m.norms {
					mean, variance := op.Stats()
					gotMean, gotVariance := other.norms[k].Stats()
					if !mean.Eq(gotMean) || !variance.Eq(gotVariance) {
						t.Errorf("%s: BatchNorm %d has other averages", path, k)
					}
				}
			}
		}
	})
}

// Parameters that are loaded go to the device in the next run of a training.
func TestParametersOfTraining(t *testing.T) {
	onBackends(t, func(t *testing.T, on cudaops.Option) {
		path := filepath.Join(t.TempDir(), "plain")
		m := newModel(t, tensor.Float64, 1, 5)
		want := m.machine(t, on, G.NewAdamSolver(), cudaops.Seed(1))
		testutil.Do(t, SaveParameters(path, m.learnables...))
		m.steps(t, want, 0, 3)
		other := newModel(t, tensor.Float64, 2, 5)
		got := other.machine(t, on, G.NewAdamSolver(), cudaops.Seed(1))
		complete(t)(LoadParameters(path, other.learnables))
		other.steps(t, got, 0, 3)
		same(t, "a training from parameters that were loaded", got, want)
	})
}

func TestParametersErrors(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "run")
	m, other := newModel(t, tensor.Float64, 1, 5), newModel(t, tensor.Float64, 2, 5)
	testutil.Do(t, SaveParameters(path, m.learnables...))
	twice := append(G.Nodes{}, other.learnables...)
	twice[1] = twice[0]
	empty := G.NewVector(m.g, tensor.Float64, G.WithName("empty"), G.WithShape(2))
	whole := G.NewVector(m.g, tensor.Complex64, G.WithName("ints"), G.WithShape(2), G.WithValue(tensor.New(tensor.WithBacking([]complex64{1, 2}))))
	for want, nodes := range map[string]G.Nodes{
		"got no nodes":            nil,
		"node 0 is nil":           {nil},
		"got the result of an op": {m.loss},
		"has no name":             {G.NewVector(m.g, tensor.Float64, G.WithShape(9))},
		`got the name "w0" again`: twice,
		"of another graph than":   {m.learnables[0], other.learnables[1]},
		"node empty has no value": {empty},
		"ints: ":                  {whole},
	} {
		if err := SaveParameters(path, nodes...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("SaveParameters: got the error %v, want one with %q", err, want)
		}
		if strings.HasPrefix(want, "node empty") || strings.HasPrefix(want, "ints") {
			want = "without the tensor"
		}
		if _, err := LoadParameters(path, nodes); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("LoadParameters: got the error %v, want one with %q", err, want)
		}
	}
	before := other.learnables[0].Value()
	for want, of := range map[string]*model{
		"w0: got shape (4, 5), want float64 of shape (4, 6)": newModel(t, tensor.Float64, 1, 6),
	} {
		if _, err := LoadParameters(path, of.learnables); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got the error %v, want one with %q", err, want)
		}
	}
	if _, err := LoadParameters(path, other.learnables[:3]); err == nil || !strings.Contains(err.Error(), `got a file with the tensors "`) {
		t.Errorf("learnables too few give the error %v", err)
	}
	good := testutil.Get[[]byte](t)(os.ReadFile(path))
	bad := rewrite(t, good, func(f *safetensors.File, _ *header) { f.Find("batchnorm1/variance").Shape = []int{1, 3} })
	testutil.Do(t, os.WriteFile(path, bad, 0o666))
	const want = "batchnorm1/variance: got shape (1, 3), want float64 of shape (3)"
	if _, err := LoadParameters(path, other.learnables); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("averages of another shape give the error %v", err)
	}
	if other.learnables[0].Value() != before {
		t.Error("an error has loaded a part")
	}
}
