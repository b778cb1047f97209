package codegen

import (
	"slices"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// body is the Go body: tiles of rows, each taken in blocks of as many elements as an
// interpreter likes best. The order of a sum follows from the shape, as on a GPU.
func (m *rowMapping) body(c kernels.Call) {
	memory := make([][]byte, len(m.offsets))
	for i := range memory {
		memory[i] = kernels.Slice[byte](c, i)
	}
	rows, columns := m.tile()
	splits := m.grid.splits
	kernels.Parallel(kernels.CeilDiv(m.rows, rows)*splits, max(kernels.Grain/(m.cost*rows*min(m.columns, m.grid.chunk)), 1), func(lo, hi int64) {
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

// rowStep is a step of the function: a stage, the outputs of each element, or those that
// each row has one of.
type rowStep struct {
	early     *expr.Interpreter // of the values of a row, from the results of reductions; nil for none
	hoisted   []expr.Dtype      // its outputs
	known     int               // reductions before the step
	eval      *expr.Interpreter // of the operands, the results and the outputs of early
	needs     []int             // its operands
	outputs   []expr.Dtype      // of the step
	to        []int             // outputs of the function, none for a stage
	keeps     int               // outputs, the last ones, that are kept
	firstKept int               // the first of them
}

// mostKept is the most elements of rows whose values the Go body keeps from step to
// step.
const mostKept = 1 << 20

// makeSteps makes the steps of the Go body.
func (m *rowMapping) makeSteps(f expr.Func) error {
	staged := m.staged
	if rows, _ := m.tile(); rows*m.columnsOfTile() <= mostKept {
		var err error
		if staged, m.kept, err = f.StagesKept(m.perRow); err != nil {
			return err
		}
	}
	var to [2][]int // outputs of each element, of each row
	for k, one := range m.perRow {
		if one {
			to[1] = append(to[1], k)
		} else {
			to[0] = append(to[0], k)
		}
	}
	operands, kept := len(m.types)+len(m.kept), 0
	for _, s := range staged.Stages {
		step := newRowStep(s.Func, operands, nil)
		step.keeps, step.firstKept = s.Kept, kept
		kept += s.Kept
		m.steps = append(m.steps, step)
	}
	m.steps = append(m.steps, newRowStep(staged.Elements, operands, to[0]), newRowStep(staged.Row, operands, to[1]))
	return nil
}

// columnsOfTile returns the columns of a row, or of a split of it.
func (m *rowMapping) columnsOfTile() int64 { return min(m.columns, m.grid.chunk) }

// newRowStep returns the step of a function of operands, among them those kept, and of the
// results of reductions known before it.
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
// of the innermost axis are contiguous: columns of a row, or a column's of
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
	blocks  [][]byte    // of the operands, the kept values, the results of reductions, then the outputs of a step
	kept    [][]byte    // values of all elements of the tile, block by block
	results [][]byte    // of the reductions, then the values that a step hoists, by row
	pieces  [][]float64 // the reductions of blocks, by reduction of a stage
	in, out []unsafe.Pointer
}

func (m *rowMapping) newTile(memory [][]byte, rows, columns int64) *rowTile {
	single := len(m.scalars) // values of a row
	for _, s := range m.steps {
		single = max(single, s.known+len(s.hoisted))
	}
	operands := len(m.types) + len(m.kept) + single
	outputs := max(single+len(m.kept), len(m.outputs))
	t := &rowTile{rowMapping: m, memory: memory, width: columns, in: make([]unsafe.Pointer, operands), out: make([]unsafe.Pointer, outputs)}
	for range operands + outputs {
		t.blocks = append(t.blocks, kernels.Bytes(make([]float64, columns*rows)))
	}
	for range single {
		t.results = append(t.results, kernels.Bytes(make([]float64, rows)))
	}
	for range m.kept {
		t.kept = append(t.kept, kernels.Bytes(make([]float64, rows*m.columnsOfTile())))
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

// hoist computes the values of a row for a step, after the results of reductions.
func (t *rowTile) hoist(step *rowStep) {
	if step.early == nil {
		return
	}
	first := len(t.types) + len(t.kept) // of the results
	operands := first + step.known
	for k := range step.known {
		t.in[first+k] = unsafe.Pointer(&t.results[k][0])
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
		if k := i - len(t.types); k >= len(t.kept) {
			t.repeat(i, step)
		} else if k >= 0 {
			t.in[i] = t.keptAt(k)
			continue
		} else if isRandom(t.layout.random, i) {
			t.draw(i)
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
		if j := k - (len(out) - step.keeps); j >= 0 {
			out[k] = t.keptAt(step.firstKept + j)
		}
		if len(step.to) > 0 {
			i := len(t.types) + step.to[k]
			if at, ok := t.inOrder(i); ok {
				out[k] = unsafe.Pointer(&t.memory[i][at*t.dtype(i).Size()])
			}
		}
	}
	operands := len(t.types) + len(t.kept) + step.known + len(step.hoisted)
	step.eval.Run(int(t.rows*t.columns), t.in[:operands], out) // fails for other numbers of operands only
}

// keptAt returns where the block's elements of kept value k lie.
func (t *rowTile) keptAt(k int) unsafe.Pointer {
	at := (t.column - t.split*t.grid.chunk) * t.rows * t.rowMapping.kept[k].Size()
	return unsafe.Pointer(&t.kept[k][at])
}

// reduceBlock takes in the block of a reduction's arguments: along rows it appends the
// reduction of each row's part, across rows pieces holds one for each row.
func reduceBlock(pieces []float64, op expr.Op, d expr.Dtype, b []byte, rows, columns int64, across bool) []float64 {
	if d == kernels.Float32 {
		return reduceElements(pieces, op, kernels.Elements[float32](b), rows, columns, across)
	}
	return reduceElements(pieces, op, kernels.Elements[float64](b), rows, columns, across)
}

func reduceElements[T kernels.Float](pieces []float64, op expr.Op, b []T, rows, columns int64, across bool) []float64 {
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
func reduceRun[T kernels.Float](op expr.Op, x []T) float64 {
	if op == expr.RowSum {
		return arith.Sum(x)
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
		pieces = []float64{reductionOf[op].Fold(pieces)}
	}
	for r, v := range pieces {
		if d == kernels.Float32 {
			kernels.Elements[float32](to)[r] = float32(v)
		} else {
			kernels.Elements[float64](to)[r] = v
		}
	}
}
