package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/build/manifest"
)

func TestParseLog(t *testing.T) {
	const log = `nvrtc: warning: Architectures prior to '<compute/sm>_75' are deprecated and may be removed in a future release
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'sum_f64' for 'sm_80'
ptxas info    : Function properties for sum_f64
    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 16 bytes cumulative stack size, 1024 bytes smem, 388 bytes cmem[0]
ptxas info    : Compiling entry function 'sum_f32' for 'sm_80'
ptxas info    : Function properties for sum_f32
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 34 registers, used 0 barriers, 384 bytes cmem[0]
sum.cu(3): warning #177-D: variable "x" was declared but never referenced
`
	kernels, warnings := parseLog(log)
	want := []manifest.Kernel{
		{Name: "sum_f32", Registers: 34},
		{Name: "sum_f64", Registers: 255, Stack: 16, Spill: 20, Shared: 1024},
	}
	if !slices.Equal(kernels, want) {
		t.Errorf("got %+v, want %+v", kernels, want)
	}
	if !strings.HasPrefix(warnings, "sum.cu(3)") || strings.Count(warnings, "\n") != 1 {
		t.Errorf("warnings are %q", warnings)
	}
}

// testBuilder returns a builder for a folder of two sources that share a header. Its
// compiler makes images that depend only on the text before any comment. compiled returns the
// number and names of the sources compiled since its last call.
func testBuilder(t *testing.T) (b *builder, compiled func() string) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.cu": "#include \"h.cuh\"\n a", "b.cu": "b", "h.cuh": "1"} {
		put(t, filepath.Join(dir, name), text)
	}
	var mu sync.Mutex
	var asked []string
	b = &builder{dir: dir, out: filepath.Join(dir, "images"), targets: manifest.Targets, workers: 2, log: io.Discard}
	b.compile = func(name, target string, source []byte) ([]byte, string, error) {
		if name == "empty.cu" {
			return []byte("// Cuda compilation tools, release 1.2, V1.2.3\n"), "", nil
		}
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, name)
		if strings.Contains(string(source), "error") {
			return nil, "line 1", errors.New("it does not compile")
		}
		code, _, _ := strings.Cut(string(source), "//")
		return []byte(target + code), "", nil
	}
	return b, func() string {
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(asked)
		what := fmt.Sprint(len(asked), " of ", slices.Compact(asked))
		asked = nil
		return what
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// A folder with a packed manifest has dictionaries. They stay as they are when their source changes; without one, all images are compiled again.
func TestBuildMakesDictionaries(t *testing.T) {
	b, compiled := testBuilder(t)
	in := func(name string) string { return filepath.Join(b.dir, name) }
	source, dictionary := in(manifest.Dictionary+".cu"), in("images/"+manifest.DictionaryFile("sm_80"))
	put(t, source, strings.Repeat("a", 100))
	testutil.Do(t, os.Mkdir(b.out, 0o777))
	put(t, filepath.Join(b.out, manifest.PackedFile), "")
	var first []byte
	for _, step := range []struct {
		name   string
		change func()
		want   string
		same   bool
	}{
		{"at first", func() {}, "18 of [a.cu b.cu sum.cu]", false},
		{"the source changed", func() { put(t, source, strings.Repeat("b", 100)) }, "6 of [sum.cu]", true},
		{"the dictionary is gone", func() { os.Remove(dictionary) }, "18 of [a.cu b.cu sum.cu]", false},
	} {
		step.change()
		testutil.Do(t, b.build(false))
		if got := compiled(); got != step.want {
			t.Errorf("%s: compiled %s, want %s", step.name, got, step.want)
		}
		testutil.Do(t, b.check(time.Hour, ""))
		compiled()
		packed := testutil.Read(t, dictionary)
		if same := bytes.Equal(packed, first); same != step.same {
			t.Errorf("%s: the dictionary is as it was: %v, want %v", step.name, same, step.same)
		}
		first = packed
	}
}

// Images of unchanged sources are kept; a source that has changed, or lacks an image, is compiled for
// every target.
func TestBuildCompilesWhatChanged(t *testing.T) {
	b, compiled := testBuilder(t)
	in := func(name string) string { return filepath.Join(b.dir, name) }
	for _, step := range []struct {
		name   string
		change func()
		want   string
	}{
		{"at first", func() {}, "12 of [a.cu b.cu]"},
		{"nothing changed", func() {}, "0 of []"},
		{"a source changed", func() { put(t, in("b.cu"), "c") }, "6 of [b.cu]"},
		{"a header changed", func() { put(t, in("h.cuh"), "2") }, "6 of [a.cu]"},
		{"comments changed", func() { put(t, in("h.cuh"), "/* two */\n2"); put(t, in("b.cu"), "c// see") }, "0 of []"},
		{"an image is gone", func() { os.Remove(in("images/a.ptx.lz")) }, "6 of [a.cu]"},
		{"an image is another", func() { os.Rename(in("images/b.ptx.lz"), in("images/b.sm_80.cubin.lz")) }, "6 of [b.cu]"},
		{"a source is new", func() { put(t, in("d.cu"), "d") }, "6 of [d.cu]"},
		{"a source is gone", func() { os.Remove(in("d.cu")) }, "0 of []"},
		{"images are omitted", func() { put(t, in("b.cu"), "c\n//stheno:targets sm_80 ptx\n") }, "6 of [b.cu]"},
		{"an image is for tests", func() { put(t, in("a.cu"), "#include \"h.cuh\"\n a\n//stheno:tests sm_90a\n") }, "6 of [a.cu]"},
		{"of all", func() { b.all = true }, "12 of [a.cu b.cu]"},
		{"of all, one", func() { b.only = "b" }, "6 of [b.cu]"},
	} {
		step.change()
		if err := b.build(false); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if got := compiled(); got != step.want {
			t.Errorf("%s: compiled %s, want %s", step.name, got, step.want)
		}
		if err := b.check(time.Hour, ""); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		compiled()
	}
	few, _ := testBuilder(t)
	few.targets = []string{"sm_80", manifest.PTX}
	if err := few.build(false); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(few.check(time.Hour, ""), kernels.Check(kernels.NewLibrary("few", os.DirFS(few.dir)))); err != nil {
		t.Errorf("for few targets: %v", err)
	}
	if files, _ := os.ReadDir(b.out); len(files) != 9 {
		t.Errorf("%d files, want 6 images of a, 2 of b and the manifest", len(files))
	}
	if _, err := os.Stat(in("images/a.sm_90a" + manifest.TestsEnding)); err != nil {
		t.Error(err)
	}
	whole := kernels.NewLibrary("whole", os.DirFS(b.dir))
	for _, c := range []struct {
		stem  string
		major int
		want  string
	}{{"b", 7, manifest.PTX}, {"b", 8, "sm_80"}, {"a", 9, "sm_90a"}} {
		if code, err := whole.Image(c.stem).Code(c.major, 0); err != nil || code.Target != c.want {
			t.Errorf("a device of %d.0 loads %s of %s, %v, want %s", c.major, code.Target, c.stem, err, c.want)
		}
	}
	b.all, b.only = false, ""
	put(t, in("b.cu"), "error")
	if err := b.build(false); err == nil || !strings.Contains(err.Error(), "line 1") || strings.Count(err.Error(), "\n") > 1 {
		t.Errorf("a source that does not compile: %v, want the compiler's message, once", err)
	}
}

func TestCheckFindsWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		change func(b *builder)
		want   string
	}{
		"another source": {func(b *builder) { put(t, filepath.Join(b.dir, "h.cuh"), "2") }, "a.cu or a header that it includes has changed"},
		"a new source":   {func(b *builder) { put(t, filepath.Join(b.dir, "d.cu"), "d") }, "d.cu has not been compiled"},
		"a source gone":  {func(b *builder) { os.Remove(filepath.Join(b.dir, "b.cu")) }, "images of b.cu, which is gone"},
		"other targets":  {func(b *builder) { put(t, filepath.Join(b.dir, "b.cu"), "//stheno:targets ptx\nb") }, "b.cu has not been compiled for"},
		"wrong targets":  {func(b *builder) { put(t, filepath.Join(b.dir, "b.cu"), "//stheno:targets sm_80\nb") }, "ptx among them"},
		"wrong tests":    {func(b *builder) { put(t, filepath.Join(b.dir, "b.cu"), "//stheno:tests sm_80 ptx\nb") }, "ptx not among them"},
		"not for tests":  {func(b *builder) { put(t, filepath.Join(b.dir, "b.cu"), "//stheno:tests sm_80\nb") }, "b.cu has not been compiled for"},
		"an image gone":  {func(b *builder) { os.Remove(filepath.Join(b.out, "b.ptx.lz")) }, "b.ptx.lz"},
		"another image": {func(b *builder) {
			put(t, filepath.Join(b.out, "b.ptx.lz"), string(testutil.Get[[]byte](t)(manifest.Pack(manifest.PTX, nil, nil))))
		}, "b.ptx.lz is not the file"},
		"not packed": {func(b *builder) { put(t, filepath.Join(b.out, "b.ptx.lz"), "b") }, "b.ptx.lz"},
		"other bytes": {func(b *builder) {
			compile := b.compile
			b.compile = func(name, target string, source []byte) ([]byte, string, error) {
				image, log, err := compile(name, target, source)
				if name == "b.cu" && target == "sm_80" {
					image = append(image, '!')
				}
				return image, log, err
			}
		}, "b.sm_80.cubin.lz differs"},
		"another compiler": {func(b *builder) {
			b.compile = func(string, string, []byte) ([]byte, string, error) { return nil, "", nil }
		}, "compiled by NVRTC 1.2.3"},
	} {
		b, _ := testBuilder(t)
		if err := b.build(false); err != nil {
			t.Fatal(err)
		}
		c.change(b)
		if err := b.check(time.Hour, ""); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in the error", name, err, c.want)
		}
	}
}

