package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	G "gorgonia.org/gorgonia"
)

// program shows the program and the digits.
func program(s *story) {
	hidden := s.Size(512, 128, 32)
	s.images, s.widths = s.Size(128, 64, 32), []int{pixels, hidden, hidden, classes}
	s.Heading("The program")
	s.Text("Now a typical program: a perceptron that learns to read digits. Its layers have %s neurons, and a step of the training takes %d images.", widths(s.widths), s.images)
	if s.GPU() == nil {
		s.Text("There is no GPU here, so these are fewer than in the times that were recorded on one, which are of %s neurons and batches of 128 and 4096.", widths(s.timedLayers()))
	}
	s.Text("The program is plain Gorgonia, nothing in it is Stheno's:")
	s.GoFunction("model.go", "newNetwork")
	s.Text(`The digits are drawn as they are needed: ten shapes of pen strokes, each time of another size, slant, place and pen, with noise. The drawing
		knows which digit it is, so the labels are right.`)
	images, _ := drawBatch(rand.New(rand.NewPCG(3, 4)), 24)
	some := figure.Pictures{Zoom: 3}
	for values := range slices.Chunk(images.Data().([]float32), pixels) {
		some.Images = append(some.Images, figure.Image{Width: side, Values: values})
	}
	s.Figure("digits", "Some of the digits.", some)
}

// Tolerances between the two machines: of the gradients of one run, as the norm of the
// difference over the norm, and of the losses of a training, relative.
const (
	gradientBound = 1e-4
	lossBound     = 1e-3
)

// training trains the program on both machines, from the same weights on the same
// batches.
func training(s *story) {
	steps := s.Size(60, 40, 30)
	s.Heading("One line")
	s.Text("The program is trained with a solver of Gorgonia's. This is all that a training consists of:")
	s.GoFunction("model.go", "train")
	s.Text("Gorgonia's own machine interprets the graph on the CPU. Stheno's compiles it, for a GPU if there is one. To change from one to the other is to change one line:")
	s.GoSource("vm := G.NewTapeMachine(net.graph, G.BindDualValues(net.parameters...)) // Gorgonia's\nvm, err := stheno.NewVM(net.graph)                                     // Stheno's")
	r := rand.New(rand.NewPCG(5, 6))
	batches := make([]batch, steps)
	for i := range batches {
		batches[i].images, batches[i].labels = drawBatch(r, s.images)
	}
	tape := s.trainOn(batches, func(net *network) G.VM {
		return G.NewTapeMachine(net.graph, G.BindDualValues(net.parameters...))
	})
	ours := s.trainOn(batches, func(net *network) G.VM {
		s.net, s.vm = net, newVM(s.Page, net.graph)
		return s.vm
	})
	s.compare(tape, ours)
}

// A trained is the result of a training.
type trained struct {
	gradients [][]float32 // of the first batch, before any step
	losses    []float64
	run       notebook.Measured // time of one run of the machine
}

// trainOn trains a new network of the same first weights on a machine.
func (s *story) trainOn(batches []batch, machine func(*network) G.VM) *trained {
	net := notebook.Must(newNetwork(s.images, s.widths))
	net.initialise(1)
	vm := machine(net)
	notebook.Check(net.run(vm, batches[0]))
	t := &trained{gradients: net.gradients()}
	t.losses = notebook.Must(net.train(vm, batches, G.NewVanillaSolver(G.WithLearnRate(0.1))))
	t.run = s.Time("a run", func() { notebook.Check(net.run(vm, batches[0])) })
	return t
}

