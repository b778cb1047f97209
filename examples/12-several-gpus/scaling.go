package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
)

// stepTime returns the median time of a step with a batch that stays on the device.
func stepTime(net *network, on cudaops.Option) time.Duration {
	const steps = 7
	vm := net.train(on)
	defer vm.Close()
	batch(vm, net, rand.New(rand.NewPCG(7, 8)))
	var times []time.Duration
	for k := range steps + 2 {
		began := time.Now()
		notebook.Check(vm.RunAll())
		if k > 1 { // the first ones warm up
			times = append(times, time.Since(began))
		}
	}
	slices.Sort(times)
	return times[steps/2]
}

// scaling times steps of growing batches on one device and on all.
func scaling(s *story) {
	s.Heading("Where scaling ends")
	s.Text(`Every rank has the same number of rows, so %d ranks do %d times the work of one. Perfect scaling takes no more time for it. What is added does not depend on the rows: %.0f MB of gradients, whose all-reduce sends and receives
		%.0f MB on each rank.`, s.ranks, s.ranks, float64(12*s.width*s.width)/1e6, 2*float64(s.ranks-1)/float64(s.ranks)*float64(12*s.width*s.width)/1e6)
	table := figure.Table{Caption: "Steps: " + s.where, Header: []string{"rows a rank", "one rank", fmt.Sprintf("%d ranks", s.ranks), "scaling"}}
	chart := figure.Chart{Title: "How many times the work of one rank", XLabel: "rows a rank", YLabel: "scaling", LogX: true, Zero: true}
	got := figure.Series{Name: fmt.Sprintf("%d ranks", s.ranks), Colour: figure.RGB(0x1F77B4)}
	best := figure.Series{Name: "perfect", Colour: figure.RGB(0x7F7F7F)}
	for _, rows := range []int{s.Size(128, 16, 2), s.Size(512, 64, 4), s.Size(2048, 256, 8), s.Size(8192, 1024, 16)} {
		one, all := stepTime(newNetwork(rows, s.width), s.On()), stepTime(newNetwork(rows, s.width), s.all)
		times := float64(s.ranks) * one.Seconds() / all.Seconds()
		table.Rows = append(table.Rows, []string{fmt.Sprint(rows), one.Round(time.Microsecond).String(), all.Round(time.Microsecond).String(), fmt.Sprintf("%.2f", times)})
		got.X, got.Y = append(got.X, float64(rows)), append(got.Y, times)
		best.X, best.Y = append(best.X, float64(rows)), append(best.Y, float64(s.ranks))
	}
	chart.Series = []figure.Series{got, best}
	s.Table(table)
	s.Figure("scaling", fmt.Sprintf("Layers of %d, batches from the host: %s.", s.width, s.where), chart)
	if s.GPU() == nil {
		s.Text("Ranks on the host share its cores, so they are no faster than one rank with all rows; what is measured here is what the exchange between them costs.")
	}
}
