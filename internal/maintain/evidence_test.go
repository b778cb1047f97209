package maintain

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels/versions"
)

const root, results = "../..", "../../bench/results"

// The suites ran on a GPU with the kernels in the tree: a changed kernel needs its own again. Suites and cases
// that no GPU has run with them fail where STHENO_REQUIRE_EVIDENCE=1, as before a release.
func TestEvidenceIsOfTheseKernels(t *testing.T) {
	files, err := Read(results, records.Ops)
	if err != nil {
		t.Fatal(err)
	}
	if changed := OnTag.Changed(testutil.Get[records.Digests](t)(Tree())); len(changed) > 0 {
		t.Errorf("%s.cu changed since Gorgonia's machine ran on a GPU: run its tests as CONTRIBUTING.md says, and write their digests into OnTag", strings.Join(changed, ".cu, "))
	}
	stale, unmeasured := Check(files)
	if stale != nil {
		t.Error(stale)
	}
	switch required := testutil.Required("EVIDENCE"); {
	case required && (unmeasured != nil || len(files) == 0):
		t.Errorf("STHENO_REQUIRE_EVIDENCE=1, but of %d GPUs: %v", len(files), unmeasured)
	case unmeasured != nil:
		t.Logf("NOT MEASURED: %v", unmeasured)
	}
}

