package gemm

import (
	"fmt"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/internal/align"
	"github.com/stheno-ml/stheno/kernels"
)

// Planes is the plan of an operand of float32 products as a [Planner]: it takes a batch of matrices apart into three BF16
// planes for products on the tensor cores, see [PlanesProduct]. One operand's planes serve several products.
// It writes [Batch][3][Rows][pitch], then the range of the numbers that each block has found.
type Planes struct{ Batch, Rows, Cols int64 }

const (
	planesThreads = 256
	planesMost    = 1 << 10              // most blocks for an operand
	hopperRanges  = 8 * (planesMost + 2) // bytes of the blocks' ranges, with room to round each of two operands up
	scalingHead   = 4 + planesMost       // numbers that a product is given on its scaling, before exponents
)

var (
	hopperSplit   = own.Kernel("matmul_hopper", "matmul_hopper_split", hopperSplitBody)
	hopperRescale = own.Kernel("matmul_hopper", "matmul_hopper_rescale", hopperRescaleBody)
)

// String names the planes.
func (x Planes) String() string { return "planes" }

// Result returns the type and the shape of the planes and ranges: bytes.
func (x Planes) Result() (kernels.Dtype, []int) {
	return kernels.Uint8, []int{int(x.bytes() + hopperRanges)}
}

// Plan implements [Planner].
func (x Planes) Plan(dev kernels.Device) (*kernels.Plan, error) {
	if min(x.Batch, x.Rows, x.Cols) < 1 {
		return nil, fmt.Errorf("planes of %d x %d x %d elements, want 1 or more", x.Batch, x.Rows, x.Cols)
	}
	p := &kernels.Plan{
		Op:     fmt.Sprintf("planes(%d x %dx%d)", x.Batch, x.Rows, x.Cols),
		Inputs: []int64{x.Batch * x.Rows * x.Cols * kernels.Float32.Size()},
		Out:    x.bytes() + hopperRanges,
	}
	appendPlanes(p, dev, &planar{x, kernels.In(0), out, kernels.At(kernels.Out, x.bytes()), 0})
	return p, nil
}

// pitch returns how many elements rows are apart: they start 16-byte aligned, as TMA wants.
func (x Planes) pitch() int64 { return kernels.CeilDiv(x.Cols, 8) * 8 }

// bytes returns the size of the planes.
func (x Planes) bytes() int64 { return x.Batch * 3 * x.Rows * x.pitch() * 2 }

// vectors counts the planes' vectors of 8 elements.
func (x Planes) vectors() int64 { return x.Batch * x.Rows * x.pitch() / 8 }

// planesBlocks returns how many blocks take each operand of a launch apart: all have about as much to do, and all are on the device at once.
func planesBlocks(dev kernels.Device, operands ...Planes) (blocks [2]int64) {
	most := min(hopperPolicies.On(dev).split*int64(dev.SMs), planesMost)
	var vectors int64
	for _, x := range operands {
		vectors += x.vectors()
	}
	each := kernels.CeilDiv(vectors, planesThreads*most) * planesThreads
	for i, x := range operands {
		blocks[i] = kernels.CeilDiv(x.vectors(), each)
	}
	return blocks
}

// splitOperand is an operand of hopperSplit and hopperRescale.
type splitOperand struct {
	X, Planes         kernels.Ref
	Rows, Cols, Pitch int64 `arg:"int32"`
	LD, Matrix        int64
}

func (x Planes) arguments(from, to kernels.Ref) splitOperand {
	return splitOperand{from, to, x.Rows, x.Cols, x.pitch(), x.Cols, x.Rows * x.Cols}
}

// splitArgs and rescaleArgs are the arguments of hopperSplit and hopperRescale.
type (
	splitArgs struct {
		Operands      [2]splitOperand
		Batch, Blocks int64 `arg:"int32"` // blocks of the first operand
		Ranges        kernels.Ref
	}
	rescaleArgs struct {
		Operands  [2]splitOperand
		Batch     int64 `arg:"int32"`
		Ranges    [2]blockRanges
		Columns   [2]bool // whether lines are columns
		Preferred bool    // whether the lines of the second operand are multiplied rather than those of the first
		Scaling   kernels.Ref
		Apart     bool // whether products can keep the first planes apart
		Arrivals  kernels.Ref
		Count     int64 `arg:"int32"` // of arrivals
	}
	blockRanges struct {
		At     kernels.Ref
		Blocks int64 `arg:"int32"`
	}
)

