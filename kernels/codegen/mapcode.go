package codegen

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels/expr"
)

// mapWriter writes a kernel:
//
//	for each vector of the thread: find its elements, load them
//	for each of its elements: f
//	for each vector: store the results
//
// A vector that reaches beyond the end is loaded and stored by elements. Where each thread has one element, a thread without one is done at once.
type mapWriter struct {
	kernelWriter
	n       string
	grid    []string  // extents of the grid of tiles, but the first
	extents [2]string // of the axes of a tile
}

// parameters adds the parameters, in the order of [nest.arguments].
func (w *mapWriter) parameters() {
	parts := w.pointers()
	w.n = w.parameter("u64", expr.B64)
	if w.joined > 0 {
		w.choosePart(parts, w.parameter("u64", expr.B64))
	}
	if !w.wide {
		w.n = w.result(w.kind, "cvt.u32.u64 %s, %s", w.n)
	}
	if w.tile > 0 {
		w.tileParameters()
	}
	w.addressParameters()
}

// choosePart selects the first operand and the output of the block's part. The output begins `next` bytes after the previous part's.
func (w *mapWriter) choosePart(parts []string, next string) {
	part, from, to := w.result(expr.B32, "mov.u32 %s, %%ctaid.y"), w.places[0], w.places[1]
	for k, base := range parts {
		is := w.result(expr.Pred, "setp.eq.u32 %s, %s, %d", part, k+1)
		w.Line("@%s mov.u64 %s, %s", is, from.base, base)
	}
	far := w.result(expr.B64, "cvt.u64.u32 %s, %s", part)
	w.Line("mad.lo.u64 %s, %s, %s, %s", to.base, far, next, to.base)
}

// vector holds the registers of a thread for one vector.
type vector struct {
	number    int
	first     string     // index of its first element
	full      string     // predicate: all its elements exist
	addresses [][]string // by operand, then by output: one, or one for each element
	inside    [][]string // predicates of operands with bounds: an element is in the buffer
	elements  [][]string // by operand, then element
	results   [][]string // by output, then element
}

// kernel writes the whole.
func (w *mapWriter) kernel() string {
	w.parameters()
	if w.tile > 0 {
		w.tiled()
		return w.Text(w.target, mapEntry, w.params, expr.Blocks{Threads: w.rowsPerBlock})
	}
	if w.channelsLast() {
		w.squares()
		w.storeRanges()
		return w.Text(w.target, mapEntry, w.params, expr.Blocks{Threads: w.rowsPerBlock})
	}
	vectors := make([]*vector, w.vectors)
	for j := range vectors {
		vectors[j] = w.locate(j)
	}
	few := w.isFew()
	if few != "" {
		w.Line("@%s griddepcontrol.launch_dependents", few)
	}
	w.loadScalars()
	if w.oneElement() {
		w.Line("@!%s bra none", vectors[0].full)
	}
	for _, v := range vectors {
		w.load(v)
	}
	for _, v := range vectors {
		v.results = w.results(v.elements, w.width)
	}
	if few == "" {
		w.launchDependents()
	}
	for _, v := range vectors {
		w.store(v)
	}
	if few != "" { // behind the stores, which would wait for it
		w.Line("@!%s griddepcontrol.launch_dependents", few)
	}
	if w.oneElement() {
		w.Label("none")
	}
	w.storeRanges()
	return w.Text(w.target, mapEntry, w.params, expr.Blocks{Threads: w.rowsPerBlock})
}

// earlyMaxBlocks is the number of blocks up to which a map launches its dependents before it waits for its prerequisites: such a grid leaves most SMs to
// other kernels. Blocks that wait for larger grids delay other branches of a graph.
const earlyMaxBlocks = 16

// isFew returns a predicate, that the grid is that small, in kernels that launch their dependents by it, else "". Only maps with a thread for each
// element have small grids.
func (w *mapWriter) isFew() string {
	if w.target != "sm_90" || !w.oneElement() {
		return ""
	}
	return w.predicate("le", w.special("nctaid.x"), fmt.Sprint(earlyMaxBlocks))
}

// results returns the function's results at n elements, by output, given its operands' elements.
func (w *mapWriter) results(elements [][]string, n int) [][]string {
	list := make([][]string, len(w.outputs))
	for k := range n {
		operands := make([]string, len(elements))
		for i := range operands {
			operands[i] = elements[i][k]
		}
		for out, r := range w.Apply(w.f, operands) {
			list[out] = append(list[out], r)
		}
	}
	return list
}

