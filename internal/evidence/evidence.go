// Package evidence lists what must have run on a GPU for the kernels in the tree:
// the timed cases and, for every op, its kernels' tests, plain and under each
// sanitizer. All of it follows from the ops' specs. It compares the list with
// what is recorded: a source whose digest is another than in the tree must run
// again; one that nothing is recorded of has not been measured.
package evidence

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/stheno-ml/stheno/internal/opspec"
	"github.com/stheno-ml/stheno/internal/results"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
)

// A Timed is a case of an op that is timed in one element type.
type Timed struct {
	Spec  opspec.Spec
	Case  opspec.Case
	Dtype kernels.Dtype
}

// Key names the case in the results.
func (t Timed) Key() results.Key {
	return results.Key{Op: t.Spec.Name, Case: t.Case.Name, Dtype: t.Dtype.String()}
}

// Cases are all that is timed: the timed cases in the types that they name, in the
// order of the ops.
func Cases() (cases []Timed) {
	for _, s := range opspec.All() {
		for _, c := range s.Cases {
			for _, dt := range c.Timed {
				cases = append(cases, Timed{s, c, dt})
			}
		}
	}
	return cases
}

// launched maps each op to the kernels that any case of it launches on any device.
var launched = sync.OnceValues(func() (map[string]results.Digests, error) {
	all := map[string]results.Digests{}
	for _, s := range opspec.All() {
		all[s.Name] = results.Digests{}
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

// sources returns the digests of all sources of Stheno, the versions among them.
func sources() results.Digests {
	all := results.Digests(kernels.Digests())
	maps.Copy(all, versions.Library().Digests())
	return all
}

// Tree returns the digests of all kernels in the tree: Stheno's, and those of
// other libraries that an op's case launches.
func Tree() (results.Digests, error) {
	byOp, err := launched()
	if err != nil {
		return nil, err
	}
	all := sources()
	for _, digests := range byOp {
		maps.Copy(all, digests)
	}
	return all, nil
}

// Tools are what the tests of kernels run under: test is none, the others are
// those of NVIDIA's compute-sanitizer.
var Tools = []string{"racecheck", "initcheck", "memcheck", "synccheck", "test"}

// A Suite is a run of the tests of an op's kernels, or of a package whose tests
// launch kernels of no op, or a part of them, under a tool.
type Suite struct {
	Tool, Target string
	Part, Parts  int    // from 1 on
	Binary, Run  string // the test program, without .test, and its -test.run
	Kernels      results.Digests
}

// Name is how results name the suite.
func (s Suite) Name() string {
	name := s.Tool + " " + s.Target
	if s.Parts > 1 {
		name += fmt.Sprintf(" %d/%d", s.Part, s.Parts)
	}
	return name
}

// packages are the test programs of the packages that launch kernels of no op,
// with the sources of those.
var packages = map[string][]string{
	"cudaops": {"versions/increment", "versions/ripple"},
}

// OnTag are the sources that only Gorgonia's own machine launches, so that their
// evidence is in bench/results/tag.
var OnTag = []string{"elembinop", "elemunaryop"}

// testsOfPart is how many tests of one op run in one go, by tool: racecheck
// follows every access to shared memory, and took up to four seconds a test.
var testsOfPart = map[string]int{"racecheck": 60, "initcheck": 200}

// Suites are all that must have run, the slowest tool first. An op of many tests
// runs in parts.
func Suites() (suites []Suite, err error) {
	all := sources()
	byOp, err := launched()
	if err != nil {
		return nil, err
	}
	for _, tool := range Tools {
		for _, s := range opspec.All() {
			parts := 1
			if most := testsOfPart[tool]; most > 0 {
				parts = (tests(s) + most - 1) / most
			}
			for part := range parts {
				suites = append(suites, Suite{Tool: tool, Target: s.Name, Part: part + 1, Parts: parts,
					Binary: "stheno-module", Run: "^TestKernels$/^" + s.Name + "$", Kernels: byOp[s.Name]})
			}
		}
		for _, name := range slices.Sorted(maps.Keys(packages)) {
			digests := results.Digests{}
			for _, source := range packages[name] {
				digests[source] = all[source]
			}
			suites = append(suites, Suite{Tool: tool, Target: name, Part: 1, Parts: 1, Binary: name, Kernels: digests})
		}
	}
	return suites, nil
}

// tests counts those of an op's kernels.
func tests(s opspec.Spec) (n int) {
	for _, c := range s.Cases {
		if c.Tested() && !c.Composed {
			n += len(c.Types)
		}
	}
	return n
}

// A State is what the results say about something that must have run.
type State int

const (
	Unmeasured State = iota // nothing is recorded of it
	Stale                   // it ran with other kernels
	Current
)

// State compares a wanted suite with those that ran.
func (s Suite) State(ran []results.Suite) State {
	state := Unmeasured
	done := map[int]bool{}
	parts := 1
	for _, r := range ran {
		tool, targets, part, of := r.Of()
		if tool != s.Tool || len(r.Kernels) == 0 || !slices.Contains(targets, s.Target) {
			continue
		}
		state = max(state, s.stateOf(r))
		if s.stateOf(r) == Current && r.Passed() {
			done[part], parts = true, of
		}
	}
	if state == Current && len(done) < parts {
		return Stale // a part is missing, or failed
	}
	return state
}

// stateOf compares the kernels of one suite that ran with the wanted ones.
func (s Suite) stateOf(r results.Suite) State {
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

// In reports whether this very suite, with these kernels, passed among those that
// ran.
func (s Suite) In(ran []results.Suite) bool {
	return slices.ContainsFunc(ran, func(r results.Suite) bool {
		return r.Name == s.Name() && r.Passed() && s.stateOf(r) == Current
	})
}

// Recorded reads the results of a GPU from a folder, an empty file if there are
// none.
func Recorded(dir, gpu string) (*results.File, error) {
	files, err := results.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if f.GPU == gpu {
			return f, nil
		}
	}
	return &results.File{GPU: gpu}, nil
}

// Keys are the cases of ops that are timed, those of numbered versions left out.
func Keys() (keys []results.Key) {
	for _, c := range Cases() {
		if c.Case.Version == 0 {
			keys = append(keys, c.Key())
		}
	}
	return keys
}

// RowState compares the kernels that a case was timed with, according to a file,
// with those in the tree.
func RowState(f *results.File, key results.Key, tree results.Digests) State {
	row, ok := f.Row(key)
	switch {
	case !ok:
		return Unmeasured
	case len(row.Kernels) == 0 || len(row.Kernels.Changed(tree)) > 0:
		return Stale
	}
	return Current
}

// Check compares a GPU's results with the tree. stale is an error that names what
// ran with other kernels than those in the tree; unmeasured one that names what
// there is no record of.
func Check(f *results.File) (stale, unmeasured error) {
	tree, err := Tree()
	if err != nil {
		return err, nil
	}
	suites, err := Suites()
	if err != nil {
		return err, nil
	}
	var old, none []error
	for _, r := range f.Rows {
		if RowState(f, r.Key, tree) == Stale {
			old = append(old, fmt.Errorf("%v was timed with other kernels of %s.cu", r.Key, strings.Join(r.Kernels.Changed(tree), ".cu, ")))
		}
	}
	for _, key := range Keys() {
		if RowState(f, key, tree) == Unmeasured {
			none = append(none, fmt.Errorf("%v was not timed", key))
		}
	}
	for _, s := range suites {
		switch s.State(f.Suites) {
		case Stale:
			old = append(old, fmt.Errorf("%s ran with other kernels than %v, or not to its end", s.Name(), s.Kernels))
		case Unmeasured:
			none = append(none, fmt.Errorf("%s did not run with %v", s.Name(), s.Kernels))
		}
	}
	return again(f, old), again(f, none)
}

// CheckTag compares the runs on Gorgonia's own machine with the tree, as [Check]
// does.
func CheckTag(records []results.TagRecord) (stale, unmeasured error) {
	tree, err := Tree()
	if err != nil {
		return err, nil
	}
	const run = "bench/results/tag: %s of %s.cu ran on the %s: run TAG=1 bench/gpu-build.sh, and PARTS=tag bench/gpu-run.sh there"
	var old, none []error
	for _, r := range records {
		if r.Run == "" {
			continue
		}
		for _, source := range slices.Sorted(maps.Keys(tree)) {
			switch r.Kernels[source] {
			case tree[source]:
			case "":
				none = append(none, fmt.Errorf(run, "no kernels", source, r.GPU))
			default:
				old = append(old, fmt.Errorf(run, "other kernels", source, r.GPU))
			}
		}
	}
	return errors.Join(old...), errors.Join(none...)
}

// again says what to run.
func again(f *results.File, errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("bench/results/%s: run bench/gpu-run.sh on that GPU, which runs what is missing:\n%w", results.Name(f.GPU), errors.Join(errs...))
}
