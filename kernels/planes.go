package kernels

import (
	"fmt"
	"math"
	"slices"
)

// Planes is the plan of an operand of float32 products as a [Planner]: it takes a batch of matrices apart into three BF16
// planes for products on the tensor cores, see [PlanesProduct]. One operand's planes serve several products.
// It writes [Batch][3][Rows][pitch], then the range of the numbers that each block has found.
type Planes struct{ Batch, Rows, Cols int64 }

const (
	planesThreads = 256
	planesMost    = 1 << 10              // most blocks for an operand
	hopperRanges  = 8 * (planesMost + 2) // bytes of the blocks' ranges, with room to round each of two operands up
)

var (
	hopperSplit   = own.Kernel("matmul_hopper", "matmul_hopper_split", hopperSplitBody)
	hopperRescale = own.Kernel("matmul_hopper", "matmul_hopper_rescale", hopperRescaleBody)
)

// String names the planes.
func (x Planes) String() string { return "planes" }

// Result returns the type and the shape of the planes and ranges: bytes.
func (x Planes) Result() (Dtype, []int) { return Uint8, []int{int(x.bytes() + hopperRanges)} }

// Plan implements [Planner].
func (x Planes) Plan(dev Device) (*Plan, error) {
	if min(x.Batch, x.Rows, x.Cols) < 1 {
		return nil, fmt.Errorf("planes of %d x %d x %d elements, want 1 or more", x.Batch, x.Rows, x.Cols)
	}
	p := &Plan{
		Op:     fmt.Sprintf("planes(%d x %dx%d)", x.Batch, x.Rows, x.Cols),
		Inputs: []int64{x.Batch * x.Rows * x.Cols * Float32.Size()},
		Out:    x.bytes() + hopperRanges,
	}
	p.planes(dev, &planar{x, Ref{0, 0}, Ref{Out, 0}, Ref{Out, x.bytes()}, 0})
	return p, nil
}

// pitch returns how many elements rows are apart: they start 16-byte aligned, as TMA wants.
func (x Planes) pitch() int64 { return CeilDiv(x.Cols, 8) * 8 }

// bytes returns the size of the planes.
func (x Planes) bytes() int64 { return x.Batch * 3 * x.Rows * x.pitch() * 2 }

// vectors counts the planes' vectors of 8 elements.
func (x Planes) vectors() int64 { return x.Batch * x.Rows * x.pitch() / 8 }

// planesBlocks returns how many blocks take each operand of a launch apart: all have about as much to do, and all are on the device at once.
func planesBlocks(dev Device, operands ...Planes) (blocks [2]int64) {
	most := min(hopperPolicies.on(dev).split*int64(dev.SMs), planesMost)
	var vectors int64
	for _, x := range operands {
		vectors += x.vectors()
	}
	each := CeilDiv(vectors, planesThreads*most) * planesThreads
	for i, x := range operands {
		blocks[i] = CeilDiv(x.vectors(), each)
	}
	return blocks
}

// arguments returns those of hopperSplit and hopperRescale for an operand.
func (x Planes) arguments(from, to Ref) []any {
	return []any{from, to, int32(x.Rows), int32(x.Cols), int32(x.pitch()), x.Cols, x.Rows * x.Cols}
}

// planar is an operand, its place, and the places of its planes and ranges; blocks take it apart.
type planar struct {
	Planes
	from, to, ranges Ref
	blocks           int64
}

// planes appends the launch that takes one or two operands apart, or none for none. It sets their blocks, and the ranges of the
// second, which lie after those of the first.
func (p *Plan) planes(dev Device, operands ...*planar) {
	if len(operands) == 0 {
		return
	}
	var list []Planes
	for _, x := range operands {
		list = append(list, x.Planes)
	}
	each := planesBlocks(dev, list...)
	for i, x := range operands {
		x.blocks = each[i]
	}
	a, b := operands[0], operands[len(operands)-1]
	args := slices.Concat(a.arguments(a.from, a.to), b.arguments(b.from, b.to), []any{int32(a.Batch), int32(a.blocks), a.ranges})
	blocks := a.blocks
	if len(operands) > 1 {
		blocks += b.blocks
		b.ranges = Ref{a.ranges.Operand, a.ranges.Offset + 8*a.blocks}
	}
	p.Launch(hopperSplit, int(blocks), planesThreads, args...)
}

// tensorMap returns the map from which a block copies pieces of that many lines, a
// multiple of 64, by hopperStep terms. along reports whether rows run along k.
func (x Planes) tensorMap(at Ref, along bool, lines int64) TensorMap {
	box, swizzle := []int64{64, hopperStep, 1, 1}, int64(128)
	if along {
		box, swizzle = []int64{hopperStep, lines, 1, 1}, 2*hopperStep
	}
	pitch := x.pitch()
	return TensorMap{
		Ref:     at,
		Element: TensorBF16,
		Extents: []int64{x.Cols, x.Rows, 3, x.Batch},
		Strides: []int64{pitch * 2, x.Rows * pitch * 2, 3 * x.Rows * pitch * 2},
		Box:     box,
		Swizzle: swizzle,
	}
}

// hopperOperand is an operand of hopperSplit, whose arguments start at first.
func hopperOperand(c Call, first int) (x []float32, to []uint16, planes Planes, ld, stride int64) {
	planes = Planes{c.Int(14), c.Int(first + 2), c.Int(first + 3)}
	return Slice[float32](c, first), Slice[uint16](c, first+1), planes, c.Int(first + 5), c.Int(first + 6)
}

// firstArguments are those at which the operands of hopperSplit and hopperRescale start.
var firstArguments = [2]int{0, 7}

