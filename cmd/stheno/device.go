package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/bench"
	"github.com/stheno-ml/stheno/internal/results"
)

// measurement times cases on a GPU, prints them and keeps them.
type measurement struct {
	device cudaops.Device
	cases  []benchCase
	runs   int
	seed   uint64
	path   string // of the file of results, or its folder; "" for none
	peers  []results.Peer
	suites []results.Suite
}

// run measures. It goes on after a failure.
func (m measurement) run(c *console) (err error) {
	r := describe(m.device)
	r.Peers, r.Suites = append(r.Peers, m.peers...), append(r.Suites, m.suites...)
	fmt.Fprintf(c.out, "%s, driver %s (CUDA %s), seed %d\n", r.GPU, r.Driver, r.CUDA, m.seed)
	if r.Copy, err = bench.CopyBandwidth(m.device.Ordinal); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "device copy %.0f GB/s, read and write counted\n\n", r.Copy)
	if info, err := os.Stat(m.path); err == nil && info.IsDir() {
		m.path = filepath.Join(m.path, results.Name(r.GPU))
	}
	failures := m.measure(c, r, newRandomBlock(m.seed))
	for _, p := range r.Unmatched() {
		failures = append(failures, fmt.Errorf("peer %s times %v, which is no case or failed", p.By, p.Key))
	}
	if m.path != "" {
		fmt.Fprintf(c.out, "\nwrote %s\n", m.path)
	}
	return errors.Join(append(failures, m.save(r))...)
}

// save writes the results, if a file is wanted.
func (m measurement) save(r *results.File) error {
	if m.path == "" {
		return nil
	}
	return r.Write(m.path)
}

// measure adds the cases to r and prints them, saving r after each, for a run that is cut
// off.
func (m measurement) measure(c *console, r *results.File, block randomBlock) (failures []error) {
	columns := []column{{"case", longest(m.cases, caseName)}, {"time", 9}, {"rate", 12}, {"of copy", 7}}
	if len(m.peers) > 0 {
		columns = append(columns, column{"than the best peer", 19})
	}
	t := newRows(c, len(m.cases), append(columns, column{"checked", 7}, column{"error / allowed", 8}, column{"", 0})...)
	defer t.end()
	for _, bc := range m.cases {
		t.begin(caseName(bc))
		row, err := bc.measure(m.device, block, m.runs)
		runtime.GC() // gigabytes of operands
		if err != nil {
			t.fail(caseName(bc), err)
			failures = append(failures, fmt.Errorf("%v: %w", bc.Key(), err))
			continue
		}
		r.Rows = append(r.Rows, row)
		if err := m.save(r); err != nil {
			return append(failures, err)
		}
		cells := []string{caseName(bc), row.Time(), row.Rate(), r.OfCopy(row)}
		if len(m.peers) > 0 {
			cells = append(cells, comparison(r, row))
		}
		cells = append(cells, row.Check, fmt.Sprintf("%.2g", row.Error))
		if row.Graph != nil {
			cells = append(cells, row.Graph.String())
		}
		t.add(cells...)
	}
	return failures
}

// comparison prints a row's speed beside that of the fastest peer, if there is one.
func comparison(r *results.File, row results.Row) string {
	best, ok := r.Best(row.Key)
	if !ok || !row.Complete() {
		return ""
	}
	return timesAsFast(row.Micros, best.Micros)
}
