package graphspec

import (
	"fmt"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// net is a convolutional network for square images of one channel: convolutions of 3 x 3
// with so many filters, each with padding, rectifier and max-pooling of 2 x 2 behind
// it; then two dense layers, a rectifier between them, and softmax. There are no biases.
type net struct {
	side    int
	filters []int
	hidden  int
	classes int
}

// example is the network of Gorgonia's example convnet, without its dropout.
var example = net{28, []int{32, 64, 128}, 625, 10}

// flat is the number of elements that the convolutions make of an image.
func (n net) flat() int {
	side := n.side
	for range n.filters {
		side /= 2
	}
	return side * side * n.filters[len(n.filters)-1]
}

// Convnet is such a network on a batch of images, with the cross-entropy as loss and the
// gradients by all weights.
func Convnet(batch int, n net) Case {
	c := Case{
		Name: "convnet, gradient", Size: fmt.Sprintf("batch %d", batch), Rows: batch, Tolerance: 1e-4,
		Inputs: []Input{
			{Name: "x", Shape: tensor.Shape{batch, 1, n.side, n.side}},
			{Name: "classes", Shape: tensor.Shape{batch, n.classes}, Fill: oneHot},
		},
		Outputs: []Output{{Name: "loss", Elements: 1, Sum: true}},
		Build:   func(in G.Nodes) G.Nodes { return gradients(n.loss(in[0], in[1], in[2:]), in[2:]...) },
		Row:     func(in, out [][]float64) { n.row(in, out, float64(batch)) },
	}
	if n.side != example.side {
		c.Name = fmt.Sprintf("convnet %+v, gradient", n)
	}
	weight := func(products int, shape ...int) {
		i, elements := len(c.Inputs)-2, tensor.Shape(shape).TotalSize()
		c.Inputs = append(c.Inputs, Input{Name: fmt.Sprintf("w%d", i), Shape: shape, Whole: true, Fill: weights})
		c.Outputs = append(c.Outputs, Output{Name: fmt.Sprintf("dw%d", i), Elements: elements, Sum: true})
		of := 3 // the value, and the gradients by weights and input
		if i == 0 {
			of = 2 // nobody asks for the images' gradient
		}
		c.Flops += 2 * int64(of*batch*products*elements)
	}
	channels, side := 1, n.side
	for _, filters := range n.filters {
		weight(side*side, filters, channels, 3, 3)
		channels, side = filters, side/2
	}
	weight(1, n.flat(), n.hidden)
	weight(1, n.hidden, n.classes)
	return c
}

// loss builds the network with weights w.
func (n net) loss(x, classes *G.Node, w G.Nodes) *G.Node {
	pair := func(v int) []int { return []int{v, v} }
	for i := range n.filters {
		x = G.Must(G.Rectify(G.Must(G.Conv2d(x, w[i], pair(3), pair(1), pair(1), pair(1)))))
		x = G.Must(G.MaxPool2D(x, pair(2), pair(0), pair(2)))
	}
	x = G.Must(G.Reshape(x, tensor.Shape{x.Shape()[0], n.flat()}))
	x = G.Must(G.Rectify(G.Must(G.Mul(x, w[len(w)-2]))))
	return classLoss(G.Must(G.Mul(x, w[len(w)-1])), classes)
}

// planes are the channels of an image, each of side x side elements.
type planes struct {
	v              []float64
	channels, side int
}

// at returns an element, 0 outside.
func (p planes) at(c, y, x int) float64 {
	if y < 0 || y >= p.side || x < 0 || x >= p.side {
		return 0
	}
	return p.v[(c*p.side+y)*p.side+x]
}

func newPlanes(channels, side int) planes {
	return planes{make([]float64, channels*side*side), channels, side}
}

// row is the part of a sample, one of batch, in the loss and the gradients.
func (n net) row(in, out [][]float64, batch float64) {
	w, dw := in[2:], out[1:]
	layers := len(n.filters)
	inputs, activations := make([]planes, layers), make([]planes, layers)
	from := make([][]int, layers) // where each element of a pool is from
	x := planes{in[0], 1, n.side}
	for i, filters := range n.filters {
		inputs[i], activations[i] = x, convolve(x, w[i], filters)
		x, from[i] = pool(activations[i])
	}
	hidden, scores := make([]float64, n.hidden), make([]float64, n.classes)
	for k, v := range x.v {
		for j := range hidden {
			hidden[j] += v * w[layers][k*n.hidden+j]
		}
	}
	for k := range hidden {
		hidden[k] = max(hidden[k], 0)
		for j := range scores {
			scores[j] += hidden[k] * w[layers+1][k*n.classes+j]
		}
	}
	d, dHidden := make([]float64, n.classes), make([]float64, n.hidden)
	out[0][0] = crossEntropy(scores, in[1], batch, d)
	for k, v := range hidden {
		for j, g := range d {
			dw[layers+1][k*n.classes+j] = v * g
		}
		if v > 0 {
			dHidden[k] = dot(w[layers+1][k*n.classes:(k+1)*n.classes], d)
		}
	}
	dx := newPlanes(x.channels, x.side)
	for k, v := range x.v {
		for j, g := range dHidden {
			dw[layers][k*n.hidden+j] = v * g
		}
		dx.v[k] = dot(w[layers][k*n.hidden:(k+1)*n.hidden], dHidden)
	}
	for i := layers - 1; i >= 0; i-- {
		da := newPlanes(activations[i].channels, activations[i].side)
		for k, at := range from[i] {
			if activations[i].v[at] > 0 {
				da.v[at] = dx.v[k]
			}
		}
		dx = convolveGradient(inputs[i], w[i], da, dw[i])
	}
}

// convolve returns the rectified convolution of x with filters of 3 x 3.
func convolve(x planes, w []float64, filters int) planes {
	y := newPlanes(filters, x.side)
	for f := range filters {
		for c := range x.channels {
			taps := w[(f*x.channels+c)*9:][:9]
			for k := range x.side * x.side {
				for t, tap := range taps {
					y.v[f*x.side*x.side+k] += tap * x.at(c, k/x.side+t/3-1, k%x.side+t%3-1)
				}
			}
		}
	}
	for k, v := range y.v {
		y.v[k] = max(v, 0)
	}
	return y
}

// convolveGradient returns the gradient by x and writes that by w, given that by what
// convolve made, before the rectifier.
func convolveGradient(x planes, w []float64, dy planes, dw []float64) planes {
	dx := newPlanes(x.channels, x.side)
	for f := range dy.channels {
		for k, g := range dy.v[f*x.side*x.side:][:x.side*x.side] {
			if g == 0 {
				continue
			}
			for c := range x.channels {
				for t := range 9 {
					i, j, at := k/x.side+t/3-1, k%x.side+t%3-1, (f*x.channels+c)*9+t
					if dw[at] += g * x.at(c, i, j); i >= 0 && i < x.side && j >= 0 && j < x.side {
						dx.v[(c*x.side+i)*x.side+j] += g * w[at]
					}
				}
			}
		}
	}
	return dx
}

// pool returns the greatest of each 2 x 2 elements, and where it is.
func pool(x planes) (y planes, from []int) {
	y = newPlanes(x.channels, x.side/2)
	from = make([]int, len(y.v))
	for k := range y.v {
		c, i, j := k/(y.side*y.side), k/y.side%y.side, k%y.side
		from[k] = (c*x.side+2*i)*x.side + 2*j
		for _, at := range []int{from[k], from[k] + 1, from[k] + x.side, from[k] + x.side + 1} {
			if x.v[at] > x.v[from[k]] {
				from[k] = at
			}
		}
		y.v[k] = x.v[from[k]]
	}
	return y, from
}
