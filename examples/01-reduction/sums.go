package main

import (
	"fmt"
	"math"
	"runtime"

	"github.com/stheno-ml/stheno/cudaops/bench"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reduce"
	"github.com/stheno-ml/stheno/kernels/versions"
)

// runs is how often everything is timed on a GPU.
const runs = 21

// sums is the section on one long sum.
func sums(p *notebook.Page) {
	n, of := p.Size(1e9, 5e7, 1e6), float64(p.Timed(1e9, 1e6))
	p.Heading("The task")
	p.Text(`A reduction makes one number of many: a sum, a largest value, a norm. It is the smallest task for which the threads of a GPU have to work
		together. Here: the numbers 0, 1, ..., n - 1, divided by their sum, as float32, n = %d. Their sum is 1, but for the rounding of each to float32.
		Four bytes are read for one addition, so the best that any kernel can do is to read at the speed of the memory.`, n)
	x := shares(n)
	exact := total(x, func(v float64) float64 { return v })
	p.Text(`The largest of the numbers is %.2g: a kernel that loses one is wrong by that at most. So all results below are held against the sum of
		the rounded numbers in double precision, %.12f, and must agree with it to 12 digits, or, where a result is float32, to the last bit of that.`, float64(x[n-1]), exact)
	copied := p.Measure("device copy", "GB/s", func() float64 { return notebook.Must(bench.CopyBandwidth(p.GPU().Ordinal)) })
	if p.GPU() == nil {
		p.Text("Without a GPU the host adds up these %d, while the GPU's recorded times are for n = %.0f.", n, of)
	}
	p.Text(`That speed, measured by a copy within the GPU's memory, bytes read and bytes written counted: %v. Reading alone can be a little
		faster than that.`, copied)

	rows := hostSums(p, x)
	blocks := blockSums(p, x)
	fast := opSum(p, x, exact)
	made := generated(p, x, fast)
	for _, r := range append(blocks, fast, made) {
		r.us, r.bytes = r.mean.Value, 4*of
		rows = append(rows, r)
	}
	compareSums(p, rows, exact, copied)
	p.Text(`Thread 0's loop costs %s %% more time than the op, no more. A multiprocessor holds several blocks, and while one of them adds up what its
		threads have read, another one reads: it matters only that the memory is never without work, and each
		block here has %s numbers for each of its threads to read before it adds. A kernel may be naive where that does not show.`,
		figure.Number(100*(blocks[0].mean.Value/fast.mean.Value-1)), figure.Number(of/(32*80*1024)))
}

// hostSums adds up on the CPU.
func hostSums(p *notebook.Page, x []float32) (rows []row) {
	p.Heading("What a CPU does")
	p.Text(`One core in a loop, and all cores, which is the Go body of our kernel.`)
	plan := reduce.Sum(kernels.HostDevice(), kernels.Float32, []int{len(x)}, []int{0}, false)
	for _, way := range []struct {
		name   string
		sum    func() float64
		within float64
	}{
		{"CPU: one core, a Go loop", func() float64 { return loop(x) }, 16 * 0x1p-53 * math.Sqrt(float64(len(x)))}, // a rounding error for each, up or down
		{fmt.Sprintf("CPU: %d cores, the Go body", runtime.GOMAXPROCS(0)), func() float64 { return notebook.AddUp(notebook.OnHost(plan, kernels.Bytes(x))) }, single},
	} {
		sum, ms := notebook.Timed(p, way.name, way.sum)
		rows = append(rows, row{name: way.name, us: 1000 * ms.Value, bytes: 4 * float64(len(x)), sum: sum, within: way.within})
	}
	p.Text("They take %v and %v.", notebook.Micros(rows[0].us), notebook.Micros(rows[1].us))
	return rows
}

// loop is the sum of x by one core.
func loop(x []float32) (sum float64) {
	for _, v := range x {
		sum += float64(v)
	}
	return sum
}

