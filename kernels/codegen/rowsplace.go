package codegen

import (
	"slices"

	"github.com/stheno-ml/stheno/kernels/expr"
)

// findRows finds where the thread's rows begin.
func (w *rowsWriter) findRows() {
	lanes := 1
	if w.stridedAxis && !w.inner {
		lanes = w.width
	}
	var indices [][]string
	for k := range lanes * min(w.rowAxes, 1) {
		indices = append(indices, w.indicesOf(w.calculate("add", w.row, k), w.rowDivide))
	}
	for i, p := range w.places {
		switch p.rows {
		case fixed:
			p.first = []string{p.base}
		case linear:
			p.first = []string{w.offset(p, p.base, []string{w.row}, p.ofRow)}
		case indexed:
			for k := range indices {
				if k == 0 || p.lanes == scattered {
					p.first = append(p.first, w.offset(p, p.base, indices[k], p.ofRow))
				}
			}
		}
		if k := i - len(w.types); w.split && k >= 0 && w.perRow[k] { // one for each split
			at := w.Register(expr.B64)
			w.address(at, p.first[0], w.special("ctaid.y"), p.dtype.Size())
			p.first[0] = at
		}
		if p.lanes == strided {
			strides := p.ofColumn
			if w.stridedAxis {
				strides = p.ofRow
			}
			p.step = w.result(expr.B64, "mov.u64 %s, 0")
			w.address(p.step, p.step, strides[len(strides)-1], p.size())
		}
	}
}

// offset returns the address of an index beyond another.
func (w *rowsWriter) offset(p *address, from string, index, strides []string) string {
	sum := w.calculate("mul.lo", index[0], strides[0])
	for a := 1; a < len(index); a++ {
		sum = w.calculate("mad.lo", index[a], strides[a], sum)
	}
	r := w.Register(expr.B64)
	w.address(r, from, sum, p.size())
	return r
}

// loadUniform loads the operands that don't differ along a row.
func (w *rowsWriter) loadUniform() {
	if w.uniform == nil {
		w.uniform = make([][]string, len(w.types))
	}
	for i, p := range w.places[:len(w.types)] {
		if p.columns == fixed && slices.Contains(w.used, i) && w.uniform[i] == nil && (!w.loadsEarly || w.isEarly(i)) {
			w.uniform[i] = w.load(p, w.laneAddresses(p, p.first, 0), w.rowLanes(), "")
			w.Uniform(w.uniform[i]...)
		}
	}
}

// batch is some vectors of a thread: all resident ones, or those of a loop iteration.
type batch struct {
	columns  []string              // of each
	exists   []string              // predicate of each, "" where it does
	indices  [][][]string          // along each axis of the columns, by vector and lane, as far as needed
	begin    map[*address][]string // addresses of the first vector, where the others follow at fixed distances
	elements map[int][][]string    // by operand, vector and lane
}

// newBatch returns vectors from a column on.
func (w *rowsWriter) newBatch(column string, vectors int) *batch {
	b := &batch{exists: make([]string, vectors), indices: make([][][]string, vectors), begin: map[*address][]string{}, elements: map[int][][]string{}}
	for j := range vectors {
		b.columns = append(b.columns, w.calculate("add", column, j*w.colStride()))
	}
	return b
}

// existsAt returns the predicate that vector j of a batch is before the end.
func (w *rowsWriter) existsAt(b *batch, j int) string { return w.predicate("lt", b.columns[j], w.end) }

// colStride returns the number of columns from a vector of a thread to the next.
func (w *rowsWriter) colStride() int {
	if w.stridedAxis {
		return w.threadsPerRow
	}
	return w.threadsPerRow * w.width
}

