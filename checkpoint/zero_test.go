package checkpoint

import (
	"path/filepath"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Zero values and nils are errors, and nothing panics.
func TestSurvives(t *testing.T) {
	m := newModel(t, tensor.Float64, 1, 2)
	vm := m.machine(t, cudaops.OnHost(), G.NewMomentum())
	dir := t.TempDir()
	path, empty := filepath.Join(dir, "run"), filepath.Join(dir, "empty")
	testutil.Do(t, Save(path, vm, 1))
	testutil.Write(t, empty, "")
	testutil.SurviveWhole(t, map[string]any{"Save": Save, "Load": Load, "SaveParameters": SaveParameters, "LoadParameters": LoadParameters,
		"SaveStore": SaveStore, "LoadStore": LoadStore,
		"Partial": Partial, "Rename": Rename, "Transposed": Transposed},
		path, empty, dir, vm, new(int), m.learnables[0], m.loss, (chan int)(nil), cudaops.NewStore(), new(cudaops.Store), Loaded{}, LoadOption(nil))
}
