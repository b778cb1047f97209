package bench

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

// Two calibrations measure the same within a quarter, each in less than 30 s, and are near those that the GPU's model suggests.
func TestCalibrate(t *testing.T) {
	if _, err := Calibrate(99); !errors.Is(err, cudaops.ErrNoDevice) {
		t.Errorf("device 99: got %v, want an error that wraps ErrNoDevice", err)
	}
	dev := device0(t)
	var two [2]kernels.Calibration
	for i := range two {
		start := time.Now()
		two[i] = testutil.Get[kernels.Calibration](t)(Calibrate(0))
		took := time.Since(start)
		dev.Calibration = two[i]
		t.Logf("%s in %v: %+v, facts %+v", dev.Name, took.Round(time.Millisecond), two[i], dev.Facts())
		if took > 30*time.Second {
			t.Errorf("took %v, want less than 30 s", took)
		}
	}
	for name, of := range map[string]func(c kernels.Calibration) float64{
		"memory": func(c kernels.Calibration) float64 { return c.Memory }, "L2": func(c kernels.Calibration) float64 { return c.L2 },
		"multiply-adds": func(c kernels.Calibration) float64 { return c.FMAs }, "launch": func(c kernels.Calibration) float64 { return c.Launch },
		"load": func(c kernels.Calibration) float64 { return c.Load }, "barrier": func(c kernels.Calibration) float64 { return c.Barrier },
	} {
		if a, b := of(two[0]), of(two[1]); math.Abs(a-b) > 0.25*min(a, b) {
			t.Errorf("%s: got %v and %v, want the same within a quarter", name, a, b)
		}
	}
	if f := dev.Facts(); dev.Bandwidth > 0 && f.Bandwidth > 1.2*dev.Bandwidth {
		t.Errorf("got a bandwidth of %.3g bytes a second, want at most the peak of %.3g that the device reports", f.Bandwidth, dev.Bandwidth)
	}
}
