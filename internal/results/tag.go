package results

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/internal/jsonlines"
)

// A TagRecord is one try of Gorgonia's tag cuda: a build, or a run on a GPU.
// Files of bench/results/tag hold arrays of them: built.json is written by
// internal/tagmatrix, the others come from machines with a GPU.
type TagRecord struct {
	Versions
	Date  string `json:"date"`
	Build string `json:"build,omitempty"` // PASS, or the failure; "" where it was not tried
	Run   string `json:"run,omitempty"`   // the same, for the suites on a GPU

	// Of a run:
	GPU     string   `json:"gpu,omitempty"`
	Driver  string   `json:"driver,omitempty"`
	Kernels Digests  `json:"kernels,omitempty"`
	Suites  []Suite  `json:"suites,omitempty"`
	Cases   TagCases `json:"cases,omitempty"`
}

// TagCases counts the cases that passed, by test and op.
type TagCases map[string]map[string]int

// A TagTest is a test of gorgonia_machine_test.go that runs the cases of every op,
// as a suite of its own.
type TagTest struct {
	Name          string // of the function
	Machine, What string // in the table
	Gradients     bool   // is only for ops that have gradients
	Floats        bool   // is only for ops that return floating-point numbers
}

// TagTests are the tests of a run, in the order of the table.
var TagTests = []TagTest{
	{Name: "TestGorgoniaMachine", Machine: "tape.NewMachine", What: "values"},
	{Name: "TestGorgoniaMachineGradients", Machine: "tape.NewMachine", What: "gradients, bound and not", Gradients: true},
	{Name: "TestGorgoniaMachinePreallocated", Machine: "tape.NewMachine", What: "written in place"},
	{Name: "TestGorgoniaMachineLocked", Machine: "gorgonia.NewTapeMachine", What: "values"},
	{Name: "TestGorgoniaMachineLockedGradients", Machine: "gorgonia.NewTapeMachine", What: "gradients", Gradients: true},
	{Name: "TestGorgoniaMachineLisp", Machine: "tape.NewLispMachine", What: "values", Floats: true},
	{Name: "TestGorgoniaMachineLispGradients", Machine: "tape.NewLispMachine", What: "gradients", Gradients: true},
}

// tagSuites are the other suites of a run: a test that makes machine after
// machine, and those of whole packages.
var tagSuites = []string{"TestGorgoniaMachineLoop", "cudaops", "cudaops-tape", "ops"}

// TagOutcome returns the result of a run, PASS or the failures, and the cases that passed.
// logs are the suites' outputs with -test.v. A suite's exit status is not enough, since a test
// program that runs no test passes: of each suite of TagTests a case of each wanted op must have
// passed, and of the others any test.
func TagOutcome(suites []Suite, logs map[string]string, ops func(TagTest) []string) (run string, cases TagCases) {
	cases = TagCases{}
	var failed []string
	result := map[string]string{}
	for _, s := range suites {
		result[s.Name] = s.Result
		if s.Result != "PASS" {
			failed = append(failed, s.Name+": "+s.Result)
		}
	}
	check := func(name string) (ran bool) {
		r, ok := result[name]
		if !ok {
			failed = append(failed, name+": not run")
		}
		return r == "PASS"
	}
	for _, name := range tagSuites {
		if check(name) && len(passed(logs[name])) == 0 {
			failed = append(failed, name+": no test passed")
		}
	}
	for _, test := range TagTests {
		of := map[string]int{}
		for _, path := range passed(logs[test.Name]) {
			if len(path) > 3 && path[0] == test.Name { // test, op, type, case
				of[path[1]]++
			}
		}
		if len(of) > 0 {
			cases[test.Name] = of
		}
		if !check(test.Name) {
			continue
		}
		for _, op := range ops(test) {
			if of[op] == 0 {
				failed = append(failed, test.Name+": no case of "+op+" passed")
			}
		}
	}
	if len(failed) > 0 {
		return strings.Join(failed, "; "), cases
	}
	return "PASS", cases
}

var passLine = regexp.MustCompile(`(?m)^ *--- PASS: (\S+) \(`)

// passed returns the tests of a log that passed and have no tests inside, as paths.
func passed(log string) (paths [][]string) {
	matches := passLine.FindAllStringSubmatch(log, -1)
	outer := map[string]bool{}
	for _, m := range matches {
		for i, c := range m[1] {
			if c == '/' {
				outer[m[1][:i]] = true
			}
		}
	}
	for _, m := range matches {
		if !outer[m[1]] {
			paths = append(paths, strings.Split(m[1], "/"))
		}
	}
	return paths
}

// CheckPrograms returns an error if the programs recorded in a folder did not run on the GPU, with
// the driver and on the day of one of the runs recorded beside them.
func CheckPrograms(dir string, records []TagRecord) error {
	file := filepath.Join(dir, filepath.Base(ProgramsFile))
	table, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	got, _, _ := strings.Cut(string(table), "\n")
	var runs []string
	for _, r := range records {
		if r.Run != "" {
			runs = append(runs, RunOn(r.GPU, r.Driver, r.Date))
		}
	}
	if !slices.Contains(runs, got) {
		return fmt.Errorf("results: %s is of %q, the runs beside it are of %q: record both in one run (PARTS=tag bench/gpu-run.sh)", file, got, runs)
	}
	return nil
}

// RunOn describes the machine of a run, as a line above a table.
func RunOn(gpu, driver, date string) string {
	return fmt.Sprintf("%s, driver %s, %s.", gpu, driver, date)
}

