package gemm

import (
	"math"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
	"github.com/stheno-ml/stheno/kernels/internal/bf16split"
)

const (
	splitThreads   = 256
	splitMaxBlocks = 1 << 10 // of an operand
	// Time in us on an H200, by blocks per SM.
	//
	// operands                    3 blocks  4     6     8
	// 4096 x 784 and 784 x 512    15.4      15.3  16.0  15.3
	// 4096 x 4096                 96        96    97    93
	splitBlocksPerSM = 4
	rangesBytes      = 8 * (splitMaxBlocks + 2) // of the blocks' ranges, with room to round each of two operands up
	scalingHead      = 4 + splitMaxBlocks       // numbers that a product is given on its scaling, before exponents
)

var (
	splitKernel   = own.Kernel("matmul_hopper", "matmul_hopper_split", splitBody)
	rescaleKernel = own.Kernel("matmul_hopper", "matmul_hopper_rescale", rescaleBody)
)

// conversion is an operand and the places that it is prepared from and to, and for splits that of its ranges and how many blocks split it.
type conversion struct {
	Prepare
	from, to, ranges kernels.Ref
	blocks           int64
	joins            bool // from has splits that a generated kernel has stored: numbers are found from them
}

func (x conversion) operand(to kernels.Ref) splitOperand {
	if x.joins {
		return splitOperand{x.from, to, x.Rows, x.Cols, x.pitch(), 0, 0}
	}
	return splitOperand{x.from, to, x.Rows, x.Cols, x.pitch(), x.Cols, x.Rows * x.Cols}
}

// setBlocks sets how many blocks split each operand of a launch: all have about as much to do, and all are on the device at once.
func setBlocks(dev kernels.Device, operands ...*conversion) {
	var vectors int64 // of 8 elements
	for _, x := range operands {
		vectors += x.bytes() / (3 * 16)
	}
	each := kernels.CeilDiv(vectors, splitThreads*min(splitBlocksPerSM*int64(dev.SMs), splitMaxBlocks)) * splitThreads
	for _, x := range operands {
		x.blocks = kernels.CeilDiv(x.bytes()/(3*16), each)
	}
}

// appendSplit appends the launch that splits one or two operands; with none it appends nothing. It sets each operand's blocks, and places
// the ranges of the second after those of the first.
func appendSplit(p *kernels.Plan, dev kernels.Device, operands ...*conversion) {
	if len(operands) == 0 {
		return
	}
	setBlocks(dev, operands...)
	a, b := operands[0], operands[len(operands)-1]
	blocks := a.blocks
	if len(operands) > 1 {
		blocks += b.blocks
		b.ranges = kernels.At(a.ranges.Operand, a.ranges.Offset+8*a.blocks)
	}
	p.Launch(splitKernel, int(blocks), splitThreads, splitArgs{[2]splitOperand{a.operand(a.to), b.operand(b.to)}, a.Batch, a.blocks, a.ranges})
}

// splitOperand is an operand of splitKernel and rescaleKernel. With LD = 0, X has the encoded splits of a matrix in place of its elements.
type splitOperand struct {
	X, Splits         kernels.Ref
	Rows, Cols, Pitch int64 `arg:"int32"`
	LD, Matrix        int64
}

// splitArgs and rescaleArgs are the arguments of splitKernel and rescaleKernel.
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
		Apart     bool // whether products can keep the first splits apart
		Arrivals  kernels.Ref
		Count     int64 `arg:"int32"` // of arrivals
	}
	blockRanges struct {
		At     kernels.Ref
		Blocks int64 `arg:"int32"`
	}
)

// shift returns the exponent of the power of 2 by which the splits are larger than the numbers.
func (x splitOperand) shift() int {
	if x.LD == 0 {
		return 0
	}
	return splitShift
}

// row returns row i of an operand, counted through all matrices.
func (x splitOperand) row(c kernels.Call, i int64) []float32 {
	if x.LD == 0 {
		splits, row := kernels.Slice[uint16](c, x.X)[i*x.Pitch:], make([]float32, x.Cols)
		for col := range row {
			row[col] = bf16split.Decode([3]uint16{splits[col], splits[x.Rows*x.Pitch+int64(col)], splits[2*x.Rows*x.Pitch+int64(col)]})
		}
		return row
	}
	return kernels.Slice[float32](c, x.X)[i/x.Rows*x.Matrix+i%x.Rows*x.LD:][:x.Cols]
}

