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

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/must"
	"github.com/stheno-ml/stheno/internal/safetensors"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// rewrite returns a file with other contents: change may do anything to what it says and has.
func rewrite(t testing.TB, b []byte, change func(f *safetensors.File, h *header)) []byte {
	f := must.Get[*safetensors.File](t)(safetensors.Open(bytes.NewReader(b), int64(len(b))))
	for i := range f.Tensors {
		x := &f.Tensors[i]
		n := must.Get[int](t)(x.Bytes())
		x.Data = make([]byte, n)
		must.Do(t, f.Read(x, x.Data))
	}
	var h header
	must.Do(t, json.Unmarshal([]byte(f.Metadata[headerKey]), &h))
	before := f.Metadata[headerKey]
	change(f, &h)
	if f.Metadata[headerKey] == before {
		f.Metadata[headerKey] = string(must.Get[[]byte](t)(json.Marshal(h)))
	}
	var w bytes.Buffer
	must.Do(t, safetensors.Write(&w, f.Metadata, f.Tensors))
	return w.Bytes()
}

// What cannot be loaded is an error that says what it got and wants, and changes nothing.
func TestLoadErrors(t *testing.T) {
	dir := t.TempDir()
	save := func(name string, m *model, s G.Solver, opts ...cudaops.Option) []byte {
		vm := m.machine(t, cudaops.OnHost(), s, append(opts, cudaops.Seed(3))...)
		m.steps(t, vm, 0, 2)
		must.Do(t, Save(filepath.Join(dir, name), vm, position{Step: 2}))
		return must.Get[[]byte](t)(os.ReadFile(filepath.Join(dir, name)))
	}
	adam := func() G.Solver { return G.NewAdamSolver(G.WithL2Reg(0.5)) }
	good := save("good", newModel(t, tensor.Float32, 1, 5), adam())
	wider := save("wider", newModel(t, tensor.Float32, 1, 6), adam())
	double := save("double", newModel(t, tensor.Float64, 1, 5), adam())
	momentum := save("momentum", newModel(t, tensor.Float32, 1, 5), G.NewMomentum())
	other := save("options", newModel(t, tensor.Float32, 1, 5), G.NewAdamSolver(G.WithL2Reg(0.25)))
	clipped := save("clipped", newModel(t, tensor.Float32, 1, 5), adam(), cudaops.ClipNorm(2))
	edited := func(change func(f *safetensors.File, h *header)) []byte { return rewrite(t, good, change) }
	find := func(f *safetensors.File, name string) int {
		return slices.IndexFunc(f.Tensors, func(x safetensors.Tensor) bool { return x.Name == name })
	}

	m := newModel(t, tensor.Float32, 4, 5)
	vm := m.machine(t, cudaops.OnHost(), adam(), cudaops.Seed(4))
	m.steps(t, vm, 0, 3)
	kept, before := state(t, vm)
	refused := func(what, path string, to any, wants ...string) {
		t.Helper()
		err := Load(path, vm, to)
		if err == nil {
			t.Fatalf("%s: no error", what)
		}
		for _, want := range wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got the error %v, want one with %q", what, err, want)
			}
		}
		now, after := state(t, vm)
		if !maps.EqualFunc(after, before, bytes.Equal) || now.Steps != kept.Steps || now.Seed != kept.Seed || now.Runs != kept.Runs {
			t.Fatalf("%s: it changed the VM", what)
		}
	}
	for what, c := range map[string]struct {
		b    []byte
		want string
	}{
		"empty":            {nil, "got 0 bytes, want a safetensors file"},
		"no safetensors":   {[]byte("\x89PNG\r\n\x1a\n and so on"), "no safetensors file"},
		"another shape":    {wider, "learnable w0: got float32 of shape (4, 6), want float32 of shape (4, 5)"},
		"another type":     {double, "learnable w0: got float64 of shape (4, 5), want float32"},
		"another solver":   {momentum, `got a state of the solver "Momentum", want AdamSolver`},
		"other options":    {other, "L2Reg 0.25, want 0.5"},
		"a limit of norms": {clipped, "ClipNorm 2, want one without"},
		"a newer version":  {edited(func(_ *safetensors.File, h *header) { h.Version = 2 }), "got a file of version 2, want 1"},
		"no version":       {edited(func(f *safetensors.File, _ *header) { f.Metadata[headerKey] = "{}" }), "got a file of version 0, want 1"},
		"no JSON":          {edited(func(f *safetensors.File, _ *header) { f.Metadata[headerKey] = "1" }), "cannot unmarshal"},
		"unknown metadata": {edited(func(f *safetensors.File, _ *header) { f.Metadata[headerKey] = `{"version":1,"more":2}` }), `unknown field "more"`},
		"no metadata":      {edited(func(f *safetensors.File, _ *header) { f.Metadata[headerKey+"2"] = ""; delete(f.Metadata, headerKey) }), "without the state"},
		"of parameters":    {edited(func(_ *safetensors.File, h *header) { h.Training = nil }), "got a file of SaveParameters"},
		"a BatchNorm less": {edited(func(f *safetensors.File, h *header) {
			h.BatchNorms = 1
			f.Tensors = slices.DeleteFunc(f.Tensors, func(x safetensors.Tensor) bool { return strings.HasPrefix(x.Name, "batchnorm1") })
		}), "of 1 BatchNorms, want 2"},
		"a tensor less":      {edited(func(f *safetensors.File, _ *header) { f.Tensors = f.Tensors[1:] }), "want those of 7 learnables with 2 moments each and of 2 BatchNorms"},
		"negative numbers":   {edited(func(_ *safetensors.File, h *header) { h.Moments, h.BatchNorms = -1, -1 }), "want those of"},
		"a tensor renamed":   {edited(func(f *safetensors.File, _ *header) { f.Tensors[find(f, "moment2/w1")].Name = "moment2/w9" }), `without the tensor "moment2/w1"`},
		"a learnable more":   {edited(func(_ *safetensors.File, h *header) { h.Learnables[0] = "beta0" }), "two learnables beta0"},
		"learnables renamed": {rewriteNames(edited, "w1", "w9"), "gamma1, beta1, scale, want w1 too"},
		"whole numbers":      {edited(func(f *safetensors.File, _ *header) { f.Tensors[find(f, "scale")].Dtype = "I32" }), `"scale": got elements of I32, want F32 or F64`},
		"no elements": {edited(func(f *safetensors.File, _ *header) {
			x := &f.Tensors[find(f, "scale")]
			x.Shape, x.Data = []int{0}, nil
		}), "want at least one element"},
		"a vector":        {edited(func(f *safetensors.File, _ *header) { f.Tensors[find(f, "scale")].Shape = []int{1} }), "scale: got float32 of shape (1), want float32 of shape ()"},
		"before it began": {edited(func(_ *safetensors.File, h *header) { h.Training.Steps = -1 }), "after -1 steps"},
	} {
		path := filepath.Join(dir, "bad")
		must.Do(t, os.WriteFile(path, c.b, 0o666))
		var at position
		refused(what, path, &at, c.want, path)
		if at != (position{}) {
			t.Errorf("%s: it set the position", what)
		}
	}
	for n := 0; n < len(good); n += 13 { // truncated anywhere
		path := filepath.Join(dir, "bad")
		must.Do(t, os.WriteFile(path, good[:n], 0o666))
		if err := Load(path, vm, nil); err == nil {
			t.Fatalf("%d of %d bytes are taken for a file", n, len(good))
		}
	}
	refused("a truncated file", filepath.Join(dir, "bad"), nil, "truncated")
	refused("a folder", dir, nil, "got a folder, want a file")
	refused("no file", filepath.Join(dir, "none"), nil, "none")
	if err := Load(filepath.Join(dir, "none"), vm, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file gives the error %v", err)
	}
	whole := filepath.Join(dir, "good")
	refused("no pointer", whole, position{}, "want a pointer")
	refused("a nil pointer", whole, (*position)(nil), "want a pointer")
	refused("another position", whole, new([]int), "its position", "cannot unmarshal")
	must.Do(t, os.WriteFile(whole, edited(func(f *safetensors.File, _ *header) { delete(f.Metadata, positionKey) }), 0o666))
	refused("no position", whole, new(position), "without a position")
	must.Do(t, Load(whole, vm, nil)) // all else is right
	if err := Load(whole, nil, nil); err == nil {
		t.Error("Load into no VM is no error")
	}
}

