package gemm

import (
	"github.com/stheno-ml/stheno/kernels"
)

// outerKernels are those of matmul_outer.cu for one element type.
type outerKernels struct{ outer4, outer8, outer16, tall, slim, tiny *kernels.Kernel }

func outersOf[T kernels.Float](suffix string) outerKernels {
	kernel := func(name string) *kernels.Kernel {
		return own.Kernel("matmul_outer", "matmul_"+name+"_"+suffix, matmulBody[T](true))
	}
	return outerKernels{kernel("outer4"), kernel("outer8"), kernel("outer16"), kernel("tall"), kernel("slim"), kernel("tiny")}
}

// matmulBundle is float32's kernel of several matrices a block.
var matmulBundle = own.Kernel("matmul_outer", "matmul_bundle_f32", matmulBody[float32](true))

var matmulOuter = [...]outerKernels{kernels.Float32: outersOf[float32]("f32"), kernels.Float64: outersOf[float64]("f64")}

// Limits of matmul_outer.cu's kernels, beside those of the policy.
const (
	tallColumns = 16 // of a narrow C
	slimColumns = 4
	slimTerms   = 8
	tallRows    = 256
	outerFew    = 4

	tinyElements = 1024

	bundleRows   = 4        // of C, of a thread at a time
	bundleShared = 24 << 10 // bytes of a block
	bundleItems  = 4        // times those rows, of a thread, about
)

// appendFewTerms appends the launch of a product of few terms without an epilogue, and reports
// whether it is one. With an epilogue the unsliced tiles compute the same bits.
func appendFewTerms(p *kernels.Plan, dev kernels.Device, c result, x product) bool {
	pol, sms := matmulPolicies.On(dev), int64(dev.SMs)
	side, size := min(x.m, x.n), max(x.m, x.n)
	long := x.k <= pol.outer && (x.k <= outerFew || c.count() >= pol.plenty*sms) && (!x.transB || x.k <= outerFew) && x.n >= 128
	narrow := side <= tallColumns && size >= 128 && x.k <= pol.tall && (x.k <= slimTerms || x.batch*kernels.CeilDiv(size, tallRows) >= sms)
	switch {
	case dev.Major == 0 || c.epilogue.chain != 0 || x.k == 0 || c.count() < pol.wide*sms || c.count() > mostTerms:
		return false
	case x.k <= pol.bundle && !narrow && (!long || x.transB && x.batch >= 4*sms) && appendBundle(p, dev, c, x):
	case x.batch > 1 && x.k <= tallColumns && x.m*x.n <= tinyElements && x.m*x.n*x.k <= pol.tiny*matmulSmall[c.dt].count(1, x.m, x.n):
		appendTiny(p, c, x)
	case narrow:
		appendTall(p, c, x)
	case long:
		appendOuter(p, dev, c, x)
	default:
		return false
	}
	return true
}

// appendOuter appends the launch of a product with a long C.
func appendOuter(p *kernels.Plan, dev kernels.Device, c result, x product) {
	const threads, warps = 256, 8
	variants, step, w := matmulOuter[c.dt], apart(c.dt, x.n), 16/c.dt.Size()
	kernel, rows := variants.outer16, int64(32) // of a warp: H200, 10000 x 10 x 10000 120 us, 16 145, 8 205
	switch {
	case x.k <= outerFew:
		kernel, rows = variants.outer4, 8 // 12 x (142 x 3 x 14713) 29.0, 16 31.3, 32 34.2
		if x.transB && x.k == outerFew {
			rows = 32 // lanes read B far apart: float32, 3001 x 4 x 20011 76, 8 96; 3001 x 3 x 20012 71, 8 63, by tiles 89
		}
	case x.k <= 2*outerFew:
		kernel, rows = variants.outer8, 16 // 10001 x 5 x 9999 99, 32 108, 8 139
	}
	cols := x.n
	if step > 1 {
		cols += w - 1
	}
	jobs := func(rows int64) int64 {
		return x.batch * kernels.CeilDiv(x.m, step*rows) * step * kernels.CeilDiv(cols, 32*w)
	} // of a warp
	for ; rows > 4 && jobs(rows) < 16*int64(dev.SMs); rows /= 2 {
	}
	p.Launch(kernel, int(kernels.CeilDiv(jobs(rows), warps)), threads, x.arguments(out, x.k, rows))
}

// appendTall appends the launch of a product with a narrow C.
func appendTall(p *kernels.Plan, c result, x product) {
	if x.m < x.n {
		x = x.transposed()
	}
	kernel, columns, threads := matmulOuter[c.dt].tall, int64(tallColumns), 1024/c.dt.Size()
	rows := threads // of a block
	if x.n <= slimColumns && x.k <= slimTerms {
		kernel, columns, rows = matmulOuter[c.dt].slim, slimColumns, 4*threads
	}
	pitch := int64(0)
	if !x.transA {
		pitch = x.k | 1
	}
	if !x.transC {
		pitch = max(pitch, x.n|1)
	}
	l := p.Launch(kernel, int(x.batch*kernels.CeilDiv(x.m, rows)), int(threads), x.arguments(out, x.k, 1))
	l.Shared = int((columns*x.k + rows*pitch) * c.dt.Size())
}

// appendTiny appends the launch of a batch of small matrices.
func appendTiny(p *kernels.Plan, c result, x product) {
	p.LaunchElements(matmulOuter[c.dt].tiny, c.count(), x.arguments(out, x.k, 1))
}

// appendBundle appends the launch of a batch of matrices, several a block, and reports whether it is one of at least as many as there are
// multiprocessors, whose operands fit in shared memory.
func appendBundle(p *kernels.Plan, dev kernels.Device, c result, x product) bool {
	const threads = 256
	groups := kernels.CeilDiv(x.m, bundleRows)
	lineA, sizeB := (groups|1)*bundleRows, x.k*x.n // of A by terms; of B
	if x.transB {
		sizeB = (x.k | 1) * x.n
	}
	shared := (x.k*lineA + sizeB) * c.dt.Size() // of a matrix
	each := min(bundleShared/shared, max(bundleItems*threads/(groups*x.n), 1), max(x.batch/(4*int64(dev.SMs)), 1))
	if c.dt != kernels.Float32 || each == 0 || x.batch < max(int64(dev.SMs), 2) {
		return false
	}
	p.Launch(matmulBundle, int(kernels.CeilDiv(x.batch, each)), threads, x.arguments(out, x.k, each)).Shared = int(each * shared)
	return true
}
