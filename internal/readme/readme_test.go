// Package readme tests what README.md says.
package readme

import (
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/results"
	"github.com/stheno-ml/stheno/ops"
)

const root = "../.."

func TestTables(t *testing.T) {
	files, err := results.ReadDir(filepath.Join(root, "bench", "results"))
	if err != nil {
		t.Fatal(err)
	}
	if err := results.CheckReadme(filepath.Join(root, "README.md"), ops.All(), files); err != nil {
		t.Error(err)
	}
}

// The program in the README is the text that a reader pastes: it must be
// formatted, build, run, and print what the README says.
func TestProgram(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```go\n")
	program, rest, _ := strings.Cut(rest, "```")
	_, rest, _ = strings.Cut(rest, "```text\n")
	want, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("README.md: want a ```go block followed by a ```text block")
	}
	if formatted, err := format.Source([]byte(program)); err != nil || string(formatted) != program {
		t.Errorf("README.md: the program is not as gofmt writes it (%v)", err)
	}
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(program), 0o666); err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	run := exec.Command("go", "run", file)
	run.Dir, run.Stderr = root, &stderr
	got, err := run.Output()
	if err != nil {
		t.Fatalf("the program fails: %v\n%s", err, stderr.String())
	}
	if string(got) != want {
		t.Errorf("the program prints\n%swant\n%s", got, want)
	}
}
