package gemm

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// inner is a kernel of matmul_inner.cu, for matrices of few rows and columns and many terms, with tiles of rows x columns.
//
// H200, us, m x k x n               inner  PyTorch  the best other
// 2 x 709 x 3, B^T, 2838 of         13.5   23.5     103, thin
// 2 x 7281 x 6, 2027 of             126    458      669, thin
// 6 x 1235 x 10, B^T, 2400 of       95.4   85.8     148, thin
// 2 x 2069 x 6, f64, A^T, 5447 of   184    705      243, strips
func inner[T kernels.Float](name string, rows, columns int64) *candidate {
	const leastK, mostK, longest, leastBatch, widest = 33, 1 << 24, 32, 16, 64 // mostK: offsets in a matrix have 31 bits; widest: bytes of a row that runs across K
	dt, name := typed[T](name)
	return &candidate{
		name: name, dtype: dt, copies: elements, orient: wide, apart: true, tile: tile{m: rows, n: columns}, cut: cutInner, all: cutsInner,
		able: limits{on: isGPU, side: span{2, 2 * rows}, long: span{to: longest}, batch: span{from: leastBatch}, k: span{leastK, mostK}, elements: span{to: maxChunk},
			also: func(_ *candidate, x *problem) bool { // a warp reads 32 rows at once
				return (!x.A.Trans || x.M*x.size() <= widest) && (x.B.Trans || x.N*x.size() <= widest)
			}},
		worth:  []limits{{long: span{to: 2 * columns}, k: span{from: 64}, tiles: perSM{from: 4}}},
		kernel: own.Kernel("matmul_inner", "matmul_"+name, productBody[T](true)),
		args:   func(_ *candidate, x *problem, d cut, to kernels.Ref) any { return x.arguments(to, d.parts, 1) },
	}
}

const innerWarps = 8 // of a tile at most

// cutInner gives a tile so many warps that the device has enough.
func cutInner(c *candidate, x *problem) (cut, bool) {
	const warpsPerSM = 16
	return c.innerOf(x, min(arith.Pow2(kernels.CeilDiv(warpsPerSM*x.sms(), c.count(x))), innerWarps)), true
}

// cutsInner lists cuts by the number of warps of a tile.
func cutsInner(c *candidate, x *problem, list []cut) []cut {
	for warps := int64(1); warps <= innerWarps && (warps == 1 || 32*warps <= x.K); warps *= 2 {
		list = append(list, c.innerOf(x, warps))
	}
	return list
}

func (c *candidate) innerOf(x *problem, warps int64) cut {
	const block = 4 // warps at least
	tiles := max(block/warps, 1)
	return cut{parts: warps, blocks: kernels.CeilDiv(c.count(x), tiles), threads: 32 * warps * tiles, work: tiles * x.K, alone: x.K / warps}
}
