package kernels

import (
	"math"
	"slices"
)

// A block of matmul_hopper.cu computes a tile of hopperTile x hopperTile elements of
// C, by pieces of hopperStep terms of k, and is alone on its multiprocessor.
const (
	hopperTile    = 128
	hopperStep    = 32
	hopperThreads = 384
	hopperShared  = 2048 + 4*3*2*(hopperTile+hopperTile)*hopperStep // barriers; 4 stages of 3 planes of BF16 of a piece of A and one of B
)

var (
	hopperSplit   = own.Kernel("matmul_hopper", "matmul_hopper_split", hopperSplitBody)
	hopperRescale = own.Kernel("matmul_hopper", "matmul_hopper_rescale", hopperRescaleBody)
	// hopperProducts are by transA and transB.
	hopperProducts = [2][2]*Kernel{
		{own.Kernel("matmul_hopper", "matmul_hopper_f32_nn", hopperBody(false, false)), own.Kernel("matmul_hopper", "matmul_hopper_f32_nt", hopperBody(false, true))},
		{own.Kernel("matmul_hopper", "matmul_hopper_f32_tn", hopperBody(true, false)), own.Kernel("matmul_hopper", "matmul_hopper_f32_tt", hopperBody(true, true))},
	}
)

// hopperFits reports whether a float32 product is large enough for matmul_hopper.cu, on a
// device that it is compiled for, and not so large that its planes take more than a
// quarter of the memory.
func hopperFits(dev Device, batch, m, n, k int64) bool {
	const most = 1 << 30 // the kernel counts rows, columns, terms, matrices and tiles in 32 bits
	tiles := CeilDiv(m, hopperTile) * CeilDiv(n, hopperTile) * batch
	pol := hopperPolicies.on(dev)
	return dev.Major == 9 && dev.Minor == 0 && max(batch, m, n, k) <= most && tiles <= most &&
		min(m, n) > hopperTile/2 && k >= pol.terms && float64(batch)*float64(m)*float64(n)*float64(k) >= pol.products &&
		(dev.Memory == 0 || 6*batch*(m*k+k*n) <= dev.Memory/4)
}

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
// compute capability 9.0: the planes of both operands; again, where an operand's range
// asks for a power of 2; then the six products of planes.
func (p *Plan) matmulHopper(dev Device, batch, m, n, k int64, transA, transB bool) {
	rowsA, colsA, rowsB, colsB := m, k, k, n
	if transA {
		rowsA, colsA = k, m
	}
	if transB {
		rowsB, colsB = n, k
	}
	a, b := p.planar(batch, rowsA, colsA), p.planar(batch, rowsB, colsB)
	const block, each = 256, 8 // threads, elements of a thread at a time
	blocks := int(min(CeilDiv(batch*max(rowsA*a.pitch, rowsB*b.pitch), block*each), 8*int64(dev.SMs)))
	ranges, exponents := p.Workspace(2*8*int64(blocks)), p.Workspace(2*4)
	args := []any{
		Ref{0, 0}, a.at, int32(rowsA), int32(colsA), int32(a.pitch), colsA, rowsA * colsA,
		Ref{1, 0}, b.at, int32(rowsB), int32(colsB), int32(b.pitch), colsB, rowsB * colsB, int32(batch), ranges,
	}
	p.Launch(hopperSplit, blocks, block, args...).Grid[1] = 2
	p.Launch(hopperRescale, blocks, block, append(slices.Clip(args), exponents)...).Grid[1] = 2
	tiles := CeilDiv(m, hopperTile) * CeilDiv(n, hopperTile) * batch
	kernel := hopperProducts[index(transA)][index(transB)]
	p.split(dev, Float32, tiles, 1, hopperPolicies.on(dev).least, batch*m*n, k, func(c Ref, splits, chunk int64) {
		p.Launch(kernel, int(min(tiles*splits, int64(dev.SMs))), hopperThreads,
			a.tensorMap(!transA), b.tensorMap(transB), c, exponents, int32(m), int32(n), int32(k), int32(batch), int32(chunk), n).Shared = hopperShared
	})
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}

