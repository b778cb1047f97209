package kernels

import (
	"unsafe"

	"github.com/stheno-ml/stheno/kernels/expr"
)

// body is the Go body: short rows together, long ones in pieces, as many elements at
// a time as an interpreter likes best.
func (m *rowMapping) body(c Call) {
	memory := make([][]byte, len(m.types)+len(m.outputs))
	for i := range memory {
		memory[i] = Slice[byte](c, i)
	}
	together := max(expr.BlockSize/max(m.columns, 1), 1)
	Parallel(CeilDiv(m.rows, together), max(Grain/(m.cost*max(m.columns, 1)*together), 1), func(lo, hi int64) {
		t := m.newTile(memory, min(m.columns, expr.BlockSize), together)
		for at := lo * together; at < min(hi*together, m.rows); at += together {
			t.run(at, min(together, m.rows-at))
		}
	})
}

// A rowTile is some rows in the hands of one goroutine.
type rowTile struct {
	*rowMapping
	memory  [][]byte
	blocks  [][]byte // of operands and scalars, then of the outputs of a step
	in, out []unsafe.Pointer
	results [][]float64 // of the reductions, by row
	pieces  [][]float64 // of a row that is taken in pieces, by reduction of a stage
	row     int64       // the first
	rows    int64
}

func (m *rowMapping) newTile(memory [][]byte, columns, rows int64) *rowTile {
	operands := len(m.types) + len(m.scalars)
	most := max(len(m.scalars), len(m.outputs))
	t := &rowTile{rowMapping: m, memory: memory, results: make([][]float64, len(m.scalars)), pieces: make([][]float64, len(m.scalars))}
	for range operands + most {
		t.blocks = append(t.blocks, Bytes(make([]float64, max(columns*rows, 1))))
	}
	for i := range t.results {
		t.results[i] = make([]float64, rows)
	}
	for _, b := range t.blocks {
		t.in = append(t.in, unsafe.Pointer(unsafe.SliceData(b)))
	}
	t.in, t.out = t.in[:operands:operands], t.in[operands:]
	return t
}

// run computes rows from one on.
func (t *rowTile) run(row, rows int64) {
	t.row, t.rows = row, rows
	known := 0
	for i, s := range t.staged.Stages {
		for k := range s.Reductions {
			t.pieces[k] = t.pieces[k][:0]
		}
		t.columnsOf(t.eval[i], known, len(s.Reductions), func(_, n int64) {
			for k, op := range s.Reductions {
				for r := range rows {
					t.pieces[k] = append(t.pieces[k], reduceBlock(op, s.Func.Outputs()[k], t.block(k), r*n, n))
				}
			}
		})
		for k, op := range s.Reductions {
			d := s.Func.Outputs()[k]
			for r := range rows {
				t.results[known+k][r] = rounded(d, t.join(op, t.pieces[k], r))
			}
		}
		known += len(s.Reductions)
	}
	t.columnsOf(t.eval[len(t.eval)-2], known, len(t.staged.Elements.Outputs()), func(at, n int64) { t.store(false, at, n) })
	if len(t.staged.Row.Outputs()) > 0 {
		t.read(0, min(t.columns, 1), known)
		if t.columns == 0 { // a row has its reductions only
			t.fill(1, known)
		}
		t.evaluate(t.eval[len(t.eval)-1], int(rows), known, len(t.staged.Row.Outputs()))
		t.store(true, 0, 1)
	}
}

// join returns the reduction of a row out of those of its pieces: all of them where
// a row is taken in pieces, one where several rows are taken together.
func (t *rowTile) join(op expr.Op, pieces []float64, row int64) float64 {
	if t.columns == 0 {
		return reductionOf[op].Identity()
	}
	if t.columns > expr.BlockSize {
		return reductionOf[op].fold(pieces)
	}
	return pieces[row]
}

// columnsOf evaluates a step at all columns, a block at a time, and calls use for each
// with its first column and their number.
func (t *rowTile) columnsOf(eval *expr.Interpreter, known, outputs int, use func(at, n int64)) {
	for at := int64(0); outputs > 0 && at < t.columns; at += expr.BlockSize {
		n := min(expr.BlockSize, t.columns-at)
		t.read(at, n, known)
		t.evaluate(eval, int(n*t.rows), known, outputs)
		use(at, n)
	}
}

func (t *rowTile) evaluate(eval *expr.Interpreter, n, known, outputs int) {
	eval.Run(n, t.in[:len(t.types)+known], t.out[:outputs]) // fails for other numbers of operands only
}

// block returns the memory of output k of a step.
func (t *rowTile) block(k int) []byte { return t.blocks[len(t.types)+len(t.scalars)+k] }

// read gathers n columns of the operands from column at on, and repeats the known
// results of reductions beside them.
func (t *rowTile) read(at, n int64, known int) {
	for i, d := range t.types {
		t.each(i, at, n, func(k, from int64) {
			size := d.Size()
			copy(t.blocks[i][k*size:(k+1)*size], t.memory[i][from*size:])
		})
	}
	t.fill(n, known)
}

// fill repeats the known results of reductions for n columns.
func (t *rowTile) fill(n int64, known int) {
	for s, d := range t.scalars[:known] {
		b := t.blocks[len(t.types)+s]
		for r := range t.rows {
			if d == Float32 {
				fillSlice(Elements[float32](b)[r*n:(r+1)*n], float32(t.results[s][r]))
			} else {
				fillSlice(Elements[float64](b)[r*n:(r+1)*n], t.results[s][r])
			}
		}
	}
}

func fillSlice[T any](s []T, v T) {
	for i := range s {
		s[i] = v
	}
}

// store scatters the outputs of a step to their places.
func (t *rowTile) store(perRow bool, at, n int64) {
	step := 0
	for k, d := range t.outputs {
		if t.perRow[k] != perRow {
			continue
		}
		b, size, i := t.block(step), d.Size(), len(t.types)+k
		t.each(i, at, n, func(k, to int64) { copy(t.memory[i][to*size:(to+1)*size], b[k*size:]) })
		step++
	}
}

// each calls f for n columns of each row, from column at on, with an element's number
// in the block and its place in the memory of operand or output i.
func (t *rowTile) each(i int, at, n int64, f func(k, place int64)) {
	offset := int64(0)
	if i < len(t.offsets) {
		offset = t.offsets[i]
	}
	k := int64(0)
	for r := range t.rows {
		row := offset + dot(t.row+r, t.rowShape, t.rowStrides[i])
		for c := range n {
			f(k, row+dot(at+c, t.colShape, t.colStrs[i]))
			k++
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

// reductionOf are the reductions of rows as those of a whole buffer, which fold alike.
var reductionOf = map[expr.Op]Reduction{expr.RowSum: {operator: expr.Add}, expr.RowMax: {operator: expr.Max}, expr.RowMin: {operator: expr.Min}}

// reduceBlock returns the reduction of n elements of a block.
func reduceBlock(op expr.Op, d expr.Dtype, b []byte, at, n int64) float64 {
	if n == 0 {
		return reductionOf[op].Identity()
	}
	wide := make([]float64, n)
	if d == Float32 {
		for i, v := range Elements[float32](b)[at : at+n] {
			wide[i] = float64(v)
		}
	} else {
		copy(wide, Elements[float64](b)[at:at+n])
	}
	return reductionOf[op].fold(wide)
}

// rounded returns a number rounded to an element type.
func rounded(d expr.Dtype, v float64) float64 {
	if d == Float32 {
		return float64(float32(v))
	}
	return v
}
