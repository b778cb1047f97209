package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/checkpoint/safetensors"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// rewrite returns a file after an edit, with the checksum of the new content if the edit leaves one.
func rewrite(t testing.TB, b []byte, change edit) []byte {
	f := testutil.Get[*safetensors.File](t)(safetensors.New(bytes.NewReader(b), int64(len(b))))
	for i := range f.Tensors {
		x := &f.Tensors[i]
		n := testutil.Get[int](t)(x.Bytes())
		x.Data = make([]byte, n)
		testutil.Do(t, x.Read(x.Data))
	}
	var h header
	testutil.Do(t, json.Unmarshal([]byte(f.Metadata[headerKey]), &h))
	before := f.Metadata[headerKey]
	change(f, &h)
	if text, has := f.Metadata[headerKey]; has && text == before {
		f.Metadata[headerKey] = string(testutil.Get[[]byte](t)(json.Marshal(h)))
	}
	if _, has := f.Metadata[checksumKey]; has {
		testutil.Do(t, seal(f.Metadata, f.Tensors))
	}
	var w bytes.Buffer
	testutil.Do(t, safetensors.Write(&w, f.Metadata, f.Tensors))
	return w.Bytes()
}

// edit changes the header of a file, h, and its data.
type edit func(f *safetensors.File, h *header)

// victim is a VM into which nothing can be loaded.
type victim struct {
	*testing.T
	dir    string
	vm     *cudaops.VM
	kept   *cudaops.Snapshot
	before map[string][]byte
}

func newVictim(t *testing.T) *victim {
	m := newModel(t, tensor.Float32, 4, 5)
	v := &victim{T: t, dir: t.TempDir(), vm: m.machine(t, cudaops.OnHost(), decaying(), cudaops.Seed(4))}
	m.steps(t, v.vm, 0, 3)
	v.kept, v.before = state(t, v.vm)
	return v
}

// decaying returns the solver of victims.
func decaying() G.Solver { return G.NewAdamSolver(G.WithL2Reg(0.5)) }

// save returns a file of a model's training.
func (v *victim) save(m *model, s G.Solver, opts ...cudaops.Option) []byte {
	path := filepath.Join(v.dir, "good")
	vm := m.machine(v, cudaops.OnHost(), s, append(opts, cudaops.Seed(3))...)
	m.steps(v, vm, 0, 2)
	testutil.Do(v, Save(path, vm, position{Step: 2}))
	return testutil.Get[[]byte](v)(os.ReadFile(path))
}

// write makes a file.
func (v *victim) write(b []byte) (path string) {
	path = filepath.Join(v.dir, "bad")
	testutil.Do(v, os.WriteFile(path, b, 0o666))
	return path
}

// refuses ends the test unless Load returns an error with all of wants and changes nothing.
func (v *victim) refuses(what, path string, to any, wants ...string) {
	v.Helper()
	_, err := Load(path, v.vm, to)
	if err == nil {
		v.Fatalf("%s: no error", what)
	}
	for _, want := range wants {
		if !strings.Contains(err.Error(), want) {
			v.Errorf("%s: got the error %v, want one with %q", what, err, want)
		}
	}
	now, after := state(v, v.vm)
	if !maps.EqualFunc(after, v.before, bytes.Equal) || now.Steps != v.kept.Steps || now.Seed != v.kept.Seed || now.Runs != v.kept.Runs {
		v.Fatalf("%s: it changed the VM", what)
	}
}

// A file of another training is an error that names the difference, and changes nothing.
func TestLoadOtherTraining(t *testing.T) {
	v := newVictim(t)
	small := func() *model { return newModel(t, tensor.Float32, 1, 5) }
	for want, b := range map[string][]byte{
		"learnable w0: got float32 of shape (4, 6), want float32 of shape (4, 5)": v.save(newModel(t, tensor.Float32, 1, 6), decaying()),
		"learnable w0: got float64 of shape (4, 5), want float32":                 v.save(newModel(t, tensor.Float64, 1, 5), decaying()),
		`got a state of the solver "Momentum", want AdamSolver`:                   v.save(small(), G.NewMomentum()),
		"L2Reg 0.25, want 0.5":                 v.save(small(), G.NewAdamSolver(G.WithL2Reg(0.25))),
		"ClipNorm 2, want a solver without it": v.save(small(), decaying(), cudaops.ClipNorm(2)),
	} {
		path := v.write(b)
		v.refuses(want, path, nil, want, path)
	}
}

