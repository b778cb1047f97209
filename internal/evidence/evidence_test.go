package evidence

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/must"
	"github.com/stheno-ml/stheno/internal/opspec"
	"github.com/stheno-ml/stheno/internal/ratios"
	"github.com/stheno-ml/stheno/internal/results"
	"github.com/stheno-ml/stheno/kernels/versions"
)

const root = "../.."

// All records were measured with the kernels in the tree: a changed kernel
// needs its own cases and suites on a GPU again. Cases that no GPU has run yet fail
// where STHENO_REQUIRE_EVIDENCE=1, as before a release.
func TestEvidenceIsOfTheseKernels(t *testing.T) {
	files, err := Read(filepath.Join(root, "bench/results"))
	if err != nil {
		t.Fatal(err)
	}
	var stale, unmeasured error
	if changed := OnTag.Changed(must.Get[results.Digests](t)(Tree())); len(changed) > 0 {
		t.Errorf("%s.cu changed since Gorgonia's machine ran on a GPU: run its tests as CONTRIBUTING.md says, and write their digests into OnTag", strings.Join(changed, ".cu, "))
	}
	for _, f := range files {
		s, u := Check(f)
		stale, unmeasured = errors.Join(stale, s), errors.Join(unmeasured, u)
	}
	if stale != nil {
		t.Error(stale)
	}
	switch required := must.Required("EVIDENCE"); {
	case required && (unmeasured != nil || len(files) == 0):
		t.Errorf("STHENO_REQUIRE_EVIDENCE=1, but of %d GPUs: %v", len(files), unmeasured)
	case unmeasured != nil:
		t.Logf("NOT MEASURED: %v", unmeasured)
	}
}

func TestReadmeSpeedTable(t *testing.T) {
	files, err := Read(filepath.Join(root, "bench/results"))
	if err != nil {
		t.Fatal(err)
	}
	if err := results.CheckPage(filepath.Join(root, "README.md"), results.UpdateReadme, files, Keys()); err != nil {
		t.Error(err)
	}
}

func TestGraphTables(t *testing.T) {
	files, err := Read(filepath.Join(root, "bench/results/graphs"))
	if err != nil {
		t.Fatal(err)
	}
	if err := results.CheckPage(filepath.Join(root, "docs/graphs.md"), results.UpdateGraphs, files, GraphKeys()); err != nil {
		t.Error(err)
	}
	for _, f := range files {
		for _, p := range f.Peers {
			if !slices.Contains(GraphKeys(), p.Key) {
				t.Errorf("bench/results/graphs/%s: %s times %v, which is no graph", results.Name(f.GPU), p.By, p.Key)
			}
		}
	}
}

func TestStepTables(t *testing.T) {
	files, err := Read(filepath.Join(root, "bench/results/steps"))
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range []struct {
		page   string
		update results.Update
	}{
		{"README.md", results.UpdateReadmeSteps}, {"docs/training.md", results.UpdateSteps}, {"docs/training.md", results.UpdateParts},
		{"docs/precision.md", results.UpdatePrecision},
	} {
		if err := results.CheckPage(filepath.Join(root, table.page), table.update, files, StepKeys()); err != nil {
			t.Error(err)
		}
	}
	for _, f := range files {
		for _, p := range f.Peers {
			if !slices.Contains(StepKeys(), p.Key) {
				t.Errorf("bench/results/steps/%s: %s times %v, which is no training step", results.Name(f.GPU), p.By, p.Key)
			}
		}
	}
}

func TestAccuracyTables(t *testing.T) {
	files, err := Read(filepath.Join(root, "bench/results/accuracy"))
	if err != nil {
		t.Fatal(err)
	}
	if err := results.CheckPage(filepath.Join(root, "docs/precision.md"), results.UpdateAccuracy, files, nil); err != nil {
		t.Error(err)
	}
}

// The page of drawn cases is that of the record. Before a release, so are the kernels: a release draws its cases anew.
func TestDrawnTables(t *testing.T) {
	files, err := Read(filepath.Join(root, "bench/results/drawn"))
	if err != nil {
		t.Fatal(err)
	}
	if err := results.CheckPage(filepath.Join(root, "docs/drawn.md"), ratios.UpdatePage, files, nil); err != nil {
		t.Error(err)
	}
	tree := must.Get[results.Digests](t)(Tree())
	for _, f := range files {
		if _, err := os.Stat(filepath.Join(root, "docs", ratios.Picture(f.GPU))); err != nil {
			t.Error(err)
		}
		for _, r := range f.Rows {
			if must.Required("EVIDENCE") && RowState(f, r.Key, tree) != Current {
				t.Errorf("bench/results/drawn/%s: %v was timed with other kernels of %s.cu: run PARTS=random bench/gpu-run.sh", results.Name(f.GPU), r.Key, strings.Join(r.Kernels.Changed(tree), ".cu, "))
			}
		}
	}
}

