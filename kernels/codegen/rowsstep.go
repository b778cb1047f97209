package codegen

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels/expr"
)

// step evaluates functions at all elements, and calls use for each vector with the
// results by output and lane. With backward, a loop runs from the last vector to the first.
func (w *rowsWriter) step(fs []expr.Func, backward bool, use func(b *batch, j int, results [][]string)) {
	if w.residentBatch != nil {
		w.stepResident(fs, use)
	}
	if w.residentBatch != nil && !w.partial {
		return
	}
	for k := range w.rowLanes() {
		for _, f := range fs {
			w.Prepare(f, w.operandsOf(f, k, nil))
		}
	}
	turn := w.vectorsPerIter(fs)
	w.loop(turn*w.colStride(), backward, func(column string) {
		b := w.newBatch(column, turn)
		for j := 1; j < turn; j++ {
			b.exists[j] = w.existsAt(b, j)
		}
		streamed, invariant := w.varying(fs)
		for j := range turn {
			w.read(b, append(streamed, invariant...), j, false)
		}
		w.applyAll(fs, b, 0, turn, use)
	})
}

// stepResident evaluates functions at the resident elements.
func (w *rowsWriter) stepResident(fs []expr.Func, use func(b *batch, j int, results [][]string)) {
	b := w.residentBatch
	streamed, invariant := w.varying(fs)
	for j := range b.columns {
		w.read(b, streamed, j, false)
	}
	w.waitShared(streamed)
	ahead := 4 / w.width // vectors in flight while one is computed
	for j := range ahead {
		w.read(b, streamed, j, true)
		w.read(b, invariant, j, false)
	}
	for j := 0; j < len(b.columns); j += ahead {
		for k := range ahead {
			w.read(b, streamed, j+ahead+k, true)
			w.read(b, invariant, j+ahead+k, false)
		}
		w.applyAll(fs, b, j, min(j+ahead, len(b.columns)), use)
	}
	for _, i := range streamed {
		b.elements[i] = b.elements[i][:w.firstShared(i)]
	}
	for _, i := range invariant {
		delete(b.elements, i)
	}
}

// loop adds a loop over the columns that are not resident, `columns` of them per iteration, from the first on or from the last.
func (w *rowsWriter) loop(columns int, backward bool, body func(column string)) {
	w.loops++
	again, done := fmt.Sprintf("again%d", w.loops), fmt.Sprintf("done%d", w.loops)
	first := w.calculate("add", w.first, w.vectors*w.colStride())
	column := w.Register(w.kind)
	w.Line("mov.%s %s, %s", w.index, column, first)
	w.Line("@%s bra %s", w.predicate("ge", column, w.end), done)
	if backward {
		turns := w.calculate("div", w.calculate("sub", w.calculate("sub", w.end, "1"), first), columns)
		w.Line("mad.lo.%s %s, %s, %d, %s", w.index, column, turns, columns, first)
	}
	w.Label(again)
	w.Scope(func() { body(column) })
	if backward {
		w.Line("@%s bra %s", w.predicate("eq", column, first), done)
		w.Line("sub.%s %s, %s, %d", w.index, column, column, columns)
		w.Line("bra %s", again)
	} else {
		w.Line("add.%s %s, %s, %d", w.index, column, column, columns)
		w.Line("@%s bra %s", w.predicate("lt", column, w.end), again)
	}
	w.Label(done)
}

// vectorsPerIter returns the vectors of a loop iteration.
func (w *rowsWriter) vectorsPerIter(fs []expr.Func) int {
	bytes := int64(0)
	streamed, invariant := w.varying(fs)
	for _, i := range append(streamed, invariant...) {
		if w.places[i].mark != ordinal {
			bytes += w.types[i].Size()
		}
	}
	return int(min(max(int64(w.bytesPerIter)/max(bytes*int64(w.width), 4), 1), 8))
}

// varying returns the operands of functions that differ along a row: those that stream from memory, and those that are the same for all
// rows, so that a cache has them, or are computed from indices.
func (w *rowsWriter) varying(fs []expr.Func) (streamed, invariant []int) {
	var all []int
	for _, f := range fs {
		_, kept := f.Trim()
		all = append(all, kept...)
	}
	slices.Sort(all)
	for _, i := range slices.Compact(all) {
		switch {
		case w.isKept(i):
			streamed = append(streamed, i)
		case i >= len(w.types) || w.places[i].columns == fixed:
		case w.places[i].rows == fixed && w.severalRows() && w.rowsPerThread < 2 || w.places[i].mark == ordinal:
			invariant = append(invariant, i)
		default:
			streamed = append(streamed, i)
		}
	}
	return streamed, invariant
}

// severalRows reports whether anything differs from row to row.
func (w *rowsWriter) severalRows() bool {
	return slices.ContainsFunc(w.places, func(p *address) bool { return p.rows != fixed })
}

