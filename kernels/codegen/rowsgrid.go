package codegen

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
	"github.com/stheno-ml/stheno/kernels/internal/axisgroup"
	"github.com/stheno-ml/stheno/kernels/internal/policy"
)

// rowGrid assigns elements of rows to threads. It depends only on shape, axes and device, so the order of a sum does not depend on the
// fused function or on the operands' layout.
//
// Neighbouring threads have neighbouring elements of the innermost axis. If that axis is reduced, they are threads of one row. Otherwise
// the reduced axis is strided: each has rows of its own, and the threads that share a row reduce through shared memory. A thread has
// vectors of neighbours: of columns, or of rows if the reduced axis is strided.
type rowGrid struct {
	stridedAxis    bool  // the innermost axis is not reduced
	width          int64 // elements of a vector
	threadsPerRow  int64 // threads that share a row
	rowsPerBlock   int64 // of vectors of rows, if the reduced axis is strided
	splits         int64 // parts of a row, each in a block of its own
	colsPerSplit   int64 // columns of a split
	cluster        int64 // blocks that share a row and reduce through their shared memory; 0: one block has it
	colsPerBlock   int64 // columns of a block of a cluster
	sharesPerBlock int64 // consecutive shares of each block of the cluster; 0: one each
	small          bool  // the device has more threads than work; blocks share no rows
}

// newRowGrid returns the grid for a shape that has elements.
func newRowGrid(dev kernels.Device, shape, axes []int) rowGrid {
	pol := rowsPolicies.On(dev)
	sms := int64(dev.SMs)
	if dev.Kind == kernels.CPU { // results don't depend on the number of cores
		sms = hostSplits
	}
	rows, columns := int64(1), int64(1)
	groups := axisgroup.Merge(shape, axes)
	for _, g := range groups {
		if g.Chosen {
			columns *= g.N
		} else {
			rows *= g.N
		}
	}
	last := groups[len(groups)-1]
	if last.N == 1 && len(groups) > 1 { // an axis of one element stands for none
		last = groups[len(groups)-2]
	}
	g := rowGrid{stridedAxis: !last.Chosen, width: 1, splits: 1, colsPerSplit: columns}
	if last.N%4 == 0 {
		g.width = 4
	}
	if g.stridedAxis {
		pol.strided(&g, sms, rows, columns, last.N)
	} else {
		pol.contiguous(&g, dev.Major >= 9, sms, rows, columns)
	}
	return g
}

// hostSplits is the number of SMs that plans for the host assume.
const hostSplits = 32

// colsPerThread returns how many columns a thread has: at most `most` and at least `least`, few enough that the device's threads have
// work. lines is the number of rows, or of vectors of rows.
func (pol rowsPolicy) colsPerThread(sms, lines, columns, most, least int64) int64 {
	for most > least && lines*kernels.CeilDiv(columns, most) < sms*pol.minThreadsPerSM {
		most /= 2
	}
	return most
}

// contiguous lays out threads for a reduction over a contiguous axis.
func (pol rowsPolicy) contiguous(g *rowGrid, clusters bool, sms, rows, columns int64) {
	most := pol.elemsPerThread
	if columns <= pol.halveMaxCols {
		most /= 2
	} else if columns > pol.doubleMinCols {
		most *= 2
	}
	g.threadsPerRow, g.rowsPerBlock = kernels.CeilDiv(columns, pol.colsPerThread(sms, rows, columns, most, g.width)), 1
	if columns <= 32*most/min(g.width, 2) && columns*sms <= rows*pol.warpMaxCols { // a warp needs no barrier, and more than half as many aligned elements a thread cost more
		g.threadsPerRow = min(g.threadsPerRow, 32)
	}
	if g.threadsPerRow <= 32 {
		g.threadsPerRow = arith.Pow2(g.threadsPerRow)
		g.rowsPerBlock = pol.blockThreads / g.threadsPerRow
	} else {
		g.threadsPerRow = min(kernels.CeilDiv(g.threadsPerRow, 32)*32, pol.maxThreads)
	}
	pol.roundThreads(g, sms, rows, columns)
	blocks := kernels.CeilDiv(rows, g.rowsPerBlock)
	few := 2*blocks < sms && columns > pol.splitMinCols
	if clusters { // clusters keep more of the device busy, with resident rows
		few = columns > pol.splitMinColsBeyondCluster && 2*blocks <= sms*pol.splitBlocksPerSM || few && policy.ClusterBlocks*blocks < sms && columns > pol.splitMinColsCluster
	}
	switch {
	case few:
		g.threadsPerRow, g.rowsPerBlock = pol.blockThreads, 1
		g.split(min(sms*pol.splitBlocksPerSM/blocks, columns/pol.minColsPerSplit), columns, g.threadsPerRow*g.width)
	case clusters:
		pol.clusters(g, sms, rows, columns, most)
	}
	g.small = g.small && g.splits == 1 && g.cluster == 0
}

// roundThreads rounds the block size up for few rows with one vector per thread, so that matrices of many shapes share one kernel, which
// may have been assembled beforehand. It changes no sum: threads beyond the last column contribute the identity.
func (pol rowsPolicy) roundThreads(g *rowGrid, sms, rows, columns int64) {
	threads := roundedUp(g.threadsPerRow, 16, 32, 256, pol.maxThreads)
	perBlock := max(pol.blockThreads/threads, 1)
	if g.small = kernels.CeilDiv(rows, perBlock)*perBlock*threads <= sms*pol.minThreadsPerSM; g.small && columns <= g.threadsPerRow*g.width {
		g.threadsPerRow, g.rowsPerBlock = threads, perBlock
	}
}