// splitBody writes the splits of the operands and, in place of what each block would find, the range of all numbers of each.
func splitBody(c kernels.Call) {
	args := kernels.Args[splitArgs](c)
	ranges := kernels.Slice[uint32](c, args.Ranges)
	for block := range c.Grid[0] {
		ranges[2*block], ranges[2*block+1] = bf16split.None.Packed()
	}
	for i, block := range []int{0, int(args.Blocks)} {
		if block >= c.Grid[0] {
			break
		}
		x, all := args.Operands[i], bf16split.None
		x.write(c, args.Batch, func(int64, int64) int { return splitShift }, 1, false)
		for row := range args.Batch * x.Rows {
			for _, v := range x.row(c, row) {
				all.Add(v)
			}
		}
		ranges[2*block], ranges[2*block+1] = all.Packed()
	}
}

// rescaleBody writes the splits again of operands whose ranges ask for it, and how: first the splits' form and which operands were written again. Then comes the operand
// whose lines have their own powers of 2, or -1 - e if all sums have to be divided by 2^e. Then come the number of blocks that the form depends on, and whether each has
// found a line whose sums may overflow. Last come the exponents that the sums of each line have to be divided by.
func rescaleBody(c kernels.Call) {
	args := kernels.Args[rescaleArgs](c)
	scaling := kernels.Slice[int32](c, args.Scaling)
	var ranges [2]bf16split.Magnitudes
	for i, r := range args.Ranges {
		of := kernels.Slice[uint32](c, r.At)
		ranges[i] = bf16split.None
		for block := range r.Blocks {
			ranges[i].Join(of[2*block], of[2*block+1])
		}
	}
	s := scalingOf(ranges, [2]int{args.Operands[0].shift(), args.Operands[1].shift()}, args.Apart, int(arith.Flag(args.Preferred)))
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
		x.write(c, args.Batch, exponent, scaleOf(int32(s.form)), s.whole)
	}
}

// lineExponents finds the exponents of the powers of 2 for the lines of an operand, by matrix and line, writes those that sums have to be
// divided by, and returns the one for an element by its row in all matrices and its column, and whether sums of a line may overflow. columns
// reports whether lines are columns.
func (x splitOperand) lineExponents(c kernels.Call, batch int64, columns bool, s scaling, out []int32) (exponent func(row, col int64) int, high bool) {
	line := func(row, col int64) int64 { // row counts those of all matrices
		if columns {
			return row/x.Rows*x.Cols + col
		}
		return row
	}
	ranges := slices.Repeat([]bf16split.Magnitudes{bf16split.None}, int(line(batch*x.Rows-1, x.Cols-1)+1))
	for row := range batch * x.Rows {
		for col, v := range x.row(c, row) {
			ranges[line(row, int64(col))].Add(v)
		}
	}
	exponents := make([]int, len(ranges))
	for i, r := range ranges {
		var is bool
		exponents[i], is = s.exponent(r)
		out[i] = int32(exponents[i] + s.other)
		high = high || is
	}
	return func(row, col int64) int { return exponents[line(row, col)] }, high
}

// scaling is how operands are brought into range, in a way that takes nothing from numbers that have others beside them. Nothing is written again if
// splits hold all numbers, no product of two is so small that sums lose bits as denormal numbers, and no sum overflows. Else the lines of one
// operand, rows of op(A) or columns of op(B), are multiplied by a power of 2 each, so that the largest products come near 2^98. That makes numbers
// smaller only as far as no product is lost. The other operand is multiplied by a power of 2 if splits can't hold its least numbers.
type scaling struct {
	form   int
	again  [2]bool // by operand
	lines  int     // the operand whose lines are multiplied, or -1 - e if all sums are to be divided by 2^e
	target int     // the exponent that the largest number of a line comes to
	floor  int     // and that no number comes below where a line is made smaller
	other  int     // the exponent of the other operand's power of 2
	whole  bool    // see bf16split.Split
	open   bool    // whether it depends on lines if sums may overflow: if not, splits of form splitNonFinite are multiplied as plain ones
}

// splitShift is the exponent of the power of 2 that splitKernel multiplies all numbers by. Subnormal numbers are multiples of 2^-149, which splits hold from 2^-133 on. Sums are then
// so large that nothing that they lose is as large as the least number.
const splitShift = 16

// Exponents of numbers, products, and sums of products that are in range.
const (
	minProduct = -120
	maxSum     = 98
)

