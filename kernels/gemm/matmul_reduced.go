package gemm

import (
	"github.com/stheno-ml/stheno/kernels/internal/arith"
	"math"

	"github.com/stheno-ml/stheno/internal/align"
	"github.com/stheno-ml/stheno/kernels"
)

// Products of float32 matrices in less than float32's precision, by matmul_hopper.cu or matmul_mma.cu: operands are rounded to
// BF16 or TF32 first, sums are float32.

var (
	roundBF16 = own.Kernel("matmul_round", "matmul_round_bf16", roundBF16Body)
	roundTF32 = own.Kernel("matmul_round", "matmul_round_tf32", roundTF32Body)
)

// reducedForm is a form of a kernel for rounded operands: clusters of blocks, each with a tile of
// hopperTile x columns elements of C.
type reducedForm struct {
	columns, cluster int64
	threads, shared  int                   // of a block; its dynamic shared memory, bytes
	kernels          [2][2]*kernels.Kernel // by transA and by transB; nil: operands must lie otherwise
}

// hopperReduced are the forms of matmul_hopper.cu by precision, those with large tiles first.
var hopperReduced = [kernels.BF16 + 1][]reducedForm{
	kernels.TF32: {
		{256, 2, hopperThreads, reducedShared, reducedKernelTF32("matmul_hopper", "matmul_hopper_tf32_nt")},
		{128, 1, hopperThreads, reducedShared, reducedKernelTF32("matmul_hopper", "matmul_hopper_tf32_one_nt")},
		{64, 1, hopperThreads, reducedShared, reducedKernelTF32("matmul_hopper", "matmul_hopper_tf32_narrow_nt")},
	},
	kernels.BF16: {
		{256, 2, hopperThreads, reducedShared, reducedKernels("matmul_hopper", "matmul_hopper_bf16_")},
		{128, 1, hopperThreads, reducedShared, reducedKernels("matmul_hopper", "matmul_hopper_bf16_one_")},
		{64, 1, hopperThreads, reducedShared, reducedKernels("matmul_hopper", "matmul_hopper_bf16_narrow_")},
	},
}

// reducedForms returns the forms of a precision on a device.
func reducedForms(dev kernels.Device, by kernels.Precision) []reducedForm {
	if tensorCoresOf(dev) == mmaCores {
		return mmaReduced[by]
	}
	return hopperReduced[by]
}

// reducedKernelTF32 returns the kernel for TF32, with terms side by side.
func reducedKernelTF32(stem, entry string) (k [2][2]*kernels.Kernel) {
	k[0][1] = own.Kernel(stem, entry, reducedBody(kernels.TF32, false, true))
	return k
}

// reducedKernels returns the kernels for BF16 of the entry points prefix + "nn" to "tt".
func reducedKernels(stem, prefix string) (k [2][2]*kernels.Kernel) {
	for a, transA := range []string{"n", "t"} {
		for b, transB := range []string{"n", "t"} {
			k[a][b] = own.Kernel(stem, prefix+transA+transB, reducedBody(kernels.BF16, a == 1, b == 1))
		}
	}
	return k
}

// tiles counts the tiles of a batch of products of m x n elements, in whole clusters.
func (f reducedForm) tiles(batch, m, n int64) int64 {
	return kernels.CeilDiv(m, f.cluster*hopperTile) * f.cluster * kernels.CeilDiv(n, f.columns) * batch
}

// reducedShared is the dynamic shared memory of a block of matmul_hopper.cu: barriers, stages of pieces of A and B of 128 bytes along k, and what steps on sums
// and rows that begin anywhere take, with a row of an operand of steps for each of 8 warps.
const reducedShared = 2048 + 4*128*(hopperTile+256) + hopperFinish + 8*256*4

// MatMulIn plans [MatMulWith] with operands rounded to a precision, if they are float32. On a GPU a product that a float32
// kernel computes about as fast is not rounded, on the host every one is.
func MatMulIn(dev kernels.Device, by kernels.Precision, dt kernels.Dtype, batch, m, n, k int64, transA, transB bool, e Epilogue) *kernels.Plan {
	large := dt == kernels.Float32 && reducedFits(dev, by, batch, m, n, k, false)
	if !large && !(dt == kernels.Float32 && smallFits(dev, by, batch, m, n, k)) {
		return MatMulWith(dev, dt, batch, m, n, k, transA, transB, e)
	}
	p, c := newMatMul(dt, batch, m, n, k), result{dt, batch, m, n, e}
	if large {
		appendMatMulReduced(p, dev, c, by, k, transA, transB)
	} else {
		appendMatMulSmall(p, dev, c, by, product{kernels.In(0), kernels.In(1), batch, m, n, k, transA, transB, false})
	}
	appendEpilogue(p, e, dt, batch, m, n)
	return p
}

