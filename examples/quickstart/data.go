package main

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"strconv"

	"gorgonia.org/tensor"
)

// The data: 1797 handwritten digits of 8 x 8 pixels (data/SOURCE.md).
//
//go:embed data/digits.csv.gz
var digitsCSV []byte

const (
	side    = 8
	pixels  = side * side
	classes = 10
)

// digits is a set of images and what they show.
type digits struct {
	images []float32 // n x 64, 0 is paper and 1 is ink
	labels []int     // n, 0 to 9
}

func (d digits) len() int { return len(d.labels) }

func (d digits) image(i int) []float32 { return d.images[i*pixels : (i+1)*pixels] }

// loadDigits reads the embedded file.
func loadDigits() (digits, error) {
	var d digits
	text, err := gzip.NewReader(bytes.NewReader(digitsCSV))
	if err != nil {
		return d, fmt.Errorf("digits.csv.gz: %w", err)
	}
	rows, err := csv.NewReader(text).ReadAll()
	if err != nil {
		return d, fmt.Errorf("digits.csv.gz: %w", err)
	}
	for line, row := range rows {
		if len(row) != pixels+1 {
			return d, fmt.Errorf("digits.csv.gz: line %d has %d numbers, want %d", line+1, len(row), pixels+1)
		}
		for i, field := range row {
			v, err := strconv.ParseFloat(field, 32)
			if err != nil {
				return d, fmt.Errorf("digits.csv.gz: line %d: %w", line+1, err)
			}
			if i < pixels {
				d.images = append(d.images, float32(v/16))
			} else {
				d.labels = append(d.labels, int(v))
			}
		}
	}
	return d, nil
}

// take gives the images with the given numbers, in that order.
func (d digits) take(numbers []int) digits {
	var out digits
	for _, i := range numbers {
		out.images = append(out.images, d.image(i)...)
		out.labels = append(out.labels, d.labels[i])
	}
	return out
}

// split shuffles the set and holds one image in five out of the training.
func (d digits) split(r *rand.Rand) (train, held digits) {
	order := r.Perm(d.len())
	n := d.len() / 5
	return d.take(order[n:]), d.take(order[:n])
}

// tensors gives the images (n x 64) and their one-hot labels (n x 10).
func (d digits) tensors() (x, y *tensor.Dense) {
	oneHot := make([]float32, d.len()*classes)
	for i, label := range d.labels {
		oneHot[i*classes+label] = 1
	}
	x = tensor.New(tensor.WithShape(d.len(), pixels), tensor.WithBacking(d.images))
	y = tensor.New(tensor.WithShape(d.len(), classes), tensor.WithBacking(oneHot))
	return x, y
}