// planar is an operand, its place, and the places of its planes and ranges; blocks take it apart.
type planar struct {
	Planes
	from, to, ranges kernels.Ref
	blocks           int64
}

// appendPlanes appends the launch that takes one or two operands apart, or none for none. It sets their blocks, and the ranges of the
// second, which lie after those of the first.
func appendPlanes(p *kernels.Plan, dev kernels.Device, operands ...*planar) {
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
	args := splitArgs{[2]splitOperand{a.arguments(a.from, a.to), b.arguments(b.from, b.to)}, a.Batch, a.blocks, a.ranges}
	blocks := a.blocks
	if len(operands) > 1 {
		blocks += b.blocks
		b.ranges = kernels.At(a.ranges.Operand, a.ranges.Offset+8*a.blocks)
	}
	p.Launch(hopperSplit, int(blocks), planesThreads, args)
}

// tensorMap returns the map from which a block copies pieces of that many lines, a
// multiple of 64, by hopperStep terms. along reports whether rows run along k.
func (x Planes) tensorMap(at kernels.Ref, along bool, lines int64) kernels.TensorMap {
	box, swizzle := []int64{64, hopperStep, 1, 1}, int64(128)
	if along {
		box, swizzle = []int64{hopperStep, lines, 1, 1}, 2*hopperStep
	}
	pitch := x.pitch()
	return kernels.TensorMap{
		Ref:     at,
		Element: kernels.TensorBF16,
		Extents: []int64{x.Cols, x.Rows, 3, x.Batch},
		Strides: []int64{pitch * 2, x.Rows * pitch * 2, 3 * x.Rows * pitch * 2},
		Box:     box,
		Swizzle: swizzle,
	}
}

// row returns row i of an operand, counted through all matrices.
func (x splitOperand) row(c kernels.Call, i int64) []float32 {
	return kernels.Slice[float32](c, x.X)[i/x.Rows*x.Matrix+i%x.Rows*x.LD:][:x.Cols]
}

// hopperSplitBody writes the planes of the operands and, in place of what each block
// would find, the range of all numbers of each.
func hopperSplitBody(c kernels.Call) {
	args := kernels.Args[splitArgs](c)
	ranges := kernels.Slice[uint32](c, args.Ranges)
	for block := range c.Grid[0] {
		ranges[2*block], ranges[2*block+1] = emptyRange.packed()
	}
	for i, block := range []int{0, int(args.Blocks)} {
		if block >= c.Grid[0] {
			break
		}
		x, all := args.Operands[i], emptyRange
		x.writePlanes(c, args.Batch, func(int64, int64) int { return 0 }, 1, false)
		for row := range args.Batch * x.Rows {
			for _, v := range x.row(c, row) {
				all.add(v)
			}
		}
		ranges[2*block], ranges[2*block+1] = all.packed()
	}
}

// hopperRescaleBody writes planes again of operands whose ranges ask for it, and how: the planes' form, which operands were written
// again, the one whose lines have powers of 2 of their own, or -1, the number of blocks that the form depends on, whether each has found
// a line whose sums may overflow, and the exponents that the sums of each line have to be divided by.
func hopperRescaleBody(c kernels.Call) {
	args := kernels.Args[rescaleArgs](c)
	scaling := kernels.Slice[int32](c, args.Scaling)
	var ranges [2]sizeRange
	for i, r := range args.Ranges {
		of := kernels.Slice[uint32](c, r.At)
		ranges[i] = emptyRange
		for block := range r.Blocks {
			ranges[i].join(of[2*block], of[2*block+1])
		}
	}
	s := hopperScales(ranges, args.Apart, int(arith.Flag(args.Preferred)))
	scaling[0], scaling[1], scaling[2], scaling[3] = int32(s.form), 0, int32(s.lines), 0
	if s.open {
		scaling[3] = int32(c.Grid[0])
	}
	for i, x := range args.Operands {
		if !s.again[i] {
			continue
		}
		scaling[1] |= 1 << i
		exponent := func(int64, int64) int { return s.other }
		if i == s.lines {
			var high bool // what one block would find
			exponent, high = x.lineExponents(c, args.Batch, args.Columns[i], s, scaling[scalingHead:])
			found := scaling[4:][:c.Grid[0]]
			clear(found)
			found[0] = arith.Flag(high)
		}
		x.writePlanes(c, args.Batch, exponent, s.scale(), s.whole)
	}
}

