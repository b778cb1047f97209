package versions

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
)

// Plans ask for no more shared memory than a block has, assign no block more elements
// than its counters of 32 bits count, and keep two blocks on a multiprocessor where
// fewer columns allow it.
func TestHistogramPlans(t *testing.T) {
	devices := []kernels.Device{
		{Name: "Volta", Major: 7, SMs: 80, SharedOptin: 96 << 10},
		{Name: "Turing", Major: 7, Minor: 5, SMs: 40, SharedOptin: 64 << 10},
		{Name: "Ada", Major: 8, Minor: 9, SMs: 128, SharedOptin: 99 << 10},
		{Name: "Hopper", Major: 9, SMs: 132, SharedOptin: 227 << 10},
		{Name: "one multiprocessor", Major: 9, SMs: 1, SharedOptin: 227 << 10},
	}
	for _, dev := range devices {
		for dt := kernels.Float32; dt <= kernels.Int; dt++ {
			for v := 1; v <= HistogramVersions; v++ {
				for _, bins := range []int{1, 3, 100, 256, 257, 1000, 1024, 4096, 16384, 25000, 50000, 58113, 1 << 20} {
					for _, n := range []int64{1, 1000, 1 << 30, 1<<36 + 1} {
						name := fmt.Sprintf("%s: %d of %v into %d by version %d", dev.Name, n, dt, bins, v)
						p, err := Histogram(dev, dt, v, n, basic.Bins{N: bins, Lo: 0, Hi: 1})
						if err != nil {
							t.Fatalf("%s: %v", name, err)
						}
						l := p.Launches[min(1, len(p.Launches)-1)] // a single block of version 3 clears the counts itself
						if l.Grid[0] > 1 && len(p.Launches) < 2 {
							t.Errorf("%s: %d launches of %d blocks, want one before that clears the counts", name, len(p.Launches), l.Grid[0])
						}
						if l.Shared > dev.SharedOptin {
							t.Errorf("%s: %d bytes of shared memory, want at most %d", name, l.Shared, dev.SharedOptin)
						}
						if l.Grid[0] < 1 || l.Shared > 0 && kernels.CeilDiv(n, int64(l.Grid[0])) > 1<<31 {
							t.Errorf("%s: %d blocks of 32-bit counters", name, l.Grid[0])
						}
						few := v == 3 && n <= 1000 && strings.HasPrefix(l.Kernel.Entry, "histogram_aggregate_") // counted in global memory
						size := 4                                                                               // bytes of a counter
						if strings.HasPrefix(l.Kernel.Entry, "histogram_halves_") {
							size = 2
						}
						if 4*bins <= dev.SharedOptin && v > 1 && l.Shared < size*bins && dt != kernels.Uint8 && !few {
							t.Errorf("%s: %d bytes of shared memory for %d counters", name, l.Shared, bins)
						}
						if v == 3 && dt != kernels.Uint8 && l.Shared > 4*bins && 2*(l.Shared+1<<10) > dev.SharedOptin+1<<10 {
							t.Errorf("%s: %d bytes of shared memory: one block", name, l.Shared)
						}
					}
				}
			}
		}
	}
	if p, err := Histogram(devices[0], kernels.Float32, 4, 1, basic.Bins{N: 1, Lo: 0, Hi: 1}); err == nil {
		t.Errorf("version 4 gave %v and no error", p)
	}
	if p, err := HistogramGrid(devices[0], kernels.Float32, 0, 1, basic.Bins{N: 1, Lo: 0, Hi: 1}, 1, 32); err == nil {
		t.Errorf("version 0 gave %v and no error", p)
	}
	p, err := HistogramGrid(devices[0], kernels.Uint8, 2, 1000, basic.Bins{N: 128, Lo: 0, Hi: 128}, 77, 96)
	if err != nil || p.Launches[1].Grid[0] != 77 || p.Launches[1].Block[0] != 96 {
		t.Errorf("a grid of 77 blocks of 96: %v, %v", p, err)
	}
}

// All versions count as the definition does, in every type, on the host.
func TestHistogramTypes(t *testing.T) {
	x := make([]int64, 1021)
	want := make([]int64, 9)
	for i := range x {
		x[i] = int64(i*i%13) - 2
		if x[i] >= 0 && x[i] < 9 {
			want[x[i]]++
		}
	}
	run := func(dt kernels.Dtype, in []byte, want []int64) {
		for v := 1; v <= HistogramVersions; v++ {
			p, err := Histogram(kernels.HostDevice(), dt, v, int64(len(x)), basic.Bins{N: 9, Lo: 0, Hi: 9})
			if err != nil {
				t.Fatal(err)
			}
			got := make([]int64, 9)
			if err := p.Run([][]byte{in}, kernels.Bytes(got), nil); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%v by version %d: got %v, want %v", dt, v, got, want)
			}
		}
	}
	run(kernels.Int64, kernels.Bytes(x), want)
	run(kernels.Int32, kernels.Bytes(convert[int32](x)), want)
	run(kernels.Int, kernels.Bytes(convert[int](x)), want)
	run(kernels.Float32, kernels.Bytes(convert[float32](x)), want)
	run(kernels.Float64, kernels.Bytes(convert[float64](x)), want)
	run(kernels.Uint8, convert[uint8](x), want) // -1 and -2 are 255 and 254
}

func convert[T kernels.Element](x []int64) []T {
	y := make([]T, len(x))
	for i := range x {
		y[i] = T(x[i])
	}
	return y
}
