// Grid-barrier lets all blocks of a grid wait for one another, in every way that
// a GPU has, and measures what each costs.
//
//	go run ./examples/03-grid-barrier
//	go run ./examples/03-grid-barrier -html grid-barrier.html
//
// It reads like a notebook: this file tells the story, measure.go runs and times,
// figures.go draws. Without a GPU it runs the kernels' host bodies and shows the
// GPU's recorded figures.
package main

import (
	_ "embed"
	"fmt"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/gradcheck"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

//go:embed recorded.json
var recorded []byte

const title = "A barrier for the whole grid"

func main() { notebook.Main(title, recorded, run) }

// steps is how often X goes to P and back.
const steps = 100

func run(p *notebook.Page) error {
	times := map[kernels.Barrier]notebook.Measured{} // of 128 values
	for _, section := range []func(*notebook.Page) error{
		question, wrong, barriers, resident,
		func(p *notebook.Page) error { return prices(p, times) },
		sweeps, fast, gradients,
		func(p *notebook.Page) error { return learnt(p, times) },
	} {
		if err := section(p); err != nil {
			return err
		}
	}
	return nil
}

func question(p *notebook.Page) error {
	p.Heading("What we want to know")
	p.Text(`A vector X of 128 values becomes a vector P, each element of P a weighted mean of all of X; and P becomes X again in the same way, by
		other weights. After %d such transformations in a row we want X. Two blocks of 64 threads do it, a thread for each element. Every thread
		needs the results of all the others, those of the other block too, before it can go on: %d times the whole grid must wait for its last
		thread. `+"`__syncthreads()`"+` makes the threads of one block wait. What makes all blocks wait, and what does it cost?`, steps, 2*steps-1)
	p.Text("One half step is the same in all that follows. The matrices' transposes are used, so that neighbouring threads read neighbouring weights:")
	return p.Source("iterate.cu", "half_step")
}

func wrong(p *notebook.Page) error {
	p.Heading("Without a barrier, and with too small a one")
	p.Text("The whole iteration in one launch is a loop of half steps. What stands between two of them is a parameter:")
	if err := p.Source("iterate.cu", "whole"); err != nil {
		return err
	}
	p.Text(`With all weights 1/128, every element of the result is the mean of the X that we started with, so wrong elements are easily told. First no
		barrier at all, then ` + "`__syncthreads()`" + ` alone: both are wrong on purpose. On the host the bodies of these kernels let one warp (one block) after the other go
		through all steps: a schedule that CUDA allows, and the worst one.`)
	var rows [][]string
	var pictures [2]picture
	var once, always notebook.Measured // the shares of wrong elements without a barrier
	for i, b := range []kernels.Barrier{kernels.BarrierNone, kernels.BarrierBlock} {
		name := [...]string{"no barrier", "a barrier per block"}[i]
		by := kernels.IterateBy{Barrier: b, Blocks: 2, Threads: 64}
		pictures[i].name = name
		for k, steps := range []int{1, steps} {
			var onGPU stale
			var err error
			if p.GPU() != nil {
				if onGPU, err = observe(p.GPU(), steps, by, 20); err != nil {
					return err
				}
			}
			onHost, err := observe(nil, steps, by, 2)
			if err != nil {
				return err
			}
			key := func(what string) string { return fmt.Sprintf("wrong.%v.%d.%s", b, steps, what) }
			share, err := p.Measure(key("share"), "%", func() (float64, error) { return onGPU.wrong, nil })
			if err != nil {
				return err
			}
			together, err := p.Measure(key("together"), "%", func() (float64, error) { return onGPU.together, nil })
			if err != nil {
				return err
			}
			for w := range n / 32 {
				m, err := p.Measure(key(fmt.Sprint("warp", w)), "", func() (float64, error) { return onGPU.warps[w], nil })
				if err != nil {
					return err
				}
				pictures[i].gpu[k] = append(pictures[i].gpu[k], 100*(m.Value-1))
				pictures[i].host[k] = append(pictures[i].host[k], 100*(onHost.warps[w]-1))
			}
			if i == 0 && k == 0 {
				once = share
			} else if i == 0 {
				always = share
			}
			rows = append(rows, []string{name, fmt.Sprint(steps), notebook.Number(share.Value), notebook.Number(together.Value), notebook.Number(onHost.wrong)})
		}
	}
	p.Table(notebook.Table{
		Caption: "Wrong elements in 20 runs on the GPU, and warps whose 32 elements came out equal, as all of them should be.",
		Header:  []string{"kernel", "transformations", "wrong, %", "warps of one value, %", "wrong on the host, %"},
		Rows:    rows,
	})
	if err := p.Figure("wrong", "One run of each kernel: how far the results of each warp are from what is right. Warps 0 and 1 are block 0, warps 2 and 3 are block 1.", drawWrong(pictures)); err != nil {
		return err
	}
	if always.Known() {
		p.Text(`Without a barrier %v of the elements were wrong after one transformation, %v after %d: every error goes into all that comes after it.`, once, always, steps)
	}
	p.Text(`A warp's threads go together, so without a barrier whole warps run ahead or stay behind, read values of another step, and are wrong in the same way; with a
		barrier for each block, whole blocks do. Such a kernel may also come out right, on another GPU or another day, which is what makes it dangerous. The race checker of
		compute-sanitizer looks at shared memory only, and sees nothing here: what finds such an error is a comparison with a plain reference.`)
	return nil
}

func barriers(p *notebook.Page) error {
	p.Heading("A counter in global memory")
	p.Text(`The end of a launch is a barrier that always works: one launch for each half step. To stay in one launch, blocks can count themselves in global
		memory. One thread of each block adds one and waits until all have; before it the block's own barrier collects its threads, after it that
		barrier lets them go.`)
	if err := p.Source("iterate.cu", "grid_barrier"); err != nil {
		return err
	}
	p.Text(`Three things must be right. What a block wrote must be visible before it is counted, and what others wrote must be read afresh after the wait: fences, or
		release and acquire. The waiting loop must read memory each time: from a plain variable the compiler reads once and spins on a register for ever;
		` + "`volatile`" + ` or PTX keeps it from that. And the counter must be safe to use again. A counter that wraps to 0 with the last block, while all wait for the 0, is in
		many a text and can hang: a fast block comes to the next barrier and makes it 1 before a slow one has seen the 0. Ours only grows, or flips a bit.
		Scratch memory holds anything before a plan runs, so a small first launch sets the counter to 0.`)
	return nil
}

func resident(p *notebook.Page) error {
	p.Heading("All blocks must be there")
	p.Text(`A block that waits does not leave its multiprocessor. If a grid has more blocks than fit on the device at once, the blocks that are there wait for
		blocks that can never start. The plan of such a kernel says that its blocks wait for one another, and the backend asks the driver how many fit before
		it launches:`)
	if gpu := p.GPU(); gpu != nil {
		by := kernels.IterateBy{Barrier: kernels.BarrierAcquire, Blocks: 32*gpu.SMs + 1, Threads: 64}
		err := cudaops.RunPlan(gpu.Ordinal, plan(gpu.Device, n, steps, by), inputs(n), make([]byte, 4*n))
		if err == nil {
			return fmt.Errorf("%d blocks that wait for one another were launched, want an error", by.Blocks)
		}
		p.GoSource(err.Error())
	} else {
		p.GoSource("f.MaxActiveBlocks(threads, shared) * multiprocessors >= blocks, or an error that says how many blocks can be there")
	}
	p.Text(`That is not enough where several streams are at work. Two such grids can each have half of their blocks on the device and wait for the other half, for ever. A
		cooperative launch starts all blocks of a grid together or none, whatever else runs; ` + "`ops.Iterate`" + ` uses nothing else for its barriers. ` + "`grid.sync()`" + ` of CUDA's
		cooperative groups is a barrier for such launches: block 0 adds 2^31 less the number of the others, they add 1 each, so the last one flips the top bit that
		all wait for, and the other bits are 0 again. That is ` + "`FLIP`" + ` above, written out here, so that it can be read.`)
	return nil
}

func prices(p *notebook.Page, times map[kernels.Barrier]notebook.Measured) error {
	p.Heading("What each costs")
	rows := [][]string{}
	for _, m := range methods {
		by := kernels.IterateBy{Barrier: m.barrier, Blocks: 2, Threads: 64}
		t, err := timed(p, fmt.Sprintf("128.%v", m.barrier), n, by)
		if err != nil {
			return err
		}
		times[m.barrier] = t
		rows = append(rows, []string{m.name, t.String(), notebook.Number(t.Value / (2 * steps)), percent(gain(times[kernels.BarrierLaunches], t))})
	}
	host, err := p.Time("host", func() error { _, err := runOn(nil, steps, kernels.IterateBy{}, inputs(n)); return err })
	if err != nil {
		return err
	}
	rows = append(rows, []string{"this CPU, host body", host.String()})
	p.Table(notebook.Table{
		Caption: fmt.Sprintf("%d transformations of 128 values, 2 blocks of 64 threads (the last two of the GPU choose their own), the best of 10 runs.", steps),
		Header:  []string{"method", "time", "us a half step", "gain, %"},
		Rows:    rows,
	})
	v, a := times[kernels.BarrierVolatile], times[kernels.BarrierAcquire]
	if v.Known() && a.Known() {
		p.Text("Gain is how much faster than a launch per half step. Between the volatile loop and the PTX loop lie %s points of gain.",
			notebook.Number(abs(gain(times[kernels.BarrierLaunches], v)-gain(times[kernels.BarrierLaunches], a))))
	}
	return nil
}

func sweeps(p *notebook.Page) error {
	p.Heading("Over blocks and threads")
	blocks, threads := []int{1, 2, 4, 8, 16, 32}, []int{32, 64, 128, 256, 512, 1024}
	if p.Tiny() {
		blocks, threads = []int{1, 2}, []int{32, 64}
	}
	p.Text(`Now as many values as threads. The more values, the longer a half step takes beside the barrier, and the less a better barrier gains. Where blocks x threads are more
		than %d values the map is white: there the matrices take all the time.`, mostValues)
	gains := make([][]float64, len(blocks))
	for i, b := range blocks {
		for _, t := range threads {
			g, err := gainAt(p, b, t)
			if err != nil {
				return err
			}
			gains[i] = append(gains[i], g)
		}
	}
	if err := p.Figure("plane", "How much faster one launch with the acquire barrier is than a launch per half step, in percent.", drawPlane(blocks, threads, gains)); err != nil {
		return err
	}
	same, err := sweep(p, "1024", 1024, blocks, func(blocks int) int { return 1024 / blocks })
	if err != nil {
		return err
	}
	if err := p.Figure("blocks", "1024 values on 1024 threads in all, in one block to 32.", drawTimes("1024 threads in all", same)); err != nil {
		return err
	}
	p.Text(`Last, the barrier nearly alone: 128 values on blocks of 128 threads, so that all blocks but the first only wait. A launch costs the same however many
		blocks it has; a barrier in memory costs more once many hundreds count in one place.`)
	many := []int{1, 4, 16, 64, 132, 264, 528, 1056}
	if p.Tiny() {
		many = many[:3]
	}
	alone, err := sweep(p, "alone", n, many, func(int) int { return 128 })
	if err != nil {
		return err
	}
	return p.Figure("alone", "128 values and one block to eight for each of the 132 multiprocessors of an H200, 128 threads each.", drawTimes("128 values, blocks of 128 threads", alone))
}

func fast(p *notebook.Page) error {
	p.Heading("Faster still")
	p.Text(`Whatever the barrier, most of a half step is now the half step itself: a thread's sum of n products, eight loads at a time. The version with
		the weights in registers is a cooperative launch in which each block keeps eight rows of both matrices from the first step to the last, as double. A half
		step is then one read of the vector, n/32 multiplications a thread or fewer, a sum over the block in a fixed order, and the barrier.`)
	p.Text(`And the barrier need not go through global memory. Since compute capability 9 up to eight blocks can form a cluster: they are on the device
		together by nature and can write into each other's shared memory. Each block sends its results to all eight, and waits for nothing but the arrival of theirs:
		no counter, no memory further away than the next multiprocessor. Up to 256 values fit into the registers of one cluster:`)
	if err := p.Source("iterate.cu", "cluster_half"); err != nil {
		return err
	}
	var rows [][]string
	sizes := []int{128, 256, 512, 1024, 2048, 4096}
	if p.Tiny() {
		sizes = sizes[:2]
	}
	columns := []kernels.Barrier{kernels.BarrierLaunches, kernels.BarrierGraph, kernels.BarrierGrid, kernels.BarrierHeld, kernels.BarrierFastest}
	for _, size := range sizes {
		row := []string{fmt.Sprint(size)}
		for _, b := range columns {
			if b == kernels.BarrierHeld && size > 1024 {
				row = append(row, "-")
				continue
			}
			t, err := timed(p, fmt.Sprintf("size%d.%v", size, b), size, kernels.IterateBy{Barrier: b})
			if err != nil {
				return err
			}
			row = append(row, notebook.Number(t.Value/(2*steps)))
		}
		rows = append(rows, row)
	}
	p.Table(notebook.Table{
		Caption: "us a half step, blocks of 128 threads in the first three. What `ops.Iterate` chooses is the cluster up to 256 values, registers up to 1024, and then a graph of launches with a block per 32 columns.",
		Header:  []string{"values", "launches", "graph", "grid.sync", "registers", "ops.Iterate"},
		Rows:    rows,
	})
	return nil
}

func gradients(p *notebook.Page) error {
	p.Heading("And backwards")
	p.Text("The iteration is an op, `ops.Iterate(w1, w2, x, steps)`, with derivatives by both matrices and by x. The derivative by x is the iteration with the matrices transposed and in " +
		"the other order. Those by the matrices are products of what the iteration left at each step, forwards and backwards, made again in the backward pass rather than kept.")
	const size, few = 9, 4
	in, err := gradcheck.Random(1, tensor.Float32, tensor.Shape{size, size}, tensor.Shape{size, size}, tensor.Shape{size})
	if err != nil {
		return err
	}
	for i := range in[:2] { // rows of weights that keep the numbers near one
		w := in[i].Data().([]float32)
		for k := range w {
			w[k] /= 3
		}
	}
	for v := range ops.Version(len(methods) + 1) {
		err := gradcheck.Check(func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return v.Iterate(in[0], in[1], in[2], few) }, in)
		if err != nil {
			return fmt.Errorf("version %d: %w", v, err)
		}
	}
	p.Text("Held against central differences in float64, all versions' derivatives of %d steps on %d values are right, symbolic and dual.", few, size)
	return nil
}

func learnt(p *notebook.Page, times map[kernels.Barrier]notebook.Measured) error {
	p.Heading("What we learnt")
	p.Text(`The end of a launch is a barrier for the whole grid, and the only one that needs no care. Recorded as a graph it costs about what a barrier in global memory does,
		on any number of blocks. A barrier inside of a launch asks for fences, for a counter that survives its own use, for blocks that are all on the device, and for a
		cooperative launch where others use the device too.`)
	if base, best := times[kernels.BarrierLaunches], times[kernels.BarrierCluster]; base.Known() && best.Known() {
		p.Text(`What it gives in return is that the kernel goes on, with all that it has in registers and shared memory. That, and not the price of the wait, is where the factor of %s lies between
			the first version and the last.`, notebook.Number(base.Value/best.Value))
	}
	return nil
}
