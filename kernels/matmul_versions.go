package kernels

import "fmt"

// pieces is the dynamic shared memory of so many stages of pieces of s elements
// along k, in bytes; each row of a piece is followed by 4 unused elements.
func pieces(dt Dtype, m, n, s, stages int64) int { return int(stages * s * (m + n + 8) * dt.Size()) }

var (
	square = [3]int{16, 16, 1}
	flat   = [3]int{256, 1, 1}
	warps4 = [3]int{128, 1, 1}
)

// matmulVersions are versions 1 to 6. Version 7 is matmulTensor.
var matmulVersions = [...][2]tiledMatMul{
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
	},
}

func matmulVersionKernel[T Float](name string) *Kernel {
	return &Kernel{"matmul_versions", "matmul_" + name, tiledMatMulBody[T]}
}

// MatMulVersion plans [MatMul] by a numbered version of the kernel, 1 to 7. It is
// an error if the device cannot run so many blocks in one launch.
func MatMulVersion(dev Device, dt Dtype, version int, batch, m, n, k int64, transA, transB bool) (*Plan, error) {
	p := MatMul(dev, dt, batch, m, n, k, transA, transB)
	p.Launches, p.Scratch = nil, 0
	if p.Out == 0 {
		return p, nil
	}
	v := matmulTensor[dt]
	if version <= len(matmulVersions) {
		v = matmulVersions[version-1][dt]
	}
	if err := checkGrid(v.blocks(batch, m, n)); err != nil {
		return nil, fmt.Errorf("%s by version %d: %w", p.Op, version, err)
	}
	p.tiledMatMul(v, batch, m, n, k, transA, transB)
	return p, nil
}
