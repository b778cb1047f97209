package results

import (
	"os"
	"path/filepath"
	"reflect"
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
	if err == nil {
		want, err = UpdateCases(want, tagRecords(t))
	}
	if err != nil {
		t.Fatal(err)
	}
	if want != string(text) {
		t.Error("docs/cuda-versions.md: its tables are stale: run 'go run ./internal/tagmatrix -docs'")
	}
}

// The table of programs is of a run that is recorded beside it.
func TestCheckPrograms(t *testing.T) {
	if err := CheckPrograms(filepath.Join(root, "bench/results/tag"), tagRecords(t)); err != nil {
		t.Error(err)
	}
	dir := t.TempDir()
	records := []TagRecord{{Date: "2026-01-01", Build: "PASS", GPU: "G", Driver: "1"}, {Date: "2026-01-02", Run: "PASS", GPU: "G", Driver: "1"}}
	for date, ok := range map[string]bool{"2026-01-02": true, "2026-01-01": false} {
		text := RunOn("G", "1", date) + "\n\n| Graph |\n"
		if err := os.WriteFile(filepath.Join(dir, "programs.md"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := CheckPrograms(dir, records); (err == nil) != ok {
			t.Errorf("programs of %s: %v", date, err)
		}
	}
}

// The tests that a run is made of are there, by their names.
func TestTagTests(t *testing.T) {
	source, err := os.ReadFile(filepath.Join(root, "gorgonia_machine_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := append([]string(nil), tagSuites[0])
	for _, test := range TagTests {
		names = append(names, test.Name)
	}
	for _, name := range names {
		if !strings.Contains(string(source), "\nfunc "+name+"(t *testing.T) {\n") {
			t.Errorf("gorgonia_machine_test.go has no %s", name)
		}
	}
	if got := strings.Count(string(source), "\nfunc Test"); got != len(names) {
		t.Errorf("gorgonia_machine_test.go has %d tests, TagTests and the loop are %d", got, len(names))
	}
}

// tagRun is the suites of a run with their logs, all right, for ops A and B.
func tagRun() (suites []Suite, logs map[string]string) {
	logs = map[string]string{}
	for _, name := range tagSuites {
		suites = append(suites, Suite{Name: name, Result: "PASS"})
		logs[name] = "=== RUN   TestX\n--- PASS: TestX (0.01s)\nPASS\n"
	}
	for _, test := range TagTests {
		n := test.Name
		suites = append(suites, Suite{Name: n, Result: "PASS"})
		logs[n] = "2026/01/01 Using CUDA build\n--- PASS: " + n + " (0.10s)\n" +
			"    --- PASS: " + n + "/A/f32 (0.10s)\n" +
			"        --- PASS: " + n + "/A/f32/[7] (0.00s)\n" +
			"        --- PASS: " + n + "/A/f32/(a_-_b_/_2)_+_1,_[7] (0.00s)\n" +
			"    --- PASS: " + n + "/B/f32 (0.10s)\n" +
			"        --- PASS: " + n + "/B/f32/[7] (0.00s)\nPASS\n"
	}
	return suites, logs
}

func TestTagOutcome(t *testing.T) {
	ops := func(test TagTest) []string {
		if test.Gradients {
			return []string{"A"}
		}
		return []string{"A", "B"}
	}
	suites, logs := tagRun()
	run, cases := TagOutcome(suites, logs, ops)
	if run != "PASS" || len(cases) != len(TagTests) || cases["TestGorgoniaMachine"]["A"] != 2 || cases["TestGorgoniaMachine"]["B"] != 1 {
		t.Errorf("got %s and %v, want PASS, two cases of A and one of B", run, cases)
	}
	for name, c := range map[string]struct {
		change func(suites []Suite, logs map[string]string) []Suite
		want   string
	}{
		"a suite is missing": {func(s []Suite, _ map[string]string) []Suite { return s[1:] }, "TestGorgoniaMachineLoop: not run"},
		"an op's suite is missing": {func(s []Suite, _ map[string]string) []Suite { return s[:len(s)-1] },
			"TestGorgoniaMachineLispGradients: not run"},
		"a suite failed": {func(s []Suite, _ map[string]string) []Suite { s[1].Result = "FAIL"; return s }, "cudaops: FAIL"},
		"a suite ran no test": {func(s []Suite, logs map[string]string) []Suite {
			logs["ops"] = "testing: warning: no tests to run\nPASS\n"
			return s
		}, "ops: no test passed"},
		"a suite skipped all": {func(s []Suite, logs map[string]string) []Suite {
			logs["ops"] = "--- SKIP: TestX (0.00s)\nPASS\n"
			return s
		}, "ops: no test passed"},
		"an op ran no case": {func(s []Suite, logs map[string]string) []Suite {
			const n = "TestGorgoniaMachineLocked"
			logs[n] = strings.ReplaceAll(logs[n], "/B/f32/[7]", "/A/f32/x")
			return s
		}, "TestGorgoniaMachineLocked: no case of B passed"},
		"another test ran": {func(s []Suite, logs map[string]string) []Suite {
			logs["TestGorgoniaMachineLocked"] = logs["TestGorgoniaMachine"]
			return s
		}, "TestGorgoniaMachineLocked: no case of A passed; TestGorgoniaMachineLocked: no case of B passed"},
	} {
		suites, logs := tagRun()
		if run, _ := TagOutcome(c.change(suites, logs), logs, ops); run != c.want {
			t.Errorf("%s: got %q, want %q", name, run, c.want)
		}
	}
}

func TestCasesTable(t *testing.T) {
	got := CasesTable([]TagRecord{
		{Date: "2026-01-01", Build: "PASS"},
		{Date: "2026-01-02", Run: "PASS", GPU: "Old", Driver: "1"},
		{Date: "2026-01-03", Run: "PASS", GPU: "New", Driver: "2", Cases: TagCases{
			"TestGorgoniaMachine": {"B": 3, "A": 12}, "TestGorgoniaMachineLispGradients": {"A": 5}}},
	})
	for _, want := range []string{
		"Old, driver 1, 2026-01-02. Which cases passed was not recorded.\n\nNew,",
		"New, driver 2, 2026-01-03.\n\n| Op | `tape.NewMachine`: values |",
		"|\n| `A` | 12 |  |  |  |  |  | 5 |\n| `B` | 3 |  |  |  |  |  |  |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
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
	if got, err := ReadTag(filepath.Join(dir, "tag")); err != nil || !reflect.DeepEqual(got, records) {
		t.Errorf("read %+v, %v, want the written record", got, err)
	}
}
