package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/bench"
	"github.com/stheno-ml/stheno/internal/maintain"
	"github.com/stheno-ml/stheno/internal/maintain/records"
)

// measurement times cases, prints the results and keeps them.
type measurement struct {
	file  *records.File // with the times of other libraries
	cases []maintain.Case
	bench maintain.Bench
	path  string // the results file or its folder; "" if there is none
}

// measure measures cases of a set on a device and prints the results beside others, such as the times of other libraries. It returns all,
// and writes them if there is a path.
func measure(c *console, set string, device cudaops.Device, cases []maintain.Case, t timing, others []records.Record, path string) (*records.File, error) {
	seed := t.seed()
	run := newRun(device)
	fmt.Fprintf(c.out, "%s, driver %s (CUDA %s), seed %d\n", device.Name, run.Driver, run.CUDA, seed)
	var err error
	if run.Copy, err = bench.CopyBandwidth(device.Ordinal); err != nil {
		return nil, err
	}
	if set == records.Drawn {
		run.Seed = seed
	}
	fmt.Fprintf(c.out, "device copy %.0f GB/s, read and write counted\n\n", run.Copy)
	f := newFile(set, device, run)
	f.Records = append(f.Records, others...)
	m := measurement{f, cases, maintain.Bench{Device: device, Runs: t.runs()}, path}
	if _, check := cases[0].(maintain.Checked); !check { // checks draw operands of their own
		m.bench.Block = maintain.NewBlock(seed, maintain.BlockOfGPU)
	}
	return f, m.run(c)
}

// run measures all cases. It goes on after a failure, and saves after each case, in case the run is cut off.
func (m measurement) run(c *console) (failed error) {
	if info, err := os.Stat(m.path); err == nil && info.IsDir() {
		m.path = filepath.Join(m.path, records.Name(m.file.GPU))
	}
	compared := len(m.file.Of(records.Peer)) > 0
	columns := []column{{"case", longest(m.cases)}, {"time", 9}, {"rate", 12}, {"of copy", 7}}
	if compared {
		columns = append(columns, column{"than the best peer", 19})
	}
	t := newRows(c, len(m.cases), append(columns, column{"checked", 7}, column{"error / allowed", 8}, column{"", 0})...)
	for _, one := range m.cases {
		t.begin(caseName(one))
		measured, err := one.Measure(m.bench)
		runtime.GC() // gigabytes of operands
		if err != nil {
			failed = errors.Join(failed, t.fail(one, err))
			m.file.Records = append(m.file.Records, records.Record{Kind: records.Fault, Key: one.Key(), Note: firstLine(err)})
			continue
		}
		m.file.Records = append(m.file.Records, measured...)
		if err := m.save(); err != nil {
			return errors.Join(failed, err)
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
	t.end()
	for _, p := range m.file.Unmatched() {
		failed = errors.Join(failed, fmt.Errorf("peer %s times %v, which is no case or failed", p.By, p.Key))
	}
	if m.path != "" {
		fmt.Fprintf(c.out, "\nwrote %s\n", m.path)
	}
	return errors.Join(failed, m.save())
}

// save writes the results, if there is a file for them.
func (m measurement) save() error {
	if m.path == "" {
		return nil
	}
	return m.file.Write(m.path)
}

// comparison returns a row's speed relative to the fastest peer, and "" without a complete row or a peer.
func comparison(f *records.File, row records.Record) string {
	best, ok := f.Best(row.Key)
	if !ok || !row.Complete() {
		return ""
	}
	return timesAsFast(row.Us, best.Us)
}
