package codegen

import (
	"github.com/stheno-ml/stheno/kernels/expr"
)

// rowsWriter writes a kernel:
//
//	find the thread's row and first vector
//	load the operands that a row has one of
//	for each stage: its function at each element, reduced; the threads of a row combine their results
//	the outputs at each element
//	the outputs of which a row has one
//
// A kernel with several rows a thread does each step for all of them, and a stage that is the same for all rows once. A thread loads each resident vector once, and computes nothing twice of those in registers. For other vectors, each step has a loop that loads a
// few per iteration. Either way a thread reduces its vectors in order, each lane separately.
type rowsWriter struct {
	kernelWriter
	perRow []bool
	staged expr.Staged
	used   []int // operands that the function depends on
	nan    bool  // there are instructions for maxima with NaN

	rows, columns string // their numbers
	chunk         string // columns of a split, or of the share of a block of a cluster
	rank          string // of the block in its cluster

	thread      string              // of the row
	exists      string              // predicate: the thread has a row; "" where all have
	first       string              // column of the first vector
	end         string              // column behind the last
	*rowState                       // of the current row
	rowStates   []rowState          // of the rows of the thread
	nextRow     int                 // see eachRow
	sameResult  []bool              // by reduction so far: its result is the same for all rows of the thread
	loadsEarly  bool                // loads come before the wait for prerequisite kernels
	slots       []string            // by operand in shared memory: where the thread's vectors begin
	loaded      map[[2]int][]string // elements that the last step loaded from there, by operand and vector
	copyPending bool                // for copies to shared memory
	kept        []keptValue         // operands of steps behind the function's
	stages      int                 // so far, as are the next
	loops       int
	reductions  int // through shared memory
}

// kernel writes the whole.
func (w *rowsWriter) kernel() string {
	if n := reduceBytes(w.layout, w.staged); n > 0 {
		w.Line(".shared .align 16 .b8 joined[%d]", n)
	}
	w.parameters()
	w.beginRows(w.findThread())
	if w.prefetch {
		for w.eachRow() {
			w.findResident()
			w.prefetchRows()
		}
		w.Line("griddepcontrol.launch_dependents")
		w.loadEarly()
	}
	w.gridDependencyWait()
	for w.eachRow() {
		w.loadUniform()
	}
	if w.vectors > 0 {
		if !w.prefetch {
			w.findResident()
		}
		w.copyShared()
	}
	if w.rowsPerThread > 1 {
		w.loadRows()
	}
	for _, s := range w.staged.Stages {
		if w.sharesPerBlock > 0 {
			w.reduceShares(s)
		} else {
			w.reduce(s)
		}
	}
	if w.cluster > 0 { // a block's shared memory is there until all have read it
		w.Line("barrier.cluster.arrive")
	}
	if !w.prefetch {
		w.launchDependents()
	}
	w.storeElements()
	for w.eachRow() {
		w.storeRow()
	}
	if w.cluster > 0 {
		w.Line("barrier.cluster.wait")
	}
	if w.slots != nil {
		w.Label(noColumns)
	}
	w.storeRanges()
	return w.Text(w.target, rowsEntry, w.params, expr.Blocks{Threads: w.threadsPerRow * w.rowsPerBlock, Cluster: w.cluster, Resident: w.blocksPerSM()})
}

// blocksPerSM returns how many blocks an SM must have registers for, 0 to leave that to the assembler. For a cluster these are as many
// as shared memory admits, with at most 1024 threads. A block whose resident elements leave no room for a second one may use all
// registers. Otherwise the assembler uses fewer, and loads the last elements after the first have been accumulated. For layer norm of
// 4096 x 32768 on an H200 that takes 345 us, and 265 us if all loads are issued at once.
func (w *rowsWriter) blocksPerSM() int {
	const sharedPerSM, reservedPerBlock = 227 << 10, 1 << 10 // bytes: shared memory of an SM with clusters, reserved of it for a block
	if w.cluster == 0 {
		const registersPerSM, otherRegisters = 1 << 16, 24 // of an SM; estimate for a thread, besides resident elements
		if w.shared == "" && elementSteps(w.staged) > 1 && 2*w.threadsPerRow*w.rowsPerBlock*(w.residentRegisters()+otherRegisters) > registersPerSM {
			return 1
		}
		return 0
	}
	return max(min(1024/w.threadsPerRow, sharedPerSM/(w.sharedBytes(w.types)+reduceBytes(w.layout, w.staged)+reservedPerBlock)), 1)
}

// findResident finds the resident vectors.
func (w *rowsWriter) findResident() {
	if first := w.rowStates[0].residentBatch; first != nil { // of another row
		w.residentBatch = &batch{columns: first.columns, exists: first.exists, indices: first.indices, begin: map[*address][]string{}, elements: map[int][][]string{}}
		return
	}
	w.residentBatch = w.newBatch(w.first, w.vectors)
	w.guardResident()
}

// guardResident finds which resident vectors exist: all but the last do, or all but the last two where the last block of a cluster has a
// few columns less than the other blocks.
func (w *rowsWriter) guardResident() {
	first := w.vectors - 1
	switch {
	case w.small:
		first = w.vectors / 2
	case w.full:
		first = w.vectors
	case w.cluster > 0:
		first = max(first-1, 0)
	}
	for j := first; j < w.vectors; j++ {
		w.residentBatch.exists[j] = w.existsAt(w.residentBatch, j)
	}
}

// parameters adds the parameters, in the order of [nest.arguments].
func (w *rowsWriter) parameters() {
	w.pointers()
	w.rows, w.columns = w.parameter(w.index, w.kind), w.parameter(w.index, w.kind)
	if w.split || w.cluster > 0 || w.sharesPerBlock > 0 {
		w.chunk = w.parameter(w.index, w.kind)
	}
	w.addressParameters()
}

// findThread finds the columns of the thread, and returns its first row. One without a row reads the last.
func (w *rowsWriter) findThread() (row string) {
	number := w.special("tid.x")
	beside, lanes := "0", 1 // of the block
	if w.stridedAxis {
		w.thread, beside = w.calculate("shr", number, shift(w.rowsPerBlock)), w.calculate("and", number, w.rowsPerBlock-1)
		lanes = w.width
	} else if w.thread = number; w.rowsPerBlock > 1 {
		w.thread, beside = w.calculate("and", number, w.threadsPerRow-1), w.calculate("shr", number, shift(w.threadsPerRow))
	}
	block := w.special("ctaid.x")
	if w.cluster > 0 {
		block, w.rank = w.calculate("shr", block, shift(w.cluster)), w.calculate("and", block, w.cluster-1)
	}
	row = w.calculate("mad.lo", block, w.rowsPerBlock, beside)
	if row = w.calculate("mul.lo", row, lanes*max(w.rowsPerThread, 1)); w.rowsPerBlock > 1 {
		w.exists = w.predicate("lt", row, w.rows)
		row = w.calculate("min", row, w.calculate("sub", w.rows, lanes))
	}
	w.first, w.end = w.thread, w.columns
	if !w.stridedAxis {
		w.first = w.calculate("mul.lo", w.thread, w.width)
	}
	if w.sharesPerBlock == 0 && (w.split || w.cluster > 0) {
		part := w.rank
		if w.split {
			part = w.special("ctaid.y")
		}
		begin := w.calculate("mul.lo", part, w.chunk)
		w.first = w.calculate("add", w.first, begin)
		w.end = w.calculate("min", w.columns, w.calculate("add", begin, w.chunk))
	}
	return row
}
