package versions

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
)

// HistogramVersions is the number of versions of the histogram; the last one is the op's own.
const HistogramVersions = 3

// histogramKernels are the kernels of versions 1 and 2 by type.
var histogramKernels = [...][kernels.Int + 1]*kernels.Kernel{1: histogramOf("global"), 2: histogramOf("shared")}

func histogramOf(variant string) [kernels.Int + 1]*kernels.Kernel {
	return basic.HistogramKernels(library, variant, basic.HistogramBody, kernels.Float32, kernels.Float64, kernels.Uint8, kernels.Int32, kernels.Int64)
}

// Histogram plans [basic.Histogram] by version 1, which counts in global memory, 2, which counts in shared memory, or 3, the op's own. More cells
// than the shared memory of dev holds are counted in global memory by all versions.
//
// The grid is that of a common text, whose sweep over blocks is in examples/04-atomics.
func Histogram(dev kernels.Device, dt kernels.Dtype, v int, n int64, bins basic.Bins) (*kernels.Plan, error) {
	const threads, each = 128, 16 // of a block; blocks for each multiprocessor
	// No more blocks than there is work for, and enough that no counter of 32 bits overflows.
	blocks := max(min(int64(dev.SMs*each), kernels.CeilDiv(n, threads)), kernels.CeilDiv(n, 1<<31))
	return HistogramGrid(dev, dt, v, n, bins, int(blocks), threads)
}

// HistogramGrid is [Histogram] on a grid of the caller's, to see what the grid does:
// blocks of threads threads (whole warps, at most 1024). Version 3 has its own grid.
func HistogramGrid(dev kernels.Device, dt kernels.Dtype, v int, n int64, bins basic.Bins, blocks, threads int) (*kernels.Plan, error) {
	if err := check("histogram", v, HistogramVersions); err != nil {
		return nil, err
	}
	p := basic.Histogram(dev, dt, n, bins)
	p.Op = fmt.Sprintf("%s version %d", p.Op, v)
	if v == 3 || n == 0 {
		return p, nil
	}
	shared := 4 * bins.N
	if v == 1 || shared > dev.SharedOptin {
		v, shared = 1, 0
	}
	p.Launches = nil
	basic.AppendClearedCounts(p, bins)
	p.Launch(histogramKernels[v][dt], blocks, threads, bins.Args(n)).Shared = shared
	return p, nil
}
