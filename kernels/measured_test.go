package kernels

import (
	"testing"
)

// A device takes the line of its architecture, or the nearest.
func TestMeasured(t *testing.T) {
	m := Measured[string]{{70, "Volta"}, {80, "Ampere"}, {90, "Hopper"}, {120, "Blackwell"}}
	for _, c := range []struct {
		major, minor int
		want         string
	}{{0, 0, "Volta"}, {7, 0, "Volta"}, {7, 5, "Volta"}, {7, 6, "Ampere"}, {8, 9, "Hopper"}, {9, 0, "Hopper"}, {10, 0, "Hopper"}, {12, 1, "Blackwell"}, {20, 0, "Blackwell"}} {
		if got := m.On(Device{Major: c.major, Minor: c.minor}); got != c.want {
			t.Errorf("%d.%d takes the policy of %s, want %s", c.major, c.minor, got, c.want)
		}
	}
}