// Peers are of cases that there are, and before a release drawn cases are of the kernels in the tree: a release draws its cases anew.
func TestOtherRecords(t *testing.T) {
	for _, set := range []string{records.Graphs, records.Steps, records.Drawn} {
		cases := Keys(set)
		for _, f := range testutil.Get[[]*records.File](t)(Read(results, set)) {
			path := records.Path(results, set, f.GPU)
			for _, r := range f.Records {
				if set != records.Drawn && r.Kind == records.Peer && !slices.Contains(cases, r.Key) {
					t.Errorf("%s: %s times %v, which is no case", path, r.By, r.Key)
				}
				if set == records.Drawn && testutil.Required("EVIDENCE") && len(r.Kernels.Changed(f.Tree)) > 0 {
					t.Errorf("%s: %v was timed with other kernels of %s.cu: run PARTS=random bench/gpu-run.sh", path, r.Key, strings.Join(r.Kernels.Changed(f.Tree), ".cu, "))
				}
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
		names[s.By+" "+s.Op]++
	}
	covered := slices.Collect(maps.Keys(OnTag))
	for _, tool := range records.Tools {
		for _, op := range opspec.All() {
			if names[tool+" "+op.Name] == 0 && !op.Generated {
				t.Errorf("%s has no suite under %s", op.Name, tool)
			}
		}
		for _, s := range suites {
			for source := range s.Kernels {
				covered = append(covered, source)
				if strings.HasPrefix(source, "math/") { // a function of math.cu, in generated kernels
					covered = append(covered, "math")
				}
			}
		}
	}
	for source := range versions.Digests() {
		if !slices.Contains(covered, source) {
			t.Errorf("no suite launches a kernel of %s.cu: give it a case of an op, or name it in groups", source)
		}
	}
	if n := names["racecheck MatMul"]; n < 2 {
		t.Errorf("MatMul runs in %d parts under racecheck, want several", n)
	}
}

// ungrouped are the tests of cudaops/bench that are no evidence of kernels: of what measures and starts kernels, of errors, of faults that are
// planted, and of operands so large that a sanitizer has no memory for them.
var ungrouped = []string{"TestCalibrate", "TestProbes", "TestTimeGraph", "TestTimeGraphBad", "TestTimeStep", "TestTime", "TestTimeChecksInputs", "TestTimeWithin", "TestPlantedFault", "TestRunGuarded", "TestFirstMachine", "TestLoadTime", "TestSweep", "TestSweepProducts",
	"TestIncrementRacyShared", "TestRippleRacy", "TestRippleRacyHost", "TestFunctionsOnHost", "TestMapHugeOnGPU", "TestRowsHugeOnGPU", "TestIncrementErrors", "TestIndicesErrors", "TestWarpgroupErrors", "TestWindowsBad"}

// Every test of cudaops/bench is in one group, and all of its tests are in the parts of the group's suites, each once.
func TestGroups(t *testing.T) {
	grouped := map[string]int{}
	for name, g := range groups {
		if g.binary != "cudaops-bench" {
			continue
		}
		for tool, parts := range partsOf {
			var run []string
			under := g.testsUnder(tool)
			for part := range min(parts, len(under)) {
				run = append(run, strings.Split(strings.Trim(g.partTests(tool, part, min(parts, len(under))), "^()$"), "|")...)
			}
			slices.Sort(run)
			if want := slices.Sorted(slices.Values(under)); !slices.Equal(run, want) {
				t.Errorf("%s under %s: the parts run %v, want %v", name, tool, run, want)
			}
		}
		for _, test := range g.tests {
			grouped[test]++
		}
		for _, test := range g.checked {
			if !slices.Contains(g.tests, test) {
				t.Errorf("%s: %s runs under sanitizers alone", name, test)
			}
		}
	}
	for _, name := range ungrouped {
		grouped[name]++
	}
	paths, err := filepath.Glob("../../cudaops/bench/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		for _, match := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(testutil.Read(t, path)), -1) {
			if name := match[1]; grouped[name] != 1 && !strings.HasSuffix(name, "Times") {
				t.Errorf("%s of %s is in %d groups, want one, or ungrouped", name, path, grouped[name])
			}
			delete(grouped, match[1])
		}
	}
	for name := range grouped {
		t.Errorf("%s is no test of cudaops/bench", name)
	}
}

// recorded is a file in which everything has run with the kernels in the tree.
func recorded(t *testing.T) *records.File {
	t.Helper()
	f := &records.File{Set: records.Ops, GPU: "G", Runs: []records.Run{{}}}
	for _, one := range Cases(records.Ops, true) {
		c := one.(Op)
		p, _, err := c.Case.Plan(c.Dtype, opspec.Devices()[2])
		if err != nil {
			t.Fatal(err)
		}
		digests, err := p.Digests()
		if err != nil {
			t.Fatal(err)
		}
		f.Records = append(f.Records, records.Record{Kind: records.Time, Key: c.Key(), Kernels: digests})
	}
	suites, err := Suites()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range suites {
		f.Records = append(f.Records, ran(s.Suite(), "PASS", s.Kernels))
	}
	return f
}

// ran is the record of a suite.
func ran(name, result string, kernels records.Digests) records.Record {
	r := records.SuiteNamed(name)
	r.Result, r.Kernels = result, kernels
	return r
}

// changed is digests with another one of a source.
func changed(d records.Digests, source, digest string) records.Digests {
	c := records.Digests{}
	for s := range d {
		c[s] = d[s]
	}
	c[source] = digest
	if digest == "" {
		delete(c, source)
	}
	return c
}

func TestEvidenceCheck(t *testing.T) {
	tree := testutil.Get[records.Digests](t)(Tree())
	var some int // a suite that is one of several parts
	for i, s := range recorded(t).Records {
		if strings.HasPrefix(s.Suite(), "racecheck MatMul 2/") {
			some = i
		}
	}
	for name, c := range map[string]struct {
		change            func(f *records.File)
		stale, unmeasured string // in the errors
	}{
		"all is well": {func(*records.File) {}, "", ""},
		"a row of another kernel": {func(f *records.File) { f.Records[0].Kernels = changed(f.Records[0].Kernels, "add", "x") },
			"", "Add/2^28/f32 was not timed with these kernels"},
		"a row that names no kernel": {func(f *records.File) { f.Records[0].Kernels = nil }, "", "Add/2^28/f32 was not timed"},
		"no row":                     {func(f *records.File) { f.Records = f.Records[1:] }, "", "Add/2^28/f32 was not timed"},
		"a suite of another kernel": {func(f *records.File) { f.Records[some].Kernels = changed(f.Records[some].Kernels, "matmul", "x") },
			"racecheck MatMul 2/", ""},
		"a failed suite":   {func(f *records.File) { f.Records[some].Result = "FAIL" }, "racecheck MatMul 2/", ""},
		"a known failure":  {func(f *records.File) { f.Records[some].Result, f.Records[some].Known = "FAIL", "the driver's" }, "", ""},
		"a missing part":   {func(f *records.File) { f.Records = slices.Delete(f.Records, some, some+1) }, "", "racecheck MatMul 2/"},
		"suites of no op":  {func(f *records.File) { f.Records = append(f.Records, ran("ops", "FAIL", nil)) }, "", ""},
		"nothing recorded": {func(f *records.File) { f.Records = nil }, "", "memcheck Sum did not run"},
		"a new source": {func(f *records.File) {
			for i, r := range f.Records {
				if r.Kind == records.Suite {
					f.Records[i].Kernels = changed(r.Kernels, "windowsum", "")
				}
			}
		}, "", "synccheck WindowSum did not run"},
	} {
		f := recorded(t)
		for i, r := range f.Records { // with the kernels in the tree, and no failure
			f.Records[i].Kernels = records.Digests{}
			for source := range r.Kernels {
				f.Records[i].Kernels[source] = tree[source]
			}
			if r.Kind == records.Suite && r.Known == "" {
				f.Records[i].Result = "PASS"
			}
		}
		c.change(f)
		stale, unmeasured := Check([]*records.File{f})
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
	s := newSuite("memcheck", "Sum", 1, 2, "", "", records.Digests{"sum": "a"})
	for name, c := range map[string]struct {
		ran  records.Record
		want bool
	}{
		"passed":        {ran("memcheck Sum 1/2", "PASS", s.Kernels), true},
		"failed":        {ran("memcheck Sum 1/2", "FAIL", s.Kernels), false},
		"other kernels": {ran("memcheck Sum 1/2", "PASS", records.Digests{"sum": "b"}), false},
		"other part":    {ran("memcheck Sum 2/2", "PASS", s.Kernels), false},
	} {
		if got := s.In([]records.Record{c.ran}); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	thirds := []records.Record{ran("memcheck Sum 1/3", "PASS", s.Kernels), ran("memcheck Sum 2/3", "PASS", s.Kernels), ran("memcheck Sum 3/3", "PASS", s.Kernels)}
	if got := s.State(thirds); got != Current {
		t.Errorf("all three thirds passed: got state %v, want %v", got, Current)
	}
	if got := s.State(append(thirds[:2:2], ran("memcheck Sum 2/2", "PASS", s.Kernels))); got != Unmeasured {
		t.Errorf("two thirds and the second half passed: got state %v, want %v", got, Unmeasured)
	}
	if got := s.State([]records.Record{ran("memcheck Sum 7/3", "PASS", s.Kernels), ran("memcheck Sum 8/3", "PASS", s.Kernels), ran("memcheck Sum 9/3", "PASS", s.Kernels)}); got != Unmeasured {
		t.Errorf("three parts that there are not passed: got state %v, want %v", got, Unmeasured)
	}
}

// Of several outcomes of one suite the later counts, in one file or in several, unless it was cut short or ran with other kernels. A failure is not left unsaid.
func TestOutcomes(t *testing.T) {
	suites := testutil.Get[[]Suite](t)(Suites())
	s := suites[slices.IndexFunc(suites, func(s Suite) bool { return s.By == "racecheck" && s.Op == "products" })]
	others := maps.Clone(s.Kernels)
	others["matmul"] = "0"
	less := maps.Clone(s.Kernels)
	delete(less, "matmul_mma")
	of := func(result string, kernels records.Digests) records.Record { return ran(s.Suite(), result, kernels) }
	pass, fail, cut := of("PASS", s.Kernels), of("FAIL", s.Kernels), of("CUT", s.Kernels)
	for name, c := range map[string]struct {
		ran       []records.Record
		passed    bool
		complaint string // a part of the only one, or ""
	}{
		"passed":                      {[]records.Record{pass}, true, ""},
		"passed twice":                {[]records.Record{pass, pass}, true, ""},
		"passed, then failed":         {[]records.Record{pass, fail}, false, "not recorded: racecheck products 1/8: FAIL"},
		"failed, then passed":         {[]records.Record{fail, pass}, true, "recorded, but of an earlier call: racecheck products 1/8: FAIL"},
		"passed, then cut":            {[]records.Record{pass, cut}, true, ""},
		"cut, then passed":            {[]records.Record{cut, pass}, true, ""},
		"failed, then cut":            {[]records.Record{fail, cut}, false, "FAIL"},
		"cut":                         {[]records.Record{cut}, false, "CUT"},
		"other kernels":               {[]records.Record{of("PASS", others)}, false, "other kernels: matmul"},
		"passed, then failed without": {[]records.Record{pass, of("FAIL", others)}, true, ""},
		"a source is missing":         {[]records.Record{of("PASS", less)}, false, "other kernels: matmul_mma"},
		"another division":            {[]records.Record{ran("racecheck products 9/9", "PASS", s.Kernels)}, false, ""},
	} {
		passed, complaints, err := Outcomes(c.ran)
		testutil.Do(t, err)
		if got := len(passed) == 1 && passed[0].Result == "PASS"; got != c.passed || len(passed) > 1 {
			t.Errorf("%s: recorded %v", name, passed)
		}
		if got := strings.Join(complaints, "\n"); !strings.Contains(got, c.complaint) || (c.complaint == "") != (got == "") {
			t.Errorf("%s: got complaints %q, want %q", name, got, c.complaint)
		}
	}
}
