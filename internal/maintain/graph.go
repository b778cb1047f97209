package maintain

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/bench"
	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/graphspec"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// GraphBudget is the longest time of the runs of a graph, on the device and with copies each.
const GraphBudget = time.Second / 2

// Graph is a whole graph of Gorgonia's ops.
type Graph struct{ graphspec.Case }

// Key implements [Case].
func (g Graph) Key() records.Key { return programKey(g.Case) }

// programKey names a program in the records.
func programKey(c graphspec.Case) records.Key {
	return records.Key{Op: c.Name, Case: c.Size, Dtype: kernels.Float32.String()}
}

// Describe implements [Case].
func (g Graph) Describe() any { return g.Case.Describe() }

// Measure implements [Case]: it compares the first run of a machine with the reference, times
// further runs, and then the launches alone.
func (g Graph) Measure(b Bench) ([]records.Record, error) {
	in := g.Values(b.Block.F32)
	graph, nodes := g.Graph(in)
	vm, err := cudaops.NewVM(graph, cudaops.OnDevice(b.Device.Ordinal))
	if err != nil {
		return nil, err
	}
	values := map[string]float64{"bytes": float64(g.Bytes()), "flops": float64(g.Flops)}
	if err := errors.Join(g.run(values, vm, in, nodes, b.Runs), vm.Close()); err != nil {
		return nil, err
	}
	timing, err := bench.TimeGraph(b.Device.Ordinal, graph, nil, b.Runs, GraphBudget)
	if err != nil {
		return nil, err
	}
	values["launches"], values["host"] = float64(timing.Launches), float64(len(timing.Host))
	r := timed(g, timing.Runs, timing.Kernels, values)
	r.Note = "all"
	return []records.Record{r}, nil
}

// run checks and times whole runs of a machine.
func (g Graph) run(values map[string]float64, vm gorgonia.VM, in []gorgonia.Value, nodes gorgonia.Nodes, runs int) (err error) {
	if err := vm.RunAll(); err != nil {
		return err
	}
	worst, err := g.Check(in, valuesOf(nodes))
	if err != nil {
		return err
	}
	if values["error"] = worst.Share; !(worst.Share <= 1) {
		return fmt.Errorf("wrong result: output %s is off by %.3g times the error that the case allows", worst.Output, worst.Share)
	}
	values["run"], err = timeRuns(vm, runs)
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
	for began := time.Now(); len(times) == 0 || len(times) < runs && time.Since(began) < GraphBudget; {
		start := time.Now()
		if err := vm.RunAll(); err != nil {
			return 0, err
		}
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	return Micros(times[len(times)/2]), nil
}
