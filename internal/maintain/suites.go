package maintain

import (
	"fmt"
	"maps"
	"slices"
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
// the cases of ops launch.
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
	return all, nil
}

// A Suite is a run under a tool of the tests of an op's kernels, of a part of them, or of a package
// whose tests launch kernels of no op.
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

// packages are the test programs of packages that launch kernels of no op, or forms of them that an
// op uses for large operands alone, with the sources of these kernels.
var packages = map[string][]string{
	"cudaops-bench": {"conv", "conv_decode", "conv_depthwise", "conv_few", "conv_halo", "conv_hopper", "conv_mma", "conv_pixels", "gather", "im2col", "matmul", "matmul_double", "matmul_hopper", "matmul_mma", "matmul_mma_double", "matmul_mma_small", "matmul_band", "matmul_narrow", "matmul_outer", "matmul_round", "matmul_strip", "matmul_vector", "matmul_vector_half", "pool", "poolmax", "poolpair", "poolwalk",
		"scatter", "scatter_parts", "split", "versions/attention", "versions/conv", "versions/increment", "versions/matmul_ceiling", "versions/matmul_cluster", "versions/matmul_persistent", "versions/matmul_roles", "versions/matmul_six",
		"versions/matmul_tma", "versions/matmul_wgmma", "versions/matmul_wide", "versions/ripple"},
	"kernels-attention": {"attention_backward", "attention_hopper", "attention_hopper_backward", "attention_mma", "attention_mma_float", "attention_split", "attention_wgmma_float"},
	"kernels-basic":     {"categorical", "cumsum", "gather_index", "pick", "scatter_rows", "topk", "widen"},
	"ops":               {"update"},
}

// OnTag has the sources that only Gorgonia's own machine launches, with the digests that they had when its tests last ran on a
// GPU (see docs/cuda-versions.md).
var OnTag = records.Digests{"elembinop": "94e5961be0c8", "elemunaryop": "527ff0e94d60"}

// testsOfPart is the number of tests of one op that run in one go, by tool: racecheck follows every
// access to shared memory, and takes up to four seconds a test.
var testsOfPart = map[string]int{"racecheck": 60, "initcheck": 200}

// partsOfPackage is the number of parts in which a package's tests run, by tool.
var partsOfPackage = map[string]int{"test": 4, "racecheck": 8, "initcheck": 4, "memcheck": 4, "synccheck": 2}

// Suites returns all suites that must have run: those without a tool first, whose own limits of time others would break, then
// the slowest tool. An op of many tests runs in parts, and so does a package.
func Suites() (suites []Suite, err error) {
	all := records.Digests(versions.Digests())
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
		for _, name := range slices.Sorted(maps.Keys(packages)) {
			digests := records.Digests{}
			for _, source := range packages[name] {
				digests[source] = all[source]
			}
			parts := partsOfPackage[tool]
			for part := range parts {
				suites = append(suites, newSuite(tool, name, part+1, parts, name, "", digests))
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

// State compares a wanted suite with the recorded ones. It is stale if a part is missing, or failed.
func (s Suite) State(ran []records.Record) State {
	state, done, parts := Unmeasured, map[int]bool{}, 1
	for _, r := range ran {
		if r.By != s.By || len(r.Kernels) == 0 || !slices.Contains(r.Targets(), s.Op) {
			continue
		}
		one := s.stateOf(r)
		if state = max(state, one); one == Current && r.Passed() {
			part, of := r.Part()
			done[part], parts = true, of
		}
	}
	if state == Current && len(done) < parts {
		return Stale
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
