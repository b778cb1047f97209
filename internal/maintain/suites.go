package maintain

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/versions"
)

// launched maps each op to the kernels that any case of it launches on any device.
var launched = sync.OnceValues(func() (map[string]records.Digests, error) {
	all := map[string]records.Digests{}
	for _, s := range opspec.All() {
		all[s.Name] = records.Digests{}
		for _, c := range s.Cases {
			if c.Composed {
				continue
			}
			for _, dt := range c.Types {
				for _, dev := range opspec.Devices() {
					p, _, err := c.Plan(dt, dev)
					if err != nil {
						return nil, fmt.Errorf("%s %s: %w", s.Name, c.Name, err)
					}
					digests, err := p.Digests()
					if err != nil {
						return nil, fmt.Errorf("%s %s: %w", s.Name, c.Name, err)
					}
					maps.Copy(all[s.Name], digests)
				}
			}
		}
	}
	return all, nil
})

// Tree returns the digests of all kernels in the tree: Stheno's, and those of other libraries that
// the cases of ops launch; and those of the generator and of the lists of tests of groups.
func Tree() (records.Digests, error) {
	byOp, err := launched()
	if err != nil {
		return nil, err
	}
	all, err := codegen.Digests()
	if err != nil {
		return nil, err
	}
	maps.Copy(all, versions.Digests())
	for _, digests := range byOp {
		maps.Copy(all, digests)
	}
	for name, g := range groups {
		for _, tool := range records.Tools {
			digests, err := g.digests(name, tool)
			if err != nil {
				return nil, err
			}
			maps.Copy(all, digests)
		}
	}
	return all, nil
}

// A Suite is a run under a tool of the tests of an op's kernels, of a part of them, or of a [group].
type Suite struct {
	records.Record        // without an outcome
	Binary, Tests  string // the test program, without .test, and its -test.run
}

// newSuite returns a part of a suite. A suite in one part has no number.
func newSuite(tool, target string, part, parts int, binary, tests string, kernels records.Digests) Suite {
	s := Suite{records.Record{Kind: records.Suite, Key: records.Key{Op: target}, By: tool, Kernels: kernels}, binary, tests}
	if parts > 1 {
		s.Case = fmt.Sprintf("%d/%d", part, parts)
	}
	return s
}

// A group is the tests of a program that launch kernels of no op, or forms of them that an op uses for large operands alone. A change of
// a kernel makes the evidence of its groups stale, so a group has the tests of one family of kernels.
type group struct {
	binary  string
	tests   []string // those that take longest first; nil for all of the program
	checked []string // those that run under sanitizers, nil for all of tests: a sanitizer wants each entry point, not each size
	tools   []string // nil for all
	kernels []string // sources; nil for the generator, and all functions of math.cu, which generated kernels apply
}

