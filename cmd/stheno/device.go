package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/bench"
	"github.com/stheno-ml/stheno/internal/maintain"
	"github.com/stheno-ml/stheno/internal/maintain/records"
)

// measurement times cases, prints the results and keeps them.
type measurement struct {
	file  *records.File // earlier results
	cases []maintain.Case
	bench maintain.Bench
	path  string // the results file or its folder; "" if there is none
}

// measure returns a measurement of cases of a set on a device whose bandwidth is known.
func measure(c *console, set string, device cudaops.Device, cases []maintain.Case, runs int, seed uint64) (*measurement, error) {
	run := records.Run{Driver: device.Driver, CUDA: device.CUDA, Go: runtime.Version(), Date: time.Now().UTC().Format(time.DateOnly)}
	fmt.Fprintf(c.out, "%s, driver %s (CUDA %s), seed %d\n", device.Name, run.Driver, run.CUDA, seed)
	var err error
	if run.Copy, err = bench.CopyBandwidth(device.Ordinal); err != nil {
		return nil, err
	}
	if set == records.Drawn {
		run.Seed = seed
	}
	fmt.Fprintf(c.out, "device copy %.0f GB/s, read and write counted\n\n", run.Copy)
	f := &records.File{Set: set, GPU: device.Name, Compute: fmt.Sprintf("%d.%d", device.Major, device.Minor), SMs: device.SMs, L2: device.L2, Memory: device.Memory,
		Runs: []records.Run{run}, Records: []records.Record{}}
	return &measurement{file: f, cases: cases, bench: maintain.Bench{Device: device, Block: maintain.NewBlock(seed, maintain.BlockOfGPU), Runs: runs}}, nil
}

// run measures all cases. It goes on after a failure.
func (m *measurement) run(c *console) error {
	if info, err := os.Stat(m.path); err == nil && info.IsDir() {
		m.path = filepath.Join(m.path, records.Name(m.file.GPU))
	}
	failures := m.all(c)
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

// all times and prints the cases, and saves after each of them, in case the run is cut off.
func (m *measurement) all(c *console) (failures []error) {
	compared := len(m.file.Of(records.Peer)) > 0
	columns := []column{{"case", longest(m.cases, caseName)}, {"time", 9}, {"rate", 12}, {"of copy", 7}}
	if compared {
		columns = append(columns, column{"than the best peer", 19})
	}
	t := newRows(c, len(m.cases), append(columns, column{"checked", 7}, column{"error / allowed", 8}, column{"", 0})...)
	defer t.end()
	for _, one := range m.cases {
		t.begin(caseName(one))
		measured, err := one.Measure(m.bench)
		runtime.GC() // gigabytes of operands
		if err != nil {
			t.fail(caseName(one), err)
			failures = append(failures, fmt.Errorf("%v: %w", one.Key(), err))
			continue
		}
		m.file.Records = append(m.file.Records, measured...)
		if err := m.save(); err != nil {
			return append(failures, err)
		}
		row := measured[0]
		cells := []string{caseName(one), row.Micros(), row.Rate(), m.file.OfCopy(row)}
		if compared {
			cells = append(cells, comparison(m.file, row))
		}
		cells = append(cells, row.Note, fmt.Sprintf("%.2g", row.Values["error"]))
		if row.Values["run"] > 0 {
			cells = append(cells, fmt.Sprintf("%s, run %s", row.Launches(), records.Micros(row.Values["run"])))
		}
		t.add(cells...)
	}
	return failures
}

// comparison returns a row's speed relative to the fastest peer, and "" without a complete row or a peer.
func comparison(f *records.File, row records.Record) string {
	best, ok := f.Best(row.Key)
	if !ok || !row.Complete() {
		return ""
	}
	return timesAsFast(row.Us, best.Us)
}
