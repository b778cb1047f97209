package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/maintain"
	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// The suites that bench/gpu-run.sh is given are those without evidence: all for a
// new GPU, none that passed in an earlier call, and all again where nothing
// recorded is to count.
func TestEvidenceList(t *testing.T) {
	dir := t.TempDir()
	suites, err := maintain.Suites()
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
	line := suites[3].Suite() + "\tPASS\t1\t\t" + suites[3].Kernels.String() + "\n"
	if err := os.WriteFile(outcomes, []byte(line), 0o666); err != nil {
		t.Fatal(err)
	}
	if rest := list("--gpu G --passed " + outcomes); len(rest) != len(first)-1 || rest[3] != first[4] {
		t.Errorf("%d lines when %s had passed, want all but it of %d", len(rest), suites[3].Suite(), len(first))
	}

	f := &records.File{Set: records.Ops, GPU: "G", Runs: []records.Run{{}}}
	for _, s := range suites {
		r := records.SuiteNamed(s.Suite())
		r.Result, r.Kernels = "PASS", s.Kernels
		f.Records = append(f.Records, r)
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

// Cases that have not been measured, and those with other kernels, are missing.
func TestBenchList(t *testing.T) {
	dir := t.TempDir()
	f := &records.File{Set: records.Ops, GPU: "G", Runs: []records.Run{{}}, Records: []records.Record{
		{Kind: records.Time, Key: records.Key{Op: "Add", Case: "2^28", Dtype: "f32"}, Us: 7, Kernels: records.Digests{"add": "another"}},
	}}
	testutil.Do(t, f.Write(records.Path(dir, records.Ops, "G")))
	out := succeed(t, "maintain", "cases", "ops", "--recorded", dir, "--run", "^Add/", "--missing", "--gpu", "G")
	if out != "Add/2^28/f32\nAdd/2^28/f64\n" {
		t.Errorf("missing: got %q, want both cases of Add", out)
	}
	out = succeed(t, "maintain", "cases", "ops", "--recorded", dir, "--run", "^Add/.*f32", "--missing", "--gpu", "G", "--json")
	if !strings.HasPrefix(out, "[\n"+`{"op":"Add","case":"2^28","dtype":"f32","shapes":[[268435456],[268435456]],"peers":"`) || !strings.HasSuffix(out, "}\n]\n") {
		t.Errorf("as JSON: got %s", out)
	}
	testutil.Write(t, filepath.Join(dir, "text"), "abc")
	if out = succeed(t, "maintain", "cases", "ops", "--run", "text", "--text", filepath.Join(dir, "text"), "--json"); !strings.Contains(out, `"data":"text","text":"`) {
		t.Errorf("a text: got %s", out)
	}
	out = succeed(t, "maintain", "cases", "products", "--run", "identity, 256", "--json", "--operands", dir)
	if n := len(testutil.Get[[]byte](t)(os.ReadFile(filepath.Join(dir, "any bits times the identity, 256 x 256 x 256.a.f32")))); n != 4<<16 || !strings.Contains(out, `"c":"any bits times the identity, 256 x 256 x 256.c.f32"`) {
		t.Errorf("a product: %d bytes, %s", n, out)
	}
}

// A case is recorded by the kernels that it was timed with: only then is it not timed
// again.
func TestLacking(t *testing.T) {
	cases := maintain.Cases(records.Ops, false)
	tree := testutil.Get[records.Digests](t)(maintain.Tree())
	dir, f := t.TempDir(), &records.File{Set: records.Ops, GPU: "G", Runs: []records.Run{{}}}
	for i, c := range cases {
		kernels := tree
		if i == 2 {
			kernels = records.Digests{"add": "another"}
		}
		if i != 3 {
			f.Records = append(f.Records, records.Record{Kind: records.Time, Key: c.Key(), Kernels: kernels})
		}
	}
	want := []string{caseName(cases[2]), caseName(cases[3])}
	testutil.Do(t, f.Write(records.Path(dir, records.Ops, "G")))
	rest := testutil.Get[[]maintain.Case](t)(recorded{dir}.lacking(records.Ops, "G", cases))
	if len(rest) != 2 || caseName(rest[0]) != want[0] || caseName(rest[1]) != want[1] {
		t.Errorf("%d cases lack a record, want %q", len(rest), want)
	}
}
