package programs

import (
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// CNN is a network of two convolutions with batch normalization, for images of one channel.
type CNN struct{ Side, Channels, Classes int }

// Network is a graph of a CNN for batches of one size.
type Network struct {
	*nn.Scope
	X, Labels    *G.Node
	Logits, Loss *G.Node
	Best         *G.Node // the class of each image
}

// Build returns the graph for a batch of images, which trains unless an option is nn.Evaluation.
func (c CNN) Build(batch int, opts ...nn.Option) (*Network, error) {
	s := nn.New(G.NewGraph(), append(opts, nn.Seed(1))...)
	n := &Network{Scope: s, X: s.Input("x", tensor.Float32, batch, 1, c.Side, c.Side), Labels: s.Input("labels", tensor.Int64, batch)}
	x := n.X
	for i, channels := range []int{c.Channels, 2 * c.Channels} {
		s := s.At("features", i)
		x = nn.Conv2d(s.At("conv"), x, channels, 3, nn.Padding(1), nn.NoBias())
		x = nn.MaxPool2d(s, nn.ReLU(s, nn.BatchNorm(s.At("bn"), x)), 2)
	}
	n.Logits = nn.Linear(s.At("fc"), nn.Dropout(s, nn.Flatten(s, x), 0.25), c.Classes)
	n.Loss, n.Best = nn.CrossEntropy(s, n.Logits, n.Labels), s.Keep(ops.ArgMax(n.Logits, -1))
	return n, s.Grad(n.Loss)
}
