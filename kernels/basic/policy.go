package basic

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/policy"
)

// appendStream appends a launch of a streaming kernel over bytes of output.
func appendStream(p *kernels.Plan, k *kernels.Kernel, pol policy.Stream, bytes int64, args ...any) {
	p.Launch(k, int(max(kernels.CeilDiv(bytes, pol.Vectors*16*int64(pol.Block)), 1)), pol.Block, args...)
}

// histogramPolicy tunes histograms.
type histogramPolicy struct {
	block    int   // threads of a block
	blocks   int   // blocks for each SM
	aloneMax int64 // max bytes for a grid of one block, without a launch that clears the counts; 0 where few elements are counted in global memory
}

var (
	byteHistogram = kernels.Measured[histogramPolicy]{
		// H200, 2^30 bytes             GB/s
		// 1024 threads, 1 block        4463
		// 1024 threads, 2 blocks       4465
		//  512 threads                 4189
		// CUB                          2154
		{90, histogramPolicy{block: 1024, blocks: 1, aloneMax: 1 << 16}},
	}
	tableHistogram = kernels.Measured[histogramPolicy]{
		// H200, 2^28 float32, 256 bins   GB/s
		// 1024 threads, 2 blocks         4272
		// 1024 threads, 1 block          3472
		// CUB                            3934
		{90, histogramPolicy{block: 1024, blocks: 2}},
	}
	manyBins = kernels.Measured[manyBinsPolicy]{
		// H200: bench/notes/basic.md has the times by field
		{90, manyBinsPolicy{histogramPolicy: histogramPolicy{block: 256, blocks: 8}, fewMin: 3 << 12, fewPerBin: 8, fewMax: 3 << 15, minPerRange: 1 << 18, sortMinPerBin: 3, sortMin: 3 << 19, halvesMin: 1 << 21, halvesMinBins: 20_000, halvesMinOneRange: 1 << 18, sortMinRangesBelow: 1 << 24, sortMinRanges: 12}},
	}
)

// manyBinsPolicy tunes histograms with more bins than shared memory holds, and of few elements.
type manyBinsPolicy struct {
	histogramPolicy          // of the kernel that counts in global memory
	fewMin, fewMax     int64 // up to fewPerBin elements for each bin are counted in global memory, but at least fewMin and at most fewMax
	fewPerBin          int64
	minPerRange        int64 // min elements for each range of bins for launching blocks for each range
	sortMinPerBin      int64 // min elements for each bin for sorting them by range, if there are more than two ranges
	sortMinRanges      int64 // min ranges to sort fewer than sortMinRangesBelow elements into, twice as many below a quarter of that if bins take more than four: narrower ranges mean fewer counters to add to global memory
	halvesMinBins      int64 // min bins for 16-bit counters instead of one range, of at least halvesMinOneRange elements
	halvesMinOneRange  int64
	sortMinRangesBelow int64
	sortMin            int64 // min elements for sorting instead of blocks for each range
	halvesMin          int64 // min elements for 16-bit counters instead of two ranges
}

// iteratePolicy tunes Iterate.
type iteratePolicy struct {
	maxHeld    int64 // largest n for weights held in registers
	maxCluster int64 // largest n for one cluster
	wideBytes  int64 // max bytes of a row of w1 times steps for a graph of launches: for few steps registers do not pay
}

var iteratePolicies = kernels.Measured[iteratePolicy]{
	// H200, a half step, float32, us       n = 128   n = 1024
	// cluster                          0.46 to 0.49          -
	// weights in registers                      1.4       1.72
	// graph of launches                         4.7         31
	//
	// us, steps            266, 1   3      512, 1   3      900, 1   3      float64 512, 1   3
	// in registers         6.5      12.4   8.8      14.6   10.7     17.3   5.9              11.8
	// graph of launches    3.6      8.9    4.8      12.2   10.5     25.8   5.1              12.8
	{90, iteratePolicy{maxHeld: heldMost, maxCluster: policy.ClusterBlocks * 32, wideBytes: 1 << 12}},
}

// widePolicy tunes half steps of Iterate that are bound by memory.
type widePolicy struct {
	columns int // max threads of a block if the matrix is transposed
}

var widePolicies = kernels.Measured[widePolicy]{
	// H200, a half step, n = 4096, float32             us
	// transposed, 32 columns a block, 1024 threads   19.6
	// transposed, 32 columns a block, 256 threads    41.1
	{90, widePolicy{columns: 1024}},
}
