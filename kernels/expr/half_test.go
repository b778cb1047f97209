package expr

import (
	"math"
	"testing"
)

// Numbers of 16 bits come back from float32, and every float32 becomes the nearest of them, the even one of two.
func TestHalf(t *testing.T) {
	for name, c := range map[string]struct {
		to   func(float32) uint16
		from func(uint16) float32
		inf  uint16
	}{"bf16": {toBF16, fromBF16, 0x7f80}, "f16": {toF16, fromF16, 0x7c00}} {
		for x := range uint32(1 << 16) {
			v := c.from(uint16(x))
			if got := c.to(v); got != uint16(x) && v == v || v != v && got != nan16 {
				t.Fatalf("%s %#x is %v, and that is %#x", name, x, v, got)
			}
			if magnitude := uint16(x) &^ 0x8000; magnitude >= c.inf {
				continue
			}
			next := float64(c.from(uint16(x) + 1)) // away from 0
			if math.IsInf(next, 0) {
				next = 2*float64(v) - float64(c.from(uint16(x)-1))
			}
			middle := float32((float64(v) + next) / 2)
			even := uint16(x) + uint16(x)&1
			below, above := math.Nextafter32(middle, v), math.Nextafter32(middle, float32(next))
			if math.IsInf(float64(middle), 0) {
				continue // of bf16
			}
			if a, b, d := c.to(middle), c.to(below), c.to(above); a != even || b != uint16(x) || d != uint16(x)+1 && !math.IsInf(float64(above), 0) {
				t.Fatalf("%s: %v, %v and %v are %#x, %#x, %#x, want %#x, %#x, %#x", name, middle, below, above, a, b, d, even, x, x+1)
			}
		}
	}
}
