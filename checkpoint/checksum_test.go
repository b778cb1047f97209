package checkpoint

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/checkpoint/safetensors"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// small is a training with a small file.
type small struct {
	path string
	w    *G.Node
	vm   *cudaops.VM
	good []byte // its file
}

func newSmall(t *testing.T) *small {
	g, node := G.NewGraph(), testutil.Get[*G.Node](t)
	w := G.NewVector(g, tensor.Float32, G.WithName("w"), G.WithValue(tensor.New(tensor.WithBacking([]float32{1, 2, -3}))))
	testutil.Get[G.Nodes](t)(G.Grad(node(G.Sum(node(G.Square(w)))), w))
	vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(g, cudaops.OnHost(), cudaops.Seed(1), cudaops.Train(G.NewMomentum(), w)))
	t.Cleanup(func() { testutil.Do(t, vm.Close()) })
	testutil.Do(t, vm.RunAll())
	s := &small{path: filepath.Join(t.TempDir(), "run"), w: w, vm: vm}
	testutil.Do(t, Save(s.path, vm, 1))
	s.good = testutil.Get[[]byte](t)(os.ReadFile(s.path))
	return s
}

// load writes a file and loads it in both ways.
func (s *small) load(t *testing.T, b []byte) (note string, all, parameters error) {
	t.Helper()
	testutil.Do(t, os.WriteFile(s.path, b, 0o666))
	var at int
	note, all = Load(s.path, s.vm, &at)
	second, parameters := LoadParameters(s.path, G.Nodes{s.w})
	if all == nil && parameters == nil && note != second.Note {
		t.Errorf("Load has the note %q, LoadParameters %q", note, second.Note)
	}
	return note, all, parameters
}

