package reduce

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

// On a slower device no candidate of a drawn sum is predicted to be faster, and each fact slows some down.
func TestFactsScaleTimes(t *testing.T) {
	r := rand.New(rand.NewPCG(testutil.Seed(t), 35))
	dev := kernels.Device{Name: "H200", Major: 9, SMs: 132, SharedOptin: 227 << 10, L2: 60 << 20, Bandwidth: 4.8e12, FMAs: 33e12}
	dev.Calibration = kernels.Calibration{Memory: 4.5e12, L2: 5.8e12, FMAs: 2e13, Launch: 2.5, Load: 0.6, Barrier: 1.8}
	slower := map[string]func(c *kernels.Calibration){
		"memory": func(c *kernels.Calibration) { c.Memory /= 1.5 }, "L2": func(c *kernels.Calibration) { c.L2 /= 1.5 }, "launch": func(c *kernels.Calibration) { c.Launch *= 1.5 },
		"load": func(c *kernels.Calibration) { c.Load *= 1.5 }, "barrier": func(c *kernels.Calibration) { c.Barrier *= 1.5 },
	}
	number := func(most float64) int64 { return int64(math.Exp(r.Float64() * math.Log(most))) }
	later := map[string]int{}
	for range 200 {
		outer, terms, inner := number(1e4), number(1e5), number(1e3)
		names, before, _ := Candidates(dev, kernels.Float32, outer, terms, inner)
		for what, slow := range slower {
			slowed := dev
			slow(&slowed.Calibration)
			_, after, _ := Candidates(slowed, kernels.Float32, outer, terms, inner)
			for i, us := range after {
				if us < before[i] {
					t.Fatalf("%d x %d x %d, %s: got %v us, want at least %v as with a faster %s", outer, terms, inner, names[i], us, before[i], what)
				}
				if us > 1.05*before[i] {
					later[what]++
				}
			}
		}
	}
	for what := range slower {
		if later[what] == 0 {
			t.Errorf("a slower %s slows no candidate down by 5 %%, want some", what)
		}
	}
}
