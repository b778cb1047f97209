package main

import (
	"fmt"
	"io"
	"regexp"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/graphspec"
	"github.com/stheno-ml/stheno/internal/results"
	"gorgonia.org/gorgonia"
)

// hostGraph is the most that a graph moves on the host by default, in bytes.
const hostGraph = 64 << 20

// hostBudget is how long the runs of one graph take on the host, both machines
// together.
const hostBudget = 2 * time.Second

// benchHostGraphs times whole graphs on the host backend against
// gorgonia.NewTapeMachine, and prints the best times.
func benchHostGraphs(w io.Writer, selected *regexp.Regexp, most int64, runs int) error {
	if gorgonia.CUDA {
		return errNoTape
	}
	fmt.Fprintf(w, "whole graphs on the host backend against gorgonia.NewTapeMachine, %d cores, best of %d runs at most\n\n", runtime.GOMAXPROCS(0), runs)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer t.Flush()
	fmt.Fprintln(t, "graph\tStheno\tGorgonia\tspeed, Gorgonia's = 1")
	block := newRandomBlock(1)
	small := graphspec.Rowwise("softmax", 1024, 128) // the timed sizes are a GPU's
	cases := slices.Concat([]graphspec.Case{small, graphspec.RowwiseGradient("layer norm", 1024, 128)}, graphspec.All())
	for _, c := range cases {
		name := c.Name + "/" + c.Size
		if !selected.MatchString(name) || c.Bytes() > most {
			continue
		}
		ours, theirs, err := timeHostGraph(c, block.f32, runs)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%.2f\n", name, results.Micros(micros(ours)), results.Micros(micros(theirs)), float64(theirs)/float64(ours))
	}
	return nil
}

// timeHostGraph gives the best times of running a graph on both machines, which take
// turns.
func timeHostGraph(c graphspec.Case, random []float32, runs int) (ours, theirs time.Duration, err error) {
	in := c.Values(random)
	mine, _ := c.Graph(in)
	vm, err := cudaops.NewVM(mine, cudaops.OnHost())
	if err != nil {
		return 0, 0, err
	}
	defer vm.Close()
	other, _ := c.Graph(in)
	tape := gorgonia.NewTapeMachine(other)
	defer tape.Close()
	return takeTurns(vm, tape, runs, hostBudget)
}
