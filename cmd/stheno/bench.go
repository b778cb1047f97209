package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/bench"
	"github.com/stheno-ml/stheno/internal/evidence"
	"github.com/stheno-ml/stheno/internal/results"
)

// benchFlags are the flags of stheno bench.
type benchFlags struct {
	device, runs              int
	seed                      uint64
	selected                  *regexp.Regexp
	json, peers, suites, text string
	recorded                  string
	versions, missing, graphs bool
	most                      int64
}

func benchCommand(args []string, stdout, stderr io.Writer) error {
	var b benchFlags
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.IntVar(&b.device, "device", 0, "number of the CUDA device")
	pattern := f.String("run", "", "time only the cases whose op/case/dtype this regular expression matches")
	f.IntVar(&b.runs, "runs", 30, "timed runs of each case, of which the median counts")
	f.Uint64Var(&b.seed, "seed", uint64(time.Now().UnixNano()), "seed of the random inputs")
	f.StringVar(&b.json, "json", "", "write the results to this file; a folder gets a file named after the GPU")
	f.StringVar(&b.peers, "peers", "", "add the times of other libraries that bench/peers.py wrote to this file")
	f.StringVar(&b.suites, "suites", "", "add the outcomes of test suites that bench/gpu-run.sh wrote to this file")
	f.StringVar(&b.text, "text", "", "time the histogram of this text too, repeated to 5.8 MB")
	f.BoolVar(&b.versions, "versions", false, "time the numbered versions of the ops too")
	f.BoolVar(&b.graphs, "graphs", false, "time whole graphs of Gorgonia's ops instead: the launches of each, captured, and a run with its copies")
	f.Int64Var(&b.most, "most", math.MaxInt64, "with -graphs, leave out those that move more bytes than this")
	f.StringVar(&b.recorded, "recorded", "", "folder of the recorded results (default bench/results, with -graphs bench/results/graphs)")
	f.BoolVar(&b.missing, "missing", false, "time only the cases that -recorded has no row of, or one of other kernels")
	list := f.Bool("list", false, "time nothing: list the cases with the recorded times; with -missing, those that would be timed here")
	host := f.Bool("host", false, "time the host bodies against Gorgonia's own ops on the CPU instead; with -graphs, whole graphs of up to 64 MB, or -most, on both")
	readme := f.Bool("readme", false, "time nothing: rewrite the tables of README.md and docs/graphs.md, in this folder, from bench/results")
	if err := parse(f, args, stderr); err != nil {
		return err
	}
	var err error
	if b.selected, err = regexp.Compile(*pattern); err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	if b.runs < 1 {
		return fmt.Errorf("-runs: got %d, want at least 1", b.runs)
	}
	if b.recorded == "" {
		b.recorded = recordedOps
		if b.graphs {
			b.recorded = recordedGraphs
		}
	}
	switch {
	case *list:
		return b.list(stdout)
	case *readme:
		return rewriteTables()
	case *host && b.graphs:
		if b.most == math.MaxInt64 {
			b.most = hostGraph
		}
		return benchHostGraphs(stdout, b.selected, b.most, b.runs)
	case *host:
		return benchHost(stdout, b.selected, b.runs)
	}
	return b.run(stdout)
}

// run times the cases on a device.
func (b *benchFlags) run(stdout io.Writer) error {
	device, err := deviceOf(b.device)
	if err != nil {
		return err
	}
	r := describe(device)
	if b.suites != "" {
		if r.Suites, err = results.ReadSuites(b.suites); err != nil {
			return err
		}
	}
	cases, err := b.cases(r.GPU)
	if err != nil {
		return err
	}
	if b.peers != "" {
		peers, err := results.ReadPeers(b.peers)
		if err != nil {
			return err
		}
		for _, p := range peers {
			if !b.missing || slices.ContainsFunc(cases, func(c benchCase) bool { return c.Key() == p.Key }) {
				r.Peers = append(r.Peers, p)
			}
		}
	}
	fmt.Fprintf(stdout, "%s, driver %s (CUDA %s), seed %d\n", r.GPU, r.Driver, r.CUDA, b.seed)
	if r.Copy, err = bench.CopyBandwidth(device.Ordinal); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "device copy %.0f GB/s, read and write counted\n\n", r.Copy)
	path := b.json
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, results.Name(r.GPU))
	}
	save := func() error { return nil }
	if path != "" {
		save = func() error { return r.Write(path) }
	}
	failures := benchDevice(stdout, r, device, cases, b.runs, b.seed, save)
	for _, p := range r.Unmatched() {
		if b.selected.MatchString(p.Key.String()) {
			failures = append(failures, fmt.Errorf("peer %s times %v, which is no case or failed", p.By, p.Key))
		}
	}
	if path != "" {
		fmt.Fprintf(stdout, "\nwrote %s\n", path)
	}
	return errors.Join(append(failures, save())...)
}

