package codegen

import (
	"slices"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/internal/bf16split"
)

// body is the Go body: tiles of rows, each computed in blocks of as many elements as an
// interpreter likes best. The order of a sum follows from the shape, as on a GPU.
func (n *nest) body(c kernels.Call) {
	rows, splits := n.blockRows, n.grid.splits
	ranges := newSplitRanges(n, c)
	kernels.Parallel(kernels.CeilDiv(n.rows, rows)*splits, n.grain, func(lo, hi int64) {
		t := n.tiles.Get().(*rowTile)
		defer n.tiles.Put(t)
		defer ranges.join(t)
		row, split := lo/splits*rows, lo%splits
		t.bind(c, split)
		for range hi - lo {
			t.run(row)
			if split++; split == splits {
				row, split = row+rows, 0
			}
			if splits > 1 {
				t.bind(c, split)
			}
		}
	})
	ranges.write()
}

// setBlock sets the rows of a tile, the columns of a block of them, and how many tiles are worth a goroutine.
func (n *nest) setBlock() {
	if n.grid.stridedAxis { // neighbours in memory are rows
		n.blockRows = min(max(128, expr.BlockSize/n.columns), n.rows)
		n.blockColumns = expr.BlockSize / n.blockRows
	} else {
		n.blockColumns = min(n.columns, expr.BlockSize)
		n.blockRows = expr.BlockSize / n.blockColumns
	}
	n.grain = max(kernels.Grain/(n.cost*n.blockRows*n.columnsOfTile()), 1)
}

// rowStep is a step of the function: a stage, the outputs of each element, or those that each row has one of.
type rowStep struct {
	hoisted      *expr.Interpreter // computes values of a row from the results of reductions; may be nil
	hoistedTypes []expr.Dtype      // types of those values
	known        int               // reductions before the step
	eval         *expr.Interpreter // computes the outputs from operands, results and hoisted values
	needs        []int             // its operands
	outputs      []expr.Dtype
	reductions   []expr.Op // of a stage, for its first outputs
	to           []int     // outputs of the function, none for a stage
	perRow       bool      // the outputs have one element a row
	keeps        int       // outputs, the last ones, that are kept
	firstKept    int       // the first of them
}

// maxKept is the most elements of rows whose values the Go body keeps from step to step.
const maxKept = 1 << 20

// makeSteps makes the steps of the Go body.
func (n *nest) makeSteps(f expr.Func) error {
	staged := n.staged
	if n.blockRows*n.columnsOfTile() <= maxKept {
		var err error
		if staged, n.kept, err = f.StagesKept(n.perRow); err != nil {
			return err
		}
	}
	operands, kept := len(n.types)+len(n.kept), 0
	for _, s := range staged.Stages {
		step := newRowStep(s.Func, operands)
		step.reductions, step.keeps, step.firstKept = s.Reductions, s.Kept, kept
		kept += s.Kept
		n.steps = append(n.steps, step)
	}
	for _, perRow := range []bool{false, true} {
		f := staged.Elements
		if perRow {
			f = staged.Row
		}
		step := newRowStep(f, operands)
		step.perRow = perRow
		for k, one := range n.perRow {
			if one == perRow {
				step.to = append(step.to, k)
			}
		}
		if step.to != nil {
			n.steps = append(n.steps, step)
		}
	}
	return nil
}

// columnsOfTile returns the columns of a row, or of a split of it.
func (n *nest) columnsOfTile() int64 { return min(n.columns, n.grid.colsPerSplit) }

// newRowStep returns the step of a function of operands, among them those kept, and of the results of reductions known before it.
func newRowStep(f expr.Func, operands int) rowStep {
	step := rowStep{known: max(len(f.Operands())-operands, 0), outputs: f.Outputs()}
	hoisted, rest, err := f.Hoist(operands)
	if err != nil { // cannot happen: f is a valid function
		hoisted, rest = expr.Func{}, f
	}
	if step.hoistedTypes = hoisted.Outputs(); len(step.hoistedTypes) > 0 {
		step.hoisted = expr.NewInterpreter(hoisted)
	}
	_, step.needs = rest.Trim()
	step.eval = expr.NewInterpreter(rest)
	return step
}

