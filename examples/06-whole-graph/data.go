package main

import (
	"math"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"gorgonia.org/tensor"
)

// The data: digits as a pen draws them, on 28 x 28 pixels, no two alike.
const (
	side    = 28
	pixels  = side * side
	classes = 10
)

// drawBatch draws n random digits: their images (n x 784), 0 is paper and 1 is ink, and
// their labels (n x 10), 1 at the digit and 0 elsewhere.
func drawBatch(r *rand.Rand, n int) (images, labels *tensor.Dense) {
	x, y := make([]float32, n*pixels), make([]float32, n*classes)
	for i := range n {
		digit := r.IntN(classes)
		drawDigit(r, digit, x[i*pixels:(i+1)*pixels])
		y[i*classes+digit] = 1
	}
	return tensor.New(tensor.WithShape(n, pixels), tensor.WithBacking(x)), tensor.New(tensor.WithShape(n, classes), tensor.WithBacking(y))
}

// drawDigit draws a digit of random size, slant and place, with a pen of random width
// and with noise.
func drawDigit(r *rand.Rand, digit int, image []float32) {
	between := func(lo, hi float64) float64 { return lo + (hi-lo)*r.Float64() }
	sin, cos := math.Sincos(between(-0.2, 0.2))
	high, wide, slant := between(16, 22), between(15, 21), between(-0.2, 0.2)
	centre := notebook.Point{X: between(12.5, 15.5), Y: between(12.5, 15.5)}
	pen := between(0.8, 1.8)
	place := func(p notebook.Point) notebook.Point {
		x, y := (p.X-0.3-slant*(p.Y-0.5))*wide, (p.Y-0.5)*high // a digit is 0.6 wide
		return notebook.Point{X: centre.X + x*cos - y*sin, Y: centre.Y + x*sin + y*cos}
	}
	for _, stroke := range notebook.Strokes('0' + rune(digit)) {
		for i := 1; i < len(stroke); i++ {
			drawLine(image, place(stroke[i-1]), place(stroke[i]), pen)
		}
	}
	for i, v := range image {
		image[i] = min(max(v+float32(between(-0.1, 0.1)), 0), 1)
	}
}

// drawLine draws from a to b with a round pen of that radius, in pixels.
func drawLine(image []float32, a, b notebook.Point, pen float64) {
	dx, dy := b.X-a.X, b.Y-a.Y
	for y := max(int(min(a.Y, b.Y)-pen)-1, 0); y < min(int(max(a.Y, b.Y)+pen)+2, side); y++ {
		for x := max(int(min(a.X, b.X)-pen)-1, 0); x < min(int(max(a.X, b.X)+pen)+2, side); x++ {
			px, py := float64(x)+0.5-a.X, float64(y)+0.5-a.Y
			along := min(max((px*dx+py*dy)/max(dx*dx+dy*dy, 1e-9), 0), 1)
			distance := math.Hypot(px-along*dx, py-along*dy)
			pixel := &image[y*side+x]
			*pixel = max(*pixel, float32(min(max(pen+0.5-distance, 0), 1)))
		}
	}
}
