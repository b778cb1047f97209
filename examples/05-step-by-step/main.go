// Step by step goes from one thread to the fast kernel on one small task: the
// sum over a grey picture of 512 x 512 pixels.
//
//	go run ./examples/05-step-by-step
//	go run ./examples/05-step-by-step -html out.html
//
// It reads like a notebook: picture.go draws the picture, this file takes the
// steps and draws the gain of each, sizes.go does the same for other sizes.
// Without a GPU it runs the kernels' Go bodies and shows the times recorded on a
// GPU.
package main

import (
	"embed"
	"fmt"
	"image/color"
	"math"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reduce"
	"gorgonia.org/tensor"
)

//go:embed recorded.json
var files embed.FS

const title = "Step by step: a sum from one thread to a full GPU"

func main() { notebook.Main(title, files, run) }

// runs is how often each step is timed on a GPU.
const runs = 1000

func run(p *notebook.Page) {
	l := begin(p)
	l.host()
	l.oneThread()
	l.oneBlock()
	l.manyBlocks()
	l.tree()
	l.inOrder()
	l.fast()
	l.compare()
	sizes(p)
}

// A ladder is the page, the picture, its sum and the steps taken so far.
type ladder struct {
	*notebook.Page
	side   int
	pixels []float32
	exact  float64 // their sum
	steps  []step
}

type step struct {
	name     string
	launches int    // 0 on the host
	runs     string // how many were timed
	us       float64
	spread   float64 // the standard deviation, in us; 0 on the host, NaN if unknown
	sum      float64
}

func begin(p *notebook.Page) *ladder {
	l := &ladder{Page: p, side: 512}
	if p.Tiny() { // recorded times are of the full size
		l.side = 64
	}
	l.pixels = draw(l.side)
	l.exact = loop(l.pixels)
	p.Heading("The task")
	p.Text(`A grey picture is %d x %d float32 numbers from 0 to 1. We want their sum. That is little work, one addition for 4 bytes read,
		and no two additions depend on each other, so all of a GPU could work on it at once. But every thread's part must end up in one
		number. Each step below changes one thing in how that is done; the kernels are versions 1 to 5 of the op: `+"`versions.Version(3).Sum(x)`"+`
		puts one into a graph, and `+"`ops.Sum(x)`"+` is the last.`, l.side, l.side)
	p.Figure("picture", fmt.Sprintf("The picture. Its pixels add up to %.6f, their mean is %.4f.", l.exact, l.exact/float64(len(l.pixels))),
		figure.Pictures{Zoom: 512 / l.side, Images: []figure.Image{{Width: l.side, Values: l.pixels}}, Colour: func(v float64) color.RGBA { return figure.Grey(1 - v) }})
	p.Text(`Times are per sum, with the picture in the memory of the device. Each but the last is the mean of %d runs, counted in the table at the end, and a run is one sum or, where that takes less, as many sums back to back as
		take a millisecond. What is µs for one sum is ms for 1000. Several copies of the picture take turns, so that every sum reads the memory and no cache. Every
		version adds up in double precision, so that the float32 result is the right one and the steps differ in speed alone.`, runs)
	return l
}

// loop is the sum of the pixels: below 2^53 units of the last place of any pixel there is no rounding
// to speak of.
func loop(pixels []float32) (sum float64) {
	for _, v := range pixels {
		sum += float64(v)
	}
	return sum
}

func (l *ladder) host() {
	l.Heading("What a CPU does")
	l.Text(`Three ways to do it here: a loop over the pixels, the sum of Gorgonia's package tensor, and the op's Go body, which uses all
		cores where there is enough to do. The second adds in float32: the table at the end shows what that does to the result.`)
	dense := tensor.New(tensor.WithShape(l.side, l.side), tensor.WithBacking(l.pixels))
	plan := reduce.Sum(kernels.HostDevice(), kernels.Float32, []int{l.side, l.side}, []int{0, 1}, false)
	for _, way := range []struct {
		name string
		sum  func() float64
	}{
		{"CPU: a Go loop", func() float64 { return loop(l.pixels) }},
		{"CPU: tensor.Sum, in float32", func() float64 { return float64(notebook.Must(dense.Sum()).ScalarValue().(float32)) }},
		{"CPU: the op's Go body", func() float64 { return notebook.AddUp(notebook.OnHost(plan, kernels.Bytes(l.pixels))) }},
	} {
		sum, time := notebook.Timed(l.Page, way.name, way.sum)
		l.add(way.name, 0, "", 1000*time.Value, 0, sum)
		l.Text("%s: %v.", way.name, notebook.Micros(1000*time.Value))
	}
}

// version runs a version of the sum and prints its time.
func (l *ladder) version(v int, name string) {
	plan, before := l.Sum(v, l.side, l.side), l.steps[len(l.steps)-1].us
	ran := l.Run(fmt.Sprintf("512x512 version %d", v), plan, [][]byte{kernels.Bytes(l.pixels)}, runs)
	l.add(name, len(plan.Launches), ran.Runs.String(), ran.Mean.Value, ran.Spread.Value, notebook.AddUp(ran.Out))
	if v == 1 {
		l.Text("It takes %v, plus or minus %v over %v runs.", notebook.Micros(ran.Mean.Value), notebook.Micros(ran.Spread.Value), ran.Runs)
	} else {
		l.Text("It takes %v, plus or minus %v: %s times as fast as the step before.", ran.Mean, ran.Spread, figure.Number(before/ran.Mean.Value))
	}
}

