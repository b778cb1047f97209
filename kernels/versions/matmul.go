package versions

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// pieces returns the dynamic shared memory, in bytes, of stages of pieces of s elements
// along k; each row of a piece is followed by 4 unused elements.
func pieces(dt kernels.Dtype, m, n, s, stages int64) int {
	return int(stages * s * (m + n + 8) * dt.Size())
}

// kept is the same for pieces in the order of memory: rows along k are followed by 4 unused elements, which is the larger of the two orders.
func kept(dt kernels.Dtype, m, n, s, stages int64) int {
	return int(stages * (m + n) * (s + 4) * dt.Size())
}

var (
	square = [3]int{16, 16, 1}
	flat   = [3]int{256, 1, 1}
	warps4 = [3]int{128, 1, 1}
)

const f32, f64 = kernels.Float32, kernels.Float64

// matmuls are versions 1 to 7; the last one is on tensor cores. Those after it are in warpgroups.go.
var matmuls = [...][2]gemm.TiledMatMul{
	{f32: matmul[float32](16, 16, square, 0, "naive_f32"), f64: matmul[float64](16, 16, square, 0, "naive_f64")},
	{f32: matmul[float32](128, 128, square, 0, "registers_f32"), f64: matmul[float64](64, 64, square, 0, "registers_f64")},
	{f32: matmul[float32](128, 128, square, 0, "shared_f32"), f64: matmul[float64](64, 64, square, 0, "shared_f64")},
	{f32: matmul[float32](128, 128, flat, 0, "coalesced_f32"), f64: matmul[float64](64, 64, flat, 0, "coalesced_f64")},
	{f32: matmul[float32](128, 128, flat, pieces(f32, 128, 128, 8, 2), "pipelined_f32"), f64: matmul[float64](64, 64, flat, pieces(f64, 64, 64, 8, 2), "pipelined_f64")},
	{f32: matmul[float32](128, 128, flat, pieces(f32, 128, 128, 16, 3), "warptiles_f32"), f64: matmul[float64](128, 64, warps4, pieces(f64, 128, 64, 8, 3), "warptiles_f64")},
	{f32: tensor[float32](kept(f32, 128, 64, 16, 3), "f32"), f64: tensor[float64](kept(f64, 128, 64, 8, 3), "f64")},
}

func matmul[T kernels.Float](m, n int64, block [3]int, shared int, name string) gemm.TiledMatMul {
	return gemm.TiledMatMul{M: m, N: n, Block: block, Shared: shared, Kernel: library.Kernel("matmul", "matmul_"+name, gemm.TiledMatMulBody[T])}
}

func tensor[T kernels.Float](shared int, name string) gemm.TiledMatMul {
	return gemm.TiledMatMul{M: 128, N: 64, Block: warps4, Shared: shared, Kernel: library.Kernel("matmul_tensor", "matmul_tensor_"+name, gemm.TiledMatMulBody[T])}
}

// MatMul plans a [gemm.Product] by version 1 to 7, on any device; [WarpgroupMatMul] plans those after them. It is an error if the
// device cannot run that many blocks in one launch.
func MatMul(dt kernels.Dtype, v int, batch, m, n, k int64, transA, transB bool) (*kernels.Plan, error) {
	if err := check("matmul", v, len(matmuls)); err != nil {
		return nil, err
	}
	p, err := matmuls[v-1][dt].Plan(dt, batch, m, n, k, transA, transB)
	if err != nil {
		return nil, fmt.Errorf("versions: by version %d: %w", v, err)
	}
	return p, nil
}