// reducedFits reports whether plans round the operands of a float32 product: on the host all, so that what Go bodies compute is
// the definition; on a device with kernels for them those that are large enough, and not so large that rounded operands
// take more than a quarter of the memory. Fewer rows or columns are enough if the large operand is given rounded.
func reducedFits(dev kernels.Device, by kernels.Precision, batch, m, n, k int64, given bool) bool {
	const most = 1 << 30 // the kernels count rows, columns, terms, matrices, tiles and vectors of 8 elements in 32 bits
	if by == kernels.FullPrecision || min(batch, m, n, k) == 0 || max(batch, m, n, k) > most {
		return false
	}
	for _, side := range []int64{m, n} {
		if float64(batch)*(float64(side)*float64(k)/8+float64(max(side, k))) > most {
			return false
		}
	}
	if dev.Major == 0 {
		return true
	}
	pol := reducedPolicies.On(dev)
	side := pol.side
	if given && by == kernels.BF16 && pol.given > 0 {
		side = pol.given
	}
	return pol.chosen && tensorCoresOf(dev) != noTensorCores && min(m, n) >= side && k >= pol.terms &&
		float64(batch)*float64(m)*float64(n)*float64(k) >= pol.products*float64(dev.SMs) &&
		(dev.Memory == 0 || 4*batch*(m*k+k*n) <= dev.Memory/4)
}

// appendMatMulReduced appends the launches of a product of float32 matrices that are rounded: one, unless they lie as the
// kernel reads them, that rounds both, then the product.
func appendMatMulReduced(p *kernels.Plan, dev kernels.Device, c result, by kernels.Precision, k int64, transA, transB bool) {
	operands, transA, transB := reducedOperands(by, c.batch, c.m, c.n, k, transA, transB)
	at := [2]kernels.Ref{{Operand: 0, Offset: 0}, {Operand: 1, Offset: 0}}
	var moves []rounding
	for i, x := range operands {
		if !x.lies(dev) {
			to := p.Workspace(x.bytes())
			moves = append(moves, rounding{x, at[i], to})
			at[i] = to
		}
	}
	appendRound(p, dev, by, moves)
	appendReducedProduct(p, dev, c, operands, at, k, transA, transB, out, false)
}

// rounding is an operand that is rounded from one place to another.
type rounding struct {
	Rounded
	from, to kernels.Ref
}

// appendRound appends the launch that rounds one or two operands, or none for none.
func appendRound(p *kernels.Plan, dev kernels.Device, by kernels.Precision, moves []rounding) {
	if len(moves) == 0 {
		return
	}
	const threads = 256
	if len(moves) == 1 {
		defer func() { p.Launches[len(p.Launches)-1].Grid[1] = 1 }()
		moves = append(moves, moves[0]) // not read
	}
	var args any
	var blocks int64
	kernel := roundBF16
	if by == kernels.BF16 {
		var list roundBF16Args
		for i, m := range moves {
			list[i] = bf16Operand{m.from, m.to, m.Batch * m.Rows, m.Cols, m.pitch()}
			blocks = max(blocks, kernels.CeilDiv(m.bytes(), 16*threads)) // 8 elements a thread at a time
		}
		args = list
	} else {
		const side = 64 // of the squares of a block
		list := roundTF32Args{Batch: moves[0].Batch}
		for i, m := range moves {
			list.Operands[i] = tf32Operand{m.from, m.to, m.Rows, m.Cols, m.pitch(), m.Trans}
			blocks = max(blocks, kernels.CeilDiv(m.Rows, side)*kernels.CeilDiv(m.Cols, side)*m.Batch)
		}
		args, kernel = list, roundTF32
		if tensorCoresOf(dev) == mmaCores {
			kernel = mmaRoundTF32
		}
	}
	blocks = min(blocks, reducedPolicies.On(dev).round*int64(dev.SMs))
	p.Launch(kernel, int(blocks), threads, args).Grid[1] = 2
}

// appendReducedProduct appends the launches of a product of rounded operands. With halves the last one also writes C in BF16.
func appendReducedProduct(p *kernels.Plan, dev kernels.Device, c result, operands [2]Rounded, at [2]kernels.Ref, k int64, transA, transB bool, half kernels.Ref, halves bool) {
	by := operands[0].Precision
	p.Op, p.Precision = p.Op+" in "+by.String(), by
	pol := reducedPolicies.On(dev)
	f, splits := pol.form(dev, by, c, k)
	tiles := f.tiles(c.batch, c.m, c.n)
	kernel := f.kernels[arith.Flag(transA)][arith.Flag(transB)]
	appendSplit(p, dev, c, tiles, splits, k, func(to kernels.Ref, e Epilogue, splits, chunk int64) {
		args, blocks := reducedArgs{at[0], at[1], to, c.m, c.n, k, c.batch, chunk, c.n, e.arguments(c.dt), half, halves}, tiles*splits
		if tensorCoresOf(dev) != mmaCores {
			args.A, args.B = operands[0].tensorMap(at[0], !transA, hopperTile), operands[1].tensorMap(at[1], transB, f.columns/f.cluster)
			blocks = min(blocks, max(int64(dev.SMs)/f.cluster, 1)*f.cluster)
		}
		p.Launch(kernel, int(blocks), f.threads, args).Shared = f.shared
	})
}