// A file whose header describes missing data, or that has data which nobody reads, is an error.
func TestLoadEditedFiles(t *testing.T) {
	v := newVictim(t)
	good := v.save(newModel(t, tensor.Float32, 1, 5), decaying())
	says := func(text string) edit { return func(f *safetensors.File, _ *header) { f.Metadata[headerKey] = text } }
	scale := func(change func(x *safetensors.Tensor)) edit {
		return func(f *safetensors.File, _ *header) { change(f.Find("scale")) }
	}
	for want, change := range map[string]edit{
		"got a file of version 5, want 1 to 4":    func(_ *safetensors.File, h *header) { h.Version = 5 },
		"got a file of version 0, want 1 to 4":    says("{}"),
		"cannot unmarshal":                        says("1"),
		`unknown field "more"`:                    says(`{"version":1,"more":2}`),
		"want a file of Save: use LoadParameters": func(f *safetensors.File, _ *header) { delete(f.Metadata, headerKey) },
		"got a file of SaveParameters":            func(_ *safetensors.File, h *header) { h.Training = nil },
		"of 1 BatchNorms, want 2": func(f *safetensors.File, h *header) {
			h.BatchNorms = 1
			f.Tensors = slices.DeleteFunc(f.Tensors, func(x safetensors.Tensor) bool { return strings.HasPrefix(x.Name, "batchnorm1") })
		},
		"got 24 tensors, want those of 7 learnables":                                                func(f *safetensors.File, _ *header) { f.Tensors = f.Tensors[1:] },
		"7 learnables, of the solver state that the metadata describes, 0 states and -1 BatchNorms": func(_ *safetensors.File, h *header) { h.Moments, h.BatchNorms = -1, -1 },
		`without the tensor "moment2/w1"`:                                                           func(f *safetensors.File, _ *header) { f.Find("moment2/w1").Name = "moment2/w9" },
		"two learnables beta0":                                                                      func(_ *safetensors.File, h *header) { h.Learnables[0] = "beta0" },
		"gamma1, beta1, scale, want w1 too":                                                         renamed("w1", "w9"),
		`learnable scale: got int32 of shape (), want float32 of shape ()`:                          scale(func(x *safetensors.Tensor) { x.Dtype = "I32" }),
		"got the shape [0], want at least one element":                                              scale(func(x *safetensors.Tensor) { x.Shape, x.Data = []int{0}, nil }),
		"scale: got float32 of shape (1), want float32 of shape ()":                                 scale(func(x *safetensors.Tensor) { x.Shape = []int{1} }),
		"after -1 steps": func(_ *safetensors.File, h *header) { h.Training.Steps = -1 },
	} {
		path, at := v.write(rewrite(t, good, change)), position{}
		if v.refuses(want, path, &at, want, path); at != (position{}) {
			t.Errorf("%s: it set the position", want)
		}
	}
}

// Files of something else than a training, and positions that do not fit, are errors.
func TestLoadBadFiles(t *testing.T) {
	v := newVictim(t)
	good := v.save(newModel(t, tensor.Float32, 1, 5), decaying())
	for n := 0; n < len(good); n += 13 { // truncated anywhere
		if _, err := Load(v.write(good[:n]), v.vm, nil); err == nil {
			t.Fatalf("%d of %d bytes are taken for a file", n, len(good))
		}
	}
	v.refuses("a truncated file", v.write(good[:len(good)-1]), nil, "truncated")
	v.refuses("an empty file", v.write(nil), nil, "got 0 bytes, want a safetensors file")
	v.refuses("a picture", v.write([]byte("\x89PNG\r\n\x1a\n and so on")), nil, "not a safetensors file")
	v.refuses("a folder", v.dir, nil, "got a folder, want a file")
	none := filepath.Join(v.dir, "none")
	v.refuses("no file", none, nil, none)
	if _, err := Load(none, v.vm, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file gives the error %v", err)
	}
	path := v.write(good)
	v.refuses("no pointer", path, position{}, "want a pointer")
	v.refuses("a nil pointer", path, (*position)(nil), "want a pointer")
	v.refuses("another position", path, new([]int), "the position", "cannot unmarshal")
	path = v.write(rewrite(t, good, func(f *safetensors.File, _ *header) { delete(f.Metadata, positionKey) }))
	v.refuses("no position", path, new(position), "without a position")
	checked(t)(Load(path, v.vm, nil)) // all else is right
	if _, err := Load(path, nil, nil); err == nil {
		t.Error("Load into no VM returned no error")
	}
}

// renamed renames a learnable and the tensors that belong to it.
func renamed(from, to string) edit {
	return func(f *safetensors.File, h *header) {
		for i := range f.Tensors {
			if x := &f.Tensors[i]; x.Name == from || strings.HasSuffix(x.Name, "/"+from) {
				x.Name = strings.TrimSuffix(x.Name, from) + to
			}
		}
		h.Learnables[slices.Index(h.Learnables, from)] = to
	}
}

