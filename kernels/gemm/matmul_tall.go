package gemm

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// A warp of a kernel that copies single elements stores the rows of a transposed C by 64 bytes, if they are more than shortStores.
//
// H200, us, m x k x n                      tall  outer  PyTorch
// 92 x 14 x 23687, A^T B^T                 8.3   17.6   10.5
// 69 x 8 x 69362, A^T B^T                  15.0  14.6
// 118 x 4 x 20903, A^T, 2 of               15.2  8.0
// 93 x 6 x 115382, B^T                     30.4  18.2   24.9
// 75 x 8 x 201739, B^T                     43.8  29.5   38.2
// 79 x 12 x 134639, B^T                    34.0  25.1   35.4
// 107 x 1 x 3497, A^T B^T, float64, 33 of  49.1  27.3
// 112 x 12 x 973, A^T B^T, float64, 87 of  37.5  48.1
const shortStores = 64

// fewColumns is a kernel of matmul_tall.cu for a C of so many columns at most, or rows: a thread computes `each` rows of `of` columns.
//
// H200, us, m x k x n          tall   PyTorch  the best other
// 481994 x 30 x 23, A^T, 3 of  126    138      226, small
// 42 x 21 x 3, B^T, 8656 of    13.6   42.8     69, small
// 1847 x 15 x 22, B^T, 2539 of 218    353      494, linear
// 152608 x 8 x 30, B^T, 30 of  229    269      349, linear
// 18860 x 21 x 3, B^T, 63 of   33.4   90.6     72.7, columns in shared memory
// 290014 x 13 x 17, f64, 2 of  44.1   67.9     94.5, small
// 450068 x 77 x 30, A^T B^T    129    74.6     96.9, tiles of 128 x 32
func fewColumns[T kernels.Float](name string, columns int64, each, of int64) *candidate {
	// lines returns how many threads compute the rows of a part of the columns, in a block of one matrix.
	lines := func(x *problem) int64 {
		if x.N > shortStores {
			return 16
		}
		return 32
	}
	c := lowK[T]("matmul_tall", name, tile{}, span{1, 64}, tall, func(_ *candidate, x *problem) (cut, bool) { return cutFewColumns(x, lines(x), each, of) })
	c.able.side = span{to: columns}
	c.args = func(_ *candidate, x *problem, d cut, to kernels.Ref) any {
		return x.arguments(to, lines(x)*each, d.each)
	}
	// Vectors have their own kernels on 9.0.
	//
	// H200, us, m x k       tall   shortrows   bulk_short
	// 1878815 x 7, float64  84.6               35.6
	// 253050 x 20           18.9               9.0
	others := func(dev kernels.Device) bool { return isGPU(dev) && !isHopper(dev) }
	return c.when(limits{on: isHopper, side: span{from: 2}}, limits{on: others, c: perSM{from: 64}, also: isTall}, limits{on: others, c: perSM{from: 64}, k: span{to: 14}, also: isBundle})
}

// cutFewColumns gives a block a tile of rows of a matrix, or several small matrices.
func cutFewColumns(x *problem, lines, rows, cols int64) (cut, bool) {
	const (
		warp, maxThreads, maxShared = 32, 256, 48 << 10
		resident, copying           = 1024, 128 // threads of an SM; of a block that has few
	)
	w, parts, inside, matrices := 16/x.size(), kernels.CeilDiv(x.N, cols), lines*rows, int64(1)
	d := cut{blocks: x.Batch * kernels.CeilDiv(x.M, inside), threads: arith.RoundUp(lines*parts, warp)}
	a := x.K * (inside + w)
	if x.M <= inside {
		threads := kernels.CeilDiv(x.M, rows) * parts // of a matrix
		if d.each, inside = 1, x.M; !x.shared() {
			d.each = max(min(warp/threads, x.Batch/(2*x.sms())), 1)
		}
		matrices = d.each
		d.blocks, d.threads = kernels.CeilDiv(x.Batch, d.each), arith.RoundUp(d.each*threads, warp)
	}
	if !x.A.Trans || d.each > 0 {
		a = (matrices*inside + rows) * (x.K + 1)
	}
	if idle := x.sms() * resident / max(d.blocks, 1); d.threads < min(idle, copying) { // more threads copy
		d.threads = min(arith.RoundUp(idle-warp+1, warp), copying)
	}
	const copied = 8 // multiply-adds that take as long as a copy
	copies := matrices * x.K * (inside + x.N)
	if vectors := x.A.Trans || x.K%4 != 0; vectors {
		copies = matrices * x.K * (inside/w + x.N)
	}
	d.work = matrices*inside*x.K*parts*cols + copied*copies
	d.alone = x.K*rows*cols + copied*copies/d.threads
	c := matrices * inside * (x.N + 4)
	if x.transC {
		c = 0
	}
	d.shared = max(matrices*x.K*parts*cols+a+w, c+w) * x.size()
	return d, d.threads <= maxThreads && d.shared <= maxShared
}

// isBundle admits many small matrices.
func isBundle(c *candidate, x *problem) bool {
	const least = 4 // matrices for each SM where C has long rows
	return x.Batch >= x.sms() && (!isLong(c, x) || x.B.Trans && x.Batch >= least*x.sms())
}
