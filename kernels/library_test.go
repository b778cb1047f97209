package kernels_test

import (
	"bytes"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/build/manifest"
)

// copied copies one of Stheno's sources with its images into a library of its
// Builtin(), as another module has one.
func copied(t *testing.T, stem string) fstest.MapFS {
	t.Helper()
	s, err := kernels.SourceOf(kernels.Builtin(), stem)
	if err != nil {
		t.Fatal(err)
	}
	m := manifest.Manifest{Sources: []manifest.Source{*s}}
	text, err := manifest.Encode(&m)
	if err != nil {
		t.Fatal(err)
	}
	lib := fstest.MapFS{"images/" + manifest.File: {Data: text}}
	sources := testutil.Get[manifest.Files](t)(manifest.FindFiles(kernels.Files))
	for name := range sources {
		if name == stem+".cu" || path.Ext(name) == ".cuh" {
			lib[name] = &fstest.MapFile{Data: testutil.Get[[]byte](t)(sources.Read(kernels.Files, name))}
		}
	}
	for _, i := range s.Images {
		for _, name := range []string{"images/" + manifest.ImageFile(s.Stem, i.Target), "images/" + manifest.DictionaryFile(i.Target)} {
			if data, err := fs.ReadFile(kernels.Files, name); err == nil {
				lib[name] = &fstest.MapFile{Data: data}
			}
		}
	}
	return lib
}

// A library returns the images that it was made of; its check passes, and fails for
// whatever is not as it was compiled.
func TestLibrary(t *testing.T) {
	right := kernels.NewLibrary("example.com/right", copied(t, "add"))
	if err := kernels.Check(right); err != nil {
		t.Error(err)
	}
	want, err := kernels.Builtin().Image("add").Code(9, 0)
	if err != nil {
		t.Fatal(err)
	}
	got, err := right.Image("add").Code(9, 0)
	if err != nil || !bytes.Equal(got.Text, want.Text) || got.Target != want.Target || got.MinDriver != want.MinDriver {
		t.Errorf("got %d bytes, %s, %d, %v, want %d bytes, %s, %d",
			len(got.Text), got.Target, got.MinDriver, err, len(want.Text), want.Target, want.MinDriver)
	}
	if entries, err := right.Entries("add"); err != nil || !slices.Equal(entries, []string{"add_f32", "add_f64"}) {
		t.Errorf("got entry points %v, %v", entries, err)
	}
	if name := right.Image("add").Name(); name != "example.com/right/add" {
		t.Errorf("the image is called %s", name)
	}

	packed := testutil.Get[[]byte](t)(manifest.Pack("sm_80", []byte("x"), func(file string) ([]byte, error) { return fs.ReadFile(kernels.Files, "images/"+file) }))
	for name, c := range map[string]struct {
		change func(fstest.MapFS)
		want   string
	}{
		"source":  {func(f fstest.MapFS) { f["add.cu"].Data = append([]byte("int n;\n"), f["add.cu"].Data...) }, "changed since it was compiled"},
		"header":  {func(f fstest.MapFS) { f["vector.cuh"].Data = append([]byte("int n;\n"), f["vector.cuh"].Data...) }, "changed since it was compiled"},
		"new":     {func(f fstest.MapFS) { f["sub.cu"] = &fstest.MapFile{} }, `no images of "sub"`},
		"gone":    {func(f fstest.MapFS) { delete(f, "add.cu") }, "no source"},
		"renamed": {func(f fstest.MapFS) { f["sub.cu"] = f["add.cu"]; delete(f, "add.cu") }, `no images of "sub"`},
		"image":   {func(f fstest.MapFS) { delete(f, "images/add.sm_80.cubin.lz") }, "add.cu for sm_80"},
		"bytes": {func(f fstest.MapFS) {
			f["images/add.sm_80.cubin.lz"] = &fstest.MapFile{Data: packed}
		},
			"not the file that the manifest describes"},
		"manifest": {func(f fstest.MapFS) { delete(f, "images/manifest.json") }, "compile the sources first"},
		"broken":   {func(f fstest.MapFS) { f["images/manifest.json"].Data = []byte("{") }, "manifest.json"},
	} {
		lib := copied(t, "add")
		c.change(lib)
		if err := kernels.Check(kernels.NewLibrary("example.com/broken", lib)); err == nil ||
			!strings.Contains(err.Error(), c.want) || strings.Count(err.Error(), "kernels of example.com/broken: ") != 1 {
			t.Errorf("%s: got error %v, want one with the library's name and %q", name, err, c.want)
		}
	}

	absent := copied(t, "add")
	delete(absent, "images/add.sm_90a.cubin.lz")
	for want, image := range map[string]kernels.Image{
		`kernels of example.com/right: no images of "sub"`: right.Image("sub"),
		`kernels of stheno: no images of "no-such-source"`: kernels.Builtin().Image("no-such-source"),
		"compile the sources first":                        kernels.NewLibrary("example.com/absent", absent).Image("add"),
	} {
		if _, err := image.Code(9, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one with %q", image.Name(), err, want)
		}
	}
}

