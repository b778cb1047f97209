package graphspec

import (
	"fmt"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// LSTM is a layer of long short-term memory (Hochreiter and Schmidhuber, 1997) that reads sequences of vectors, built
// step by step of Gorgonia's ops, with a dense layer behind its last state, the cross-entropy as
// loss, and the gradients by all weights and biases. It has no reference.
func LSTM(batch, length, inputs, hidden, classes int) Case {
	c := Case{
		Name: fmt.Sprintf("LSTM %d-%d, %d steps, gradient", inputs, hidden, length), Size: fmt.Sprintf("batch %d", batch), Rows: batch,
		Inputs: []Input{
			{Name: "x", Shape: tensor.Shape{length, batch, inputs}},
			{Name: "h", Shape: tensor.Shape{batch, hidden}, Kind: "zeros"},
			{Name: "c", Shape: tensor.Shape{batch, hidden}, Kind: "zeros"},
			{Name: "classes", Shape: tensor.Shape{batch, classes}, Kind: "classes"},
		},
		Outputs: []Output{{Name: "loss", Elements: 1, Sum: true}},
		Build: func(in G.Nodes) G.Nodes {
			return gradients(lstmLoss(in[0], in[1], in[2], in[3], in[4:]), in[4:]...)
		},
		// Nobody asks for the gradients of the vectors and of the first states.
		Flops: 2*2*int64(batch*length*inputs*4*hidden) + 3*2*int64(batch*length*hidden*4*hidden) + 3*2*int64(batch*hidden*classes),
	}
	for i, shape := range []tensor.Shape{{inputs, 4 * hidden}, {hidden, 4 * hidden}, {4 * hidden}, {hidden, classes}, {classes}} {
		c.Inputs = append(c.Inputs, Input{Name: fmt.Sprintf("w%d", i), Shape: shape, Whole: true, Kind: "weights"})
		c.Outputs = append(c.Outputs, Output{Name: fmt.Sprintf("dw%d", i), Elements: shape.TotalSize(), Sum: true})
	}
	return c
}

// lstmLoss is the loss; w are the weights of the vectors and of the state before, the bias, and
// weights and bias of the dense layer.
func lstmLoss(x, h, c, classes *G.Node, w G.Nodes) *G.Node {
	shape, hidden := x.Shape(), h.Shape()[1]
	length, batch := shape[0], shape[1]
	in := G.Must(G.Mul(G.Must(G.Reshape(x, tensor.Shape{length * batch, shape[2]})), w[0]))
	in = G.Must(G.BroadcastAdd(in, w[2], nil, []byte{0}))
	in = G.Must(G.Reshape(in, tensor.Shape{length, batch, 4 * hidden}))
	for t := range length {
		gates := G.Must(G.Add(G.Must(G.Slice(in, G.S(t))), G.Must(G.Mul(h, w[1]))))
		gates = G.Must(G.Reshape(gates, tensor.Shape{batch, 4, hidden}))
		part := func(i int) *G.Node { return G.Must(G.Slice(gates, nil, G.S(i))) }
		keep, add, show := G.Must(G.Sigmoid(part(0))), G.Must(G.Sigmoid(part(1))), G.Must(G.Sigmoid(part(2)))
		c = G.Must(G.Add(G.Must(G.HadamardProd(keep, c)), G.Must(G.HadamardProd(add, G.Must(G.Tanh(part(3)))))))
		h = G.Must(G.HadamardProd(show, G.Must(G.Tanh(c))))
	}
	return classLoss(G.Must(G.BroadcastAdd(G.Must(G.Mul(h, w[3])), w[4], nil, []byte{0})), classes)
}
