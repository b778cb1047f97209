// Package records holds what was measured on GPUs: a [File] for each set of cases and each GPU in bench/results, a [Record] a line.
// It also makes the tables of README.md and docs of them. Package maintain compares records with the kernels of the tree.
package records

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/stheno-ml/stheno/internal/jsonlines"
)

// Kind tells what a record is of.
type Kind string

const (
	Time  Kind = "time"  // a case, timed
	Part  Kind = "part"  // an instruction of a case's program: Us is what it adds to the time of all
	Error Kind = "error" // the errors of a product, here or in another library
	Peer  Kind = "peer"  // the same case in another library
	Suite Kind = "suite" // the outcome of a suite of tests
	Loss  Kind = "loss"  // the mean loss of some steps of a training: Case has the steps, Dtype how they are computed
	Check Kind = "check" // the small cases of an op, compared with their references: Note counts them
	Fault Kind = "fault" // a case that could not be measured, or has a wrong result: Note has the error
)

// Record is a measurement of a case, or the outcome of a suite of tests.
type Record struct {
	Kind Kind `json:"kind"`
	Key       // of a suite: the target of its tests, and which part of them it is, such as 2/4
	// By is "" for Stheno; the library, its version and its call for a peer; the instruction for a part; the tool that a suite ran
	// under, "" for none.
	By string  `json:"by,omitempty"`
	Us float64 `json:"us,omitempty"` // the median
	// Values are further figures. Those that are absent are 0.
	//
	//	bytes, flops   the least traffic, inputs read once, or as often as they must be, output written once; the operations
	//	min, max, runs of the times
	//	error          the largest of an element, as a share of the error that is allowed
	//	version        the numbered version of the op, 0 for the op itself
	//	run            the median time of RunAll of a graph or a step, in us, with copies from and to the host
	//	launches, host of a run: launches, and ops on the host, which Us leaves out
	//	off            how far the worst learnable was, after checked steps, from where steps on the host took it, as a share of how
	//	               far that is from where it began
	//	least          us that a part's bytes or operations take at the device's peak
	//	largest, mean, wrong   the errors of the elements of a product, see maintain.Errors
	//	solver, peak   bytes on a GPU: of the solver's state, and of the most that is alive at once
	//	seconds        of a suite
	//	loss           the mean loss of the steps
	Values map[string]float64 `json:"values,omitempty"`
	// Note says how the result was checked: "all" elements, or "16 rows" of it; the shape of a part's result; the counts of a suite.
	Note   string `json:"note,omitempty"`
	Result string `json:"result,omitempty"` // of a suite: PASS, FAIL, or CUT: out of time without a failure
	// Known, written by hand, explains a suite's failure that does not speak against the kernels.
	Known   string  `json:"known,omitempty"`
	Kernels Digests `json:"kernels,omitempty"` // those that were launched
	Run     int     `json:"run,omitempty"`     // index in the file's Runs
}

// Key names a case: an op, a graph or a step, one of its cases, an element type.
type Key struct {
	Op    string `json:"op"`
	Case  string `json:"case,omitempty"`
	Dtype string `json:"dtype,omitempty"`
}

// String prints op/case/dtype.
func (k Key) String() string { return k.Op + "/" + k.Case + "/" + k.Dtype }

// Run describes how measurements were made.
type Run struct {
	Driver string  `json:"driver"`
	CUDA   string  `json:"cuda"`
	Go     string  `json:"go"`
	Date   string  `json:"date"`
	Copy   float64 `json:"copy_gb_s"`      // device to device, read and write counted
	Seed   uint64  `json:"seed,omitempty"` // of the cases, where they were drawn
	// Calibration is the name of the GPU's, if it has one.
	Calibration string `json:"calibration,omitempty"`
}

// Sets of cases. Each has a folder of bench/results.
const (
	Ops      = "ops"
	Graphs   = "graphs"
	Steps    = "steps"
	Products = "products" // errors of products, and times with special operands
	Drawn    = "drawn"
	Ranks    = "ranks"  // steps and all-reduces on one and on several GPUs, by TestRankTimes of package nn
	Losses   = "losses" // losses of a training in each precision, by TestLossCurves of package nn
)

// LossesIn is the Dtype of the losses that those of the other precisions are compared with.
const LossesIn = "float32"

