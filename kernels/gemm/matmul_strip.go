package gemm

import (
	"slices"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// stripForm is a kernel for a C of few rows. Its second operand is the large one.
type stripForm struct {
	rows     int64 // of C, at most
	columns  int64 // of C, of a block
	shared   int64 // dynamic shared memory of a block, in bytes
	resident int64 // blocks on a multiprocessor, as it is compiled
	limits   stripLimits
	kernel   *kernels.Kernel
}

// stripLimits say for which products a form is taken.
type stripLimits struct {
	everywhere bool    // whether the kernel is compiled for every architecture, else for 9.0 alone
	least      int64   // bytes of the large operand for each multiprocessor
	most       int64   // terms, if not 0
	blocks     float64 // for each multiprocessor
	full       bool    // whether three quarters of the blocks' columns have to be columns of C
	counted    int64   // bytes of the large operand for each multiprocessor from which splits count as blocks
}

// stripThreads is the block of the kernels of matmul_strip.cu and matmul_narrow.cu.
const stripThreads = 128

// stripOf is a kernel of matmul_strip.cu, whose threads compute that many columns of C each.
func stripOf[T kernels.Float](name string, rows, each, resident int64, limits stripLimits) stripForm {
	return stripForm{rows, each * stripThreads, 0, resident, limits, own.Kernel("matmul_strip", "matmul_"+name, matmulStripBody[T])}
}

// narrowOf is a kernel of matmul_narrow.cu, whose C is the transpose of this one. Its threads compute that many rows of it each.
func narrowOf[T kernels.Float](name string, rows, each, stages, resident int64, limits stripLimits) stripForm {
	const piece, aligned = 9 * 16, 4 // bytes of a row in a stage, with the pad; terms before those of a step
	size, terms := int64(unsafe.Sizeof(T(0))), int64(256)
	if rows*size > 64 {
		terms = 128
	}
	shared := max(stages*piece*each*stripThreads+(terms+aligned)*rows*size, each*stripThreads*(rows|1)*size)
	return stripForm{rows, each * stripThreads, shared, resident, limits, own.Kernel("matmul_narrow", "matmul_"+name, matmulNarrowBody[T])}
}

// The kernels for a C of few rows, by type: where rows of the large operand are of columns of C, and where they are of the terms of a sum.
// H200, us, m x k x n, the large operand second; before, tiles.
var (
	matmulStrip = [...][]stripForm{
		kernels.Float32: {
			// 5 x (4 x 351 x 82202) 146, before 286; 3 x 5000 x 40000 189, in half as many splits 217, before 270; 8 x 1000 x 100001 110, 142, 171
			stripOf[float32]("strip4_f32", 4, 4, 8, stripLimits{everywhere: true, blocks: 0.5, counted: 1 << 19}),
			stripOf[float32]("strip8_f32", 8, 4, 6, stripLimits{everywhere: true, blocks: 0.5, counted: 1 << 19}),
			// 16 x 400 x 200000 115, before 144; 13 x 30000 x 3000 138, 224; 12 x 173 x 215782 84, 95; but 12 x 331 x 38845 41, 32; 10 x 784 x 10000 28, 20
			stripOf[float32]("strip16_f32", 16, 4, 4, stripLimits{least: 1 << 20, blocks: 0.5, full: true}),
		},
		kernels.Float64: {
			// 3 x 100 x 1000003 195, before 562; 6 x 2000 x 70000 271, 349; 5 x 20000 x 3001 123, 263; 4 x 170 x 20001 18.6, 20.0
			stripOf[float64]("strip4_f64", 4, 2, 6, stripLimits{least: 1 << 19, blocks: 0.5}),
			stripOf[float64]("strip8_f64", 8, 2, 5, stripLimits{least: 1 << 19, blocks: 0.5}),
			// 12 x 300 x 100001 87, before 112; 10 x 784 x 10000 40, 33; 12 x 46325 x 998 143, 196; blocks not full: 15 x 48492 x 520 111, 76
			stripOf[float64]("strip16_f64", 16, 2, 4, stripLimits{least: 1 << 20, blocks: 0.5, full: true}),
		},
	}
	matmulNarrow = [...][]stripForm{
		kernels.Float32: {
			// 3 x 129 x 300001 54, before 119; 8 x 80029 x 1647 183, 295; 5 x (7 x 351 x 30001) 85, 115. Two rows a thread in two stages: 63, 182, 95
			narrowOf[float32]("narrow4_f32", 4, 1, 3, 3, stripLimits{blocks: 1, counted: 1 << 18}),
			narrowOf[float32]("narrow8_f32", 8, 1, 3, 3, stripLimits{blocks: 1, counted: 1 << 18}),
			// 12 x 90 x 1000000 158, before 307; 11 x 5001 x 5003 51, 71; 10 x 4096 x 4096 36, 40; 12 x 331 x 38845 36, 33; not counted, 10 x 784 x 10000 22.2, 23.1; 9 x 2137 x 2088 21.5, 17.8.
			// A row a thread in three stages: 191, 54, 37, 34
			narrowOf[float32]("narrow12_f32", 12, 2, 2, 2, stripLimits{blocks: 1, counted: 1 << 18}),
			// 16 x 1000 x 50000 102, before 86; 16 x 170 x 20000 15.4, 13.9
			narrowOf[float32]("narrow16_f32", 16, 2, 2, 2, stripLimits{most: 128, blocks: 1, counted: 1 << 18}),
		},
		kernels.Float64: {
			// 6 x 75 x 374633 87, before 193; 7 x 120 x 500000 153, 302; 5 x 15678 x 6190 240, 352; 4 x 70 x 20001 7.3, 14.7
			narrowOf[float64]("narrow4_f64", 4, 1, 3, 3, stripLimits{blocks: 1, counted: 1 << 18}),
			narrowOf[float64]("narrow8_f64", 8, 1, 3, 3, stripLimits{blocks: 1, counted: 1 << 18}),
			// 12 x 100 x 300000 94, before 177; 9 x 333 x 100003 106, 124; 10 x 784 x 10000 28, 35. A row a thread in three stages: 100, 92, 31
			narrowOf[float64]("narrow12_f64", 12, 2, 2, 2, stripLimits{blocks: 1, counted: 1 << 18}),
			// 16 x 100 x 300000 100, before 178; 15 x 220 x 42483 46.6, 45.2; 16 x 885 x 29205 90, 85
			narrowOf[float64]("narrow16_f64", 16, 2, 2, 2, stripLimits{most: 128, blocks: 1, counted: 1 << 18}),
		},
	}
)

// fits reports whether a form is taken for a product, in so many blocks and splits of them.
func (f stripForm) fits(dev kernels.Device, dt kernels.Dtype, x product, blocks, splits int64) bool {
	sms, bytes := int64(dev.SMs), x.batch*x.k*x.n*dt.Size()
	if bytes >= f.limits.counted*sms {
		blocks *= splits
	}
	return (f.limits.everywhere || dev.Major == 9 && dev.Minor == 0) && x.n >= f.columns/2 &&
		(!f.limits.full || 4*x.n >= 3*kernels.CeilDiv(x.n, f.columns)*f.columns) && int64(dev.SharedOptin) >= f.shared &&
		bytes >= f.limits.least*sms && (f.limits.most == 0 || x.k <= f.limits.most) && float64(blocks) >= f.limits.blocks*float64(sms)
}

// appendStrip appends the launches of a product of few rows, whose second operand is not transposed, or of few columns, whose first one
// is, and reports whether it is one that is bound by reading the large operand.
func appendStrip(p *kernels.Plan, dev kernels.Device, c result, x product) bool {
	if x.m > x.n {
		x = x.transposed()
	}
	return !x.transB && appendFewRows(p, dev, c, x, matmulStrip[c.dt])
}

// appendNarrow is the same where rows of the large operand are of the terms of a sum.
func appendNarrow(p *kernels.Plan, dev kernels.Device, c result, x product) bool {
	if x.m > x.n {
		x = x.transposed()
	}
	return x.transB && x.k >= matmulPolicies.On(dev).narrow && appendFewRows(p, dev, c, x, matmulNarrow[c.dt])
}

// appendFewRows appends the launches of a product by the first of the forms for its rows, and reports whether that one is taken.
func appendFewRows(p *kernels.Plan, dev kernels.Device, c result, x product, forms []stripForm) bool {
	i := slices.IndexFunc(forms, func(f stripForm) bool { return x.m <= f.rows })
	if dev.Major == 0 || i < 0 || x.k == 0 {
		return false
	}
	form := forms[i]
	pol, blocks := matmulPolicies.On(dev), kernels.CeilDiv(x.n, form.columns)*x.batch
	cut := pol.strip
	cut.blocks = form.resident
	if x.k/(2*cut.splits(dev, blocks, x.k)) >= pol.deep {
		cut.blocks *= 2
	}
	if !form.fits(dev, c.dt, x, blocks, cut.splits(dev, blocks, x.k)) {
		return false
	}
	rowV, termV := x.k, int64(1)
	if x.transA {
		rowV, termV = 1, x.m
	}
	rowY, colY := x.n, int64(1)
	if x.transC {
		rowY, colY = 1, x.m
	}
	appendSplit(p, dev, c, blocks, cut, x.k, func(to kernels.Ref, e Epilogue, splits, chunk int64) {
		apart := e.chain != 0 // then another launch applies it
		if apart {
			to = p.Workspace(c.count() * c.dt.Size())
		}
		args := stripArgs{x.a, x.b, to, x.m, x.n, x.k, rowV, termV, x.m * x.k, rowY, colY, x.batch, chunk}
		if x.transB {
			args.A, args.B, args.M, args.N, args.RowC, args.ColumnC = x.b, x.a, x.n, x.m, colY, rowY
		}
		p.Launch(form.kernel, int(blocks*splits), stripThreads, args).Shared = int(form.shared)
		if apart {
			appendCombine(p, dev, c, to, 1)
		}
	})
	return true
}

// stripArgs are the arguments of the kernels: the small operand has strides, and so has C.
type stripArgs struct {
	A, B, C              kernels.Ref
	M, N, K              int64
	RowV, TermV, MatrixV int64
	RowC, ColumnC        int64
	Batch, Chunk         int64
}

// matmulStripBody is C = op(A) B of few rows of A, by the BLAS.
func matmulStripBody[T kernels.Float](c kernels.Call) {
	x := kernels.Args[stripArgs](c)
	product := tiledArgs{x.A, x.B, x.C, x.M, x.N, x.K, x.TermV != 1, false}
	if x.ColumnC != 1 {
		product = product.transposed()
	}
	tiledBody[T](c, product, x.Batch, x.Chunk)
}

// matmulNarrowBody is C = A op(B) of few columns of B, by the BLAS.
func matmulNarrowBody[T kernels.Float](c kernels.Call) {
	x := kernels.Args[stripArgs](c)
	product := tiledArgs{x.B, x.A, x.C, x.N, x.M, x.K, x.TermV != 1, true}
	if x.RowC != 1 {
		product = product.transposed()
	}
	tiledBody[T](c, product, x.Batch, x.Chunk)
}
