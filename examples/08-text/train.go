package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"

	"github.com/stheno-ml/stheno"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/train"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// point is how well the held-out text is guessed after a number of steps.
type point struct {
	step int
	held float64 // bits a letter
}

// windows cuts a text into lines for the network, each with the same line one letter on: the
// letters that come next.
func (net *network) windows(text []int) (*train.Data, error) {
	var x, y []int
	for at := 0; at+net.length < len(text); at += net.length {
		x, y = append(x, text[at:at+net.length]...), append(y, text[at+1:at+net.length+1]...)
	}
	return train.NewData(train.Columns{net.x: x, net.y: y})
}

// train trains the network, and looks at it eight times. Lines come in any order, so each begins with nothing
// remembered. The learning rate is less for a wider network; it grows at first, and falls along half a cosine. Gradients that
// are too long are cut.
func (s *story) train(look func(step int) error) (train.History, *cudaops.VM, error) {
	solver := G.NewAdamSolver()
	if _, err := G.Grad(s.net.loss, s.net.parameters...); err != nil {
		return train.History{}, nil, err
	}
	vm, err := stheno.NewVM(s.net.graph, s.On(), cudaops.Train(solver, s.net.parameters...), cudaops.ClipNorm(1))
	if err != nil {
		return train.History{}, nil, err
	}
	data, err := s.net.windows(s.text.read)
	if err != nil {
		return train.History{}, vm, err
	}
	options := []train.Option{
		train.Steps(s.steps),
		train.LearnRate(solver, train.Cosine(5/float64(max(s.hidden, 128)), s.steps/20, s.steps)),
		train.AfterStep(max(s.steps/8, 1), func(step train.Step) error {
			if err := vm.Pull(); err != nil { // the parameters are on the device
				return err
			}
			return look(step.Step)
		}),
	}
	if !s.Small() {
		options = append(options, train.Progress(os.Stderr))
	}
	h, err := train.Run(context.Background(), vm, s.net.loss, data.Shuffle(s.seed), options...)
	return h, vm, err
}

// A reader is a network of the same parameters for lines of another size, whose cells remember from
// run to run.
type reader struct {
	net *network
	vm  *cudaops.VM
}

func (s *story) newReader(lines, length int) *reader {
	net := newNetwork(sizes{s.hidden, lines, length}, len(s.text.letters), 0).withLoss()
	return &reader{net, notebook.Must(stheno.NewVM(net.graph, s.On(), cudaops.ForwardOnly()))}
}

// begin takes the parameters of a network, and nothing is remembered.
func (r *reader) begin(of *network) {
	notebook.Check(notebook.Share(r.net.parameters, of.parameters))
	r.net.forget()
}

// read reads letters and, for the loss, those that come next.
func (r *reader) read(x, y []int) {
	for n, letters := range map[*G.Node][]int{r.net.x: x, r.net.y: y} {
		notebook.Check(G.Let(n, tensor.New(tensor.WithShape(n.Shape()...), tensor.WithBacking(letters))))
	}
	notebook.Check(r.vm.RunAll())
	r.net.goOn()
}

// bits guesses a text, in lines side by side, with the parameters of a network. It returns the mean
// cost of a letter.
func (r *reader) bits(of *network, text []int) float64 {
	r.begin(of)
	size, sum, runs := r.net.sizes, 0.0, 0
	long := (len(text) - 1) / size.lines // letters of a line's own
	for at := 0; at+size.length <= long; at += size.length {
		x, y := make([]int, 0, size.lines*size.length), make([]int, 0, size.lines*size.length)
		for line := range size.lines {
			from := line*long + at
			x, y = append(x, text[from:from+size.length]...), append(y, text[from+1:from+size.length+1]...)
		}
		r.read(x, y)
		sum += float64(r.net.loss.Value().Data().(float32)) / math.Ln2
		runs++
	}
	return sum / float64(runs)
}

