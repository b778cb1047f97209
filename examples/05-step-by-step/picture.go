package main

import "math"

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
