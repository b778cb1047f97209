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

// measurement times cases, prints the results and keeps them.
type measurement struct {
	file  *results.File // earlier results
	cases []benchCase
	time  func(c benchCase) (results.Row, error)
	path  string // of the file of results, or its folder; "" for none
}

// onGPU is a measurement on a device whose bandwidth is known.
func onGPU(c *console, device cudaops.Device, cases []benchCase, runs int, seed uint64) (*measurement, error) {
	f := describe(device)
	fmt.Fprintf(c.out, "%s, driver %s (CUDA %s), seed %d\n", f.GPU, f.Driver, f.CUDA, seed)
	var err error
	if f.Copy, err = bench.CopyBandwidth(device.Ordinal); err != nil {
		return nil, err
	}
	fmt.Fprintf(c.out, "device copy %.0f GB/s, read and write counted\n\n", f.Copy)
	block := newRandomBlock(seed, blockOfGPU)
	return &measurement{file: f, cases: cases, time: func(c benchCase) (results.Row, error) { return c.measure(device, block, runs) }}, nil
}

// run measures all cases. It goes on after a failure.
func (m *measurement) run(c *console) error {
	if info, err := os.Stat(m.path); err == nil && info.IsDir() {
		m.path = filepath.Join(m.path, results.Name(m.file.GPU))
	}
	failures := m.measure(c)
	for _, p := range m.file.Unmatched() {
		failures = append(failures, fmt.Errorf("peer %s times %v, which is no case or failed", p.By, p.Key))
	}
	if m.path != "" {
		fmt.Fprintf(c.out, "\nwrote %s\n", m.path)
	}
	return errors.Join(append(failures, m.save())...)
}

// save writes the results, if there is a file for them.
func (m *measurement) save() error {
	if m.path == "" {
		return nil
	}
	return m.file.Write(m.path)
}

// measure times and prints the cases, and saves after each of them, in case the run is cut off.
func (m *measurement) measure(c *console) (failures []error) {
	compared := len(m.file.Peers) > 0
	columns := []column{{"case", longest(m.cases, caseName)}, {"time", 9}, {"rate", 12}, {"of copy", 7}}
	if compared {
		columns = append(columns, column{"than the best peer", 19})
	}
	t := newRows(c, len(m.cases), append(columns, column{"checked", 7}, column{"error / allowed", 8}, column{"", 0})...)
	defer t.end()
	for _, one := range m.cases {
		t.begin(caseName(one))
		row, err := m.time(one)
		runtime.GC() // gigabytes of operands
		if err != nil {
			t.fail(caseName(one), err)
			failures = append(failures, fmt.Errorf("%v: %w", one.Key(), err))
			continue
		}
		m.file.Rows = append(m.file.Rows, row)
		if err := m.save(); err != nil {
			return append(failures, err)
		}
		cells := []string{caseName(one), row.Time(), row.Rate(), m.file.OfCopy(row)}
		if compared {
			cells = append(cells, comparison(m.file, row))
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
