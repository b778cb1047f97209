// Package results holds measurements on GPUs: one file per GPU under bench/results, written by
// cmd/stheno, and the tables of them in README.md. Rows and suites carry the digests of the kernels
// that they ran; package evidence compares them with those of the tree.
package results

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/stheno-ml/stheno/internal/jsonlines"
)

// File holds the measurements of one GPU, in one run or in several.
type File struct {
	GPU     string  `json:"gpu"`
	Compute string  `json:"compute_capability"`
	SMs     int     `json:"sms"`
	L2      int64   `json:"l2_bytes"`
	Memory  int64   `json:"memory_bytes"`
	Run             // the run of all that does not name another
	Rows    []Row   `json:"rows"`
	Peers   []Peer  `json:"peers"`
	Suites  []Suite `json:"suites"`
	Seed    uint64  `json:"seed,omitempty"` // of the cases, where they were drawn

	// Tree has the digests of this build's kernels, where the file is compared with them; see [File.Since].
	Tree Digests `json:"-"`
}

// Run describes how a measurement was made.
type Run struct {
	Driver string  `json:"driver"`
	CUDA   string  `json:"cuda"`
	Go     string  `json:"go"`
	Date   string  `json:"date"`
	Copy   float64 `json:"copy_gb_s"` // device to device, read and write counted
}

// Digests maps sources of kernels to the digests of their images, see
// [kernels.Digests].
type Digests map[string]string

// Key names a timed case: an op, one of its cases, an element type.
type Key struct {
	Op    string `json:"op"`
	Case  string `json:"case"`
	Dtype string `json:"dtype"` // f32 or f64
}

// String prints op/case/dtype.
func (k Key) String() string { return k.Op + "/" + k.Case + "/" + k.Dtype }

// Row is the time of one case.
type Row struct {
	Key
	// Version is the numbered version that was timed, 0 for the op itself.
	Version int     `json:"version,omitempty"`
	Bytes   int64   `json:"bytes"` // least traffic: inputs read once, or as often as they must be, output written once
	Flops   int64   `json:"flops"`
	Micros  float64 `json:"median_us"`
	Min     float64 `json:"min_us"`
	Max     float64 `json:"max_us"`
	Runs    int     `json:"runs"`
	// Check describes how the output of the last timed run was compared with that of the host's body in
	// float64: "all" elements, or "16 rows" of it.
	Check string `json:"check"`
	// Error is the largest error of an element, as a share of the error that the op's
	// Spec allows; at most 1 for a right result.
	Error float64 `json:"error"`
	// Kernels are the launched kernels.
	Kernels Digests `json:"kernels"`
	// Graph holds the further measurements of a whole graph, nil for an op.
	Graph *Graph `json:"graph,omitempty"`
	// Accuracy holds the errors of a product, which has no time then.
	Accuracy *Accuracy `json:"accuracy,omitempty"`
	Run      *Run      `json:"run,omitempty"` // nil for the file's
}

// GBs is the rate of a row's least traffic in GB/s.
func (r Row) GBs() float64 { return float64(r.Bytes) / r.Micros / 1e3 }

// TFLOPs is the rate of a row's arithmetic in TFLOP/s.
func (r Row) TFLOPs() float64 { return float64(r.Flops) / r.Micros / 1e6 }

// Arithmetic reports whether the row is bound by the arithmetic units rather than by memory:
// whether it does 8 operations or more for each byte, which is between the balance points of GPUs
// in float32 and in float64.
func (r Row) Arithmetic() bool { return r.Flops >= 8*r.Bytes }

// Complete reports whether the row's time includes all its work: not if a part of a graph runs on
// the host.
func (r Row) Complete() bool { return r.Micros > 0 && (r.Graph == nil || r.Graph.Host == 0) }

// Time prints the row's time, "-" for a graph that has no launches.
func (r Row) Time() string {
	if r.Micros == 0 {
		return "-"
	}
	return Micros(r.Micros)
}

// Rate prints the rate by which the row is judged, "" for one that is not complete.
func (r Row) Rate() string {
	if !r.Complete() {
		return ""
	}
	switch tflops, gbs := r.TFLOPs(), r.GBs(); {
	case r.Arithmetic() && tflops < 0.05:
		return fmt.Sprintf("%.1f GFLOP/s", 1e3*tflops)
	case r.Arithmetic():
		return fmt.Sprintf("%.1f TFLOP/s", tflops)
	case gbs < 10:
		return fmt.Sprintf("%.2f GB/s", gbs)
	default:
		return fmt.Sprintf("%.0f GB/s", gbs)
	}
}

// Peer is the time of another library on the same case, measured on the same
// machine.
type Peer struct {
	Key
	By     string  `json:"by"` // library, version and call
	Micros float64 `json:"median_us"`
	Run    *Run    `json:"run,omitempty"` // nil for the file's
}

// Suite is the outcome of a test suite or a sanitizer.
type Suite struct {
	// Name is "TOOL TARGET" or "TOOL TARGET k/n" for a part of the tests of an op's
	// kernels, see [Suite.Of]; TARGET may be several ops with | between them.
	Name    string  `json:"name"`
	Result  string  `json:"result"` // PASS, FAIL, or CUT: out of time without a failure
	Seconds float64 `json:"seconds"`
	Note    string  `json:"note"`
	// Known, written by hand, explains a failure that does not speak against the kernels.
	Known string `json:"known,omitempty"`
	// Kernels are those that the tests launch; none for tests of Go code.
	Kernels Digests `json:"kernels,omitempty"`
	Run     *Run    `json:"run,omitempty"` // nil for the file's
}

