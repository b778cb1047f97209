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
	hopperFinish  = 8 * 16 * 36 * 4                                 // for steps on sums and rows that begin anywhere: of 8 warps, 16 rows of 32 sums and 4 unused
)

var (
	hopperSplit   = own.Kernel("matmul_hopper", "matmul_hopper_split", hopperSplitBody)
	hopperRescale = own.Kernel("matmul_hopper", "matmul_hopper_rescale", hopperRescaleBody)
	// hopperProducts are by blocks in a cluster, less 1, by transA and by transB.
	hopperProducts = [2][2][2]*Kernel{hopperKernels("matmul_hopper_f32_"), hopperKernels("matmul_hopper_f32_pair_")}
)

// hopperKernels returns the kernels of the entry points prefix + "nn" to "tt".
func hopperKernels(prefix string) (k [2][2]*Kernel) {
	for a, transA := range []string{"n", "t"} {
		for b, transB := range []string{"n", "t"} {
			k[a][b] = own.Kernel("matmul_hopper", prefix+transA+transB, hopperBody(a == 1, b == 1))
		}
	}
	return k
}

// hopperFits reports whether plans use matmul_hopper.cu for a float32 product: one that
// is large enough for it, on a device that it is compiled for, and not so large that its
// planes take more than a quarter of the memory.
func hopperFits(dev Device, batch, m, n, k int64) bool {
	const most = 1 << 30 // the kernel counts rows, columns, terms, matrices and tiles in 32 bits
	tiles := CeilDiv(m, hopperTile) * CeilDiv(n, hopperTile) * batch
	pol := hopperPolicies.on(dev)
	return pol.chosen && dev.Major == 9 && dev.Minor == 0 && max(batch, m, n, k) <= most && tiles <= most &&
		min(m, n) > hopperTile/2 && k >= pol.terms && float64(batch)*float64(m)*float64(n)*float64(k) >= pol.products*float64(dev.SMs) &&
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

// tensorMap returns the map from which a block copies pieces of that many lines, a
// multiple of 64, by hopperStep terms. along reports whether rows run along k.
func (x planar) tensorMap(along bool, lines int64) TensorMap {
	box, swizzle := []int64{64, hopperStep, 1, 1}, int64(128)
	if along {
		box, swizzle = []int64{hopperStep, lines, 1, 1}, 2*hopperStep
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
// compute capability 9.0: the planes of both operands; again, if their ranges ask for
// it; then the six products of planes.
func (p *Plan) matmulHopper(dev Device, c result, k int64, transA, transB bool) {
	batch, m, n := c.batch, c.m, c.n
	rowsA, colsA, rowsB, colsB := m, k, k, n
	if transA {
		rowsA, colsA = k, m
	}
	if transB {
		rowsB, colsB = n, k
	}
	a, b := p.planar(batch, rowsA, colsA), p.planar(batch, rowsB, colsB)
	const block, each = 256, 8 // threads, elements of a thread at a time
	pol := hopperPolicies.on(dev)
	blocks := int(min(CeilDiv(batch*max(rowsA*a.pitch, rowsB*b.pitch), block*each), pol.split*int64(dev.SMs)))
	ranges, scaling := p.Workspace(2*8*int64(blocks)), p.Workspace(3*4)
	args := []any{
		Ref{0, 0}, a.at, int32(rowsA), int32(colsA), int32(a.pitch), colsA, rowsA * colsA,
		Ref{1, 0}, b.at, int32(rowsB), int32(colsB), int32(b.pitch), colsB, rowsB * colsB, int32(batch), ranges,
	}
	p.Launch(hopperSplit, blocks, block, args...).Grid[1] = 2
	p.Launch(hopperRescale, min(blocks, dev.SMs), block, append(slices.Clip(args), int32(blocks), scaling)...).Grid[1] = 2
	cluster := int64(1)
	if CeilDiv(m, hopperTile)*CeilDiv(n, hopperTile)*batch >= pol.pairs*int64(dev.SMs) && m > hopperTile {
		cluster = 2
	}
	tiles := CeilDiv(m, cluster*hopperTile) * cluster * CeilDiv(n, hopperTile) * batch
	kernel := hopperProducts[cluster-1][flag(transA)][flag(transB)]
	p.split(dev, c, tiles, splitPolicy{blocks: 1, terms: pol.least}, k, func(to Ref, e Epilogue, splits, chunk int64) {
		args := []any{a.tensorMap(!transA, hopperTile), b.tensorMap(transB, hopperTile/cluster), to, scaling, int32(m), int32(n), int32(k), int32(batch), int32(chunk), n}
		l := p.Launch(kernel, int(min(tiles*splits, int64(dev.SMs)/cluster*cluster)), hopperThreads, append(args, e.arguments(Float32)...)...)
		if l.Shared = hopperShared; e.chain != 0 || n%2 != 0 {
			l.Shared += hopperFinish
		}
	})
}

// hopperOperand is an operand of hopperSplit, whose arguments start at first.
func hopperOperand(c Call, first int) (x []float32, to []uint16, planes planar, ld, stride int64) {
	planes = planar{rows: c.Int(first + 2), cols: c.Int(first + 3), pitch: c.Int(first + 4), batch: c.Int(14)}
	return Slice[float32](c, first), Slice[uint16](c, first+1), planes, c.Int(first + 5), c.Int(first + 6)
}

// firstArguments are those at which the operands of hopperSplit and hopperRescale start.
var firstArguments = [2]int{0, 7}

// hopperSplitBody writes the planes of both operands and, for every block in place of its
// own, the range of all numbers of each.
func hopperSplitBody(c Call) {
	ranges := Slice[uint32](c, 15)
	for i, first := range firstArguments {
		writePlanes(c, first, 0, 1, false)
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
			ranges[2*(i*c.Grid[0]+block)], ranges[2*(i*c.Grid[0]+block)+1] = r.packed()
		}
	}
}

// hopperRescaleBody writes the planes again of operands that are to be multiplied by a
// power of 2, or of both if their planes are to be scaled against one another. It records
// two exponents, and 1 for scaled planes.
func hopperRescaleBody(c Call) {
	ranges, blocks, scaling := Slice[uint32](c, 15), int(c.Int(16)), Slice[int32](c, 17)
	var both [2]sizeRange
	for i := range both {
		both[i] = emptyRange
		for block := range blocks {
			part := ranges[2*(i*blocks+block):]
			both[i].join(part[0], part[1])
		}
	}
	e, scale := hopperScaling(both)
	for i, first := range firstArguments {
		scaling[i] = int32(e[i])
		if e[i] != 0 || scale != 1 {
			writePlanes(c, first, e[i], scale, !both[0].finite || !both[1].finite)
		}
	}
	scaling[2] = 0
	if scale != 1 {
		scaling[2] = 1
	}
}

// hopperScaling returns the exponents of the powers of 2 to multiply operands of these
// ranges by, and the scale of each plane against the one before.
func hopperScaling(operands [2]sizeRange) (e [2]int, scale float32) {
	a, okA := operands[0].exponent(-109) // three planes of BF16 hold numbers from there on
	b, okB := operands[1].exponent(-109)
	if okA && okB && operands[0].finite && operands[1].finite {
		return [2]int{a, b}, 1
	}
	const floor = -125 // from there on, a number's first plane has all of its bits
	var ok [2]bool
	for i, r := range operands {
		e[i], ok[i] = r.exponent(floor)
	}
	for i, r := range operands {
		if !ok[i] && e[1-i] > 0 { // small numbers, and others whose products with huge ones must not overflow
			e[1-i] = max(min(e[1-i], 98-log2(r.most)-log2(operands[1-i].most)), 0)
		}
	}
	return e, planeScale
}

// planeScale is the scale of planes that hold any number.
const planeScale = 1 << 8

// writePlanes writes the planes of an operand times 2^e. For whole, see bf16Planes.
func writePlanes(c Call, first, e int, scale float32, whole bool) {
	x, to, planes, ld, stride := hopperOperand(c, first)
	plane := planes.rows * planes.pitch
	Parallel(planes.batch*planes.rows, max(Grain/planes.pitch, 1), func(lo, hi int64) {
		for line := lo; line < hi; line++ {
			matrix, row := line/planes.rows, line%planes.rows
			x, to := x[matrix*stride+row*ld:], to[matrix*3*plane+row*planes.pitch:]
			for col := range planes.pitch {
				var p [3]uint16
				if col < planes.cols {
					p = bf16Planes(float32(math.Ldexp(float64(x[col]), e)), scale, whole)
				}
				for i, v := range p {
					to[int64(i)*plane+col] = v
				}
			}
		}
	})
}

// sizeRange is the largest and the least size of finite numbers other than 0, as bits,
// and whether there are no others.
type sizeRange struct {
	most, least uint32
	finite      bool
}

var emptyRange = sizeRange{0, 0x7f800000, true}

func (r *sizeRange) add(x float32) {
	switch size := math.Float32bits(x) &^ (1 << 31); {
	case size >= 0x7f800000:
		r.finite = false
	case size > 0:
		r.most, r.least = max(r.most, size), min(r.least, size)
	}
}

// packed is a range in memory: its largest size has the sign of a range with numbers
// that are not finite.
func (r sizeRange) packed() (most, least uint32) {
	if !r.finite {
		r.most |= 1 << 31
	}
	return r.most, r.least
}

// join adds a range from memory.
func (r *sizeRange) join(most, least uint32) {
	*r = sizeRange{max(r.most, most&^(1<<31)), min(r.least, least), r.finite && most < 1<<31}
}

// exponent returns that of a power of 2 to multiply by that brings all numbers from
// 2^floor to 2^50, the largest to 2^-30 at least, so that sums of products do not
// overflow or lose bits as denormal numbers, and reports whether there is one; else it
// is 0.
func (r sizeRange) exponent(floor int) (e int, ok bool) {
	if r.most == 0 {
		return 0, true
	}
	lo, hi := log2(r.least), log2(r.most)
	switch {
	case lo >= floor && hi >= -30 && hi < 50:
		return 0, true
	case lo+49-hi < floor:
		return 0, false
	}
	return 49 - hi, true
}

// log2 is the exponent of a number's size, given as bits.
func log2(size uint32) int { return math.Ilogb(float64(math.Float32frombits(size))) }

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

// bf16Planes takes x apart: x = p[0] + p[1] / scale + p[2] / scale^2, exactly for
// planeScale and any finite x, for 1 and sizes from 2^-109 on. The planes of Inf and NaN
// are x and zeros. With whole, p[0] is not 0 unless x is: there are infinities to
// multiply it by.
func bf16Planes(x, scale float32, whole bool) (p [3]uint16) {
	p[0] = bf16(x)
	if math.Float32bits(x)&0x7f800000 == 0x7f800000 {
		return p
	}
	if whole && x != 0 && p[0]<<1 == 0 {
		p[0] |= 1
	}
	rest := (x - fromBF16(p[0])) * scale
	p[1] = bf16(rest)
	p[2] = bf16((rest - fromBF16(p[1])) * scale)
	return p
}

// matrix puts a matrix of the batch together again, rows of cols elements.
func (x planar) matrix(planes []uint16, matrix int64, scale float64) []float32 {
	out := makeAligned[float32](x.rows * x.cols)
	plane := x.rows * x.pitch
	planes = planes[matrix*3*plane:]
	for row := range x.rows {
		for col := range x.cols {
			i := row*x.pitch + col
			out[row*x.cols+col] = float32(float64(fromBF16(planes[i])) + float64(fromBF16(planes[plane+i]))/scale + float64(fromBF16(planes[2*plane+i]))/(scale*scale))
		}
	}
	return out
}

// hopperBody is the product of operands in planes, by the BLAS that Gorgonia uses.
func hopperBody(transA, transB bool) func(Call) {
	return func(c Call) {
		out, scaling := Slice[float32](c, 2), Slice[int32](c, 3)
		m, n, k, batch, chunk, ld := c.Int(4), c.Int(5), c.Int(6), c.Int(7), c.Int(8), c.Int(9)
		e, scale := -int(scaling[0]+scaling[1]), 1.0
		if scaling[2] != 0 {
			scale = planeScale
		}
		operand := func(i int) planar {
			t := c.Args[i].(TensorMap)
			return planar{rows: t.Extents[1], cols: t.Extents[0], pitch: t.Strides[0] / 2, batch: batch}
		}
		mapA, mapB := operand(0), operand(1)
		for matrix := range batch {
			a, b := mapA.matrix(Slice[uint16](c, 0), matrix, scale), mapB.matrix(Slice[uint16](c, 1), matrix, scale)
			for split := range CeilDiv(k, chunk) {
				k0 := split * chunk
				a, b := fromTerm(a, k0, mapA.cols, transA), fromTerm(b, k0, mapB.cols, !transB)
				to := out[(split*batch+matrix)*m*ld:][:m*ld]
				gemm(c.blas, transA, transB, m, n, min(chunk, k-k0), a, mapA.cols, b, mapB.cols, to)
				if e != 0 {
					for i, v := range to {
						to[i] = float32(math.Ldexp(float64(v), e))
					}
				}
			}
		}
	}
}
