package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/evidence"
	"github.com/stheno-ml/stheno/internal/must"
	"github.com/stheno-ml/stheno/internal/ratios"
	"github.com/stheno-ml/stheno/internal/results"
)

// The suites that bench/gpu-run.sh is given are those without evidence: all for a
// new GPU, none that passed in an earlier call, and all again where nothing
// recorded is to count.
func TestEvidenceList(t *testing.T) {
	dir := t.TempDir()
	suites, err := evidence.Suites()
	if err != nil {
		t.Fatal(err)
	}
	list := func(args string) (lines []string) {
		t.Helper()
		out := succeed(t, append([]string{"maintain", "suites", "--recorded", dir}, strings.Fields(args)...)...)
		return strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	}
	first := list("--gpu G")
	if len(first) != len(suites) || strings.Count(first[0], "\t") != 5 || strings.Contains(strings.Join(first, "\n"), "\t\t") {
		t.Fatalf("%d lines, the first %q, want %d of six cells", len(first), first[0], len(suites))
	}
	outcomes := filepath.Join(dir, "suites.tsv")
	line := suites[3].Name() + "\tPASS\t1\t\t" + suites[3].Kernels.String() + "\n"
	if err := os.WriteFile(outcomes, []byte(line), 0o666); err != nil {
		t.Fatal(err)
	}
	if rest := list("--gpu G --passed " + outcomes); len(rest) != len(first)-1 || rest[3] != first[4] {
		t.Errorf("%d lines when %s had passed, want all but it of %d", len(rest), suites[3].Name(), len(first))
	}

	f := &results.File{GPU: "G"}
	for _, s := range suites {
		f.Suites = append(f.Suites, results.Suite{Name: s.Name(), Result: "PASS", Kernels: s.Kernels})
	}
	later := filepath.Join(t.TempDir(), "g.json")
	if err := f.Write(later); err != nil {
		t.Fatal(err)
	}
	succeed(t, "maintain", "merge", later, "--into", dir)
	if rest := list("--gpu G"); len(rest) != 1 || rest[0] != "" {
		t.Errorf("%q when everything is recorded, want nothing", rest)
	}
	if again := list("--all"); len(again) != len(first) {
		t.Errorf("--all: %d lines, want %d", len(again), len(first))
	}
	status, _, said := stheno("maintain", "check", "--recorded", dir)
	if status != failure || !strings.Contains(said, "Add/2^28/f32 was not timed") || strings.Contains(said, "memcheck") {
		t.Errorf("status %d, %s, want %d and the cases that were not timed alone", status, said, failure)
	}
}

// The list of cases marks those that have not been measured, and those with other
// kernels.
func TestBenchList(t *testing.T) {
	dir := t.TempDir()
	f := &results.File{GPU: "G", Rows: []results.Row{
		{Key: results.Key{Op: "Add", Case: "2^28", Dtype: "f32"}, Micros: 7, Kernels: results.Digests{"add": "another"}},
	}}
	if err := f.Write(filepath.Join(dir, "g.json")); err != nil {
		t.Fatal(err)
	}
	out := succeed(t, "maintain", "cases", "ops", "--recorded", dir, "--run", "^Add/")
	for _, want := range []string{`Add/2\^28/f32 +7.00 us, with other kernels\n`, `Add/2\^28/f64 +not measured\n`} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	out = succeed(t, "maintain", "cases", "ops", "--recorded", dir, "--run", "^Add/", "--missing", "--gpu", "G")
	if out != "Add/2^28/f32\nAdd/2^28/f64\n" {
		t.Errorf("missing: got %q, want both cases of Add", out)
	}
}

// A case is recorded by the kernels that it was timed with: only then is it not timed
// again.
func TestLacking(t *testing.T) {
	cases := timedCases(false)
	tree := must.Get[results.Digests](t)(evidence.Tree())
	f := &results.File{}
	for i, c := range cases {
		kernels := tree
		if i == 2 {
			kernels = results.Digests{"add": "another"}
		}
		if i != 3 {
			f.Rows = append(f.Rows, results.Row{Key: c.Key(), Kernels: kernels})
		}
	}
	want := []string{caseName(cases[2]), caseName(cases[3])}
	rest := must.Get[[]benchCase](t)(lacking(f, cases))
	if len(rest) != 2 || caseName(rest[0]) != want[0] || caseName(rest[1]) != want[1] {
		t.Errorf("%d cases lack a record, want %q", len(rest), want)
	}
}

// The tables that are in the repository are those of its records.
func TestTables(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	for page, update := range map[string]struct {
		results.Update
		folder string
		cases  []results.Key
	}{
		"README.md": {results.UpdateReadme, recordedOps, evidence.Keys()}, filepath.Join("docs", "graphs.md"): {results.UpdateGraphs, recordedGraphs, evidence.GraphKeys()},
		filepath.Join("docs", "drawn.md"): {ratios.UpdatePage, recordedDrawn, nil},
	} {
		dir := t.TempDir()
		before := must.Get[[]byte](t)(os.ReadFile(page))
		path := filepath.Join(dir, "page.md")
		must.Write(t, path, string(before))
		must.Do(t, rewrite(path, update.Update, update.folder, update.cases))
		if after := must.Get[[]byte](t)(os.ReadFile(path)); !bytes.Equal(before, after) {
			t.Errorf("%s changes, want a page that 'stheno maintain tables' leaves as it is", page)
		}
	}
	plots := t.TempDir()
	must.Do(t, plotDrawn(plots, recordedDrawn))
	for _, plot := range must.Get[[]os.DirEntry](t)(os.ReadDir(plots)) {
		drawn, kept := must.Get[[]byte](t)(os.ReadFile(filepath.Join(plots, plot.Name()))), must.Get[[]byte](t)(os.ReadFile(filepath.Join("docs", plot.Name())))
		if !bytes.Equal(drawn, kept) {
			t.Errorf("docs/%s is not the plot of its record, want one that 'stheno maintain tables' leaves as it is", plot.Name())
		}
	}
	if err := rewrite("README.md", results.UpdateReadme, t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "no results in") {
		t.Errorf("a folder without results: %v, want an error that says so", err)
	}
}
