package checkpoint

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/checkpoint/safetensors"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/internal/values"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// held is the bytes of a Store's parameters by name.
func held(t testing.TB, s *cudaops.Store) map[string][]byte {
	all := map[string][]byte{}
	for _, l := range testutil.Get[[]cudaops.Learnable](t)(s.Parameters()) {
		all[l.Name] = testutil.Get[[]byte](t)(values.Bytes(l.Value))
	}
	return all
}

// A training in a Store goes on from a file of Save with the bits of one that was not ended, and all files that have parameters
// fill another Store.
func TestStore(t *testing.T) {
	onBackends(t, func(t *testing.T, on cudaops.Option) {
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			dir := t.TempDir()
			path := func(name string) string { return filepath.Join(dir, name) }
			adam := func() G.Solver { return G.NewAdamSolver(G.WithLearnRate(0.01)) }
			s, m := cudaops.NewStore(), newModel(t, dt, 1, 5)
			want := m.machine(t, on, adam(), cudaops.Seed(9), cudaops.In(s))
			m.steps(t, want, 0, 4)
			testutil.Do(t, Save(path("whole"), want, nil))
			testutil.Do(t, SaveStore(path("store"), s))
			testutil.Do(t, want.Pull())
			testutil.Do(t, SaveParameters(path("nodes"), m.learnables...))
			saved := held(t, s)

			foreign := testutil.Get[*os.File](t)(os.Create(path("foreign")))
			var content tensors
			for _, n := range m.learnables {
				content.add(n.Name(), n.Value())
			}
			testutil.Do(t, safetensors.Write(foreign, nil, content.list))
			testutil.Do(t, foreign.Close())
			for _, name := range []string{"whole", "store", "nodes", "foreign"} {
				other := cudaops.NewStore()
				if note := testutil.Get[Loaded](t)(LoadStore(path(name), other)).Note; (note != "") != (name == "foreign") {
					t.Errorf("%s: got the note %q", name, note)
				}
				vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(newModel(t, dt, 7, 5).g, on, cudaops.In(other)))
				got := held(t, other)
				for n, b := range saved {
					if !bytes.Equal(got[n], b) || len(got) != len(saved) {
						t.Errorf("%s: %s differs, or %d parameters are not %d", name, n, len(got), len(saved))
					}
				}
				testutil.Do(t, vm.Close())
				testutil.Do(t, other.Close())
			}

			m.steps(t, want, 4, 8)
			again, other := newModel(t, dt, 2, 5), cudaops.NewStore()
			got := again.machine(t, on, adam(), cudaops.Seed(10), cudaops.In(other))
			checked(t)(Load(path("whole"), got, nil))
			again.steps(t, got, 4, 8)
			same(t, "a training in a Store that goes on", got, want)
			if a, b := held(t, other), held(t, s); !bytes.Equal(a["w0"], b["w0"]) || bytes.Equal(a["w0"], saved["w0"]) {
				t.Error("the Stores differ, or nothing was learnt")
			}
		}
	})
}

func TestStoreErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	s := cudaops.NewStore()
	if err := SaveStore(path, s); err == nil || !strings.Contains(err.Error(), "checkpoint: SaveStore: got a Store without parameters") {
		t.Errorf("an empty Store gives %v", err)
	}
	set := func(name string, x ...float64) {
		testutil.Do(t, s.SetParameters([]cudaops.Learnable{{Name: name, Value: tensor.New(tensor.WithShape(len(x)), tensor.WithBacking(x))}}))
	}
	set("a", 1, 2)
	set("b", 3, 4)
	testutil.Do(t, SaveStore(path, s))
	set("b", 3, math.NaN())
	if err := SaveStore(path, s); err == nil || !strings.Contains(err.Error(), "b: element 1 is NaN") {
		t.Errorf("NaN gives %v", err)
	}
	s = cudaops.NewStore()
	set("a", 5, 6)
	set("b", 7)
	before := held(t, s)
	if _, err := LoadStore(path, s); err == nil || !strings.Contains(err.Error(), "parameter b: got float64 of shape (2), want float64 of shape (1) as in the Store") {
		t.Errorf("another shape gives %v", err)
	}
	for name, b := range held(t, s) {
		if !bytes.Equal(b, before[name]) {
			t.Errorf("an error has changed %s", name)
		}
	}
	nothing := Rename(func(string) string { return "" })
	if _, err := LoadStore(path, s, nothing); err == nil || !strings.Contains(err.Error(), "got 2 tensors and none to load, want one at least") {
		t.Errorf("a Rename that omits all gives %v", err)
	}
	if l, err := LoadStore(path, s, nothing, Partial()); err != nil || len(l.Missing) != 2 {
		t.Errorf("a Rename that omits all gives %v and %v under Partial", l.Missing, err)
	}
	if _, err := LoadStore(path+"none", s); err == nil || !os.IsNotExist(err) && !strings.Contains(err.Error(), "no such file") {
		t.Errorf("no file gives %v", err)
	}
}

// A file of another program has the parameters that open VMs compute with, unless Partial is set: other names are no new parameters then.
func TestForeignNames(t *testing.T) {
	store, m := cudaops.NewStore(), newModel(t, tensor.Float32, 1, 5)
	vm := m.machine(t, cudaops.OnHost(), G.NewAdamSolver(), cudaops.In(store))
	var list []safetensors.Tensor
	for i, l := range testutil.Get[[]cudaops.Learnable](t)(store.Parameters()) {
		name := l.Name
		if i > 0 {
			name = "module." + name
		}
		list = append(list, safetensors.Tensor{Name: name, Dtype: "F32", Shape: l.Value.Shape(), Data: testutil.Get[[]byte](t)(values.Bytes(l.Value))})
	}
	path, before := foreign(t, list...), held(t, store)
	_, err := LoadStore(path, store)
	for _, want := range []string{"without the tensors " + strconv.Quote(list[1].Name[len("module."):]), `and with "module.`, "or the options Rename or Partial"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got the error %v, want %s", err, want)
		}
	}
	if after := held(t, store); len(after) != len(before) {
		t.Errorf("an error has added parameters: %d, want %d", len(after), len(before))
	}
	trim := Rename(func(name string) string { return strings.TrimPrefix(name, "module.") })
	testutil.Get[Loaded](t)(LoadStore(path, store, trim))
	if l := testutil.Get[Loaded](t)(LoadStore(path, store, Partial())); len(l.Missing) != len(list)-1 || len(l.Unused) != len(list)-1 {
		t.Errorf("got %d missing and %d unused, want %d", len(l.Missing), len(l.Unused), len(list)-1)
	}
	testutil.Do(t, vm.Close())
	testutil.Get[Loaded](t)(LoadStore(path, store)) // no VM computes with the parameters
	if after := held(t, store); len(after) != len(before)+len(list)-1 {
		t.Errorf("got %d parameters, want %d", len(after), len(before)+len(list)-1)
	}
	testutil.Do(t, store.Close())
}