// add keeps a step, whose sum must be right: to the last bit, or to 1 % on the
// host, where a library may add in float32, which loses a bit every so often.
func (l *ladder) add(name string, launches int, runs string, us, spread, sum float64) {
	allowed := 0x1p-23 * l.exact
	if launches == 0 {
		allowed = 0.01 * l.exact
	}
	if !(math.Abs(sum-l.exact) <= allowed) {
		notebook.Fail("%s: the sum is %v, want %v within %v", name, sum, l.exact, allowed)
	}
	l.steps = append(l.steps, step{name, launches, runs, us, spread, sum})
}

func (l *ladder) oneThread() {
	l.Heading("Step 1: one thread")
	l.Text("The loop as a kernel, launched with one block of one thread. `thread_sum` is the loop of all versions; with one thread its stride is 1.")
	l.Source("versions/sum.cu", "thread_sum", "sum_thread")
	l.version(1, "1: one thread")
	l.Text(`A GPU hides the time that memory takes, hundreds of clocks, behind other threads. One thread has none to hide behind, so it waits,
		and a thread of a GPU is slower than one of a CPU to begin with.`)
}

func (l *ladder) oneBlock() {
	l.Heading("Step 2: one block, an atomic for each thread")
	l.Text(`256 threads share the pixels: thread t takes t, t + 256, t + 512 and so on, so that in each turn neighbours read neighbours. Then each
		has a sum, and all are to be added to one number in memory. ` + "`cell += sum`" + ` would be wrong: two threads may read the same old value,
		and one of the two sums is lost. An atomic addition is read, add and write in one. Two small launches more, before and
		after, clear the cell and round it to the result.`)
	l.Source("versions/sum.cu", "sum_atomic")
	l.version(2, "2: one block, an atomic per thread")
}

func (l *ladder) manyBlocks() {
	l.Heading("Step 3: 16 blocks")
	l.Text(`A block lives on one multiprocessor, and all the others were idle. The same kernel with 16 blocks of 256 threads uses 16 of them. Each thread
		has a sixteenth of the work left, but 4096 atomics now want the same cell, and it serves one at a time.`)
	l.version(3, "3: 16 blocks, an atomic per thread")
}

func (l *ladder) tree() {
	l.Heading("Step 4: a tree in shared memory")
	l.Text(`The threads of a block can add up among themselves first, in shared memory: in each step the lower half of the threads adds
		the values of the upper half, so that 256 sums are one after 8 steps. Between the steps all must have finished: a barrier. What is left is
		one atomic for each block.`)
	l.Source("versions/blocksum.cuh", "tree_sum")
	l.Source("versions/sum.cu", "sum_blockatomic")
	l.version(4, "4: 16 blocks, shared tree")
}

func (l *ladder) inOrder() {
	l.Heading("Step 5: no atomics")
	l.Text(`Atomics happen in any order, and floating-point addition depends on the order: two runs may differ in the last bit. If each block stores its
		sum in a place of its own and a second launch adds those in order, two runs never differ.`)
	l.Source("versions/sum.cu", "sum_tree")
	l.version(5, "5: 16 blocks, partial sums in order")
}

func (l *ladder) fast() {
	l.Heading("Step 6: the op")
	l.Text(`The op itself takes more blocks the more there is to add up, until the device is full. Each thread loads 16 bytes at a time and has four loads under way before it
		adds, warps add up through registers by shuffles, and partial sums are added in order.`)
	l.Source("reduce.cuh", "warp_sum", "block_sum", "reduce_rows")
	plan, inputs, before := l.Sum(0, l.side, l.side), [][]byte{kernels.Bytes(l.pixels)}, l.steps[len(l.steps)-1].us
	us := l.Benchmark("512x512 version 0", notebook.OpCase(0, "Sum", "all 512x512", kernels.Float32), func() float64 { return l.MeanTime(plan, inputs, runs, nil) })
	l.Text("It takes %v: %s times as fast as the step before.", us, figure.Number(before/us.Value))
	l.add("6: the op, ops.Sum", len(plan.Launches), "", us.Value, math.NaN(), notebook.AddUp(l.Output(plan, inputs)))
}

func (l *ladder) compare() {
	p := l.Page
	p.Heading("All steps side by side")
	t := figure.Table{Caption: "One sum over the picture", Header: []string{"step", "launches", "runs", "time", "faster than one thread", "sum", "off by"}}
	for _, s := range l.steps {
		launches, gain := "", ""
		if s.launches > 0 {
			launches = fmt.Sprint(s.launches)
		}
		if s.launches > 0 || p.GPU() != nil { // times of one machine
			gain = figure.Number(l.steps[3].us / s.us)
		}
		t.Add(s.name, launches, s.runs, notebook.Micros(s.us), gain, fmt.Sprintf("%.4f", s.sum), fmt.Sprintf("%.1e", math.Abs(s.sum-l.exact)/l.exact))
	}
	p.Table(t)
	if p.GPU() == nil {
		p.Text("The CPU's times are of this machine, so the figure has the others alone, which were recorded on the GPU named above.")
	}
	bars := figure.Bars{Title: "Time of one sum over the picture", Label: "time, µs", Log: true, Series: []figure.BarSeries{{Colour: figure.Blue}}}
	for _, s := range l.steps {
		if s.launches > 0 || p.GPU() != nil {
			bars.Add(s.name, s.us)
			bars.Series[0].Spread = append(bars.Series[0].Spread, s.spread)
		}
	}
	p.Figure("steps", "Time of one sum over the picture; further left is better. Ranges are standard deviations.", bars)
	p.Text(`The picture is small for a GPU. From step 3 on much of the time is the launches, which start only one every few µs: a step that
		needs a launch less looks better than its kernel is. The next figure has inputs so small that nothing but the launches is left, and inputs so large that
		they do not matter.`)
}