// groups by the names of their suites.
var groups = map[string]group{
	"convolutions": {
		binary:  "cudaops-bench",
		checked: []string{"TestConvEntries", "TestConvSplitOnGPU", "TestImageSplitsOnGPU"},
		tests:   []string{"TestConvEntries", "TestConvTensorOnGPU", "TestConvOnGPU", "TestConvHaloOnGPU", "TestConvFewOnGPU", "TestConvPixelsOnGPU", "TestConvSplitOnGPU", "TestConvSumOnGPU", "TestImageSplitsOnGPU"},
		kernels: []string{"conv", "conv_decode", "conv_depthwise", "conv_few", "conv_few_split", "conv_halo", "conv_hopper", "conv_mma", "conv_pixels"},
	},
	"products": {
		binary:  "cudaops-bench",
		checked: []string{"TestTensorEntries", "TestProductEntries", "TestReducedHalves", "TestReducedEpilogues", "TestMatMulEpilogues", "TestSmallEpilogues", "TestReducedParts", "TestPlanes", "TestSingleForms", "TestLongOuterProducts"},
		tests: []string{"TestTensorEntries", "TestProductEntries", "TestReducedHalves", "TestReducedForms", "TestReducedEpilogues", "TestMatMulForms", "TestMatMulEpilogues", "TestSmallEpilogues", "TestReducedParts", "TestCandidates", "TestPlanes", "TestSingleForms", "TestSmallForms", "TestProductAccuracy",
			"TestMatMulCandidates", "TestReducedRandom", "TestReducedRounding", "TestDoubleAccuracy", "TestSmallRandom", "TestSmallRounding", "TestMatMulEpilogueFunctions", "TestLongOuterProducts"},
		kernels: []string{"matmul", "matmul_band", "matmul_double", "matmul_hopper", "matmul_inner", "matmul_mma", "matmul_mma_double", "matmul_mma_single", "matmul_mma_small", "matmul_narrow", "matmul_outer", "matmul_round", "matmul_strip", "matmul_tall", "matmul_tall_hopper"},
	},
	"vectors": {
		binary:  "cudaops-bench",
		tests:   []string{"TestVectorsOnGPU", "TestReducedVectors"},
		kernels: []string{"matmul_vector", "matmul_vector_bulk", "matmul_vector_half"},
	},
	"indices": {
		binary:  "cudaops-bench",
		tests:   []string{"TestIndices", "TestScatterParts", "TestIndicesLaunches"},
		kernels: []string{"gather", "scatter", "scatter_parts", "split"},
	},
	"windows": {
		binary:  "cudaops-bench",
		tests:   []string{"TestWindows", "TestMaxPooling"},
		kernels: []string{"im2col", "pool", "poolmax", "poolpair", "poolwalk"},
	},
	"sums": {
		binary:  "cudaops-bench",
		checked: []string{"TestSumCandidates", "TestHistogramHalves", "TestWindowSums", "TestSumsOfManyRows"},
		tests:   []string{"TestSumCandidates", "TestHistogramHalves", "TestWindowSums", "TestSumsOfManyRows"},
		kernels: []string{"sum", "histogram", "windowsum"},
	},
	"histograms": { // racecheck leaves out the op's cases of so many elements
		binary:  "cudaops-bench",
		checked: []string{"TestHistogramManyBins", "TestHistogramColumns"},
		tests:   []string{"TestHistogramManyBins", "TestHistogramColumns", "TestHistogramBeyond32Bits"},
		kernels: []string{"histogram"},
	},
	"generated": {
		binary: "cudaops-bench",
		checked: []string{"TestSplitsOnGPU", "TestStreamedOnGPU", "TestRowsFunctionsOnGPU", "TestRowsTogetherOnGPU", "TestRowsReduceIntegersOnGPU", "TestRowsLongOnGPU", "TestRowsStreamOnGPU", "TestRowsReduceOnGPU", "TestRowsOnGPU", "TestMapEdgesOnGPU",
			"TestMixedOnGPU", "TestConcatOnGPU", "TestStoredOnGPU", "TestRowsQuotientsOnGPU", "TestMapTilesOnGPU", "TestMapTilesBesideOnGPU", "TestNormalOnGPU"},
		tests: []string{"TestSplitsOnGPU", "TestStreamedOnGPU", "TestRowsFunctionsOnGPU", "TestFunctionsOnGPU", "TestRowsTogetherOnGPU", "TestRowsReduceIntegersOnGPU", "TestRowsLongOnGPU", "TestRowsStreamOnGPU", "TestRowsReduceOnGPU", "TestRowsOnGPU", "TestMapEdgesOnGPU",
			"TestMixedOnGPU", "TestConcatOnGPU", "TestMapOnGPU", "TestMapFloat64OnGPU", "TestStoredOnGPU", "TestRowsQuotientsOnGPU", "TestNegatedExtremesOnGPU", "TestInverseIsPositiveOnGPU", "TestMapHalvesOnGPU", "TestMapMinusZeroOnGPU", "TestMapIntegersOnGPU",
			"TestMapTilesOnGPU", "TestMapTilesBesideOnGPU", "TestNormalOnGPU"},
	},
	"versions": { // nothing but notebooks launches them
		binary: "cudaops-bench",
		tools:  []string{"test", "memcheck"},
		tests:  []string{"TestAttentionVersions", "TestBarriers", "TestConvVersions", "TestWarpgroupMatMul", "TestIncrement", "TestRipple", "TestCooperativeTogether", "TestResident"},
		kernels: []string{"versions/attention", "versions/conv", "versions/increment", "versions/matmul_ceiling", "versions/matmul_cluster", "versions/matmul_persistent", "versions/matmul_roles", "versions/matmul_six",
			"versions/matmul_tma", "versions/matmul_wgmma", "versions/matmul_wide", "versions/ripple"},
	},
	"kernels-attention": {binary: "kernels-attention", kernels: []string{"attention_any", "attention_backward", "attention_double", "attention_few", "attention_hopper", "attention_hopper_backward", "attention_mma", "attention_mma_wide", "attention_pad", "attention_split", "attention_wgmma_float"}},
	"kernels-basic":     {binary: "kernels-basic", kernels: []string{"categorical", "cumsum", "gather_index", "pick", "scatter_rows", "topk", "widen"}},
	"ops":               {binary: "ops", kernels: []string{"update"}},
}

