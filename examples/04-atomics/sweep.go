package main

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/kernels/versions"
)

// sweep times versions 1 and 2 on grids of 32 i blocks.
func sweep(p *notebook.Page, text letters) {
	p.Heading("How many blocks?")
	p.Text("The grid was a guess: %d blocks of %d threads. Here are 32 i blocks for i = 10, 15, ..., 995, for the two versions whose grid can be anything.", blocks, threads)
	step := p.Timed(5, 985)
	var charts []figure.Panel
	t := figure.Table{Caption: "The best grid of each", Header: []string{"version", "blocks", "time", "at 2560 blocks"}}
	for v, s := range []figure.Series{{Name: "global atomics", Colour: figure.Blue}, {Name: "shared atomics", Colour: figure.Amber}} {
		best, guess := -1, math.NaN()
		for i := 10; i <= 995; i += step {
			plan := version(p, v+1, len(text.bytes), 32*i, ascii)
			us := p.Measure(fmt.Sprintf("sweep, version %d, %d blocks", v+1, 32*i), "us", func() float64 {
				return p.MeanTime(plan, [][]byte{text.bytes}, 50, nil)
			}).Value
			s.X, s.Y = append(s.X, float64(32*i)), append(s.Y, us)
			if !math.IsNaN(us) && (best < 0 || us < s.Y[best]) {
				best = len(s.Y) - 1
			}
			if 32*i == blocks {
				guess = us
			}
		}
		if best >= 0 {
			m := notebook.In(s.Y[best], "us")
			s.Marks = []figure.Mark{{At: best, Text: fmt.Sprintf("best: %v with %.0f blocks", m, s.X[best])}}
			t.Add(s.Name, fmt.Sprintf("%.0f", s.X[best]), m, notebook.In(guess, "us"))
		}
		title := "Histogram by " + s.Name
		s.Name = ""
		charts = append(charts, figure.Chart{Title: title, XLabel: "blocks of 128 threads", YLabel: "time, µs", Zero: true, Series: []figure.Series{s}})
	}
	p.Figure("sweep", "Time of a histogram of the text over the number of blocks, and the best grid of each version.", charts...)
	if len(t.Rows) > 0 {
		p.Table(t)
	}
	plan := version(p, versions.HistogramVersions, len(text.bytes), 0, ascii)
	m := p.Measure("sweep, the op", "us", func() float64 { return p.MeanTime(plan, [][]byte{text.bytes}, 50, nil) })
	p.Text(`Global atomics hardly care: they wait for the cell of the most frequent character, and more blocks only make the queue longer. With shared memory, more
		blocks keep more of the device busy, up to a point; beyond it each of them pays for clearing its cells and adding them up at the end, and those
		additions meet in global memory; and past 16 blocks a multiprocessor, which is all that it holds at once, some wait for a place. The op, version 3, has one block for each multiprocessor and takes %v. Most of
		that is two launches, which this program starts one after the other, as fast as the host can: the same two in the first table were timed at another
		moment, and runs of so few µs differ by that.`, m)
}