// hopperOperand is an operand of hopperSplit, whose arguments start at first.
func hopperOperand(c Call, first int) (x []float32, to []uint16, planes planar, ld, stride int64) {
	planes = planar{rows: c.Int(first + 2), cols: c.Int(first + 3), pitch: c.Int(first + 4), batch: c.Int(14)}
	return Slice[float32](c, first), Slice[uint16](c, first+1), planes, c.Int(first + 5), c.Int(first + 6)
}

// firstArguments are those at which the operands of hopperSplit and hopperRescale start.
var firstArguments = [2]int{0, 7}

// hopperSplitBody writes the planes of both operands and, in place of what each block
// would find, the range of all numbers of each.
func hopperSplitBody(c Call) {
	ranges := Slice[uint32](c, 15)
	for i, first := range firstArguments {
		writePlanes(c, first, 0)
		x, _, planes, ld, stride := hopperOperand(c, first)
		all := emptyRange
		for line := range planes.batch * planes.rows {
			at := line/planes.rows*stride + line%planes.rows*ld
			for _, v := range x[at : at+planes.cols] {
				all.add(v)
			}
		}
		for block := range c.Grid[0] {
			r := emptyRange
			if block == 0 {
				r = all
			}
			copy(ranges[2*(i*c.Grid[0]+block):], []uint32{r.most, r.least})
		}
	}
}

// hopperRescaleBody writes the planes again of operands that are to be multiplied by a
// power of 2, and the exponents.
func hopperRescaleBody(c Call) {
	ranges, exponents := Slice[uint32](c, 15), Slice[int32](c, 16)
	for i, first := range firstArguments {
		r := emptyRange
		for block := range c.Grid[0] {
			part := ranges[2*(i*c.Grid[0]+block):]
			r = sizeRange{max(r.most, part[0]), min(r.least, part[1])}
		}
		exponents[i] = int32(r.exponent())
		if exponents[i] != 0 {
			writePlanes(c, first, int(exponents[i]))
		}
	}
}

// writePlanes writes the planes of an operand times 2^e.
func writePlanes(c Call, first, e int) {
	x, to, planes, ld, stride := hopperOperand(c, first)
	plane := planes.rows * planes.pitch
	Parallel(planes.batch*planes.rows, max(Grain/planes.pitch, 1), func(lo, hi int64) {
		for line := lo; line < hi; line++ {
			matrix, row := line/planes.rows, line%planes.rows
			x, to := x[matrix*stride+row*ld:], to[matrix*3*plane+row*planes.pitch:]
			for col := range planes.pitch {
				var p [3]uint16
				if col < planes.cols {
					p = bf16Planes(float32(math.Ldexp(float64(x[col]), e)))
				}
				for i, v := range p {
					to[int64(i)*plane+col] = v
				}
			}
		}
	})
}

// sizeRange is the largest and the least size of finite numbers other than 0, as bits.
type sizeRange struct{ most, least uint32 }

var emptyRange = sizeRange{0, 0x7f800000}

func (r *sizeRange) add(x float32) {
	if size := math.Float32bits(x) &^ (1 << 31); size > 0 && size < 0x7f800000 {
		*r = sizeRange{max(r.most, size), min(r.least, size)}
	}
}

// exponent returns that of the power of 2 to multiply by, so that sums of products do not
// overflow and planes of tiny numbers are as small against one another as those of others:
// it brings all numbers between 2^-125 and 2^50. It is 0 where no power does.
func (r sizeRange) exponent() int {
	if r.most == 0 {
		return 0
	}
	log := func(bits uint32) int { return math.Ilogb(float64(math.Float32frombits(bits))) }
	lo, hi := log(r.least), log(r.most)
	if lo >= -125 && hi < 50 || lo+49-hi < -125 {
		return 0
	}
	return 49 - hi
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
		out, exponents := Slice[float32](c, 2), Slice[int32](c, 3)
		m, n, k, batch, chunk, ld := c.Int(4), c.Int(5), c.Int(6), c.Int(7), c.Int(8), c.Int(9)
		e := -int(exponents[0] + exponents[1])
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
				to := out[(split*batch+matrix)*m*ld:][:m*ld]
				gemm(transA, transB, m, n, min(chunk, k-k0), a, mapA.cols, b, mapB.cols, to)
				if e != 0 {
					for i, v := range to {
						to[i] = float32(math.Ldexp(float64(v), e))
					}
				}
			}
		}
	}
}
