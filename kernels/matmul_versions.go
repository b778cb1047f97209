package kernels

import "fmt"

// matmulVersion is one step of matmul_versions.cu for one element type: a block
// computes a tile of m x n elements of C.
type matmulVersion struct {
	m, n   int64
	block  [3]int
	shared int // dynamic, bytes
	kernel *Kernel
}

// pieces is the dynamic shared memory of so many stages of pieces of s elements
// along k, in bytes; each row of a piece is followed by 4 unused elements.
func pieces(dt Dtype, m, n, s, stages int64) int { return int(stages * s * (m + n + 8) * dt.Size()) }

// kept is that of pieces in the order of memory: rows along k of s elements are
// followed by 4 unused ones, which is the larger of the two orders.
func kept(dt Dtype, m, n, s, stages int64) int { return int(stages * (m + n) * (s + 4) * dt.Size()) }

var (
	square = [3]int{16, 16, 1}
	flat   = [3]int{256, 1, 1}
	warps4 = [3]int{128, 1, 1}
)

// matmulVersions are versions 1 to 7.
var matmulVersions = [...][2]matmulVersion{
	{
		Float32: {16, 16, square, 0, matmulVersionKernel[float32]("naive_f32")},
		Float64: {16, 16, square, 0, matmulVersionKernel[float64]("naive_f64")},
	}, {
		Float32: {128, 128, square, 0, matmulVersionKernel[float32]("registers_f32")},
		Float64: {64, 64, square, 0, matmulVersionKernel[float64]("registers_f64")},
	}, {
		Float32: {128, 128, square, 0, matmulVersionKernel[float32]("shared_f32")},
		Float64: {64, 64, square, 0, matmulVersionKernel[float64]("shared_f64")},
	}, {
		Float32: {128, 128, flat, 0, matmulVersionKernel[float32]("coalesced_f32")},
		Float64: {64, 64, flat, 0, matmulVersionKernel[float64]("coalesced_f64")},
	}, {
		Float32: {128, 128, flat, pieces(Float32, 128, 128, 8, 2), matmulVersionKernel[float32]("pipelined_f32")},
		Float64: {64, 64, flat, pieces(Float64, 64, 64, 8, 2), matmulVersionKernel[float64]("pipelined_f64")},
	}, {
		Float32: {128, 128, flat, pieces(Float32, 128, 128, 16, 3), matmulVersionKernel[float32]("warptiles_f32")},
		Float64: {128, 64, warps4, pieces(Float64, 128, 64, 8, 3), matmulVersionKernel[float64]("warptiles_f64")},
	}, {
		Float32: {128, 64, warps4, kept(Float32, 128, 64, 16, 3), matmulVersionKernel[float32]("tensor_f32")},
		Float64: {128, 64, warps4, kept(Float64, 128, 64, 8, 3), matmulVersionKernel[float64]("tensor_f64")},
	},
}

func matmulVersionKernel[T Float](name string) *Kernel {
	return own.Kernel("matmul_versions", "matmul_"+name, matmulVersionBody[T])
}

// MatMulVersion plans [MatMul] by a numbered version of the kernel, 1 to 7. It is
// an error if the device cannot run so many blocks in one launch.
func MatMulVersion(dev Device, dt Dtype, version int, batch, m, n, k int64, transA, transB bool) (*Plan, error) {
	p := MatMul(dev, dt, batch, m, n, k, transA, transB)
	p.Launches, p.Scratch = nil, 0
	if p.Out == 0 {
		return p, nil
	}
	v := matmulVersions[version-1][dt]
	if err := CheckGrid(v.blocks(batch, m, n)); err != nil {
		return nil, fmt.Errorf("%s by version %d: %w", p.Op, version, err)
	}
	p.matmulVersion(v, batch, m, n, k, transA, transB)
	return p, nil
}

// blocks counts the tiles of a batch of products of m x n elements.
func (v matmulVersion) blocks(batch, m, n int64) int64 {
	return batch * CeilDiv(m, v.m) * CeilDiv(n, v.n)
}

// matmulVersion appends the launch of a version.
func (p *Plan) matmulVersion(v matmulVersion, batch, m, n, k int64, transA, transB bool) {
	var flagA, flagB int32
	if transA {
		flagA = 1
	}
	if transB {
		flagB = 1
	}
	l := p.Launch(v.kernel, int(v.blocks(batch, m, n)), 0, Ref{0, 0}, Ref{1, 0}, Ref{Out, 0}, m, n, k, flagA, flagB)
	l.Block, l.Shared = v.block, v.shared
}

// matmulVersionBody is every version, by the BLAS that Gorgonia uses.
func matmulVersionBody[T Float](c Call) {
	a, b, out := Slice[T](c, 0), Slice[T](c, 1), Slice[T](c, 2)
	m, n, k, transA, transB := c.Int(3), c.Int(4), c.Int(5), c.Int(6) == 1, c.Int(7) == 1
	batch := int64(len(out)) / (m * n)
	lda, ldb := k, n
	if transA {
		lda = m
	}
	if transB {
		ldb = k
	}
	Parallel(batch, max(Grain/max(m*n*k, 1), 1), func(lo, hi int64) {
		for i := lo; i < hi; i++ {
			gemm(transA, transB, m, n, k, a[i*m*k:], lda, b[i*k*n:], ldb, out[i*m*n:(i+1)*m*n])
		}
	})
}