// Sources whose images are not those of a git revision come first, and a limit
// ends the compiling.
func TestCheckOrder(t *testing.T) {
	b, compiled := testBuilder(t)
	git := func(args ...string) {
		t.Helper()
		args = append([]string{"-C", b.dir, "-c", "user.name=a", "-c", "user.email=a@b"}, args...)
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Skipf("git %v: %v: %s", args, err, out)
		}
	}
	if err := b.build(false); err != nil {
		t.Fatal(err)
	}
	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "a")
	put(t, filepath.Join(b.dir, "b.cu"), "c")
	if err := b.build(false); err != nil {
		t.Fatal(err)
	}
	_, m, err := b.manifests()
	if err != nil {
		t.Fatal(err)
	}
	first, rest, err := b.order(m, "HEAD")
	if err != nil || len(first) != 6 || len(rest) != 6 || first[5].source.Stem != "b" || rest[5].source.Stem != "a" {
		t.Errorf("%v and %v, %v, want the images of b before those of a", first, rest, err)
	}
	compiled()
	if err := b.check(0, "HEAD"); err != nil || compiled() != "0 of []" {
		t.Errorf("within no time: %v", err)
	}
	if err := b.check(time.Hour, "nothing"); err == nil || !strings.Contains(err.Error(), `"nothing"`) {
		t.Errorf("no revision of that name: %v", err)
	}
}

// The compiler runs in processes of its own, here of the test program, and the
// same source makes the same image however many run at once.
func TestCompilesReproducibly(t *testing.T) {
	b := &builder{dir: "..", toolkit: "../../.toolkit", log: io.Discard}
	_, err := os.Stat(b.toolkit)
	testutil.SkipUnless(t, "TOOLKIT", err)
	b.compile = b.startCompiler
	_, m, err := (&builder{dir: "..", out: "../images", targets: manifest.Targets}).manifests()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := b.version(); err != nil || got != m.Compiler {
		t.Errorf("the compiler is %s, %v, want that of the images, %s", got, err, m.Compiler)
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			got, _, err := b.image("add", manifest.Targets[4+i/2])
			if want := find(m, "add").Images[4+i/2]; err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("compiled %+v, %v, want %+v", got, err, want)
			}
		})
	}
	wg.Wait()
	if _, log, err := b.compile("wrong.cu", "sm_80", []byte("wrong")); err == nil || !strings.Contains(log, "wrong.cu(1): error") {
		t.Errorf("a wrong source: %v, %q, want the compiler's words", err, log)
	}
}

// TestMain lets the test program be this command, and the process that compiles.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "compile") || os.Getenv("STHENO_PROGRAM") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}