// read loads vector j of operands, if there is one and it has not been loaded: from global memory, or, with shared, those that are
// resident in shared memory.
func (w *rowsWriter) read(b *batch, operands []int, j int, shared bool) {
	for _, i := range operands {
		held := b == w.residentBatch && j >= w.firstShared(i)
		switch p := w.places[i]; {
		case len(b.elements[i]) != j || j >= len(b.columns) || held != shared:
		case held:
			b.elements[i] = append(b.elements[i], w.loadShared(i, j))
		default: // no kept value: the step that computed one has added its registers
			b.elements[i] = append(b.elements[i], w.load(p, w.locate(p, b, j), w.width, b.exists[j]))
		}
	}
}

// operands returns the registers of a function's operands: those of row k of the
// thread that don't differ along it, and the elements given of the others.
func (w *rowsWriter) operands(k int, element func(operand int) string) []string {
	list := make([]string, len(w.types)+len(w.kept), len(w.types)+len(w.kept)+len(w.scalars))
	for i := range list {
		if i < len(w.types) && w.uniform[i] != nil {
			list[i] = w.uniform[i][k]
		} else if element != nil {
			list[i] = element(i)
		}
	}
	for _, s := range w.scalars {
		list = append(list, s[k])
	}
	return list
}

// operandsOf returns the registers of a function's operands, none of the results of reductions that it does not read and that are not there yet.
func (w *rowsWriter) operandsOf(f expr.Func, k int, element func(operand int) string) []string {
	list := w.operands(k, element)
	return append(list, make([]string, max(len(f.Operands())-len(list), 0))...)
}

// rowLanes returns the number of rows that a vector has, a lane each.
func (w *rowsWriter) rowLanes() int {
	if w.stridedAxis {
		return w.width
	}
	return 1
}

// applyAll evaluates functions at the elements of some vectors, those before end, and calls use for each. Vectors that exist are evaluated together.
func (w *rowsWriter) applyAll(fs []expr.Func, b *batch, first, end int, use func(b *batch, j int, results [][]string)) {
	for j := first; j < end; {
		n := 1
		for b.exists[j] == "" && j+n < end && b.exists[j+n] == "" && (n+1)*w.width <= 4 {
			n++
		}
		results := make([][][]string, n)
		for _, f := range fs {
			for k, list := range w.apply(f, b, j, n) {
				results[k] = append(results[k], list...)
			}
		}
		for k, list := range results {
			use(b, j+k, list)
		}
		j += n
	}
}

// apply evaluates a function at the elements of n vectors, and returns the results by vector, output and lane.
func (w *rowsWriter) apply(f expr.Func, b *batch, first, n int) [][][]string {
	lanes := make([][]string, n*w.width)
	for k := range lanes {
		j, lane := first+k/w.width, k%w.width
		lanes[k] = w.operandsOf(f, lane%w.rowLanes(), func(i int) string {
			if j >= len(b.elements[i]) { // f does not depend on it
				return ""
			}
			return b.elements[i][j][lane]
		})
	}
	results := make([][][]string, n)
	for k, outputs := range w.ApplyLanes(f, lanes, b.exists[first]) {
		list := &results[k/w.width]
		if *list == nil {
			*list = make([][]string, len(outputs))
		}
		for out, r := range outputs {
			(*list)[out] = append((*list)[out], r)
		}
	}
	return results
}

// reduce evaluates a stage: once for all rows of the thread if it is the same for them.
func (w *rowsWriter) reduce(s expr.Stage) {
	same := w.isSame(s)
	var all []*accumulator
	for w.eachRow() {
		if same && len(all) > 0 {
			continue
		}
		list := w.accumulators(s)
		w.accumulateAll(s, list)
		all = append(all, list...)
	}
	results := w.reduceThreads(all)
	for w.eachRow() {
		w.addResults(results[:len(s.Reductions)])
		if !same {
			results = results[len(s.Reductions):]
		}
	}
	w.sameResult = append(w.sameResult, slices.Repeat([]bool{same}, len(s.Reductions))...)
	w.stages++
}

// reduceShares evaluates a stage of a block that computes several shares of a row.
func (w *rowsWriter) reduceShares(s expr.Stage) {
	const again = "share"
	of, begin := w.Register(expr.B32), w.calculate("mul.lo", w.chunk, w.sharesPerBlock)
	if w.rank == "" {
		w.Line("mov.%s %s, 0", w.index, begin)
	} else {
		w.Line("mul.lo.%s %s, %s, %s", w.index, begin, begin, w.rank)
	}
	w.Line("mov.u32 %s, 0", of)
	w.Label(again)
	first, end := w.first, w.columns
	var list []*accumulator
	w.Scope(func() {
		w.first, w.end = w.calculate("add", first, begin), w.calculate("min", end, w.calculate("add", begin, w.chunk))
		list = w.accumulators(s)
		w.accumulateAll(s, list)
		w.reduceLanes(list)
		w.reduceWarp(list, of)
	})
	w.Line("add.%s %s, %s, %s", w.index, begin, begin, w.chunk)
	w.Line("add.u32 %s, %s, 1", of, of)
	p := w.result(expr.Pred, "setp.lt.u32 %s, %s, %d", of, w.sharesPerBlock)
	w.Line("@%s bra %s", p, again)
	w.reduceBlocks(unique(list))
	w.addResults(w.results(list))
	w.stages++
}

