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

// Parts that passed in several calls are recorded together, if they ran with the kernels of this build; what is left is listed. Records of
// other kernels are removed if that is asked for.
func TestPassed(t *testing.T) {
	dir, suites := t.TempDir(), testutil.Get[[]maintain.Suite](t)(maintain.Suites())
	var two []maintain.Suite // parts
	for _, s := range suites {
		if s.By == "racecheck" && s.Op == "products" && len(two) < 3 {
			two = append(two, s)
		}
	}
	line := func(s maintain.Suite, result, kernels string) string {
		return s.Suite() + "\t" + result + "\t1.5\ta note\t" + kernels + "\n"
	}
	first, second := filepath.Join(dir, "first.tsv"), filepath.Join(dir, "second.tsv")
	testutil.Write(t, first, line(two[0], "PASS", two[0].Kernels.String())+line(two[1], "CUT", two[1].Kernels.String()))
	testutil.Write(t, second, line(two[1], "PASS", two[1].Kernels.String())+line(two[2], "PASS", strings.Replace(two[2].Kernels.String(), "matmul=", "matmul=0", 1)))
	args := []string{"maintain", "passed", first, second, "--recorded", dir, "--gpu", "G", "--driver", "1", "--cuda", "2", "--date", "2026-01-31"}
	if out := succeed(t, args...); !strings.Contains(out, "2 suites of 4") || !strings.Contains(out, two[2].Suite()+" ran with other kernels: matmul") || strings.Contains(out, "CUT") {
		t.Errorf("got %q, want two suites recorded and one with another matmul", out)
	}
	rest := strings.Split(strings.TrimSpace(succeed(t, "maintain", "suites", "--recorded", dir, "--gpu", "G")), "\n")
	if len(rest) != len(suites)-2 {
		t.Errorf("%d suites are left, want %d", len(rest), len(suites)-2)
	}
	path := records.Path(dir, records.Ops, "G")
	f := testutil.Get[*records.File](t)(records.Read(path))
	f.Records[0].Kernels = records.Digests{"matmul": "0"}
	testutil.Do(t, f.Write(path))
	if out := succeed(t, append(args, "--drop-stale")...); strings.Contains(out, "removed") { // it was replaced
		t.Errorf("got %q, want nothing removed", out)
	}
	f.Records[0].Case = "9/9"
	testutil.Do(t, f.Write(path))
	if out := succeed(t, append(args, "--drop-stale")...); !strings.Contains(out, "removed: racecheck products 9/9") {
		t.Errorf("got %q, want the stale part removed", out)
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
