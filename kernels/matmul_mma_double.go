package kernels

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

var mmaDoublePolicies = measured[mmaDoublePolicy]{
	// Not timed on an A100. By its data sheet its tensor cores multiply float64 at twice the rate of FMA.
	{80, mmaDoublePolicy{chosen: true, side: 33, terms: 17, splits: splitPolicy{blocks: 2, terms: 128}}},
	{86, mmaDoublePolicy{}}, // the rate of float64 is a 64th of float32's, as FMA or otherwise
}

// mmaDouble appends the launches of a float64 product by matmul_mma_double.cu, or returns false: C is narrow, or sums are short.
func (p *Plan) mmaDouble(dev Device, c result, k int64, transA, transB bool) bool {
	pol := mmaDoublePolicies.on(dev)
	tiles := c.batch * CeilDiv(c.m, mmaDoubleTile) * CeilDiv(c.n, mmaDoubleTile)
	if !pol.chosen || c.dt != Float64 || dev.Major != 8 || dev.Minor != 0 || min(c.m, c.n) < pol.side || k < pol.terms || CheckGrid(tiles) != nil {
		return false
	}
	p.split(dev, c, tiles, pol.splits, k, func(to Ref, e Epilogue, splits, chunk int64) {
		args := []any{Ref{0, 0}, Ref{1, 0}, to, c.m, c.n, k, flag(transA), flag(transB), int32(c.batch), chunk}
		p.Launch(mmaDoubleKernel, int(tiles*splits), mmaDoubleThreads, append(args, e.arguments(c.dt)...)...).Shared = mmaDoubleBytes
	})
	return true
}

// mmaDoubleBody takes the batch and the terms of a split beside the arguments of TiledMatMulBody.
func mmaDoubleBody(c Call) { tiledBody[float64](c, c.Int(8), c.Int(9)) }
