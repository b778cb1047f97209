package kernels

import (
	"bytes"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stheno-ml/stheno/kernels/build/manifest"
)

// copied copies one of Stheno's sources with its images into a library of its
// own, as another module has one.
func copied(t *testing.T, stem string) fstest.MapFS {
	t.Helper()
	s, err := source(stem)
	if err != nil {
		t.Fatal(err)
	}
	m := manifest.Manifest{Sources: []manifest.Source{*s}}
	text, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	lib := fstest.MapFS{"images/" + manifest.File: {Data: text}}
	names := []string{stem + ".cu", "vector.cuh"}
	for _, i := range s.Images {
		names = append(names, "images/"+i.File)
	}
	for _, name := range names {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			t.Fatal(err)
		}
		lib[name] = &fstest.MapFile{Data: data}
	}
	return lib
}

// A library's images are found under its name; its check passes, and fails for
// whatever is not as it was compiled.
func TestRegister(t *testing.T) {
	Register("example.com/right", copied(t, "add"))
	if err := Check("example.com/right"); err != nil {
		t.Error(err)
	}
	want, target, driver, err := Image("add", 9, 0)
	if err != nil {
		t.Fatal(err)
	}
	got, gotTarget, gotDriver, err := Image("example.com/right/add", 9, 0)
	if err != nil || !bytes.Equal(got, want) || gotTarget != target || gotDriver != driver {
		t.Errorf("got %d bytes, %s, %d, %v, want %d bytes, %s, %d", len(got), gotTarget, gotDriver, err, len(want), target, driver)
	}
	if SourceHash("example.com/right/add") != SourceHash("add") || SourceHash("add") == "" {
		t.Error("the copy has another hash")
	}

	for name, c := range map[string]struct {
		change func(fstest.MapFS)
		want   string
	}{
		"source":  {func(f fstest.MapFS) { f["add.cu"].Data = append([]byte("// new\n"), f["add.cu"].Data...) }, "changed since it was compiled"},
		"header":  {func(f fstest.MapFS) { f["vector.cuh"].Data = append([]byte("// new\n"), f["vector.cuh"].Data...) }, "changed since it was compiled"},
		"new":     {func(f fstest.MapFS) { f["sub.cu"] = &fstest.MapFile{} }, `no kernel images of "sub"`},
		"gone":    {func(f fstest.MapFS) { delete(f, "add.cu") }, "no source"},
		"renamed": {func(f fstest.MapFS) { f["sub.cu"] = f["add.cu"]; delete(f, "add.cu") }, `no kernel images of "sub"`},
		"image":   {func(f fstest.MapFS) { delete(f, "images/add.sm_80.cubin.gz") }, "add.cu for sm_80"},
		"bytes": {func(f fstest.MapFS) {
			f["images/add.sm_80.cubin.gz"] = &fstest.MapFile{Data: manifest.Pack([]byte("x"))}
		},
			"not the file that the manifest describes"},
		"manifest": {func(f fstest.MapFS) { delete(f, "images/manifest.json") }, "compile the sources first"},
		"broken":   {func(f fstest.MapFS) { f["images/manifest.json"].Data = []byte("{") }, "manifest.json"},
	} {
		lib := copied(t, "add")
		c.change(lib)
		Register("broken/"+name, lib)
		if err := Check("broken/" + name); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want one with %q", name, err, c.want)
		}
	}

	Register("example.com/twice", copied(t, "add"))
	Register("example.com/twice", copied(t, "add"))
	for module, want := range map[string]string{
		"example.com/right/sub":   `no kernel images of "sub"`,
		"example.com/absent/add":  `registered as "example.com/absent"`,
		"example.com/twice/add":   "twice",
		"broken/manifest/add":     "compile the sources first",
		"/add":                    `registered as ""`,
		"no-such-source-of-ours-": "no kernel images",
	} {
		if _, _, _, err := Image(module, 9, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one with %q", module, err, want)
		}
	}
	if err := Check("example.com/absent"); err == nil {
		t.Error("a library that is not there passes")
	}
}
