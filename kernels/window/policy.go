package window

import (
	"github.com/stheno-ml/stheno/kernels"
)

// windowPolicy tunes window sums. Blocks of short take up to half of a multiprocessor's shared memory, those of segments up to all of it, the
// others no more than the 48 KiB that a launch may ask for on every device.
type windowPolicy struct {
	direct    int64    // threads of direct: 64 bytes of outputs each
	pieces    int64    // threads of few, and of short for rows that take no more
	resident  int64    // threads of segments on a multiprocessor, by their registers
	held      int64    // segments of a window, at most
	alone     int64    // the same, where clusters cannot hold them
	clustered int64    // as resident, of clusters
	chunk     [2]int64 // threads of chunks and join by type: 16 elements each
	strayed   int64    // elements of a window from which segments walk along rows that begin anywhere
	warps     int64    // of stream on a multiprocessor, about
	run       int64    // tiles of a run of stream, at most
}

var windowPolicies = kernels.Measured[windowPolicy]{
	// H200, 2^28 float32, radius 32 and 512: 555 and 563 us; runs of 8 tiles 551 and 577, of 32 563 and 563, one for each warp that fits (249 tiles) 580 and 572.
	// Threads of segments on a multiprocessor 1024, 768, 512: 2^26, radius 600 174, 165, 190, 1919 167, 165, 164, 3000 170, 175, 190, float64 2^25, radius 1100 159, 158, 155.
	// Segments held by a block, by a cluster, and chunks and join, 2^26: 4 (radius 7528) 171, -, 298, 6 (10 000) 182, 189, 284, 8 (15 000) 250, 177, 300, 13 (24 000) -, 208, 285; 10^7,
	// 11 (20 000) 53, 43, 62; float64 2^25, 9 (10 000) 196, 164, 234. Clusters of one, two or three blocks of a multiprocessor, 10^8 radius 69127 485, 424, -, 30407646 radius 42861 -, 102, 113.
	// Rows that begin anywhere, by stream and by segments: 232 x 39670 radius 283 50.2, 36.6; 8 x 965746 radius 379, Full, 38.6, 26.4; 107 x 21075 radius 185 25.1, 12.1; 42 x 284869 radius 192, Full, 46.4, 37.4;
	// 111 x 169092 radius 108 62, 91; 63 x 469075 radius 92 83, 167
	// Pieces of short 128 and 256, an earlier kernel: 150000 x 511 radius 200 284, 264, 70001 x 1001 radius 12 290, 225; since then from 128 to twice as many, as rows fill them
	{90, windowPolicy{direct: 256, pieces: 128, resident: 1024, held: 6, alone: 12, clustered: 768, chunk: [2]int64{kernels.Float32: 128, kernels.Float64: 64}, strayed: 361, warps: 16, run: 16}},
}
