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
}

// All times are us on an H200, of float32; not swept: minThreadsPerSM, splitMinColsStrided, minColsPerSplit and doubleMinCols. No faster: 128 for 64
// bytesPerIter, 96 for 64 partialResidentBytes. splitMinColsBeyondCluster follows from the memory of 8 SMs.
//
//	elemsPerThread, 16384 rows         columns     8    16    32    64
//	softmax                               1000  34.5  34.4  35.2
//	gradient of softmax                   1000  50.1  49.0  49.7
//	gradient of layer norm                1000  62.4  57.4  55.8
//	cross-entropy                         1000  49.6  51.6  55.4
//	softmax                               4096   131   133   133
//	gradient of softmax                   4096   238   186   188
//	gradient of layer norm                4096   293   273   204
//	cross-entropy                         4096   196   187   187
//	gradient of softmax                  32768              1746  1506
//	gradient of layer norm               32768              2001  1746
//
//	blockThreads, 16384 rows           columns   128   256
//	softmax                                128   7.6   7.4
//
//	operands in registers, 16384 rows  columns   one   two
//	gradient of layer norm                1000  50.1  57.4
//	gradient of layer norm                4096   194   204
//	gradient of softmax                   1000  49.7  49.0
//	cross-entropy                         1000  49.5  51.8
//
//	splitBlocksPerSM                               8     4    16  minColsPerThreadStrided 16
//	sums down 16384 x 4096                      71.6  72.5  72.5  72.9
//
//	bytesPerIterShares                           128    64  each share by a block of a cluster
//	sums of [64, 256, 56, 56] over [0, 2, 3]    50.1  51.9  114
//
//	maxColsPerBlock                             2^14  2^13  no clusters
//	softmax of 2048 x 50257                      262   262   284
//	cross-entropy of 2048 x 50257                414   420   491
//	softmax of 2048 x 100003                     576   577   747
//	cross-entropy of 2048 x 100003               934   934  1260
//
//	clusterColsPerThread                          32    64    64    64
//	clusterResidentBytes                         128   128    64    32
//	gradient of log-softmax of 920 x 87415       450         369
//	BatchNorm of [64, 256, 56, 56]               242   167   148   130
//	its gradient                                 658   334   314
//	cross-entropy of 2048 x 50257                411   396
//
//	minColsPerBlock                          cluster  none
//	cross-entropy of 46 x 31622, 4 blocks       11.5  16.2
//	cross-entropy of 100 x 32768, 2 blocks      23.3  22.0
//
//	splitMinCols...                          cluster  splits
//	sum of 66737                                 4.3   8.6
//	sum of 200000                                6.7   8.4
//	layer norm of 57 x 145080                   28.3  66.2
//	BatchNorm of [64, 256, 112, 112]             647   616
//	its gradient                                1683  1208
//	BatchNorm of [64, 256, 88, 88]               364   384
//	its gradient                                1068   754
var rowsPolicies = kernels.Measured[rowsPolicy]{
	{90, rowsPolicy{
		elemsPerThread: 32, elemsPerThreadStrided: 16, halveMaxCols: 1024, doubleMinCols: 1 << 13, minThreadsPerSM: 1024, blockThreads: 256, maxThreads: 1024,
		residentBytes: 256, fullRegsMaxThreads: 512, clusterResidentBytes: 32, partialResidentBytes: 64, bytesPerIter: 64, bytesPerIterShares: 128,
		clusterMinColsPerThread: 32, maxColsPerBlock: 1 << 14, clusterColsPerThread: 64, minColsPerBlock: 6 << 10,
		splitMinCols: 1 << 16, splitMinColsCluster: 1 << 18, splitMinColsBeyondCluster: 7 << 16, splitMinColsStrided: 256,
		minColsPerSplit: 1 << 13, minColsPerThreadStrided: 4, splitBlocksPerSM: 8,
	}},
}