// A file with any one bit changed is refused, and so is one with a byte less or more.
func TestEachBit(t *testing.T) {
	s := newSmall(t)
	if note, all, parameters := s.load(t, s.good); note != "" || all != nil || parameters != nil {
		t.Fatalf("got the note %q, %v, %v for a whole file", note, all, parameters)
	}
	loaded := 0
	refused := func(what string, k int, b []byte) {
		whole, err := safetensors.New(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		f, err := newFile(whole)
		if err != nil {
			return
		}
		_, all := f.state()
		if _, _, err := f.parameters(G.Nodes{s.w}, nil, loading{}); all == nil || err == nil {
			if loaded++; loaded <= 10 {
				t.Errorf("%s %d of %d: the state: %v, the parameters: %v, want errors", what, k, len(s.good), all, err)
			}
		}
	}
	for k := range 8 * len(s.good) {
		b := slices.Clone(s.good)
		b[k/8] ^= 1 << (k % 8)
		refused("bit", k, b)
	}
	for k := range s.good {
		refused("without byte", k, slices.Delete(slices.Clone(s.good), k, k+1))
		refused("a space before byte", k, slices.Insert(slices.Clone(s.good), k, ' '))
	}
	if loaded > 0 {
		t.Errorf("%d damaged files were loaded, want none", loaded)
	}
}

// Files without a checksum: those of before are loaded with a note, those of other programs as
// parameters with a note, and those that must have one are refused.
func TestWithoutChecksum(t *testing.T) {
	s := newSmall(t)
	bare := func(change edit) []byte {
		return rewrite(t, s.good, func(f *safetensors.File, h *header) {
			delete(f.Metadata, checksumKey)
			change(f, h)
		})
	}
	// of moves the text of our metadata to another name.
	of := func(key string) edit {
		return func(f *safetensors.File, _ *header) {
			f.Metadata[key] = f.Metadata[headerKey]
			delete(f.Metadata, headerKey)
		}
	}
	foreign := func(f *safetensors.File, _ *header) {
		f.Tensors = slices.DeleteFunc(f.Tensors, func(x safetensors.Tensor) bool { return x.Name != "w" })
	}
	const refused = "checksum"
	for what, c := range map[string]struct {
		b                     []byte
		note, all, parameters string // parts of the note and of the errors, "" for none
	}{
		"version 1": {bare(func(_ *safetensors.File, h *header) { h.Version = 1 }), "of version 1, which has no checksum", "", ""},
		"version 2": {bare(func(*safetensors.File, *header) {}), "", refused, refused},
		"version 3": {bare(func(_ *safetensors.File, h *header) { h.Version = 3 }), "", refused, refused},
		"version 5": {bare(func(_ *safetensors.File, h *header) { h.Version = 5 }), "", "version 5", "version 5"},
		"a changed key, whose other tensors nobody asks for": {bare(func(f *safetensors.File, h *header) { of("stheno1")(f, h); foreign(f, h) }), "", refused, refused},
		"the key without a letter":                           {bare(of("theno")), "", refused, refused},
		"a letter of the key changed":                        {bare(of("sthenn")), "", refused, refused},
		"a letter more in the key":                           {bare(of("stheeno")), "", refused, refused},
		"the checksum's key changed": {bare(func(f *safetensors.File, h *header) {
			of("Stheno.sha256")(f, h)
			foreign(f, h)
		}), "", refused, refused},
		"the checksum under another key": {rewrite(t, s.good, func(f *safetensors.File, _ *header) {
			f.Metadata["sha256"] = f.Metadata[checksumKey]
			delete(f.Metadata, checksumKey)
		}), "", refused, refused},
		"other metadata":                   {bare(func(f *safetensors.File, h *header) { of("sten")(f, h); foreign(f, h) }), "another program", "without a training state", ""},
		"no metadata":                      {bare(func(f *safetensors.File, h *header) { f.Metadata = nil; foreign(f, h) }), "another program", "without a position", ""},
		"another program's, with checksum": {rewrite(t, s.good, func(f *safetensors.File, h *header) { delete(f.Metadata, headerKey); foreign(f, h) }), "", "without a training state", ""},
	} {
		note, all, parameters := s.load(t, c.b)
		if all != nil && parameters == nil {
			note = testutil.Get[Loaded](t)(LoadParameters(s.path, G.Nodes{s.w})).Note
		}
		for _, x := range []struct {
			of, want string
			err      error
		}{{"Load", c.all, all}, {"LoadParameters", c.parameters, parameters}} {
			if (x.err == nil) != (x.want == "") || x.err != nil && !strings.Contains(x.err.Error(), x.want) {
				t.Errorf("%s: %s: got the error %v, want one with %q", what, x.of, x.err, x.want)
			}
		}
		if (note == "") != (c.note == "") || !strings.Contains(note, c.note) {
			t.Errorf("%s: got the note %q, want one with %q", what, note, c.note)
		}
	}
}

// A checksum that is no checksum is an error.
func TestBadChecksum(t *testing.T) {
	s := newSmall(t)
	digits := bytes.Index(s.good, []byte(checksumKey)) + len(checksumKey+`":"\"`)
	for what, edit := range map[string]func(b []byte) []byte{
		"upper case": func(b []byte) []byte { copy(b[digits:], bytes.ToUpper(b[digits:][:64])); return b },
		"zeros":      func(b []byte) []byte { copy(b[digits:], noDigits); return b },
		"all of another": func(b []byte) []byte {
			other := newSmall(t).good
			copy(b[digits:], other[digits:][:63])
			b[digits+63] ^= 1
			return b
		},
	} {
		if _, all, parameters := s.load(t, edit(slices.Clone(s.good))); all == nil || parameters == nil {
			t.Errorf("%s: Load: %v, LoadParameters: %v, want errors", what, all, parameters)
		}
	}
}

func TestOneEdit(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"", "", false}, {"", "a", true}, {"a", "b", true}, {"ab", "ab", false}, {"ab", "ba", false}, {"abc", "ac", true}, {"abc", "bc", true},
		{"abc", "ab", true}, {"abc", "a", false}, {"abc", "axc", true}, {"abc", "axd", false}, {"aab", "ab", true}, {"abcd", "acbd", false},
	} {
		if oneEdit(c.a, c.b) != c.want || oneEdit(c.b, c.a) != c.want {
			t.Errorf("oneEdit(%q, %q) is %v or %v, want %v", c.a, c.b, oneEdit(c.a, c.b), oneEdit(c.b, c.a), c.want)
		}
	}
}
