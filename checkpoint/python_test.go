package checkpoint

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/internal/values"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// python runs a program in Python, which finds safetensors and NumPy: 'make toolkit' brings them.
func python(t *testing.T, program string, args ...string) []byte {
	library := testutil.Get[string](t)(filepath.Abs("../.toolkit/python"))
	_, err := os.Stat(filepath.Join(library, "safetensors"))
	testutil.SkipUnless(t, "TOOLKIT", err)
	cmd := exec.Command("python3", append([]string{"-c", program}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+library)
	cmd.Stderr = os.Stderr
	return testutil.Get[[]byte](t)(cmd.Output())
}

// readPython prints all that Python finds in a file, by PyTorch where it is there, or else by NumPy.
const readPython = `
import hashlib, importlib.util, json, sys
import numpy as np
from safetensors import safe_open
with safe_open(sys.argv[1], framework="pt" if importlib.util.find_spec("torch") else "np") as f:
    tensors = {k: np.asarray(f.get_tensor(k)) for k in f.keys()}
    metadata = f.metadata()
print(json.dumps({
    "tensors": {k: [str(v.dtype), list(v.shape), v.tobytes().hex()] for k, v in tensors.items()},
    "metadata": {k: json.loads(v) for k, v in metadata.items()},
    "sha256": hashlib.sha256(open(sys.argv[1], "rb").read().replace(json.loads(metadata["stheno.sha256"]).encode(), b"0" * 64)).hexdigest(),
}))
`

// Python's safetensors reads what Save and SaveParameters write: each value, bit for bit, and the metadata; and Python computes
// the checksum.
func TestPythonReads(t *testing.T) {
	for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
		path := filepath.Join(t.TempDir(), "run.safetensors")
		m := newModel(t, dt, testutil.Seed(t), 5)
		vm := m.machine(t, cudaops.OnHost(), G.NewAdamSolver(), cudaops.Seed(math.MaxUint64))
		m.steps(t, vm, 0, 3)
		testutil.Do(t, Save(path, vm, position{Step: 3, Seed: 1 << 63}))
		s, _ := state(t, vm)
		want := map[string]string{}
		add := func(name string, v G.Value) {
			shape := append([]int{}, v.Shape()...)
			b := testutil.Get[[]byte](t)(values.Bytes(v))
			want[name] = string(testutil.Get[[]byte](t)(json.Marshal([]any{dt.String(), shape, hex.EncodeToString(b)})))
		}
		for _, l := range s.Learnables {
			add(l.Name, l.Value)
			add("moment1/"+l.Name, l.Moments[0])
			add("moment2/"+l.Name, l.Moments[1])
		}
		for i, a := range s.Averages {
			add(fmt.Sprintf("batchnorm%d/mean", i), a.Mean)
			add(fmt.Sprintf("batchnorm%d/variance", i), a.Variance)
		}
		var read struct {
			Tensors  map[string][]any
			Metadata struct {
				Stheno   header
				Position position
				Checksum string `json:"stheno.sha256"`
			}
			SHA256 string
		}
		reads := func(path string) {
			t.Helper()
			testutil.Do(t, json.Unmarshal(python(t, readPython, path), &read))
			got := map[string]string{}
			for name, of := range read.Tensors {
				got[name] = string(testutil.Get[[]byte](t)(json.Marshal(of)))
			}
			if !maps.Equal(got, want) {
				t.Errorf("Python reads\n%v\nwant\n%v", got, want)
			}
		}
		reads(path)
		if h := read.Metadata.Stheno; h.Version != version || h.Training.Steps != 3 || h.Training.Seed != math.MaxUint64 || read.Metadata.Position.Seed != 1<<63 {
			t.Errorf("Python reads the metadata %+v", read.Metadata)
		}
		if read.SHA256 != read.Metadata.Checksum || len(read.SHA256) != 64 {
			t.Errorf("Python computes the checksum %q, the file has %q", read.SHA256, read.Metadata.Checksum)
		}
		maps.DeleteFunc(want, func(name, _ string) bool { return strings.HasPrefix(name, "moment") })
		read.Tensors = nil
		testutil.Do(t, vm.Pull())
		testutil.Do(t, SaveParameters(path, m.learnables...))
		reads(path)
	}
}

// writePython writes four tensors of NumPy.
const writePython = `
import sys, numpy as np
from safetensors.numpy import save_file
save_file({
    "weight": np.arange(6, dtype=np.float32).reshape(2, 3) / 7,
    "transposed": np.ascontiguousarray(np.arange(6, dtype=np.float64).reshape(2, 3).T) / 7,
    "scalar": np.array(-np.inf, dtype=np.float64),
    "bias é": np.array([np.nan, -0.0, 5e-324], dtype=np.float64),
}, sys.argv[1], metadata={"by": "numpy"})
`

// Files that Python's safetensors writes can be loaded.
func TestPythonWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "numpy.safetensors")
	python(t, writePython, path)
	g := G.NewGraph()
	nodes := G.Nodes{
		G.NewMatrix(g, tensor.Float32, G.WithName("weight"), G.WithShape(2, 3)),
		G.NewMatrix(g, tensor.Float64, G.WithName("transposed"), G.WithShape(3, 2)),
		G.NewScalar(g, tensor.Float64, G.WithName("scalar")),
		G.NewVector(g, tensor.Float64, G.WithName("bias é"), G.WithShape(3)),
	}
	testutil.Get[Loaded](t)(LoadParameters(path, nodes))
	seventh := func(i float64) float64 { return i / 7 }
	wants := []any{
		[]float32{0, 1. / 7, 2. / 7, 3. / 7, 4. / 7, 5. / 7},
		[]float64{0, seventh(3), seventh(1), seventh(4), seventh(2), seventh(5)},
		math.Inf(-1),
		[]float64{math.NaN(), math.Copysign(0, -1), 5e-324},
	}
	for i, n := range nodes {
		if got, want := fmt.Sprint(n.Value().Data()), fmt.Sprint(wants[i]); got != want || !n.Value().Shape().Eq(n.Shape()) {
			t.Errorf("%s: got %s of shape %v, want %s", n.Name(), got, n.Value().Shape(), want)
		}
	}
}
