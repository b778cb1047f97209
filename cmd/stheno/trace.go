package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/maintain"
)

// trace writes a trace of a run.
type trace struct {
	Graph string `arg:"" help:"Name of a graph, as stheno explain takes it."`
	Out   string `default:"trace.json" placeholder:"FILE" type:"path" help:"File to write (default: trace.json)."`
	Runs  count  `default:"3" placeholder:"N" help:"Runs to write (default: ${default})."`
	Host  bool   `help:"Run on the processor even where there is a GPU."`
}

func (trace) Help() string {
	return `Runs a graph that comes with this program on random inputs, on GPU 0 or else on the processor, and writes when
each step and each copy ran in Chrome's trace format: open the file at https://ui.perfetto.dev or
chrome://tracing. A step has its nodes, kernels, bytes and operations. On a GPU each is a launch of its own, which
makes the run longer. In a program of your own, make the VM with cudaops.Trace(file).`
}

// Run runs the graph and writes the file.
func (t trace) Run(c *console) error {
	g, err := findGraph(t.Graph)
	if err != nil {
		return err
	}
	file, err := os.Create(t.Out) // before the run, so that a bad path is found at once
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	defer file.Close()
	vm, err := machine(g, g.Values(maintain.NewBlock(1, maintain.BlockOfHost).F32), t.Host, cudaops.Trace(file))
	if err != nil {
		return err
	}
	defer vm.Close()
	for range t.Runs {
		if err := vm.RunAll(); err != nil {
			return fmt.Errorf("%s: %w", graphName(g), err)
		}
	}
	r := vm.Report()
	if err := errors.Join(vm.Close(), file.Close()); err != nil { // which end the trace
		return err
	}
	runs := fmt.Sprintf("%d runs", r.Runs)
	if r.Runs == 1 {
		runs = "a run"
	}
	_, err = fmt.Fprintf(c.out, "%s: %s of %d steps, the last of %v, on %s\nwrote %s, which https://ui.perfetto.dev shows\n",
		graphName(g), runs, len(r.Steps), r.Time.Round(time.Microsecond), vm.Device(), t.Out)
	return err
}
