package main

import (
	"iter"
	"math"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/examples/internal/digits"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/train"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// distort draws a digit anew: turned, sheared, of another size and at another place, each by a random
// amount. A pixel of the result is looked up in the image, between its pixels.
func distort(r *rand.Rand, image []float32) []float32 {
	upTo := func(a float64) float64 { return a * (2*r.Float64() - 1) }
	sin, cos := math.Sincos(upTo(0.17))
	wide, high, shear := 1+upTo(0.1), 1+upTo(0.1), upTo(0.13)
	right, down := upTo(0.7), upTo(0.7)
	const middle = (digits.Side - 1) / 2.0
	out := make([]float32, digits.Pixels)
	for i := range out {
		x, y := float64(i%digits.Side)-middle, float64(i/digits.Side)-middle
		out[i] = between(image, (cos*x-sin*y)*wide+shear*y+right+middle, (sin*x+cos*y)*high+down+middle)
	}
	return out
}

// between is the ink at a point between four pixels, those outside of the image paper.
func between(image []float32, x, y float64) float32 {
	left, top := math.Floor(x), math.Floor(y)
	ink := 0.0
	for _, p := range [][2]float64{{left, top}, {left + 1, top}, {left, top + 1}, {left + 1, top + 1}} {
		if p[0] >= 0 && p[0] < digits.Side && p[1] >= 0 && p[1] < digits.Side {
			ink += (1 - math.Abs(x-p[0])) * (1 - math.Abs(y-p[1])) * float64(image[int(p[1])*digits.Side+int(p[0])])
		}
	}
	return float32(ink)
}

// distorted makes the batches of a training: in each epoch all images, in another order and
// three of four distorted anew.
func (net *network) distorted(set digits.Set, seed uint64) train.Source {
	return train.SourceFunc(func(epoch, from int) iter.Seq2[train.Batch, error] {
		return func(yield func(train.Batch, error) bool) {
			r := rand.New(rand.NewPCG(seed, uint64(epoch)))
			order := r.Perm(set.Len())
			for n := net.images; len(order) >= n; order = order[n:] {
				batch := digits.Set{}
				for _, i := range order[:n] {
					image := set.Image(i)
					if r.IntN(4) > 0 {
						image = distort(r, image)
					}
					batch.Images = append(batch.Images, image...)
					batch.Labels = append(batch.Labels, set.Labels[i])
				}
				if from--; from < 0 && !yield(net.batch(batch), nil) {
					return
				}
			}
		}
	})
}

// batch is images and their labels as the inputs of a network.
func (net *network) batch(set digits.Set) train.Batch {
	x, y := set.Tensors()
	return train.Batch{net.x: tensor.New(tensor.WithShape(net.x.Shape()...), tensor.WithBacking(x.Data())), net.y: y}
}

// feed binds images and their labels to the inputs.
func (net *network) feed(set digits.Set) error {
	for n, v := range net.batch(set) {
		if err := G.Let(n, v); err != nil {
			return err
		}
	}
	return nil
}

// data shows the digits.
func data(s *story) {
	s.Heading("The digits")
	s.Text(`The quickstart reads %d handwritten digits with a perceptron. It sees an image as %d numbers in no order: that two of them are neighbours it would have to learn, and what it learns about a
		stroke at one place it does not know at another. A convolutional network is built on both. Can it read what the perceptron cannot?`, s.all.Len(), digits.Pixels)
	s.Text(`There are few images for a network to learn from. So it hardly sees one twice: when an image is used, it is distorted, each time in another way, by no more than
		people's hands differ. What is between two pixels is their mean, which blurs; the images to be read are not blurred, so one in four stays as it is.`)
	s.GoFunction("data.go", "distort")
	const columns, rows = 12, 4
	r := rand.New(rand.NewPCG(1, 1))
	p := figure.Pictures{Zoom: 8, Columns: columns}
	for k := range columns * rows {
		image := s.all.Image(k % columns)
		if k >= columns {
			image = distort(r, image)
		}
		p.Images = append(p.Images, figure.Image{Width: digits.Side, Values: image})
	}
	s.Figure("digits", "The first images of the set, and under each what it may look like in a training.", p)
}
