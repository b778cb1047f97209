package kernels_test

import (
	"math"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

var measured = kernels.Calibration{Memory: 1.4e12, L2: 4e12, FMAs: 9e12, Launch: 3, Load: 0.7, Barrier: 2}

// numbers returns pointers to the numbers of a calibration, by name.
func numbers(c *kernels.Calibration) map[string]*float64 {
	return map[string]*float64{"Memory": &c.Memory, "L2": &c.L2, "FMAs": &c.FMAs, "Launch": &c.Launch, "Load": &c.Load, "Barrier": &c.Barrier}
}

// Without a calibration, facts are the reported peaks and the times of an H100. With a calibration, they are proportional to its numbers.
func TestFacts(t *testing.T) {
	dev := kernels.Device{Major: 8, SMs: 108, Bandwidth: 1.555e12, FMAs: 9.75e12}
	if got, want := dev.Facts(), (kernels.Facts{Bandwidth: 1.555e12, FMAs: 9.75e12, L2: 1, Launch: 1, Load: 1, Barrier: 1}); got != want {
		t.Errorf("without a calibration: got %+v, want %+v", got, want)
	}
	if got := (kernels.Device{Major: 8, SMs: 108}).Facts().Bandwidth; !(got > 0) {
		t.Errorf("of a device that reports no bandwidth: got %v, want an estimate", got)
	}
	dev.Calibration = measured
	before := dev.Facts()
	for name := range numbers(&measured) {
		changed := measured
		*numbers(&changed)[name] *= 2
		dev.Calibration = changed
		after, want := dev.Facts(), before
		switch name {
		case "Memory":
			want.Bandwidth *= 2
		case "L2":
			want.L2 *= 2
		case "FMAs":
			want.FMAs *= 2
		case "Launch":
			want.Launch *= 2
		case "Load":
			want.Load *= 2
		case "Barrier":
			want.Barrier *= 2
		}
		if after != want {
			t.Errorf("twice %s: got %+v, want %+v", name, after, want)
		}
		if changed.Name() == measured.Name() {
			t.Errorf("twice %s: got the name %s as before, want another", name, changed.Name())
		}
	}
}

func TestCalibrationCheck(t *testing.T) {
	if err := measured.Check(); err != nil {
		t.Error(err)
	}
	if got := (kernels.Calibration{}).Name(); got != "" {
		t.Errorf("got the name %q of no calibration, want none", got)
	}
	for name := range numbers(&measured) {
		for _, x := range []float64{0, -1, math.NaN(), math.Inf(1)} {
			wrong := measured
			*numbers(&wrong)[name] = x
			if wrong.Check() == nil {
				t.Errorf("%s %v: got no error, want one", name, x)
			}
		}
	}
}