// compare compares the two trainings with each other and draws the losses.
func (s *story) compare(tape, ours *trained) {
	worst := 0.0
	for i, g := range ours.gradients {
		worst = max(worst, distance(g, tape.gradients[i]))
	}
	if !(worst <= gradientBound) {
		notebook.Fail("the first gradients differ from the tape machine's by %.2g of their norm, want at most %.2g", worst, gradientBound)
	}
	apart, steps := 0.0, len(ours.losses)
	for i, l := range ours.losses {
		apart = max(apart, math.Abs(l-tape.losses[i])/tape.losses[i])
	}
	if !(apart <= lossBound) {
		notebook.Fail("the losses differ from the tape machine's by %.2g, want at most %.2g", apart, lossBound)
	}
	first, last := ours.losses[0], ours.losses[steps-1]
	if !(last < 0.6*first) {
		notebook.Fail("the loss went from %.3f to %.3f in %d steps, want it to fall by 40 %% at least", first, last, steps)
	}
	losses := figure.Chart{Title: "Loss by step of the training", XLabel: "step", YLabel: "loss", Zero: true, Series: []figure.Series{
		{Name: "Gorgonia's tape machine", Colour: figure.Amber, Y: tape.losses},
		{Name: "Stheno's machine", Colour: figure.Blue, Y: ours.losses, Dots: true},
	}}
	s.Figure("loss", "The same training on both machines. Each step sees new digits, so the loss falls with some noise.", losses)
	s.Text(`In %d steps the loss falls from %.3f to %.3f; guessing has a loss of ln 10 = 2.303. From the same weights, the gradients by all parameters differ by
		at most %.1g of their norm between the two machines, and the losses of the whole training by %.1g. They need not be equal to the bit: the machines add up
		the terms of a product in another order. The program fails if the gradients differ by more than %.0g or the losses by more than %.0g.`,
		steps, first, last, worst, apart, gradientBound, lossBound)
	where := "on the host"
	if s.GPU() != nil {
		where = "on the GPU, with the copies of parameters and gradients"
	}
	s.Text("One run, forward and backward, takes %v by the tape machine on this CPU and %v by Stheno's machine %s.", tape.run, ours.run, where)
}

// distance is the norm of a - b over that of b.
func distance(a, b []float32) float64 {
	var d, n float64
	for i, v := range b {
		d += (float64(a[i]) - float64(v)) * (float64(a[i]) - float64(v))
		n += float64(v) * float64(v)
	}
	return math.Sqrt(d / n)
}

// graph counts the nodes of the program's graph by op.
func graph(s *story) {
	s.Heading("The graph")
	count := map[string]int{}
	for _, n := range s.net.graph.AllNodes() {
		count[opName(n)]++
	}
	names := slices.SortedFunc(maps.Keys(count), func(a, b string) int { return cmp.Or(count[b]-count[a], strings.Compare(a, b)) })
	bars := figure.Bars{Title: "Nodes of the graph by op", Label: "nodes", Series: []figure.BarSeries{{Colour: figure.Blue}}}
	for _, name := range names {
		bars.Add(name, float64(count[name]))
	}
	s.Figure("nodes", "What the graph consists of: its inputs and ops, those of Grad included.", bars)
	s.Text(`The few lines of the program make %d nodes, about half of them by Grad. A rectifier is a comparison with 0 and a product. A bias is reshaped and
		repeated for each image, with a node that says how often. The softmax's logarithm has become a log-softmax. Every product has two more for its derivatives, one of which nobody
		needs: that by the images.`, len(s.net.graph.AllNodes()))
}

// asciiNames are those of ops whose own names the figures' font cannot write.
var asciiNames = strings.NewReplacer("⊙", "* by element", "÷", "/", "Aᵀ × B", "product, first transposed", "A × Bᵀ", "product, second transposed", "A × B", "product", "Σ", "Sum")

// opName names the op of a node, without brackets and counters.
func opName(n *G.Node) string {
	if n.Op() == nil {
		return "input"
	}
	name := n.Op().String()
	if at := strings.IndexAny(name, "({["); at > 0 {
		name = name[:at]
	}
	for _, ending := range []string{" true", " false", "0", "1"} {
		name = strings.TrimSuffix(name, ending)
	}
	if size, _, ok := strings.Cut(name, "Of="); ok { // SizeOf=64
		name = size + "Of"
	}
	return asciiNames.Replace(strings.TrimSpace(name))
}

func widths(list []int) string {
	names := make([]string, len(list))
	for i, w := range list {
		names[i] = fmt.Sprint(w)
	}
	return strings.Join(names, "-")
}
