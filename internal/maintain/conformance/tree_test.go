package conformance

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// hook holds the files that are added to the copies.
//
//go:embed testdata/hook
var hook embed.FS

// modules are the copied modules, by their folders in the tree.
var modules = map[string]module{
	"gorgonia": {"gorgonia.org/gorgonia", "v0.9.18"},
	"onnx-go":  {"github.com/owulveryck/onnx-go", "v0.5.0"},
}

type module struct{ path, version string }

// A patch replaces text in a file.
type patch struct{ file, old, new string }

// patches let Stheno stand in for a tape machine, keep the examples short, and let two
// of them, which train on the Lisp machine, train on the tape machine.
var patches = []patch{
	{"gorgonia/vm_tape.go", "type tapeMachine struct {\n", "type tapeMachine struct {\n\tstandIn VM\n"},
	{"gorgonia/vm_tape.go", "func NewTapeMachine(g *ExprGraph, opts ...VMOpt) *tapeMachine {\n",
		"func NewTapeMachine(g *ExprGraph, opts ...VMOpt) *tapeMachine {\n\tif m := newStandIn(g, opts); m != nil {\n\t\treturn m\n\t}\n\treturn newTape(g, opts)\n}\n\n" +
			"func newTape(g *ExprGraph, opts []VMOpt) *tapeMachine {\n"},
	method("RunAll() (err error)", "return m.standIn.RunAll()"),
	method("Reset()", "m.standIn.Reset()\n\t\treturn"),
	method("Close() error", "return m.standIn.Close()"),
	method("Let(n *Node, be interface{}) (err error)", "return m.standIn.(letter).Let(n, be)"),
	method("Set(a, b *Node) (err error)", "return m.standIn.(letter).Set(a, b)"),

	{"gorgonia/examples/charRNN/main.go", "i <= 100000", "i < 2"},
	{"gorgonia/examples/charRNN/main.go", "var maxCharGen = 100", "var maxCharGen = 3"},
	{"gorgonia/examples/charRNN/main.go", "if i%1000 == 0 {", "if true {"},
	{"gorgonia/examples/charRNN/main.go", "old.cleanup()", "_ = old"}, // which returns nodes to a pool that the tape machine still uses
	{"gorgonia/examples/charRNN/model.go", "\tmachine := NewLispMachine(g)\n", "\tmachine, err := onTape(r, cost)\n\tif err != nil {\n\t\treturn\n\t}\n\t_ = g\n"},
	{"gorgonia/examples/charRNN/model.go", "\tmachine.UnbindAll()\n", ""},
	{"gorgonia/examples/charRNN/model.go", "\t\tmachine := NewLispMachine(g, ExecuteFwdOnly())\n\t\tdefer machine.Close()\n\t\tmachine.ForceCPU()\n",
		"\t\tmachine := NewTapeMachine(g)\n\t\tdefer machine.Close()\n"},
	{"gorgonia/examples/charRNN/util.go", "tensor.SampleIndex(t)", "maxSample(t)"}, // which panics for some numbers
	{"gorgonia/examples/convnet/main.go", "G.Dropout(", "dropout("},
	{"gorgonia/examples/iris/main.go", "iter := 10000", "iter := 200"},
	{"gorgonia/examples/logisticregression/main.go", "trainIter = 500", "trainIter = 20"},
	{"gorgonia/examples/stacked_autoencoder/main.go", "import \"C\"\n", ""},
	{"gorgonia/examples/stacked_autoencoder/main.go", "[]int{1000, 1000, 1000}", "sizes()"},
	{"gorgonia/examples/stacked_autoencoder/stackedDA.go", "\t\tmachine := NewLispMachine(g)\n",
		"\t\tvar machine VM\n\t\tif machine, err = onTape(sda.g, cost, model); err != nil {\n\t\t\treturn\n\t\t}\n\t\t_ = g\n"},
	{"gorgonia/examples/stacked_autoencoder/stackedDA.go", "batch < batches; batch++ {\n\t\tlosses", "batch < 1; batch++ {\n\t\tlosses"}, // Grad goes through a graph with a SoftMax once
	{"gorgonia/examples/stacked_autoencoder/stackedDA.go", "\tmachine := NewLispMachine(g, ExecuteFwdOnly())\n", "\tmachine := NewTapeMachine(g)\n"},
}

// method makes the stand-in, if there is one, run in place of a method.
func method(signature, instead string) patch {
	head := "func (m *tapeMachine) " + signature + " {\n"
	return patch{"gorgonia/vm_tape.go", head, head + "\tif m.standIn != nil {\n\t\t" + instead + "\n\t}\n"}
}

// additions are the files of the hook and the folders that they go to.
var additions = map[string]string{
	"standin.go":     "gorgonia",
	"hook.go":        "gorgonia/sthenohook",
	"timed.go":       "gorgonia/sthenohook",
	"pair.go":        "gorgonia/sthenohook",
	"difference.go":  "gorgonia/sthenohook",
	"charrnn.go":     "gorgonia/examples/charRNN",
	"convnet.go":     "gorgonia/examples/convnet",
	"autoencoder.go": "gorgonia/examples/stacked_autoencoder",
}