// deviceOf returns the CUDA device of a number.
func deviceOf(number int) (cudaops.Device, error) {
	devices, err := cudaops.Devices()
	if err != nil {
		return cudaops.Device{}, err
	}
	if number < 0 || number >= len(devices) {
		return cudaops.Device{}, fmt.Errorf("-device: %w %d: this machine has %d, numbered from 0", cudaops.ErrNoDevice, number, len(devices))
	}
	return devices[number], nil
}

// describe is a results file without measurements.
func describe(d cudaops.Device) *results.File {
	return &results.File{
		GPU: d.Name, Compute: fmt.Sprintf("%d.%d", d.Major, d.Minor), SMs: d.SMs, L2: d.L2, Memory: d.Memory,
		Run:  results.Run{Driver: d.Driver, CUDA: d.CUDA, Go: runtime.Version(), Date: time.Now().UTC().Format(time.DateOnly)},
		Rows: []results.Row{}, Peers: []results.Peer{}, Suites: []results.Suite{},
	}
}

// all are the cases that the flags select.
func (b *benchFlags) all() (cases []benchCase, err error) {
	if b.graphs {
		return timedGraphs(b.selected, b.most), nil
	}
	for _, c := range timedCases(b.selected, b.versions) {
		cases = append(cases, c)
	}
	if b.text != "" {
		c, err := textCase(b.text)
		if err != nil {
			return nil, err
		}
		if b.selected.MatchString(c.Key().String()) {
			cases = append(cases, c)
		}
	}
	return cases, nil
}

// cases are those that the flags select for a GPU.
func (b *benchFlags) cases(gpu string) ([]benchCase, error) {
	cases, err := b.all()
	if err != nil || !b.missing {
		return cases, err
	}
	file, err := evidence.Recorded(b.recorded, gpu)
	if err != nil {
		return nil, err
	}
	tree, err := evidence.Tree()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(cases, func(c benchCase) bool { return evidence.RowState(file, c.Key(), tree) == evidence.Current }), nil
}

// list prints the selected cases with the times that are recorded for each GPU.
func (b *benchFlags) list(stdout io.Writer) error {
	if b.missing {
		return b.listMissing(stdout)
	}
	files, err := results.ReadDir(b.recorded)
	if err != nil {
		return err
	}
	tree, err := evidence.Tree()
	if err != nil {
		return err
	}
	cases, err := b.all()
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	defer t.Flush()
	fmt.Fprint(t, "case")
	for _, f := range files {
		fmt.Fprintf(t, "\t%s", f.GPU)
	}
	fmt.Fprintln(t)
	for _, c := range cases {
		fmt.Fprint(t, c.Key())
		for _, f := range files {
			state := evidence.RowState(f, c.Key(), tree)
			row, _ := f.Row(c.Key())
			switch state {
			case evidence.Unmeasured:
				fmt.Fprint(t, "\tnot measured")
			case evidence.Stale:
				fmt.Fprintf(t, "\t%s, with other kernels", results.Micros(row.Micros))
			default:
				fmt.Fprintf(t, "\t%s", results.Micros(row.Micros))
			}
		}
		fmt.Fprintln(t)
	}
	return nil
}

// listMissing prints the selected cases that are not recorded for the device.
func (b *benchFlags) listMissing(stdout io.Writer) error {
	device, err := deviceOf(b.device)
	if err != nil {
		return err
	}
	cases, err := b.cases(device.Name)
	for _, c := range cases {
		fmt.Fprintln(stdout, c.Key())
	}
	return err
}

// Folders of the recorded results.
var (
	recordedOps    = filepath.Join("bench", "results")
	recordedGraphs = filepath.Join(recordedOps, "graphs")
)

// rewriteTables rewrites the tables of times in README.md and docs/graphs.md.
func rewriteTables() error {
	return errors.Join(
		rewrite("README.md", results.UpdateReadme, recordedOps, evidence.Keys()),
		rewrite(filepath.Join("docs", "graphs.md"), results.UpdateGraphs, recordedGraphs, evidence.GraphKeys()))
}

// rewrite updates a page from a folder of results.
func rewrite(page string, update results.Update, recorded string, cases []results.Key) error {
	files, err := results.ReadDir(recorded)
	if err != nil {
		return err
	}
	old, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("%w (bench -readme runs in the repository's root)", err)
	}
	text, err := update(string(old), files, cases)
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, []byte(text), 0o644)
}