// reducedArgs are the arguments of the kernels; operands are Refs or TensorMaps.
type reducedArgs struct {
	A, B                  any
	C                     kernels.Ref
	M, N, K, Batch, Chunk int64 `arg:"int32"`
	LDC                   int64
	epilogueArgs
	Also   kernels.Ref // C in BF16
	Halves bool        // whether it is written
}

// roundBF16Args and roundTF32Args are the arguments of the kernels that round two operands.
type (
	roundBF16Args [2]bf16Operand
	bf16Operand   struct {
		X, To       kernels.Ref
		Rows        int64
		Cols, Pitch int64 `arg:"int32"`
	}
	roundTF32Args struct {
		Operands [2]tf32Operand
		Batch    int64 `arg:"int32"`
	}
	tf32Operand struct {
		X, To             kernels.Ref
		Rows, Cols, Pitch int64 `arg:"int32"`
		Trans             bool
	}
)

// halvesBody is the Go body of a product that also writes C in BF16.
func halvesBody(product func(kernels.Call)) func(kernels.Call) {
	return func(c kernels.Call) {
		x := kernels.Args[reducedArgs](c)
		from, to := kernels.Slice[float32](c, x.C)[:x.M*x.N*x.Batch], kernels.Slice[uint16](c, x.Also)
		product(c)
		roundRows(from, to, 1, int64(len(from)), int64(len(from)))
	}
}

// roundRows writes rows in BF16.
func roundRows(x []float32, to []uint16, rows, cols, pitch int64) {
	kernels.Parallel(rows, max(kernels.Grain/pitch, 1), func(lo, hi int64) {
		for row := lo; row < hi; row++ {
			x, to := x[row*cols:], to[row*pitch:]
			for col := range cols {
				to[col] = uint16(math.Float32bits(kernels.BF16.Round(x[col])) >> 16)
			}
			clear(to[cols:pitch])
		}
	})
}

// roundBF16Body writes operands in BF16, of so many rows each.
func roundBF16Body(c kernels.Call) {
	args := kernels.Args[roundBF16Args](c)
	for _, x := range args[:c.Grid[1]] {
		roundRows(kernels.Slice[float32](c, x.X), kernels.Slice[uint16](c, x.To), x.Rows, x.Cols, x.Pitch)
	}
}

// roundTF32Body writes matrices to rows so far apart, transposed or not.
func roundTF32Body(c kernels.Call) {
	args := kernels.Args[roundTF32Args](c)
	for _, op := range args.Operands[:c.Grid[1]] {
		x, to, rows, cols := kernels.Slice[float32](c, op.X), kernels.Slice[float32](c, op.To), op.Rows, op.Cols
		for matrix := range args.Batch {
			lines, length, from := rows, cols, x[matrix*rows*cols:][:rows*cols]
			if op.Trans {
				lines, length, from = cols, rows, transpose(from, rows, cols, cols)
			}
			for line := range lines {
				copy(to[(matrix*lines+line)*op.Pitch:], from[line*length:][:length])
			}
		}
	}
}

// reducedBody is the product of rounded operands, by the BLAS.
func reducedBody(by kernels.Precision, transA, transB bool) func(kernels.Call) {
	return func(c kernels.Call) {
		args := kernels.Args[reducedArgs](c)
		m, n, k, batch := args.M, args.N, args.K, args.Batch
		x := hopperOperands(batch, m, n, k, transA, transB)
		a, b := reducedOperand(c, args.A, by, x[0]), reducedOperand(c, args.B, by, x[1])
		gemms(c.BLAS(), transA, transB, m, n, k, a, x[0].Cols, x[0].Rows*x[0].Cols, b, x[1].Cols, x[1].Rows*x[1].Cols, kernels.Slice[float32](c, args.C),
			batch, args.Chunk, kernels.CeilDiv(k, args.Chunk))
	}
}

// place returns where an operand begins, a Ref or a TensorMap.
func place(operand any) kernels.Ref {
	if m, mapped := operand.(kernels.TensorMap); mapped {
		return m.Ref
	}
	return operand.(kernels.Ref)
}

// reducedOperand returns the numbers of an operand, matrices of such extents.
func reducedOperand(c kernels.Call, operand any, by kernels.Precision, extents Planes) []float32 {
	cols, lines := extents.Cols, extents.Batch*extents.Rows
	pitch := Rounded{Precision: by, Cols: cols}.pitch()
	x := align.Make[float32](lines * cols)
	var halves []uint16
	var words []float32
	if by == kernels.BF16 {
		halves = kernels.Slice[uint16](c, place(operand))
	} else {
		words = kernels.Slice[float32](c, place(operand))
	}
	kernels.Parallel(lines, max(kernels.Grain/cols, 1), func(lo, hi int64) {
		for line := lo; line < hi; line++ {
			to := x[line*cols:][:cols]
			for col := range to {
				if by == kernels.BF16 {
					to[col] = fromBF16(halves[line*pitch+int64(col)])
				} else {
					to[col] = kernels.TF32.Round(words[line*pitch+int64(col)])
				}
			}
		}
	})
	return x
}
