package bench

import (
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

// stopwatch times the cases that the regular expression STHENO_TIMES matches, a line each, with
// the bandwidth that they reach.
type stopwatch struct {
	t      *testing.T
	dev    kernels.Device
	chosen *regexp.Regexp
	copied float64 // the bandwidth of a device copy, in GB/s
}

// newStopwatch skips the test where STHENO_TIMES is not set.
func newStopwatch(t *testing.T) *stopwatch {
	t.Helper()
	if os.Getenv("STHENO_TIMES") == "" {
		t.Skip("SKIPPED, NOT TIMED: STHENO_TIMES is not set")
	}
	w := &stopwatch{t, device0(t), testutil.Get[*regexp.Regexp](t)(regexp.Compile(os.Getenv("STHENO_TIMES"))), testutil.Get[float64](t)(CopyBandwidth(0))}
	t.Logf("%s, copy %.0f GB/s", w.dev.Name, w.copied)
	return w
}

// wants reports whether a case should be timed.
func (w *stopwatch) wants(name string) bool { return w.chosen.MatchString(name) }

// rate returns a median time in microseconds, and the bandwidth in GB/s and as a share of a copy's, in percent.
func (w *stopwatch) rate(runs []time.Duration, bytes int64) (us, rate, share float64) {
	d := float64(median(runs).Nanoseconds())
	return d / 1e3, float64(bytes) / d, 100 * float64(bytes) / d / w.copied
}

// plan times a plan that moves so many bytes, for about as long as within.
func (w *stopwatch) plan(name string, p *kernels.Plan, inputs [][]byte, bytes int64, within time.Duration) {
	w.t.Helper()
	timing := testutil.Get[*Timing](w.t)(TimeWithin(0, p, inputs, 15, within))
	us, rate, share := w.rate(timing.Runs, bytes)
	w.t.Logf("%-52s %9.2f us %6.0f GB/s %4.0f %% of copy", name, us, rate, share)
}
