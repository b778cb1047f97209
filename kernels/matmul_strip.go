package kernels

// matmulStrip are the kernels of matmul_strip.cu, by rows of C, at most.
var matmulStrip = [...]struct {
	rows   int64
	kernel *Kernel
}{{4, own.Kernel("matmul_strip", "matmul_strip4_f32", matmulStripBody)}, {8, own.Kernel("matmul_strip", "matmul_strip8_f32", matmulStripBody)}}

const (
	stripThreads = 128
	stripColumns = 4 * stripThreads // of a block
)

// strip appends the launches of a product of few rows, whose second operand is not transposed, or of few columns, whose first one
// is, and reports whether it is one for which there are enough columns, or rows, or enough to read.
func (p *Plan) strip(dev Device, c result, x product) bool {
	if x.m > x.n {
		x = x.transposed()
	}
	pol := matmulPolicies.on(dev)
	blocks, sms := CeilDiv(x.n, stripColumns)*x.batch, int64(dev.SMs)
	busy := blocks
	if x.batch*x.k*x.n >= pol.read*sms {
		busy *= pol.strip.splits(dev, blocks, x.k)
	}
	if dev.Major == 0 || c.dt != Float32 || pol.strips == 0 || x.transB || x.m > matmulStrip[1].rows || x.n < stripColumns/2 || x.k == 0 ||
		float64(busy) < pol.strips*float64(sms) {
		return false
	}
	kernel := matmulStrip[0].kernel
	if x.m > matmulStrip[0].rows {
		kernel = matmulStrip[1].kernel
	}
	rowV, termV := x.k, int64(1)
	if x.transA {
		rowV, termV = 1, x.m
	}
	rowY, colY := x.n, int64(1)
	if x.transC {
		rowY, colY = 1, x.m
	}
	p.split(dev, c, blocks, pol.strip, x.k, func(to Ref, e Epilogue, splits, chunk int64) {
		apart := e.chain != 0 // then another launch applies it
		if apart {
			to = p.Workspace(c.count() * c.dt.Size())
		}
		p.Launch(kernel, int(blocks*splits), stripThreads, x.a, x.b, to, x.m, x.n, x.k, rowV, termV, x.m*x.k, rowY, colY, x.batch, chunk)
		if apart {
			p.combine(dev, c, to, 1)
		}
	})
	return true
}

// matmulStripBody is y[r][j] = sum over l of v[r][l] * x[l][j], by the BLAS.
func matmulStripBody(c Call) {
	v, x, y := Slice[float32](c, 0), Slice[float32](c, 1), Slice[float32](c, 2)
	rows, n, k, termV, colY, batch, chunk := c.Int(3), c.Int(4), c.Int(5), c.Int(7), c.Int(10), c.Int(11), c.Int(12)
	splits := max(CeilDiv(k, chunk), 1)
	transV, ldv := termV != 1, k
	if transV {
		ldv = rows
	}
	if colY != 1 { // y is written transposed
		gemms(c.blas, true, !transV, n, rows, k, x, n, k*n, v, ldv, rows*k, y, batch, chunk, splits)
		return
	}
	gemms(c.blas, transV, false, rows, n, k, v, ldv, rows*k, x, n, k*n, y, batch, chunk, splits)
}