func TestSaveErrors(t *testing.T) {
	dir := t.TempDir()
	m, s := newModel(t, tensor.Float64, 1, 5), G.NewAdamSolver()
	vm := m.machine(t, cudaops.OnHost(), s)
	plain := newModel(t, tensor.Float64, 1, 5)
	untrained := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(plain.g, cudaops.OnHost()))
	defer untrained.Close()
	for want, err := range map[string]error{
		"got a folder, want a file":        Save(dir, vm, nil),
		"no such file":                     Save(filepath.Join(dir, "none", "run"), vm, nil),
		"unsupported type":                 Save(filepath.Join(dir, "run"), vm, func() {}),
		"want a VM with the option Train":  Save(filepath.Join(dir, "run"), untrained, nil),
		"of a VM that NewVM did not make":  Save(filepath.Join(dir, "run"), nil, nil),
		"the position: json: error callin": Save(filepath.Join(dir, "run"), vm, json.RawMessage("{")),
	} {
		if runtime.GOOS == "windows" && want == "no such file" {
			want = "none"
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got the error %v, want one with %q", err, want)
		}
	}
	G.WithLearnRate(math.NaN())(s)
	if err := Save(filepath.Join(dir, "run"), vm, nil); err == nil || !strings.Contains(err.Error(), "the solver's options") {
		t.Errorf("a learning rate of NaN gives the error %v", err)
	}
	if left := testutil.Get[[]os.DirEntry](t)(os.ReadDir(dir)); len(left) > 0 {
		t.Errorf("got the files %v", left)
	}
}

// A state with a number that is not finite, or of a step with an index outside of its axis, is not saved: the
// file that is there stays.
func TestSaveKeepsGoodFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	m := newModel(t, tensor.Float32, 1, 5)
	vm := m.machine(t, cudaops.OnHost(), G.NewAdamSolver(), cudaops.Seed(3))
	m.steps(t, vm, 0, 2)
	testutil.Do(t, Save(path, vm, nil))
	good := testutil.Get[[]byte](t)(os.ReadFile(path))
	unchanged := func(err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got the error %v, want one with %q", err, want)
		}
		if now := testutil.Get[[]byte](t)(os.ReadFile(path)); !bytes.Equal(now, good) {
			t.Fatalf("%s: the file changed", want)
		}
	}
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		what := map[bool]string{true: "NaN", false: "Inf"}[x != x]
		for name, of := range map[string]func(s *cudaops.Snapshot) G.Value{
			"gamma1":              func(s *cudaops.Snapshot) G.Value { return s.Learnables[4].Value },
			"moment2/gamma1":      func(s *cudaops.Snapshot) G.Value { return s.Learnables[4].Moments[1] },
			"batchnorm1/mean":     func(s *cudaops.Snapshot) G.Value { return s.Averages[1].Mean },
			"batchnorm0/variance": func(s *cudaops.Snapshot) G.Value { return s.Averages[0].Variance },
		} {
			s := testutil.Get[*cudaops.Snapshot](t)(vm.Snapshot())
			of(s).(*tensor.Dense).Float32s()[2] = float32(x)
			testutil.Do(t, vm.Restore(s))
			unchanged(Save(path, vm, nil), name+": element 2 is "+what)
			testutil.Get[string](t)(Load(path, vm, nil))
		}
	}

	g, node := G.NewGraph(), testutil.Get[*G.Node](t)
	table := G.NewVector(g, tensor.Float32, G.WithName("table"), G.WithShape(4), G.WithInit(G.RangedFrom(1)))
	at := G.NewVector(g, tensor.Int, G.WithName("at"), G.WithShape(3), G.WithValue(tensor.New(tensor.WithBacking([]int{0, 9, 1}))))
	rows := node(G.ByIndices(table, node(G.Slice(at, G.S(0, 2))), 0))
	testutil.Get[G.Nodes](t)(G.Grad(node(G.Sum(rows)), table))
	vm = testutil.Get[*cudaops.VM](t)(cudaops.NewVM(g, cudaops.OnHost(), cudaops.Train(G.NewAdamSolver(), table), cudaops.ReadEvery(10)))
	defer vm.Close()
	if err := vm.RunAll(); err == nil {
		t.Error("an index of 9 of 4 returned no error")
	}
	unchanged(Save(path, vm, nil), "got index 9 at 1, want 0 to 3")
}

// Whatever the header of a whole file says, loading it returns a state or an error.
func FuzzState(f *testing.F) {
	m := newModel(f, tensor.Float32, 1, 2)
	vm := testutil.Get[*cudaops.VM](f)(cudaops.NewVM(m.g, cudaops.OnHost(), cudaops.Train(G.NewAdamSolver(), m.learnables...)))
	defer vm.Close()
	path := filepath.Join(f.TempDir(), "run")
	testutil.Do(f, Save(path, vm, position{}))
	b := testutil.Get[[]byte](f)(os.ReadFile(path))
	whole := testutil.Get[*safetensors.File](f)(safetensors.New(bytes.NewReader(b), int64(len(b))))
	f.Add(whole.Metadata[headerKey], whole.Metadata[positionKey])
	f.Fuzz(func(t *testing.T, header, at string) {
		own := *whole
		own.Metadata = map[string]string{headerKey: header, positionKey: at}
		h, err := parseHeader(&own)
		if err != nil {
			return
		}
		file := &file{File: &own, header: h}
		if s, err := file.state(); err == nil {
			vm.Restore(s)
		}
		file.parameters(m.learnables, m.norms, loading{})
		file.position(new(position))
	})
}
