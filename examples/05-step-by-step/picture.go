package main

import (
	"fmt"
	"image"
	"image/color"
	_ "image/jpeg"
	_ "image/png"
	"math"
	"os"
)

// load returns side x side grey values from 0 (black) to 1 (white): of a PNG or
// JPEG file, scaled, or of a picture drawn here.
func load(path string, side int) ([]float32, error) {
	if path == "" {
		return draw(side), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	img, _, err := image.Decode(f)
	if err != nil {
		return nil, fmt.Errorf("-picture %s: %w", path, err)
	}
	return scale(img, side), nil
}

// scale sets each pixel of the result to the mean of those that it covers, at
// least one.
func scale(img image.Image, side int) []float32 {
	b := img.Bounds()
	pixels := make([]float32, side*side)
	edge := func(lo, n, i int) int { return lo + i*n/side }
	for i := range pixels {
		x0, y0 := edge(b.Min.X, b.Dx(), i%side), edge(b.Min.Y, b.Dy(), i/side)
		x1, y1 := max(edge(b.Min.X, b.Dx(), i%side+1), x0+1), max(edge(b.Min.Y, b.Dy(), i/side+1), y0+1)
		sum := 0.0
		for y := y0; y < y1; y++ {
			for x := x0; x < x1; x++ {
				sum += float64(color.Gray16Model.Convert(img.At(x, y)).(color.Gray16).Y)
			}
		}
		pixels[i] = float32(sum / float64((x1-x0)*(y1-y0)) / math.MaxUint16)
	}
	return pixels
}

// draw is a lit ball over a floor of rings.
func draw(side int) []float32 {
	const radius = 0.34
	light := [3]float64{-0.5, -0.6, 0.62} // a unit vector, nearly
	pixels := make([]float32, side*side)
	for i := range pixels {
		x, y := (float64(i%side)+.5)/float64(side)-.5, (float64(i/side)+.5)/float64(side)-.5
		grey := 0.45 + 0.25*math.Cos(90*math.Hypot(x, 2*y-.5))*math.Exp(-3*math.Hypot(x, y-.2))
		if d := math.Hypot(x-.1, y-.22); d < radius { // its shadow
			grey *= 0.35 + 0.65*d/radius
		}
		if d := x*x + y*y; d < radius*radius {
			z := math.Sqrt(radius*radius - d)
			lit := max((x*light[0]+y*light[1]+z*light[2])/radius, 0)
			grey = 0.06 + 0.7*lit + 0.24*math.Pow(lit, 40)
		}
		pixels[i] = float32(min(max(grey, 0), 1))
	}
	return pixels
}
