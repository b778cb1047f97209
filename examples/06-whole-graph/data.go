package main

import (
	"math"
	"math/rand/v2"

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
	centre := point{between(12.5, 15.5), between(12.5, 15.5)}
	pen := between(0.8, 1.8)
	place := func(p point) point {
		x, y := (p.x-0.3-slant*(p.y-0.5))*wide, (p.y-0.5)*high // a digit is 0.6 wide
		return point{centre.x + x*cos - y*sin, centre.y + x*sin + y*cos}
	}
	for _, stroke := range strokes[digit] {
		for i := 1; i < len(stroke); i++ {
			drawLine(image, place(stroke[i-1]), place(stroke[i]), pen)
		}
	}
	for i, v := range image {
		image[i] = min(max(v+float32(between(-0.1, 0.1)), 0), 1)
	}
}

// drawLine draws from a to b with a round pen of that radius, in pixels.
func drawLine(image []float32, a, b point, pen float64) {
	dx, dy := b.x-a.x, b.y-a.y
	for y := max(int(min(a.y, b.y)-pen)-1, 0); y < min(int(max(a.y, b.y)+pen)+2, side); y++ {
		for x := max(int(min(a.x, b.x)-pen)-1, 0); x < min(int(max(a.x, b.x)+pen)+2, side); x++ {
			px, py := float64(x)+0.5-a.x, float64(y)+0.5-a.y
			along := min(max((px*dx+py*dy)/max(dx*dx+dy*dy, 1e-9), 0), 1)
			distance := math.Hypot(px-along*dx, py-along*dy)
			pixel := &image[y*side+x]
			*pixel = max(*pixel, float32(min(max(pen+0.5-distance, 0), 1)))
		}
	}
}

// A point is a place on paper, y downwards.
type point struct{ x, y float64 }

// strokes are the ten digits as a pen draws them: lines through points, 0.6 wide and 1 high.
var strokes = [classes][][]point{
	{arc(2.1, 3.5, 2.1, 3.5, 0, 360)},
	{line(0.9, 5.6, 2.4, 7, 2.4, 0)},
	{append(arc(2.1, 5, 1.95, 2, 165, -40), line(0.1, 0, 4.1, 0)...)},
	{append(arc(2, 5.25, 1.75, 1.75, 150, -90), arc(2, 1.8, 2.05, 1.8, 90, -150)...)},
	{line(3.1, 0, 3.1, 7, 0, 2, 4.2, 2)},
	{append(line(3.8, 7, 0.8, 7, 0.45, 3.7), arc(2, 2.2, 2.1, 2.2, 138, -150)...)},
	{arc(2.1, 2.2, 2, 2.2, 0, 360), arc(4.1, 2.2, 4, 4.8, 180, 105)},
	{line(0.1, 7, 4.1, 7, 1.5, 0)},
	{arc(2.1, 5.3, 1.75, 1.7, 0, 360), arc(2.1, 1.8, 2.05, 1.8, 0, 360)},
	{arc(2.1, 4.8, 2, 2.2, 0, 360), arc(0.1, 4.8, 4, 4.8, 0, -75)},
}

// line goes through points, given by x and y in sevenths of a digit's height, y upwards.
func line(xy ...float64) (stroke []point) {
	for i := 0; i < len(xy); i += 2 {
		stroke = append(stroke, point{xy[i] / 7, 1 - xy[i+1]/7})
	}
	return stroke
}

// arc goes along an ellipse around (x, y), in degrees counter-clockwise from the right.
func arc(x, y, rx, ry, from, to float64) (stroke []point) {
	steps := math.Ceil(math.Abs(to-from) / 10)
	for i := 0.0; i <= steps; i++ {
		sin, cos := math.Sincos((from + (to-from)*i/steps) * math.Pi / 180)
		stroke = append(stroke, line(x+rx*cos, y+ry*sin)...)
	}
	return stroke
}
