package main

import (
	_ "embed"
	"fmt"
	"math"
	"math/rand/v2"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// modelSource is this file, whose functions the page shows.
//
//go:embed model.go
var modelSource string

// network is the program: its graph, its inputs and its outputs.
type network struct {
	graph      *G.ExprGraph
	x, y       *G.Node // images and labels
	parameters G.Nodes // weights and biases by turns
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
func (net *network) initialise(seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 1))
	for _, p := range net.parameters {
		s := p.Shape()
		values := make([]float32, s.TotalSize())
		if s.Dims() == 2 {
			deviation := math.Sqrt(2 / float64(s[0]))
			for i := range values {
				values[i] = float32(r.NormFloat64() * deviation)
			}
		}
		if err := G.Let(p, tensor.New(tensor.WithShape(s...), tensor.WithBacking(values))); err != nil {
			return err
		}
	}
	return nil
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

// gradients returns a copy of the gradients by the parameters.
func (net *network) gradients() (list [][]float32, err error) {
	for _, p := range net.parameters {
		v, err := p.Grad()
		if err != nil {
			return nil, err
		}
		list = append(list, append([]float32(nil), v.Data().([]float32)...))
	}
	return list, nil
}
