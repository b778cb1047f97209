package cudaops

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

// weights are inputs of kernels.Iterate for n elements, all weights 1/n, so that
// every element of the output is the mean of x, (n-1)/2.
func weights(n int) [][]byte {
	w, x := make([]float32, n*n), make([]float32, n)
	for i := range w {
		w[i] = 1 / float32(n)
	}
	for i := range x {
		x[i] = float32(i)
	}
	return [][]byte{kernels.Bytes(w), kernels.Bytes(w), kernels.Bytes(x)}
}

// A grid that waits for blocks which cannot be on the device is refused before it
// is launched, and in words that say what fits.
func TestResident(t *testing.T) {
	dev := device0(t)
	for _, b := range []kernels.Barrier{kernels.BarrierVolatile, kernels.BarrierAcquire, kernels.BarrierGrid} {
		const n = 128
		by := kernels.IterateBy{Barrier: b, Blocks: 32*dev.SMs + 1, Threads: 64}
		err := RunPlan(0, kernels.Iterate(dev, kernels.Float32, n, 3, false, by), weights(n), make([]byte, 4*n))
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
	n := min(1024, 8*dev.SMs)
	in := weights(n)
	p := kernels.Iterate(dev, kernels.Float32, int64(n), 200, false, kernels.IterateBy{Barrier: kernels.BarrierHeld})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5 {
				out := make([]float32, n)
				if err := RunPlan(0, p, in, kernels.Bytes(out)); err != nil {
					t.Error(err)
					return
				}
				for i, v := range out {
					if want := float64(n-1) / 2; !(math.Abs(float64(v)-want) < 1e-4*want) {
						t.Errorf("element %d is %v, want %v", i, v, want)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}
