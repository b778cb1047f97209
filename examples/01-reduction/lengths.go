package main

import (
	"fmt"
	"image/color"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/kernels"
)

// lengths is the section on how the rate depends on n.
func lengths(p *notebook.Page) {
	p.Heading("From how many numbers on?")
	p.Text(`A billion numbers are kind to a kernel: whatever it does besides reading is soon a small part. The same kernels on fewer numbers, here with the
		second step on the device for all of them:`)
	largest := p.Timed(28, 16)
	var input []float32
	if p.GPU() != nil {
		input = shares(1 << largest)
	}
	ch := figure.Chart{Title: "Rate of a sum over n float32", XLabel: "n", YLabel: "GB/s", Log: true, LogX: true}
	numbers := []int{6, 7, 8, 0}
	names := []string{"thread 0 adds", "tree", "shuffles", "the op"}
	colours := []color.RGBA{figure.Red, figure.Amber, figure.Green, figure.Blue}
	at := map[int]notebook.Measured{} // 2^22 elements, by version
	for i, version := range numbers {
		s := figure.Series{Name: names[i], Colour: colours[i]}
		for log := 12; log <= largest; log += 2 {
			n := 1 << log
			us := p.Benchmark(fmt.Sprintf("2^%d, version %d", log, version), notebook.OpCase(version, "Sum", fmt.Sprintf("all 2^%d", log), kernels.Float32), func() float64 {
				return p.MeanTime(p.Sum(version, n), [][]byte{kernels.Bytes(input[:n])}, runs, nil)
			})
			if log == 22 {
				at[version] = us
			}
			s.X, s.Y = append(s.X, float64(n)), append(s.Y, 4*float64(n)/us.Value/1e3)
		}
		ch.Series = append(ch.Series, s)
	}
	caption := "Bytes read in a second over the number of elements. On the left a sum costs its launches: two, or for the op one where a block is enough."
	p.Figure("lengths", caption, ch)
	if us, ok := at[0]; ok {
		p.Text(`Here it does show. 2^22 numbers take %v where thread 0 adds, %v by the tree, %v by shuffles, and %v by the op: with one or two numbers for
			each of 1024 threads a block is busy with barriers, and a block of 256 that reads 16 bytes at a time has more to read and less to wait for.`,
			at[6], at[7], at[8], us)
	}
}
