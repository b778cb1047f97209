// Grid-barrier lets all blocks of a grid wait for one another, in every way that
// a GPU has, and measures what each costs.
//
//	go run ./examples/03-grid-barrier
//	go run ./examples/03-grid-barrier -html grid-barrier.html
//
// It reads like a notebook: this file tells the story, measure.go runs, times
// and draws. Without a GPU it runs the kernels' host bodies and shows the
// GPU's recorded figures.
package main

import (
	"embed"
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/cudaops/bench"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/gradcheck"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/kernels/versions"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

//go:embed recorded.json
var files embed.FS

const title = "A barrier for the whole grid"

func main() { notebook.Main(title, files, run) }

// steps is the number of transformations of X to P and back.
const steps = 100

func run(page *notebook.Page) {
	p := newLab(page)
	question(p)
	wrong(p)
	barriers(p)
	coResident(p)
	prices(p)
	sweeps(p)
	fast(p)
	gradients(p)
	learnt(p)
}

func question(p *lab) {
	p.Heading("What we want to know")
	p.Text(`A vector X of 128 values becomes a vector P, each element of P a weighted mean of all of X; and P becomes X again in the same way, by
		other weights. After %d such transformations in a row we want X. Two blocks of 64 threads do it, a thread for each element. Every thread
		needs the results of all the others, those of the other block too, before it can go on: %d times the whole grid must wait for its last
		thread. `+"`__syncthreads()`"+` makes the threads of one block wait. What makes all blocks wait, and what does it cost?`, steps, 2*steps-1)
	p.Text("One half step is the same in all that follows. The matrices' transposes are used, so that neighbouring threads read neighbouring weights:")
	p.Source("versions/iterate.cu", "half_step")
}

func wrong(p *lab) {
	p.Heading("Without a barrier, and with too small a one")
	p.Text("The whole iteration in one launch is a loop of half steps. The barrier between two of them is a parameter:")
	p.Source("versions/iterate.cu", "whole")
	p.Text(`With all weights 1/128, every element of the result is the mean of the X that we started with, so wrong elements are easy to see. First no
		barrier at all, then ` + "`__syncthreads()`" + ` alone: both are wrong on purpose. On the host the bodies of these kernels let one warp (one block) after the other go
		through all steps: a schedule that CUDA allows, and the worst one.`)
	counts := []int{1, 2, 3, 5, 10, steps}
	t := figure.Table{
		Caption: "Of 20 runs on the GPU: wrong elements, runs with some elements wrong and some right, warps whose 32 elements were all wrong or all right, and blocks whose 64 were.",
		Header:  []string{"kernel", "transformations", "wrong, %", "runs partly wrong, %", "whole warps, %", "whole blocks, %", "wrong on the host, %"},
	}
	heat := func(title string) figure.HeatMap { // how far each warp's results are from the right ones
		return figure.HeatMap{Title: title, XLabel: "warps, two to a block", YLabel: "transformations", Label: "off by, %", Gain: true, Rows: labels(counts), Columns: []string{"0", "1", "2", "3"}}
	}
	var maps []figure.Panel
	whole := [2]float64{100, 100} // the least share of whole warps without a barrier, and of whole blocks with one for each
	together := 100.0             // the least share of whole blocks without a barrier
	for i, b := range []versions.Barrier{versions.BarrierNone, versions.BarrierBlock} {
		name := [...]string{"no barrier", "a barrier per block"}[i]
		by := on(b, 2, 64)
		gpu, host := heat(name+", GPU"), heat(name+", host")
		for _, steps := range counts {
			onHost := observe(nil, steps, by, 2)
			var onGPU stale
			if p.GPU() != nil {
				onGPU = observe(p.GPU(), steps, by, 20)
			}
			for what, value := range onGPU.figures() {
				*value = p.Measure(fmt.Sprintf("%v after %d, %s", b, steps, what), "%", func() float64 { return *value }).Value
			}
			gpu.Values, host.Values = append(gpu.Values, onGPU.off[:]), append(host.Values, onHost.off[:])
			whole[i] = min(whole[i], [2]float64{onGPU.warps, onGPU.blocks}[i])
			if b == versions.BarrierNone {
				together = min(together, onGPU.blocks)
			}
			t.Add(name, steps, onGPU.wrong, onGPU.partly, onGPU.warps, onGPU.blocks, onHost.wrong)
		}
		maps = append(maps, gpu, host)
	}
	p.Table(t)
	p.Figure("wrong", "One run of each kernel and number of transformations: how far the results of each warp are from the right ones. Warps 0 and 1 are block 0, warps 2 and 3 are block 1.", maps...)
	if !math.IsNaN(whole[0] + whole[1]) {
		p.Text("On the GPU, whatever the number of transformations, %s of the warps were whole without a barrier, and %s of the blocks with one for each block.", atLeast(whole[0]), atLeast(whole[1]))
		if together == 100 {
			p.Text("Without a barrier, too, both warps of a block came out alike: they start together, and nothing drove them apart in these runs. Nothing kept them together either.")
		}
	}
	p.Text(`A warp's threads go together, so without a barrier whole warps run ahead or stay behind, read values of another step, and are wrong in the same way: errors come in runs of 32. With a
		barrier for each block, whole blocks do: runs of 64. And every error goes into all that comes after it. Such a kernel may also come out right, on another
		GPU or another day, which makes it dangerous. The race checker of compute-sanitizer looks at shared memory only, and sees nothing here: such an error is found by a comparison with a plain
		reference, and with weights that let no error fade. Weights of 1/128 hide it: after the first half steps all elements are equal, and an old one is as good as a new one. So in all
		that is timed below the weights are Hadamard matrices with their rows or columns in random order and with random signs: every element goes into all others, no error fades, and a right result is
		right to the last bit.`)
}

// atLeast puts a lower bound into words.
func atLeast(percent float64) string {
	if percent == 100 {
		return "all"
	}
	return "at least " + figure.Number(percent) + " %"
}

func barriers(p *lab) {
	p.Heading("A counter in global memory")
	p.Text(`The end of a launch is a barrier that always works: one launch for each half step. To stay in one launch, blocks can count themselves in global
		memory. One thread of each block adds one and waits until all have; before it the block's own barrier collects its threads, after it that
		barrier lets them go.`)
	p.Source("versions/barriers.cuh", "barrier")
	p.Text("The one by release and acquire is the op's own:")
	p.Source("grid_barrier.cuh", "grid_barrier")
	p.Text(`Three things must be right. The results of a block must be visible before it is counted, and those of others must be read afresh after the wait: fences, or
		release and acquire. The waiting loop must read memory each time: from a plain variable the compiler reads once and spins on a register for ever;
		` + "`volatile`" + ` or PTX keeps it from that. And the counter must be safe to use again. One counter that wraps to 0 with the last block, while all wait for the 0, is in
		many a text and can hang: a fast block comes to the next barrier and makes it 1 before a slow one has seen the 0. Two of them by turns are safe, since nobody comes to the barrier after the
		next before all have left this one: that is ` + "`WRAP`" + `. A counter that only grows, or one that flips a bit, does without the second.
		Scratch memory holds anything before a plan runs, so a small first launch sets the counters to 0.`)
}

func coResident(p *lab) {
	p.Heading("All blocks must be there")
	p.Text(`A block that waits does not leave its multiprocessor. If a grid has more blocks than fit on the device at once, the blocks that are there wait for
		blocks that can never start. The plan of such a kernel records that its blocks wait for one another, and the backend asks the driver how many fit before
		it launches:`)
	if gpu := p.GPU(); gpu != nil {
		by := versions.IterateBy{Barrier: versions.BarrierAcquire, Blocks: 32*gpu.SMs + 1, Threads: 64}
		err := bench.Run(gpu.Ordinal, plan(gpu.Device, n, steps, by), inputs(), make([]byte, 4*n))
		if err == nil {
			notebook.Fail("%d blocks that wait for one another were launched, want an error", by.Blocks)
		}
		p.GoSource(err.Error())
	} else {
		p.GoSource("f.MaxActiveBlocks(threads, shared) * multiprocessors >= blocks, or an error that says how many blocks can be there")
	}
	p.Text(`That is not enough where several streams are at work. Two such grids can each have half of their blocks on the device and wait for the other half, for ever. A
		cooperative launch starts all blocks of a grid together or none, whatever else runs. What ` + "`ops.Iterate`" + ` chooses by itself is such a launch, or one cluster of blocks, which start together as well, or a launch for each half
		step; its versions 3 to 5 are ordinary launches, for a device that nobody else uses. ` + "`grid.sync()`" + ` of CUDA's
		cooperative groups is a barrier for such launches: block 0 adds 2^31 less the number of the others, they add 1 each, so the last one flips the top bit that
		all wait for, and the other bits are 0 again. That algorithm is ` + "`FLIP`" + ` above, written out here, so that it can be read; what runs
		below as grid.sync's algorithm is this.`)
}

func prices(p *lab) {
	p.Heading("What each costs")
	base := p.time(n, on(versions.BarrierLaunches, 2, 64))
	t := figure.Table{
		Caption: fmt.Sprintf("%d transformations of 128 values, 2 blocks of 64 threads (the last two of the GPU choose their own): the mean of 10 runs and their standard deviation.", steps),
		Header:  []string{"method", "time", "spread", "µs a half step", "gain, %"},
	}
	gains := map[versions.Barrier]float64{}
	for _, m := range methods {
		time := p.time(n, on(m.barrier, 2, 64))
		gains[m.barrier] = gain(base, time)
		t.Add(m.name, time.mean, time.spread, time.half(), percent(gains[m.barrier]))
	}
	t.Add("this CPU, host body", p.Time("host", func() { runOn(nil, steps, versions.IterateBy{}, inputs()) }))
	p.Table(t)
	p.Text("Gain is how much faster than a launch per half step.")
	if d := gains[versions.BarrierAcquire] - gains[versions.BarrierVolatile]; !math.IsNaN(d) {
		p.Text("Between the volatile loop and the PTX loop lie %s points of gain.", figure.Number(math.Abs(d)))
	}
	p.Text("`grid.sync()` of `cooperative_groups.h` itself is not in the table: the images are built without that header, which makes each of them larger. Measured once on an H200, 2026-11-21, " +
		"128 values on 132 blocks with a thread for each row, it took 5.93 µs a half step, and its algorithm written out 4.75.")
}

func sweeps(p *lab) {
	p.Heading("Over blocks and threads")
	blocks, threads := p.upTo(1, 2, 4, 8, 16, 32, 64), []int{32, 64, 128, 256, 512, 1024}
	same, alone := p.upTo(1, 2, 4, 8, 12, 16, 24, 32, 64), []int{1, 4, 16, 64, p.sms, 2 * p.sms, 4 * p.sms, 8 * p.sms}
	if p.sms == 0 {
		alone = alone[:4]
	}
	if p.Tiny() {
		blocks, threads, same, alone = []int{1, 2}, threads[:2], []int{1, 2}, []int{1, 4, 16}
	}
	p.Text(`Now as many values as threads, up to %d: on larger grids the threads beyond only wait. The more values, the longer a half step takes beside the barrier, and the less a
		better barrier gains.`, most)
	planes := p.planes(blocks, threads, []versions.Barrier{versions.BarrierAcquire, versions.BarrierGrid, versions.BarrierGraph, versions.BarrierVolatile})
	apart, row, column := planes[0].minus(planes[3])
	grid := func(title, label string, values plane) figure.HeatMap {
		return figure.HeatMap{Title: title, XLabel: "threads per block", YLabel: "blocks", Label: label, Gain: true, Columns: labels(threads), Rows: labels(blocks), Values: values}
	}
	p.Figure("planes", fmt.Sprintf(`How much faster than a launch per half step, in percent, are one launch with the acquire barrier, one with grid.sync's algorithm, and a CUDA graph of the
		launches; and how many points of gain the acquire barrier is ahead of the volatile one. As many values as threads, but %d at most: then the grid has more threads than values.`, most),
		grid("One launch, release and acquire", "gain, %", planes[0]), grid("Cooperative launch, grid.sync's algorithm", "gain, %", planes[1]),
		grid("A CUDA graph of the launches", "gain, %", planes[2]), grid("Acquire ahead of volatile", "points of gain", apart))
	if d := apart[row][column]; !math.IsNaN(d) {
		ahead := "ahead"
		if d < 0 {
			ahead = "behind"
		}
		p.Text("The volatile loop and the PTX loop are furthest apart at %d x %d, blocks x threads: PTX is %s points of gain %s there. The standard deviation of 10 runs was at most %s %% of their mean, here and above.",
			blocks[row], threads[column], figure.Number(math.Abs(d)), ahead, figure.Number(p.worst()))
	}
	all := p.sweep(most, same, func(blocks int) int { return (most + blocks - 1) / blocks })
	p.Figure("blocks", fmt.Sprintf("%d values on as many threads in all, rounded up to whole blocks, in one block to %d. Means of 10 runs and their standard deviations.", most, same[len(same)-1]),
		figure.Chart{Title: fmt.Sprintf("%d threads in all", most), XLabel: "blocks", YLabel: "µs a half step", LogX: true, Series: all})
	p.Text(`Last, the barrier nearly alone: 128 values on blocks of 128 threads, so that all blocks but the first only wait. A launch costs the same however many
		blocks it has; a barrier in memory costs more once many hundreds count in one place.`)
	all = p.sweep(n, alone, func(int) int { return 128 })
	caption := "128 values on one block and more, 128 threads each. Means of 10 runs and their standard deviations."
	if p.sms > 0 && !p.Tiny() {
		caption = fmt.Sprintf("128 values on one block to %d, eight for each of the %d multiprocessors, 128 threads each. Means of 10 runs and their standard deviations.", 8*p.sms, p.sms)
	}
	p.Figure("alone", caption, figure.Chart{Title: "128 values, blocks of 128 threads", XLabel: "blocks", YLabel: "µs a half step", LogX: true, Series: all})
}

func fast(p *lab) {
	p.Heading("Faster still")
	p.Text(`Whatever the barrier, most of a half step is now the half step itself: a thread's sum of n products, eight loads at a time. The version with
		the weights in registers is a cooperative launch in which each block keeps eight rows of both matrices from the first step to the last, as double. A half
		step is then one read of the vector, 8 to 32 multiplications a thread, a sum over the block in a fixed order, and the barrier.`)
	p.Text(`And the barrier need not go through global memory. Since compute capability 9 up to eight blocks can form a cluster: they are on the device
		together by nature and can write into each other's shared memory. Each block sends its results to all eight, and waits for nothing but the arrival of theirs:
		no counter, no memory further away than the next multiprocessor. Up to 256 values fit into the registers of one cluster:`)
	p.Source("iterate.cu", "cluster_half")
	t := figure.Table{
		Caption: "µs a half step, means of 10 runs, blocks of 128 threads in the first three. `ops.Iterate` chooses the cluster up to 256 values, registers up to 1024, and then a graph of launches with a block for some columns of the transposed weights.",
		Header:  []string{"values", "launches", "graph", "grid.sync's algorithm", "registers", "ops.Iterate"},
	}
	sizes := []int{128, 256, 512, 1024, 2048, 4096}
	if p.Tiny() {
		sizes = sizes[:2]
	}
	columns := []versions.Barrier{versions.BarrierLaunches, versions.BarrierGraph, versions.BarrierGrid, versions.BarrierHeld, versions.BarrierFastest}
	for _, size := range sizes {
		row := []string{fmt.Sprint(size)}
		for _, b := range columns {
			if b == versions.BarrierHeld && size > 1024 {
				row = append(row, "-")
				continue
			}
			row = append(row, figure.Number(p.time(size, versions.IterateBy{Barrier: b}).half()))
		}
		t.Rows = append(t.Rows, row)
	}
	p.Table(t)
}

func gradients(p *lab) {
	p.Heading("And backwards")
	p.Text("The iteration is an op, `ops.Iterate(w1, w2, x, steps)`, with derivatives by both matrices and by x. The derivative by x is the iteration with the matrices transposed and in " +
		"the other order. Those by the matrices are products of the vectors at each step, forwards and backwards, which the backward pass computes again rather than keeps.")
	const size, few = 9, 4
	in := notebook.Must(gradcheck.Random(1, tensor.Float32, tensor.Shape{size, size}, tensor.Shape{size, size}, tensor.Shape{size}))
	for i := range in[:2] { // rows of weights that keep the numbers near one
		w := in[i].Data().([]float32)
		for k := range w {
			w[k] /= 3
		}
	}
	for v := range versions.Version(len(methods) + 1) {
		build := func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return v.Iterate(in[0], in[1], in[2], few) }
		if err := gradcheck.Check(build, in); err != nil {
			notebook.Fail("version %d: %w", v, err)
		}
	}
	p.Text("Held against central differences in float64, all versions' derivatives of %d steps on %d values are right, symbolic and dual.", few, size)
}

func learnt(p *lab) {
	p.Heading("What we learnt")
	p.Text(`The end of a launch is a barrier for the whole grid, and the only one that needs no care. Recorded as a graph it costs about what a barrier in global memory does,
		on any number of blocks. A barrier inside of a launch asks for fences, for a counter that survives its own use, for blocks that are all on the device, and for a
		cooperative launch where others use the device too.`)
	base := p.time(n, on(versions.BarrierLaunches, 2, 64))
	best := p.time(n, on(versions.BarrierCluster, 0, 0))
	if factor := base.half() / best.half(); !math.IsNaN(factor) {
		p.Text(`In return the kernel goes on, with all that it has in registers and shared memory. That, and not the price of the wait, is where the factor of %s lies between
			the first version and the last.`, figure.Number(factor))
	}
}

func percent(x float64) string {
	if math.IsNaN(x) {
		return "-"
	}
	return fmt.Sprintf("%.0f", x)
}