// rowTile is some rows that one goroutine computes. In a block of them the elements of the innermost axis are contiguous: columns of a
// row, or, if the grid reduces a strided axis, a column's elements of all rows.
type rowTile struct {
	*nest
	row, rows       int64
	begin, end      int64      // columns of the split
	column, columns int64      // of the block
	inner, outer    span       // of the block
	stored          []stored   // of the operands, then of the outputs
	blocks          [][]byte   // of the operands, the kept values, the results of reductions, then the outputs of a step; nil until used
	kept            [][]byte   // values of all elements of the tile, block by block
	results         [][]byte   // of the reductions, then the values that a step hoists, by row
	pieces          []partials // the reductions of blocks, by reduction of a stage
	in, out         []unsafe.Pointer
	copied          []bool                 // outputs of the step that are in blocks
	index           []int64                // of an element along inner axes
	ranges          []bf16split.Magnitudes // of the outputs' elements
}

// span is the rows or columns of a block.
type span struct{ first, n int64 }

// stored is where an operand or output is stored.
type stored struct {
	memory       []byte
	size         int64     // of an element
	inner, outer offsetMap // along the axes that are contiguous in a block, and along the others
	bounds       bound
	copied       bool  // not accessed in place: it is random, an iota or has bounds, or it is one of several outputs and overlaps an operand
	constant     bool  // the same element everywhere
	filled       int64 // elements that the block of a constant has
}

// offsetMap maps the number of a row or column to its offset.
type offsetMap struct {
	shape, strides []int64
	oneStride      bool  // neighbours have one distance, stride
	stride, extent int64 // of the innermost axis
}

func newOffsetMap(shape, strides []int64) offsetMap {
	s := offsetMap{shape: shape, strides: strides, oneStride: addressingOf(shape, strides) != indexed}
	if last := len(shape) - 1; last >= 0 {
		s.stride, s.extent = strides[last], shape[last]
	}
	return s
}

// offset returns the offset of an index in row-major order.
func (s *offsetMap) offset(index int64) int64 {
	if s.oneStride {
		return index * s.stride
	}
	return dot(index, s.shape, s.strides)
}

func dot(index int64, shape, strides []int64) (offset int64) {
	for a := len(shape) - 1; a > 0; a-- {
		offset += index % shape[a] * strides[a]
		index /= shape[a]
	}
	return offset + index*strides[0]
}

// newTile returns a *rowTile.
func (n *nest) newTile() any {
	ofRow := len(n.scalars) // values of a row
	for _, s := range n.steps {
		ofRow = max(ofRow, s.known+len(s.hoistedTypes))
	}
	operands, outputs := len(n.types)+len(n.kept)+ofRow, max(ofRow+len(n.kept), len(n.outputs))
	t := &rowTile{nest: n, in: make([]unsafe.Pointer, operands), out: make([]unsafe.Pointer, outputs), copied: make([]bool, outputs),
		stored: make([]stored, len(n.views)), blocks: make([][]byte, operands+outputs), pieces: make([]partials, len(n.scalars)), index: make([]int64, len(n.innerShape()))}
	for range n.outputs {
		t.ranges = append(t.ranges, bf16split.None)
	}
	for range ofRow {
		t.results = append(t.results, kernels.Bytes(make([]float64, t.blockRows)))
	}
	for range n.kept {
		t.kept = append(t.kept, kernels.Bytes(make([]float64, t.blockRows*n.columnsOfTile())))
	}
	for i := range t.stored {
		s := &t.stored[i]
		s.size, s.inner, s.outer = n.dtype(i).Size(), newOffsetMap(n.colShape, n.colStrides[i]), newOffsetMap(n.rowShape, n.rowStrides[i])
		if n.grid.stridedAxis {
			s.inner, s.outer = s.outer, s.inner
		}
		s.bounds = n.bounds[i]
		s.copied = n.layout.place(i).mark.computed() || s.bounds.extent > 0
		s.constant = !s.copied && s.inner.oneStride && s.inner.stride == 0 && s.outer.oneStride && s.outer.stride == 0
	}
	return t
}

