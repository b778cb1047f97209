package codegen

import (
	"github.com/stheno-ml/stheno/kernels/expr"
)

// mapWriter writes a kernel:
//
//	for each vector of the thread: find its elements, load them
//	for each of its elements: f
//	for each vector: store the results
//
// A vector that reaches beyond the end is loaded and stored by elements. Where each
// thread has one element, a thread without one is done at once.
type mapWriter struct {
	codeWriter
	layout
	f              expr.Func
	types, outputs []expr.Dtype

	bases   []string  // addresses of the operands
	sources []*source // of random operands, whose bases and addresses are numbers of elements
	divide  []divide
	strides [][]string  // of operands addressed by index
	bounds  [][2]string // of padded operands: from where on, how many
	n       string
	to      []string  // addresses of the outputs
	toBy    []string  // strides of outputs addressed by index
	others  []string  // addresses of the first operand in the parts after the first
	grid    []string  // extents of the grid of tiles, but the first
	extents [2]string // of the axes of a tile
}

func (w *mapWriter) parameters() {
	for range w.types {
		w.bases = append(w.bases, w.pointer())
	}
	for range w.joined - 1 {
		w.others = append(w.others, w.pointer())
	}
	for range w.outputs {
		w.to = append(w.to, w.pointer())
	}
	w.n = w.parameter("u64", expr.B64)
	if w.joined > 0 {
		w.choosePart(w.parameter("u64", expr.B64))
	}
	if !w.wide {
		n := w.Register(w.kind)
		w.Line("cvt.u32.u64 %s, %s", n, w.n)
		w.n = n
	}
	if w.tile > 0 {
		w.tileParameters()
	} else {
		w.divide = w.divides(w.rowAxes)
	}
	w.strides, w.bounds = make([][]string, len(w.types)), make([][2]string, len(w.types))
	for i := range w.types {
		for a := 0; w.place(i).rows == indexed && a < w.rowAxes; a++ {
			w.strides[i] = append(w.strides[i], w.parameter(w.index, w.kind))
		}
		if w.place(i).mark.axis() >= 0 {
			w.bounds[i][0], w.bounds[i][1] = w.boundParameters()
		}
	}
	for a := 0; w.place(len(w.types)).rows == indexed && a < w.rowAxes; a++ {
		w.toBy = append(w.toBy, w.parameter(w.index, w.kind))
	}
	w.sources = make([]*source, len(w.types))
	for i := range w.types {
		if mark := w.place(i).mark; mark.random() {
			w.sources[i] = w.source(w.bases[i], mark == normal)
			w.bases[i] = w.sources[i].first
		}
	}
	w.numberParameters(w.f)
}

// choosePart takes the first operand and the output of the block's part, which begins `next` bytes
// after the part before.
func (w *mapWriter) choosePart(next string) {
	part, far := w.Register(expr.B32), w.Register(expr.B64)
	w.Line("mov.u32 %s, %%ctaid.y", part)
	for k, base := range w.others {
		is := w.Register(expr.Pred)
		w.Line("setp.eq.u32 %s, %s, %d", is, part, k+1)
		w.Line("@%s mov.u64 %s, %s", is, w.bases[0], base)
	}
	w.Line("cvt.u64.u32 %s, %s", far, part)
	w.Line("mad.lo.u64 %s, %s, %s, %s", w.to[0], far, next, w.to[0])
}

// size returns the bytes from one element of operand i to the next in memory, 1 for
// numbers.
func (w *mapWriter) size(i int) int64 {
	if w.sources[i] != nil {
		return 1
	}
	return w.types[i].Size()
}

// vector holds the registers of a thread for one vector.
type vector struct {
	number    int
	first     string     // index of its first element
	full      string     // predicate: all its elements exist
	addresses [][]string // by operand: one, or one for each element
	inside    [][]string // predicates of padded operands: an element is in the buffer
	elements  [][]string // by operand, then element
	to        []string   // addresses of the results, by output
	results   [][]string // by output, then element
}