// scalingOf returns the scaling of operands of these ranges, whose splits are those of the numbers times 2^shift. With apart, products can keep the first splits
// apart. Of two operands whose lines would serve, those of preferred are multiplied.
func scalingOf(r [2]bf16split.Magnitudes, shifts [2]int, apart bool, preferred int) scaling {
	both := shifts[0] + shifts[1]
	s := scaling{form: splitPlain, lines: -1 - both, whole: !r[0].Finite || !r[1].Finite}
	special := splitScaled
	if apart {
		special = splitNonFinite
	}
	if s.whole {
		s.form = special
	}
	hard := [2]bool{r[0].Hard(shifts[0]), r[1].Hard(shifts[1])}
	if s.form != splitScaled && !hard[0] && !hard[1] && (both > 0 || r[0].Low()+r[1].Low() >= minProduct) && r[0].High()+r[1].High()+both <= maxSum {
		return s
	}
	line, other, shift := r[0], r[1], 0
	choose := func(hard [2]bool) {
		if s.lines = preferred; hard[0] != hard[1] {
			s.lines = int(arith.Flag(hard[1]))
		}
		line, other, shift = r[s.lines], r[1-s.lines], shifts[1-s.lines]
	}
	choose(hard)
	// The other operand's splits stay if its numbers times 2^shift do, and if a line of all numbers would not be limited by the floor.
	if s.other = shift; shift == 0 || other.High()+shift > 100 || maxSum-other.High()-shift-line.High() < min(max(bf16split.MinExact, minProduct-other.Low()-shift)-line.Low(), 0) {
		choose([2]bool{r[0].Hard(0), r[1].Hard(0)})
		s.other = max(bf16split.MinExact-other.Low(), 0)
	}
	s.target = min(maxSum-other.High()-s.other, 100)
	if s.other > 0 && other.High()+s.other > 100 || line.Low()+max(s.target-line.High(), 0) < bf16split.MinExact {
		s.form, s.other, s.target = splitScaled, 0, min(maxSum-other.High(), 100)
	}
	s.floor = max(bf16split.MinExact, minProduct-other.Low()-s.other)
	if s.form == splitPlain && s.target-line.High() < min(s.floor-line.Low(), 0) {
		s.form, s.open = special, apart
	}
	s.again[s.lines], s.again[1-s.lines] = true, other.Hard(shift) || s.other != shift || s.form == splitScaled
	return s
}

// exponent is that of the power of 2 for a line of this range, whose sums may overflow if high.
func (s scaling) exponent(line bf16split.Magnitudes) (e int, high bool) {
	wanted := min(s.target-line.High(), 200)
	if e = wanted; e < 0 {
		e = min(max(e, s.floor-line.Low()), 0)
	}
	return e, e > wanted
}

// splitScale is the scale of splits that hold any number.
const splitScale = 1 << 8

// The forms of splits: as they are, scaled, and as they are with infinities or NaN among the numbers or the sums.
const (
	splitPlain = iota
	splitScaled
	splitNonFinite
)

// scaleOf returns the scale of each split of a form against the one before.
func scaleOf(form int32) float32 {
	if form == splitScaled {
		return splitScale
	}
	return 1
}

// write writes the splits of an operand, each element times the power of 2 of that exponent, by its row in all matrices and its
// column. For whole, see bf16split.Split.
func (x splitOperand) write(c kernels.Call, batch int64, exponent func(row, col int64) int, scale float32, whole bool) {
	to, plane := kernels.Slice[uint16](c, x.Splits), x.Rows*x.Pitch
	kernels.Parallel(batch*x.Rows, max(kernels.Grain/x.Pitch, 1), func(lo, hi int64) {
		for line := lo; line < hi; line++ {
			row, to := x.row(c, line), to[line/x.Rows*3*plane+line%x.Rows*x.Pitch:]
			for col := range x.Pitch {
				var p [3]uint16
				if col < x.Cols {
					p = bf16split.Split(float32(math.Ldexp(float64(row[col]), exponent(line, col))), scale, whole)
				}
				for i, v := range p {
					to[int64(i)*plane+col] = v
				}
			}
		}
	})
}

// joinSplits makes a problem one of plain operands, for devices without kernels for splits. Operands that generated kernels have stored as splits are put together again.
func (x *problem) joinSplits(p *kernels.Plan) {
	for i, o := range x.Prepares(BF16Split) {
		of, at := []*Operand{&x.A, &x.B}[i], []*kernels.Ref{&x.a, &x.b}[i]
		if of.Ranges > 0 {
			y := conversion{Prepare: o, from: *at, joins: true}
			*at = p.Workspace(o.Rows * o.Cols * kernels.Float32.Size())
			p.Launch(joinSplitsKernel, 1, 1, y.operand(*at))
		}
		of.Form, of.Ranges = Plain, 0
	}
}

// joinSplitsKernel writes the numbers of encoded splits. Devices with kernels for splits do without it.
var joinSplitsKernel = &kernels.Kernel{Entry: "matmul_join", Body: func(c kernels.Call) {
	x := kernels.Args[splitOperand](c)
	to := kernels.Slice[float32](c, x.Splits)
	kernels.Parallel(x.Rows, max(kernels.Grain/x.Cols, 1), func(lo, hi int64) {
		for row := lo; row < hi; row++ {
			copy(to[row*x.Cols:], x.row(c, row))
		}
	})
}}
