package main

import (
	"math/rand/v2"

	"gorgonia.org/tensor"
)

// data is a data set: images and classes, one-hot, a row each.
type data struct{ x, y *tensor.Dense }

// newData makes random images, whose classes can be learnt: the brightest of the first ten
// pixels. The time of a step does not depend on the contents of the images.
func newData(batches int, seed uint64) data {
	random, n := rand.New(rand.NewPCG(seed, 1)), batches*batch
	x, y := make([]float32, n*pixels), make([]float32, n*classes)
	for i := range x {
		x[i] = random.Float32()
	}
	for r := range n {
		first := x[r*pixels:][:classes]
		best := 0
		for k, v := range first {
			if v > first[best] {
				best = k
			}
		}
		y[r*classes+best] = 1
	}
	return data{tensor.New(tensor.WithShape(n, pixels), tensor.WithBacking(x)), tensor.New(tensor.WithShape(n, classes), tensor.WithBacking(y))}
}

// batches returns how many there are.
func (d data) batches() int { return d.x.Shape()[0] / batch }

// take returns a copy of the rows of a batch.
func (d data) take(i int) (x, y *tensor.Dense) {
	rows := func(t *tensor.Dense) *tensor.Dense {
		n := batch * t.Shape()[1]
		part := append([]float32(nil), t.Float32s()[i*n:][:n]...)
		return tensor.New(tensor.WithShape(batch, t.Shape()[1]), tensor.WithBacking(part))
	}
	return rows(d.x), rows(d.y)
}
