package main

import (
	"fmt"
	"image/color"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
)

// drawWrong draws each warp's elements over what is right, by kernel and number of
// transformations.
func drawWrong(names []string, gpu, host map[string][]float64) *notebook.Canvas {
	const width, height = 1320, 400
	c := notebook.NewCanvas(width, len(names)/2*height)
	for i, name := range names {
		bars := notebook.Bars{Title: name, Label: "result / right result", Standing: true, Series: []notebook.BarSeries{
			{Name: "GPU", Colour: notebook.Blue, Values: gpu[name]}, {Name: "host", Colour: notebook.Amber, Values: host[name]},
		}}
		for w := range host[name] {
			bars.Names = append(bars.Names, fmt.Sprint("warp ", w))
		}
		bars.Draw(c, float64(i%2*width/2), float64(i/2*height), width/2, height)
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