// Of splits a suite's name into the tool that ran ("test" for none), the target of its tests, and
// which of how many parts of them this is.
func (s Suite) Of() (tool string, targets []string, part, parts int) {
	words := strings.Fields(s.Name)
	if len(words) < 2 {
		return s.Name, nil, 1, 1
	}
	part, parts = 1, 1
	if len(words) > 2 {
		if n, err := fmt.Sscanf(words[2], "%d/%d", &part, &parts); n != 2 || err != nil {
			part, parts = 1, 1
		}
	}
	return words[0], strings.Split(words[1], "|"), part, parts
}

// Passed reports whether the suite passed, or failed for a known reason that
// does not speak against the kernels.
func (s Suite) Passed() bool { return s.Result == "PASS" || s.Known != "" }

// Best is the fastest peer on a row; ok is false if there is none.
func (f *File) Best(k Key) (best Peer, ok bool) {
	for _, p := range f.Peers {
		if p.Key == k && (!ok || p.Micros < best.Micros) {
			best, ok = p, true
		}
	}
	return best, ok
}

// Row returns the row of a case; ok is false if there is none.
func (f *File) Row(k Key) (row Row, ok bool) {
	for _, r := range f.Rows {
		if r.Key == k {
			return r, true
		}
	}
	return Row{}, false
}

// Since names, as a paragraph, the sources of kernels that rows of the file ran and that the tree has others of; "" if there are none.
func (f *File) Since() string {
	if f.Tree == nil {
		return ""
	}
	var changed []string
	for _, r := range f.Rows {
		changed = append(changed, r.Kernels.Changed(f.Tree)...)
	}
	if len(changed) == 0 {
		return ""
	}
	slices.Sort(changed)
	return "Since then these kernels have changed: `" + strings.Join(slices.Compact(changed), "`, `") + "`.\n\n"
}

// Unmatched returns the peers without a row in the file, which reveals a misspelt case.
func (f *File) Unmatched() []Peer {
	rows := map[Key]bool{}
	for _, r := range f.Rows {
		rows[r.Key] = true
	}
	var lost []Peer
	for _, p := range f.Peers {
		if !rows[p.Key] {
			lost = append(lost, p)
		}
	}
	return lost
}

// Write writes the file, a row, peer or suite a line.
func (f *File) Write(path string) error { return jsonlines.Write(path, f, 2) }

// Name is the file's name for a GPU: lower case, words joined by '-'.
func Name(gpu string) string {
	words := strings.FieldsFunc(strings.ToLower(gpu), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	return strings.Join(words, "-") + ".json"
}

// Read reads one file.
func Read(path string) (*File, error) {
	f := new(File)
	if err := readJSON(path, f); err != nil {
		return nil, err
	}
	return f, nil
}

// ReadDir reads all files of a folder, in the order of their names.
func ReadDir(dir string) ([]*File, error) {
	files, err := ReadFS(os.DirFS(dir), ".")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return files, nil
}

// ReadFS reads all files of a folder of a file system, in the order of their names.
func ReadFS(fsys fs.FS, dir string) ([]*File, error) {
	paths, err := fs.Glob(fsys, path.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	slices.Sort(paths)
	var files []*File
	for _, p := range paths {
		text, err := fs.ReadFile(fsys, p)
		if err != nil {
			return nil, err
		}
		f := new(File)
		if err := decode(p, text, f); err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// ReadPeers reads the output of bench/peers.py: an array of peers.
func ReadPeers(path string) (peers []Peer, err error) {
	err = readJSON(path, &peers)
	for i, p := range peers {
		if err == nil && (p.Op == "" || p.Case == "" || p.Dtype == "" || p.By == "" || !(p.Micros > 0)) {
			err = fmt.Errorf("results: %s: peer %d is %+v, want op, case, dtype, by and a time above 0", path, i, p)
		}
	}
	return peers, err
}

func readJSON(path string, v any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return decode(path, text, v)
}

// decode decodes the text of the file of that name.
func decode(name string, text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("results: %s: %w", name, err)
	}
	return nil
}

// ReadSuites reads lines of name, result, seconds, note and kernels, with tabs
// between them; kernels are as [Digests.String] prints them. Of two lines of one
// name the later counts.
func ReadSuites(path string) ([]Suite, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var suites []Suite
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		cells := strings.Split(lines.Text(), "\t")
		if len(cells) != 5 {
			return nil, fmt.Errorf("results: %s: line %d has %d cells, want name, result, seconds, note, kernels", path, n, len(cells))
		}
		s := Suite{Name: cells[0], Result: cells[1], Note: cells[3]}
		if s.Seconds, err = strconv.ParseFloat(cells[2], 64); err == nil {
			s.Kernels, err = parseDigests(cells[4])
		}
		if err != nil {
			return nil, fmt.Errorf("results: %s: line %d: %w", path, n, err)
		}
		suites = slices.DeleteFunc(suites, func(before Suite) bool { return before.Name == s.Name })
		suites = append(suites, s)
	}
	return suites, lines.Err()
}

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

// Changed returns the sources, in order, whose digest in d is not the current
// one.
func (d Digests) Changed(current Digests) (sources []string) {
	for source, digest := range d {
		if current[source] != digest {
			sources = append(sources, source)
		}
	}
	slices.Sort(sources)
	return sources
}