// locate finds the elements of a thread's vector j: blocks take neighbouring vectors together.
func (w *mapWriter) locate(j int) *vector {
	v := &vector{number: j, first: w.Register(w.kind)}
	block, thread := w.result(expr.B32, "mov.u32 %s, %%ctaid.x"), w.result(expr.B32, "mov.u32 %s, %%tid.x")
	w.Line("add.u32 %s, %s, %d", thread, thread, j*w.rowsPerBlock)
	if w.wide {
		w.Line("cvt.u64.u32 %s, %s", v.first, thread)
		w.Line("mad.wide.u32 %s, %s, %d, %s", v.first, block, w.rowsPerBlock*w.vectors, v.first)
	} else {
		w.Line("mad.lo.u32 %s, %s, %d, %s", v.first, block, w.rowsPerBlock*w.vectors, thread)
	}
	w.Line("mul.lo.%s %s, %s, %d", w.index, v.first, v.first, w.width)
	v.full = w.predicate("le", w.calculate("add", v.first, w.width), w.n)
	indices, at := w.indices(v), v.first
	operands, outputs := w.places[:len(w.types)], w.places[len(w.types):]
	if outputs[0].rows == indexed {
		at = w.offset(indices[0], outputs[0].ofRow)
	}
	var to [][]string
	for _, p := range outputs {
		r := w.Register(expr.B64)
		w.address(r, p.base, at, p.size())
		to = append(to, []string{r})
	}
	for _, p := range operands {
		addresses, inside := w.addresses(v, p, indices)
		v.addresses, v.inside = append(v.addresses, addresses), append(v.inside, inside)
	}
	v.addresses = append(v.addresses, to...)
	for i := 1; w.merged && i < len(operands); i++ { // each element is in one part: that address becomes the one of operand 0
		for k, at := range v.addresses[i] {
			w.Line("selp.b64 %s, %s, %s, %s", v.addresses[0][k], at, v.addresses[0][k], v.inside[i][k])
		}
	}
	return v
}

// indices returns the indices along each axis of a vector's first element, or of all elements if they may be in several rows.
func (w *mapWriter) indices(v *vector) [][]string {
	if w.rowAxes == 0 {
		return nil
	}
	list := make([][]string, w.width)
	if w.inner {
		list = list[:1]
	}
	for k := range list {
		list[k] = w.indicesOf(w.calculate("add", v.first, k), w.rowDivide)
	}
	return list
}

// addresses returns the address of a vector's first element of an operand, or of each element if they are loaded one by one. For an
// operand with bounds it also returns predicates: the element is inside the buffer.
func (w *mapWriter) addresses(v *vector, p *address, indices [][]string) (list, inside []string) {
	switch {
	case p.rows == fixed:
		return nil, nil
	case p.mark.axis() >= 0:
		return w.padded(p, indices)
	case p.rows == unitStride:
		r := w.Register(expr.B64)
		w.address(r, p.base, v.first, p.size())
		return []string{r}, nil
	}
	for _, index := range indices {
		r := w.Register(expr.B64)
		w.address(r, p.base, w.offset(index, p.ofRow), p.size())
		list = append(list, r)
	}
	for k := 1; p.lanes == scattered && w.inner && k < w.width; k++ { // the others follow along the innermost axis
		r := w.Register(expr.B64)
		w.address(r, list[k-1], p.ofRow[w.rowAxes-1], p.size())
		list = append(list, r)
	}
	return list, nil
}

// padded returns the addresses and predicates of an operand with bounds.
func (w *mapWriter) padded(p *address, indices [][]string) (addresses, inside []string) {
	for k := range w.width {
		offset, within, address := w.Register(w.kind), w.Register(expr.Pred), w.Register(expr.B64)
		for axis, at := range indices[min(k, len(indices)-1)] {
			if w.inner && axis == w.rowAxes-1 && k > 0 { // elements after the first follow along this axis
				at = w.calculate("add", at, k)
			}
			if axis == p.mark.axis() {
				at = w.calculate("sub", at, p.bounds[0])
				w.Line("setp.lt.%s %s, %s, %s", w.index, within, at, p.bounds[1]) // unsigned: not below either
			}
			w.addProduct(offset, axis, at, p.ofRow[axis])
		}
		w.address(address, p.base, offset, p.size())
		addresses, inside = append(addresses, address), append(inside, within)
	}
	return addresses, inside
}

// offset returns the sum of the products of indices and strides.
func (w *mapWriter) offset(index, strides []string) string {
	sum := w.Register(w.kind)
	for axis, at := range index {
		w.addProduct(sum, axis, at, strides[axis])
	}
	return sum
}

// addProduct adds a product to a sum, of which that of axis 0 is the first.
func (w *mapWriter) addProduct(sum string, axis int, x, y string) {
	if axis == 0 {
		w.Line("mul.lo.%s %s, %s, %s", w.index, sum, x, y)
	} else {
		w.Line("mad.lo.%s %s, %s, %s, %s", w.index, sum, x, y, sum)
	}
}

