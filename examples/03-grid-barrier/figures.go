package main

import (
	"fmt"
	"image/color"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
)

// A picture is how far each warp's results are from what is right, in percent, after
// one transformation and after all.
type picture struct {
	name      string
	gpu, host [2][]float64
}

// drawWrong draws each kernel's picture, GPU and host side by side.
func drawWrong(pictures [2]picture) *notebook.Canvas {
	const width, height = 1320, 400
	c := notebook.NewCanvas(width, len(pictures)*height)
	for i, p := range pictures {
		for k, values := range [2][2][]float64{p.gpu, p.host} {
			bars := notebook.Bars{Title: p.name + [...]string{", GPU", ", host"}[k], Label: "off by, %", Standing: true, Series: []notebook.BarSeries{
				{Name: "1 transformation", Colour: notebook.Amber, Values: values[0]},
				{Name: fmt.Sprint(steps), Colour: notebook.Red, Values: values[1]},
			}}
			for w := range values[0] {
				bars.Names = append(bars.Names, fmt.Sprint("warp ", w))
			}
			bars.Draw(c, float64(k*width/2), float64(i*height), width/2, height)
		}
	}
	return c
}

// drawPlane draws the gain over blocks and threads.
func drawPlane(blocks, threads []int, gains [][]float64) *notebook.Canvas {
	c := notebook.NewCanvas(1000, 560)
	notebook.HeatMap{Title: "Gain of one launch over many", XLabel: "threads per block", YLabel: "blocks", Label: "gain, %", Gain: true,
		Columns: labels(threads), Rows: labels(blocks), Values: gains}.Draw(c, 0, 0, 1000, 560)
	return c
}

func labels(v []int) (names []string) {
	for _, n := range v {
		names = append(names, fmt.Sprint(n))
	}
	return names
}

// drawTimes draws the methods' times over the number of blocks.
func drawTimes(title string, all []times) *notebook.Canvas {
	colours := []color.RGBA{notebook.Red, notebook.Amber, notebook.Muted, notebook.Blue, notebook.Green}
	c := notebook.NewCanvas(1320, 560)
	chart := notebook.Chart{Title: title, XLabel: "blocks", YLabel: "us a half step", LogX: true, Zero: true}
	for i, t := range all {
		chart.Series = append(chart.Series, notebook.Series{Name: t.name, Colour: colours[i%len(colours)], X: t.blocks, Y: t.y})
	}
	chart.Draw(c, 0, 0, 1320, 560)
	return c
}