// roundedUp returns the first of rising sizes that n is not larger than.
func roundedUp(n int64, sizes ...int64) int64 {
	for _, size := range sizes {
		if n <= size {
			return size
		}
	}
	return n
}

// clusters lets clusters of blocks share rows: long rows, which exceed a block's capacity, and rows of a matrix of few rows, of which a
// thread has at most `most` elements.
func (pol rowsPolicy) clusters(g *rowGrid, sms, rows, columns, most int64) {
	n, long := min(2*sms/rows, columns/pol.minColsPerBlock, policy.ClusterBlocks), columns > pol.maxThreads*pol.clusterMinColsPerThread
	switch {
	case long:
		g.cluster = min(arith.Pow2(kernels.CeilDiv(columns, pol.maxColsPerBlock)), policy.ClusterBlocks)
	case n >= 4:
		g.cluster = arith.Pow2(n+1) / 2
	default:
		return
	}
	g.colsPerBlock = kernels.CeilDiv(kernels.CeilDiv(columns, g.cluster), g.width) * g.width
	each := pol.clusterColsPerThread
	if !long {
		each = pol.colsPerThread(sms/2, rows*g.cluster, g.colsPerBlock, most, g.width)
	}
	g.threadsPerRow, g.rowsPerBlock = max(min(arith.Pow2(kernels.CeilDiv(g.colsPerBlock, each)), pol.maxThreads), 64), 1
}

// strided lays out threads for a reduction over a strided axis, of rows of which `run` are contiguous.
func (pol rowsPolicy) strided(g *rowGrid, sms, rows, columns, run int64) {
	x := min(arith.Pow2(kernels.CeilDiv(run, g.width)), 32)
	tiles := func() int64 { return kernels.CeilDiv(rows, g.width*x) }
	split, block := 2*tiles() < sms && columns > pol.splitMinColsStrided, pol.blockThreads
	for tiles() < sms && x*g.width > 16 && !split { // 8 float32 are a sector of memory
		x /= 2
	}
	few := tiles() < sms && !split
	if few {
		block = pol.maxThreads
	}
	per := pol.colsPerThread(sms, kernels.CeilDiv(rows, g.width), columns, pol.elemsPerThreadStrided/g.width, 1)
	g.threadsPerRow = min(arith.Pow2(kernels.CeilDiv(columns, per)), block/x)
	if g.small = few; few && columns <= g.threadsPerRow { // one kernel for many shapes: see roundThreads
		g.threadsPerRow = roundedUp(g.threadsPerRow, 16, 64, 128, 256, pol.maxThreads)
		x = min(pol.maxThreads/g.threadsPerRow, 16/g.width)
	}
	g.rowsPerBlock = max(pol.blockThreads/g.threadsPerRow, x)
	if split {
		g.split(min(sms*pol.splitBlocksPerSMStrided/kernels.CeilDiv(rows, g.width*g.rowsPerBlock), columns/(g.threadsPerRow*pol.minColsPerThreadStrided)), columns, g.threadsPerRow)
	}
}

// split cuts rows into about as many splits, of a multiple of that many columns.
func (g *rowGrid) split(splits, columns, multiple int64) {
	const most = 1<<16 - 1 // blocks of a grid in its second dimension
	splits = max(min(splits, most), 1)
	g.colsPerSplit = kernels.CeilDiv(kernels.CeilDiv(columns, splits), multiple) * multiple
	g.splits = kernels.CeilDiv(columns, g.colsPerSplit)
}

// whole returns the grid without splits.
func (g rowGrid) whole() rowGrid {
	g.splits, g.colsPerSplit = 1, math.MaxInt64
	return g
}

// withShares reduces the blocks per row, as long as every SM still has a block and half of the usual number of threads. It applies to
// functions with one reduction stage and only per-row outputs: they keep no elements on chip and so have more loads in flight. Each
// block then computes several shares of a cluster, and combines its threads' results of each share in the order of a cluster.
func (g rowGrid) withShares(sms, rows, threads int64) rowGrid {
	for blocks := rows * g.cluster / 2; g.cluster > 1 && blocks >= sms && 2*blocks*g.threadsPerRow >= sms*threads; blocks /= 2 {
		g.cluster, g.sharesPerBlock = g.cluster/2, 2*max(g.sharesPerBlock, 1)
	}
	if g.cluster == 1 { // alone
		g.cluster = 0
	}
	return g
}

// withRows lets blocks of fewer threads than that compute several rows, where a power of two has each row: fewer blocks store ranges.
func (g rowGrid) withRows(threads int64) rowGrid {
	if !g.stridedAxis && g.cluster == 0 && g.splits == 1 && g.threadsPerRow == arith.Pow2(g.threadsPerRow) {
		g.rowsPerBlock = max(threads/g.threadsPerRow, g.rowsPerBlock)
	}
	return g
}

// rowsInBlock returns the number of rows of a block.
func (g rowGrid) rowsInBlock() int64 {
	if g.stridedAxis {
		return g.rowsPerBlock * g.width
	}
	return g.rowsPerBlock
}

// columnsInBlock returns how many of a row's columns a block has, if the row is not split.
func (g rowGrid) columnsInBlock(columns int64) int64 {
	if g.cluster > 0 {
		return g.colsPerBlock
	}
	return columns
}

// colStride returns the number of columns from a vector of a thread to its next.
func (g rowGrid) colStride() int64 {
	if g.stridedAxis {
		return g.threadsPerRow
	}
	return g.threadsPerRow * g.width
}