// rewriteNames renames a learnable and what belongs to it.
func rewriteNames(edited func(func(*safetensors.File, *header)) []byte, from, to string) []byte {
	return edited(func(f *safetensors.File, h *header) {
		for i := range f.Tensors {
			if x := &f.Tensors[i]; x.Name == from || strings.HasSuffix(x.Name, "/"+from) {
				x.Name = strings.TrimSuffix(x.Name, from) + to
			}
		}
		h.Learnables[slices.Index(h.Learnables, from)] = to
	})
}

func TestSaveErrors(t *testing.T) {
	dir := t.TempDir()
	m, s := newModel(t, tensor.Float64, 1, 5), G.NewAdamSolver()
	vm := m.machine(t, cudaops.OnHost(), s)
	plain := newModel(t, tensor.Float64, 1, 5)
	untrained := must.Get[*cudaops.VM](t)(cudaops.NewVM(plain.g, cudaops.OnHost()))
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
	if left := must.Get[[]os.DirEntry](t)(os.ReadDir(dir)); len(left) > 0 {
		t.Errorf("got the files %v", left)
	}
}

// Whatever a file says, it gives a state or an error.
func FuzzState(f *testing.F) {
	m := newModel(f, tensor.Float32, 1, 2)
	vm := must.Get[*cudaops.VM](f)(cudaops.NewVM(m.g, cudaops.OnHost(), cudaops.Train(G.NewAdamSolver(), m.learnables...)))
	defer vm.Close()
	path := filepath.Join(f.TempDir(), "run")
	must.Do(f, Save(path, vm, position{}))
	f.Add(must.Get[[]byte](f)(os.ReadFile(path)))
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := newFile(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		if s, err := file.state(); err == nil {
			vm.SetState(s)
		}
		file.parameters(m.learnables, m.norms)
		file.position(new(position))
	})
}
