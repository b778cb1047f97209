package kernels

// doubleForm is a form of matmul_double.cu.
type doubleForm struct {
	m, n, step, stages int64 // the tile of C of a block, its step along k, and the pieces in shared memory
	threads            int
	kernel             *Kernel
}

var (
	doubleLarge = doubleForm{128, 64, 16, 3, 128, own.Kernel("matmul_double", "matmul_double_large", doubleBody)}
	doubleSmall = doubleForm{64, 64, 8, 4, 128, own.Kernel("matmul_double", "matmul_double_small", doubleBody)}
)

// shared returns the dynamic shared memory of a block, in bytes: stages of pieces of A and B,
// whose rows along k are followed by 4 unused elements; in their place at the end a tile of sums, whose
// rows are followed by 2.
func (f doubleForm) shared() int { return int(8 * max(f.stages*(f.m+f.n)*(f.step+4), f.m*(f.n+2))) }

// blocks counts the tiles of a batch of products of m x n elements.
func (f doubleForm) blocks(batch, m, n int64) int64 { return batch * CeilDiv(m, f.m) * CeilDiv(n, f.n) }

// double appends the launches of a form of matmul_double.cu.
func (p *Plan) double(dev Device, f doubleForm, pol splitPolicy, c result, k int64, transA, transB bool) {
	blocks := f.blocks(c.batch, c.m, c.n)
	p.split(dev, c, blocks, pol, k, func(to Ref, e Epilogue, splits, chunk int64) {
		args := []any{Ref{0, 0}, Ref{1, 0}, to, c.m, c.n, k, flag(transA), flag(transB), c.batch, chunk}
		p.Launch(f.kernel, int(blocks*splits), f.threads, append(args, e.arguments(c.dt)...)...).Shared = f.shared()
	})
}

// doubleBody takes the batch and the terms of a split beside the arguments of TiledMatMulBody.
func doubleBody(c Call) { tiledBody[float64](c, c.Int(8), c.Int(9)) }
