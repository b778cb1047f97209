package kernels

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/kernels/build/manifest"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// rowsImage is the generated code of a function with reductions for a layout.
type rowsImage struct {
	f      expr.Func
	perRow string // a letter for each output: r for one element a row
	layout rowsLayout
}

// rowsEntry is the entry point of the code.
const rowsEntry = "rows"

func (i rowsImage) Name() string { return "stheno/rows(" + i.f.String() + ")" }

// source returns the stem of the source that the functions in the code come from.
func (i rowsImage) source() string { return "math" }

// Code returns PTX, for every device from the same major version on, or for every one.
func (i rowsImage) Code(major, minor int) (Code, error) {
	code, err := newCodeWriter(i.layout.wide)
	if err != nil {
		return Code{}, err
	}
	perRow := make([]bool, len(i.perRow))
	for k := range perRow {
		perRow[k] = i.perRow[k] == 'r'
	}
	w := &rowsWriter{codeWriter: code, rowsLayout: i.layout, types: i.f.Operands(), outputs: i.f.Outputs(), perRow: perRow, target: "sm_70"}
	if w.staged, err = i.f.Stages(perRow); err != nil {
		return Code{}, err
	}
	_, w.used = i.f.Trim()
	if major >= 8 {
		w.target, w.nan = "sm_80", true
	}
	return Code{[]byte(w.kernel()), manifest.PTX, expr.MinDriver}, nil
}

// rowsWriter writes a kernel:
//
//	find the thread's row and first vector
//	load what a row has one of
//	for each stage: its function at each element, reduced; the threads of a row join
//	the outputs at each element
//	the outputs of which a row has one
//
// A thread that holds its vectors in registers loads each once and computes nothing
// twice; else each step is a loop that loads a few vectors at a turn. Either way a
// thread reduces its vectors in order, each lane on its own.
type rowsWriter struct {
	codeWriter
	rowsLayout
	types, outputs []expr.Dtype
	perRow         []bool
	staged         expr.Staged
	used           []int // operands that the function depends on
	target         string
	nan            bool // there are instructions for maxima with NaN

	places               []*place // of the operands, then of the outputs
	rows, columns        string   // their numbers
	chunk                string
	rowDivide, colDivide []divide

	thread  string     // of the row
	row     string     // the thread's first
	exists  string     // predicate: the thread has a row; "" where all have
	first   string     // column of the first vector
	end     string     // column behind the last
	uniform [][]string // by operand: what a row has one of, of each row of the thread
	scalars [][]string // results of the reductions so far, likewise
	held    *batch     // the vectors, if they stay in registers
	steps   int        // loops so far
	stage   int        // joins through shared memory so far
}

// place is where an operand or output lies.
type place struct {
	dtype           expr.Dtype
	rows, columns   reach
	spread          spread
	base            string
	ofRow, ofColumn []string // strides
	address         []string // of the row; of each row, for vectors of scattered rows
	step            string   // bytes from a lane of a spaced vector to the next
}

// kernel writes the whole.
func (w *rowsWriter) kernel() string {
	if n := w.shared(); n > 0 {
		w.Line(".shared .align 8 .b8 joined[%d]", n)
	}
	w.parameters()
	w.findThread()
	w.findRows()
	w.loadUniform()
	if w.vectors > 0 {
		w.held = w.newBatch(w.first, w.vectors)
		if !w.full {
			w.held.exists[w.vectors-1] = w.before(w.held, w.vectors-1)
		}
	}
	for _, s := range w.staged.Stages {
		w.reduce(s)
	}
	w.storeElements()
	w.storeRow()
	return w.Text(w.target, rowsEntry, w.params, w.threads*w.beside)
}

// parameters adds the parameters, in the order of [rowMapping.arguments].
func (w *rowsWriter) parameters() {
	for i := range len(w.types) + len(w.outputs) {
		p := &place{rows: reach(w.accesses[3*i]), columns: reach(w.accesses[3*i+1]), spread: spread(w.accesses[3*i+2]), base: w.pointer()}
		if i < len(w.types) {
			p.dtype = w.types[i]
		} else {
			p.dtype = w.outputs[i-len(w.types)]
		}
		w.places = append(w.places, p)
	}
	w.rows, w.columns = w.parameter(w.index, w.kind), w.parameter(w.index, w.kind)
	if w.split {
		w.chunk = w.parameter(w.index, w.kind)
	}
	w.rowDivide, w.colDivide = w.divides(w.rowAxes), w.divides(w.colAxes)
	for _, p := range w.places {
		p.ofRow, p.ofColumn = w.strides(p.rows, w.rowAxes), w.strides(p.columns, w.colAxes)
	}
}