// kernel writes the whole.
func (w *mapWriter) kernel() string {
	w.parameters()
	if w.tile > 0 {
		w.tiled()
		return w.Text(w.target, mapEntry, w.params, expr.Blocks{Threads: w.beside})
	}
	vectors := make([]*vector, w.vectors)
	for j := range vectors {
		vectors[j] = w.locate(j)
	}
	w.loadScalars()
	if w.oneElement() {
		w.Line("@!%s bra none", vectors[0].full)
	}
	for _, v := range vectors {
		w.load(v)
	}
	for _, v := range vectors {
		v.results = make([][]string, len(w.outputs))
		for k := range w.width {
			operands := make([]string, len(w.types))
			for i := range operands {
				operands[i] = v.elements[i][k]
			}
			for out, r := range w.Apply(w.f, operands) {
				v.results[out] = append(v.results[out], r)
			}
		}
	}
	w.admit()
	for _, v := range vectors {
		w.store(v)
	}
	if w.oneElement() {
		w.Label("none")
	}
	return w.Text(w.target, mapEntry, w.params, expr.Blocks{Threads: w.beside})
}

// locate finds the elements of a thread's vector j: blocks take neighbouring
// vectors together.
func (w *mapWriter) locate(j int) *vector {
	v := &vector{number: j, first: w.Register(w.kind), full: w.Register(expr.Pred)}
	block, thread := w.Register(expr.B32), w.Register(expr.B32)
	w.Line("mov.u32 %s, %%ctaid.x", block)
	w.Line("mov.u32 %s, %%tid.x", thread)
	w.Line("add.u32 %s, %s, %d", thread, thread, j*w.beside)
	if w.wide {
		w.Line("cvt.u64.u32 %s, %s", v.first, thread)
		w.Line("mad.wide.u32 %s, %s, %d, %s", v.first, block, w.beside*w.vectors, v.first)
	} else {
		w.Line("mad.lo.u32 %s, %s, %d, %s", v.first, block, w.beside*w.vectors, thread)
	}
	w.Line("mul.lo.%s %s, %s, %d", w.index, v.first, v.first, w.width)
	end := w.Register(w.kind)
	w.Line("add.%s %s, %s, %d", w.index, end, v.first, w.width)
	w.Line("setp.le.%s %s, %s, %s", w.index, v.full, end, w.n)
	indices, at := w.indices(v), v.first
	if w.toBy != nil {
		at = w.offset(indices[0], w.toBy)
	}
	for out, d := range w.outputs {
		v.to = append(v.to, w.Register(expr.B64))
		w.address(v.to[out], w.to[out], at, d.Size())
	}
	for i := range w.types {
		var addresses, inside []string
		if w.place(i).mark.axis() >= 0 {
			addresses, inside = w.padded(i, indices)
		} else {
			addresses = w.addresses(v, i, indices)
		}
		v.addresses, v.inside = append(v.addresses, addresses), append(v.inside, inside)
	}
	if w.merged {
		w.merge(v)
	}
	return v
}

// indices returns the indices along each axis of a vector's first element, or of
// all elements if they may lie in several rows.
func (w *mapWriter) indices(v *vector) [][]string {
	if w.rowAxes == 0 {
		return nil
	}
	list := make([][]string, w.width)
	if w.inner {
		list = list[:1]
	}
	for k := range list {
		rest := w.Register(w.kind)
		w.Line("add.%s %s, %s, %d", w.index, rest, v.first, k)
		list[k] = w.indicesOf(rest, w.divide)
	}
	return list
}

// addresses returns the address of a vector's first element of operand i, or those
// of all elements if they are read one by one.
func (w *mapWriter) addresses(v *vector, i int, indices [][]string) []string {
	size, p := w.size(i), w.place(i)
	if p.rows == fixed {
		return nil
	}
	if p.rows == next {
		r := w.Register(expr.B64)
		w.address(r, w.bases[i], v.first, size)
		return []string{r}
	}
	var list []string
	for _, index := range indices {
		r := w.Register(expr.B64)
		w.address(r, w.bases[i], w.offset(index, w.strides[i]), size)
		list = append(list, r)
	}
	if p.spread == scattered && w.inner { // the others follow along the innermost axis
		for k := 1; k < w.width; k++ {
			r := w.Register(expr.B64)
			w.address(r, list[k-1], w.strides[i][w.rowAxes-1], size)
			list = append(list, r)
		}
	}
	return list
}

// offset returns the sum of the products of indices and strides.
func (w *mapWriter) offset(index, strides []string) string {
	sum := w.Register(w.kind)
	for axis, at := range index {
		if axis == 0 {
			w.Line("mul.lo.%s %s, %s, %s", w.index, sum, at, strides[axis])
		} else {
			w.Line("mad.lo.%s %s, %s, %s, %s", w.index, sum, at, strides[axis], sum)
		}
	}
	return sum
}