// digests returns those of what a group's evidence under a tool depends on: the kernels, the generator for a group of generated ones, and the list of tests,
// so that a new test must run too.
func (g group) digests(name, tool string) (records.Digests, error) {
	all, digests := versions.Digests(), records.Digests{}
	if g.kernels == nil {
		functions, err := codegen.Digests()
		if err != nil {
			return nil, err
		}
		maps.Copy(digests, functions)
		if digests["generator"], err = generatorDigest(); err != nil {
			return nil, err
		}
	}
	for _, source := range g.kernels {
		digests[source] = all[source]
	}
	if tests := g.testsUnder(tool); tests != nil {
		list := "tests/"
		if tool != "test" && g.checked != nil {
			list = "checked/"
		}
		digests[list+name] = testsDigest(tests)
	}
	return digests, nil
}

// testsDigest is the digest of a list of tests, in any order.
func testsDigest(tests []string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(slices.Sorted(slices.Values(tests)), "|"))))[:12]
}

// testsUnder returns the tests that run under a tool.
func (g group) testsUnder(tool string) []string {
	if tool != "test" && g.checked != nil {
		return g.checked
	}
	return g.tests
}

// partTests returns the -test.run of a part, "" if the program's own list of tests is divided into parts.
func (g group) partTests(tool string, part, parts int) string {
	var tests []string
	for i, name := range g.testsUnder(tool) {
		if i%parts == part {
			tests = append(tests, name)
		}
	}
	if tests == nil {
		return ""
	}
	return "^(" + strings.Join(tests, "|") + ")$"
}

// OnTag has the sources that only Gorgonia's own machine launches, with the digests that they had when its tests last ran on a
// GPU (see docs/cuda-versions.md).
var OnTag = records.Digests{"elembinop": "c94a06829ecc", "elemunaryop": "b06c18f4bfb2"}

// testsOfPart is the number of tests of one op that run in one go, by tool: racecheck follows every
// access to shared memory, and takes up to four seconds a test.
var testsOfPart = map[string]int{"racecheck": 200, "initcheck": 200}

// partsOf is the number of parts in which the tests of a group run, by tool, if the group has as many.
var partsOf = map[string]int{"test": 4, "racecheck": 8, "initcheck": 4, "memcheck": 4, "synccheck": 2}

// Suites returns all suites that must have run: those without a tool first, whose own limits of time others would break, then
// the slowest tool. An op of many tests runs in parts, and so does a group.
func Suites() (suites []Suite, err error) {
	byOp, err := launched()
	if err != nil {
		return nil, err
	}
	for _, tool := range records.Tools {
		for _, s := range opspec.All() {
			if s.Generated {
				continue
			}
			parts := 1
			if most := testsOfPart[tool]; most > 0 {
				parts = (tests(s) + most - 1) / most
			}
			for part := range parts {
				suites = append(suites, newSuite(tool, s.Name, part+1, parts, "stheno-module", "^TestKernels$/^"+s.Name+"$", byOp[s.Name]))
			}
		}
		for _, name := range slices.Sorted(maps.Keys(groups)) {
			g := groups[name]
			if g.tools != nil && !slices.Contains(g.tools, tool) {
				continue
			}
			digests, err := g.digests(name, tool)
			if err != nil {
				return nil, err
			}
			parts := partsOf[tool]
			if g.tests != nil {
				parts = min(parts, len(g.testsUnder(tool)))
			}
			for part := range parts {
				suites = append(suites, newSuite(tool, name, part+1, parts, g.binary, g.partTests(tool, part, parts), digests))
			}
		}
	}
	return suites, nil
}

