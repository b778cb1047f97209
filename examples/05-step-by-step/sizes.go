package main

import (
	"fmt"
	"image/color"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/kernels"
)

// sizes times the steps on inputs from 2^8 to 2^28 elements.
func sizes(p *notebook.Page) {
	p.Heading("Past the picture: other sizes")
	largest := p.Timed(28, 16)
	var input []float32
	if p.GPU() != nil {
		input = make([]float32, 1<<largest)
		for i := range input {
			input[i] = float32(i%1000) / 1000
		}
	}
	ch := figure.Chart{Title: "Time of one sum over n float32", XLabel: "n", YLabel: "time, µs", Log: true, LogX: true}
	names := []string{"one thread", "one block, atomics", "16 blocks, atomics", "16 blocks, tree", "16 blocks, in order", "the op"}
	colours := []color.RGBA{figure.Red, figure.Amber, figure.Ink, figure.Muted, figure.Green, figure.Blue}
	at := map[[2]int]float64{} // us by version and log2 n
	for i, name := range names {
		version := (i + 1) % 6 // the op is version 0
		s := figure.Series{Name: name, Colour: colours[i]}
		for log := 8; log <= largest; log += 4 {
			if version == 1 && log > 20 {
				break // seconds
			}
			us := p.Benchmark(fmt.Sprintf("2^%d version %d", log, version), notebook.OpCase(version, "Sum", fmt.Sprintf("all 2^%d", log), kernels.Float32), func() float64 {
				return p.MeanTime(p.Sum(version, 1<<log), [][]byte{kernels.Bytes(input[:1<<log])}, 7, nil)
			}).Value
			s.X, s.Y = append(s.X, float64(int(1)<<log)), append(s.Y, us)
			at[[2]int{version, log}] = us
		}
		ch.Series = append(ch.Series, s)
	}
	p.Figure("sums-by-size", "The steps on other sizes. Small sums cost their launches, large ones show the kernel itself.", ch)
	us := func(version int) string { return figure.Number(at[[2]int{version, 8}]) }
	rate := func(version int) string {
		return figure.Number(4 * float64(int(1)<<largest) / at[[2]int{version, largest}] / 1e3)
	}
	p.Text(`2^8 elements take %s µs in one launch, %s in two and %s in three. At 2^%d elements 16 blocks read %s GB/s with an atomic for each thread,
		%s with a tree and %s without atomics: how the sums are joined no longer matters, only how much memory is asked for at a
		time. The op reads %s GB/s.`, us(0), us(5), us(4), largest, rate(3), rate(4), rate(5), rate(0))
}
