package main

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/examples/internal/digits"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// network is the program: its graph, its inputs and its outputs.
type network struct {
	graph      *G.ExprGraph
	images     int     // at a time
	x, y       *G.Node // images and one-hot labels
	parameters G.Nodes
	loss       *G.Node
	logp, seen G.Value // logarithms of probabilities, and the first layer's output
}

// newNetwork builds the network for n images at a time. Three convolutions, each with a rectifier,
// find features, the later ones of the earlier ones' features; maxima over 2 x 2 pixels halve
// the image twice, 8 to 4 to 2; and a layer of ten sums decides. In training, dropout takes some of the
// features away, so that the sums do not rely on one.
func newNetwork(n int, dropout float64) *network {
	g := G.NewGraph()
	net := &network{graph: g, images: n}
	net.x = G.NewTensor(g, tensor.Float32, 4, G.WithName("x"), G.WithShape(n, 1, digits.Side, digits.Side))
	net.y = G.NewMatrix(g, tensor.Float32, G.WithName("y"), G.WithShape(n, digits.Classes))

	h := net.convolution(net.x, 16)
	G.Read(h, &net.seen)
	h = net.convolution(halve(h), 32)
	h = halve(net.convolution(h, 32))

	features := h.Shape().TotalSize() / n
	h = G.Must(G.Reshape(h, tensor.Shape{n, features}))
	if dropout > 0 {
		h = G.Must(G.Dropout(h, dropout))
	}
	w, b := net.parameter("weights", features, digits.Classes), net.parameter("bias", digits.Classes)
	logp := G.Must(G.LogSoftMax(G.Must(G.BroadcastAdd(G.Must(G.Mul(h, w)), b, nil, []byte{0}))))
	G.Read(logp, &net.logp)
	likelihood := G.Must(G.Sum(G.Must(G.HadamardProd(net.y, logp)), 1))
	net.loss = G.Must(G.Neg(G.Must(G.Mean(likelihood))))
	return net
}

// convolution adds a layer: each feature is a sum over 3 x 3 pixels of all features below, with
// the same weights at every place, and is 0 where the sum is negative.
func (net *network) convolution(h *G.Node, features int) *G.Node {
	layer := fmt.Sprint(1 + len(net.parameters)/2)
	w := net.parameter("filters "+layer, features, h.Shape()[1], 3, 3)
	b := net.parameter("biases "+layer, 1, features, 1, 1)
	h = G.Must(G.Conv2d(h, w, tensor.Shape{3, 3}, []int{1, 1}, []int{1, 1}, []int{1, 1}))
	return G.Must(G.Rectify(G.Must(G.BroadcastAdd(h, b, nil, []byte{0, 2, 3}))))
}

// halve takes the greatest of each 2 x 2 pixels.
func halve(h *G.Node) *G.Node {
	return G.Must(G.MaxPool2D(h, tensor.Shape{2, 2}, []int{0, 0}, []int{2, 2}))
}

func (net *network) parameter(name string, shape ...int) *G.Node {
	p := G.NewTensor(net.graph, tensor.Float32, len(shape), G.WithName(name), G.WithShape(shape...))
	net.parameters = append(net.parameters, p)
	return p
}

// initialise draws the weights from a normal distribution of variance 2 / inputs, which
// suits rectifiers (He et al., 2015). The biases start at zero.
func (net *network) initialise(r *rand.Rand) error {
	for i, p := range net.parameters {
		deviation := 0.0
		if i%2 == 0 { // weights and biases alternate
			inputs := p.Shape()[0]
			if p.Dims() == 4 {
				inputs = p.Shape()[1:].TotalSize()
			}
			deviation = math.Sqrt(2 / float64(inputs))
		}
		if err := notebook.Draw(p, r, deviation); err != nil {
			return err
		}
	}
	return nil
}

// program shows the network.
func program(s *story) {
	s.Heading("The network")
	s.Text("The program is plain Gorgonia:")
	s.GoFunction("model.go", "newNetwork", "convolution")
	net := newNetwork(1, 0)
	t := figure.Table{Caption: "What there is to learn", Header: []string{"parameters", "shape", "numbers"}}
	sum := 0
	for _, p := range net.parameters {
		sum += p.Shape().TotalSize()
		t.Add(p.Name(), []int(p.Shape()), p.Shape().TotalSize())
	}
	t.Add("all", "", sum)
	s.Table(t)
	s.Text("The filters are shared by all places of an image, so their number does not grow with it.")
}
