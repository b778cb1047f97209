package bench

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/internal/test/iteratetest"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
)

// A grid that waits for blocks which cannot be on the device is refused before it
// is launched, with an error that names the number that fits.
func TestResident(t *testing.T) {
	dev, r := device0(t), random(t)
	for _, b := range []versions.Barrier{versions.BarrierWrap, versions.BarrierVolatile, versions.BarrierAcquire, versions.BarrierGrid} {
		const n = 128
		by := versions.IterateBy{Barrier: b, Blocks: 32*dev.SMs + 1, Threads: 64}
		err := Run(0, versions.Iterate(dev, kernels.Float32, n, 3, false, by), iteratetest.New(r, n, false).Inputs(), make([]byte, 4*n))
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("got %d blocks", by.Blocks)) || !strings.Contains(err.Error(), "want at most") {
			t.Errorf("%v: got %v, want an error with the number of blocks", b, err)
		}
	}
}

// Cooperative grids that fill most of the device, from several streams at once:
// started in parts, they would wait for one another for ever.
func TestCooperativeTogether(t *testing.T) {
	dev := device0(t)
	if !dev.Cooperative {
		t.Skip("SKIPPED, NOT TESTED: the device has no cooperative launch")
	}
	steps, runs := 200, 5
	if testing.Short() {
		steps, runs = 50, 1 // a checker follows every access
	}
	n := min(1024, 8*dev.SMs)
	in := iteratetest.New(random(t), n, false)
	p := versions.Iterate(dev, kernels.Float32, int64(n), steps, false, versions.IterateBy{Barrier: versions.BarrierHeld})
	want := in.After(steps)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range runs {
				out := make([]float32, n)
				if err := Run(0, p, in.Inputs(), kernels.Bytes(out)); err != nil {
					t.Error(err)
					return
				}
				if wrong := unlike(out, want); wrong > 0 {
					t.Errorf("%d of %d elements are wrong after %d steps", wrong, n, steps)
					return
				}
			}
		})
	}
	wg.Wait()
}

// random returns random numbers by a seed that the test prints.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(testutil.Seed(t), 8))
}

// unlike counts the elements that are not as wanted.
func unlike(got, want []float32) (wrong int) {
	for i, v := range want {
		if got[i] != v {
			wrong++
		}
	}
	return wrong
}

// Not one element is late, of any barrier, in a hundred transformations and more on
// few blocks and on many: the weights are such that it would show in the result. The
// two barriers that are wrong on purpose prove that.
func TestBarriers(t *testing.T) {
	t.Run("host", func(t *testing.T) {
		testBarriers(t, kernels.HostDevice(), 64, []int{64}, 100, 1, func(p *kernels.Plan, in [][]byte, out []byte) error {
			return runGuarded(new(exec.HostBackend), p, in, out)
		})
	})
	t.Run("GPU", func(t *testing.T) {
		dev := device0(t)
		run := func(p *kernels.Plan, in [][]byte, out []byte) error { return Run(0, p, in, out) }
		if testing.Short() {
			testBarriers(t, dev, 128, []int{128}, 20, 1, run)
			return
		}
		testBarriers(t, dev, 512, []int{128, 256, 512, 1024, 1088}, 120, 3, run)
	})
}

// testBarriers runs the barriers with grids of their own on n values, and those that
// choose their grids on each of the sizes.
func testBarriers(t *testing.T, dev kernels.Device, n int, sizes []int, steps, tries int, run func(*kernels.Plan, [][]byte, []byte) error) {
	r := random(t)
	once := func(t *testing.T, n, steps int, transposed bool, by versions.IterateBy) (wrong int) {
		t.Helper()
		in := iteratetest.New(r, n, transposed)
		out := make([]float32, n)
		testutil.Do(t, run(versions.Iterate(dev, kernels.Float32, int64(n), steps, transposed, by), in.Inputs(), kernels.Bytes(out)))
		return unlike(out, in.After(steps))
	}
	right := func(n int, by versions.IterateBy) {
		t.Run(fmt.Sprintf("%v %d by %dx%d", by.Barrier, n, by.Blocks, by.Threads), func(t *testing.T) {
			for i := range 2 * tries {
				if wrong := once(t, n, steps, i%2 == 1, by); wrong > 0 {
					t.Errorf("%d of %d elements are wrong after %d steps, transposed %v", wrong, n, steps, i%2 == 1)
				}
			}
		})
	}
	for _, b := range []versions.Barrier{versions.BarrierLaunches, versions.BarrierGraph, versions.BarrierWrap, versions.BarrierVolatile, versions.BarrierAcquire, versions.BarrierGrid} {
		for _, blocks := range []int{2, 32, dev.SMs, 2 * dev.SMs} {
			right(n, versions.IterateBy{Barrier: b, Blocks: blocks, Threads: max(n/blocks, 1)})
		}
	}
	for _, b := range []versions.Barrier{versions.BarrierHeld, versions.BarrierCluster, versions.BarrierFastest} {
		for _, n := range sizes {
			right(n, versions.IterateBy{Barrier: b})
		}
	}
	if testing.Short() { // under a checker blocks run one after the other, and 100 results may all be right
		return
	}
	for _, b := range []versions.Barrier{versions.BarrierNone, versions.BarrierBlock} {
		t.Run(b.String(), func(t *testing.T) {
			const tries = 100 // the first will do
			for i := range tries {
				if wrong := once(t, 128, 100, i%2 == 1, versions.IterateBy{Barrier: b, Blocks: 2, Threads: 64}); wrong > 0 {
					t.Logf("%d of 128 elements are wrong at try %d", wrong, i+1)
					return
				}
			}
			t.Errorf("none of %d results were wrong: the test sees no missing barrier", tries)
		})
	}
}
