package kernels

import (
	"slices"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels/expr"
)

// body is the Go body: tiles of rows, each taken in blocks of as many elements as an
// interpreter likes best. The order of a sum follows from the shape, as on a GPU.
func (m *rowMapping) body(c Call) {
	memory := make([][]byte, len(m.offsets))
	for i := range memory {
		memory[i] = Slice[byte](c, i)
	}
	rows, columns := m.tile()
	splits := m.grid.splits
	Parallel(CeilDiv(m.rows, rows)*splits, max(Grain/(m.cost*rows*min(m.columns, m.grid.chunk)), 1), func(lo, hi int64) {
		t := m.newTile(memory, rows, columns)
		for at := lo; at < hi; at++ {
			t.row, t.split = at/splits*rows, at%splits
			t.rows = min(rows, m.rows-t.row)
			t.run()
		}
	})
}

// tile returns the rows that are taken together, and the columns of a block of them.
func (m *rowMapping) tile() (rows, columns int64) {
	if m.grid.across { // neighbours in memory are rows
		rows = min(max(128, expr.BlockSize/m.columns), m.rows)
		return rows, expr.BlockSize / rows
	}
	columns = min(m.columns, expr.BlockSize)
	return expr.BlockSize / columns, columns
}

// rowStep is a step of the function: a stage, the outputs of each element, or those of
// which a row has one.
type rowStep struct {
	early   *expr.Interpreter // what a row has one of, out of the results of reductions; nil for nothing
	hoisted []expr.Dtype      // its outputs
	known   int               // reductions before the step
	eval    *expr.Interpreter // of the operands, the results and what early gives
	needs   []int             // its operands
	outputs []expr.Dtype      // of the step
	to      []int             // outputs of the function, none for a stage
}

// newRowStep returns the step of a function of so many operands and of the results of
// reductions known before it.
func newRowStep(f expr.Func, operands int, to []int) rowStep {
	step := rowStep{known: max(len(f.Operands())-operands, 0), outputs: f.Outputs(), to: to}
	early, late, err := f.Hoist(operands)
	if err != nil { // as a function, f cannot be taken apart wrongly
		early, late = expr.Func{}, f
	}
	if step.hoisted = early.Outputs(); len(step.hoisted) > 0 {
		step.early = expr.NewInterpreter(early)
	}
	_, step.needs = late.Trim()
	step.eval = expr.NewInterpreter(late)
	return step
}

// A rowTile is some rows in the hands of one goroutine. In a block of them the elements
// of the innermost axis lie one behind the other: columns of a row, or a column's of
// all rows where the grid goes across.
type rowTile struct {
	*rowMapping
	memory  [][]byte // of the operands, then of the outputs
	row     int64    // the first
	rows    int64
	split   int64
	column  int64 // of the block
	columns int64
	width   int64       // most columns of a block
	blocks  [][]byte    // of the operands, the results of reductions, then the outputs of a step
	results [][]byte    // of the reductions, then what a step hoists, by row
	pieces  [][]float64 // the reductions of blocks, by reduction of a stage
	in, out []unsafe.Pointer
}

func (m *rowMapping) newTile(memory [][]byte, rows, columns int64) *rowTile {
	single := len(m.scalars) // what a row has one of
	for _, s := range m.steps {
		single = max(single, s.known+len(s.hoisted))
	}
	operands := len(m.types) + single
	outputs := max(single, len(m.outputs))
	t := &rowTile{rowMapping: m, memory: memory, width: columns, in: make([]unsafe.Pointer, operands), out: make([]unsafe.Pointer, outputs)}
	for range operands + outputs {
		t.blocks = append(t.blocks, Bytes(make([]float64, columns*rows)))
	}
	for range single {
		t.results = append(t.results, Bytes(make([]float64, rows)))
	}
	t.pieces = make([][]float64, len(m.scalars))
	return t
}

// run computes the tile.
func (t *rowTile) run() {
	known := 0
	for i, s := range t.staged.Stages {
		for k := range s.Reductions {
			t.pieces[k] = t.pieces[k][:0]
		}
		t.evaluate(&t.steps[i], func(step *rowStep) {
			for k, op := range s.Reductions {
				t.pieces[k] = reduceBlock(t.pieces[k], op, step.outputs[k], t.blockOf(k), t.rows, t.columns, t.grid.across)
			}
		})
		for k, op := range s.Reductions {
			t.join(op, t.scalars[known], t.pieces[k], t.results[known])
			known++
		}
	}
	t.evaluate(&t.steps[len(t.steps)-2], t.store)
	if row := &t.steps[len(t.steps)-1]; len(row.to) > 0 {
		t.column, t.columns = 0, 1
		t.hoist(row)
		t.compute(row)
		t.store(row)
	}
}

