package suite

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/test/opspec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

// Plans of operands of up to 2^47 elements can be launched, and have the sizes of their operands, or are errors that say what is wrong, without long searches.
func TestHugePlans(t *testing.T) {
	const draws, most, want = 20, 1 << 47, 1000
	r := testutil.Random(t)
	devices := []kernels.Device{kernels.HostDevice()}
	for _, l := range targets {
		devices = append(devices, l.devices()[0])
	}
	counts := map[string]int{}
	for _, s := range opspec.All() {
		for _, c := range s.Cases {
			for range draws {
				c := c.Enlarged(r)
				if c.Composed || c.MaxElements() > most {
					continue
				}
				dt, dev := c.Types[r.IntN(len(c.Types))], devices[r.IntN(len(devices))]
				if got, err := hugePlan(c, dt, dev); err != nil {
					t.Errorf("%s %s %v, %v on %s: %v", s.Name, c.Name, c.Shapes, dt, dev.Name, err)
				} else {
					counts[got]++
				}
			}
		}
	}
	if counts["plans"] < want || counts["errors"] < want/10 {
		t.Errorf("got %v, want %d plans and %d errors or more", counts, want, want/10)
	}
}

// hugePlan checks the plan of a case.
func hugePlan(c opspec.Case, dt kernels.Dtype, dev kernels.Device) (what string, wrong error) {
	start := time.Now()
	p, out, err := c.Plan(dt, dev)
	if took := time.Since(start); took > 5*time.Second {
		return "", fmt.Errorf("it took %v to plan", took)
	}
	if err != nil {
		if !regexp.MustCompile(`got .*, want|at most|broadcasts with|too many elements`).MatchString(err.Error()) {
			return "", fmt.Errorf("got the error %w, want one that says what was got and what is wanted", err)
		}
		return "errors", nil
	}
	if err := p.Check(dev); err != nil {
		return "", err
	}
	if n := int64(out.Shape.TotalSize()) * out.Dtype.Size(); p.Out != n {
		return "", fmt.Errorf("got %d bytes of output, want %d", p.Out, n)
	}
	for i, s := range c.Shapes {
		if n := int64(s.TotalSize()) * dt.Size(); p.Inputs[i] < 1 || p.Inputs[i] > n { // a view reads less
			return "", fmt.Errorf("got %d bytes of input %d, want 1 to %d", p.Inputs[i], i, n)
		}
	}
	return "plans", nil
}