// training trains the network and shows texts that it writes on the way.
func training(s *story) {
	s.Heading("The training")
	s.Text("A step takes %d lines of %d letters. The next lines are made ready while the step runs, and the parameters stay on the device until somebody looks.", s.lines, s.length)
	s.GoFunction("train.go", "train")
	s.Text("Eight times on the way, we look how many bits a letter of the held-out text costs, and let the network write: it guesses a letter, takes one by its probability as if it had come, and goes on.")
	s.net.initialise(rand.New(rand.NewPCG(s.seed, 0)), s.text.read)
	judge := s.newReader(s.Size(64, 64, 16), s.Size(44, 44, 16))
	defer judge.vm.Close()
	writer := s.newReader(1, 1)
	defer writer.vm.Close()
	look := func(step int) error {
		return notebook.Try(func() {
			held := judge.bits(s.net, s.text.held)
			s.points = append(s.points, point{step, held})
			s.Listing(fmt.Sprintf("after %d steps, %s bits a letter", step, bits(held)), writer.write(s.net, &s.text, s.Size(300, 300, 60), s.seed))
		})
	}
	notebook.Check(look(0))
	h, vm, err := s.train(look)
	if vm != nil {
		defer vm.Close()
	}
	notebook.Check(err)
	s.Text("The training took %.0f s for %d steps, %s letters a second, on %s.", h.Time.Seconds(), h.Steps, figure.Number(h.Rate()*float64(s.lines*s.length)), s.Where())
	s.drawBits(h)
	s.compare()
}

// compare compares the network with counting.
func (s *story) compare() {
	last, beaten := s.points[len(s.points)-1].held, -1
	for n, b := range s.counts {
		if last < b && n == beaten+1 {
			beaten = n
		}
	}
	want := s.Size(2, 2, 0) // letters before the next one
	if beaten < want {
		notebook.Fail("a letter costs %s bits, want less than the %s of counting with %d letters before it: are %d steps enough?", bits(last), bits(s.counts[want]), want, s.steps)
	}
	s.Text("At the end a letter costs %s bits, less than the %s of counting with %d letters before the next one. The program fails if it is not less than %s.", bits(last), bits(s.counts[beaten]), beaten, bits(s.counts[want]))
	if beaten+1 < len(s.counts) {
		s.Text("With %d letters before the next one, counting still does better: %s.", beaten+1, bits(s.counts[beaten+1]))
		if s.GPU() == nil {
			s.Text("On a GPU the program takes a larger network and more steps.")
		}
	}
}

// drawBits draws the cost of a letter by step.
func (s *story) drawBits(h train.History) {
	trained := figure.Series{Name: "what is read, mean of some steps", Colour: figure.Blue}
	window := max(len(h.Losses)/40, 1)
	for at := 0; at+window <= len(h.Losses); at += window {
		sum := 0.0
		for _, l := range h.Losses[at : at+window] {
			sum += l.Loss / math.Ln2 / float64(window)
		}
		trained.X, trained.Y = append(trained.X, float64(at)+float64(window+1)/2), append(trained.Y, sum)
	}
	held := figure.Series{Name: "what is held out", Colour: figure.Amber}
	for _, p := range s.points {
		held.X, held.Y = append(held.X, float64(p.step)), append(held.Y, p.held)
	}
	chart := figure.Chart{Title: "What a letter costs", XLabel: "step", YLabel: "bits", Series: []figure.Series{trained, held}}
	for n, b := range s.counts {
		chart.Series = append(chart.Series, figure.Series{Name: fmt.Sprintf("counting, %d before", n), Colour: figure.Muted, X: []float64{0, float64(s.steps)}, Y: []float64{b, b}})
	}
	s.Figure("bits", fmt.Sprintf("Bits a letter by step, on %s. The level lines are the bits that counting takes for the held-out text, with 0 to %d letters before the next one.", s.Where(), len(s.counts)-1), chart)
}
