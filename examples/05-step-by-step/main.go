// Step by step goes from one thread to the fast kernel on one small task: the
// sum over a grey picture of 512 x 512 pixels.
//
//	go run ./examples/05-step-by-step
//	go run ./examples/05-step-by-step -picture photo.jpg -html out.html
//
// It reads like a notebook: picture.go gets the picture, this file takes the
// steps and draws the gain of each, sizes.go does the same for other sizes.
// Without a GPU it runs the kernels' Go bodies and shows the times recorded on a
// GPU.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"image/color"
	"math"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
	"gorgonia.org/tensor"
)

//go:embed recorded.json
var recorded []byte

const title = "Step by step: a sum from one thread to a full GPU"

func main() {
	picture := flag.String("picture", "", "PNG or JPEG to add up, scaled to 512 x 512 (one is drawn without)")
	notebook.Main(title, recorded, func(p *notebook.Page) error { return run(p, *picture) })
}

// runs is how often each step is timed on a GPU.
const runs = 1000

func run(p *notebook.Page, path string) error {
	l, err := begin(p, path)
	if err != nil {
		return err
	}
	for _, section := range []func() error{l.host, l.oneThread, l.oneBlock, l.manyBlocks, l.tree, l.inOrder, l.fast, l.compare} {
		if err := section(); err != nil {
			return err
		}
	}
	return sizes(p)
}