// strides adds the parameters of strides along rows or columns.
func (w *rowsWriter) strides(r reach, axes int) (list []string) {
	if r == linear {
		axes = 1
	} else if r != indexed {
		axes = 0
	}
	for range axes {
		list = append(list, w.parameter(w.index, w.kind))
	}
	return list
}

// calculate adds an instruction on indices, and returns its result.
func (w *rowsWriter) calculate(op string, args ...string) string {
	r, dtype := w.Register(w.kind), w.index
	if op == "and" {
		dtype = "b" + dtype[1:]
	}
	w.Line("%s.%s %s, %s", op, dtype, r, strings.Join(args, ", "))
	return r
}

// special returns a special register, such as tid.x, as an index.
func (w *rowsWriter) special(name string) string {
	r := w.Register(expr.B32)
	w.Line("mov.u32 %s, %%%s", r, name)
	if w.kind == expr.B32 {
		return r
	}
	wide := w.Register(w.kind)
	w.Line("cvt.u64.u32 %s, %s", wide, r)
	return wide
}

// predicate adds a comparison of indices.
func (w *rowsWriter) predicate(comparison, x, y string) string {
	p := w.Register(expr.Pred)
	w.Line("setp.%s.%s %s, %s, %s", comparison, w.index, p, x, y)
	return p
}

// findThread finds the row and the columns of the thread. One without a row reads the
// last.
func (w *rowsWriter) findThread() {
	number := w.special("tid.x")
	beside, lanes := "0", 1 // of the block
	if w.across {
		w.thread, beside = w.calculate("shr", number, shift(w.beside)), w.calculate("and", number, fmt.Sprint(w.beside-1))
		lanes = w.width
	} else if w.thread = number; w.beside > 1 {
		w.thread, beside = w.calculate("and", number, fmt.Sprint(w.threads-1)), w.calculate("shr", number, shift(w.threads))
	}
	w.row = w.calculate("mad.lo", w.special("ctaid.x"), fmt.Sprint(w.beside), beside)
	if w.row = w.calculate("mul.lo", w.row, fmt.Sprint(lanes)); w.beside > 1 {
		w.exists = w.predicate("lt", w.row, w.rows)
		w.row = w.calculate("min", w.row, w.calculate("sub", w.rows, fmt.Sprint(lanes)))
	}
	w.first, w.end = w.thread, w.columns
	if !w.across {
		w.first = w.calculate("mul.lo", w.thread, fmt.Sprint(w.width))
	}
	if w.split {
		begin := w.calculate("mul.lo", w.special("ctaid.y"), w.chunk)
		w.first = w.calculate("add", w.first, begin)
		w.end = w.calculate("min", w.columns, w.calculate("add", begin, w.chunk))
	}
}

// shift returns the logarithm of a power of two.
func shift(n int) string { return fmt.Sprint(bits.TrailingZeros(uint(n))) }

// findRows finds where the thread's rows begin.
func (w *rowsWriter) findRows() {
	lanes := 1
	if w.across && !w.inner {
		lanes = w.width
	}
	var indices [][]string
	for k := range lanes * min(w.rowAxes, 1) {
		indices = append(indices, w.indicesOf(w.calculate("add", w.row, fmt.Sprint(k)), w.rowDivide))
	}
	for i, p := range w.places {
		switch p.rows {
		case fixed:
			p.address = []string{p.base}
		case linear:
			p.address = []string{w.offset(p, p.base, []string{w.row}, p.ofRow)}
		case indexed:
			for k := range indices {
				if k == 0 || p.spread == scattered {
					p.address = append(p.address, w.offset(p, p.base, indices[k], p.ofRow))
				}
			}
		}
		if w.split && i >= len(w.types) {
			at := w.Register(expr.B64)
			w.address(at, p.address[0], w.special("ctaid.y"), p.dtype.Size())
			p.address[0] = at
		}
		if p.spread == spaced {
			strides := p.ofColumn
			if w.across {
				strides = p.ofRow
			}
			p.step = w.Register(expr.B64)
			w.Line("mov.u64 %s, 0", p.step)
			w.address(p.step, p.step, strides[len(strides)-1], p.dtype.Size())
		}
	}
}

// offset returns the address of an index beyond another.
func (w *rowsWriter) offset(p *place, from string, index, strides []string) string {
	sum := w.calculate("mul.lo", index[0], strides[0])
	for a := 1; a < len(index); a++ {
		sum = w.calculate("mad.lo", index[a], strides[a], sum)
	}
	r := w.Register(expr.B64)
	w.address(r, from, sum, p.dtype.Size())
	return r
}

// loadUniform loads the operands that don't differ along a row.
func (w *rowsWriter) loadUniform() {
	w.uniform = make([][]string, len(w.types))
	for i, p := range w.places[:len(w.types)] {
		if p.columns == fixed && slices.Contains(w.used, i) {
			lanes := 1
			if w.across {
				lanes = w.width
			}
			w.uniform[i] = w.load(p, w.spreadOut(p, p.address, 0), lanes, "")
		}
	}
}