// tests returns the number of tests of an op's kernels.
func tests(s opspec.Spec) (n int) {
	for _, c := range s.Cases {
		if c.Tested() && !c.Composed {
			n += len(c.Types)
		}
	}
	return n
}

// A State is that of a suite or a case that must have run, according to the results.
type State int

const (
	Unmeasured State = iota // nothing is recorded of it
	Stale                   // it ran with other kernels
	Current
)

// State compares a wanted suite with the recorded ones. It is current if it passed, or if all parts passed when its tests ran in another
// number of parts. It is stale if a part failed or ran with other kernels; a part that did not run is unmeasured.
func (s Suite) State(ran []records.Record) State {
	if s.In(ran) {
		return Current
	}
	state, done := Unmeasured, map[int]map[int]bool{} // parts that passed, by the number of parts
	for _, r := range ran {
		if r.By != s.By || len(r.Kernels) == 0 || !slices.Contains(r.Targets(), s.Op) {
			continue
		}
		switch one := s.stateOf(r); {
		case one == Current && r.Passed():
			part, parts := r.Part()
			if part < 1 || part > parts {
				continue
			}
			if done[parts] == nil {
				done[parts] = map[int]bool{}
			}
			if done[parts][part] = true; len(done[parts]) == parts {
				return Current
			}
		case one != Unmeasured:
			state = Stale
		}
	}
	return state
}

// stateOf compares the kernels of a recorded suite with the wanted ones.
func (s Suite) stateOf(r records.Record) State {
	state := Current
	for source, digest := range s.Kernels {
		switch r.Kernels[source] {
		case digest:
		case "":
			state = min(state, Unmeasured)
		default:
			return Stale
		}
	}
	return state
}

// In reports whether this suite, with these kernels, is among those recorded as passed.
func (s Suite) In(ran []records.Record) bool {
	return slices.ContainsFunc(ran, func(r records.Record) bool {
		return r.Suite() == s.Suite() && r.Passed() && s.stateOf(r) == Current
	})
}

// Outcomes selects what can be recorded of suites that ran, possibly in several calls, in their order: those that passed with the kernels in the
// tree, each once. Of two outcomes of a suite with these kernels the later counts, unless its time ended before it failed at anything. Complaints say why the others
// of the wanted suites are not recorded, and which of those that passed had failed before.
func Outcomes(ran []records.Record) (passed []records.Record, complaints []string, err error) {
	wanted, err := Suites()
	if err != nil {
		return nil, nil, err
	}
	for _, s := range wanted {
		var outcome, failed, other *records.Record // with these kernels, and with others
		for i := range ran {
			switch r := &ran[i]; {
			case r.Suite() != s.Suite():
			case s.stateOf(*r) != Current:
				other = r
			case outcome == nil || r.Result != cut:
				if outcome = r; !r.Passed() && r.Result != cut {
					failed = r
				}
			}
		}
		switch {
		case outcome != nil && outcome.Passed():
			if passed = append(passed, *outcome); failed != nil {
				complaints = append(complaints, fmt.Sprintf("recorded, but of an earlier call: %s: %s, %s", s.Suite(), failed.Result, failed.Note))
			}
		case outcome != nil:
			complaints = append(complaints, fmt.Sprintf("not recorded: %s: %s, %s", s.Suite(), outcome.Result, outcome.Note))
		case other != nil:
			complaints = append(complaints, fmt.Sprintf("not recorded: %s ran with other kernels: %s", s.Suite(), strings.Join(s.Kernels.Changed(other.Kernels), ", ")))
		}
	}
	return passed, complaints, nil
}

// cut is the result of a suite whose time ended before it failed at anything, see bench/gpu-run.sh.
const cut = "CUT"

// DropStale removes from a file the suites that ran with other kernels than those in the tree, and returns their names.
func DropStale(f *records.File, tree records.Digests) (names []string) {
	f.Records = slices.DeleteFunc(f.Records, func(r records.Record) bool {
		stale := r.Kind == records.Suite && len(r.Kernels.Changed(tree)) > 0
		if stale {
			names = append(names, r.Suite())
		}
		return stale
	})
	return names
}
