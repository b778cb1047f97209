package main

import (
	"math"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/internal/figure"
)

// take takes a letter and returns the logarithms of the next one's probabilities.
func (r *reader) take(letter int) []float32 {
	r.read([]int{letter}, []int{letter})
	return r.net.logp.Data().([]float32)
}

// write goes on at the end of the text that was read. Likely letters are taken a little more often than they are likely.
func (r *reader) write(of *network, t *text, letters int, seed uint64) string {
	const temperature = 0.7
	r.begin(of)
	random := rand.New(rand.NewPCG(seed, 1))
	var logp []float32
	for _, letter := range t.read[len(t.read)-100:] {
		logp = r.take(letter)
	}
	out := make([]int, letters)
	weights := make([]float64, len(t.letters))
	for i := range out {
		sum := 0.0
		for k, l := range logp {
			weights[k] = math.Exp(float64(l) / temperature)
			sum += weights[k]
		}
		at := random.Float64() * sum
		for out[i] = 0; out[i] < len(weights)-1 && at >= weights[out[i]]; out[i]++ {
			at -= weights[out[i]]
		}
		logp = r.take(out[i])
	}
	return t.string(out)
}

// surprises shows what each letter of a passage costs.
func surprises(s *story) {
	s.Heading("What surprises it")
	const letters = 280
	w := s.newReader(1, 1)
	defer w.vm.Close()
	w.begin(s.net)
	p := figure.Pictures{Zoom: 17, Columns: 20, Colour: figure.Diverging}
	for i, letter := range s.text.held[:letters] {
		logp := w.take(letter)
		next := s.text.held[i+1]
		cost := -float64(logp[next]) / math.Ln2
		image := figure.Image{Width: 1, Values: []float32{float32(-min(cost/8, 1))}}
		if name := s.text.letters[next]; name > ' ' && name < 0x7f {
			image.Text = string(name)
		}
		p.Images = append(p.Images, image)
	}
	s.Figure("surprises", "The beginning of the held-out text. The redder the square above a letter, the more bits it cost: white is none, dark red 8 or more.", p)
	s.Text("The beginnings of words are dear, their ends cheap: once a word can be but one, its letters cost nothing.")
}