// A ladder is the picture, its sum and the steps taken so far.
type ladder struct {
	p      *notebook.Page
	side   int
	pixels []float32
	exact  float64 // their sum
	timed  string  // the picture that the GPU's times are of
	apart  bool    // that is another one than the picture here
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

func begin(p *notebook.Page, path string) (*ladder, error) {
	l := &ladder{p: p, side: 512, timed: "the picture"}
	if p.Tiny() { // recorded times are of the full size
		l.side = 64
	}
	if path != "" && p.GPU() == nil { // recorded times are of the drawn picture
		l.timed, l.apart = "the drawn picture", true
	}
	var err error
	if l.pixels, err = load(path, l.side); err != nil {
		return nil, err
	}
	for _, v := range l.pixels {
		l.exact += float64(v) // below 2^53 units of the last place of any pixel: no rounding to speak of
	}
	p.Heading("The task")
	p.Text(`A grey picture is %d x %d float32 numbers from 0 to 1. We want their sum. That is little work, one addition for 4 bytes read,
		and no two additions depend on each other, so all of a GPU could work on it at once. But every thread's part must end up in one
		number. Each step below changes one thing in how that is done; the kernels are versions 1 to 5 of the op: `+"`versions.Version(3).Sum(x)`"+`
		puts one into a graph, and `+"`ops.Sum(x)`"+` is the last.`, l.side, l.side)
	if err := p.Figure("picture", fmt.Sprintf("The picture. Its pixels add up to %.6f, their mean is %.4f.", l.exact, l.exact/float64(len(l.pixels))),
		figure.Pictures{Zoom: 512 / l.side, Images: []figure.Image{{Width: l.side, Values: l.pixels}}, Colour: func(v float64) color.RGBA { return figure.Grey(1 - v) }}); err != nil {
		return nil, err
	}
	p.Text(`Times are per sum, with the picture in the memory of the device. Each but the last is the mean of %d runs, counted in the table at the end, and a run is one sum or, where that takes less, as many sums back to back as
		take a millisecond. What is µs for one sum is ms for 1000. Several copies of the picture take turns, so that every sum reads the memory and no cache. Every
		version adds up in double precision, so that the float32 result is the right one and the steps differ in speed alone.`, runs)
	if l.apart {
		p.Text(`There is no GPU here, and the recorded times are not of this picture but of the one that is drawn without -picture. They stand apart from
			the sums of this one, and are called those of the drawn picture.`)
	}
	return l, nil
}

func (l *ladder) host() error {
	p := l.p
	p.Heading("What a CPU does")
	p.Text(`Three ways to do it here: a loop over the pixels, the sum of Gorgonia's package tensor, and the op's Go body, which uses all
		cores where there is enough to do. The second adds in float32: the table at the end shows what that does to the result.`)
	dense := tensor.New(tensor.WithShape(l.side, l.side), tensor.WithBacking(l.pixels))
	plan := kernels.Sum(kernels.HostDevice(), kernels.Float32, []int{l.side, l.side}, []int{0, 1}, false)
	for _, way := range []struct {
		name string
		sum  func() (float64, error)
	}{
		{"CPU: a Go loop", func() (sum float64, err error) {
			for _, v := range l.pixels {
				sum += float64(v)
			}
			return sum, nil
		}},
		{"CPU: tensor.Sum, in float32", func() (float64, error) {
			t, err := dense.Sum()
			if err != nil {
				return 0, err
			}
			return float64(t.ScalarValue().(float32)), nil
		}},
		{"CPU: the op's Go body", func() (float64, error) {
			var out [1]float32
			err := plan.Run([][]byte{kernels.Bytes(l.pixels)}, kernels.Bytes(out[:]), nil)
			return float64(out[0]), err
		}},
	} {
		var sum float64
		time, err := p.Time(way.name, func() (err error) {
			sum, err = way.sum()
			return err
		})
		if err != nil {
			return err
		}
		if err := l.add(way.name, 0, "", 1000*time.Value, 0, sum); err != nil {
			return err
		}
		p.Text("%s: %v.", way.name, notebook.Micros(1000*time.Value))
	}
	return nil
}

// version runs a version of the sum and prints its time.
func (l *ladder) version(v versions.Version, name string) error {
	plan, err := versions.Sum(l.p.Target(), kernels.Float32, int(v), []int{l.side, l.side})
	if err != nil {
		return err
	}
	ran, err := l.p.Run(fmt.Sprintf("512x512 version %d", v), plan, [][]byte{kernels.Bytes(l.pixels)}, runs)
	if err != nil {
		return err
	}
	before := l.steps[len(l.steps)-1]
	if err := l.add(name, len(plan.Launches), ran.Runs.String(), ran.Mean.Value, ran.Spread.Value, float64(kernels.Elements[float32](ran.Out)[0])); err != nil {
		return err
	}
	if v == 1 {
		l.p.Text("%s %v, plus or minus %v over %v runs.", l.takes(), notebook.Micros(ran.Mean.Value), notebook.Micros(ran.Spread.Value), ran.Runs)
	} else {
		l.p.Text("%s %v, plus or minus %v: %s times as fast as the step before.", l.takes(), ran.Mean, ran.Spread, figure.Number(before.us/ran.Mean.Value))
	}
	return nil
}

// add keeps a step, whose sum must be right: to the last bit, or to 1 % on the
// host, where a library may add in float32, which loses a bit every so often.
func (l *ladder) add(name string, launches int, runs string, us, spread, sum float64) error {
	allowed := 0x1p-23 * l.exact
	if launches == 0 {
		allowed = 0.01 * l.exact
	}
	if !(math.Abs(sum-l.exact) <= allowed) {
		return fmt.Errorf("%s: the sum is %v, want %v within %v", name, sum, l.exact, allowed)
	}
	l.steps = append(l.steps, step{name, launches, runs, us, spread, sum})
	return nil
}

func (l *ladder) oneThread() error {
	l.p.Heading("Step 1: one thread")
	l.p.Text("The loop as a kernel, launched with one block of one thread. `thread_sum` is the loop of all versions; with one thread its stride is 1.")
	if err := l.p.Sources("versions/sum.cu", "thread_sum", "sum_thread"); err != nil {
		return err
	}
	if err := l.version(1, "1: one thread"); err != nil {
		return err
	}
	l.p.Text(`A GPU hides the time that memory takes, hundreds of clocks, behind other threads. One thread has none to hide behind, so it waits,
		and a thread of a GPU is slower than one of a CPU to begin with.`)
	return nil
}

func (l *ladder) oneBlock() error {
	l.p.Heading("Step 2: one block, an atomic for each thread")
	l.p.Text(`256 threads share the pixels: thread t takes t, t + 256, t + 512 and so on, so that in each turn neighbours read neighbours. Then each
		has a sum, and all are to be added to one number in memory. ` + "`cell += sum`" + ` would be wrong: two threads may read the same old value,
		and one of the two sums is lost. An atomic addition is read, add and write in one. Two small launches more, before and
		after, clear the cell and round it to the result.`)
	if err := l.p.Sources("versions/sum.cu", "sum_atomic"); err != nil {
		return err
	}
	return l.version(2, "2: one block, an atomic per thread")
}

func (l *ladder) manyBlocks() error {
	l.p.Heading("Step 3: 16 blocks")
	l.p.Text(`A block lives on one multiprocessor, and all the others were idle. The same kernel with 16 blocks of 256 threads uses 16 of them. Each thread
		has a sixteenth of the work left, but 4096 atomics now want the same cell, and it serves one at a time.`)
	return l.version(3, "3: 16 blocks, an atomic per thread")
}

func (l *ladder) tree() error {
	l.p.Heading("Step 4: a tree in shared memory")
	l.p.Text(`The threads of a block can add up among themselves first, in shared memory: in each step the lower half of the threads adds
		the values of the upper half, so that 256 sums are one after 8 steps. Between the steps all must have finished: a barrier. What is left is
		one atomic for each block.`)
	if err := l.p.Sources("versions/blocksum.cuh", "tree_sum"); err != nil {
		return err
	}
	if err := l.p.Sources("versions/sum.cu", "sum_blockatomic"); err != nil {
		return err
	}
	return l.version(4, "4: 16 blocks, shared tree")
}

func (l *ladder) inOrder() error {
	l.p.Heading("Step 5: no atomics")
	l.p.Text(`Atomics happen in any order, and floating-point addition depends on the order: two runs may differ in the last bit. If each block stores its
		sum in a place of its own and a second launch adds those in order, two runs never differ.`)
	if err := l.p.Sources("versions/sum.cu", "sum_tree"); err != nil {
		return err
	}
	return l.version(5, "5: 16 blocks, partial sums in order")
}

func (l *ladder) fast() error {
	l.p.Heading("Step 6: the op")
	l.p.Text(`The op itself takes more blocks the more there is to add up, until the device is full. Each thread loads 16 bytes at a time and has four loads under way before it
		adds, warps add up through registers by shuffles, and partial sums are added in order.`)
	if err := l.p.Sources("reduce.cuh", "warp_sum", "block_sum", "reduce_rows"); err != nil {
		return err
	}
	return l.op("6: the op, ops.Sum")
}

// op runs the op and prints its time, which README.md has too.
func (l *ladder) op(name string) error {
	p, plan, inputs := l.p, kernels.Sum(l.p.Target(), kernels.Float32, []int{l.side, l.side}, []int{0, 1}, false), [][]byte{kernels.Bytes(l.pixels)}
	us, err := p.Benchmark("512x512 version 0", benchmark("all 512x512", 0), func() (float64, error) { return p.MeanTime(plan, inputs, runs) })
	if err != nil {
		return err
	}
	out, err := p.Output(plan, inputs)
	if err != nil {
		return err
	}
	before := l.steps[len(l.steps)-1]
	p.Text("%s %v: %s times as fast as the step before.", l.takes(), us, figure.Number(before.us/us.Value))
	return l.add(name, len(plan.Launches), "", us.Value, math.NaN(), float64(kernels.Elements[float32](out)[0]))
}

// takes begins a sentence about a time.
func (l *ladder) takes() string {
	if l.apart {
		return "Over the drawn picture it takes"
	}
	return "It takes"
}

func (l *ladder) compare() error {
	p := l.p
	p.Heading("All steps side by side")
	if l.apart {
		p.Table(l.sums())
		p.Table(l.times())
	} else {
		p.Table(l.all())
		if p.GPU() == nil {
			p.Text("The CPU's times are of this machine, so the figure has the others alone, which were recorded on the GPU named above.")
		}
	}
	bars := figure.Bars{Title: "Time of one sum over " + l.timed, Label: "time, µs", Log: true, Series: []figure.BarSeries{{Colour: figure.Blue}}}
	for _, s := range l.steps {
		if s.launches > 0 || p.GPU() != nil {
			bars.Names = append(bars.Names, s.name)
			bars.Series[0].Values, bars.Series[0].Spread = append(bars.Series[0].Values, s.us), append(bars.Series[0].Spread, s.spread)
		}
	}
	caption := "Time of one sum over " + l.timed + "; further left is better. Ranges are standard deviations."
	if err := p.Figure("steps", caption, bars); err != nil {
		return err
	}
	p.Text(`The picture is small for a GPU. From step 3 on much of the time is the launches, which start only one every few µs: a step that
		needs a launch less looks better than its kernel is. The next figure has inputs so small that nothing but the launches is left, and inputs so large that
		they do not matter.`)
	return nil
}

// all returns the table of the steps, with times and sums of one picture.
func (l *ladder) all() figure.Table {
	t := figure.Table{Caption: "One sum over the picture", Header: []string{"step", "launches", "runs", "time", "faster than one thread", "sum", "off by"}}
	for _, s := range l.steps {
		gain := ""
		if s.launches > 0 || l.p.GPU() != nil { // times of one machine
			gain = l.gain(s)
		}
		t.Rows = append(t.Rows, append([]string{s.name, s.count(), s.runs, notebook.Micros(s.us).String(), gain}, l.sum(s)...))
	}
	return t
}

// sums returns the table of what was computed here: sums of this picture, and the times of the CPU.
func (l *ladder) sums() figure.Table {
	t := figure.Table{Caption: "One sum over this picture", Header: []string{"step", "launches", "time here", "sum", "off by"}}
	for _, s := range l.steps {
		time := ""
		if s.launches == 0 {
			time = notebook.Micros(s.us).String()
		}
		t.Rows = append(t.Rows, append([]string{s.name, s.count(), time}, l.sum(s)...))
	}
	return t
}

// times returns the table of the recorded times.
func (l *ladder) times() figure.Table {
	t := figure.Table{Caption: "One sum over the drawn picture, recorded on the GPU named above", Header: []string{"step", "runs", "time", "faster than one thread"}}
	for _, s := range l.steps {
		if s.launches > 0 {
			t.Rows = append(t.Rows, []string{s.name, s.runs, notebook.Micros(s.us).String(), l.gain(s)})
		}
	}
	return t
}

// gain is how many times as fast a step is as one thread.
func (l *ladder) gain(s step) string { return figure.Number(l.steps[3].us / s.us) }

// sum returns the cells of a step's sum and of its error.
func (l *ladder) sum(s step) []string {
	return []string{fmt.Sprintf("%.4f", s.sum), fmt.Sprintf("%.1e", math.Abs(s.sum-l.exact)/l.exact)}
}

// count is the number of launches, nothing on the host.
func (s step) count() string {
	if s.launches == 0 {
		return ""
	}
	return fmt.Sprint(s.launches)
}
