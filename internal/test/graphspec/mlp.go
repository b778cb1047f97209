package graphspec

import (
	"fmt"
	"math"
	"strings"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// MLP is a perceptron with layers of the given widths, the input's first, on a batch of samples:
// rectifiers between the layers, softmax after them, cross-entropy as the loss, and the gradients
// by all weights and biases.
func MLP(batch int, widths ...int) Case {
	layers := len(widths) - 1
	c := Case{
		Name: "MLP " + strings.Trim(strings.ReplaceAll(fmt.Sprint(widths), " ", "-"), "[]") + ", gradient", Size: fmt.Sprintf("batch %d", batch), Rows: batch,
		// The input's gradient, which nothing uses, is not computed.
		Flops: -2 * int64(batch*widths[0]*widths[1]), Tolerance: 1e-4,
		Inputs:  []Input{{Name: "x", Shape: tensor.Shape{batch, widths[0]}}, {Name: "classes", Shape: tensor.Shape{batch, widths[layers]}, Kind: "classes"}},
		Outputs: []Output{{Name: "loss", Elements: 1, Sum: true}},
		Build:   func(in G.Nodes) G.Nodes { return gradients(mlpLoss(in[0], in[1], in[2:]), in[2:]...) },
		Row:     func(in, out [][]float64, d *Decisions) { mlpRow(in, out, float64(batch), d) },
	}
	for i := range layers {
		from, to := widths[i], widths[i+1]
		c.Inputs = append(c.Inputs,
			Input{Name: fmt.Sprintf("w%d", i), Shape: tensor.Shape{from, to}, Whole: true, Kind: "weights"},
			Input{Name: fmt.Sprintf("b%d", i), Shape: tensor.Shape{to}, Whole: true, Kind: "weights"})
		c.Outputs = append(c.Outputs,
			Output{Name: fmt.Sprintf("dw%d", i), Elements: from * to, Sum: true},
			Output{Name: fmt.Sprintf("db%d", i), Elements: to, Sum: true})
		c.Flops += 3 * 2 * int64(batch*from*to)
	}
	return c
}

// mlpLoss builds the loss; w has the weights and biases of the layers in turn.
func mlpLoss(x, classes *G.Node, w G.Nodes) *G.Node {
	for i := 0; i < len(w); i += 2 {
		if i > 0 {
			x = G.Must(G.Rectify(x))
		}
		x = G.Must(G.BroadcastAdd(G.Must(G.Mul(x, w[i])), w[i+1], nil, []byte{0}))
	}
	return classLoss(x, classes)
}

// classLoss is the mean over samples of the cross-entropy between the softmax of scores and
// classes, one-hot.
func classLoss(scores, classes *G.Node) *G.Node {
	likelihood := G.Must(G.HadamardProd(G.Must(G.Log(G.Must(G.SoftMax(scores)))), classes))
	return G.Must(G.Neg(G.Must(G.Mean(G.Must(G.Sum(likelihood, 1))))))
}

// mlpRow adds the part of one of n samples in the loss and the gradients.
func mlpRow(in, out [][]float64, n float64, d *Decisions) {
	w, gradients := in[2:], out[1:]
	values := [][]float64{in[0]} // before each layer
	var through [][]bool         // the elements that the rectifiers after the layers let through
	for i := 0; i < len(w); i += 2 {
		x, y := values[i/2], append([]float64(nil), w[i+1]...)
		for k, v := range x {
			for j, weight := range w[i][k*len(y) : (k+1)*len(y)] {
				y[j] += v * weight
			}
		}
		if i+2 < len(w) {
			through = append(through, rectify(y, len(x), d))
		}
		values = append(values, y)
	}
	last := values[len(values)-1]
	slope := make([]float64, len(last))
	out[0][0] = crossEntropy(last, in[1], n, slope)
	for i := len(w) - 2; i >= 0; i -= 2 {
		x := values[i/2]
		copy(gradients[i+1], slope)
		before := make([]float64, len(x))
		for k, v := range x {
			row := gradients[i][k*len(slope) : (k+1)*len(slope)]
			for j, g := range slope {
				row[j] = v * g
			}
			if i > 0 && through[i/2-1][k] {
				before[k] = dot(w[i][k*len(slope):(k+1)*len(slope)], slope)
			}
		}
		slope = before
	}
}

// rectify sets numbers below 0 to 0, each the sum of `products` products, and returns which have a
// derivative.
func rectify(y []float64, products int, d *Decisions) (through []bool) {
	through, inDoubt := make([]bool, len(y)), doubt(y, products)
	for j, v := range y {
		through[j] = (v > 0) != d.turns(math.Abs(v), inDoubt)
		y[j] = max(v, 0)
	}
	return through
}
