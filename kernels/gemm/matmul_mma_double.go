package gemm

import (
	"github.com/stheno-ml/stheno/kernels"
)

// matmul_mma_double.cu computes tiles of mmaDoubleTile x mmaDoubleTile elements of C, by pieces of its factors of so many bytes.
const (
	mmaDoubleTile    = 64
	mmaDoubleThreads = 128
	mmaDoubleBytes   = 3 * 2 * mmaDoubleTile * (16 + 4) * 8 // of shared memory
)

var mmaDoubleKernel = own.Kernel("matmul_mma_double", "matmul_mma_f64", mmaDoubleBody)

// mmaDoublePolicy tunes float64 products by mma.sync.
type mmaDoublePolicy struct {
	chosen bool  // whether plans use the kernel
	side   int64 // least rows and columns
	terms  int64 // least k
	splits splitPolicy
}

var mmaDoublePolicies = kernels.Measured[mmaDoublePolicy]{
	// Not timed on an A100. By its data sheet its tensor cores multiply float64 at twice the rate of FMA.
	{80, mmaDoublePolicy{chosen: true, side: 33, terms: 17, splits: splitPolicy{blocks: 2, terms: 128}}},
	{86, mmaDoublePolicy{}}, // the rate of float64 is a 64th of float32's, as FMA or otherwise
}

// appendMMADouble appends the launches of a float64 product by matmul_mma_double.cu, or returns false: C is narrow, or sums are short.
func appendMMADouble(p *kernels.Plan, dev kernels.Device, c result, k int64, transA, transB bool) bool {
	pol := mmaDoublePolicies.On(dev)
	tiles := c.batch * kernels.CeilDiv(c.m, mmaDoubleTile) * kernels.CeilDiv(c.n, mmaDoubleTile)
	if !pol.chosen || c.dt != kernels.Float64 || dev.Major != 8 || dev.Minor != 0 || min(c.m, c.n) < pol.side || k < pol.terms || kernels.CheckGrid(tiles) != nil {
		return false
	}
	appendSplit(p, dev, c, tiles, pol.splits, k, func(to kernels.Ref, e Epilogue, splits, chunk int64) {
		args := mmaDoubleArgs{tiledArgs{kernels.In(0), kernels.In(1), to, c.m, c.n, k, transA, transB}, c.batch, chunk}
		p.Launch(mmaDoubleKernel, int(tiles*splits), mmaDoubleThreads, args, e.arguments(c.dt)).Shared = mmaDoubleBytes
	})
	return true
}

// mmaDoubleArgs are the first arguments of the kernel.
type mmaDoubleArgs struct {
	tiledArgs
	Batch int64 `arg:"int32"`
	Chunk int64
}

func mmaDoubleBody(c kernels.Call) {
	x := kernels.Args[mmaDoubleArgs](c)
	tiledBody[float64](c, x.tiledArgs, x.Batch, x.Chunk)
}
