package codegen

import (
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// chooseRowsPerThread lets the threads of a row of a kernel that prefetches compute several consecutive rows: they compute what is the same for all rows, such as a
// normalization of the vector, once, and there are fewer blocks to launch. Sums are in double, so each row of a normalization of its own takes more time than the product.
//
// A token of GPT-2 124M, Mixed(BF16), H200, ms    1 row    4        8
// loads after the wait                            0.321             0.299
// parameters loaded before the wait               0.318    0.292    0.284
func (m *nest) chooseRowsPerThread(dev kernels.Device, pol rowsPolicy) {
	l := &m.layout
	if l.partial || l.shared != "" || l.rowsPerBlock > 1 || slices.ContainsFunc(m.used, func(i int) bool { return i < len(m.types) && l.place(i).mark != plain }) {
		return
	}
	n, bytes := int64(1), int64(0)
	for _, i := range m.used {
		if i < len(m.types) && l.place(i).rows != fixed && l.place(i).columns != fixed {
			bytes += int64(l.vectors) * m.grid.width * inRegister(m.types[i])
		}
	}
	for n < pol.maxRowsPerThread && 2*n*bytes <= pol.rowsPerThreadBytes && m.rows%(2*n) == 0 && m.rows/(2*n) >= pol.rowsPerThreadBlocksPerSM*int64(dev.SMs) {
		n *= 2
	}
	if n > 1 {
		l.rowsPerThread = int(n)
	}
}

// chooseEarly chooses the operands that a kernel loads before it waits for prerequisite kernels: those that no launch of the run changes, if it keeps all elements in registers.
func (m *nest) chooseEarly() {
	l := &m.layout
	early := slices.Repeat([]byte{'-'}, len(m.types))
	for i := range m.types {
		if p := l.place(i); m.views[i].Constant && p.mark == plain && !l.partial && l.shared == "" && (p.rows != fixed || l.rowsPerThread > 1) {
			early[i] = 'e'
		}
	}
	if slices.Contains(early, 'e') {
		l.early = string(early)
	}
}

// isEarly reports whether an operand is loaded before the wait.
func (w *rowsWriter) isEarly(operand int) bool { return w.early != "" && w.early[operand] == 'e' }

// rowState is what is known of a row of the thread, or of its vector of rows.
type rowState struct {
	row           string     // its number
	addresses     []*address // of the operands, then of the outputs
	uniform       [][]string // by operand: the values of each lane
	scalars       [][]string // results of the reductions so far, by reduction and lane
	residentBatch *batch     // the resident vectors
}

// beginRows finds where the thread's rows begin, given the first.
func (w *rowsWriter) beginRows(first string) {
	places := w.places
	w.rowStates = make([]rowState, max(w.rowsPerThread, 1))
	for i := range w.rowStates {
		row, addresses := first, places
		if i > 0 {
			row, addresses = w.calculate("add", first, i), nil
			for _, p := range places {
				other := *p
				addresses = append(addresses, &other)
			}
		}
		w.rowStates[i] = rowState{row: row, addresses: addresses}
	}
	for w.eachRow() {
		w.findRows()
	}
}

// eachRow makes the next row of the thread the current one, and reports whether there is one. After the last it goes back to the first.
func (w *rowsWriter) eachRow() bool {
	w.nextRow++
	more := w.nextRow <= len(w.rowStates)
	if !more {
		w.nextRow = 0
	}
	w.rowState = &w.rowStates[max(w.nextRow-1, 0)]
	w.places = w.addresses
	return more
}

// isSame reports whether a stage is the same for all rows of the thread.
func (w *rowsWriter) isSame(s expr.Stage) bool {
	_, needs := s.Func.Trim()
	return !slices.ContainsFunc(needs, func(k int) bool {
		if k < len(w.types) {
			return w.places[k].rows != fixed
		}
		return w.isKept(k) || !w.sameResult[k-len(w.types)-len(w.kept)]
	})
}

// chooseMatmul chooses the matrices whose products with a vector are summed in float32: sums in double take more time than the matrix, since an SM converts 16 elements a cycle.
func (m *nest) chooseMatmul() {
	l := &m.layout
	if l.stridedAxis || l.split || l.cluster > 0 || l.vectors == 0 || l.partial {
		return
	}
	matmul := slices.Repeat([]byte{'-'}, len(m.types))
	for i, v := range m.views[:len(m.types)] {
		if v.Matmul {
			matmul[i] = 'm'
		}
	}
	if slices.Contains(matmul, 'm') {
		l.matmul = string(matmul)
	}
}

// isMatmul reports whether a stage sums products of a matrix and a vector in float32.
func (w *rowsWriter) isMatmul(s expr.Stage) bool {
	_, needs := s.Func.Trim()
	return w.matmul != "" && slices.ContainsFunc(needs, func(i int) bool { return i < len(w.types) && w.matmul[i] == 'm' }) &&
		!slices.ContainsFunc(s.Func.Outputs(), func(d expr.Dtype) bool { return d != kernels.Float32 })
}

// loadEarly loads the operands that no launch of the run changes.
func (w *rowsWriter) loadEarly() {
	if w.early == "" {
		return
	}
	w.loadsEarly = true
	for w.eachRow() {
		w.loadUniform()
		w.loadResident()
	}
	w.loadsEarly = false
}

// loadRows loads the resident vectors of all rows of the thread.
func (w *rowsWriter) loadRows() {
	for w.eachRow() {
		w.loadResident()
	}
}

// loadResident loads the resident vectors of a row that have not been loaded. Those of an operand that is the same for all rows are the first row's.
func (w *rowsWriter) loadResident() {
	for _, i := range w.used {
		if i >= len(w.types) || w.places[i].columns == fixed || w.loadsEarly && !w.isEarly(i) {
			continue
		}
		if first := w.rowStates[0].residentBatch; w.places[i].rows == fixed && first.elements[i] != nil {
			w.residentBatch.elements[i] = first.elements[i]
		}
		for j := range w.residentBatch.columns {
			w.read(w.residentBatch, []int{i}, j, false)
		}
	}
}
