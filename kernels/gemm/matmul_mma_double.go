package gemm

import "github.com/stheno-ml/stheno/kernels"

// mmaDouble is the kernel of matmul_mma_double.cu: float64 by mma.sync. Not timed on an A100. By its data sheet its tensor cores multiply float64
// at twice the rate of FMA; those of 8.6 and 8.9 at the rate of FMA, a 64th of float32's.
var mmaDouble = &candidate{
	name: "mma_f64", dtype: kernels.Float64, able: limits{on: isA100}, tile: tile{m: 64, n: 64, threads: 128, shared: 3 * 2 * 64 * (16 + 4) * 8},
	split: splitPolicy{blocksPerSM: 2, minK: 128}, kernel: own.Kernel("matmul_mma_double", "matmul_mma_f64", mmaDoubleBody), cut: cutGrid,
	args: func(_ *candidate, x *problem, d cut, to kernels.Ref) any {
		return mmaDoubleArgs{x.dense(to), x.Batch, d.chunk}
	},
}

// cutGrid cuts K if the tiles fit in a grid.
func cutGrid(c *candidate, x *problem) (cut, bool) {
	return c.split.cut(x, c.count(x)), kernels.CheckGrid(c.count(x)) == nil
}

// mmaDoubleArgs are the first arguments of the kernel.
type mmaDoubleArgs struct {
	denseArgs
	Batch int64 `arg:"int32"`
	Chunk int64
}

func mmaDoubleBody(c kernels.Call) {
	x := kernels.Args[mmaDoubleArgs](c)
	denseBody[float64](c, x.denseArgs, false, false, x.Batch, x.Chunk)
}
