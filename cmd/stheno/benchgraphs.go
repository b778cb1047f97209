package main

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/maintain"
	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/graphspec"
	"gorgonia.org/gorgonia"
)

// benchGraphs times whole graphs of Gorgonia's ops.
type benchGraphs struct {
	selection
	timing
	onDevice
	Host bool      `xor:"where,file" help:"Time them on this machine's processor, beside gorgonia.NewTapeMachine."`
	Most megabytes `placeholder:"MB" help:"Leave out graphs that move more than so many megabytes (default: no limit, with --host 64)."`
	JSON string    `name:"json" xor:"file,json" placeholder:"FILE" type:"path" help:"Also write the results of a GPU to this file; in a folder, to one named after the GPU."`
}

func (benchGraphs) Help() string {
	return `Programs as users of Gorgonia write them: element-wise chains, softmax, layer norm, losses, networks
with their gradients. A line a graph, as soon as it is measured. On a GPU:

  time      the median of the launches, by the GPU's clock
  rate      bytes that must be moved, or operations, by that time
  of copy   the rate as a share of the one at which the GPU copies its memory
  checked   how much of the result was compared with a reference in float64
  error     the largest error, as a share of the error that the graph is allowed

then the launches of a run, and the time of a run with the copies from and to the host. With --host: the
best time of either machine, and how many times as fast as Gorgonia's Stheno's is.`
}

// Defaults of a bench of graphs on the host.
const (
	hostMegabytes = 64
	// hostBudget is how long the runs of one graph take, both machines together.
	hostBudget = 2 * time.Second
)

// megabytes is a limit of bytes moved, 0 for none given.
type megabytes float64

// UnmarshalText parses the value on the command line.
func (m *megabytes) UnmarshalText(text []byte) error {
	value, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(value > 0) {
		return fmt.Errorf("got %q, want a number of megabytes above 0", text)
	}
	*m = megabytes(value)
	return nil
}

// allow reports whether that many bytes are within the limit.
func (m megabytes) allow(bytes int64) bool { return m == 0 || float64(bytes) <= 1e6*float64(m) }

// Run times the graphs.
func (b benchGraphs) Run(c *console) error {
	if b.Host {
		return b.onHost(c)
	}
	return timeOnGPU(c, records.Graphs, b.selection, b.timing, casesOf(records.Graphs, false, b.Most), b.device(), b.JSON, "\"stheno bench graphs --host\" times them on this machine's processor")
}

// onHost times them on the host backend against gorgonia.NewTapeMachine.
func (b benchGraphs) onHost(c *console) error {
	return timeOnHost(c, b.selection, b.timing, hostGraphs(cmp.Or(b.Most, hostMegabytes)), caseName, "whole graphs on the host beside gorgonia.NewTapeMachine, %d cores, best of %d runs at most, seed %d",
		func(g maintain.Case, random maintain.Block) (ours, theirs time.Duration, err error) {
			return graphOnHost(g.(maintain.Graph), random.F32, b.runs())
		})
}

// hostGraphs are the graphs for the host: those of a GPU that move little enough, and
// smaller ones.
func hostGraphs(most megabytes) []maintain.Case {
	small := []maintain.Case{
		maintain.Graph{Case: graphspec.Rowwise("softmax", 1024, 128)},
		maintain.Graph{Case: graphspec.RowwiseGradient("layer norm", 1024, 128)},
	}
	return append(small, casesOf(records.Graphs, false, most)...)
}

// graphOnHost returns the best times of running a graph on both machines, which take
// turns.
func graphOnHost(g maintain.Graph, random []float32, runs int) (ours, theirs time.Duration, err error) {
	in := g.Values(random)
	mine, _ := g.Graph(in)
	vm, err := cudaops.NewVM(mine, cudaops.OnHost())
	if err != nil {
		return 0, 0, err
	}
	defer vm.Close()
	other, _ := g.Graph(in)
	tape := gorgonia.NewTapeMachine(other)
	defer tape.Close()
	return takeTurns(vm, tape, runs, hostBudget)
}