// File has the records of a set on one GPU.
type File struct {
	Set     string   `json:"set"`
	GPU     string   `json:"gpu"`
	Compute string   `json:"compute_capability"`
	SMs     int      `json:"sms"`
	L2      int64    `json:"l2_bytes"`
	Memory  int64    `json:"memory_bytes"`
	Runs    []Run    `json:"runs"` // the first heads the tables
	Records []Record `json:"records"`

	// Tree has the digests of this build's kernels, where the file is compared with them; see [File.Since].
	Tree Digests `json:"-"`
}

// Head returns the run that heads the tables.
func (f *File) Head() Run { return f.Runs[0] }

// RunOf returns the run of a record.
func (f *File) RunOf(r Record) Run { return f.Runs[r.Run] }

// Of returns the records of a kind, in order.
func (f *File) Of(kind Kind) (list []Record) {
	for _, r := range f.Records {
		if r.Kind == kind {
			list = append(list, r)
		}
	}
	return list
}

// Time returns the time of a case, or its errors; ok is false if there are none.
func (f *File) Time(k Key) (r Record, ok bool) {
	for _, r := range f.Records {
		if r.Key == k && (r.Kind == Time || r.Kind == Error && r.By == "") {
			return r, true
		}
	}
	return Record{}, false
}

// Local returns what was measured of a case here: its time or errors, the check of an op's cases, or a fault; ok is false if there is nothing.
func (f *File) Local(k Key) (r Record, ok bool) {
	for _, r := range f.Records {
		if r.Key == k && r.Kind != Peer && r.Kind != Suite {
			return r, true
		}
	}
	return Record{}, false
}

// Best returns the fastest peer on a case; ok is false if there is none.
func (f *File) Best(k Key) (best Record, ok bool) {
	for _, r := range f.Records {
		if r.Kind == Peer && r.Key == k && (!ok || r.Us < best.Us) {
			best, ok = r, true
		}
	}
	return best, ok
}

// Unmatched returns the peers on cases that the file has no time of, which reveals a misspelt case.
func (f *File) Unmatched() (lost []Record) {
	for _, p := range f.Of(Peer) {
		if _, ok := f.Time(p.Key); !ok {
			lost = append(lost, p)
		}
	}
	return lost
}

// Name is the name of a GPU's files: lower case, words joined by '-'.
func Name(gpu string) string {
	words := strings.FieldsFunc(strings.ToLower(gpu), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	return strings.Join(words, "-") + ".json"
}

// Path returns the file of a set and a GPU in a folder such as bench/results.
func Path(folder, set, gpu string) string { return filepath.Join(folder, set, Name(gpu)) }

// Write writes the file, a run or a record a line.
func (f *File) Write(path string) error { return jsonlines.Write(path, f, 2) }

// Read reads one file.
func Read(path string) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return decode(path, text)
}

// decode reads the text of the file of that name.
func decode(name string, text []byte) (*File, error) {
	f := new(File)
	if err := strict(name, text, f); err != nil {
		return nil, err
	}
	if len(f.Runs) == 0 || f.Set == "" || f.GPU == "" {
		return nil, fmt.Errorf("records: %s: got set %q, GPU %q and %d runs, want all three", name, f.Set, f.GPU, len(f.Runs))
	}
	for i, r := range f.Records {
		if r.Op == "" || r.Run < 0 || r.Run >= len(f.Runs) {
			return nil, fmt.Errorf("records: %s: record %d is of %q in run %d, want an op and one of %d runs", name, i, r.Op, r.Run, len(f.Runs))
		}
	}
	return f, nil
}

// strict decodes JSON that has no other fields than v.
func strict(name string, text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("records: %s: %w", name, err)
	}
	return nil
}

