package main

import (
	"fmt"
	"image/color"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
)

// A picture is how far each warp's results are from what is right, in percent, after
// each number of transformations.
type picture struct {
	name      string
	gpu, host [][]float64
}

// drawWrong draws each kernel's picture, GPU and host side by side.
func drawWrong(counts []int, pictures [2]picture) *notebook.Canvas {
	const width, height = 1320, 420
	c := notebook.NewCanvas(width, len(pictures)*height)
	for i, p := range pictures {
		for k, values := range [2][][]float64{p.gpu, p.host} {
			m := notebook.HeatMap{Title: p.name + [...]string{", GPU", ", host"}[k], XLabel: "warps, two to a block", YLabel: "transformations", Label: "off by, %",
				Gain: true, Rows: labels(counts), Columns: []string{"0", "1", "2", "3"}, Values: values}
			m.Draw(c, float64(k*width/2), float64(i*height), width/2, height)
		}
	}
	return c
}

// drawPlanes draws planes over blocks and threads, two by two.
func drawPlanes(blocks, threads []int, maps []notebook.HeatMap) *notebook.Canvas {
	const width, height = 1320, 480
	c := notebook.NewCanvas(width, (len(maps)+1)/2*height)
	for i, m := range maps {
		m.XLabel, m.YLabel, m.Gain = "threads per block", "blocks", true
		m.Columns, m.Rows = labels(threads), labels(blocks)
		m.Draw(c, float64(i%2*width/2), float64(i/2*height), width/2, height)
	}
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
	colours := []color.RGBA{notebook.Red, notebook.Amber, notebook.Ink, notebook.Muted, notebook.Blue, notebook.Green}
	c := notebook.NewCanvas(1320, 560)
	chart := notebook.Chart{Title: title, XLabel: "blocks", YLabel: "us a half step", LogX: true}
	for i, t := range all {
		chart.Series = append(chart.Series, notebook.Series{Name: t.name, Colour: colours[i%len(colours)], X: t.blocks, Y: t.y})
	}
	chart.Draw(c, 0, 0, 1320, 560)
	return c
}
