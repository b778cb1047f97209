package codegen

import (
	"github.com/stheno-ml/stheno/kernels"
)

// rowsPolicy tunes Rows.
type rowsPolicy struct {
	elemsPerThread            int64 // of a row, where the device has enough threads
	elemsPerThreadStrided     int64 // of a vector of rows, for a reduction over a strided axis
	halveMaxCols              int64 // rows of at most this many columns have half the elements per thread
	doubleMinCols             int64 // rows of more columns have twice the elements per thread
	minThreadsPerSM           int64 // threads that keep an SM busy
	warpMaxCols               int64 // columns of a row that a warp computes, at most, for each row of an SM
	blockThreads              int64 // threads of a block that computes several rows, or a split of one
	maxThreads                int64 // threads of a block
	residentBytes             int64 // most bytes of one operand that a thread keeps in registers; the other operands only if shared memory has no room
	fullRegsMaxThreads        int64 // larger blocks keep half of residentBytes
	clusterResidentBytes      int64 // in clusters: most bytes of all operands together that a thread keeps in registers
	partialResidentBytes      int64 // the same limit if only a part of a row fits on chip
	bytesPerIter              int64 // bytes that a thread loads in a loop iteration
	bytesPerIterShares        int64 // the same if a block computes several shares of a row
	clusterMinColsPerThread   int64 // a cluster shares rows that have more columns for each of maxThreads
	maxColsPerBlock           int64 // of a cluster of fewer than 8 blocks
	clusterColsPerThread      int64 // columns of a thread of a cluster that shares long rows
	minColsPerBlock           int64 // of a cluster that shares a row because there are few rows
	splitMinCols              int64 // few rows of more columns are split
	splitMinColsCluster       int64 // the same on devices with clusters, if fewer rows than fill the device with their clusters
	splitMinColsBeyondCluster int64 // rows of more columns exceed a cluster's memory; few such rows are split
	splitMinColsStrided       int64 // few rows of more columns, reduced over a strided axis, are split
	minColsPerSplit           int64
	minColsPerThreadStrided   int64 // of a thread in a split over a strided axis
	splitBlocksPerSM          int64 // blocks per SM to aim at where rows are split
	splitBlocksPerSMStrided   int64 // the same over a strided axis: as many as an SM has registers for, so that none begins late
	maxRowsPerThread          int64 // rows of a matrix times a vector that the threads of a row compute together
	rowsPerThreadBlocksPerSM  int64 // blocks per SM that are left, at least
	rowsPerThreadBytes        int64 // bytes of registers that a thread then keeps of the matrix, at most
}

// bench/notes/rows.md has the times by field, of an H200.
var rowsPolicies = kernels.Measured[rowsPolicy]{
	{90, rowsPolicy{
		elemsPerThread: 32, elemsPerThreadStrided: 16, halveMaxCols: 1024, doubleMinCols: 1 << 13, minThreadsPerSM: 1024, warpMaxCols: 80, blockThreads: 256, maxThreads: 1024,
		residentBytes: 256, fullRegsMaxThreads: 512, clusterResidentBytes: 32, partialResidentBytes: 64, bytesPerIter: 64, bytesPerIterShares: 128,
		clusterMinColsPerThread: 32, maxColsPerBlock: 1 << 14, clusterColsPerThread: 64, minColsPerBlock: 6 << 10,
		splitMinCols: 1 << 16, splitMinColsCluster: 1 << 18, splitMinColsBeyondCluster: 7 << 16, splitMinColsStrided: 256,
		minColsPerSplit: 1 << 13, minColsPerThreadStrided: 4, splitBlocksPerSM: 8, splitBlocksPerSMStrided: 4,
		maxRowsPerThread: 4, rowsPerThreadBlocksPerSM: 2, rowsPerThreadBytes: 512,
	}},
}
