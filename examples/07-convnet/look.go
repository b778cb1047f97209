package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/stheno-ml/stheno"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/digits"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	G "gorgonia.org/gorgonia"
)

// mistakes shows which digits are taken for which, and the images that were read wrong.
func mistakes(s *story) {
	s.Heading("What it gets wrong")
	h := figure.HeatMap{Title: "Probability of what the digit is not", YLabel: "the digit", XLabel: "is taken for", Label: "mean, %"}
	var count [digits.Classes]float64
	for digit := range digits.Classes {
		name := fmt.Sprint(digit)
		h.Rows, h.Columns, h.Values = append(h.Rows, name), append(h.Columns, name), append(h.Values, make([]float64, digits.Classes))
	}
	wrong := 0
	for _, t := range s.nets {
		wrong += len(t.wrong)
		for i, digit := range t.held.Labels {
			count[digit]++
			for k, v := range t.test.logp.Data().([]float32)[i*digits.Classes:][:digits.Classes] {
				h.Values[digit][k] += 100 * math.Exp(float64(v))
			}
		}
	}
	for digit, row := range h.Values {
		for k := range row {
			row[k] = math.Round(100*row[k]/count[digit]) / 100
		}
		row[digit] = math.NaN() // right
	}
	s.Figure("confusion", "How often the networks read a digit as another one, on average over all held-out images. The diagonal, the right answers, is left out.", h)
	if wrong == 0 {
		s.Text("There is no mistake to look at.")
		return
	}
	s.Text("Some of the mistakes are hard for people, too:")
	s.drawMistakes(min(wrong, 30))
}

// drawMistakes draws the first images that were read wrong.
func (s *story) drawMistakes(n int) {
	p := figure.Pictures{Zoom: 8, Columns: 10}
	for _, t := range s.nets {
		for _, i := range t.wrong[:min(len(t.wrong), n-len(p.Images))] {
			digit, probability := t.test.answer(i)
			p.Images = append(p.Images, figure.Image{Width: digits.Side, Values: t.held.Image(i), Wrong: true,
				Text: fmt.Sprintf("%d: %d, %.0f %%", t.held.Labels[i], digit, 100*probability)})
		}
	}
	s.Figure("mistakes", "Images that were read wrong, seed by seed: the digit, what it was read as, and how sure the network was. An image that several networks held out may be there more than once.", p)
}

// filters shows the first layer of a network, and its output for an image.
func filters(s *story) {
	s.Heading("What it sees")
	net := s.nets[0].test
	weights, seen := net.parameters[0].Value().Data().([]float32), net.seen.Data().([]float32)
	const shown = 3 // images
	features := net.parameters[0].Shape()[0]
	taps := figure.Pictures{Zoom: 21, Colour: figure.Diverging}
	for f := range features {
		taps.Images = append(taps.Images, figure.Image{Width: 3, Values: scaled(weights[f*9:][:9], weights)})
	}
	found := figure.Pictures{Zoom: 8, Columns: features + 1}
	for i := range shown {
		found.Images = append(found.Images, figure.Image{Width: digits.Side, Values: s.nets[0].held.Image(i)})
		for f := range features {
			feature := seen[(i*features+f)*digits.Pixels:][:digits.Pixels]
			found.Images = append(found.Images, figure.Image{Width: digits.Side, Values: scaled(feature, feature)})
		}
	}
	s.Figure("filters", "The filters of the first layer from seed 1: blue weights are positive, red ones negative. Below, digits, each with the places where the filters find what they look for.", taps, found)
	s.Text("No one told the filters what to look for. Several look for an edge, each from another side, as filters do in most networks that learn from pictures.")
}

// scaled returns values as shares of the greatest magnitude among others.
func scaled(values, among []float32) []float32 {
	most := float32(1e-9)
	for _, v := range among {
		most = max(most, v, -v)
	}
	shares := make([]float32, len(values))
	for k, v := range values {
		shares[k] = v / most
	}
	return shares
}

// launches shows where the time of a step goes.
func launches(s *story) {
	s.Heading("Where the time goes")
	net := newNetwork(images, dropout)
	for i, n := range s.nets[0].test.parameters { // copies: these steps are not the first network's
		notebook.Check(G.Let(net.parameters[i], notebook.Must(G.CloneValue(n.Value()))))
	}
	notebook.Must(G.Grad(net.loss, net.parameters...))
	vm := notebook.Must(stheno.NewVM(net.graph, s.On(), cudaops.Train(G.NewAdamSolver(), net.parameters...), cudaops.Timed()))
	defer vm.Close()
	notebook.Check(net.feed(s.all.Take(rand.New(rand.NewPCG(1, 1)).Perm(s.all.Len())[:images])))
	times, steps := map[string][]time.Duration{}, 0 // of each run
	for range s.Size(31, 31, 3) {
		notebook.Check(vm.RunAll())
		run := map[string]time.Duration{}
		steps = len(vm.Report().Steps)
		for _, step := range vm.Report().Steps {
			run[kind(step)] += step.Time
		}
		for name, t := range run {
			times[name] = append(times[name], t)
		}
	}
	bars := figure.Bars{Title: "Time of a step of the training", Label: "ms", Series: []figure.BarSeries{{Colour: figure.Blue}}}
	for _, name := range kinds {
		bars.Add(name, notebook.Median(times[name])/1e3)
	}
	s.Figure("launches", fmt.Sprintf("The %d launches of a step by kind, with %d images: medians of some steps, on %s.", steps, images, s.Where()), bars)
	s.Text(`Gorgonia has no convolution: it copies the 3 x 3 pixels around every place into a row of a matrix, and multiplies that with the filters. The derivative goes the same way back. The copies take time that a convolution
		would not need, and memory: each pixel is there nine times.`)
}

// kinds are the kinds of launches.
var kinds = []string{"products with filters and weights", "copies of windows, and back", "maxima, and back", "element by element, sums, the solver"}

func kind(step cudaops.Step) string {
	kernel := strings.Join(step.Kernels, " ")
	for i, part := range []string{"matmul", "col", "pool"} {
		if strings.Contains(kernel, part) {
			return kinds[i]
		}
	}
	return kinds[3]
}
