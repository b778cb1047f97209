package main

import (
	"fmt"
	"image/color"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/bench"
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
	bars := figure.Bars{Title: "Memory of the device", Label: "MiB", Series: []figure.BarSeries{{Colour: figure.Green}}}
	add := func(name string, bytes int64) { bars.Add(name, float64(bytes)/(1<<20)) }
	add("all values of the program as it was lowered", passes[0].Values)
	add("those that are left after the last pass", passes[len(passes)-1].Values)
	add("the most that is alive at once", r.Peak)
	add("what the machine reserves", r.Arena)
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

// A profile holds the times of a run of the program on a GPU.
type profile struct {
	images   int
	colour   color.RGBA        // in the figures
	steps    []cudaops.Step    // timed one by one; none if they are not recorded
	launches notebook.Measured // all of them as one CUDA graph, in us
	run      notebook.Measured // with the copies, by the host's clock, in us
}

// limits are those of a device: bytes and multiply-adds in float32 a second.
type limits struct{ Bandwidth, FMAs float64 }

// onGPU shows the times of the program's launches on a GPU, for two batches.
func onGPU(s *story) {
	small, large := profile{images: s.Timed(128, 16), colour: figure.Blue}, profile{images: s.Timed(4096, 32), colour: figure.Amber}
	s.Heading("Time by step on a GPU")
	s.Text(`The same program at its full size, %s, on a GPU, with batches of %d and of %d images. A small batch has so little work for each step that the step costs hardly more than its
		launch; a large one fills the device.`, widths(s.timedLayers()), small.images, large.images)
	t := figure.Table{Caption: "A run, forward and backward", Header: []string{"batch", "steps", "all launches", "steps added up", "products of them", "with the copies"}}
	for _, pr := range []*profile{&small, &large} {
		s.measure(pr)
		count, sum, products := "-", math.NaN(), math.NaN()
		if len(pr.steps) > 0 {
			count, sum, products = fmt.Sprint(len(pr.steps)), 0, 0
		}
		for _, step := range pr.steps {
			sum += micros(step.Time)
			if strings.HasPrefix(kind(step), "product") {
				products += micros(step.Time)
			}
		}
		t.Add(pr.images, count, notebook.Micros(pr.launches.Value), notebook.Micros(sum), notebook.Micros(products), notebook.Micros(pr.run.Value))
	}
	s.Table(t)
	s.Text(`The launches of a run are one CUDA graph, which the device works through without the host: that is the time of all launches. To time the steps one by one, the clock is read before and after each, which takes
		time itself. With its copies a run takes longer: images, labels and parameters go to the device in every run, and the gradients come back, because the solver is Gorgonia's and works on the host.`)
	s.drawSteps(small, large)
	s.drawRoofline(small, large)
}

// timedLayers are the widths of the layers that the GPU's times are for.
func (s *story) timedLayers() []int {
	hidden := s.Timed(512, 32)
	return []int{pixels, hidden, hidden, classes}
}

// timedNetwork is the program that the GPU's times are for, with values bound to all of
// its inputs.
func (s *story) timedNetwork(images int) *network {
	net := notebook.Must(newNetwork(images, s.timedLayers()))
	net.initialise(1)
	b := batch{}
	b.images, b.labels = drawBatch(rand.New(rand.NewPCG(7, 8)), images)
	notebook.Check(net.bind(b))
	return net
}

// measure times the program on a GPU, or takes the times from the record.
func (s *story) measure(pr *profile) {
	const runs = 31
	key := fmt.Sprintf("batch %d", pr.images)
	machine := func(opts ...cudaops.Option) *cudaops.VM {
		return newVM(s.Page, s.timedNetwork(pr.images).graph, opts...)
	}
	pr.steps, _ = notebook.Keep(s.Page, key+", steps", func() []cudaops.Step {
		vm := machine(cudaops.Timed())
		defer vm.Close()
		return timeSteps(vm, runs)
	})
	// The graph is that of the benchmarks.
	same := notebook.Case{Op: fmt.Sprintf("MLP %s, gradient", widths(s.timedLayers())), Name: key, Dtype: "f32"}
	pr.launches = s.Benchmark(key+", launches", same, func() float64 {
		return notebook.Median(notebook.Must(bench.TimeGraph(s.GPU().Ordinal, s.timedNetwork(pr.images).graph, nil, runs, 10*time.Second)).Runs)
	})
	pr.run = s.Measure(key+", run", "us", func() float64 {
		vm := machine()
		defer vm.Close()
		var times []time.Duration
		for range runs {
			notebook.Check(vm.RunAll())
			times = append(times, vm.Report().Time)
		}
		return notebook.Median(times)
	})
}

// drawSteps draws the time of each step, a picture for each batch.
func (s *story) drawSteps(profiles ...profile) {
	var panels []figure.Panel
	for _, pr := range profiles {
		bars := figure.Bars{Title: fmt.Sprintf("Batch %d", pr.images), Label: "time, µs", Series: []figure.BarSeries{{Colour: pr.colour}}}
		for k, step := range pr.steps {
			bars.Add(fmt.Sprintf("%d %s", k+1, kind(step)), micros(step.Time))
		}
		panels = append(panels, bars)
	}
	s.Figure("steps", "The time of each step of a run on the GPU, timed one by one, in the order of the run.", panels...)
}

// drawRoofline draws the speed of each step over its arithmetic intensity, with the
// limits of the device.
func (s *story) drawRoofline(profiles ...profile) {
	s.Heading("The roofline")
	s.Text(`How good are these times? A step reads and writes memory, and it computes. For both the device has a limit, and the one that takes longer decides. Which one that is depends on a step's arithmetic intensity, how many
		operations it does for each byte: an element-wise op does less than one, a product of large matrices a hundred. Drawn over the intensity, the limits on the speed look like a roof: a slope where
		memory decides, and a ceiling where arithmetic does.`)
	chart := figure.Chart{Title: "Speed of each step", XLabel: "operations per byte", YLabel: "GFLOP/s", Log: true, LogX: true}
	device, _ := notebook.Keep(s.Page, "limits", func() limits { return limits{s.GPU().Bandwidth, s.GPU().FMAs} })
	lo, hi := 0.1, 100.0
	for _, pr := range profiles {
		dots := figure.Series{Name: fmt.Sprintf("batch %d", pr.images), Colour: pr.colour, Dots: true}
		for _, step := range pr.steps {
			if step.Flops == 0 || step.Time <= 0 {
				continue
			}
			x := float64(step.Flops) / float64(step.Bytes)
			lo, hi = min(lo, x), max(hi, x)
			dots.X, dots.Y = append(dots.X, x), append(dots.Y, float64(step.Flops)/step.Time.Seconds()/1e9)
			if isLoss(step) {
				dots.Marks = []figure.Mark{{At: len(dots.X) - 1, Text: "softmax and loss"}}
			}
		}
		chart.Series = append(chart.Series, dots)
	}
	if device.FMAs > 0 {
		peak := 2 * device.FMAs / 1e9
		roof := figure.Series{Name: "the device's limits", Colour: figure.Muted}
		for x := lo; x < hi; x *= 1.05 {
			roof.X, roof.Y = append(roof.X, x), append(roof.Y, min(x*device.Bandwidth/1e9, peak))
		}
		chart.Series = append(chart.Series, roof)
	}
	caption := "Each dot is a step. The slope is the memory's peak bandwidth, the ceiling what ordinary multiply-adds in float32 reach."
	s.Figure("roofline", caption, chart)
	s.Text(`A dot far below the roof is a step that is too small for the device: it is over before all of the device is at work. A dot above the slope has inputs in the level-2 cache, where the step before left them. A dot
		above the ceiling is a product on tensor cores, which are faster than ordinary multiply-adds.`)
	for _, pr := range profiles {
		if over := pr.overRoof(); !math.IsNaN(over) {
			s.Text("With the batch of %d images all steps together take %s times as long as the roof allows.", pr.images, figure.Number(over))
		}
	}
}

// overRoof is the time of all steps over that which the device's limits allow, NaN if it is not recorded.
func (pr profile) overRoof() float64 {
	took, least := 0.0, 0.0
	for _, step := range pr.steps {
		took, least = took+step.Time.Seconds(), least+step.Roofline*step.Time.Seconds()
	}
	return took / least
}

// kind names the kind of a step, without its function.
func kind(step cudaops.Step) string {
	name := strings.TrimPrefix(step.Op, "kernel ")
	name, _, _ = strings.Cut(name, " ")
	if n := len(step.Nodes); n > 1 {
		name += fmt.Sprintf(", %d nodes", n)
	}
	return name
}

// micros is a time in us.
func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// size is a number of bytes.
func size(bytes int64) string {
	switch b := float64(bytes); {
	case bytes >= 1<<20:
		return figure.Number(b/(1<<20)) + " MiB"
	case bytes >= 1<<10:
		return figure.Number(b/(1<<10)) + " KiB"
	}
	return fmt.Sprint(bytes, " B")
}

// shorten cuts a text that is longer than n characters.
func shorten(text string, n int) string {
	if r := []rune(text); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return text
}

func learnt(s *story) {
	s.Heading("What we learnt")
	r := s.vm.Report()
	s.Text(`A graph records which value depends on which, and no more is needed to run it well. Of the %d nodes of a plain Gorgonia program %d steps are left: %d products and the fused steps between them. The softmax, the
		loss and the gradient by the softmax's input are a single launch, and no value of it goes through memory that is not needed afterwards.`,
		len(s.net.graph.AllNodes()), len(r.Steps), countProducts(r.Steps))
	s.Text("Fusing costs no accuracy: the same operations on the same numbers, with their results in registers. And the program that gains from all this is not changed, but for the line that makes the machine.")
}

// countProducts counts the steps that are products of matrices.
func countProducts(steps []cudaops.Step) (n int) {
	for _, step := range steps {
		if strings.HasPrefix(kind(step), "product") {
			n++
		}
	}
	return n
}