// digest identifies the hook: a hash of its code and patches.
func digest(t *testing.T) string {
	h := sha256.New()
	for _, p := range patches {
		fmt.Fprintf(h, "%q %q %q\n", p.file, p.old, p.new)
	}
	for _, name := range slices.Sorted(maps.Keys(additions)) {
		text := testutil.Get[[]byte](t)(hook.ReadFile("testdata/hook/" + name))
		fmt.Fprintf(h, "%s %q\n%s\n", name, additions[name], code(text))
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// code returns the tokens of a Go file and its directives, without other comments, so that these
// can be edited without running everything again.
func code(text []byte) (tokens []byte) {
	set := token.NewFileSet()
	var s scanner.Scanner
	s.Init(set.AddFile("", -1, len(text)), text, nil, scanner.ScanComments)
	for {
		_, tok, literal := s.Scan()
		if tok == token.EOF {
			return tokens
		}
		if tok != token.COMMENT || strings.HasPrefix(literal, "//go:") {
			tokens = fmt.Appendf(tokens, "%v %q\n", tok, literal)
		}
	}
}

// makeTree copies the modules into a folder, with the hook, as a Go workspace beside the Stheno in the folder root. The modules come from the
// module cache.
func makeTree(t *testing.T, dir, root string) {
	testutil.Do(t, os.MkdirAll(dir, 0o777))
	work := "go 1.26.0\n\nuse (\n\t" + root + "\n"
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		copyModule(t, filepath.Join(dir, name), modules[name])
		work += "\t./" + name + "\n"
	}
	testutil.Write(t, filepath.Join(dir, "go.work"), work+")\n")
	for _, p := range patches {
		name := filepath.Join(dir, filepath.FromSlash(p.file))
		text := string(testutil.Get[[]byte](t)(os.ReadFile(name)))
		if !strings.Contains(text, p.old) {
			t.Fatalf("%s: no %q", p.file, p.old)
		}
		testutil.Write(t, name, strings.ReplaceAll(text, p.old, p.new))
	}
	for name, folder := range additions {
		text := testutil.Get[[]byte](t)(hook.ReadFile("testdata/hook/" + name))
		testutil.Write(t, filepath.Join(dir, filepath.FromSlash(folder), "stheno_"+name), string(text))
	}
	for _, s := range suites { // which import the hook
		name, pkg := "stheno_import.go", "main"
		if s.test != "" {
			name, pkg = "stheno_import_test.go", s.test
		}
		testutil.Write(t, filepath.Join(s.folder(dir), name), "package "+pkg+"\n\nimport _ \"gorgonia.org/gorgonia/sthenohook\"\n")
	}
	digits(t, dir)
}

// copyModule copies a module out of the module cache. Large files, weights, become links.
func copyModule(t *testing.T, to string, m module) {
	testutil.Do(t, os.RemoveAll(to))
	cmd := exec.Command("go", "mod", "download", "-json", m.path+"@"+m.version)
	cmd.Dir, cmd.Stderr = t.TempDir(), os.Stderr
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	var found struct{ Dir string }
	testutil.Do(t, json.Unmarshal(testutil.Get[[]byte](t)(cmd.Output()), &found))
	testutil.Do(t, filepath.WalkDir(found.Dir, func(name string, d fs.DirEntry, err error) error {
		testutil.Do(t, err)
		relative := testutil.Get[string](t)(filepath.Rel(found.Dir, name))
		target := filepath.Join(to, relative)
		if d.IsDir() {
			if strings.HasPrefix(d.Name(), ".") || path.Base(relative) == "media" {
				return filepath.SkipDir
			}
			return os.MkdirAll(target, 0o777)
		}
		if testutil.Get[fs.FileInfo](t)(d.Info()).Size() > 4<<20 {
			return os.Symlink(name, target)
		}
		return os.WriteFile(target, testutil.Get[[]byte](t)(os.ReadFile(name)), 0o666)
	}))
}

// digits writes files in the format of MNIST with made-up images into a tree, which the examples would have to download.
func digits(t *testing.T, tree string) {
	const images, side = 20, 28
	r := rand.New(rand.NewPCG(1, 2))
	for _, name := range []string{"train", "t10k"} {
		var pixels, labels bytes.Buffer
		for _, v := range []int32{0x803, images, side, side} {
			binary.Write(&pixels, binary.BigEndian, v)
		}
		for _, v := range []int32{0x801, images} {
			binary.Write(&labels, binary.BigEndian, v)
		}
		for i := range images {
			labels.WriteByte(byte(i % 10))
			for range side * side {
				pixels.WriteByte(byte(r.IntN(256)))
			}
		}
		for kind, text := range map[string]string{"images-idx3": pixels.String(), "labels-idx1": labels.String()} {
			testutil.Write(t, filepath.Join(tree, "gorgonia", "examples", "testdata", "mnist", name+"-"+kind+"-ubyte"), text)
		}
	}
}
