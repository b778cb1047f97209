package main

import (
	"fmt"
	"image/color"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/kernels"
)

// ripple is the section on device functions and the barrier of a block: a
// picture that is right with the barrier and wrong without.
func ripple(p *notebook.Page) error {
	tiles := 64 // 1024 x 1024 elements
	if p.Small() {
		tiles = 16
	}
	side := tiles * kernels.RippleTile
	p.Heading("A device function, and what a barrier is for")
	p.Text(`A tree sum works in shared memory, where threads read what others of their block wrote. Nothing but a barrier says that the
		others have written. A picture shows it better than a sum: each thread of a 16 x 16 block computes one element of a ripple and puts it
		into a tile in shared memory; then it stores the element that the thread opposite has put there. The ripple comes from a
		device function, which kernels call as they call any other.`)
	if err := p.Source("ripple.cu", "amplitude"); err != nil {
		return err
	}
	p.Text("The kernel exists twice. Without the barrier nothing else is different:")
	if err := p.Source("ripple.cu", "ripple"); err != nil {
		return err
	}

	right, err := drawn(p, kernels.Ripple(kernels.Float32, tiles, tiles))
	if err != nil {
		return err
	}
	racy, err := drawn(p, kernels.RippleRacy(kernels.Float32, tiles, tiles))
	if err != nil {
		return err
	}
	wrong, err := p.Measure("ripple.racy.wrong", "%", func() (float64, error) { return 100 * differing(racy, right), nil })
	if err != nil {
		return err
	}
	caption := "The ripple with the barrier (left) and without (right), and below each the middle of its first hill, enlarged."
	if p.GPU() == nil {
		caption += " Drawn on the host, which runs the warps of a block one after the other; on a GPU another part of each tile is wrong, in each run another one."
	}
	if err := p.Figure("ripple", caption, drawRipple(right, racy, side)); err != nil {
		return err
	}
	if wrong.Known() {
		p.Text("Without the barrier %v of the elements came out wrong on the GPU.", wrong)
	}
	p.Text(`A warp that is first reads what a warp that is late has yet to write, and gets what
		the tile held before. No run proves such a kernel right, not even one that looks right: the race checker of NVIDIA's compute-sanitizer does find
		it, and our tests ask it to. A barrier has a rule of its own: every thread of the block must come to it. Inside a branch that some
		threads do not take, those that wait there may wait for ever.`)
	return nil
}

// drawn runs a plan without inputs where the page runs.
func drawn(p *notebook.Page, plan *kernels.Plan) ([]float32, error) {
	out := make([]float32, plan.Out/4)
	if gpu := p.GPU(); gpu != nil {
		return out, cudaops.RunPlan(gpu.Ordinal, plan, nil, kernels.Bytes(out))
	}
	return out, plan.Run(nil, kernels.Bytes(out), nil)
}

// differing is the share of elements that are not equal.
func differing(a, b []float32) float64 {
	n := 0
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return float64(n) / float64(len(a))
}

// drawRipple draws two square pictures of the given side next to each other, and
// under each the middle of its first hill enlarged.
func drawRipple(right, racy []float32, side int) *notebook.Canvas {
	const view, part, zoom = 512, 64, 8
	c := notebook.NewCanvas(2*view+120, 2*view+190)
	pictures, names := [][]float32{right, racy}, []string{"with the barrier", "without: wrong"}
	for i, picture := range pictures {
		x := 40 + i*(view+40)
		c.Text(float64(x), 46, 17, notebook.Left, notebook.Ink, fmt.Sprintf("%d x %d, %s", side, side, names[i]))
		c.Picture(x, 70, 1, view, sampled(picture, side, 0, side, view), spectral)
	}
	for i, picture := range pictures {
		x := 40 + i*(view+40)
		c.Text(float64(x), 70+view+46, 14, notebook.Left, notebook.Muted, fmt.Sprintf("%d x %d elements around its first hill", part, part))
		c.Picture(x, 70+view+64, zoom, part, sampled(picture, side, 96, part, part), spectral)
	}
	return c
}

// spectral is the colour of an amplitude, 0 to 4.
func spectral(v float64) color.RGBA { return notebook.Spectral(v / 4) }

// sampled is part x part elements, from (first, first) on, of a picture of the
// given side, as view x view elements.
func sampled(picture []float32, side, first, part, view int) []float32 {
	out := make([]float32, view*view)
	for i := range out {
		out[i] = picture[(first+i/view*part/view)*side+first+i%view*part/view]
	}
	return out
}