// ReadSet reads the files of a set from a folder such as bench/results, in the order of their names.
func ReadSet(folder fs.FS, set string) (files []*File, err error) {
	paths, err := fs.Glob(folder, path.Join(set, "*.json"))
	if err != nil {
		return nil, err
	}
	for _, p := range paths {
		text, err := fs.ReadFile(folder, p)
		if err != nil {
			return nil, err
		}
		f, err := decode(p, text)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// ReadPeers reads the output of bench/peers.py: an array of records. No path gives none.
func ReadPeers(path string) (peers []Record, err error) {
	text, err := readIf(path)
	if err == nil && path != "" {
		err = strict(path, text, &peers)
	}
	for i, p := range peers {
		if err == nil && (p.Kind != Peer || p.Op == "" || p.Case == "" || p.Dtype == "" || p.By == "" || !(p.Us > 0)) {
			err = fmt.Errorf("records: %s: peer %d is %+v, want the kind peer, op, case, dtype, by and a time above 0", path, i, p)
		}
	}
	return peers, err
}

// Tools are the tools that the tests of kernels run under. "test" runs them without a tool; each
// further name is a tool of NVIDIA's compute-sanitizer.
var Tools = []string{"test", "racecheck", "initcheck", "memcheck", "synccheck"}

// SuiteNamed returns a record of the suite of that name, see [Record.Suite].
func SuiteNamed(name string) Record {
	s := Record{Kind: Suite, Key: Key{Op: name}}
	if tool, rest, _ := strings.Cut(name, " "); slices.Contains(Tools, tool) {
		s.By, s.Op = tool, rest
	}
	if i := strings.LastIndex(s.Op, " "); i >= 0 && strings.Contains(s.Op[i:], "/") {
		s.Op, s.Case = s.Op[:i], s.Op[i+1:]
	}
	return s
}

// Suite returns the suite's name: "TOOL TARGET", or "TOOL TARGET k/n" for a part of the tests of an op's kernels; TARGET may be
// several ops with | between them.
func (r Record) Suite() string {
	return strings.TrimSpace(r.By+" "+r.Op) + strings.TrimSuffix(" "+r.Case, " ")
}

// Targets returns the ops or the package whose tests a suite ran.
func (r Record) Targets() []string { return strings.Split(r.Op, "|") }

// Part returns which of how many parts of its target's tests a suite ran.
func (r Record) Part() (part, parts int) {
	if n, err := fmt.Sscanf(r.Case, "%d/%d", &part, &parts); n != 2 || err != nil {
		return 1, 1
	}
	return part, parts
}

// Passed reports whether a suite passed, or failed for a known reason that does not speak against the kernels.
func (r Record) Passed() bool { return r.Result == "PASS" || r.Known != "" }

// ReadSuites reads lines of name, result, seconds, note and kernels, with tabs between them; kernels are as [Digests.String] prints
// them. Of two lines of one name the later counts. No path gives none.
func ReadSuites(path string) (suites []Record, err error) {
	text, err := readIf(path)
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(cells) != 5 {
			return nil, fmt.Errorf("records: %s: line %d has %d cells, want name, result, seconds, note, kernels", path, n, len(cells))
		}
		s := SuiteNamed(cells[0])
		s.Result, s.Note = cells[1], cells[3]
		seconds, err := strconv.ParseFloat(cells[2], 64)
		if err == nil {
			s.Kernels, err = parseDigests(cells[4])
		}
		if err != nil {
			return nil, fmt.Errorf("records: %s: line %d: %w", path, n, err)
		}
		s.Values = map[string]float64{"seconds": seconds}
		suites = append(slices.DeleteFunc(suites, func(before Record) bool { return before.Suite() == cells[0] }), s)
	}
	return suites, err
}

// readIf reads a file, if there is a path.
func readIf(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	return os.ReadFile(path)
}

// Digests maps sources of kernels to the digests of their images, see [kernels.Library.Digests].
type Digests map[string]string

// String prints source=digest for each source, with commas between them.
func (d Digests) String() string {
	var parts []string
	for _, source := range slices.Sorted(maps.Keys(d)) {
		parts = append(parts, source+"="+d[source])
	}
	return strings.Join(parts, ",")
}

func parseDigests(text string) (Digests, error) {
	if text == "" {
		return nil, nil
	}
	d := Digests{}
	for part := range strings.SplitSeq(text, ",") {
		source, digest, ok := strings.Cut(part, "=")
		if !ok || source == "" || digest == "" {
			return nil, fmt.Errorf("got kernels %q, want source=digest with commas between them", text)
		}
		d[source] = digest
	}
	return d, nil
}

// Changed returns the sources, in order, whose digest in d is not the current one.
func (d Digests) Changed(current Digests) (sources []string) {
	for source, digest := range d {
		if current[source] != digest {
			sources = append(sources, source)
		}
	}
	slices.Sort(sources)
	return sources
}
