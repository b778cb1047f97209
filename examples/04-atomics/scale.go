package main

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/kernels/basic"
	"github.com/stheno-ml/stheno/kernels/versions"
)

// scale times the versions on more data, of three kinds.
func scale(p *notebook.Page, text letters) {
	p.Heading("Larger data, and worse data")
	p.Text(`A text of a few MB is over before a GPU is busy. With more data, a histogram of all 256 values of a byte shows what each version can do, and on what
		it depends: random bytes hardly meet, and equal bytes all meet at one cell.`)
	log := p.Timed(28, 16)
	n := 1 << log
	all := basic.Bins{N: 256, Lo: 0, Hi: 256}
	kinds := []string{"random bytes", "English text", "equal bytes"}
	inputs := make([][]byte, len(kinds))
	if p.GPU() != nil {
		random := make([]byte, n)
		rand.NewChaCha8([32]byte{4}).Read(random) // reads always fill the slice
		inputs = [][]byte{random, bytes.Repeat(text.bytes, n/len(text.bytes)+1)[:n], make([]byte, n)}
	}
	t := figure.Table{Caption: fmt.Sprintf("Histogram of 2^%d bytes into 256 cells, GB/s", log), Header: append([]string{"version"}, kinds...)}
	chart := figure.Bars{Title: fmt.Sprintf("Histogram of 2^%d bytes into 256 cells", log), Label: "GB/s", Log: true,
		Series: []figure.BarSeries{{Name: kinds[0], Colour: figure.Blue}, {Name: kinds[1], Colour: figure.Green}, {Name: kinds[2], Colour: figure.Amber}}}
	for v := 1; v <= versions.HistogramVersions; v++ {
		name, plan := fmt.Sprintf("%d: %s", v, versions.Docs("Histogram")[v-1].Name), version(p, v, n, blocks, all)
		var rates [3]float64
		for k, kind := range kinds {
			rates[k] = p.Measure(fmt.Sprintf("2^%d %s, version %d", log, kind, v), "GB/s", func() float64 {
				return float64(n) / p.MeanTime(plan, [][]byte{inputs[k]}, 5, nil) / 1e3
			}).Value
		}
		t.Add(name, rates[0], rates[1], rates[2])
		chart.Add(name, rates[:]...)
	}
	p.Table(t)
	p.Figure("scale", "Three versions on three kinds of data; further right is better.", chart)
	if rates := chart.Series; !math.IsNaN(rates[0].Values[0]) {
		p.Text(`Equal bytes are counted at %s %% of the rate of random ones by version 1, at %s %% by version 2 and at %s %% by version 3. In global memory it matters a lot how
			many want one cell.`, figure.Number(share(rates, 0)), figure.Number(share(rates, 1)), figure.Number(share(rates, 2)))
	}
	p.Text(`Columns of their own make the lanes independent of the data by design, and the third version also loads 16 bytes at a time where the second loads one. What is left
		of the cell that everyone wants is one atomic for each block and value, at the very end.`)
}

// share is the rate of a version, from 0, on the last kind of data in percent of
// that on the first.
func share(rates []figure.BarSeries, version int) float64 {
	return 100 * rates[len(rates)-1].Values[version] / rates[0].Values[version]
}
