package results

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func tagRecords(t *testing.T) []TagRecord {
	t.Helper()
	records, err := ReadTag(filepath.Join(root, "bench/results/tag"))
	if err != nil {
		t.Fatal(err)
	}
	return records
}

func TestTagTableIsWhatWasRecorded(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/cuda-versions.md"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := UpdateTag(string(text), tagRecords(t))
	if err != nil {
		t.Fatal(err)
	}
	if want != string(text) {
		t.Error("docs/cuda-versions.md: its table is stale: run 'go run ./internal/tagmatrix -docs'")
	}
}

func TestProgramsTableIsWhatWasRecorded(t *testing.T) {
	table, err := os.ReadFile(filepath.Join(root, ProgramsFile))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/cuda-tag.md"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := UpdatePrograms(string(page), string(table))
	if err != nil {
		t.Fatal(err)
	}
	if want != string(page) {
		t.Error("docs/cuda-tag.md: its table is stale: run 'go run ./internal/tagmatrix -docs'")
	}
}

// No new version of a module that the tag builds without building it again.
func TestTagWasBuiltWithTheseModules(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	required := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) >= 2 {
			required[f[0]] = f[1]
		}
	}
	records := tagRecords(t)
	if len(records) == 0 {
		t.Error("no builds recorded: run 'make tag-matrix'")
	}
	for _, r := range records {
		for path, got := range map[string]string{"gorgonia.org/gorgonia": r.Gorgonia, "gorgonia.org/cu": r.CU, "gorgonia.org/tensor": r.Tensor} {
			if want := required[path]; got != want {
				t.Errorf("CUDA %s, cuDNN %s were tried with %s %s, go.mod wants %s: run 'make tag-matrix'", r.CUDA, r.CUDNN, path, got, want)
			}
		}
	}
}

func TestTagTable(t *testing.T) {
	v := func(cuda, cudnn string) Versions {
		return Versions{cuda, cudnn, "go1.26.8", "v0.9.18", "v0.9.6", "v0.9.23"}
	}
	got := TagTable([]TagRecord{
		{Versions: v("9.2", "9.10.2"), Date: "2026-01-01", Build: "go vet: a|b"},
		{Versions: v("13.0", "9.9.0"), Date: "2026-01-02", Build: "PASS"},
		{Versions: v("13.0", "9.28.0"), Date: "2026-01-03", Build: "PASS"},
		{Versions: v("13.0", "9.28.0"), Date: "2026-01-04", Run: "PASS", GPU: "G", Driver: "1.2"},
	})
	const want = `
| 13.0 | 9.28.0 | 1.26.8 | v0.9.18 | v0.9.6 | v0.9.23 | yes, 2026-01-03 | yes, 2026-01-04 | G, 1.2 |
| 13.0 | 9.9.0 | 1.26.8 | v0.9.18 | v0.9.6 | v0.9.23 | yes, 2026-01-02 | not tried |  |
| 9.2 | 9.10.2 | 1.26.8 | v0.9.18 | v0.9.6 | v0.9.23 | **no**, 2026-01-01: go vet: a\|b | not tried |  |
`
	if !strings.HasSuffix(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestReadTagRefuses(t *testing.T) {
	const versions = `"cuda": "13.0", "cudnn": "9.28.0", "go": "go1.26", "gorgonia": "a", "cu": "b", "tensor": "c", "date": "2026-01-01"`
	for text, want := range map[string]string{
		`[{"cuda": "13.0", "build": "PASS"}]`:         "want date",
		`[{` + versions + `}]`:                        "neither build nor run",
		`[{` + versions + `, "run": "PASS"}]`:         "without gpu",
		`[{` + versions + `, "builds": "PASS"}]`:      "builds",
		`[{` + versions + `, "build": "PASS"}, "no"]`: "string",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "x.json"), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadTag(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in the error", text, err, want)
		}
	}
	dir := t.TempDir()
	records := []TagRecord{{Versions: Versions{"13.0", "9.28.0", "go1.26", "a", "b", "c"}, Date: "2026-01-01", Build: "PASS"}}
	if err := WriteTag(filepath.Join(dir, "tag", "built.json"), records); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadTag(filepath.Join(dir, "tag")); err != nil || len(got) != 1 || got[0] != records[0] {
		t.Errorf("read %+v, %v, want what was written", got, err)
	}
}
