package codegen

import (
	"github.com/stheno-ml/stheno/kernels"
)

// rowsPolicy tunes Rows.
type rowsPolicy struct {
	elemsPerThread            int64 // of a row that a thread takes, where the device has enough threads
	elemsPerThreadStrided     int64 // likewise of those of a vector of rows, across rows
	halveMaxCols              int64 // columns up to which it takes half as many
	doubleMinCols             int64 // columns from which on it takes twice as many
	minThreadsPerSM           int64 // that are enough, for each multiprocessor
	blockThreads              int64 // threads of a block that takes several rows, or a split of one
	maxThreads                int64 // threads of a block
	residentBytes             int64 // bytes of an operand that a thread holds in registers, half as many in blocks of more than roomy threads; of the other operands only where shared memory has no place
	fullRegsMaxThreads        int64
	clusterResidentBytes      int64 // likewise, of all operands, in clusters
	partialResidentBytes      int64 // likewise, where it has more than it can hold
	bytesPerIter              int64 // bytes that a thread reads in a turn of a loop
	bytesPerIterShares        int64 // likewise, where a block takes several shares of a row
	clusterMinColsPerThread   int64 // elements that a thread takes of rows of more columns than a block's most threads take so: a cluster of blocks shares them
	maxColsPerBlock           int64 // columns of a block of a cluster, at most if 8 blocks are enough
	clusterColsPerThread      int64 // columns of a thread of a cluster
	minColsPerBlock           int64 // least columns of a block of a cluster that shares a row because there are few
	splitMinCols              int64 // columns from which few rows are split
	splitMinColsCluster       int64 // likewise, where clusters can share them, of rows fewer than fill the device with their clusters
	splitMinColsBeyondCluster int64 // likewise, of columns that a cluster has no place for
	splitMinColsStrided       int64 // likewise across rows
	minColsPerSplit           int64 // least columns of a split
	minColsPerThreadStrided   int64 // least columns of a thread in a split across rows
	splitBlocksPerSM          int64 // blocks wanted for each multiprocessor where rows are split
}

var rowsPolicies = kernels.Measured[rowsPolicy]{
	// H200, 16384 rows of float32, us. Elements 8, 16, 32: softmax of 1000 columns (short) 34.5, 34.4, 35.2, its gradient 50.1, 49.0, 49.7, that of layer
	// norm 62.4, 57.4, 55.8, cross-entropy 49.6, 51.6, 55.4; of 4096 columns 131, 133, 133, and 238, 186, 188, and 293, 273, 204, and 196, 187, 187. Elements 32,
	// 64: gradient of softmax of 32768 columns 1746, 1506, of layer norm 2001, 1746; 64 from which column on was not swept. Block 128 for 256: softmax of
	// 128 columns 7.6, 7.4. One operand in registers, two: gradient of layer norm of 1000 columns 50.1, 57.4, of 4096 194, 204, of softmax of 1000 49.7, 49.0,
	// cross-entropy 49.5, 51.8. Blocks 8, 4, 16, least 16: sums down 16384 x 4096 71.6, 72.5, 72.5, 72.9. Turn 128 for 64, partial 96 for 64: no faster. Threads,
	// deep and chunk were not swept. Walk 128, 64: sums of [64, 256, 56, 56] over [0, 2, 3] 50.1, 51.9, each share by a block of a cluster 114.
	// Clusters, share 2^14, 2^13 and without, 2048 rows of 50 257: softmax 262, 262, 284, cross-entropy 414, 420, 491; of 100 003: 576, 577, 747, and 934, 934, 1260.
	// Each 32, 64 and this with clustered 64 for 128: gradient of log-softmax of 920 x 87415 450, -, 369; BatchNorm of [64, 256, 56, 56] 242, 167, 148 and with 32 130, its gradient
	// 658, 334, 314; cross-entropy of 2048 x 50 257 411, 396, -. Part: cross-entropy of 46 x 31622 by clusters of 4 11.5, without 16.2; clusters of 2 are slower: 100 x 32768 23.3, 22.0.
	// Longest: the sum of 66737 by a cluster 4.3, by splits 8.6, of 200 000 6.7, 8.4; layer norm of 57 x 145080 28.3 by clusters, 66.2 by splits. Huge follows from the memory of 8 multiprocessors; beyond it,
	// BatchNorm of [64, 256, 112, 112] by splits, by clusters 616, 647, its gradient 1208, 1683, of [64, 256, 88, 88] 384, 364, and 754, 1068.
	{90, rowsPolicy{elemsPerThread: 32, elemsPerThreadStrided: 16, halveMaxCols: 1024, doubleMinCols: 1 << 13, minThreadsPerSM: 1024, blockThreads: 256, maxThreads: 1024, residentBytes: 256, fullRegsMaxThreads: 512, clusterResidentBytes: 32, partialResidentBytes: 64, bytesPerIter: 64, bytesPerIterShares: 128,
		clusterMinColsPerThread: 32, maxColsPerBlock: 1 << 14, clusterColsPerThread: 64, minColsPerBlock: 6 << 10, splitMinCols: 1 << 16, splitMinColsCluster: 1 << 18, splitMinColsBeyondCluster: 7 << 16, splitMinColsStrided: 256, minColsPerSplit: 1 << 13, minColsPerThreadStrided: 4, splitBlocksPerSM: 8}},
}
