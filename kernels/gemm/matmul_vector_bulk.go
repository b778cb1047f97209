package gemm

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// bulkShort is the kernel of matmul_vector_bulk.cu, for many short rows of one matrix. It has no rates: it is chosen wherever its limits admit.
//
// H200, us, m x k        bulk_short  best other
// 3669 x 51              2.7         2.3
// 4706 x 44              2.4         1.7
// 7045 x 43              2.9         3.0
// 46585 x 11             3.1         5.3
// 362590 x 95            43.1        57.5
// 59212 x 201            14.7        19.1
// 160951 x 29, float64   11.6        20.1
// 35591 x 219, float64   18.7        22.0
// 253050 x 20            9.0         18.9
// 50113 x 28             3.4         4.9
// 115079 x 130, float64  35.4        44.6
// 1314388 x 4, float64   23.2        14.1, shortrows
// 110252 x 8             4.5         3.0, shortrows
// 679264 x 8, float64    21.5        14.9, shortrows
// 140605 x 363           62.0        61.5
// 81594 x 381            40.2        37.4
func bulkShort[T kernels.Float]() *candidate {
	const minRowsPerSM = 24
	dt, name := typed[T]("bulk_short")
	able := limits{on: isHopper, batch: span{1, 1}, n: span{1, 1}, k: span{3, 256}, large: perSM{from: 8 << 10}, also: func(c *candidate, x *problem) bool {
		bytes := x.K * x.size()
		return alongRows(c, x) && x.M >= minRowsPerSM*x.sms() && bytes > 32 && bytes != 64
	}}
	return &candidate{name: name, dtype: dt, orient: column, able: able, kernel: own.Kernel("matmul_vector_bulk", "matmul_"+name, shortRowsBody[T]), cut: cutBulkShort, args: bulkShortArguments, tile: tile{threads: vectorThreads}}
}

// bulkBlocksPerSM are the blocks of bulkShort that are resident on an SM.
const bulkBlocksPerSM = 2

// bulkShortSlice returns the rows of a slice and the threads side by side in a row: so many that the threads that read shared memory at once read different banks. Rows that begin at multiples of
// 16 bytes are read in vectors, eight at once.
func bulkShortSlice(x *problem) (rows, lanes int64) {
	const sliceBytes = 32 << 10
	bytes, most := x.K*x.size(), int64(2)
	unit := x.size()
	if bytes%16 == 0 {
		unit, most = 16, 8
	} else if x.Dtype == kernels.Float64 {
		most = 1
	}
	for lanes = 1; lanes < most && bytes%(2*lanes*unit) == 0; lanes *= 2 {
	}
	for rows = vectorThreads; rows*bytes > sliceBytes || rows*lanes > vectorThreads && x.M < rows*bulkBlocksPerSM*x.sms(); rows /= 2 {
	}
	return rows, lanes
}

func cutBulkShort(_ *candidate, x *problem) (cut, bool) {
	const stages, pad = 3, 32
	rows, lanes := bulkShortSlice(x)
	shared := stages*(arith.RoundUp(rows*x.K*x.size(), 16)+pad) + x.K*x.size()
	return cut{each: lanes, blocks: min(kernels.CeilDiv(x.M, rows), bulkBlocksPerSM*x.sms()), shared: shared}, true
}

func bulkShortArguments(_ *candidate, x *problem, d cut, to kernels.Ref) any {
	rows, lanes := bulkShortSlice(x)
	return rowsArgs{vectorArgs{x.a, x.b, to, x.M, x.K, x.Batch, int32(rows)}, lanes}
}
