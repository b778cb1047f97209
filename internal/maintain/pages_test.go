package maintain

import (
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/testutil"
)

func readme(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The pages are those that the records and the ops make, and so are the plots.
func TestPagesAreCurrent(t *testing.T) {
	pages := testutil.Get[map[string]string](t)(Pages(root))
	for page, want := range pages {
		if text := string(testutil.Get[[]byte](t)(os.ReadFile(filepath.Join(root, page)))); text != want {
			t.Errorf("%s: a table differs from the one that is made of the records and the ops: run `make readme`", page)
		}
	}
	if len(pages) != 7 {
		t.Errorf("%d pages, want 7", len(pages))
	}
	plots := t.TempDir()
	testutil.Do(t, PlotDrawn(plots, filepath.Join(root, "bench/results")))
	drawn := testutil.Get[[]os.DirEntry](t)(os.ReadDir(plots))
	for _, plot := range drawn {
		got, want := testutil.Get[[]byte](t)(os.ReadFile(filepath.Join(plots, plot.Name()))), testutil.Get[[]byte](t)(os.ReadFile(filepath.Join(root, "docs", plot.Name())))
		if string(got) != string(want) {
			t.Errorf("docs/%s is not the plot of its record: run `make readme`", plot.Name())
		}
	}
	if len(drawn) == 0 {
		t.Error("no plot is drawn")
	}
}

// Tables of no GPU say so, and those of two stand one below the other.
func TestTableText(t *testing.T) {
	table := Table{Set: records.Graphs, Of: func(f *records.File, cases []records.Key) string {
		return strings.Repeat(f.GPU+"\n", min(len(cases), 1))
	}}
	for _, c := range []struct {
		files []*records.File
		want  string
	}{{nil, "Not measured yet.\n"}, {[]*records.File{{GPU: "A"}, {GPU: "B"}}, "A\n\nB\n"}} {
		if got := table.Text(c.files); got != c.want {
			t.Errorf("of %d GPUs: got %q, want %q", len(c.files), got, c.want)
		}
	}
}

// The program in the README is the text that a reader pastes: it must build,
// run, and print the output in the README.
func TestProgram(t *testing.T) {
	_, rest, _ := strings.Cut(readme(t), "```go\n")
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
	run.Dir, run.Stderr = "../..", &stderr
	got, err := run.Output()
	if err != nil {
		t.Fatalf("the program fails: %v\n%s", err, stderr.String())
	}
	if string(got) != want {
		t.Errorf("the program prints\n%swant\n%s", got, want)
	}
}
