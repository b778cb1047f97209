package kernels

import (
	"fmt"
	"math"
)

// Products of float32 matrices in less than float32's precision, by matmul_hopper.cu: operands are rounded to
// BF16 or TF32 first, sums are float32.

var (
	roundBF16 = own.Kernel("matmul_round", "matmul_round_bf16", roundBF16Body)
	roundTF32 = own.Kernel("matmul_round", "matmul_round_tf32", roundTF32Body)
)

// reducedForm is a form of matmul_hopper.cu for rounded operands: clusters of blocks, each with a tile of
// hopperTile x columns elements of C.
type reducedForm struct {
	columns, cluster int64
	kernels          [2][2]*Kernel // by transA and by transB; nil: operands must lie otherwise
}

// reducedForms are by precision.
var reducedForms = [precisionCount][]reducedForm{
	TF32: {{256, 2, [2][2]*Kernel{0: {1: own.Kernel("matmul_hopper", "matmul_hopper_tf32_nt", reducedBody(TF32, false, true))}}}},
	BF16: {{256, 2, reducedKernels("matmul_hopper_bf16_")}},
}

// reducedKernels returns the kernels for BF16 of the entry points prefix + "nn" to "tt".
func reducedKernels(prefix string) (k [2][2]*Kernel) {
	for a, transA := range []string{"n", "t"} {
		for b, transB := range []string{"n", "t"} {
			k[a][b] = own.Kernel("matmul_hopper", prefix+transA+transB, reducedBody(BF16, a == 1, b == 1))
		}
	}
	return k
}

// tiles counts the tiles of a batch of products of m x n elements, in whole clusters.
func (f reducedForm) tiles(batch, m, n int64) int64 {
	return CeilDiv(m, f.cluster*hopperTile) * f.cluster * CeilDiv(n, f.columns) * batch
}

// reducedStages is how many pieces of A and B, of 128 bytes along k, a block has in shared memory.
const reducedStages = 4

// shared returns the dynamic shared memory of a block, in bytes: barriers, stages, and with finished what steps on sums
// and rows that begin anywhere take.
func (f reducedForm) shared(finished bool) int {
	n := 2048 + reducedStages*128*(hopperTile+int(f.columns))
	if finished {
		n += hopperFinish
	}
	return n
}

// MatMulIn plans [MatMulWith] with operands rounded to a precision, if they are float32. On a GPU a product that a float32
// kernel computes about as fast is not rounded, on the host every one is.
func MatMulIn(dev Device, by Precision, dt Dtype, batch, m, n, k int64, transA, transB bool, e Epilogue) *Plan {
	if by == FullPrecision || dt != Float32 || batch*m*n*k == 0 || !reducedFits(dev, by, batch, m, n, k) {
		return MatMulWith(dev, dt, batch, m, n, k, transA, transB, e)
	}
	p := newMatMul(dt, batch, m, n, k)
	p.Op, p.Precision = p.Op+" in "+by.String(), by
	p.matmulReduced(dev, result{dt, batch, m, n, e}, by, k, transA, transB)
	p.finish(e, dt, batch, m, n)
	return p
}

// reducedFits reports whether plans round the operands of a float32 product: on the host all, so that what Go bodies compute is
// the definition; on a device with kernels for them those that are large enough, and not so large that rounded operands
// take more than a quarter of the memory.
func reducedFits(dev Device, by Precision, batch, m, n, k int64) bool {
	const most = 1 << 30 // the kernels count rows, columns, terms, matrices, tiles and vectors in 32 bits
	if max(batch, m, n, k) > most || batch*max(m, k)*CeilDiv(k, 8) > most || batch*max(n, k)*CeilDiv(n, 8) > most {
		return false
	}
	if dev.Major == 0 {
		return true
	}
	pol := reducedPolicies.on(dev)
	return pol.chosen && dev.Major == 9 && dev.Minor == 0 && min(m, n) >= pol.side && k >= pol.terms &&
		float64(batch)*float64(m)*float64(n)*float64(k) >= pol.products*float64(dev.SMs) &&
		(dev.Memory == 0 || 4*batch*(m*k+k*n) <= dev.Memory/4)
}

// rounded is an operand as the kernels read it: rows of cols elements, pitch apart, in matrices of a batch.
type rounded struct {
	at                       Ref
	by                       Precision
	rows, cols, pitch, batch int64
}

// newRounded returns a matrix whose rows start 16-byte aligned, as TMA wants, at no place yet.
func newRounded(by Precision, batch, rows, cols int64) rounded {
	x := rounded{by: by, rows: rows, cols: cols, batch: batch}
	width := 16 / x.size()
	x.pitch = CeilDiv(cols, width) * width
	return x
}

// size returns the size of an element in bytes.
func (x rounded) size() int64 {
	if x.by == BF16 {
		return 2
	}
	return 4
}

func (x rounded) bytes() int64 { return x.batch * x.rows * x.pitch * x.size() }