// bind has the tile read and write the memory of a launch, of a split of the rows or a part of a concatenation.
func (t *rowTile) bind(c kernels.Call, split int64) {
	operands, outputs, first := t.stored[:len(t.types)], t.stored[len(t.types):], 0
	t.begin, t.end = 0, t.nest.columns
	if t.layout.split {
		t.begin, t.end = split*t.grid.colsPerSplit, min((split+1)*t.grid.colsPerSplit, t.end)
	} else {
		first = int(split)
	}
	arg := 0 // of the next operand or output
	for i := range operands {
		if t.isIota(i) {
			continue
		}
		operands[i].memory, operands[i].filled = kernels.Slice[byte](c, c.Args[first+arg].(kernels.Ref)), 0
		arg++
	}
	for k := range outputs {
		s := &outputs[k]
		s.memory = kernels.Slice[byte](c, c.Args[arg+max(t.layout.joined-1, 0)+k].(kernels.Ref))
		if !t.layout.split || t.perRow[k] { // the place of the split, or of the part
			s.memory = s.memory[split*t.part*s.size:]
		}
		s.copied = t.nest.isSplit(k) || len(outputs) > 1 && slices.ContainsFunc(operands, func(o stored) bool { return overlap(o.memory, s.memory) })
	}
}

// overlap reports whether two pieces of memory share bytes.
func overlap(x, y []byte) bool {
	if len(x) == 0 || len(y) == 0 {
		return false
	}
	a, b := uintptr(unsafe.Pointer(&x[0])), uintptr(unsafe.Pointer(&y[0]))
	return a < b+uintptr(len(y)) && b < a+uintptr(len(x))
}

// block returns the memory of a block. Parts of a concatenation share one.
func (t *rowTile) block(i int) []byte {
	if t.layout.merged && i < len(t.types) {
		i = 0
	}
	if t.blocks[i] == nil {
		t.blocks[i] = kernels.Bytes(make([]float64, t.blockRows*t.blockColumns))
	}
	return t.blocks[i]
}

// run computes the rows from one on, of columns of the split.
func (t *rowTile) run(row int64) {
	t.row, t.rows = row, min(t.blockRows, t.nest.rows-row)
	known := 0
	for i := range t.steps {
		step, at, end := &t.steps[i], t.begin, t.end
		if step.hoisted != nil {
			t.hoist(step)
		}
		if step.perRow {
			at, end = 0, 1
		}
		for k := range step.reductions {
			t.pieces[k].clear()
		}
		for ; at < end; at += t.blockColumns {
			t.compute(step, at, min(t.blockColumns, end-at))
			for k, op := range step.reductions {
				t.pieces[k].add(op, step.outputs[k], t.block(len(t.in)+k), t.rows, t.columns, t.grid.stridedAxis)
			}
			for k, output := range step.to {
				if t.nest.isSplit(output) {
					t.storeSplits(output, t.block(len(t.in)+k))
				} else if t.copied[k] {
					t.transfer(&t.stored[len(t.types)+output], t.inner, t.outer, t.block(len(t.in)+k), true, false)
				}
			}
		}
		for k, op := range step.reductions {
			t.pieces[k].combine(op, t.scalars[known], t.rows, t.results[known])
			known++
		}
	}
}

// hoist computes the values of a row for a step, after the results of reductions.
func (t *rowTile) hoist(step *rowStep) {
	first := len(t.types) + len(t.nest.kept) // of the results
	operands := first + step.known
	for k := range step.known {
		t.in[first+k] = unsafe.Pointer(&t.results[k][0])
	}
	for k := range step.hoistedTypes {
		t.out[k] = unsafe.Pointer(&t.results[step.known+k][0])
	}
	step.hoisted.Run(int(t.rows), t.in[:operands], t.out[:len(step.hoistedTypes)]) // fails for other numbers of operands only
}