// batch is some vectors of a thread: all of them, or those of a turn of a loop.
type batch struct {
	columns  []string            // of each
	exists   []string            // predicate of each, "" where it does
	indices  [][][]string        // along each axis of the columns, by vector and lane, as far as needed
	begin    map[*place][]string // addresses of the first vector, where the others follow at fixed distances
	elements map[int][][]string  // by operand, vector and lane
}

// newBatch returns vectors from a column on.
func (w *rowsWriter) newBatch(column string, vectors int) *batch {
	b := &batch{exists: make([]string, vectors), indices: make([][][]string, vectors), begin: map[*place][]string{}, elements: map[int][][]string{}}
	for j := range vectors {
		b.columns = append(b.columns, w.calculate("add", column, fmt.Sprint(j*w.between())))
	}
	return b
}

// before returns the predicate that vector j of a batch lies before the end.
func (w *rowsWriter) before(b *batch, j int) string { return w.predicate("lt", b.columns[j], w.end) }

// between is the number of columns from a vector of a thread to the next.
func (w *rowsWriter) between() int {
	if w.across {
		return w.threads
	}
	return w.threads * w.width
}

// locate returns where vector j of a batch is: one address, or one for each lane.
func (w *rowsWriter) locate(p *place, b *batch, j int) []location {
	switch p.columns {
	case fixed:
		return w.spreadOut(p, p.address, 0)
	case next:
		if b.begin[p] == nil {
			for _, row := range p.address {
				r := w.Register(expr.B64)
				w.address(r, row, b.columns[0], p.dtype.Size())
				b.begin[p] = append(b.begin[p], r)
			}
		}
		return w.spreadOut(p, b.begin[p], int64(j*w.between())*p.dtype.Size())
	}
	index := [][]string{{b.columns[j]}}
	if p.columns == indexed {
		lanes := 1
		if !w.across && p.spread == scattered {
			lanes = w.width
		}
		for k := len(b.indices[j]); k < lanes; k++ {
			b.indices[j] = append(b.indices[j], w.indicesOf(w.calculate("add", b.columns[j], fmt.Sprint(k)), w.colDivide))
		}
		index = b.indices[j][:lanes]
	}
	var list []string
	for k := range max(len(p.address), len(index)) {
		list = append(list, w.offset(p, p.address[min(k, len(p.address)-1)], index[min(k, len(index)-1)], p.ofColumn))
	}
	return w.spreadOut(p, list, 0)
}

// spreadOut returns the addresses of a vector, that many bytes beyond those given: one
// if it is loaded at once or has one element, else those of its lanes.
func (w *rowsWriter) spreadOut(p *place, from []string, bytes int64) []location {
	var list []location
	add := func(r string, bytes int64) { list = append(list, location{r, bytes}) }
	switch p.spread {
	case scattered:
		for _, r := range from {
			add(r, bytes)
		}
	case adjoining:
		for k := range w.width {
			add(from[0], bytes+int64(k)*p.dtype.Size())
		}
	case spaced:
		for k, r := 0, from[0]; k < w.width; k++ {
			add(r, bytes)
			beyond := w.Register(expr.B64)
			w.Line("add.u64 %s, %s, %s", beyond, r, p.step)
			r = beyond
		}
	default:
		add(from[0], bytes)
	}
	return list
}

// guard returns what makes an instruction depend on a predicate, or on none.
func guard(predicate string) string {
	if predicate == "" {
		return ""
	}
	return "@" + predicate + " "
}

// load loads the lanes of a vector; those of one that does not exist are 0.
func (w *rowsWriter) load(p *place, addresses []location, lanes int, exists string) []string {
	var list []string
	for k := range lanes {
		if k > 0 && p.spread == single {
			list = append(list, list[0])
			continue
		}
		r := w.Register(p.dtype.Kind())
		if list = append(list, r); exists != "" {
			w.Line("mov.b%d %s, 0", 8*max(p.dtype.Size(), 4), r)
		}
	}
	switch {
	case p.spread == together:
		w.whole(guard(exists)+"ld", p.dtype, addresses[0], list)
	default:
		for k, at := range addresses {
			w.Line("%sld.global.%s %s, %s", guard(exists), memoryType(p.dtype), list[k], at)
		}
	}
	return list
}

// store stores the lanes of a vector.
func (w *rowsWriter) store(p *place, addresses []location, values []string, exists string) {
	if p.spread == together {
		w.whole(guard(exists)+"st", p.dtype, addresses[0], values)
		return
	}
	for k, at := range addresses {
		w.Line("%sst.global.%s %s, %s", guard(exists), memoryType(p.dtype), at, values[k])
	}
}