// hopperSplitBody writes the planes of the operands and, in place of what each block
// would find, the range of all numbers of each.
func hopperSplitBody(c Call) {
	blocksA, ranges := int(c.Int(15)), Slice[uint32](c, 16)
	for block := range c.Grid[0] {
		ranges[2*block], ranges[2*block+1] = emptyRange.packed()
	}
	for i, block := range []int{0, blocksA} {
		if block >= c.Grid[0] {
			break
		}
		writePlanes(c, firstArguments[i], 0, 1, false)
		x, _, planes, ld, stride := hopperOperand(c, firstArguments[i])
		all := emptyRange
		for line := range planes.Batch * planes.Rows {
			at := line/planes.Rows*stride + line%planes.Rows*ld
			for _, v := range x[at : at+planes.Cols] {
				all.add(v)
			}
		}
		ranges[2*block], ranges[2*block+1] = all.packed()
	}
}

// hopperRescaleBody writes planes again of operands that are to be multiplied by a
// power of 2, or of both if their planes are to be scaled against one another, and what
// it did: two exponents, and the planes' form.
func hopperRescaleBody(c Call) {
	scaling, apart := Slice[int32](c, 19), c.Int(20) != 0
	var both [2]sizeRange
	for i := range both {
		ranges := Slice[uint32](c, 15+2*i)
		both[i] = emptyRange
		for block := range c.Int(16 + 2*i) {
			both[i].join(ranges[2*block], ranges[2*block+1])
		}
	}
	e, scale := hopperScaling(both, apart)
	for i, first := range firstArguments {
		scaling[i] = int32(e[i])
		if e[i] != 0 || scale != 1 {
			writePlanes(c, first, e[i], scale, !both[0].finite || !both[1].finite)
		}
	}
	switch {
	case scale != 1:
		scaling[2] = planesScaled
	case both[0].finite && both[1].finite:
		scaling[2] = planesPlain
	default:
		scaling[2] = planesApart
	}
}

// hopperScaling returns the exponents of the powers of 2 to multiply operands of these
// ranges by, and the scale of each plane against the one before. With apart, infinities and NaN ask for none.
func hopperScaling(operands [2]sizeRange, apart bool) (e [2]int, scale float32) {
	a, okA := operands[0].exponent(-109) // three planes of BF16 hold numbers from there on
	b, okB := operands[1].exponent(-109)
	if okA && okB && (apart || operands[0].finite && operands[1].finite) {
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

// The forms of planes: as they are, scaled, and as they are with infinities or NaN among the numbers.
const (
	planesPlain = iota
	planesScaled
	planesApart
)

// writePlanes writes the planes of an operand times 2^e. For whole, see bf16Planes.
func writePlanes(c Call, first, e int, scale float32, whole bool) {
	x, to, planes, ld, stride := hopperOperand(c, first)
	pitch := planes.pitch()
	plane := planes.Rows * pitch
	Parallel(planes.Batch*planes.Rows, max(Grain/pitch, 1), func(lo, hi int64) {
		for line := lo; line < hi; line++ {
			matrix, row := line/planes.Rows, line%planes.Rows
			x, to := x[matrix*stride+row*ld:], to[matrix*3*plane+row*pitch:]
			for col := range pitch {
				var p [3]uint16
				if col < planes.Cols {
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
func (x Planes) matrix(planes []uint16, matrix int64, scale float64) []float32 {
	out := makeAligned[float32](x.Rows * x.Cols)
	pitch := x.pitch()
	plane := x.Rows * pitch
	planes = planes[matrix*3*plane:]
	for row := range x.Rows {
		for col := range x.Cols {
			i := row*pitch + col
			out[row*x.Cols+col] = float32(float64(fromBF16(planes[i])) + float64(fromBF16(planes[plane+i]))/scale + float64(fromBF16(planes[2*plane+i]))/(scale*scale))
		}
	}
	return out
}

// PlanesProduct is a float32 [Product] of operands whose [Planes] are there, if the device takes it apart, as a [Planner]. Given says
// which: they are the last inputs of its plan, after those of the Product.
type PlanesProduct struct {
	Product
	Given [2]bool
}

// String names the product.
func (x PlanesProduct) String() string { return x.Product.String() + " of planes" }

// Plan implements [Planner].
func (x PlanesProduct) Plan(dev Device) (*Plan, error) {
	operands, fits := x.Planes(dev)
	var p *Plan
	if fits {
		p = newMatMul(x.Dtype, x.Batch, x.M, x.N, x.K)
		var made [2]*Ref
		next := Operand(2 + len(x.epilogue.operands))
		for i, given := range x.Given {
			if given {
				made[i] = &Ref{next, 0}
				next++
			}
		}
		p.matmulPlanes(dev, result{x.Dtype, x.Batch, x.M, x.N, x.epilogue}, x.K, x.TransA, x.TransB, made)
		p.finish(x.epilogue, x.Dtype, x.Batch, x.M, x.N)
	} else {
		var err error
		if p, err = x.Product.Plan(dev); err != nil {
			return nil, err
		}
	}
	for i, given := range x.Given {
		if given {
			p.Inputs = append(p.Inputs, operands[i].bytes()+hopperRanges)
		}
	}
	return p, nil
}

// Planes returns the operands as they are taken apart, and reports whether plans for a device do that.
func (p Product) Planes(dev Device) (operands [2]Planes, ok bool) {
	ok = !p.dot() && p.Dtype == Float32 && p.Precision == FullPrecision && planesFit(dev, p.Batch, p.M, p.N, p.K)
	return hopperOperands(p.Batch, p.M, p.N, p.K, p.TransA, p.TransB), ok
}
