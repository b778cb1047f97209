package nn_test

import (
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// This file holds programs as users write them, for tests of the whole: a GPT and a convolutional network.

// GPT is a decoder-only transformer with learned positions, in the layout of GPT-2.
type GPT struct {
	Layers, Width, Heads, Vocabulary, Context int
	Dtype                                     tensor.Dtype
}

// logits returns the logits of the token after each one. tokens are batch x time.
func (m GPT) logits(s *nn.Scope, tokens *G.Node) *G.Node {
	x := nn.Positions(s.At("wpe"), nn.Embedding(s.At("wte"), tokens, m.Vocabulary, m.Width), m.Context)
	for l := range m.Layers {
		s := s.At("h", l)
		x = nn.Residual(s, x, func(s *nn.Scope, x *G.Node) *G.Node {
			q, k, v := nn.Split3(s, nn.Linear(s.At("attn.c_attn"), nn.LayerNorm(s.At("ln_1"), x), 3*m.Width))
			return nn.Linear(s.At("attn.c_proj"), nn.Attention(s.At("attn"), q, k, v, m.Heads, nn.Causal()), m.Width)
		})
		x = nn.Residual(s, x, func(s *nn.Scope, x *G.Node) *G.Node {
			x = nn.GELUTanh(s, nn.Linear(s.At("mlp.c_fc"), nn.LayerNorm(s.At("ln_2"), x), 4*m.Width))
			return nn.Linear(s.At("mlp.c_proj"), x, m.Width)
		})
	}
	return nn.Linear(s.At("wte").Tied(), nn.LayerNorm(s.At("ln_f"), x), m.Vocabulary, nn.NoBias())
}

// scope returns the scope of a new graph, with GPT-2's initial values.
func (m GPT) scope(opts ...nn.Option) *nn.Scope {
	return nn.New(G.NewGraph(), append(opts, nn.Seed(1), nn.Dtype(m.Dtype), nn.Initial(nn.NormalWeights(0.02)))...)
}

// Trained is a graph that trains.
type Trained struct {
	Graph          *G.ExprGraph
	Tokens, Labels *G.Node // batch x time; label i is the token after token i
	Logits, Loss   *G.Node
	Parameters     []*G.Node
}

// Train returns the graph of a loss and its gradients.
func (m GPT) Train(batch, time int, opts ...nn.Option) (*Trained, error) {
	s := m.scope(opts...)
	t := &Trained{Graph: s.Graph(), Tokens: s.Input("tokens", tensor.Int32, batch, time), Labels: s.Input("labels", tensor.Int32, batch, time)}
	t.Logits = m.logits(s, t.Tokens)
	t.Loss = nn.CrossEntropy(s, t.Logits, t.Labels)
	t.Parameters = s.Parameters()
	return t, s.Grad(t.Loss)
}

// Step is a graph that draws one token after another, with caches.
type Step struct {
	*nn.Scope
	Token        *G.Node // a state: the last token of each row
	Logits, Next *G.Node
}

// Step returns the graph of one token. temperature, k and p are those of ops.Categorical.
func (m GPT) Step(batch int, temperature, k, p any, opts ...nn.Option) (*Step, error) {
	s := &Step{Scope: m.scope(append(opts, nn.Evaluation(), nn.Cached(m.Context))...)}
	s.Token = s.Cache("token", tensor.Int, batch, 1)
	s.Logits = m.logits(s.Scope, s.Token)
	s.Next = s.Keep(ops.Categorical(s.Logits, temperature, k, p)) // batch x 1
	s.Scope.Next(s.Token, s.Next)
	return s, s.Err()
}

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

// ResNet is ResNet-18 for images of 3 channels and side 32, as examples/14-resnet has it.
type ResNet struct{ Width, Classes int }

// Train returns the graph of a batch with its loss and the gradients.
func (m ResNet) Train(batch, side int, opts ...nn.Option) (*Network, error) {
	s := nn.New(G.NewGraph(), append(opts, nn.Seed(1))...)
	n := &Network{Scope: s, X: s.Input("x", tensor.Float32, batch, 3, side, side), Labels: s.Input("labels", tensor.Int64, batch)}
	normed := func(s *nn.Scope, k int, x *G.Node, out, size, stride int) *G.Node {
		return nn.BatchNorm(s.At("bn", k), nn.Conv2d(s.At("conv", k), x, out, size, nn.Stride(stride), nn.Padding(size/2), nn.NoBias()))
	}
	x := nn.ReLU(s, normed(s, 1, n.X, m.Width, 3, 1))
	for i := range 8 {
		s, stride := s.At("block", i), 1
		if i > 0 && i%2 == 0 {
			stride = 2
		}
		y := normed(s, 2, nn.ReLU(s, normed(s, 1, x, m.Width<<(i/2), 3, stride)), m.Width<<(i/2), 3, 1)
		if stride > 1 {
			x = normed(s, 3, x, m.Width<<(i/2), 1, stride)
		}
		x = nn.ReLU(s, s.Keep(ops.Add(y, x)))
	}
	n.Logits = nn.Linear(s.At("fc"), nn.GlobalAvgPool(s, x), m.Classes)
	n.Loss = nn.CrossEntropy(s, n.Logits, n.Labels)
	return n, s.Grad(n.Loss)
}
