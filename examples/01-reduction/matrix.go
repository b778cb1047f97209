package main

import (
	"fmt"
	"runtime"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reduce"
	"github.com/stheno-ml/stheno/kernels/versions"
)

// matrix is the section on sums over two axes.
func matrix(p *notebook.Page) {
	side, of := p.Size(20000, 5000, 700), float64(p.Timed(20000, 700))
	p.Heading("Two dimensions")
	p.Text(`A grid and its blocks may have two dimensions, as a matrix has. To add up a matrix of %d x %d float32, blocks of 16 x 16 threads on a grid
		of 64 x 64 blocks stride over both axes: rows by the grid's height, columns by its width. The 256 sums of a block go through the same
		tree, and each block leaves one partial sum in an array of 64 x 64.`, side, side)
	p.Source("versions/sum.cu", "thread_sum2d", "sum_blocks2d")
	p.Text(`A slip that is easily made here is to step the rows by the grid's x width and the columns by its y width. On a square grid of square blocks, as this one is, the two are
		equal and the sum is right; on 64 x 32 blocks rows would be left out and columns counted twice. So the kernel is to be tried on grids that are not
		square: our tests do, and show the slip on one.`)
	p.Text(`A row of such a block is 16 numbers, 64 bytes, so that a warp reads from two rows of the matrix. But a matrix that lies in memory without gaps
		is as well one long vector, and to the op, which first joins the axes that are treated alike, it is. Sums over one axis are what two dimensions are
		for: over rows, a block or more for each; over columns, threads side by side, each going down.`)

	// Values of few bits, so that the sum is exact whatever the order.
	x := make([]float32, side*side)
	value := func(i int64) float32 { return float32(uint32(i)*2654435761>>22) / 1024 }
	kernels.Parallel(int64(len(x)), 1, func(lo, hi int64) {
		for i := lo; i < hi; i++ {
			x[i] = value(i)
		}
	})
	want := loop(x)
	t := figure.Table{Caption: fmt.Sprintf("Sums over a matrix of %v x %v", of, of), Header: []string{"sum over", "time", "spread", "rate"}}
	hostMatrix(p, &t, x, side, want)
	means := deviceMatrix(p, &t, x, side, of, want)
	p.Table(t)
	if float64(side) != of {
		p.Text("The CPU's rows are of the %d x %d numbers that were added up here, the GPU's recorded ones of %v x %v.", side, side, of, of)
	}
	p.Text("The two-dimensional blocks take %s times as long as the op: a grid that looks like the data is not yet one that reads it well.",
		figure.Number(means[0]/means[1]))
}

// hostMatrix adds up a matrix on the CPU, with a row of the table for each way.
func hostMatrix(p *notebook.Page, t *figure.Table, x []float32, side int, want float64) {
	all := reduce.Sum(kernels.HostDevice(), kernels.Float32, []int{side, side}, []int{0, 1}, false)
	for _, way := range []struct {
		name string
		sum  func() float64
	}{
		{"one core, a Go loop", func() float64 { return loop(x) }},
		{fmt.Sprintf("%d cores, the Go body", runtime.GOMAXPROCS(0)), func() float64 { return notebook.AddUp(notebook.OnHost(all, kernels.Bytes(x))) }},
	} {
		name := fmt.Sprintf("all, CPU: %s, %d x %d", way.name, side, side)
		sum, ms := notebook.Timed(p, name, way.sum)
		notebook.Check(agrees(name, sum, want, 0x1p-24))
		t.Add(name, notebook.Micros(1000*ms.Value), "", notebook.In(4*float64(side)*float64(side)/ms.Value/1e6, "GB/s"))
	}
}

// deviceMatrix adds up a matrix on the GPU, with a row of the table for each way. It returns the times
// in microseconds.
func deviceMatrix(p *notebook.Page, t *figure.Table, x []float32, side int, of, want float64) (means []float64) {
	shape, inputs := []int{side, side}, [][]byte{kernels.Bytes(x)}
	blocks := notebook.Must(versions.SumPartials(kernels.Float32, 9, shape))
	for _, way := range []struct {
		name string
		plan *kernels.Plan
	}{
		{"all, 16 x 16 blocks on a 64 x 64 grid, added on the host", blocks},
		{"all, the op", p.Sum(0, shape...)},
		{"rows, the op", reduce.Sum(p.Target(), kernels.Float32, shape, []int{1}, false)},
		{"columns, the op", reduce.Sum(p.Target(), kernels.Float32, shape, []int{0}, false)},
	} {
		ran := p.Run(fmt.Sprintf("matrix, %s", way.name), way.plan, inputs, runs)
		if way.plan == blocks {
			notebook.Check(agrees(way.name, notebook.AddUp(ran.Out), want, 0))
		} else {
			notebook.Check(agrees(way.name, loop(kernels.Elements[float32](ran.Out)), want, 0x1p-24))
		}
		means = append(means, ran.Mean.Value)
		t.Add(way.name, notebook.Micros(ran.Mean.Value), ran.Spread, notebook.In(4*of*of/ran.Mean.Value/1e3, "GB/s"))
	}
	return means
}
