package bench

import (
	"errors"
	"math"
	"os"
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
	if testing.Short() {
		t.Skip("SKIPPED, NOT TIMED: under a checker times are others in every run")
	}
	if os.Getenv("STHENO_PART") != "" {
		t.Skip("SKIPPED, NOT TIMED: parts of suites share the GPU")
	}
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

// What a calibration times exists on GPUs of all kinds and sizes.
func TestProbes(t *testing.T) {
	for _, major := range []int{7, 8, 9, 10, 12} {
		for _, sms := range []int{1, 14, 40, 132, 170} {
			for _, l2 := range []int64{1 << 20, 6 << 20, 126 << 20} {
				dev := kernels.Device{Name: "GPU", Major: major, SMs: sms, SharedOptin: 64 << 10, L2: l2, Memory: 4 << 30, Cooperative: true}
				p, err := newProbes(dev, 256<<20)
				if err != nil {
					t.Errorf("%d.0 with %d SMs, %d bytes of L2: %v", major, sms, l2, err)
					continue
				}
				if p.memory.Inputs[0] < 200<<20 || p.loads.Inputs[0] != (1+loads)*p.launch.Inputs[0] || p.inL2.Inputs[0] < 4*p.less.Inputs[0] || p.apart.Inputs[0] != p.together.Inputs[0] {
					t.Errorf("%d.0 with %d SMs: got operands of %v, %v, %v, %v, %v, %v, %v bytes", major, sms,
						p.memory.Inputs, p.launch.Inputs, p.loads.Inputs, p.inL2.Inputs, p.less.Inputs, p.apart.Inputs, p.together.Inputs)
				}
			}
		}
	}
}
