// Package digits is a data set: 1797 handwritten digits of 8 x 8 pixels (data/SOURCE.md).
package digits

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/csv"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"gorgonia.org/tensor"
)

//go:embed data/digits.csv.gz
var file []byte

// The sizes of an image, and the number of digits that there are.
const (
	Side    = 8
	Pixels  = Side * Side
	Classes = 10
)

// A Set is images and the digits that they show.
type Set struct {
	Images []float32 // n x 64, 0 is paper and 1 is ink
	Labels []int     // n, 0 to 9
}

// Len returns the number of images.
func (s Set) Len() int { return len(s.Labels) }

// Image returns the pixels of an image, row by row.
func (s Set) Image(i int) []float32 { return s.Images[i*Pixels : (i+1)*Pixels] }

// Load reads the embedded file.
func Load() (Set, error) {
	var s Set
	text, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		return s, fmt.Errorf("digits.csv.gz: %w", err)
	}
	r := csv.NewReader(text)
	r.FieldsPerRecord = Pixels + 1
	rows, err := r.ReadAll()
	if err != nil {
		return s, fmt.Errorf("digits.csv.gz: %w", err)
	}
	for line, row := range rows {
		for i, field := range row {
			v, err := strconv.Atoi(field)
			if err != nil {
				return s, fmt.Errorf("digits.csv.gz: line %d: %w", line+1, err)
			}
			if i < Pixels {
				s.Images = append(s.Images, float32(v)/16)
			} else {
				s.Labels = append(s.Labels, v)
			}
		}
	}
	return s, nil
}

// Take returns the images with the given numbers, in that order.
func (s Set) Take(numbers []int) Set {
	var out Set
	for _, i := range numbers {
		out.Images = append(out.Images, s.Image(i)...)
		out.Labels = append(out.Labels, s.Labels[i])
	}
	return out
}

// Split shuffles the set and holds one image in five out of the training.
func (s Set) Split(r *rand.Rand) (train, held Set) {
	order := r.Perm(s.Len())
	n := s.Len() / 5
	return s.Take(order[n:]), s.Take(order[:n])
}

// Tensors returns the images (n x 64) and their one-hot labels (n x 10).
func (s Set) Tensors() (images, labels *tensor.Dense) {
	oneHot := make([]float32, s.Len()*Classes)
	for i, label := range s.Labels {
		oneHot[i*Classes+label] = 1
	}
	images = tensor.New(tensor.WithShape(s.Len(), Pixels), tensor.WithBacking(s.Images))
	labels = tensor.New(tensor.WithShape(s.Len(), Classes), tensor.WithBacking(oneHot))
	return images, labels
}

// Planes returns the images as (n, 1, 8, 8), one channel each.
func (s Set) Planes() *tensor.Dense {
	return tensor.New(tensor.WithShape(len(s.Images)/Pixels, 1, Side, Side), tensor.WithBacking(s.Images))
}

// Append returns the images of both sets.
func (s Set) Append(more Set) Set {
	return Set{slices.Concat(s.Images, more.Images), slices.Concat(s.Labels, more.Labels)}
}

// Answer returns the digit of the greatest of the logarithms of the digits' probabilities, and its
// probability.
func Answer(logp []float32) (digit int, probability float64) {
	for k, v := range logp {
		if v > logp[digit] {
			digit = k
		}
	}
	return digit, math.Exp(float64(logp[digit]))
}
