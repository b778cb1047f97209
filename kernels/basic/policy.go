package basic

import (
	"github.com/stheno-ml/stheno/kernels"
)

// appendStream appends a launch of a streaming kernel over that many bytes.
func appendStream(p *kernels.Plan, k *kernels.Kernel, pol kernels.StreamPolicy, bytes int64, args ...any) {
	p.Launch(k, int(max(kernels.CeilDiv(bytes, pol.Vectors*16*int64(pol.Block)), 1)), pol.Block, args...)
}

// histogramPolicy tunes histograms.
type histogramPolicy struct {
	block  int // threads of a block
	blocks int // of them for each multiprocessor
}

var (
	byteHistogram = kernels.Measured[histogramPolicy]{
		{90, histogramPolicy{block: 1024, blocks: 1}}, // H200, 2^30 bytes: 4463 GB/s; 2 blocks 4465; 512 threads 4189; CUB 2154
	}
	tableHistogram = kernels.Measured[histogramPolicy]{
		{90, histogramPolicy{block: 1024, blocks: 2}}, // H200, 2^28 float32 into 256 bins: 4272 GB/s; 1 block 3472; CUB 3934
	}
	manyBins = kernels.Measured[manyBinsPolicy]{
		// H200, us, in two ranges and in global memory, uniform and skewed: 10^8 into 64256 239, 236 and 1255, 9742; a million into 100000 20.7, 18.9 and 17.0, 92.
		// In 16 bits, and in two ranges: 10^8 into 64256 174, 243; 17449260 into 101938 55.4, 69.2, skewed 56.1, 66.2, equal 51.6, 51.2; 2 million into 100000 25.4, 27.4.
		// Sorted, and in global memory: 10^8 into 10^6 424, 678 and 1072, 8202; 5.4 million into 312229 53, 55 and 63, 444; 4 into a million 48, 50 and 49, 320;
		// 3 into 600000 41, 46 and 38, 244; 2 into 200000 36, 42 and 27, 157; a million into 200000 33, 40 and 17, 89.
		// Ranges 12, no more than needed, 8, 16: 3 million into 200000 32, 37, 33, 31, skewed 36, 43, 38, 37; 5.4 into 312229 47, 53, 51, 45, skewed 48, 55, 52, 56;
		// 10^8 into 238429 395, 398, 385, 394, skewed -, 418, 443, 662
		{90, manyBinsPolicy{histogramPolicy: histogramPolicy{block: 256, blocks: 8}, elements: 1 << 18, sorted: 4, least: 1 << 21, middling: 1 << 23, ranges: 12}},
	}
)

// manyBinsPolicy tunes histograms with more bins than shared memory holds.
type manyBinsPolicy struct {
	histogramPolicy       // of the kernel that counts in global memory
	elements        int64 // for each range of bins, from which on blocks for each range are faster
	sorted          int64 // elements for each bin from which on it is faster to sort them by range, if there are more than two
	ranges          int64 // that fewer than middling elements are sorted by, at least: the narrower, the fewer counters do blocks add to memory
	middling        int64
	least           int64 // elements from which on it is, in place of blocks for each range; from as many on counters have 16 bits in place of two ranges
}

// iteratePolicy tunes Iterate.
type iteratePolicy struct {
	held    int64 // largest n for weights held in registers
	cluster int64 // largest n for one cluster
}

var iteratePolicies = kernels.Measured[iteratePolicy]{
	// H200, a half step of 128 float32: cluster 0.46 to 0.49 us, held 1.4, graph of launches 4.7; of 1024: held 1.72, graph 31
	{90, iteratePolicy{held: heldMost, cluster: kernels.ClusterBlocks * 32}},
}

// widePolicy tunes half steps of Iterate that are bound by memory.
type widePolicy struct {
	rows    int // threads of a block with a row for each warp
	columns int // most threads of a block where the matrix is transposed
}

var widePolicies = kernels.Measured[widePolicy]{
	// H200, a half step of 4096 float32: rows 18.8 us; transposed, 32 columns a block: 19.6, 256 threads 41.1
	{90, widePolicy{rows: 256, columns: 1024}},
}
