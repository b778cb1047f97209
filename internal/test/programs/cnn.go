package programs

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// CNN is a network of two convolutions with batch normalization, for images of one channel.
type CNN struct{ Side, Channels, Classes int }

// Network is a graph of a CNN for batches of one size.
type Network struct {
	Graph        *G.ExprGraph
	X, Labels    *G.Node
	Logits, Loss *G.Node
	Best         *G.Node // the class of each image
	Parameters   []*G.Node
	States       [][2]*G.Node // running means and variances, each with its next value

	random *rand.Rand
	err    error
}

func (n *Network) keep(x *G.Node, err error) *G.Node {
	if n.err == nil && err != nil {
		n.err = err
	}
	return x
}

// vector returns a parameter or state of one number a channel.
func (n *Network) vector(name string, constant float32, size int) *G.Node {
	return G.NewVector(n.Graph, tensor.Float32, G.WithName(name), G.WithShape(size), G.WithInit(G.ValuesOf(constant)))
}

func (n *Network) weight(name string, shape ...int) *G.Node {
	v := tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(shape...))
	for i := range v.Float32s() {
		v.Float32s()[i] = float32(n.random.NormFloat64() * math.Sqrt(2/float64(v.Size()/shape[0])))
	}
	w := G.NewTensor(n.Graph, tensor.Float32, len(shape), G.WithShape(shape...), G.WithName(name), G.WithValue(v))
	n.Parameters = append(n.Parameters, w)
	return w
}

// block is a convolution, a batch normalization, a ReLU and a max-pooling.
func (n *Network) block(x *G.Node, name string, channels int) *G.Node {
	if n.err != nil {
		return nil
	}
	x = n.keep(G.Conv2d(x, n.weight(name+".weight", channels, x.Shape()[1], 3, 3), tensor.Shape{3, 3}, []int{1, 1}, []int{1, 1}, []int{1, 1}))
	if n.err != nil {
		return nil
	}
	scale, bias := n.vector(name+".bn.weight", 1, channels), n.vector(name+".bn.bias", 0, channels)
	n.Parameters = append(n.Parameters, scale, bias)
	mean, variance := n.vector(name+".bn.running_mean", 0, channels), n.vector(name+".bn.running_var", 1, channels)
	y, nextMean, nextVariance, err := ops.BatchNorm(x, scale, bias, mean, variance, 0.1, 1e-5)
	if n.keep(nil, err); n.err != nil {
		return nil
	}
	n.States = append(n.States, [2]*G.Node{mean, nextMean}, [2]*G.Node{variance, nextVariance})
	return n.keep(G.MaxPool2D(n.keep(G.Rectify(y)), tensor.Shape{2, 2}, []int{0, 0}, []int{2, 2}))
}

// Build returns the graph for a batch of images.
func (c CNN) Build(batch int) (*Network, error) {
	n := &Network{Graph: G.NewGraph(), random: rand.New(rand.NewPCG(1, 1))}
	n.X = G.NewTensor(n.Graph, tensor.Float32, 4, G.WithShape(batch, 1, c.Side, c.Side), G.WithName("x"))
	n.Labels = G.NewVector(n.Graph, tensor.Int64, G.WithShape(batch), G.WithName("labels"))
	x := n.block(n.block(n.X, "conv1", c.Channels), "conv2", 2*c.Channels)
	if n.err != nil {
		return nil, n.err
	}
	features := x.Shape().TotalSize() / batch
	x = n.keep(ops.Dropout(n.keep(ops.Reshape(x, batch, features)), 0.25))
	bias := n.vector("fc.bias", 0, c.Classes)
	n.Parameters = append(n.Parameters, bias)
	if n.err != nil {
		return nil, n.err
	}
	n.Logits = n.keep(ops.Linear(x, n.weight("fc.weight", c.Classes, features), bias))
	if n.err != nil {
		return nil, n.err
	}
	n.Loss, n.Best = n.keep(ops.CrossEntropy(n.Logits, n.Labels)), n.keep(ops.ArgMax(n.Logits, -1))
	if n.err != nil {
		return nil, n.err
	}
	if _, err := G.Grad(n.Loss, n.Parameters...); err != nil {
		return nil, fmt.Errorf("gradients: %w", err)
	}
	return n, nil
}
