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
func matrix(p *notebook.Page) error {
	side, of := p.Size(20000, 5000, 700), float64(p.Timed(20000, 700))
	p.Heading("Two dimensions")
	p.Text(`A grid and its blocks may have two dimensions, as a matrix has. To add up a matrix of %d x %d float32, blocks of 16 x 16 threads on a grid
		of 64 x 64 blocks stride over both axes: rows by the grid's height, columns by its width. The 256 sums of a block go through the same
		tree, and each block leaves one partial sum in an array of 64 x 64.`, side, side)
	if err := p.Sources("versions/sum.cu", "thread_sum2d", "sum_blocks2d"); err != nil {
		return err
	}
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
	want := 0.0
	for _, v := range x {
		want += float64(v)
	}
	t := figure.Table{Caption: fmt.Sprintf("Sums over a matrix of %v x %v", of, of), Header: []string{"sum over", "time", "spread", "rate"}}
	if err := hostMatrix(p, &t, x, side, want); err != nil {
		return err
	}
	means, err := deviceMatrix(p, &t, x, side, of, want)
	if err != nil {
		return err
	}
	p.Table(t)
	if float64(side) != of {
		p.Text("The CPU's rows are of the %d x %d numbers that were added up here, the GPU's recorded ones of %v x %v.", side, side, of, of)
	}
	p.Text("The two-dimensional blocks take %s times as long as the op: a grid that looks like the data is not yet one that reads it well.",
		figure.Number(means[0]/means[1]))
	return nil
}

// hostMatrix adds up a matrix on the CPU and returns a row of the table for each way.
func hostMatrix(p *notebook.Page, t *figure.Table, x []float32, side int, want float64) error {
	all := reduce.Sum(kernels.HostDevice(), kernels.Float32, []int{side, side}, []int{0, 1}, false)
	for _, way := range []struct {
		name string
		sum  func() (float64, error)
	}{
		{"one core, a Go loop", func() (sum float64, err error) {
			for y := range side {
				for _, v := range x[y*side:][:side] {
					sum += float64(v)
				}
			}
			return sum, nil
		}},
		{fmt.Sprintf("%d cores, the Go body", runtime.GOMAXPROCS(0)), func() (float64, error) {
			var out [1]float32
			err := all.Run([][]byte{kernels.Bytes(x)}, kernels.Bytes(out[:]), nil)
			return float64(out[0]), err
		}},
	} {
		name := fmt.Sprintf("all, CPU: %s, %d x %d", way.name, side, side)
		var sum float64
		ms, err := p.Time(name, func() (err error) {
			sum, err = way.sum()
			return err
		})
		if err != nil {
			return err
		}
		if err := agrees(name, sum, want, 0x1p-24); err != nil {
			return err
		}
		t.Rows = append(t.Rows, []string{name, notebook.Micros(1000 * ms.Value).String(), "",
			notebook.Measured{Value: 4 * float64(side) * float64(side) / ms.Value / 1e6, Unit: "GB/s"}.String()})
	}
	return nil
}

// deviceMatrix adds up a matrix on the GPU and returns a row of the table for each way, and the
// times in microseconds.
func deviceMatrix(p *notebook.Page, t *figure.Table, x []float32, side int, of, want float64) (means []float64, err error) {
	shape, inputs := []int{side, side}, [][]byte{kernels.Bytes(x)}
	blocks, err := versions.SumPartials(kernels.Float32, 9, shape)
	if err != nil {
		return nil, err
	}
	for _, way := range []struct {
		name string
		plan *kernels.Plan
	}{
		{"all, 16 x 16 blocks on a 64 x 64 grid, added on the host", blocks},
		{"all, the op", reduce.Sum(p.Target(), kernels.Float32, shape, []int{0, 1}, false)},
		{"rows, the op", reduce.Sum(p.Target(), kernels.Float32, shape, []int{1}, false)},
		{"columns, the op", reduce.Sum(p.Target(), kernels.Float32, shape, []int{0}, false)},
	} {
		ran, err := p.Run(fmt.Sprintf("matrix, %s", way.name), way.plan, inputs, runs)
		if err != nil {
			return nil, err
		}
		got, rounded := 0.0, 1.0
		if way.plan == blocks {
			rounded = 0
			for _, v := range kernels.Elements[float64](ran.Out) {
				got += v
			}
		} else {
			for _, v := range kernels.Elements[float32](ran.Out) {
				got += float64(v)
			}
		}
		if d := got - want; !(max(d, -d) <= rounded*0x1p-24*want) {
			return nil, fmt.Errorf("%s: the elements add up to %v, want %v", way.name, got, want)
		}
		means = append(means, ran.Mean.Value)
		t.Rows = append(t.Rows, []string{way.name, notebook.Micros(ran.Mean.Value).String(), ran.Spread.String(),
			notebook.Measured{Value: 4 * of * of / ran.Mean.Value / 1e3, Unit: "GB/s"}.String()})
	}
	return means, nil
}
