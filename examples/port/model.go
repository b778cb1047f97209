// Port takes a program of Gorgonia's to the GPU in four steps, and times each: the code of
// docs/port-your-program.md.
//
//	go run ./examples/port
package main

import (
	"math/rand/v2"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The perceptron of the page: 784-512-512-10, in batches of 128.
const (
	batch   = 128
	pixels  = 784
	hidden  = 512
	classes = 10
)

// model is a graph with the nodes that a training needs.
type model struct {
	learnables G.Nodes
	loss       *G.Node
	cost       G.Value // the loss of the last run
}

// newModel builds the classifier of a batch of images x with their classes y, one-hot, and the
// gradients, with Gorgonia's ops alone.
func newModel(x, y *G.Node, seed uint64) (*model, error) {
	g, random := x.Graph(), rand.New(rand.NewPCG(seed, 0))
	m := &model{}
	layer := func(in *G.Node, name string, outputs int) *G.Node {
		inputs := in.Shape()[1]
		start := make([]float32, inputs*outputs)
		for i := range start {
			start[i] = float32(random.NormFloat64()) * 2 / float32(inputs+outputs)
		}
		w := G.NewMatrix(g, tensor.Float32, G.WithName("w"+name), G.WithShape(inputs, outputs),
			G.WithValue(tensor.New(tensor.WithShape(inputs, outputs), tensor.WithBacking(start))))
		b := G.NewVector(g, tensor.Float32, G.WithName("b"+name), G.WithShape(outputs), G.WithInit(G.Zeroes()))
		m.learnables = append(m.learnables, w, b)
		return G.Must(G.BroadcastAdd(G.Must(G.Mul(in, w)), b, nil, []byte{0}))
	}
	h := G.Must(G.Rectify(layer(x, "1", hidden)))
	h = G.Must(G.Rectify(layer(h, "2", hidden)))
	probability := G.Must(G.SoftMax(layer(h, "3", classes)))
	likelihood := G.Must(G.HadamardProd(G.Must(G.Log(probability)), y))
	m.loss = G.Must(G.Neg(G.Must(G.Mean(G.Must(G.Sum(likelihood, 1))))))
	G.Read(m.loss, &m.cost)
	_, err := G.Grad(m.loss, m.learnables...)
	return m, err
}

// inputs returns nodes for a batch.
func inputs(g *G.ExprGraph) (x, y *G.Node) {
	return G.NewMatrix(g, tensor.Float32, G.WithName("x"), G.WithShape(batch, pixels)),
		G.NewMatrix(g, tensor.Float32, G.WithName("y"), G.WithShape(batch, classes))
}

// solver returns the solver that all steps of the page use.
func solver() *G.AdamSolver { return G.NewAdamSolver(G.WithLearnRate(0.001)) }