// compute evaluates a step on the block of some columns, into blocks or where the outputs are stored.
func (t *rowTile) compute(step *rowStep, column, columns int64) {
	t.column, t.columns = column, columns
	t.inner, t.outer = span{column, columns}, span{t.row, t.rows}
	if t.grid.stridedAxis {
		t.inner, t.outer = t.outer, t.inner
	}
	for _, i := range step.needs {
		if k := i - len(t.types); k >= len(t.kept) {
			t.broadcast(i, step)
		} else if k >= 0 {
			t.in[i] = t.keptAt(k)
			continue
		} else if t.in[i] = t.inOrder(i); t.in[i] != nil {
			continue
		} else {
			t.load(i)
		}
		t.in[i] = unsafe.Pointer(&t.block(i)[0])
	}
	out := t.out[:len(step.outputs)]
	for k := range out {
		if j := k - (len(out) - step.keeps); j >= 0 {
			out[k] = t.keptAt(step.firstKept + j)
			continue
		}
		if len(step.to) > 0 {
			out[k] = t.inOrder(len(t.types) + step.to[k])
			if t.copied[k] = out[k] == nil; !t.copied[k] {
				continue
			}
		}
		out[k] = unsafe.Pointer(&t.block(len(t.in) + k)[0])
	}
	operands := len(t.types) + len(t.kept) + step.known + len(step.hoistedTypes)
	step.eval.Run(int(t.rows*t.columns), t.in[:operands], out) // fails for other numbers of operands only
}

// keptAt returns where the block's elements of kept value k are.
func (t *rowTile) keptAt(k int) unsafe.Pointer {
	at := (t.column - t.begin) * t.rows * t.nest.kept[k].Size()
	return unsafe.Pointer(&t.kept[k][at])
}

// inOrder returns where the block's elements of operand or output i are stored if they are stored in the order of a block, else nil.
func (t *rowTile) inOrder(i int) unsafe.Pointer {
	s := &t.stored[i]
	switch {
	case s.copied || t.inner.n > 1 && s.inner.stride != 1 || t.outer.n > 1 && (!s.outer.oneStride || s.outer.stride != t.inner.n):
		return nil
	case !s.inner.oneStride && (t.inner.n > s.inner.extent || t.inner.first%s.inner.extent+t.inner.n > s.inner.extent): // the block is not within one row of the innermost axis
		return nil
	}
	at := s.inner.offset(t.inner.first) + s.outer.offset(t.outer.first)
	return unsafe.Pointer(&s.memory[at*s.size])
}

// runs calls f for the runs of a block's elements that have one stride where they are stored: with a run's first element in the block and in memory,
// the stride, and the number. Elements beyond an operand's bounds are at -1.
func (t *rowTile) runs(s *stored, inner, outer span, f func(k, at, stride, n int64)) {
	b, k, index, last := s.bounds, int64(0), t.index, len(t.index)-1
	shape, strides, stride, extent := s.inner.shape, s.inner.strides, s.inner.stride, s.inner.extent
	for o := range outer.n {
		at := s.outer.offset(outer.first + o)
		if s.inner.oneStride && b.extent == 0 {
			f(k, at+inner.first*stride, stride, inner.n)
			k += inner.n
			continue
		}
		rest := inner.first
		for a := last; a > 0; a-- {
			index[a] = rest % shape[a]
			rest /= shape[a]
			at += index[a] * strides[a]
		}
		index[0], at = rest, at+rest*strides[0]
		for end := k + inner.n; k < end; {
			n, from := min(extent-index[last], end-k), at
			if b.extent > 0 {
				from -= b.from * strides[b.axis]
				within := index[b.axis] - b.from
				switch inside := within >= 0 && within < b.extent; {
				case b.axis == last && inside:
					n = min(n, b.extent-within)
				case b.axis == last && within < 0:
					n, from = min(n, -within), -1
				case !inside:
					from = -1
				}
			}
			f(k, from, stride, n)
			k, at = k+n, at+n*stride
			index[last] += n
			for a := last; a > 0 && index[a] == shape[a]; a-- {
				at += strides[a-1] - shape[a]*strides[a]
				index[a] = 0
				index[a-1]++
			}
		}
	}
}

