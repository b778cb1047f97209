package expr

import (
	"math"
	"testing"
)

// The greatest results of an exponential are finite, as they are of the function and
// not of every math.Exp.
func TestExpNearOverflow(t *testing.T) {
	for _, x := range []float64{709.0001, 709.43, 709.44, 709.6003409688213, 709.78, 709.782712893384, 709.7827128933841, 710} {
		half := math.Exp(x / 2)
		if got, want := exp(x), half*half; math.Abs(got-want) > 1e-13*want && got != want {
			t.Errorf("exp of %v is %v, want %v", x, got, want)
		}
	}
}
