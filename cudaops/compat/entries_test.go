package compat

import (
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/stheno-ml/stheno"

// entries are the packages that programs import.
var entries = []string{module, module + "/ops", module + "/cudaops", module + "/cudaops/tape", module + "/gradcheck"}

// goCommand runs the go command with a changed environment, with no settings of
// cgo's but those.
func goCommand(t *testing.T, env []string, args ...string) (text string, err error) {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command")
	}
	cmd := exec.Command("go", args...)
	cmd.Env = slices.Concat(os.Environ(), []string{"CGO_CFLAGS=", "CGO_CPPFLAGS=", "CGO_LDFLAGS=", "CPATH=", "C_INCLUDE_PATH=", "LC_ALL=C"}, env)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// With the tag every entry brings package tape, which registers the kernels, and
// this package, whose build errors name the missing parts; without the tag none brings this
// one, which needs a toolkit then.
func TestEntries(t *testing.T) {
	deps := func(env string, flags ...string) map[string][]string {
		text, err := goCommand(t, []string{env}, slices.Concat([]string{"list", "-f", `{{.ImportPath}} {{join .Deps " "}}`}, flags, entries)...)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		of := map[string][]string{}
		for line := range strings.Lines(text) {
			if words := strings.Fields(line); len(words) > 0 {
				of[words[0]] = words[1:]
			}
		}
		return of
	}
	with := map[string]map[string][]string{}
	for _, cgo := range []string{"CGO_ENABLED=0", "CGO_ENABLED=1"} {
		with[cgo] = deps(cgo, "-e", "-tags", "cuda")
	}
	without := deps("LC_ALL=C")
	for _, entry := range entries {
		for cgo, of := range with {
			for _, want := range []string{module + "/cudaops/tape", module + "/cudaops/compat"} {
				if entry != want && !slices.Contains(of[entry], want) {
					t.Errorf("with the tag and %s, %s does not import %s", cgo, entry, want)
				}
			}
		}
		if len(without[entry]) == 0 || slices.Contains(without[entry], module+"/cudaops/compat") {
			t.Errorf("without the tag %s imports %d packages, want some and not compat", entry, len(without[entry]))
		}
	}
}

// The error of a build without cgo is that cgo is needed, and without a toolkit that a toolkit is. It comes with this package, and so with every entry: the
// others would be compiled in vain.
func TestBuildSaysWhatIsMissing(t *testing.T) {
	build := func(env string, wants ...string) {
		text, err := goCommand(t, []string{env}, "build", "-tags", "cuda", ".")
		for _, want := range wants {
			if err == nil || !strings.Contains(text, want) {
				t.Errorf("%s: got %v, want an error with %q\n%s", env, err, want, text)
			}
		}
	}
	build("CGO_ENABLED=0", "undefined: the_tag_cuda_needs_CGO_ENABLED_1_and_a_C_compiler")
	cc := compiler(t)
	if preprocess(cc, "#include <cuda.h>\n") == "" {
		t.Skip("the C compiler finds a cuda.h with no settings")
	}
	build("CGO_ENABLED=1", "The tag cuda needs a CUDA toolkit with cuDNN", "cmd/stheno env")
}

// compiler is the C compiler of cgo.
func compiler(t *testing.T) []string {
	t.Helper()
	cc, err := goCommand(t, nil, "env", "CC")
	words := strings.Fields(cc)
	if err != nil || len(words) == 0 {
		t.Fatalf("go env CC: %v %s", err, cc)
	}
	if _, err := exec.LookPath(words[0]); err != nil {
		t.Skipf("no C compiler: %v", err)
	}
	return words
}

// preprocess returns the error of the C preprocessor about a source that it refuses.
func preprocess(cc []string, source string, flags ...string) string {
	cmd := exec.Command(cc[0], slices.Concat(cc[1:], flags, []string{"-E", "-o", os.DevNull, "-x", "c", "-"})...)
	cmd.Stdin = strings.NewReader(source)
	cmd.Env = append(os.Environ(), "CPATH=", "C_INCLUDE_PATH=", "LC_ALL=C")
	if out, err := cmd.CombinedOutput(); err != nil {
		return string(out) + err.Error()
	}
	return ""
}

// The errors of this package about headers are right, for a toolkit of which
// only the version numbers are there.
func TestHeaderErrors(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "versions_cuda.go", nil, parser.ParseComments|parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var source string
	for _, c := range file.Comments {
		if text := c.Text(); strings.Contains(text, "#include") {
			source = text
		}
	}
	if source == "" {
		t.Fatal("no C source in versions_cuda.go")
	}
	cc := compiler(t)
	for name, c := range map[string]struct {
		cuda, cudnn string // the headers, "" for none
		want        string
	}{
		"nothing":              {"", "", "The tag cuda needs a CUDA toolkit"},
		"no cuDNN":             {"#define CUDA_VERSION 12040\n", "", "The tag cuda needs a CUDA toolkit"},
		"CUDA 13, own headers": {"#define CUDA_VERSION 13000\n", "#define CUDNN_MAJOR 8\n", "gorgonia.org/cu needs settings"},
		"cuDNN 9, own headers": {"#define CUDA_VERSION 12040\n", "#define CUDNN_MAJOR 9\n", "gorgonia.org/cu needs settings"},
		"CUDA 12 and cuDNN 8":  {"#define CUDA_VERSION 12040\n", "#define CUDNN_MAJOR 8\n", ""},
		"Stheno's headers": {"#define CUDA_VERSION 13000\n#define STHENO_COMPAT_CUDA_H\n",
			"#define CUDNN_MAJOR 9\n#define STHENO_COMPAT_CUDNN_H\n", ""},
	} {
		dir := t.TempDir()
		for file, text := range map[string]string{"cuda.h": c.cuda, "cudnn.h": c.cudnn} {
			if text == "" {
				continue
			}
			if err := os.WriteFile(dir+"/"+file, []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		// -nostdinc hides a toolkit that the system has.
		if got := preprocess(cc, source, "-nostdinc", "-I"+dir); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: the compiler says %q, want %q", name, got, c.want)
		}
	}
}
