package gemm

import (
	"fmt"

	"github.com/stheno-ml/stheno/internal/align"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// Prepare plans a batch of float32 matrices in another form, as products read it. One operand can be prepared for several products.
//
// BF16 and F16 are stored as the matrices are, its rows a multiple of 8 elements apart. TF32 stays float32 in memory, with rows a multiple of 4
// apart, and transposed with Trans; on devices of compute capability 9.0 the bits beyond TF32's are cut where products read it. BF16Split
// is [Batch][3][Rows][pitch], then the range of the numbers that each block has found.
type Prepare struct {
	Form              Form
	Batch, Rows, Cols int64
	Trans             bool // of TF32 alone
}

// Prepares returns what brings the operands to a form. The kernels for TF32 read both with rows along K.
func (p Product) Prepares(f Form) [2]Prepare {
	a, b := Prepare{f, p.Batch, p.M, p.K, f == TF32 && p.A.Trans}, Prepare{f, p.Batch, p.K, p.N, f == TF32 && !p.B.Trans}
	if p.A.Trans {
		a.Rows, a.Cols = p.K, p.M
	}
	if p.B.Trans {
		b.Rows, b.Cols = p.N, p.K
	}
	return [2]Prepare{a, b}
}

// operands returns the operands of a kernel in a form.
func operands(f Form, batch, m, n, k int64, transA, transB bool) [2]Prepare {
	return Product{Batch: batch, M: m, N: n, K: k, A: Operand{Trans: transA}, B: Operand{Trans: transB}}.Prepares(f)
}

// String names the form.
func (x Prepare) String() string {
	switch {
	case x.Form == BF16Split:
		return x.Form.String()
	case x.Trans:
		return fmt.Sprintf("rounded[%v Trans]", x.Form)
	}
	return fmt.Sprintf("rounded[%v]", x.Form)
}

// Result returns the type and the shape of the result: bytes of splits, rows of bytes in BF16 and F16.
func (x Prepare) Result() (kernels.Dtype, []int) {
	lines, _ := x.extents()
	switch x.Form {
	case BF16Split:
		return kernels.Uint8, []int{int(x.allBytes())}
	case BF16, F16:
		return kernels.Uint8, []int{int(x.Batch * lines), int(2 * x.pitch())}
	}
	return kernels.Float32, []int{int(x.Batch * lines), int(x.pitch())}
}

// Plan implements [kernels.Planner].
func (x Prepare) Plan(dev kernels.Device) (*kernels.Plan, error) {
	if x.Form == Plain || x.Form > BF16Split || x.Trans && x.Form != TF32 || min(x.Batch, x.Rows, x.Cols) < 1 {
		return nil, fmt.Errorf("got %v of %d x %d x %d elements, want TF32, BF16, F16 or BF16Split of 1 or more", x, x.Batch, x.Rows, x.Cols)
	}
	p := &kernels.Plan{
		Op:     fmt.Sprintf("%v(%d x %dx%d)", x, x.Batch, x.Rows, x.Cols),
		Inputs: []int64{x.Batch * x.Rows * x.Cols * kernels.Float32.Size()},
		Out:    x.allBytes(),
	}
	if x.Form == BF16Split {
		appendSplit(p, dev, &conversion{x, kernels.In(0), out, kernels.At(kernels.Out, x.bytes()), 0, false})
	} else {
		p.Precision = kernels.Precision(x.Form)
		appendRound(p, dev, []conversion{{Prepare: x, from: kernels.In(0), to: out}})
	}
	return p, nil
}

// extents returns the rows and columns of a matrix that is written.
func (x Prepare) extents() (rows, cols int64) {
	if x.Trans {
		return x.Cols, x.Rows
	}
	return x.Rows, x.Cols
}

// storage is how a form is stored: bytes of an element, matrices that stand for one, bytes along K of a slice that TMA copies, and TMA's type.
type storage struct {
	size, splits, slice int64
	element             kernels.TensorElement
}

func (f Form) stored() storage {
	return [...]storage{{size: 4, splits: 1}, {4, 1, 128, kernels.TensorTF32}, {2, 1, 128, kernels.TensorBF16}, {2, 1, 128, kernels.TensorBF16}, {2, 3, 2 * hopperStep, kernels.TensorBF16}}[min(f, BF16Split)]
}

// pitch returns the row stride in elements. TMA requires rows to start 16-byte aligned.
func (x Prepare) pitch() int64 {
	_, cols := x.extents()
	return arith.RoundUp(cols, 16/x.Form.stored().size)
}

// bytes returns those of the matrices, allBytes with the ranges of splits.
func (x Prepare) bytes() int64 {
	rows, _ := x.extents()
	s := x.Form.stored()
	return x.Batch * s.splits * rows * x.pitch() * s.size
}

func (x Prepare) allBytes() int64 {
	if x.Form == BF16Split {
		return x.bytes() + rangesBytes
	}
	return x.bytes()
}

// IsNoOp reports whether the matrices already are what would be written: TMA rounds to TF32 as it copies, while kernels of other
// devices want rounded numbers.
func (x Prepare) IsNoOp(dev kernels.Device) bool {
	return x.Form == TF32 && !x.Trans && x.pitch() == x.Cols && hasWGMMA(dev)
}

// tensorMap returns the map by which a block copies slices of that many lines, or of 64 where rows do not run along K, which alongK reports.
func (x Prepare) tensorMap(at kernels.Ref, alongK bool, lines int64) kernels.TensorMap {
	s := x.Form.stored()
	box, swizzle := []int64{64, s.slice / s.size, 1, 1}, int64(128)
	if alongK {
		box, swizzle = []int64{s.slice / s.size, lines, 1, 1}, s.slice
	}
	rows, cols := x.extents()
	row := x.pitch() * s.size
	return kernels.TensorMap{Ref: at, Element: s.element, Extents: []int64{cols, rows, s.splits, x.Batch}, Strides: []int64{row, rows * row, s.splits * rows * row}, Box: box, Swizzle: swizzle}
}

var (
	roundBF16    = own.Kernel("matmul_round", "matmul_round_bf16", roundHalfBody(kernels.BF16))
	roundF16     = own.Kernel("matmul_round", "matmul_round_f16", roundHalfBody(kernels.F16))
	roundTF32    = own.Kernel("matmul_round", "matmul_round_tf32", roundTF32Body)
	mmaRoundTF32 = own.Kernel("matmul_mma", "matmul_mma_round_tf32", mmaRoundBody)
)

// roundHalfArgs and roundTF32Args are the arguments of the kernels that round two operands.
type (
	roundHalfArgs [2]struct {
		X, To       kernels.Ref
		Rows        int64
		Cols, Pitch int64 `arg:"int32"`
	}
	roundTF32Args struct {
		Operands [2]struct {
			X, To             kernels.Ref
			Rows, Cols, Pitch int64 `arg:"int32"`
			Trans             bool
		}
		Batch int64 `arg:"int32"`
	}
)

// appendRound appends the launch that rounds one or two operands, or none for none.
func appendRound(p *kernels.Plan, dev kernels.Device, list []conversion) {
	if len(list) == 0 {
		return
	}
	const threads, blocksPerSM, side = 256, 8, 64 // side: of the squares of a block, in TF32
	half, tf32, blocks := roundHalfArgs{}, roundTF32Args{Batch: list[0].Batch}, int64(0)
	for i := range 2 { // with one operand the second is not read
		x := list[min(i, len(list)-1)]
		h, t := &half[i], &tf32.Operands[i]
		h.X, h.To, h.Rows, h.Cols, h.Pitch = x.from, x.to, x.Batch*x.Rows, x.Cols, x.pitch()
		t.X, t.To, t.Rows, t.Cols, t.Pitch, t.Trans = x.from, x.to, x.Rows, x.Cols, x.pitch(), x.Trans
		if x.Form != TF32 {
			blocks = max(blocks, kernels.CeilDiv(x.bytes(), 16*threads)) // 8 elements a thread at a time
		} else {
			blocks = max(blocks, kernels.CeilDiv(x.Rows, side)*kernels.CeilDiv(x.Cols, side)*x.Batch)
		}
	}
	kernel, args := roundBF16, any(half)
	switch list[0].Form {
	case F16:
		kernel = roundF16
	case TF32:
		if kernel, args = roundTF32, tf32; hasMMA(dev) {
			kernel = mmaRoundTF32
		}
	}
	p.Launch(kernel, int(min(blocks, blocksPerSM*int64(dev.SMs))), threads, args).Grid[1] = len(list)
}

// roundRows writes rows in BF16 or F16.
func roundRows(by kernels.Precision, x []float32, to []uint16, rows, cols, pitch int64) {
	d, _ := by.Half()
	kernels.Parallel(rows, max(kernels.Grain/pitch, 1), func(lo, hi int64) {
		for row := lo; row < hi; row++ {
			x, to := x[row*cols:], to[row*pitch:]
			for col := range cols {
				to[col] = expr.ToHalf(d, x[col])
			}
			clear(to[cols:pitch])
		}
	})
}

// roundHalfBody writes operands in BF16 or F16.
func roundHalfBody(by kernels.Precision) func(kernels.Call) {
	return func(c kernels.Call) {
		args := kernels.Args[roundHalfArgs](c)
		for _, x := range args[:c.Grid[1]] {
			roundRows(by, kernels.Slice[float32](c, x.X), kernels.Slice[uint16](c, x.To), x.Rows, x.Cols, x.Pitch)
		}
	}
}

// roundTF32Body writes matrices to rows of a pitch, transposed or not; mmaRoundBody rounds them, too.
func roundTF32Body(c kernels.Call) { alignRows(c, func(v float32) float32 { return v }) }
func mmaRoundBody(c kernels.Call)  { alignRows(c, kernels.TF32.Round) }

func alignRows(c kernels.Call, round func(float32) float32) {
	args := kernels.Args[roundTF32Args](c)
	for _, x := range args.Operands[:c.Grid[1]] {
		to, from := kernels.Slice[float32](c, x.To), kernels.Slice[float32](c, x.X)[:args.Batch*x.Rows*x.Cols]
		for matrix := range args.Batch {
			rows, cols, from := x.Rows, x.Cols, from[matrix*x.Rows*x.Cols:][:x.Rows*x.Cols]
			if x.Trans {
				rows, cols, from = cols, rows, transpose(from, rows, cols, cols)
			}
			for row := range rows {
				to := to[(matrix*rows+row)*x.Pitch:][:x.Pitch]
				for i, v := range from[row*cols:][:cols] {
					to[i] = round(v)
				}
				clear(to[cols:])
			}
		}
	}
}

// place returns where an operand begins, a Ref or a TensorMap.
func place(operand any) kernels.Ref {
	if m, mapped := operand.(kernels.TensorMap); mapped {
		return m.Ref
	}
	return operand.(kernels.Ref)
}

// numbers returns the elements of a rounded operand in float32, rows as they are stored.
func (x Prepare) numbers(c kernels.Call, operand any) []float32 {
	if d, half := x.Form.half(); half {
		return dense(kernels.Slice[uint16](c, place(operand)), x.Batch*x.Rows, x.Cols, x.pitch(), func(v uint16) float32 { return expr.FromHalf(d, v) })
	}
	return dense(kernels.Slice[float32](c, place(operand)), x.Batch*x.Rows, x.Cols, x.pitch(), kernels.TF32.Round)
}

// dense copies rows, which are pitch elements apart, by a function of the elements.
func dense[T float32 | uint16](from []T, rows, cols, pitch int64, f func(T) float32) []float32 {
	list := align.Make[float32](rows * cols)
	kernels.Parallel(rows, max(kernels.Grain/cols, 1), func(lo, hi int64) {
		for row := lo; row < hi; row++ {
			to := list[row*cols:][:cols]
			for col, v := range from[row*pitch:][:cols] {
				to[col] = f(v)
			}
		}
	})
	return list
}