// evaluate computes a step at all columns, a block at a time, and calls use for each.
func (t *rowTile) evaluate(step *rowStep, use func(*rowStep)) {
	t.hoist(step)
	begin := t.split * t.grid.chunk
	end := min(begin+t.grid.chunk, t.rowMapping.columns)
	for at := begin; at < end && len(step.outputs) > 0; at += t.width {
		t.column, t.columns = at, min(t.width, end-at)
		t.compute(step)
		use(step)
	}
}

// hoist computes what a row has one of for a step, behind the results of reductions.
func (t *rowTile) hoist(step *rowStep) {
	if step.early == nil {
		return
	}
	operands := len(t.types) + step.known
	for k := range step.known {
		t.in[len(t.types)+k] = unsafe.Pointer(&t.results[k][0])
	}
	for k := range step.hoisted {
		t.out[k] = unsafe.Pointer(&t.results[step.known+k][0])
	}
	step.early.Run(int(t.rows), t.in[:operands], t.out[:len(step.hoisted)]) // fails for other numbers of operands only
}

// blockOf returns the memory for output k of a step.
func (t *rowTile) blockOf(k int) []byte { return t.blocks[len(t.in)+k] }

// compute evaluates a step on the block, into blocks or where the outputs belong.
func (t *rowTile) compute(step *rowStep) {
	for _, i := range step.needs {
		if i >= len(t.types) {
			t.repeat(i, step)
		} else if at, ok := t.inOrder(i); ok {
			t.in[i] = unsafe.Pointer(&t.memory[i][at*t.types[i].Size()])
			continue
		} else {
			t.gather(i)
		}
		t.in[i] = unsafe.Pointer(&t.blocks[i][0])
	}
	out := t.out[:len(step.outputs)]
	for k := range out {
		out[k] = unsafe.Pointer(&t.blockOf(k)[0])
		if len(step.to) > 0 {
			i := len(t.types) + step.to[k]
			if at, ok := t.inOrder(i); ok {
				out[k] = unsafe.Pointer(&t.memory[i][at*t.dtype(i).Size()])
			}
		}
	}
	operands := len(t.types) + step.known + len(step.hoisted)
	step.eval.Run(int(t.rows*t.columns), t.in[:operands], out) // fails for other numbers of operands only
}

// span is the indices of a block along rows or columns.
type span struct {
	first, n       int64
	reach          reach
	shape, strides []int64
}

// spans returns the indices of the block in operand or output i: of what lies one
// behind the other, and of the other.
func (t *rowTile) spans(i int) (inner, outer span) {
	byRow, byColumn, _ := t.layout.access(i)
	rows := span{t.row, t.rows, byRow, t.rowShape, t.rowStrides[i]}
	columns := span{t.column, t.columns, byColumn, t.colShape, t.colStrs[i]}
	if t.grid.across {
		return rows, columns
	}
	return columns, rows
}

// stride returns the stride of a span that has one.
func (s span) stride() (int64, bool) {
	if s.reach == fixed || s.reach == indexed {
		return 0, s.reach == fixed
	}
	return s.strides[len(s.strides)-1], true
}

// origin returns where the elements of operand or output i begin.
func (t *rowTile) origin(i int) int64 {
	if i < len(t.types) {
		return 0
	}
	return t.split
}

// inOrder reports whether the block's elements of operand or output i lie in memory as
// in a block, and where.
func (t *rowTile) inOrder(i int) (at int64, ok bool) {
	inner, outer := t.spans(i)
	near, ok := inner.stride()
	far, along := outer.stride()
	if !ok || inner.n > 1 && near != 1 || outer.n > 1 && (!along || far != inner.n) {
		return 0, false
	}
	return t.origin(i) + inner.first*near + dot(outer.first, outer.shape, outer.strides), true
}

// runs calls f for the runs of the block's elements that have one stride in the memory
// of operand or output i: with a run's first element in the block and in memory, the
// stride, and the number.
func (t *rowTile) runs(i int, f func(k, at, stride, n int64)) {
	inner, outer := t.spans(i)
	stride, even := inner.stride()
	k := int64(0)
	for o := range outer.n {
		base := t.origin(i) + dot(outer.first+o, outer.shape, outer.strides)
		if even {
			f(k, base+inner.first*stride, stride, inner.n)
			k += inner.n
			continue
		}
		last := len(inner.shape) - 1
		for at := inner.first; at < inner.first+inner.n; {
			n := min(inner.shape[last]-at%inner.shape[last], inner.first+inner.n-at)
			f(k, base+dot(at, inner.shape, inner.strides), inner.strides[last], n)
			k, at = k+n, at+n
		}
	}
}

// dot returns the offset of an index in row-major order of a shape.
func dot(index int64, shape, strides []int64) (offset int64) {
	for a := len(shape) - 1; a > 0; a-- {
		offset += index % shape[a] * strides[a]
		index /= shape[a]
	}
	if len(shape) > 0 {
		offset += index * strides[0]
	}
	return offset
}

