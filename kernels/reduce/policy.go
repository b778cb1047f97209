package reduce

import "github.com/stheno-ml/stheno/kernels"

// The policies were measured on an H200: bench/notes/reduce.md has the times by field. Fields without times were not swept. Those of sums are for the host, and
// for the shape of tiles: on a GPU a model chooses (cost.go).

// rowPolicy tunes dot products, and sums along rows on the host.
type rowPolicy struct {
	shortMax           int64 // Dot: max elements of a row for a group of lanes
	block              int   // threads of a block on a long row
	narrowBlock        int   // threads of a block for many rows that are not too long
	narrowMinRowsPerSM int64 // min rows for each SM for narrow blocks
	narrowMax          int64 // max elements of a row for narrow blocks
	chunkMin           int64 // min elements of a chunk of a split row
	blocksPerSM        int64 // blocks for each SM if rows are split
	splitMinGain       int64 // min elements for each row by which chunks must shorten the work of a block
	dotFewRowsPerSM    int64 // Dot on a GPU: up to so many rows for each SM are few
	dotShortMaxFew     int64 // the same: max elements of few rows for a group of lanes
	dotChunkMin        int64 // the same: min elements of a chunk of a split row
	dotLoneMaxBytes    int64 // the same: max bytes of one of few rows that are not split
}

var rowPolicies = kernels.Measured[rowPolicy]{
	{90, rowPolicy{shortMax: 1024, block: 256, narrowBlock: 64, narrowMinRowsPerSM: 32, narrowMax: 1 << 14, chunkMin: 1 << 12, blocksPerSM: 4, splitMinGain: 450,
		dotFewRowsPerSM: 4, dotShortMaxFew: 128, dotChunkMin: 1 << 10, dotLoneMaxBytes: 1 << 14}},
}

// tilePolicy tunes sums of slabs that fit into shared memory.
type tilePolicy struct {
	block       int   // threads
	maxBytes    int64 // max bytes of a tile
	blocksPerSM int64 // blocks wanted for each SM, so that small inputs have small tiles
	minBusy     int64 // min threads with work, if there is enough
	maxTerms    int64 // max terms of a lane
	fewSlabsMax int64 // max elements for fewer slabs of several columns than SMs
}

var tilePolicies = kernels.Measured[tilePolicy]{
	{90, tilePolicy{block: 256, maxBytes: 1 << 15, blocksPerSM: 4, minBusy: 128, maxTerms: 64, fewSlabsMax: 1 << 14}},
}

// columnPolicy tunes sums along columns on the host.
type columnPolicy struct {
	minRows     int64 // min rows of a thread
	blocksPerSM int64 // blocks for each SM when columns are split
	maxRounds   int64 // max iterations of the last block to add up chunks: each adds 8 chunks of a block's columns
}

var columnPolicies = kernels.Measured[columnPolicy]{
	{90, columnPolicy{minRows: 8, blocksPerSM: 3, maxRounds: 16}},
}

// twicePolicy tunes sums over two groups of axes in one launch.
type twicePolicy struct {
	block, maxBlock     int64 // threads, and max threads
	smallMaxTerms       int64 // max terms of a thread for small blocks
	maxTerms            int64 // max terms of a thread
	maxElements         int64 // max elements of all terms for blocks that share outputs: beyond, another launch is faster
	joinedMaxElements   int64 // max elements of all terms for clusters that share outputs, at most one for each SM
	joinedSmallMaxTerms int64 // max terms of a thread for small blocks of clusters
	shortMaxBytes       int64 // max bytes of the terms of either group for a thread an output: another pass moves too much
}

var twicePolicies = kernels.Measured[twicePolicy]{
	{90, twicePolicy{block: 256, maxBlock: 1024, smallMaxTerms: 8, maxTerms: 32, maxElements: 1 << 19, joinedMaxElements: 1 << 21, joinedSmallMaxTerms: 16, shortMaxBytes: 80}},
}

// reducePolicy tunes Reduce. Up to loneMaxBytes are of one block, of at most maxBlock threads. Blocks of a grid have at least chunkMin elements, and maxBlock threads
// if they have more than wideMinBytes.
//
//	H200, us, a + b*b                    a block of   256    512    1024    a grid
//	float32   2000                               1.66   1.68    1.83
//	          4000                               1.80   1.82    1.96
//	          8000                               2.61   2.00    2.06      3.02
//	          16000                              4.14   2.87    2.42      3.07
//	          32000                                     4.52    3.52      3.14
//	float64   8000                               3.27   2.38    2.06      2.98
//	          16000                              5.48   3.57    2.75      3.05
//
//	H200, us, float32, blocks an SM x threads    3 x 256    4 x 256    2 x 512    3 x 512
//	max(a, b)             551086                    4.36       4.24       3.75       3.85
//	                      4194304                   9.50       8.46       7.26       9.64
//	                      14621611                 23.42      19.37      16.72      20.24
//	                      100000000               121.13     102.69      91.31     104.64
//	a + b*b               551086                    3.16       3.26       3.30       3.19
//	                      4194304                   7.47       6.89       6.42       8.47
//	                      100000000               104.57      90.53      89.82      93.74
//	sqrt(1 + b*b) + a     100000000               131.69     132.28     123.52     127.18
type reducePolicy struct {
	block, maxBlock         int
	chunkMin                int64
	wideMinBytes            int64
	loneMaxBytes            int64
	loneMaxBytesOfFunctions int64 // the same of expressions with functions of math.cu
	blocksPerSM             int64
}

var reducePolicies = kernels.Measured[reducePolicy]{
	{90, reducePolicy{block: 256, maxBlock: 512, chunkMin: 1 << 10, wideMinBytes: 1 << 13, loneMaxBytes: 1 << 15, loneMaxBytesOfFunctions: 1 << 12, blocksPerSM: 2}},
}
