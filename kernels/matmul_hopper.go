package kernels

import "math"

// A block of matmul_hopper.cu computes a tile of hopperTile x hopperTile elements of
// C, by pieces of hopperStep terms of k, and is alone on its multiprocessor.
const (
	hopperTile    = 128
	hopperStep    = 32
	hopperThreads = 384
	hopperShared  = 2048 + 4*3*2*(hopperTile+hopperTile)*hopperStep // barriers; 4 stages of 3 planes of BF16 of a piece of A and one of B
)

var (
	hopperSplit = own.Kernel("matmul_hopper", "matmul_hopper_split", hopperSplitBody)
	// hopperProducts are by transA and transB.
	hopperProducts = [2][2]*Kernel{
		{own.Kernel("matmul_hopper", "matmul_hopper_f32_nn", hopperBody(false, false)), own.Kernel("matmul_hopper", "matmul_hopper_f32_nt", hopperBody(false, true))},
		{own.Kernel("matmul_hopper", "matmul_hopper_f32_tn", hopperBody(true, false)), own.Kernel("matmul_hopper", "matmul_hopper_f32_tt", hopperBody(true, true))},
	}
)

// planar is a float32 matrix of rows x cols elements, or a batch of them, as three
// planes of BF16: [batch][3][rows][pitch] in scratch memory.
type planar struct {
	at                       Ref
	rows, cols, pitch, batch int64
}

func (p *Plan) planar(batch, rows, cols int64) planar {
	x := planar{rows: rows, cols: cols, pitch: CeilDiv(cols, 8) * 8, batch: batch} // rows start 16-byte aligned, as TMA wants
	x.at = p.Workspace(batch * 3 * rows * x.pitch * 2)
	return x
}

// tensorMap returns the map from which pieces of hopperTile lines by hopperStep terms
// are copied. along says that rows run along k.
func (x planar) tensorMap(along bool) TensorMap {
	box, swizzle := []int64{64, hopperStep, 1, 1}, int64(128)
	if along {
		box, swizzle = []int64{hopperStep, hopperTile, 1, 1}, 2*hopperStep
	}
	return TensorMap{
		Ref:     x.at,
		Element: TensorBF16,
		Extents: []int64{x.cols, x.rows, 3, x.batch},
		Strides: []int64{x.pitch * 2, x.rows * x.pitch * 2, 3 * x.rows * x.pitch * 2},
		Box:     box,
		Swizzle: swizzle,
	}
}

// matmulHopper appends the launches of a float32 product on the tensor cores of
// compute capability 9.0: the operands' planes, then their six products.
func (p *Plan) matmulHopper(dev Device, batch, m, n, k int64, transA, transB bool) {
	rowsA, colsA, rowsB, colsB := m, k, k, n
	if transA {
		rowsA, colsA = k, m
	}
	if transB {
		rowsB, colsB = n, k
	}
	a, b := p.planar(batch, rowsA, colsA), p.planar(batch, rowsB, colsB)
	const block = 256 // threads, of 8 elements each
	vectors := batch * max(rowsA*a.pitch, rowsB*b.pitch) / 8
	p.Launch(hopperSplit, int(min(CeilDiv(vectors, block), 8*int64(dev.SMs))), block,
		Ref{0, 0}, a.at, int32(rowsA), int32(colsA), int32(a.pitch), colsA, rowsA*colsA,
		Ref{1, 0}, b.at, int32(rowsB), int32(colsB), int32(b.pitch), colsB, rowsB*colsB, int32(batch)).Grid[1] = 2
	tiles := CeilDiv(m, hopperTile) * CeilDiv(n, hopperTile) * batch
	kernel := hopperProducts[index(transA)][index(transB)]
	p.split(dev, Float32, tiles, 1, hopperPolicies.on(dev).least, batch*m*n, k, func(c Ref, splits, chunk int64) {
		p.Launch(kernel, int(min(tiles*splits, int64(dev.SMs))), hopperThreads,
			a.tensorMap(!transA), b.tensorMap(transB), c, int32(m), int32(n), int32(k), int32(batch), int32(chunk), n).Shared = hopperShared
	})
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}

