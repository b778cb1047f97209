package basic_test

import (
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/bench"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
)

// The times of plans, and the bandwidth that they reach, a line each, of those whose names match the regular expression STHENO_TIMES.
func TestIndexTimes(t *testing.T) {
	if os.Getenv("STHENO_TIMES") == "" {
		t.Skip("SKIPPED, NOT TIMED: STHENO_TIMES is not set")
	}
	devices, err := cudaops.Devices()
	testutil.SkipUnless(t, "GPU", err)
	dev, r := devices[0].Device, rand.New(rand.NewPCG(1, 2))
	chosen := testutil.Get[*regexp.Regexp](t)(regexp.Compile(os.Getenv("STHENO_TIMES")))
	run := func(name string, inputs func() [][]byte, plan func() (*kernels.Plan, error)) {
		if !chosen.MatchString(name) {
			return
		}
		p := testutil.Get[*kernels.Plan](t)(plan())
		timing := testutil.Get[*bench.Timing](t)(bench.TimeWithin(0, p, inputs(), 15, 60*time.Millisecond))
		us := slices.Sorted(slices.Values(timing.Runs))[len(timing.Runs)/2].Seconds() * 1e6
		t.Logf("%-48s %9.2f us %6.0f GB/s", name, us, float64(p.Bytes())/us/1e3)
	}
	normal := func(n int) []byte {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(3 * r.NormFloat64())
		}
		return kernels.Bytes(x)
	}
	zipf := rand.NewZipf(r, 1.1, 2, 50_303)
	for name, index := range map[string]func() int64{
		"uniform": func() int64 { return r.Int64N(50_304) }, "below 256": func() int64 { return r.Int64N(256) }, "equal": func() int64 { return 7 }, "zipf": func() int64 { return int64(zipf.Uint64()) },
	} {
		for _, count := range []int{2048, 8192, 1 << 14, 1 << 15} {
			run("scatter 50304 x 768 "+name+" "+strconv.Itoa(count), func() [][]byte {
				list := make([]int64, count)
				for i := range list {
					list[i] = index()
				}
				return [][]byte{normal(count * 768), kernels.Bytes(list)}
			}, func() (*kernels.Plan, error) {
				return basic.Scatter(dev, kernels.Float32, []int{50_304, 768}, 0, int64(count))
			})
		}
	}
	for _, rows := range []int{1, 1024, 8192} {
		logits := func() [][]byte { return [][]byte{normal(rows * 50_304)} }
		name := " " + strconv.Itoa(rows) + " x 50304"
		run("topk 50"+name, logits, func() (*kernels.Plan, error) { return basic.TopK(dev, kernels.Float32, int64(rows), 50_304, 50) })
		run("cumsum"+name, logits, func() (*kernels.Plan, error) {
			return basic.CumSum(dev, kernels.Float32, []int{rows, 50_304}, 1, false)
		})
		run("pick adjoint"+name, func() [][]byte { return [][]byte{normal(rows), kernels.Bytes(make([]int64, rows))} }, func() (*kernels.Plan, error) {
			return basic.PickAdjoint(dev, kernels.Float32, kernels.Int64, []int{rows, 50_304}, 1, 1)
		})
		for kind, set := range map[string]struct {
			k int64
			p float32
		}{"all": {0, 1}, "k": {50, 1}, "p": {0, .9}} {
			run("draw "+kind+name, func() [][]byte {
				return append(logits(), kernels.Bytes([]float32{1}), kernels.Bytes([]int64{set.k}), kernels.Bytes([]float32{set.p}), kernels.Bytes([]int64{5, 6}))
			}, func() (*kernels.Plan, error) {
				return basic.Categorical(dev, kernels.Float32, basic.Draws{Rows: int64(rows), N: 50_304, Temperature: 1, K: 1, P: 1, Stream: 3})
			})
		}
	}
}
