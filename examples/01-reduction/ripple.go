package main

import (
	"fmt"
	"image/color"
	"math"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
)

// ripple is the section on device functions and the barrier of a block: a
// picture that is right with the barrier and wrong without.
func ripple(p *notebook.Page) {
	tiles := 64 // 1024 x 1024 elements
	if p.Small() {
		tiles = 16
	}
	side := tiles * versions.RippleTile
	p.Heading("A device function, and what a barrier is for")
	p.Text(`A tree sum works in shared memory, where threads read what others of their block wrote. Only a barrier guarantees that the
		others have written. A picture shows it better than a sum: each thread of a 16 x 16 block computes one element of a ripple and puts it
		into a tile in shared memory; then it stores the element that the thread opposite has put there. The ripple comes from a
		device function, which kernels call as they call any other.`)
	p.Source("versions/ripple.cu", "amplitude")
	p.Text("The kernel exists twice. Without the barrier nothing else is different:")
	p.Source("versions/ripple.cu", "ripple")

	right := picture(p, versions.Ripple(kernels.Float32, tiles, tiles))
	if n := wrong(right, side); n > 0 {
		notebook.Fail("the ripple with the barrier has %d wrong elements of %d", n, len(right))
	}
	racy := picture(p, versions.RippleRacy(kernels.Float32, tiles, tiles))
	share := p.Measure("ripple.racy.wrong", "%", func() float64 {
		return 100 * float64(wrong(racy, side)) / float64(len(racy))
	})
	size := fmt.Sprintf("%d x %d elements", side, side)
	p.Figure("ripple", "The ripple with the barrier, "+size+". Each has been compared with the formula.", drawn(1, figure.Image{Width: side, Values: right}))
	caption := "The ripple without the barrier, " + size + ": wrong on purpose."
	if p.GPU() == nil {
		caption += " Drawn on the host, which runs the warps of a block one after the other; on a GPU another part of each tile is wrong, in each run another one."
	}
	const mark = "NO BARRIER: WRONG"
	p.Figure("ripple-racy-wrong", caption, drawn(1, figure.Image{Width: side, Values: racy, Mark: mark}))
	p.Figure("ripple-hill", fmt.Sprintf("The %d x %d elements around the first hill, with the barrier and without.", hill, hill),
		drawn(zoom, around(right, side, "with the barrier")), drawn(zoom, around(racy, side, mark)))
	if share.Known() {
		p.Text("Without the barrier %v of the elements came out wrong on the GPU.", share)
	}
	p.Text(`A warp that is first reads what a warp that is late has yet to write, and gets what
		the tile held before. No run proves such a kernel right, not even one that looks right: the race checker of NVIDIA's compute-sanitizer does find
		it, and our tests ask it to. A barrier has a rule of its own: every thread of the block must come to it. Inside a branch that some
		threads do not take, those that wait there may wait for ever.`)
}

// picture runs a plan without inputs and returns the picture that it computes.
func picture(p *notebook.Page, plan *kernels.Plan) []float32 {
	return kernels.Elements[float32](p.Output(plan, nil))
}

// amplitude is the ripple by its formula, from 0 to 4.
func amplitude(ix, iy int) float64 {
	return (1 + math.Sin(2*math.Pi*float64(ix-64)/256)) * (1 + math.Sin(2*math.Pi*float64(iy-64)/256))
}

// expected returns element (ix, iy) of a right picture: tiles are turned by 180 degrees.
func expected(ix, iy int) float64 {
	const tile = versions.RippleTile
	return amplitude(ix-ix%tile+tile-1-ix%tile, iy-iy%tile+tile-1-iy%tile)
}

// wrong counts the elements that differ from the formula by more than the
// roundings of two factors up to 2.
func wrong(elements []float32, side int) (n int) {
	for i, v := range elements {
		if !(math.Abs(float64(v)-expected(i%side, i/side)) <= 0x1p-20) {
			n++
		}
	}
	return n
}

// drawn returns a picture in the colours of its amplitudes.
func drawn(zoom int, m figure.Image) figure.Pictures {
	return figure.Pictures{Zoom: zoom, Colour: colour, Images: []figure.Image{m}}
}

// hill is the side, in elements, of the part that is shown enlarged, zoom the factor.
const hill, zoom = 64, 6

// around is the middle of the first hill of a picture.
func around(elements []float32, side int, name string) figure.Image {
	const first = 96
	m := figure.Image{Width: hill, Text: name, Wrong: name != "with the barrier"}
	for y := first; y < first+hill; y++ {
		m.Values = append(m.Values, elements[y*side+first:][:hill]...)
	}
	return m
}

// colour returns the colour of an amplitude, 0 to 4.
func colour(v float64) color.RGBA { return figure.Viridis(v / 4) }