// A comment may be edited: the images still belong to the sources, and what was recorded of the
// kernels still is of them.
func TestComments(t *testing.T) {
	lib := copied(t, "sum")
	for _, name := range []string{"sum.cu", "reduce.cuh"} {
		text := string(lib[name].Data)
		edited := "/* One more,\n   of two lines. */\n\n" + strings.Replace(text, "// ", "// Said in other words: ", -1)
		if edited == text || !strings.Contains(edited, "other words") {
			t.Fatalf("%s has no comment to edit", name)
		}
		lib[name].Data = []byte(edited)
	}
	edited := kernels.NewLibrary("example.com/edited", lib)
	if err := kernels.Check(edited); err != nil {
		t.Errorf("with other comments: %v", err)
	}
	if got, want := edited.Digests()["example.com/edited/sum"], kernels.Builtin().Digests()["sum"]; got != want {
		t.Errorf("with other comments the digest is %q, want %q", got, want)
	}
}

// Images are one where library and source are: another library's are others, also
// if it has the same name.
func TestImageIdentity(t *testing.T) {
	a, b := kernels.NewLibrary("example.com/own", copied(t, "add")), kernels.NewLibrary("example.com/own", copied(t, "add"))
	if a.Image("add") != a.Image("add") || a.Kernel("add", "add_f32", nil).Image != a.Image("add") {
		t.Error("one source has two images")
	}
	if a.Image("add") == b.Image("add") || a.Image("add") == a.Image("sub") {
		t.Error("two sources have one image")
	}
}

// A library that NewLibrary did not create returns an error, and so does a library without the images of a
// source. The error names the missing part.
func TestLibraryWithout(t *testing.T) {
	m := manifest.Manifest{Sources: []manifest.Source{{Stem: "x"}}}
	text, err := manifest.Encode(&m)
	if err != nil {
		t.Fatal(err)
	}
	bare := kernels.NewLibrary("bare", fstest.MapFS{"x.cu": {}, "images/" + manifest.File: {Data: text}})
	for _, l := range []*kernels.Library{nil, {}} {
		unmade := func(_ any, err error) error { return err }
		for what, err := range map[string]error{
			"Check": kernels.Check(l), "Check of a plan": kernels.Check(l, nil), "Entries": unmade(l.Entries("x")), "Manifest": unmade(l.Manifest()), "Source": unmade(l.Source("x.cu")),
			"Code": unmade(l.Image("x").Code(9, 0)), "a kernel's code": unmade(l.Kernel("x", "x_f32", nil).Image.Code(9, 0)),
		} {
			if err == nil || !strings.Contains(err.Error(), "that NewLibrary did not make") {
				t.Errorf("%s of %#v: %v, want an error that NewLibrary did not make it", what, l, err)
			}
		}
	}
	if names, err := bare.Entries("x"); err == nil || !strings.Contains(err.Error(), `kernels of bare: no images of "x"`) {
		t.Errorf("got entry points %v, %v, want an error that there are no images", names, err)
	}
	if err := kernels.Check(bare); err == nil {
		t.Error("Check of a source without images is no error")
	}
}
