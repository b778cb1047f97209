// Package compare has the one comparison that all tests use: computed elements against a float64
// reference.
package compare

import (
	"fmt"
	"math"
)

// Float is the constraint of the element types that are compared.
type Float interface{ float32 | float64 }

// Difference describes how computed elements miss their reference.
type Difference struct {
	Index     int     // the worst element
	Got, Want float64 // the computed value there and the reference
	Allowed   float64 // the largest difference that would have passed
	First     int     // the first element that is wrong
	Bad, N    int     // how many elements are wrong, of how many
}

// Error names the worst element, the first one and how many are wrong.
func (d *Difference) Error() string {
	return fmt.Sprintf("element %d: got %v, want %v within %.3g (off by %.3g); %d of %d elements are wrong, the first is %d",
		d.Index, d.Got, d.Want, d.Allowed, math.Abs(d.Got-d.Want), d.Bad, d.N, d.First)
}

// Epsilon is the distance from 1 to the next number of the type.
func Epsilon[T Float]() float64 {
	if single[T]() {
		return 0x1p-23
	}
	return 0x1p-52
}

// smallest is the least positive number of the type: results near zero cannot be closer to the
// reference than a part of it.
func smallest[T Float]() float64 {
	if single[T]() {
		return math.SmallestNonzeroFloat32
	}
	return math.SmallestNonzeroFloat64
}

func single[T Float]() bool {
	_, ok := any(T(0)).(float32)
	return ok
}

// Close compares got with ref, element by element, and returns nil or a [*Difference]. A finite
// element passes if
//
//	|got - ref| <= abs + tol * (eps(T) * magnitude + smallest(T))
//
// magnitude is the sum of the absolute values of the element's terms, so that
// cancellation does not count against a sum; nil stands for |ref|. A NaN
// matches a NaN only, an infinity an infinity of the same sign only; a
// reference beyond T's range stands for the infinity.
func Close[T Float](got []T, ref, magnitude []float64, tol, abs float64) error {
	if len(got) != len(ref) || magnitude != nil && len(magnitude) != len(ref) {
		return fmt.Errorf("got %d elements, the reference has %d, its magnitude %d", len(got), len(ref), len(magnitude))
	}
	d := &Difference{N: len(got), First: -1}
	worst, epsilon, least := 0.0, Epsilon[T](), smallest[T]()
	for i, g := range got {
		m := math.Abs(ref[i])
		if magnitude != nil {
			m = magnitude[i]
		}
		allowed, x, rounded := abs+tol*(epsilon*m+least), float64(g), float64(T(ref[i]))
		if x-x == 0 && rounded-rounded == 0 && math.Abs(x-ref[i]) <= allowed { // most elements, without a call
			continue
		}
		excess := Excess(x, rounded, ref[i], allowed)
		if excess <= 1 {
			continue
		}
		if d.Bad++; d.First < 0 {
			d.First = i
		}
		if excess > worst {
			worst = excess
			d.Index, d.Got, d.Want, d.Allowed = i, x, ref[i], allowed
		}
	}
	if d.Bad > 0 {
		return d
	}
	return nil
}

// Excess is the distance between got and want in units of the tolerance: up to 1 passes. rounded is
// want in the precision of got; if either is not finite, got must be the same NaN or infinity, else
// the excess is infinite.
func Excess(got, rounded, want, allowed float64) float64 {
	switch {
	case math.IsNaN(rounded) && math.IsNaN(got), math.IsInf(rounded, 0) && got == rounded:
		return 0
	case !finite(rounded) || !finite(got) || math.IsNaN(allowed):
		return math.Inf(1)
	case got == want:
		return 0
	}
	return math.Abs(got-want) / allowed
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// Identical compares bit by bit, which distinguishes -0 from 0 and one NaN from
// another; it returns nil or an error that names the first difference.
func Identical[T Float](got, want []T) error {
	if len(got) != len(want) {
		return fmt.Errorf("got %d elements, want %d", len(got), len(want))
	}
	bad, first := 0, -1
	for i := range got {
		if bits(got[i]) != bits(want[i]) {
			if bad++; first < 0 {
				first = i
			}
		}
	}
	if bad > 0 {
		return fmt.Errorf("element %d: got %v (%#x), want %v (%#x); %d of %d elements differ",
			first, got[first], bits(got[first]), want[first], bits(want[first]), bad, len(got))
	}
	return nil
}

func bits[T Float](x T) uint64 {
	if single[T]() {
		return uint64(math.Float32bits(float32(x)))
	}
	return math.Float64bits(float64(x))
}
