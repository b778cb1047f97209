package main

import (
	"fmt"

	"github.com/stheno-ml/stheno/internal/figure"
)

// A picture shows how far each warp's results are from the right ones, in percent, after each
// number of transformations.
type picture struct {
	name      string
	gpu, host [][]float64
}

// drawWrong draws each kernel's picture, GPU and host side by side.
func drawWrong(counts []int, pictures [2]picture) (maps []figure.Panel) {
	for _, p := range pictures {
		for k, values := range [2][][]float64{p.gpu, p.host} {
			maps = append(maps, figure.HeatMap{Title: p.name + [...]string{", GPU", ", host"}[k], XLabel: "warps, two to a block", YLabel: "transformations", Label: "off by, %",
				Gain: true, Rows: labels(counts), Columns: []string{"0", "1", "2", "3"}, Values: values})
		}
	}
	return maps
}

// overGrid puts axes of blocks and threads on planes.
func overGrid(blocks, threads []int, maps ...figure.HeatMap) (panels []figure.Panel) {
	for _, m := range maps {
		m.XLabel, m.YLabel, m.Gain = "threads per block", "blocks", true
		m.Columns, m.Rows = labels(threads), labels(blocks)
		panels = append(panels, m)
	}
	return panels
}

func labels(v []int) (names []string) {
	for _, n := range v {
		names = append(names, fmt.Sprint(n))
	}
	return names
}

// drawTimes draws the methods' times over the number of blocks.
func drawTimes(title string, methods []figure.Series) figure.Chart {
	return figure.Chart{Title: title, XLabel: "blocks", YLabel: "µs a half step", LogX: true, Series: methods}
}
