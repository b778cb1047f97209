package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// network is the program: its graph, its inputs and its outputs.
type network struct {
	graph      *G.ExprGraph
	x, y       *G.Node // images and labels
	parameters G.Nodes // weights and biases alternate
	loss       *G.Node
}

// newNetwork builds a perceptron for n images at a time, of layers of the given widths:
// rectifiers between the layers, softmax behind them, and the mean cross-entropy as loss.
// Grad adds the gradients by all parameters.
func newNetwork(n int, widths []int) (*network, error) {
	g := G.NewGraph()
	last := len(widths) - 1
	x := G.NewMatrix(g, tensor.Float32, G.WithShape(n, widths[0]), G.WithName("x"))
	y := G.NewMatrix(g, tensor.Float32, G.WithShape(n, widths[last]), G.WithName("y"))
	var parameters G.Nodes
	h := x
	for i := range last {
		w := G.NewMatrix(g, tensor.Float32, G.WithShape(widths[i], widths[i+1]), G.WithName(fmt.Sprintf("w%d", i+1)))
		b := G.NewVector(g, tensor.Float32, G.WithShape(widths[i+1]), G.WithName(fmt.Sprintf("b%d", i+1)))
		parameters = append(parameters, w, b)
		if i > 0 {
			h = G.Must(G.Rectify(h))
		}
		h = G.Must(G.BroadcastAdd(G.Must(G.Mul(h, w)), b, nil, []byte{0}))
	}
	likelihood := G.Must(G.Sum(G.Must(G.HadamardProd(y, G.Must(G.Log(G.Must(G.SoftMax(h)))))), 1))
	loss := G.Must(G.Neg(G.Must(G.Mean(likelihood))))
	_, err := G.Grad(loss, parameters...)
	return &network{g, x, y, parameters, loss}, err
}

// initialise draws the weights from a normal distribution of variance 2 / rows, which
// suits rectifiers (He et al., 2015). The biases start at zero.
func (net *network) initialise(seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	for _, p := range net.parameters {
		deviation := 0.0
		if s := p.Shape(); s.Dims() == 2 {
			deviation = math.Sqrt(2 / float64(s[0]))
		}
		notebook.Check(notebook.Draw(p, r, deviation))
	}
}

// A batch is the images and labels of a step.
type batch struct{ images, labels *tensor.Dense }

// train takes a step for each batch and returns the losses.
func (net *network) train(vm G.VM, batches []batch, solver G.Solver) (losses []float64, err error) {
	for _, b := range batches {
		if err := net.run(vm, b); err != nil {
			return nil, err
		}
		losses = append(losses, float64(net.loss.Value().Data().(float32)))
		if err := solver.Step(G.NodesToValueGrads(net.parameters)); err != nil {
			return nil, err
		}
	}
	return losses, nil
}

// bind makes a batch the input.
func (net *network) bind(b batch) error {
	if err := G.Let(net.x, b.images); err != nil {
		return err
	}
	return G.Let(net.y, b.labels)
}

// run runs a machine once on a batch.
func (net *network) run(vm G.VM, b batch) error {
	if err := net.bind(b); err != nil {
		return err
	}
	vm.Reset()
	return vm.RunAll()
}

// gradients returns a copy of the gradients by the parameters, and sets them to zero: the tape machine
// adds up.
func (net *network) gradients() (list [][]float32) {
	for _, p := range net.parameters {
		v := notebook.Must(p.Grad()).Data().([]float32)
		list = append(list, slices.Clone(v))
		clear(v)
	}
	return list
}
