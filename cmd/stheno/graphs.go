package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/bench"
	"github.com/stheno-ml/stheno/internal/evidence"
	"github.com/stheno-ml/stheno/internal/results"
	"gorgonia.org/gorgonia"
)

// graphBudget is the longest time of the runs of a graph, on the device and with copies each.
const graphBudget = time.Second / 2

// graphCase is a whole graph of Gorgonia's ops.
type graphCase struct{ evidence.TimedGraph }

// timedGraphs returns all timed graphs that do not move more than the limit.
func timedGraphs(most megabytes) (cases []benchCase) {
	for _, g := range evidence.Graphs() {
		if most.allow(g.Bytes()) {
			cases = append(cases, graphCase{g})
		}
	}
	return cases
}

// measure implements benchCase: it compares the first run of a machine with the reference, times
// further runs, and then the launches alone.
func (c graphCase) measure(device cudaops.Device, block randomBlock, runs int) (results.Row, error) {
	in := c.Values(block.f32)
	g, nodes := c.Graph(in)
	row := results.Row{Key: c.Key(), Bytes: c.Bytes(), Flops: c.Flops, Check: "all", Graph: &results.Graph{}}
	vm, err := cudaops.NewVM(g, cudaops.OnDevice(device.Ordinal))
	if err != nil {
		return results.Row{}, err
	}
	if err := errors.Join(c.run(&row, vm, in, nodes, runs), vm.Close()); err != nil {
		return results.Row{}, err
	}
	timing, err := bench.TimeGraph(device.Ordinal, g, runs, graphBudget)
	if err != nil {
		return results.Row{}, err
	}
	row.Kernels, row.Graph.Launches, row.Graph.Host, row.Runs = timing.Kernels, timing.Launches, len(timing.Host), len(timing.Runs)
	if slices.Sort(timing.Runs); len(timing.Runs) > 0 {
		row.Micros, row.Min, row.Max = micros(timing.Runs[len(timing.Runs)/2]), micros(timing.Runs[0]), micros(timing.Runs[len(timing.Runs)-1])
	}
	return row, nil
}

// run checks and times whole runs of a machine.
func (c graphCase) run(row *results.Row, vm gorgonia.VM, in []gorgonia.Value, nodes gorgonia.Nodes, runs int) (err error) {
	if err := vm.RunAll(); err != nil {
		return err
	}
	worst, err := c.Check(in, valuesOf(nodes))
	if err != nil {
		return err
	}
	if row.Error = worst.Share; !(row.Error <= 1) {
		return fmt.Errorf("wrong result: output %s is off by %.3g times the error that the case allows", worst.Output, worst.Share)
	}
	row.Graph.Run, err = timeRuns(vm, runs)
	return err
}

func valuesOf(nodes gorgonia.Nodes) []gorgonia.Value {
	list := make([]gorgonia.Value, len(nodes))
	for i, n := range nodes {
		list[i] = n.Value()
	}
	return list
}

// timeRuns returns the median time of RunAll in microseconds over that many runs, or over those
// that fit into the budget, at least one.
func timeRuns(vm gorgonia.VM, runs int) (float64, error) {
	var times []time.Duration
	for began := time.Now(); len(times) == 0 || len(times) < runs && time.Since(began) < graphBudget; {
		start := time.Now()
		if err := vm.RunAll(); err != nil {
			return 0, err
		}
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	return micros(times[len(times)/2]), nil
}