// blockSums adds up by blocks that share their threads' sums in three ways.
func blockSums(p *notebook.Page, x []float32) []row {
	p.Heading("Thread 0 adds up")
	p.Text(`32 x 80 blocks of 1024 threads go through the numbers in a loop whose stride is the whole grid: in each turn neighbouring threads
		read neighbouring numbers, which the memory serves together. After it each thread has a sum. To add up the 1024 sums of a block, every
		thread puts its own into shared memory, which all threads of a block see; after a barrier thread 0 goes over them. Each block leaves one
		partial sum, 2560 in all, which come back to the host and are added there.`)
	p.Source("versions/sum.cu", "thread_sum")
	p.Source("versions/blocksum.cuh", "naive_sum")
	naive := partials(p, 6, "thread 0 adds", x)
	p.Text("It takes %v, plus or minus %v over %v runs, the copy to the host not counted. In each block 1023 threads wait while one of them adds.", naive.mean, naive.spread, naive.runs)

	p.Heading("A tree")
	p.Text(`The lower half of the threads can add the values of the upper half to their own, all at once, then the lower quarter those of the second
		quarter, and so on: 10 steps for 1024 values. After each step all threads must have finished before the next one reads what they
		wrote, hence a barrier in the loop. It stands outside of the ` + "`if`" + `: a barrier waits for all threads of the block, and inside
		it would wait for those that never come. The block would hang.`)
	p.Source("versions/blocksum.cuh", "tree_sum")
	tree := partials(p, 7, "tree in shared memory", x)
	p.Text("It takes %v, plus or minus %v: %s times as fast.", tree.mean, tree.spread, ratio(naive, tree))

	p.Heading("Shuffles")
	p.Text(`The 32 threads of a warp run together and can read each other's registers: five shuffles add up a warp, with neither shared memory nor a
		barrier. The 32 sums of the warps go through shared memory once, and the first warp adds them likewise. One barrier is left of eleven.`)
	p.Source("reduce.cuh", "warp_sum", "block_sum")
	shuffle := partials(p, 8, "shuffles", x)
	p.Text("It takes %v, plus or minus %v: %s times as fast as the tree.", shuffle.mean, shuffle.spread, ratio(tree, shuffle))
	return []row{naive, tree, shuffle}
}

// opSum adds up by the op.
func opSum(p *notebook.Page, x []float32, exact float64) (fast row) {
	p.Heading("The op")
	p.Text(`What is left is the loop before the reduction. The op's kernel loads 16 bytes at a time, and each thread has four such loads under way before it
		adds any of them, so that the memory has always something to do; its grid follows from the device and from n. Chunks
		leave partial sums in double precision, and a second launch adds them in order: the result stays on the device, where the next op of a graph
		finds it, and has the same bits in every run.`)
	p.Source("reduce.cuh", "reduce_rows")
	op := p.Run("sum, version 0", p.Sum(0, len(x)), [][]byte{kernels.Bytes(x)}, runs)
	fast = row{name: "0: the op", mean: op.Mean, spread: op.Spread, sum: notebook.AddUp(op.Out), within: single}
	p.Text("It takes %v, plus or minus %v.", fast.mean, fast.spread)
	endToEnd(p, x, exact)
	return fast
}

// A row is one way to add up.
type row struct {
	name         string
	mean, spread notebook.Measured // on a GPU
	runs         notebook.Measured
	us, bytes    float64
	sum, within  float64 // within is the relative error that its arithmetic allows
}

// The errors of sums: one in double precision with some thousands of roundings in a row, and one
// that is rounded to float32 at the end.
const (
	double = 0x1p-40
	single = 0x1p-24 + double
)

// agrees reports whether a result is within a relative error of the right one.
func agrees(name string, got, want, within float64) error {
	if !(math.Abs(got-want) <= within*want) {
		return fmt.Errorf("%s: got %v, want %v within %v of it", name, got, want, within)
	}
	return nil
}

func (r row) rate() float64 { return r.bytes / r.us / 1e3 } // GB/s

func ratio(slow, fast row) string { return figure.Number(slow.mean.Value / fast.mean.Value) }

