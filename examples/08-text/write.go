package main

import (
	"math"
	"math/rand/v2"

	"github.com/stheno-ml/stheno"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// writer takes one letter after the other.
type writer struct {
	net *network
	vm  *cudaops.VM
}

func (s *story) newWriter() (w *writer, err error) {
	w = &writer{net: newNetwork(sizes{s.hidden, 1, 1}, len(s.text.letters), 0)}
	w.vm, err = stheno.NewVM(w.net.graph, s.On(), cudaops.ForwardOnly())
	return w, err
}

// begin takes the parameters of a network, and nothing is remembered.
func (w *writer) begin(of *network) error {
	if err := notebook.Share(w.net.parameters, of.parameters); err != nil {
		return err
	}
	return w.net.forget()
}

// take takes a letter and returns the logarithms of the next one's probabilities.
func (w *writer) take(letter int) ([]float32, error) {
	if err := G.Let(w.net.x, tensor.New(tensor.WithShape(1, 1), tensor.WithBacking([]int{letter}))); err != nil {
		return nil, err
	}
	if err := w.vm.RunAll(); err != nil {
		return nil, err
	}
	return w.net.logp.Data().([]float32), w.net.goOn()
}

// write goes on at the end of the text that was read. Likely letters are taken a little more often than they are likely.
func (w *writer) write(of *network, t *text, letters int, seed uint64) (string, error) {
	const temperature = 0.7
	if err := w.begin(of); err != nil {
		return "", err
	}
	r := rand.New(rand.NewPCG(seed, 1))
	var logp []float32
	for _, letter := range t.read[len(t.read)-100:] {
		var err error
		if logp, err = w.take(letter); err != nil {
			return "", err
		}
	}
	out := make([]int, letters)
	weights := make([]float64, len(t.letters))
	for i := range out {
		sum := 0.0
		for k, l := range logp {
			weights[k] = math.Exp(float64(l) / temperature)
			sum += weights[k]
		}
		at := r.Float64() * sum
		for out[i] = 0; out[i] < len(weights)-1 && at >= weights[out[i]]; out[i]++ {
			at -= weights[out[i]]
		}
		var err error
		if logp, err = w.take(out[i]); err != nil {
			return "", err
		}
	}
	return t.string(out), nil
}

// surprises shows what each letter of a passage costs.
func surprises(s *story) error {
	s.Heading("What surprises it")
	const letters = 280
	w, err := s.newWriter()
	if err != nil {
		return err
	}
	defer w.vm.Close()
	if err := w.begin(s.net); err != nil {
		return err
	}
	p := figure.Pictures{Zoom: 17, Columns: 20, Colour: figure.Diverging}
	for i, letter := range s.text.held[:letters] {
		logp, err := w.take(letter)
		if err != nil {
			return err
		}
		next := s.text.held[i+1]
		cost := -float64(logp[next]) / math.Ln2
		image := figure.Image{Width: 1, Values: []float32{float32(-min(cost/8, 1))}}
		if name := s.text.letters[next]; name > ' ' && name < 0x7f {
			image.Text = string(name)
		}
		p.Images = append(p.Images, image)
	}
	if err := s.Figure("surprises", "The beginning of what is held out. The redder the square above a letter, the more bits it cost: white is none, dark red 8 or more.", p); err != nil {
		return err
	}
	s.Text("The beginnings of words are dear, their ends cheap: once a word can be but one, its letters cost nothing.")
	return nil
}
