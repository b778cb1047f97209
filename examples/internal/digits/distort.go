package digits

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Distort draws a digit anew: turned, sheared, of another size and at another place, each by a random
// amount. A pixel of the result is looked up in the image, between its pixels.
func Distort(r *rand.Rand, image []float32) []float32 { return DistortTo(r, image, Side) }

// DistortTo is [Distort] with a result of side x side pixels.
func DistortTo(r *rand.Rand, image []float32, side int) []float32 {
	upTo := func(a float64) float64 { return a * (2*r.Float64() - 1) }
	sin, cos := math.Sincos(upTo(0.17))
	wide, high, shear := 1+upTo(0.1), 1+upTo(0.1), upTo(0.13)
	right, down := upTo(0.7), upTo(0.7)
	const middle = (Side - 1) / 2.0
	out, scale := make([]float32, side*side), Side/float64(side)
	for i := range out {
		x, y := (float64(i%side)-float64(side-1)/2)*scale, (float64(i/side)-float64(side-1)/2)*scale
		out[i] = between(image, (cos*x-sin*y)*wide+shear*y+right+middle, (sin*x+cos*y)*high+down+middle)
	}
	return out
}

// Distorted returns the set with three of four images distorted anew.
func Distorted(r *rand.Rand, s Set) Set {
	s.Images = slices.Clone(s.Images)
	for i := range s.Len() {
		if r.IntN(4) > 0 {
			copy(s.Image(i), Distort(r, s.Image(i)))
		}
	}
	return s
}

// between is the ink at a point between four pixels, those outside of the image paper.
func between(image []float32, x, y float64) float32 {
	left, top := math.Floor(x), math.Floor(y)
	ink := 0.0
	for _, p := range [][2]float64{{left, top}, {left + 1, top}, {left, top + 1}, {left + 1, top + 1}} {
		if p[0] >= 0 && p[0] < Side && p[1] >= 0 && p[1] < Side {
			ink += (1 - math.Abs(x-p[0])) * (1 - math.Abs(y-p[1])) * float64(image[int(p[1])*Side+int(p[0])])
		}
	}
	return float32(ink)
}

// NearestNeighbour counts the mistakes if an image is taken for the digit of the training image from
// which its pixels differ least.
func NearestNeighbour(training, held Set) (wrong int) {
	for i, label := range held.Labels {
		image, best, least := held.Image(i), 0, math.Inf(1)
		for k := range training.Labels {
			distance := 0.0
			for j, v := range training.Image(k) {
				d := float64(v - image[j])
				distance += d * d
			}
			if distance < least {
				best, least = k, distance
			}
		}
		if training.Labels[best] != label {
			wrong++
		}
	}
	return wrong
}