// partials runs the first step of a version and adds up on the host what the blocks
// leave.
func partials(p *notebook.Page, version int, name string, x []float32) row {
	plan := notebook.Must(versions.SumPartials(kernels.Float32, version, []int{len(x)}))
	ran := p.Run(fmt.Sprintf("sum, version %d", version), plan, [][]byte{kernels.Bytes(x)}, runs)
	return row{name: fmt.Sprintf("%d: %s", version, name), mean: ran.Mean, spread: ran.Spread, runs: ran.Runs, sum: notebook.AddUp(ran.Out), within: double}
}

// endToEnd measures how long it takes until the host has the sum.
func endToEnd(p *notebook.Page, x []float32, exact float64) {
	blocks := notebook.Must(versions.SumPartials(kernels.Float32, 8, []int{len(x)}))
	measure := func(way string, plan *kernels.Plan, within float64) notebook.Measured {
		return p.EndToEnd("sum, end to end, "+way, plan, [][]byte{kernels.Bytes(x)}, runs, func(out []byte) {
			notebook.Check(agrees(way+", end to end", notebook.AddUp(out), exact, within))
		})
	}
	partial, op := measure("partial sums", blocks, double), measure("the op", p.Sum(0, len(x)), single)
	p.Text(`These are times of kernels, by the device's clock. By the host's clock, from the launch until the host has the sum, the numbers being on the device: %v with shuffles, the
		%d partial sums copied back and added here; %v by the op, its one result copied back. In a graph there is no such choice: an op's
		result stays on the device. So as ops, such as `+"`versions.Version(8).Sum(x)`"+`, these versions have a second launch, the op's own kernel over the partial sums.`,
		partial, blocks.Out/8, op)
}

func compareSums(p *notebook.Page, rows []row, exact float64, copied notebook.Measured) {
	p.Heading("What we learnt about one long sum")
	t := figure.Table{Caption: "One sum", Header: []string{"way", "time", "spread", "rate", "of a copy", "sum"}}
	bars := figure.Bars{Title: "Rate of one long sum", Label: "GB/s", Log: true, Series: []figure.BarSeries{{Colour: figure.Blue}}}
	for _, r := range rows {
		notebook.Check(agrees(r.name, r.sum, exact, r.within))
		onGPU, spread, ofCopy := r.spread.Unit != "", "", ""
		if onGPU {
			spread, ofCopy = r.spread.String(), notebook.In(100*r.rate()/copied.Value, "%").String()
		}
		t.Add(r.name, notebook.Micros(r.us), spread, notebook.In(r.rate(), "GB/s"), ofCopy, fmt.Sprintf("%.12f", r.sum))
		if s := &bars.Series[0]; onGPU || p.GPU() != nil { // of one machine
			bars.Add(r.name, r.rate())
			s.Spread = append(s.Spread, r.rate()*r.spread.Value/r.us)
		}
	}
	p.Table(t)
	caption := "Bytes read in a second; further right is better. Ranges are standard deviations."
	if p.GPU() == nil {
		p.Text("The CPU's rates were measured here, on fewer numbers, so the figure has those of the GPU named above alone.")
	}
	p.Figure("sums", caption, bars)
}

// shares returns 0, 1, ..., n-1 divided by their sum.
func shares(n int) []float32 {
	x := make([]float32, n)
	all := float64(n) * float64(n-1) / 2
	kernels.Parallel(int64(n), 1, func(lo, hi int64) {
		for i := lo; i < hi; i++ {
			x[i] = float32(float64(i) / all)
		}
	})
	return x
}

// total is the sum of f over x in double precision. Blocks are added up one by one
// and then their sums likewise, so that few roundings follow one another: it is
// right to 13 digits.
func total[T kernels.Float](x []T, f func(float64) float64) (sum float64) {
	const block = 1 << 9
	if len(x) <= block {
		for _, v := range x {
			sum += f(float64(v))
		}
		return sum
	}
	sums := make([]float64, (len(x)+block-1)/block)
	kernels.Parallel(int64(len(sums)), 1, func(lo, hi int64) {
		for i := lo; i < hi; i++ {
			sums[i] = total(x[i*block:min((i+1)*block, int64(len(x)))], f)
		}
	})
	return total(sums, func(v float64) float64 { return v })
}
