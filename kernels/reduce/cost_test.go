package reduce

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

// sweep is a record of times of candidates, made by TestSweep of cudaops/bench.
type sweep struct {
	Device kernels.Device
	Sums   []struct {
		Dtype           string
		Outer, R, Inner int64
		After           bool               // the shape was drawn after the constants were fitted
		Us              map[string]float64 // by candidate; slower than three times the best are left out
	}
}

// The chosen candidate is within 5 % of the best one in the median and within 25 % for 95 % of the shapes recorded on an H100. For shapes that were drawn
// after the constants were fitted, only the median is tested: the host was busy, and some launches came too late. On an H200, all shapes were drawn after.
func TestModelChoosesFastCandidates(t *testing.T) {
	t.Run("H100", func(t *testing.T) { testChoices(t, "testdata/sweep.json.gz", 100, math.Inf(1)) })
	t.Run("H200", func(t *testing.T) { testChoices(t, "testdata/sweep-h200.json.gz", 80, 1.25) })
}

// testChoices tests a record of at least so many shapes, of which those drawn after are within most for 95 %.
func testChoices(t *testing.T, path string, least int, mostAfter float64) {
	var record sweep
	testutil.Do(t, json.Unmarshal(testutil.Read(t, path), &record))
	all, after := []float64{}, []float64{}
	for _, s := range record.Sums {
		dt := kernels.Float32
		if s.Dtype == kernels.Float64.String() {
			dt = kernels.Float64
		}
		x := pass{dev: record.Device, in: dt, out: dt, outer: s.Outer, r: s.R, inner: s.Inner, div: 1}
		chosen := x.best()
		ratio := testutil.OverBest(s.Us, chosen.String())
		if ratio > 1.25 {
			t.Logf("%v %d x %d x %d: %v takes %.2f times the least", dt, s.Outer, s.R, s.Inner, chosen, ratio)
		}
		if all = append(all, ratio); s.After {
			after = append(after, ratio)
		}
	}
	for name, c := range map[string]struct {
		ratios []float64
		most   float64
	}{"all": {all, 1.25}, "drawn after": {after, mostAfter}} {
		slices.Sort(c.ratios)
		ratios, n := c.ratios, len(c.ratios)
		if n < least {
			t.Fatalf("%s: got %d shapes, want %d or more", name, n, least)
		}
		median, most := ratios[n/2], ratios[n*95/100]
		t.Logf("%s: %d shapes, median %.3f, 95 %% %.3f, worst %.2f", name, n, median, most, ratios[n-1])
		if median > 1.05 || most > c.most {
			t.Errorf("%s: got a median of %.3f and %.3f for 95 %%, want 1.05 and %.2f at most", name, median, most, c.most)
		}
	}
}