// lineExponents finds the exponents of the powers of 2 for the lines of an operand, by matrix and line, writes those that sums have to be
// divided by, and returns the one for an element by its row in all matrices and its column, and whether sums of a line may overflow. columns
// reports whether lines are columns.
func (x splitOperand) lineExponents(c kernels.Call, batch int64, columns bool, s hopperScaling, out []int32) (exponent func(row, col int64) int, high bool) {
	line := func(row, col int64) int64 { // row counts those of all matrices
		if columns {
			return row/x.Rows*x.Cols + col
		}
		return row
	}
	lines := batch * x.Rows
	if columns {
		lines = batch * x.Cols
	}
	ranges := slices.Repeat([]sizeRange{emptyRange}, int(lines))
	for row := range batch * x.Rows {
		for col, v := range x.row(c, row) {
			ranges[line(row, int64(col))].add(v)
		}
	}
	exponents := make([]int, lines)
	for i, r := range ranges {
		var is bool
		exponents[i], is = s.exponent(r)
		out[i] = int32(exponents[i] + s.other)
		high = high || is
	}
	return func(row, col int64) int { return exponents[line(row, col)] }, high
}

// hopperScaling is how operands are brought into range, in a way that takes nothing from numbers that have others beside them. Nothing is
// written again if planes hold all numbers, no product of two is so small that sums lose bits as denormal numbers, and no sum overflows. Else
// the lines of one operand, rows of op(A) or columns of op(B), are multiplied by a power of 2 each, so that the largest products come near
// 2^98. That makes numbers smaller only as far as no product is lost. The other operand is multiplied by a power of 2 if planes can't hold its
// least numbers.
type hopperScaling struct {
	form   int
	again  [2]bool // by operand
	lines  int     // the operand whose lines are multiplied, or -1
	target int     // the exponent that the largest number of a line comes to
	floor  int     // and that no number comes below where a line is made smaller
	other  int     // the exponent of the other operand's power of 2
	whole  bool    // see bf16Planes
	open   bool    // whether it depends on lines if sums may overflow: if not, planes of form planesApart are multiplied as plain ones
}

// Exponents of numbers, products, and sums of products that are in range.
const (
	exactPlanes  = -109 // planes hold numbers from 2^exactPlanes on
	leastProduct = -120
	largest      = 98
)

// hopperScales returns the scaling of operands of these ranges. With apart, products can keep the first planes apart. Of two
// operands whose lines would serve, those of preferred are multiplied.
func hopperScales(r [2]sizeRange, apart bool, preferred int) hopperScaling {
	s := hopperScaling{form: planesPlain, lines: -1, whole: !r[0].finite || !r[1].finite}
	special := planesScaled
	if apart {
		special = planesApart
	}
	if s.whole {
		s.form = special
	}
	hard := [2]bool{r[0].hard(), r[1].hard()}
	if s.form != planesScaled && !hard[0] && !hard[1] && r[0].low()+r[1].low() >= leastProduct && r[0].high()+r[1].high() <= largest {
		return s
	}
	s.lines = preferred
	if hard[0] != hard[1] {
		s.lines = int(arith.Flag(hard[1]))
	}
	line, other := r[s.lines], r[1-s.lines]
	s.other = max(exactPlanes-other.low(), 0)
	s.target = min(largest-other.high()-s.other, 100)
	if s.other > 0 && other.high()+s.other > 100 || line.low()+max(s.target-line.high(), 0) < exactPlanes {
		s.form, s.other, s.target = planesScaled, 0, min(largest-other.high(), 100)
	}
	s.floor = max(exactPlanes, leastProduct-other.low()-s.other)
	if s.form == planesPlain && s.target-line.high() < min(s.floor-line.low(), 0) {
		s.form, s.open = special, apart
	}
	s.again[s.lines], s.again[1-s.lines] = true, other.hard() || s.other > 0 || s.form == planesScaled
	return s
}

