package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/evidence"
	"github.com/stheno-ml/stheno/internal/results"
)

// The suites that bench/gpu-run.sh is given are those without evidence: all for a
// new GPU, none of what passed in an earlier call, and all again where nothing
// recorded is to count.
func TestEvidenceList(t *testing.T) {
	dir := t.TempDir()
	suites, err := evidence.Suites()
	if err != nil {
		t.Fatal(err)
	}
	list := func(args string) (lines []string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if err := run(append([]string{"evidence", "-list", "-recorded", dir, "-gpu", "G"}, strings.Fields(args)...), &stdout, &stderr); err != nil {
			t.Fatalf("%s: %v", args, err)
		}
		return strings.Split(strings.TrimSuffix(stdout.String(), "\n"), "\n")
	}
	first := list("")
	if len(first) != len(suites) || strings.Count(first[0], "\t") != 5 || strings.Contains(strings.Join(first, "\n"), "\t\t") {
		t.Fatalf("%d lines, the first %q, want %d of six cells", len(first), first[0], len(suites))
	}
	outcomes := filepath.Join(dir, "suites.tsv")
	line := suites[3].Name() + "\tPASS\t1\t\t" + suites[3].Kernels.String() + "\n"
	if err := os.WriteFile(outcomes, []byte(line), 0o666); err != nil {
		t.Fatal(err)
	}
	if rest := list("-suites " + outcomes); len(rest) != len(first)-1 || rest[3] != first[4] {
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
	var out bytes.Buffer
	if err := run([]string{"evidence", "-merge", later, "-recorded", dir}, &out, &out); err != nil {
		t.Fatal(err)
	}
	if rest := list(""); len(rest) != 1 || rest[0] != "" {
		t.Errorf("%q when everything is recorded, want nothing", rest)
	}
	if again := list("-all"); len(again) != len(first) {
		t.Errorf("-all: %d lines, want %d", len(again), len(first))
	}
	err = run([]string{"evidence", "-recorded", dir}, &out, &out)
	if err == nil || !strings.Contains(err.Error(), "Add/2^28/f32 was not timed") || strings.Contains(err.Error(), "memcheck") {
		t.Errorf("%v, want the cases that were not timed alone", err)
	}
}

// The list of cases says which have not been measured, and which with other
// kernels.
func TestBenchList(t *testing.T) {
	dir := t.TempDir()
	f := &results.File{GPU: "G", Rows: []results.Row{
		{Key: results.Key{Op: "Add", Case: "2^28", Dtype: "f32"}, Micros: 7, Kernels: results.Digests{"add": "another"}},
	}}
	if err := f.Write(filepath.Join(dir, "g.json")); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run([]string{"bench", "-list", "-recorded", dir, "-run", "^Add/"}, &out, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`Add/2\^28/f32 +7.00 us, with other kernels\n`, `Add/2\^28/f64 +not measured\n`} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	b := benchFlags{recorded: dir, missing: true, selected: regexp.MustCompile("^Add/")}
	if cases, err := b.cases("G"); err != nil || len(cases) != 2 {
		t.Errorf("%d cases are missing, %v, want 2", len(cases), err)
	}
}