// gather copies the block's elements of operand i into its block.
func (t *rowTile) gather(i int) {
	to, from, size := t.blocks[i], t.memory[i], t.types[i].Size()
	t.runs(i, func(k, at, stride, n int64) { move(size, to, k, 1, from, at, stride, n) })
}

// store copies the outputs of a step that are in blocks to where they belong.
func (t *rowTile) store(step *rowStep) {
	for k, output := range step.to {
		i := len(t.types) + output
		if _, ok := t.inOrder(i); ok {
			continue
		}
		to, from, size := t.memory[i], t.blockOf(k), t.dtype(i).Size()
		t.runs(i, func(k, at, stride, n int64) { move(size, to, at, stride, from, k, 1, n) })
	}
}

// repeat copies a result of a reduction, or what the step hoists, beside each element of
// its row.
func (t *rowTile) repeat(i int, step *rowStep) {
	s, size := i-len(t.types), int64(0)
	if s < step.known {
		size = t.scalars[s].Size()
	} else {
		size = step.hoisted[s-step.known].Size()
	}
	to, from := t.blocks[i], t.results[s]
	if t.grid.across {
		for c := range t.columns {
			move(size, to, c*t.rows, 1, from, 0, 1, t.rows)
		}
		return
	}
	for r := range t.rows {
		move(size, to, r*t.columns, 1, from, r, 0, t.columns)
	}
}

// move copies n elements of that size from one stride to another.
func move(size int64, to []byte, toAt, toStride int64, from []byte, fromAt, fromStride, n int64) {
	switch size {
	case 1:
		moveElements(Elements[uint8](to)[toAt:], toStride, Elements[uint8](from)[fromAt:], fromStride, n)
	case 4:
		moveElements(Elements[uint32](to)[toAt:], toStride, Elements[uint32](from)[fromAt:], fromStride, n)
	default:
		moveElements(Elements[int64](to)[toAt:], toStride, Elements[int64](from)[fromAt:], fromStride, n)
	}
}

func moveElements[T Element](to []T, toStride int64, from []T, fromStride, n int64) {
	switch {
	case toStride == 1 && fromStride == 1:
		copy(to[:n], from)
	case toStride == 1 && fromStride == 0:
		for k := range to[:n] {
			to[k] = from[0]
		}
	case toStride == 1:
		for k := range to[:n] {
			to[k] = from[int64(k)*fromStride]
		}
	default:
		for k := range n {
			to[k*toStride] = from[k*fromStride]
		}
	}
}

// reduceBlock takes in the block of a reduction's arguments: along rows it appends the
// reduction of each row's part, across rows pieces holds one for each row.
func reduceBlock(pieces []float64, op expr.Op, d expr.Dtype, b []byte, rows, columns int64, across bool) []float64 {
	if d == Float32 {
		return reduceElements(pieces, op, Elements[float32](b), rows, columns, across)
	}
	return reduceElements(pieces, op, Elements[float64](b), rows, columns, across)
}

func reduceElements[T Float](pieces []float64, op expr.Op, b []T, rows, columns int64, across bool) []float64 {
	if !across {
		for r := range rows {
			pieces = append(pieces, reduceRun(op, b[r*columns:(r+1)*columns]))
		}
		return pieces
	}
	if len(pieces) == 0 {
		pieces = append(pieces, slices.Repeat([]float64{identityOf(op)}, int(rows))...)
	}
	for c := range columns {
		x := b[c*rows : (c+1)*rows]
		switch p := pieces[:len(x)]; op {
		case expr.RowSum:
			for r, v := range x {
				p[r] += float64(v)
			}
		case expr.RowMax:
			for r, v := range x {
				p[r] = max(p[r], float64(v))
			}
		default:
			for r, v := range x {
				p[r] = min(p[r], float64(v))
			}
		}
	}
	return pieces
}

// reduceRun returns the reduction of a part of a row.
func reduceRun[T Float](op expr.Op, x []T) float64 {
	if op == expr.RowSum {
		return add8(x)
	}
	most := x[0]
	for _, v := range x[1:] {
		if op == expr.RowMax {
			most = max(most, v)
		} else {
			most = min(most, v)
		}
	}
	return float64(most)
}

// reductionOf are the reductions of rows as those of a whole buffer, which fold alike.
var reductionOf = map[expr.Op]Reduction{expr.RowSum: {operator: expr.Add}, expr.RowMax: {operator: expr.Max}, expr.RowMin: {operator: expr.Min}}

// join writes the reduction of each row of the tile: pieces has one for each, or those
// of the blocks of the only row.
func (t *rowTile) join(op expr.Op, d expr.Dtype, pieces []float64, to []byte) {
	if int64(len(pieces)) > t.rows {
		pieces = []float64{reductionOf[op].fold(pieces)}
	}
	for r, v := range pieces {
		if d == Float32 {
			Elements[float32](to)[r] = float32(v)
		} else {
			Elements[float64](to)[r] = v
		}
	}
}
