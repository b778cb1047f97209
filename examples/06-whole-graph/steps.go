package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
)

// timeSteps runs a machine that was made with Timed and returns the steps of its report,
// with their median times.
func timeSteps(vm *cudaops.VM, runs int) []cudaops.Step {
	var steps []cudaops.Step
	var times [][]time.Duration
	for run := range runs + 1 {
		notebook.Check(vm.RunAll())
		if steps = vm.Report().Steps; run == 0 { // warms caches up
			times = make([][]time.Duration, len(steps))
			continue
		}
		for i, step := range steps {
			times[i] = append(times[i], step.Time)
		}
	}
	for i := range steps {
		steps[i].Time = time.Duration(notebook.Median(times[i]) * 1e3)
	}
	return steps
}

// memory compares the sum of all values with the arena.
func memory(s *story) {
	s.Heading("Memory")
	passes := notebook.Must(s.vm.Passes())
	r := s.vm.Report()
	bars := figure.Bars{Title: "Memory of the device", Label: "MiB"}
	var values []float64
	for _, line := range []struct {
		name  string
		bytes int64
	}{
		{"all values of the program as it was lowered", passes[0].Values},
		{"those that are left after the last pass", passes[len(passes)-1].Values},
		{"the most that is alive at once", r.Peak},
		{"what the machine reserves", r.Arena},
	} {
		bars.Names, values = append(bars.Names, line.name), append(values, float64(line.bytes)/(1<<20))
	}
	bars.Series = []figure.BarSeries{{Colour: figure.Green, Values: values}}
	s.Figure("memory", "The memory of a run. Copies of the parameters and their gradients are among the values.", bars)
	s.Text(`A value is alive from the instruction that computes it to the last one that reads it, and only values that are alive need memory. The compiler knows both for every value, and the size of each, so it
		reserves one piece of memory when the machine is made and allocates nothing afterwards: %s instead of %s, where %s is the least that this order of instructions needs. A map even writes its result over an input
		that nobody needs any more.`, size(r.Arena), size(passes[0].Values), size(r.Peak))
}

// stepsHere shows the steps of a run on this machine.
func stepsHere(s *story) {
	s.Heading("What a run is now")
	vm := newVM(s.Page, s.net.graph, cudaops.Timed())
	steps := timeSteps(vm, s.Size(20, 9, 1))
	notebook.Check(vm.Close())
	t := figure.Table{Caption: fmt.Sprintf("The steps of a run here: %s, %d images", widths(s.widths), s.images), Header: []string{"step", "what", "nodes", "kernel", "bytes", "time"}}
	var loss cudaops.Step
	for i, step := range steps {
		if isLoss(step) {
			loss = step
		}
		t.Add(i+1, "`"+shorten(step.Op, 60)+"`", len(step.Nodes), strings.Join(step.Kernels, " "), size(step.Bytes), notebook.Micros(micros(step.Time)))
	}
	s.Text("`vm.Report()` lists the steps of a run, and with the option `Timed` their times, here medians:")
	s.Table(t)
	s.Text("The step of the softmax and the loss covers %d nodes. They are, by the names that Gorgonia gives them:", len(loss.Nodes))
	s.Listing("", strings.Join(loss.Nodes, "\n"))
}

// isLoss reports whether a step is the one of the softmax and the loss.
func isLoss(step cudaops.Step) bool { return strings.Contains(step.Op, "rowmax(") }
