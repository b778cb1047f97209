package own

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

const root = "../.."

var codeBlock = regexp.MustCompile("(?ms)^```\\w+ (\\S+)\n(.*?)^```$")

// document returns the files that docs/write-your-own-kernel.md has in pieces.
func document(t *testing.T) map[string]string {
	t.Helper()
	b, err := os.ReadFile(root + "/docs/write-your-own-kernel.md")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, m := range codeBlock.FindAllStringSubmatch(string(b), -1) {
		if files[m[1]] != "" {
			files[m[1]] += "\n"
		}
		files[m[1]] += m[2]
	}
	return files
}

// The document's code is this folder's.
func TestDocument(t *testing.T) {
	files := document(t)
	here, err := filepath.Glob("*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range here {
		if ext := filepath.Ext(name); ext != ".go" && ext != ".cu" || name == "document_test.go" {
			continue
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if files[name] != string(want) {
			t.Errorf("the document's pieces of %s are not the file", name)
		}
		delete(files, name)
	}
	for name := range files {
		t.Errorf("the document has %s, which is not here", name)
	}
}

// The document's code works as a module of its own: it is compiled where the
// compiler is, which must be where STHENO_REQUIRE_TOOLKIT=1, built, and passes its
// tests.
func TestDocumentAsModule(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skipf("SKIPPED, NOT TESTED: %v", err)
	}
	stheno, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	run := func(args ...string) string {
		cmd := exec.Command(goTool, args...)
		cmd.Dir = dir
		// No downloads: the module needs the modules that Stheno needs.
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off", "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	files := document(t)
	for name, text := range files {
		write(name, text)
	}
	module := "module github.com/stheno-ml/stheno\n"
	requirements, ok := strings.CutPrefix(read(root+"/go.mod"), module)
	if !ok {
		t.Fatalf("go.mod does not begin with %q", module)
	}
	write("go.mod", "module example.com/own\n"+requirements+
		"\nrequire github.com/stheno-ml/stheno v0.0.0\n\nreplace github.com/stheno-ml/stheno => "+stheno+"\n")
	write("go.sum", read(root+"/go.sum"))

	if _, err := os.Stat(filepath.Join(stheno, ".toolkit", "nvidia")); err == nil {
		run("run", "github.com/stheno-ml/stheno/kernels/build", "-dir", ".", "-toolkit", filepath.Join(stheno, ".toolkit"))
		if got := read(filepath.Join(dir, "images", "manifest.json")); got != read("images/manifest.json") {
			t.Error("images is not what swish.cu gives: run `make images`")
		}
	} else {
		if testutil.Required("TOOLKIT") {
			t.Fatalf("STHENO_REQUIRE_TOOLKIT=1, but there is no %s/.toolkit (make toolkit): %v", root, err)
		}
		t.Logf("NOT TESTED: compiling, since there is no %s/.toolkit (make toolkit)", root)
		if err := os.CopyFS(filepath.Join(dir, "images"), os.DirFS("images")); err != nil {
			t.Fatal(err)
		}
	}
	out := run("test", "-v", ".")
	for _, test := range []string{"TestImages", "TestSwish", "TestGradient", "TestQuad", "TestQuadGradient"} {
		if !strings.Contains(out, "--- PASS: "+test) {
			t.Errorf("%s did not run:\n%s", test, bytes.TrimSpace([]byte(out)))
		}
	}
}