// exponent is that of the power of 2 for a line of this range, whose sums may overflow if high.
func (s hopperScaling) exponent(line sizeRange) (e int, high bool) {
	wanted := min(s.target-line.high(), 200)
	if e = wanted; e < 0 {
		e = min(max(e, s.floor-line.low()), 0)
	}
	return e, e > wanted
}

// scale is that of each plane against the one before.
func (s hopperScaling) scale() float32 {
	if s.form == planesScaled {
		return planeScale
	}
	return 1
}

// planeScale is the scale of planes that hold any number.
const planeScale = 1 << 8

// The forms of planes: as they are, scaled, and as they are with infinities or NaN among the numbers or the sums.
const (
	planesPlain = iota
	planesScaled
	planesApart
)

// writePlanes writes the planes of an operand, each element times the power of 2 of that exponent, by its row in all matrices and its
// column. For whole, see bf16Planes.
func (x splitOperand) writePlanes(c kernels.Call, batch int64, exponent func(row, col int64) int, scale float32, whole bool) {
	to, plane := kernels.Slice[uint16](c, x.Planes), x.Rows*x.Pitch
	kernels.Parallel(batch*x.Rows, max(kernels.Grain/x.Pitch, 1), func(lo, hi int64) {
		for line := lo; line < hi; line++ {
			row, to := x.row(c, line), to[line/x.Rows*3*plane+line%x.Rows*x.Pitch:]
			for col := range x.Pitch {
				var p [3]uint16
				if col < x.Cols {
					p = bf16Planes(float32(math.Ldexp(float64(row[col]), exponent(line, col))), scale, whole)
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

// hard reports whether planes as they are don't hold all numbers: tiny ones, and those that BF16 rounds to infinity.
func (r sizeRange) hard() bool { return r.low() < exactPlanes || r.most >= 0x7f7f8000 }

// low and high are the exponents of the least and the largest size. Of no numbers they are 128 and -150.
func (r sizeRange) low() int { return log2(r.least) }

func (r sizeRange) high() int { return log2(r.most) }

// log2 is the exponent of a number's size, given as bits.
func log2(size uint32) int {
	if size == 0 {
		return -150
	}
	return min(math.Ilogb(float64(math.Float32frombits(size))), 128)
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
	out := align.Make[float32](x.Rows * x.Cols)
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
func (x PlanesProduct) Plan(dev kernels.Device) (*kernels.Plan, error) {
	operands, fits := x.Planes(dev)
	var p *kernels.Plan
	if fits {
		p = newMatMul(x.Dtype, x.Batch, x.M, x.N, x.K)
		var made [2]*kernels.Ref
		next := kernels.Operand(2 + len(x.epilogue.operands))
		for i, given := range x.Given {
			if given {
				ref := kernels.In(next)
				made[i] = &ref
				next++
			}
		}
		appendMatMulPlanes(p, dev, result{x.Dtype, x.Batch, x.M, x.N, x.epilogue}, x.K, x.TransA, x.TransB, made)
		appendEpilogue(p, x.epilogue, x.Dtype, x.Batch, x.M, x.N)
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
func (p Product) Planes(dev kernels.Device) (operands [2]Planes, ok bool) {
	ok = !p.dot() && p.Dtype == kernels.Float32 && p.Precision == kernels.FullPrecision && planesFit(dev, p.Batch, p.M, p.N, p.K)
	return hopperOperands(p.Batch, p.M, p.N, p.K, p.TransA, p.TransB), ok
}
