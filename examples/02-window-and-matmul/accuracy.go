package main

import (
	"fmt"
	"image/color"
	"math"

	"github.com/stheno-ml/stheno/cudaops/bench"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
)

// accuracy measures the errors of the steps in the last bits of a float32.
func accuracy(p *notebook.Page) {
	const m, n = 64, 64
	p.Heading("The last bits")
	p.Text(`Versions 1 to 6 sum in float32, one FMA after the other, in order. Version 7 has 22 of 24 bits of each factor, and sums 16 products at a time. What comes
		out is held against sums in float64: the largest error of an element, relative to the sum of the absolute values of its products, in units of
		2^-23, for %d x %d elements which are sums of K products. Factors are random, from -1 to 1 or from 0 to 1; among the latter nothing cancels, so
		that all roundings count.`, m, n)
	ch := figure.Chart{Title: "Error of float32 products", XLabel: "K", YLabel: "units of 2^-23", Log: true, LogX: true}
	t := figure.Table{Caption: "Largest error in units of 2^-23 times the sum of absolute values", Header: []string{"version, factors", "K = 64", "K = 1024", "K = 16384"}}
	colours := []color.RGBA{figure.Amber, figure.Red, figure.Blue, figure.Green}
	most := p.Timed(1<<16, 1<<10)
	for i, version := range []int{5, 7} {
		for sign, factors := range []string{"-1 to 1", "0 to 1"} {
			s := figure.Series{Name: fmt.Sprintf("version %d, %s", version, factors), Colour: colours[2*i+sign]}
			row := []string{s.Name}
			for k := 16; k <= most; k *= 4 {
				e := p.Measure(fmt.Sprintf("error, version %d, factors %s, K %d", version, factors, k), "", func() float64 {
					a, b := random(m*k, 9, sign == 1), random(k*n, 10, sign == 1)
					return worst(p, version, m, n, k, a, b)
				})
				s.X, s.Y = append(s.X, float64(k)), append(s.Y, e.Value)
				if k == 64 || k == 1024 || k == 16384 {
					row = append(row, e.String())
				}
			}
			ch.Series = append(ch.Series, s)
			t.Rows = append(t.Rows, row)
		}
	}
	p.Table(t)
	p.Figure("accuracy", "The largest error of 64 x 64 sums of K products.", ch)
}

// random returns float32 numbers of all 24 bits, from -1 or 0 to 1.
func random(n int, seed uint64, positive bool) []float32 {
	x := make([]float32, n)
	state := seed
	for i := range x {
		state = state*6364136223846793005 + 1442695040888963407
		if x[i] = float32(int32(state>>32)) / (1 << 31); positive && x[i] < 0 {
			x[i] = -x[i]
		}
	}
	return x
}

// worst is the largest error of a version's product on the GPU.
func worst(p *notebook.Page, version, m, n, k int, a, b []float32) float64 {
	plan := notebook.Must(versions.MatMul(kernels.Float32, version, 1, int64(m), int64(n), int64(k), false, false))
	out := make([]float32, m*n)
	notebook.Check(bench.Run(p.GPU().Ordinal, plan, [][]byte{kernels.Bytes(a), kernels.Bytes(b)}, kernels.Bytes(out)))
	most := 0x1p-30 // an error of zero has no logarithm
	for i := range m {
		for j := range n {
			sum, abs := sums(k, func(l int) float64 { return float64(a[i*k+l]) * float64(b[l*n+j]) })
			most = max(most, math.Abs(float64(out[i*n+j])-sum)/abs/0x1p-23)
		}
	}
	return most
}

// learnt is the section at the end.
func learnt(p *notebook.Page) {
	p.Heading("What we learnt")
	p.Text(`A copy over the bus costs many kernels, so data stays on the device. The caches already share what neighbours read, so shared memory by hand is
		no gain for a window; it pays where the caches cannot follow, as in the product of matrices. There each step takes away one thing that
		the arithmetic waits for: loads from memory, then loads from shared memory, then loads in the wrong order, then the wait for them; and at last the arithmetic
		itself gets other units. None of that costs digits: the tensor cores' float32, in three products, has smaller errors than the plain sum, since it
		sums in parts. The newest tensor cores are so fast that a kernel for them is all about bringing factors: an engine copies, one warp directs it, neighbours
		share what it brings. What they do in BF16 makes the fastest float32 too, by six products for one.`)
}
