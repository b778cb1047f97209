package graphspec

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// net is a convolutional network for square images of one channel: 3 x 3 convolutions with that
// many filters, each with padding and followed by a rectifier and 2 x 2 max-pooling; then two dense
// layers with a rectifier between them, and softmax. There are no biases.
type net struct {
	side    int
	filters []int
	hidden  int
	classes int
}

// example is the network of Gorgonia's example convnet, without its dropout.
var example = net{28, []int{32, 64, 128}, 625, 10}

// ConvnetExample is that network on a batch of images.
func ConvnetExample(batch int) Case { return Convnet(batch, example) }

// flat is the number of elements after the convolutions of an image.
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
			{Name: "classes", Shape: tensor.Shape{batch, n.classes}, Kind: "classes"},
		},
		Outputs: []Output{{Name: "loss", Elements: 1, Sum: true}},
		Build:   func(in G.Nodes) G.Nodes { return gradients(n.loss(in[0], in[1], in[2:]), in[2:]...) },
		Row:     func(in, out [][]float64, d *Decisions) { n.row(in, out, float64(batch), d) },
	}
	if n.side != example.side {
		c.Name = fmt.Sprintf("convnet %+v, gradient", n)
	}
	weight := func(products int, shape ...int) {
		i, elements := len(c.Inputs)-2, tensor.Shape(shape).TotalSize()
		c.Inputs = append(c.Inputs, Input{Name: fmt.Sprintf("w%d", i), Shape: shape, Whole: true, Kind: "weights"})
		c.Outputs = append(c.Outputs, Output{Name: fmt.Sprintf("dw%d", i), Elements: elements, Sum: true})
		of := 3 // the value, and the gradients by weights and input
		if i == 0 {
			of = 2 // the images' gradient is not needed
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

func newPlanes(channels, side int) planes {
	return planes{make([]float64, channels*side*side), channels, side}
}

// plane returns a channel.
func (p planes) plane(c int) []float64 { return p.v[c*p.side*p.side:][:p.side*p.side] }

// row adds the part of one sample of a batch in the loss and the gradients.
func (n net) row(in, out [][]float64, batch float64, d *Decisions) {
	w, dw := in[2:], out[1:]
	layers := len(n.filters)
	inputs := make([]planes, layers)
	from := make([][]int, layers) // the source of each element after a pool
	x := planes{in[0], 1, n.side}
	for i, filters := range n.filters {
		inputs[i] = x
		x, from[i] = pool(convolve(x, w[i], filters), 9*x.channels, d)
	}
	hidden, scores := make([]float64, n.hidden), make([]float64, n.classes)
	for k, v := range x.v {
		addTimes(hidden, v, w[layers][k*n.hidden:])
	}
	through := rectify(hidden, len(x.v), d)
	for k, v := range hidden {
		addTimes(scores, v, w[layers+1][k*n.classes:])
	}
	slope, dHidden := make([]float64, n.classes), make([]float64, n.hidden)
	out[0][0] = crossEntropy(scores, in[1], batch, slope)
	for k, v := range hidden {
		addTimes(dw[layers+1][k*n.classes:][:n.classes], v, slope)
		if through[k] {
			dHidden[k] = dot(w[layers+1][k*n.classes:(k+1)*n.classes], slope)
		}
	}
	dx := newPlanes(x.channels, x.side)
	for k, v := range x.v {
		addTimes(dw[layers][k*n.hidden:][:n.hidden], v, dHidden)
		dx.v[k] = dot(w[layers][k*n.hidden:(k+1)*n.hidden], dHidden)
	}
	for i := layers - 1; i >= 0; i-- {
		dy := newPlanes(n.filters[i], inputs[i].side)
		for k, at := range from[i] {
			if at >= 0 {
				dy.v[at] = dx.v[k]
			}
		}
		dx = convolveGradient(inputs[i], w[i], dy, dw[i])
	}
}

// addTimes adds f times the first elements of x to y.
func addTimes(y []float64, f float64, x []float64) {
	x = x[:len(y)]
	for i := range y {
		y[i] += f * x[i]
	}
}

// around calls f for each element k of a plane and tap t, of 9, of a filter on it, with the element at
// that the tap is on, if it is on one.
func around(side int, f func(k, t, at int)) {
	for k := range side * side {
		for t := range 9 {
			if i, j := k/side+t/3-1, k%side+t%3-1; i >= 0 && i < side && j >= 0 && j < side {
				f(k, t, i*side+j)
			}
		}
	}
}

// patches returns the elements under a filter at each element of a plane, 0 outside.
func patches(x planes) [][]float64 {
	list := make([][]float64, x.side*x.side)
	for k := range list {
		list[k] = make([]float64, 9*x.channels)
	}
	around(x.side, func(k, t, at int) {
		for c := range x.channels {
			list[k][9*c+t] = x.plane(c)[at]
		}
	})
	return list
}

// convolve returns the convolution of x with filters of 3 x 3.
func convolve(x planes, w []float64, filters int) planes {
	y, from := newPlanes(filters, x.side), patches(x)
	for f := range filters {
		for k, patch := range from {
			y.plane(f)[k] = dot(patch, w[f*len(patch):])
		}
	}
	return y
}

// convolveGradient returns the gradient by x and writes the gradient by w, given the gradient by
// the result of convolve, most of which is 0.
func convolveGradient(x planes, w []float64, dy planes, dw []float64) planes {
	dx, from, to := newPlanes(x.channels, x.side), patches(x), patches(newPlanes(x.channels, x.side))
	for f := range dy.channels {
		for k, g := range dy.plane(f) {
			if n := len(from[k]); g != 0 {
				addTimes(dw[f*n:(f+1)*n], g, from[k])
				addTimes(to[k], g, w[f*n:])
			}
		}
	}
	around(x.side, func(k, t, at int) {
		for c := range x.channels {
			dx.plane(c)[at] += to[k][9*c+t]
		}
	})
	return dx
}

// pool returns the maximum of each 2 x 2 elements, which are sums of that many products, or 0 if
// that is less, and which element has the derivative: -1 if none has.
func pool(x planes, products int, d *Decisions) (y planes, from []int) {
	y = newPlanes(x.channels, x.side/2)
	from = make([]int, len(y.v))
	inDoubt := doubt(x.v, products)
	for k := range y.v {
		c, i, j := k/(y.side*y.side), k/y.side%y.side, k%y.side
		first := (c*x.side+2*i)*x.side + 2*j
		window := []int{first, first + 1, first + x.side, first + x.side + 1}
		slices.SortStableFunc(window, func(a, b int) int { return cmp.Compare(x.v[b], x.v[a]) })
		greatest, next := window[0], window[1]
		y.v[k] = max(x.v[greatest], 0)
		if x.v[next] > -inDoubt && d.turns(x.v[greatest]-x.v[next], inDoubt) {
			greatest = next
		}
		from[k] = greatest
		if (x.v[greatest] > 0) == d.turns(math.Abs(x.v[greatest]), inDoubt) {
			from[k] = -1
		}
	}
	return y, from
}