// accumulators returns the accumulators of a stage.
func (w *rowsWriter) accumulators(s expr.Stage) []*accumulator {
	list, matmul := make([]*accumulator, len(s.Reductions)), w.isMatmul(s)
	for k, op := range s.Reductions {
		list[k] = w.newAccumulator(op, s.Func.Outputs()[k], matmul)
	}
	for k, a := range list {
		for l, op := range s.Reductions {
			if a.op == expr.RowSum && op == expr.RowSum && s.Func.Widens(k, l) {
				a.sameAs = list[l]
			}
		}
	}
	return list
}

// accumulateAll accumulates all elements of a thread. If stores says so, it also stores the outputs that differ along the row, which depend on no reduction.
func (w *rowsWriter) accumulateAll(s expr.Stage, list []*accumulator) {
	fs := []expr.Func{s.Func}
	if w.stores() {
		fs = append(fs, w.staged.Elements)
	}
	w.step(fs, w.backward(w.stages), func(b *batch, j int, results [][]string) {
		for k, a := range list {
			if a.sameAs == nil {
				w.accumulate(a, results[k], b.exists[j])
			}
		}
		w.keep(b, j, results[len(results)-s.Kept:])
		if w.stores() {
			w.storeVector(b, j, results[len(list):])
		}
	})
}

// stores reports whether the reduction of a row stores outputs that differ along it.
func (w *rowsWriter) stores() bool {
	return (w.split || w.streams) && len(w.staged.Elements.Outputs()) > 0
}

// addResults makes the results of a stage known to the next.
func (w *rowsWriter) addResults(results [][]string) {
	w.Uniform(slices.Concat(results...)...)
	w.scalars = append(w.scalars, results...)
}

// backward reports whether a step goes through a row from its end: one whose order is free starts where the step before it ends, or ends where the
// next starts, since the elements read last are still in a cache.
func (w *rowsWriter) backward(step int) bool {
	switch {
	case w.ordered(step):
		return false
	case step == 0:
		return w.ordered(1)
	}
	return !w.backward(step - 1)
}

// ordered reports whether a step is a stage with a sum.
func (w *rowsWriter) ordered(step int) bool {
	return step < len(w.staged.Stages) && slices.Contains(w.staged.Stages[step].Reductions, expr.RowSum)
}

// storeElements evaluates and stores the outputs that differ along a row.
func (w *rowsWriter) storeElements() {
	if len(w.staged.Elements.Outputs()) == 0 || w.split || w.streams {
		return
	}
	w.step([]expr.Func{w.staged.Elements}, w.backward(w.stages), w.storeVector)
}

// storeVector stores vector j of the outputs that differ along a row.
func (w *rowsWriter) storeVector(b *batch, j int, results [][]string) {
	exists := w.exists
	switch {
	case exists == "":
		exists = b.exists[j]
	case b.exists[j] != "":
		exists = w.result(expr.Pred, "and.pred %s, %s, %s", w.exists, b.exists[j])
	}
	for i, p := range w.outputsOf(false) {
		w.store(p, w.locate(p, b, j), results[i], exists)
	}
}

// outputsOf returns the places of the outputs with one element a row, or of the others.
func (w *rowsWriter) outputsOf(perRow bool) (list []*address) {
	for k, one := range w.perRow {
		if one == perRow {
			list = append(list, w.places[len(w.types)+k])
		}
	}
	return list
}

// storeRow evaluates the outputs of which a row has one; its first thread stores them.
func (w *rowsWriter) storeRow() {
	places := w.outputsOf(true)
	if len(places) == 0 {
		return
	}
	results := make([][]string, len(places))
	for k := range w.rowLanes() {
		for out, r := range w.Apply(w.staged.Row, w.operands(k, nil)) {
			results[out] = append(results[out], r)
		}
	}
	first := w.thread
	if w.cluster > 0 { // of the first block
		first = w.calculate("add", w.thread, w.rank)
	}
	exists := w.predicate("eq", first, "0")
	if w.exists != "" {
		w.Line("and.pred %s, %s, %s", exists, exists, w.exists)
	}
	for i, p := range places {
		w.store(p, w.laneAddresses(p, p.first, 0), results[i], exists)
	}
}