// Every op has its suite under every tool, and every source of kernels is launched
// by a suite, or on Gorgonia's own machine: none escapes the sanitizers.
func TestSuitesCoverEverything(t *testing.T) {
	suites, err := Suites()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]int{}
	for _, s := range suites {
		names[s.Tool+" "+s.Target]++
	}
	covered := slices.Collect(maps.Keys(OnTag))
	for _, tool := range Tools {
		for _, op := range opspec.All() {
			if names[tool+" "+op.Name] == 0 {
				t.Errorf("%s has no suite under %s", op.Name, tool)
			}
		}
		for _, s := range suites {
			for source := range s.Kernels {
				covered = append(covered, source)
			}
		}
	}
	for source := range versions.Digests() {
		if !slices.Contains(covered, source) {
			t.Errorf("no suite launches a kernel of %s.cu: give it a case of an op, or name it in packages", source)
		}
	}
	if n := names["racecheck MatMul"]; n < 2 {
		t.Errorf("MatMul runs in %d parts under racecheck, want several", n)
	}
}

// recorded is a file in which everything has run with the kernels in the tree.
func recorded(t *testing.T) *results.File {
	t.Helper()
	f := &results.File{GPU: "G"}
	for _, c := range Cases() {
		p, _, err := c.Case.Plan(c.Dtype, opspec.Devices()[2])
		if err != nil {
			t.Fatal(err)
		}
		digests, err := p.Digests()
		if err != nil {
			t.Fatal(err)
		}
		f.Rows = append(f.Rows, results.Row{Key: c.Key(), Version: int(c.Case.Version), Kernels: digests})
	}
	suites, err := Suites()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range suites {
		f.Suites = append(f.Suites, results.Suite{Name: s.Name(), Result: "PASS", Kernels: s.Kernels})
	}
	return f
}

// changed is digests with another one of a source.
func changed(d results.Digests, source, digest string) results.Digests {
	c := results.Digests{}
	for s := range d {
		c[s] = d[s]
	}
	c[source] = digest
	if digest == "" {
		delete(c, source)
	}
	return c
}

func TestCheck(t *testing.T) {
	var some int // a suite that is one of several parts
	for i, s := range recorded(t).Suites {
		if strings.HasPrefix(s.Name, "racecheck MatMul 2/") {
			some = i
		}
	}
	for name, c := range map[string]struct {
		change            func(f *results.File)
		stale, unmeasured string // in the errors
	}{
		"all is well": {func(*results.File) {}, "", ""},
		"a row of another kernel": {func(f *results.File) { f.Rows[0].Kernels = changed(f.Rows[0].Kernels, "add", "x") },
			"Add/2^28/f32 was timed with other kernels of add.cu", ""},
		"a row that names no kernel": {func(f *results.File) { f.Rows[0].Kernels = nil }, "Add/2^28/f32 was timed", ""},
		"no row":                     {func(f *results.File) { f.Rows = f.Rows[1:] }, "", "Add/2^28/f32 was not timed"},
		"a suite of another kernel": {func(f *results.File) { f.Suites[some].Kernels = changed(f.Suites[some].Kernels, "matmul", "x") },
			"racecheck MatMul 2/", ""},
		"a failed suite":   {func(f *results.File) { f.Suites[some].Result = "FAIL" }, "racecheck MatMul 2/", ""},
		"a known failure":  {func(f *results.File) { f.Suites[some].Result, f.Suites[some].Known = "FAIL", "the driver's" }, "", ""},
		"a missing part":   {func(f *results.File) { f.Suites = slices.Delete(f.Suites, some, some+1) }, "racecheck MatMul 2/", ""},
		"suites of no op":  {func(f *results.File) { f.Suites = append(f.Suites, results.Suite{Name: "ops", Result: "FAIL"}) }, "", ""},
		"nothing recorded": {func(f *results.File) { *f = results.File{GPU: "G"} }, "", "memcheck Sum did not run"},
		"a new source": {func(f *results.File) {
			for i := range f.Suites {
				f.Suites[i].Kernels = changed(f.Suites[i].Kernels, "windowsum", "")
			}
		}, "", "synccheck WindowSum did not run"},
	} {
		f := recorded(t)
		c.change(f)
		stale, unmeasured := Check(f)
		for _, e := range []struct {
			err  error
			want string
		}{{stale, c.stale}, {unmeasured, c.unmeasured}} {
			if (e.err == nil) != (e.want == "") || e.err != nil && !strings.Contains(e.err.Error(), e.want) {
				t.Errorf("%s: %v, want %q", name, e.err, e.want)
			}
		}
	}
}

// A suite that passed in an earlier call need not run again, unless its kernels
// have changed since or another part is meant.
func TestIn(t *testing.T) {
	s := Suite{Tool: "memcheck", Target: "Sum", Part: 1, Parts: 2, Kernels: results.Digests{"sum": "a"}}
	for name, c := range map[string]struct {
		ran  results.Suite
		want bool
	}{
		"passed":        {results.Suite{Name: "memcheck Sum 1/2", Result: "PASS", Kernels: s.Kernels}, true},
		"failed":        {results.Suite{Name: "memcheck Sum 1/2", Result: "FAIL", Kernels: s.Kernels}, false},
		"other kernels": {results.Suite{Name: "memcheck Sum 1/2", Result: "PASS", Kernels: results.Digests{"sum": "b"}}, false},
		"other part":    {results.Suite{Name: "memcheck Sum 2/2", Result: "PASS", Kernels: s.Kernels}, false},
	} {
		if got := s.In([]results.Suite{c.ran}); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