// load copies the block's elements of operand i into its block, or computes them. Elements beyond the bounds become 0; for parts of a
// concatenation only the first clears them, since all parts share a block.
func (t *rowTile) load(i int) {
	s, n := &t.stored[i], t.rows*t.columns
	if s.constant && s.filled >= n {
		return
	}
	s.filled = n
	to := t.block(i)
	if t.views[i].Stream.Number != 0 {
		g := newGenerator(s.memory, t.views[i].Stream)
		t.runs(s, t.inner, t.outer, func(k, at, stride, n int64) { g.fill(t.types[i], to, k, t.views[i].Offset+at, stride, n) })
		return
	}
	if t.isIota(i) {
		t.runs(s, t.inner, t.outer, func(k, at, stride, n int64) {
			for j := range n {
				kernels.Elements[int64](to)[k+j] = t.views[i].Offset + at + j*stride
			}
		})
		return
	}
	t.transfer(s, t.inner, t.outer, to, false, i == 0 || !t.layout.merged)
}

// transfer loads a block from where an operand is stored, with zeros beyond its bounds if zero is set, or stores a block to an output.
func (t *rowTile) transfer(s *stored, inner, outer span, block []byte, store, zero bool) {
	switch s.size {
	case 1:
		transferElements(t, s, inner, outer, kernels.Elements[uint8](block), kernels.Elements[uint8](s.memory), store, zero)
	case 2:
		transferElements(t, s, inner, outer, kernels.Elements[uint16](block), kernels.Elements[uint16](s.memory), store, zero)
	case 4:
		transferElements(t, s, inner, outer, kernels.Elements[uint32](block), kernels.Elements[uint32](s.memory), store, zero)
	default:
		transferElements(t, s, inner, outer, kernels.Elements[int64](block), kernels.Elements[int64](s.memory), store, zero)
	}
}

func transferElements[T kernels.Element](t *rowTile, s *stored, inner, outer span, block, memory []T, store, zero bool) {
	if store {
		t.runs(s, inner, outer, func(k, at, stride, n int64) { moveElements(memory[at:], stride, block[k:], 1, n) })
		return
	}
	t.runs(s, inner, outer, func(k, at, stride, n int64) {
		if at >= 0 {
			moveElements(block[k:], 1, memory[at:], stride, n)
		} else if zero {
			clear(block[k : k+n])
		}
	})
}

// broadcast copies a result of a reduction, or a value that the step hoists, to each element of its row.
func (t *rowTile) broadcast(i int, step *rowStep) {
	k := i - len(t.types) - len(t.kept)
	s := stored{memory: t.results[k], inner: offsetMap{oneStride: true}, outer: offsetMap{oneStride: true, stride: 1}}
	if t.grid.stridedAxis {
		s.inner, s.outer = s.outer, s.inner
	}
	if k < step.known {
		s.size = t.scalars[k].Size()
	} else {
		s.size = step.hoistedTypes[k-step.known].Size()
	}
	t.transfer(&s, span{0, t.inner.n}, span{0, t.outer.n}, t.block(i), false, true)
}

func moveElements[T kernels.Element](to []T, toStride int64, from []T, fromStride, n int64) {
	switch {
	case toStride == 1 && fromStride == 1:
		copy(to[:n], from)
	case toStride == 1 && fromStride == 0:
		v := from[0]
		for k := range to[:n] {
			to[k] = v
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
