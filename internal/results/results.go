// Package results holds what was measured on a GPU: one file per GPU under
// bench/results, written by cmd/stheno, and the tables that README.md shows of
// them. A file carries the digest of the kernels it was measured with; a test
// fails when it is not that of the kernels in the tree.
package results

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

// File is one run on one GPU.
type File struct {
	GPU     string  `json:"gpu"`
	Compute string  `json:"compute_capability"`
	SMs     int     `json:"sms"`
	L2      int64   `json:"l2_bytes"`
	Memory  int64   `json:"memory_bytes"`
	Driver  string  `json:"driver"`
	CUDA    string  `json:"cuda"`
	Go      string  `json:"go"`
	Date    string  `json:"date"`
	Digest  string  `json:"kernels_digest"`
	Copy    float64 `json:"copy_gb_s"` // device to device, read and write counted
	Rows    []Row   `json:"rows"`
	Peers   []Peer  `json:"peers"`
	Suites  []Suite `json:"suites"`
}

// Key names what was timed: an op, one of its cases, an element type.
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
	Bytes   int64   `json:"bytes"` // least traffic: inputs read once, output written once
	Flops   int64   `json:"flops"`
	Micros  float64 `json:"median_us"`
	Min     float64 `json:"min_us"`
	Max     float64 `json:"max_us"`
	Runs    int     `json:"runs"`
	// Check says how the output of the last timed run was held against the
	// host's body in float64: "all" elements, or "16 rows" of it.
	Check string `json:"check"`
	// Error is the largest error of an element, in units of what the op's
	// Spec allows; at most 1 for a right result.
	Error float64 `json:"error"`
}

// GBs is the rate of a row's least traffic in GB/s.
func (r Row) GBs() float64 { return float64(r.Bytes) / r.Micros / 1e3 }

// TFLOPs is the rate of a row's arithmetic in TFLOP/s.
func (r Row) TFLOPs() float64 { return float64(r.Flops) / r.Micros / 1e6 }

// Arithmetic tells whether the row's ceiling is the arithmetic units rather
// than the memory: whether it does 8 operations or more for each byte, which is
// between the balance points of GPUs in float32 and in float64.
func (r Row) Arithmetic() bool { return r.Flops >= 8*r.Bytes }

// Rate prints the rate that the row is judged by.
func (r Row) Rate() string {
	if r.Arithmetic() {
		return fmt.Sprintf("%.1f TFLOP/s", r.TFLOPs())
	}
	return fmt.Sprintf("%.0f GB/s", r.GBs())
}

// Peer is the time of another library on the same case, measured on the same
// machine in the same run.
type Peer struct {
	Key
	By     string  `json:"by"` // library, version and call
	Micros float64 `json:"median_us"`
}

// Suite is the outcome of a test suite or a sanitizer.
type Suite struct {
	Name    string  `json:"name"`
	Result  string  `json:"result"` // PASS, FAIL, or CUT: out of time with no failure until then
	Seconds float64 `json:"seconds"`
	Note    string  `json:"note"`
	// Known, written by hand, says what a failure was and why it does not speak
	// against the kernels.
	Known string `json:"known,omitempty"`
}

// Best is the fastest peer on a row; ok is false if there is none.
func (f *File) Best(k Key) (best Peer, ok bool) {
	for _, p := range f.Peers {
		if p.Key == k && (!ok || p.Micros < best.Micros) {
			best, ok = p, true
		}
	}
	return best, ok
}

// Unmatched are the peers that time no row of the file, which is how a
// misspelt case shows.
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

// Write writes the file as indented JSON.
func (f *File) Write(path string) error { return writeJSON(path, f) }

func writeJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("results: %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

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
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	sort.Strings(paths)
	var files []*File
	for _, p := range paths {
		f, err := Read(p)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// ReadPeers reads what bench/peers.py writes: an array of peers.
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
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("results: %s: %w", path, err)
	}
	return nil
}

// ReadSuites reads lines of name, result, seconds and note, with tabs between
// them.
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
		if len(cells) != 4 {
			return nil, fmt.Errorf("results: %s: line %d has %d cells, want name, result, seconds, note", path, n, len(cells))
		}
		seconds, err := strconv.ParseFloat(cells[2], 64)
		if err != nil {
			return nil, fmt.Errorf("results: %s: line %d: %w", path, n, err)
		}
		suites = append(suites, Suite{Name: cells[0], Result: cells[1], Seconds: seconds, Note: cells[3]})
	}
	return suites, lines.Err()
}

// Stale says which files of a folder do not carry the wanted digest; nil if
// all do.
func Stale(dir, digest string) error {
	files, err := ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range files {
		errs = append(errs, stale(Name(f.GPU), f.Digest, digest))
	}
	return errors.Join(errs...)
}

// stale is an error about a file unless it was made with the wanted kernels.
func stale(file, got, want string) error {
	if got == want {
		return nil
	}
	return fmt.Errorf("results: %s was made with kernels %s, the tree has %s: run bench/gpu-run.sh on that GPU again",
		file, cmp.Or(short(got), "that it does not name"), short(want))
}

// short is how a digest is shown.
func short(digest string) string { return fmt.Sprintf("%.12s", digest) }