// tensorMap returns the map from which a block copies pieces of that many lines, a multiple of 64, by 128 bytes
// along k. along says that rows run along k.
func (x rounded) tensorMap(along bool, lines int64) TensorMap {
	element, terms := TensorBF16, 128/x.size()
	if x.by == TF32 {
		element = TensorTF32
	}
	box := []int64{64, terms, 1, 1}
	if along {
		box = []int64{terms, lines, 1, 1}
	}
	row, matrix := x.pitch*x.size(), x.rows*x.pitch*x.size()
	return TensorMap{Ref: x.at, Element: element, Extents: []int64{x.cols, x.rows, 1, x.batch}, Strides: []int64{row, matrix, matrix}, Box: box, Swizzle: 128}
}

// operand is a matrix of a product as it is given: rows x cols elements, or with trans what they become.
type operand struct {
	at         Ref
	rows, cols int64
	trans      bool
}

// matmulReduced appends the launches of a product of float32 matrices that are rounded: one, unless they lie as the
// kernel reads them, that rounds both, then the product.
func (p *Plan) matmulReduced(dev Device, c result, by Precision, k int64, transA, transB bool) {
	a, b := operand{Ref{0, 0}, c.m, k, false}, operand{Ref{1, 0}, k, c.n, false}
	if transA {
		a.rows, a.cols = k, c.m
	}
	if transB {
		b.rows, b.cols = c.n, k
	}
	if by == BF16 {
		x, y := p.roundToBF16(dev, c.batch, a, b)
		p.reducedProduct(dev, c, x, y, k, transA, transB)
		return
	}
	a.trans, b.trans = transA, !transB // terms side by side
	x, y := p.layOutTF32(dev, c.batch, a, b)
	p.reducedProduct(dev, c, x, y, k, false, true)
}

// roundToBF16 appends the launch that writes both operands in BF16.
func (p *Plan) roundToBF16(dev Device, batch int64, a, b operand) (x, y rounded) {
	const block, each = 256, 8 // threads, elements of a thread at a time
	var args []any
	vectors := int64(0)
	to := [2]*rounded{&x, &y}
	for i, o := range []operand{a, b} {
		r := newRounded(BF16, batch, o.rows, o.cols)
		r.at = p.Workspace(r.bytes())
		args = append(args, o.at, r.at, batch*o.rows, int32(o.cols), int32(r.pitch))
		vectors = max(vectors, batch*o.rows*r.pitch/each)
		*to[i] = r
	}
	blocks := min(CeilDiv(vectors, block), reducedPolicies.on(dev).round*int64(dev.SMs))
	p.Launch(roundBF16, int(blocks), block, args...).Grid[1] = 2
	return x, y
}

// layOutTF32 appends the launch that writes those of the operands that do not lie as TMA reads them, if there are any.
func (p *Plan) layOutTF32(dev Device, batch int64, a, b operand) (x, y rounded) {
	const side = 64 // of the squares of a block
	var args []any
	squares, moved := int64(0), 0
	to := [2]*rounded{&x, &y}
	for i, o := range []operand{a, b} {
		rows, cols := o.rows, o.cols
		if o.trans {
			rows, cols = cols, rows
		}
		r := newRounded(TF32, batch, rows, cols)
		if r.at = o.at; o.trans || r.pitch != cols {
			r.at = p.Workspace(r.bytes())
			args = append(args, o.at, r.at, int32(o.rows), int32(o.cols), int32(r.pitch), flag(o.trans))
			squares, moved = max(squares, CeilDiv(o.rows, side)*CeilDiv(o.cols, side)*batch), moved+1
		}
		*to[i] = r
	}
	if moved == 0 {
		return x, y
	}
	if moved == 1 {
		args = append(args, args...) // not read
	}
	blocks := min(squares, reducedPolicies.on(dev).round*int64(dev.SMs))
	p.Launch(roundTF32, int(blocks), 256, append(args, int32(batch))...).Grid[1] = moved
	return x, y
}

// reducedProduct appends the launches of a product of rounded operands.
func (p *Plan) reducedProduct(dev Device, c result, a, b rounded, k int64, transA, transB bool) {
	pol := reducedPolicies.on(dev)
	f := pol.form(dev, a.by, c)
	tiles := f.tiles(c.batch, c.m, c.n)
	kernel := f.kernels[flag(transA)][flag(transB)]
	p.split(dev, c, tiles, pol.splits, k, func(to Ref, e Epilogue, splits, chunk int64) {
		args := []any{a.tensorMap(!transA, hopperTile), b.tensorMap(transB, f.columns/f.cluster), to, int32(c.m), int32(c.n), int32(k), int32(c.batch), int32(chunk), c.n}
		blocks := min(tiles*splits, max(int64(dev.SMs)/f.cluster, 1)*f.cluster)
		p.Launch(kernel, int(blocks), hopperThreads, append(args, e.arguments(Float32)...)...).Shared = f.shared(e.chain != 0 || c.n%2 != 0)
	})
}