// locate returns where vector j of a batch is stored: one address, or one for each lane.
func (w *rowsWriter) locate(p *address, b *batch, j int) []location {
	switch p.columns {
	case fixed:
		return w.laneAddresses(p, p.first, 0)
	case unitStride:
		if b.begin[p] == nil {
			for _, row := range p.first {
				r := w.Register(expr.B64)
				w.address(r, row, b.columns[0], p.size())
				b.begin[p] = append(b.begin[p], r)
			}
		}
		return w.laneAddresses(p, b.begin[p], int64(j*w.colStride())*p.size())
	}
	index := [][]string{{b.columns[j]}}
	if p.columns == indexed {
		lanes := 1
		if !w.stridedAxis && p.lanes == scattered {
			lanes = w.width
		}
		for k := len(b.indices[j]); k < lanes; k++ {
			b.indices[j] = append(b.indices[j], w.indicesOf(w.calculate("add", b.columns[j], k), w.colDivide))
		}
		index = b.indices[j][:lanes]
	}
	var list []string
	for k := range max(len(p.first), len(index)) {
		list = append(list, w.offset(p, p.first[min(k, len(p.first)-1)], index[min(k, len(index)-1)], p.ofColumn))
	}
	return w.laneAddresses(p, list, 0)
}

// laneAddresses returns the addresses of a vector, `bytes` beyond those given: one if it is loaded at once or has one element, else one
// for each lane.
func (w *rowsWriter) laneAddresses(p *address, from []string, bytes int64) []location {
	var list []location
	add := func(r string, bytes int64) { list = append(list, location{r, bytes}) }
	switch p.lanes {
	case scattered:
		for _, r := range from {
			add(r, bytes)
		}
	case contiguous:
		for k := range w.width {
			add(from[0], bytes+int64(k)*p.size())
		}
	case strided:
		for k, r := 0, from[0]; k < w.width; k++ {
			add(r, bytes)
			beyond := w.result(expr.B64, "add.u64 %s, %s, %s", r, p.step)
			r = beyond
		}
	default:
		add(from[0], bytes)
	}
	return list
}

// load loads the lanes of a vector; those of one that does not exist are 0.
func (w *rowsWriter) load(p *address, addresses []location, lanes int, exists string) []string {
	if p.mark.computed() {
		return w.draw(p, addresses, lanes)
	}
	op, list := "ld.global", w.lanes(p, lanes)
	if w.loadsEarly {
		op += ".L1::no_allocate"
	}
	for k, r := range list {
		if exists != "" && (k == 0 || p.lanes != single) {
			w.clear(p.dtype, r)
		}
	}
	if p.lanes == aligned {
		w.vectorAccess(predicated(exists)+op, p.dtype, addresses[0], list)
		return list
	}
	for k, at := range addresses {
		w.Line("%s%s.%s %s, %s", predicated(exists), op, memoryType(p.dtype), list[k], at)
	}
	return list
}

// draw returns the lanes of a vector of random numbers or of an iota.
func (w *rowsWriter) draw(p *address, numbers []location, lanes int) (list []string) {
	for _, at := range numbers {
		number := w.result(expr.B64, "add.u64 %s, %s, %d", at.register, at.bytes)
		switch {
		case p.mark == ordinal && p.lanes == aligned:
			return w.iota([]string{number}, lanes)
		case p.mark == ordinal && p.lanes == single:
			return slices.Repeat([]string{number}, lanes)
		case p.mark == ordinal:
			list = append(list, number)
			continue
		case p.lanes == aligned:
			return w.numbers(p.source, p.dtype, number, lanes, true)
		case p.lanes == single:
			return slices.Repeat(w.numbers(p.source, p.dtype, number, 1, false), lanes)
		}
		list = append(list, w.numbers(p.source, p.dtype, number, 1, false)...)
	}
	return list
}

// store stores the lanes of a vector.
func (w *rowsWriter) store(p *address, addresses []location, values []string, exists string) {
	if p.split != nil {
		w.storeSplit(p.split, addresses[0], values, exists)
		return
	}
	if p.lanes == aligned {
		w.vectorAccess(predicated(exists)+"st.global", p.dtype, addresses[0], values)
		return
	}
	for k, at := range addresses {
		w.Line("%sst.global.%s %s, %s", predicated(exists), memoryType(p.dtype), at, values[k])
	}
}