// hopperSplitBody writes the planes of both operands.
func hopperSplitBody(c Call) {
	batch := c.Int(14)
	for _, first := range []int{0, 7} {
		x, to := Slice[float32](c, first), Slice[uint16](c, first+1)
		rows, cols, pitch, ld, stride := c.Int(first+2), c.Int(first+3), c.Int(first+4), c.Int(first+5), c.Int(first+6)
		plane := rows * pitch
		Parallel(batch*rows, max(Grain/pitch, 1), func(lo, hi int64) {
			for line := lo; line < hi; line++ {
				matrix, row := line/rows, line%rows
				x, to := x[matrix*stride+row*ld:], to[matrix*3*plane+row*pitch:]
				for col := range pitch {
					var p [3]uint16
					if col < cols {
						p = bf16Planes(x[col])
					}
					for i, v := range p {
						to[int64(i)*plane+col] = v
					}
				}
			}
		})
	}
}

// bf16 rounds x to BF16, its upper half; a finite x stays finite.
func bf16(x float32) uint16 {
	bits := math.Float32bits(x)
	switch size := bits &^ (1 << 31); {
	case size > 0x7f800000: // NaN
		return uint16(bits>>16 | 0x7fff)
	case size >= 0x7f7f8000 && size < 0x7f800000:
		return uint16(bits >> 16)
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

func fromBF16(x uint16) float32 { return math.Float32frombits(uint32(x) << 16) }

// bf16Planes takes x apart: x = p[0] + p[1] / 2^8 + p[2] / 2^16, exactly, for any finite
// x; else p[0] is x and the others are 0.
func bf16Planes(x float32) (p [3]uint16) {
	p[0] = bf16(x)
	if math.Float32bits(x)&0x7f800000 == 0x7f800000 {
		return p
	}
	rest := (x - fromBF16(p[0])) * 256
	p[1] = bf16(rest)
	p[2] = bf16((rest - fromBF16(p[1])) * 256)
	return p
}

// sum returns what bf16Planes took apart.
func (x planar) sum(planes []uint16, i int64) float32 {
	plane := x.rows * x.pitch
	p := [3]float64{float64(fromBF16(planes[i])), float64(fromBF16(planes[plane+i])), float64(fromBF16(planes[2*plane+i]))}
	return float32(p[0] + p[1]/(1<<8) + p[2]/(1<<16))
}

// matrix puts a matrix of the batch together again, rows of cols elements.
func (x planar) matrix(planes []uint16, matrix int64) []float32 {
	out := make([]float32, x.rows*x.cols)
	planes = planes[matrix*3*x.rows*x.pitch:]
	for row := range x.rows {
		for col := range x.cols {
			out[row*x.cols+col] = x.sum(planes, row*x.pitch+col)
		}
	}
	return out
}

// hopperBody is the product of operands in planes, by the BLAS that Gorgonia uses.
func hopperBody(transA, transB bool) func(Call) {
	return func(c Call) {
		out := Slice[float32](c, 2)
		m, n, k, batch, chunk, ld := c.Int(3), c.Int(4), c.Int(5), c.Int(6), c.Int(7), c.Int(8)
		operand := func(i int) planar {
			t := c.Args[i].(TensorMap)
			return planar{rows: t.Extents[1], cols: t.Extents[0], pitch: t.Strides[0] / 2, batch: batch}
		}
		mapA, mapB := operand(0), operand(1)
		for matrix := range batch {
			a, b := mapA.matrix(Slice[uint16](c, 0), matrix), mapB.matrix(Slice[uint16](c, 1), matrix)
			for split := range CeilDiv(k, chunk) {
				k0 := split * chunk
				a, b := a, b
				if transA {
					a = a[k0*m:]
				} else {
					a = a[k0:]
				}
				if transB {
					b = b[k0:]
				} else {
					b = b[k0*n:]
				}
				gemm(transA, transB, m, n, min(chunk, k-k0), a, mapA.cols, b, mapB.cols, out[(split*batch+matrix)*m*ld:])
			}
		}
	}
}