// RoundedMatMul plans the product alone of operands that are in BF16 or TF32 before. BF16 is stored as operands of
// [MatMul] are, rows up to a multiple of 8 elements apart. TF32 is float32 in memory, rows up to a multiple of 4 apart, and
// transB must hold alone.
func RoundedMatMul(dev Device, by Precision, batch, m, n, k int64, transA, transB bool, e Epilogue) (*Plan, error) {
	switch {
	case by != TF32 && by != BF16:
		return nil, fmt.Errorf("RoundedMatMul: got %v, want TF32 or BF16", by)
	case by == TF32 && (transA || !transB):
		return nil, fmt.Errorf("RoundedMatMul: got transA %v and transB %v, want false and true for TF32", transA, transB)
	case min(batch, m, n, k) < 1:
		return nil, fmt.Errorf("RoundedMatMul: got %d matrices of %d x %d x %d, want 1 or more of each", batch, m, k, n)
	}
	a, b := newRounded(by, batch, m, k), newRounded(by, batch, k, n)
	if transA {
		a = newRounded(by, batch, k, m)
	}
	if transB {
		b = newRounded(by, batch, n, k)
	}
	a.at, b.at = Ref{0, 0}, Ref{1, 0}
	p := newMatMul(Float32, batch, m, n, k)
	p.Op += " of " + by.String()
	p.Inputs = []int64{a.bytes(), b.bytes()}
	p.reducedProduct(dev, result{Float32, batch, m, n, e}, a, b, k, transA, transB)
	p.finish(e, Float32, batch, m, n)
	return p, nil
}

// roundBF16Body writes operands in BF16, of so many rows each.
func roundBF16Body(c Call) {
	for y := range c.Grid[1] {
		x, to := Slice[float32](c, 5*y), Slice[uint16](c, 5*y+1)
		rows, cols, pitch := c.Int(5*y+2), c.Int(5*y+3), c.Int(5*y+4)
		Parallel(rows, max(Grain/pitch, 1), func(lo, hi int64) {
			for row := lo; row < hi; row++ {
				x, to := x[row*cols:], to[row*pitch:]
				for col := range cols {
					to[col] = uint16(math.Float32bits(BF16.Round(x[col])) >> 16)
				}
				clear(to[cols:pitch])
			}
		})
	}
}

// roundTF32Body writes matrices to rows so far apart, transposed or not.
func roundTF32Body(c Call) {
	batch := c.Int(12)
	for y := range c.Grid[1] {
		x, to := Slice[float32](c, 6*y), Slice[float32](c, 6*y+1)
		rows, cols, pitch, trans := c.Int(6*y+2), c.Int(6*y+3), c.Int(6*y+4), c.Int(6*y+5) == 1
		for matrix := range batch {
			lines, length, from := rows, cols, x[matrix*rows*cols:][:rows*cols]
			if trans {
				lines, length, from = cols, rows, transpose(from, rows, cols, cols)
			}
			for line := range lines {
				copy(to[(matrix*lines+line)*pitch:], from[line*length:][:length])
			}
		}
	}
}

// reducedBody is the product of rounded operands, by the BLAS.
func reducedBody(by Precision, transA, transB bool) func(Call) {
	return func(c Call) {
		out := Slice[float32](c, 2)
		m, n, k, batch, chunk := c.Int(3), c.Int(4), c.Int(5), c.Int(6), c.Int(7)
		a, rowsA, lda := reducedOperand(c, 0, by)
		b, rowsB, ldb := reducedOperand(c, 1, by)
		gemms(c.blas, transA, transB, m, n, k, a, lda, rowsA*lda, b, ldb, rowsB*ldb, out, batch, chunk, CeilDiv(k, chunk))
	}
}

// reducedOperand returns the numbers of an operand that is argument i, with the rows and the columns of its matrices.
func reducedOperand(c Call, i int, by Precision) (x []float32, rows, cols int64) {
	t := c.Args[i].(TensorMap)
	cols, rows = t.Extents[0], t.Extents[1]
	pitch, lines := t.Strides[0]/t.Element.Size(), rows*t.Extents[3]
	x = makeAligned[float32](lines * cols)
	var halves []uint16
	var words []float32
	if by == BF16 {
		halves = Slice[uint16](c, i)
	} else {
		words = Slice[float32](c, i)
	}
	Parallel(lines, max(Grain/cols, 1), func(lo, hi int64) {
		for line := lo; line < hi; line++ {
			to := x[line*cols:][:cols]
			for col := range to {
				if by == BF16 {
					to[col] = fromBF16(halves[line*pitch+int64(col)])
				} else {
					to[col] = TF32.Round(words[line*pitch+int64(col)])
				}
			}
		}
	})
	return x, rows, cols
}