// Versions are those of the modules that a program with the tag cuda is built of.
type Versions struct {
	CUDA     string `json:"cuda"`  // such as 13.0
	CUDNN    string `json:"cudnn"` // such as 9.28.0
	Go       string `json:"go"`    // such as go1.26.8
	Gorgonia string `json:"gorgonia"`
	CU       string `json:"cu"`
	Tensor   string `json:"tensor"`
}

// ReadTag reads all records of a folder.
func ReadTag(dir string) ([]TagRecord, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []TagRecord
	for _, path := range paths {
		var records []TagRecord
		if err := readJSON(path, &records); err != nil {
			return nil, err
		}
		for i, r := range records {
			if r.CUDA == "" || r.CUDNN == "" || r.Go == "" || r.Gorgonia == "" || r.CU == "" || r.Tensor == "" || r.Date == "" {
				return nil, fmt.Errorf("results: %s: record %d is %+v, want date, cuda, cudnn, go, gorgonia, cu and tensor", path, i, r)
			}
			if r.Build == "" && r.Run == "" {
				return nil, fmt.Errorf("results: %s: record %d has neither build nor run", path, i)
			}
			if r.Run != "" && (r.GPU == "" || r.Driver == "") {
				return nil, fmt.Errorf("results: %s: record %d has a run without gpu and driver", path, i)
			}
		}
		all = append(all, records...)
	}
	return all, nil
}

// WriteTag writes a file of records, a suite a line.
func WriteTag(path string, records []TagRecord) error { return jsonlines.Write(path, records, 3) }

// UpdateTag returns a page's text with the table of records between the markers
// <!-- tag:begin --> and <!-- tag:end -->.
func UpdateTag(text string, records []TagRecord) (string, error) {
	return Splice(text, "tag", TagTable(records))
}

// ProgramsFile is the table of outcomes of the programs in cudaops/tape on a GPU, which their test
// writes with STHENO_RECORD.
const ProgramsFile = "bench/results/tag/programs.md"

// UpdatePrograms returns a page's text with that table between the markers
// <!-- breakages:begin --> and <!-- breakages:end -->. An error such as <nil> is no HTML there.
func UpdatePrograms(text, table string) (string, error) {
	return Splice(text, "breakages", strings.ReplaceAll(table, "<", "&lt;"))
}

// UpdateCases returns a page's text with the tables of the cases that passed between
// the markers <!-- cases:begin --> and <!-- cases:end -->.
func UpdateCases(text string, records []TagRecord) (string, error) {
	return Splice(text, "cases", CasesTable(records))
}

// CasesTable is, for each run, a table of the cases that passed, by op and test.
func CasesTable(records []TagRecord) string {
	var tables []string
	for _, r := range records {
		if r.Run == "" {
			continue
		}
		var b strings.Builder
		b.WriteString(RunOn(r.GPU, r.Driver, r.Date))
		if len(r.Cases) == 0 {
			b.WriteString(" Which cases passed was not recorded.\n")
			tables = append(tables, b.String())
			continue
		}
		b.WriteString("\n\n| Op |")
		for _, test := range TagTests {
			fmt.Fprintf(&b, " `%s`: %s |", test.Machine, test.What)
		}
		b.WriteString("\n|---|" + strings.Repeat("--:|", len(TagTests)) + "\n")
		ops := map[string]bool{}
		for _, of := range r.Cases {
			for op := range of {
				ops[op] = true
			}
		}
		for _, op := range slices.Sorted(maps.Keys(ops)) {
			fmt.Fprintf(&b, "| `%s` |", op)
			for _, test := range TagTests {
				if n := r.Cases[test.Name][op]; n > 0 {
					fmt.Fprintf(&b, " %d |", n)
				} else {
					b.WriteString("  |")
				}
			}
			b.WriteString("\n")
		}
		tables = append(tables, b.String())
	}
	return strings.Join(tables, "\n")
}

// TagTable is a table of the versions that were tried, the newest first.
func TagTable(records []TagRecord) string {
	var order []Versions
	of := map[Versions][]TagRecord{}
	for _, r := range records {
		if of[r.Versions] == nil {
			order = append(order, r.Versions)
		}
		of[r.Versions] = append(of[r.Versions], r)
	}
	slices.SortStableFunc(order, func(a, b Versions) int {
		return slices.Compare(b.numbers(), a.numbers())
	})
	var b strings.Builder
	b.WriteString("| CUDA | cuDNN | Go | gorgonia | cu | tensor | Built and vetted, no GPU | Ran | GPU, driver |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, v := range order {
		var built, ran, on []string
		for _, r := range of[v] {
			if r.Build != "" {
				built = append(built, outcomeOn(r.Build, r.Date))
			}
			if r.Run != "" {
				ran = append(ran, outcomeOn(r.Run, r.Date))
				on = append(on, fmt.Sprintf("%s, %s", r.GPU, r.Driver))
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", v.CUDA, v.CUDNN, strings.TrimPrefix(v.Go, "go"),
			v.Gorgonia, v.CU, v.Tensor, orNotTried(built), orNotTried(ran), cell(strings.Join(on, "; ")))
	}
	return b.String()
}

// numbers are CUDA's and cuDNN's version, to sort by.
func (v Versions) numbers() []int {
	var n [5]int
	fmt.Sscanf(v.CUDA, "%d.%d", &n[0], &n[1])
	fmt.Sscanf(v.CUDNN, "%d.%d.%d", &n[2], &n[3], &n[4])
	return n[:]
}

func outcomeOn(result, date string) string {
	if result == "PASS" {
		return "yes, " + date
	}
	return cell("**no**, " + date + ": " + result)
}

func orNotTried(all []string) string {
	if len(all) == 0 {
		return "not tried"
	}
	return strings.Join(all, "; ")
}
