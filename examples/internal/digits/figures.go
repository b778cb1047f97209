package digits

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/internal/figure"
)

// Draw returns the images of a set as pictures.
func Draw(s Set) (list []figure.Image) {
	for i := range s.Len() {
		list = append(list, figure.Image{Width: Side, Values: s.Image(i)})
	}
	return list
}

// Mistakes returns the images whose most probable digit is wrong. logp holds the logarithm of each digit's probability, a row for each image.
// A title gives the digit, the prediction and its probability.
func Mistakes(s Set, logp []float32) (list []figure.Image) {
	for i, image := range Draw(s) {
		if digit, sure := Answer(logp[i*Classes:][:Classes]); digit != s.Labels[i] {
			image.Text, image.Wrong = fmt.Sprintf("%d: %d, %.0f %%", s.Labels[i], digit, 100*sure), true
			list = append(list, image)
		}
	}
	return list
}

// DrawScaled returns values as pictures of a size, as shares of the greatest magnitude in the picture, or in all if together is set.
func DrawScaled(values []float32, width, height int, together bool) (list []figure.Image) {
	of := values
	for ; len(values) >= width*height; values = values[width*height:] {
		own := values[:width*height]
		if !together {
			of = own
		}
		most, shares := float32(1e-9), make([]float32, len(own))
		for _, v := range of {
			most = max(most, v, -v)
		}
		for i, v := range own {
			shares[i] = v / most
		}
		list = append(list, figure.Image{Width: width, Values: shares})
	}
	return list
}

// Confusion returns how often a digit is taken for another one: the mean probability, in %, by the logarithms of probabilities of each image.
func Confusion(labels []int, logp []float32) figure.HeatMap {
	h := figure.HeatMap{Title: "Probability of what the digit is not", YLabel: "the digit", XLabel: "is taken for", Label: "mean, %"}
	var count [Classes]float64
	for digit := range Classes {
		name := fmt.Sprint(digit)
		h.Rows, h.Columns, h.Values = append(h.Rows, name), append(h.Columns, name), append(h.Values, make([]float64, Classes))
	}
	for i, digit := range labels {
		count[digit]++
		for k, v := range logp[i*Classes:][:Classes] {
			h.Values[digit][k] += 100 * math.Exp(float64(v))
		}
	}
	for digit, row := range h.Values {
		for k := range row {
			row[k] = math.Round(100*row[k]/count[digit]) / 100
		}
		row[digit] = math.NaN() // right
	}
	return h
}