// loadScalars loads operands of one element.
func (w *mapWriter) loadScalars() {
	w.gridDependencyWait()
	for _, p := range w.places[:len(w.types)] {
		if p.rows != fixed || p.mark == ordinal {
			continue
		}
		if p.source != nil {
			p.base = w.numbers(p.source, p.dtype, p.base, 1, false)[0]
		} else {
			p.base = w.emit(p.dtype.Kind(), "ld.global."+memoryType(p.dtype), "["+p.base+"]")
		}
	}
}

// load loads the elements of a vector.
func (w *mapWriter) load(v *vector) {
	var loaded []int
	for i, p := range w.places[:len(w.types)] {
		var regs []string
		switch {
		case p.rows == fixed:
			regs = slices.Repeat([]string{p.base}, w.width)
		case p.mark.computed():
			regs = w.draw(p, v.addresses[i])
		case w.merged && i > 0:
			regs = v.elements[0]
		default:
			regs, loaded = w.lanes(p, w.width), append(loaded, i)
		}
		v.elements = append(v.elements, regs)
	}
	w.branch(v, "load", func() {
		for _, i := range loaded {
			switch p, at, regs := w.places[i], v.addresses[i], v.elements[i]; p.lanes {
			case aligned:
				w.vectorAccess("ld.global", p.dtype, location{at[0], 0}, regs)
			case single:
				w.loadElement(p.dtype, regs[0], "["+at[0]+"]", "")
			default:
				for k := range regs {
					w.loadOne(v, i, k, "")
				}
			}
		}
	}, func(k int, exists string) {
		for _, i := range loaded {
			if k == 0 || w.places[i].lanes != single {
				w.loadOne(v, i, k, exists)
			}
		}
	})
}

// loadOne loads element k of operand i, if it exists and is inside of the bounds; exists may be "".
func (w *mapWriter) loadOne(v *vector, i, k int, exists string) {
	p := w.places[i]
	switch inside := v.inside[i]; {
	case inside == nil || w.merged:
	case exists == "":
		exists = inside[k]
	default:
		exists = w.result(expr.Pred, "and.pred %s, %s, %s", inside[k], exists)
	}
	w.loadElement(p.dtype, v.elements[i][k], elementAt(v.addresses[i], k, p.dtype.Size()).String(), exists)
}

// draw returns the elements of a vector of random numbers or of an iota.
func (w *mapWriter) draw(p *address, at []string) (list []string) {
	switch {
	case p.mark == ordinal && p.lanes == single:
		return slices.Repeat(at, w.width)
	case p.mark == ordinal:
		return w.iota(at, w.width)
	case p.lanes == aligned || p.rows == unitStride:
		return w.numbers(p.source, p.dtype, at[0], w.width, p.lanes == aligned && int64(w.width)%perBlock(p.dtype) == 0)
	case p.lanes == single:
		return slices.Repeat(w.numbers(p.source, p.dtype, at[0], 1, false), w.width)
	}
	for k := range w.width {
		list = append(list, w.numbers(p.source, p.dtype, at[k], 1, false)...)
	}
	return list
}

// store stores the results of a vector.
func (w *mapWriter) store(v *vector) {
	to := v.addresses[len(w.types):]
	w.branch(v, "store", func() {
		for out, d := range w.outputs {
			if p := w.places[len(w.types)+out]; p.split != nil {
				w.storeSplit(p.split, location{to[out][0], 0}, v.results[out], "")
				continue
			}
			w.vectorAccess("st.global", d, location{to[out][0], 0}, v.results[out])
		}
	}, func(k int, exists string) {
		for out, d := range w.outputs {
			if w.places[len(w.types)+out].split != nil { // there are whole vectors alone
				continue
			}
			w.Line("@%s st.global.%s %s, %s", exists, memoryType(d), elementAt(to[out], k, d.Size()), v.results[out][k])
		}
	})
}

// branch does all of a vector at once if its elements all exist, else element by element, each if it exists.
func (w *mapWriter) branch(v *vector, what string, full func(), element func(k int, exists string)) {
	if w.oneElement() {
		full()
		return
	}
	name := func(s string) string { return fmt.Sprintf("%s_%s%d", what, s, v.number) }
	w.Line("@!%s bra %s", v.full, name("elements"))
	full()
	w.Line("bra %s", name("done"))
	w.Label(name("elements"))
	for k := range w.width {
		element(k, w.predicate("lt", w.calculate("add", v.first, k), w.n))
	}
	w.Label(name("done"))
}
