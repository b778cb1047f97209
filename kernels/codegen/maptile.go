package codegen

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// Maps of transposed operands: a block computes a square tile of two axes, the output's innermost axis and the axis along which such operands are
// contiguous. It loads them along the latter, stores them to shared memory, and computes and stores along the former, so that warps access whole
// sectors. If rows of the output are not aligned to sectors, each row of a tile begins with the sector that contains the tile's first column: tiles
// are skewed, and load up to a sector of columns before the first one.

const (
	tileLarge       = 64 // elements of a tile along either axis, for functions of few operations
	tileSmall       = 32
	tileBlock       = 256
	tileMaxShared   = 40 << 10 // bytes of shared memory, at most
	tileLargeMaxOps = 4        // operations: a thread of a large tile computes 16 elements, one after the other in the code
	tileMinExtent   = 16       // elements along either axis from which on tiles are worth it
)

// chooseTiles lays the mapping out in tiles if an operand is transposed.
func (n *nest) chooseTiles() {
	inner, across := len(n.rowShape)-1, -1
	if slices.ContainsFunc(n.bounds, func(b bound) bool { return b.extent > 0 }) || inner < 1 || n.rowShape[inner] < tileMinExtent {
		return
	}
	for a, extent := range n.rowShape[:inner] {
		for i := range n.types {
			if extent >= tileMinExtent && n.isTransposed(i, a) {
				across = a
			}
		}
	}
	if across < 0 {
		return
	}
	shared, tile := int64(0), tileSmall
	for i, d := range n.types {
		if n.isTransposed(i, across) {
			shared += d.Size()
		}
	}
	bytes := func(tile int64) int64 { return shared * tile * (tile + tileMargin + 4) }
	if n.cost <= tileLargeMaxOps && bytes(tileLarge) <= tileMaxShared {
		tile = tileLarge
	}
	if bytes(tileSmall) > tileMaxShared {
		return
	}
	l := &n.layout
	places := slices.Repeat([]place{{indexed, fixed, scattered, plain}}, len(n.rowStrides))
	for i := range n.rowStrides {
		if n.isTransposed(i, across) {
			places[i].lanes = transposed
		} else if n.isIota(i) && l.place(i).rows != fixed {
			places[i].mark = ordinal
		} else if l.place(i).rows == fixed {
			places[i] = l.place(i)
		}
	}
	l.setPlaces(places)
	l.inner, l.width, l.vectors, l.rowsPerBlock, l.rowAxes = false, 1, 1, tileBlock, len(n.rowShape)
	l.tile, l.tileAxis, l.skewed = tile, across, n.isSkewed()
}

// isTransposed reports whether elements of operand or output i are contiguous in memory along an axis, but not along the innermost one.
func (n *nest) isTransposed(i, axis int) bool {
	strides := n.rowStrides[i]
	return strides[axis] == 1 && strides[len(strides)-1] > 1 && !n.isIota(i)
}

// tileGrid returns the extents of the grid of tiles: of the other axes in order, then along tileAxis, then along the innermost axis.
func (n *nest) tileGrid() (grid []int64) {
	inner, tile := len(n.rowShape)-1, int64(n.layout.tile)
	for a, extent := range n.rowShape[:inner] {
		if a != n.layout.tileAxis {
			grid = append(grid, extent)
		}
	}
	columns := n.rowShape[inner]
	if n.layout.skewed {
		columns += tileMargin - 1 // the first tile may have so few
	}
	return append(grid, kernels.CeilDiv(n.rowShape[n.layout.tileAxis], tile), kernels.CeilDiv(columns, tile))
}

// tileArguments returns those of [mapWriter.tileParameters].
func (n *nest) tileArguments() (args []any) {
	for _, extent := range n.tileGrid()[1:] {
		args = append(args, int32(extent))
	}
	for _, a := range []int{n.layout.tileAxis, len(n.rowShape) - 1} {
		args = append(args, indexArgument(n.rowShape[a], n.layout.wide))
	}
	return args
}

// tileParameters adds the parameters of the tiles: the extents of their grid but the first, and those of the axes of a tile.
func (w *mapWriter) tileParameters() {
	for range w.rowAxes - 1 {
		w.grid = append(w.grid, w.parameter("u32", expr.B32))
	}
	w.extents = [2]string{w.parameter(w.index, w.kind), w.parameter(w.index, w.kind)}
}

// tileWriter writes the code of a tile. Along one axis a thread has the elements lane + 32 c, along the other warp + 8 k. Lanes run
// along tileAxis while they load transposed operands, and along the innermost axis afterwards.
type tileWriter struct {
	*mapWriter
	lane, warp string
	begin      [2]string // index of the tile's first element, across and innermost: addresses are of that one first
}

const tileWarps = tileBlock / 32

// tiled writes a kernel of tiles.
func (w *mapWriter) tiled() {
	t := tileWriter{mapWriter: w}
	t.locateTile()
	t.loadScalars()
	regs := make([][][]string, len(w.types))
	inside := t.inside(0, 1, t.margin())
	for i, p := range w.places {
		if p.lanes == transposed {
			regs[i] = t.loadTransposed(p, inside)
		}
	}
	for i := range w.types {
		if regs[i] != nil {
			t.storeShared(i, regs[i])
		}
	}
	w.Line("bar.sync 0")
	if inside = t.inside(1, 0, 0); t.skewed { // of their rows, at first
		for c, rows := 0, t.along(0, t.warp, tileWarps, t.tile/tileWarps, 0); c < len(inside); c++ {
			inside[c] = slices.Clone(rows)
		}
	}
	for c := range w.tile / 32 {
		for k := 0; k < w.tile/tileWarps; k += 4 {
			t.compute(c, k, inside)
		}
	}
}

// locateTile finds the tile of the block and the thread's place in it.
func (t *tileWriter) locateTile() {
	thread, rest := t.result(expr.B32, "mov.u32 %s, %%tid.x"), t.Register(expr.B32)
	t.lane, t.warp = t.result(expr.B32, "and.b32 %s, %s, 31", thread), t.result(expr.B32, "shr.u32 %s, %s, 5", thread)
	t.Line("mov.u32 %s, %%ctaid.x", rest)
	list := make([]string, t.rowAxes) // places in the grid
	for a := t.rowAxes - 1; a > 0; a-- {
		q := t.result(expr.B32, "div.u32 %s, %s, %s", rest, t.grid[a-1])
		back := t.result(expr.B32, "mul.lo.u32 %s, %s, %s", q, t.grid[a-1])
		list[a], rest = t.result(expr.B32, "sub.u32 %s, %s, %s", rest, back), q
	}
	list[0] = rest
	for _, p := range list[t.rowAxes-2:] {
		t.Line("mul.lo.u32 %s, %s, %d", p, p, t.tile)
	}
	list = slices.Insert(list, t.tileAxis, list[t.rowAxes-2])
	list = slices.Delete(list, t.rowAxes-1, t.rowAxes)
	for i, p := range list {
		list[i] = t.indexOf(p)
	}
	t.begin = [2]string{list[t.tileAxis], list[t.rowAxes-1]}
	at := ""
	for i, p := range t.places {
		if p.rows == fixed {
			continue
		}
		if i <= len(t.types) { // outputs have one offset
			at = t.offset(list, p.ofRow)
		}
		r := t.Register(expr.B64)
		t.address(r, p.base, at, p.size())
		p.first = []string{r}
	}
}

// inside returns predicates by c, then k: the thread's element exists. Lanes run along one of [tileAxis, innermost] and warps along the
// other, from `before` elements ahead of the tile on.
func (t *tileWriter) inside(lanes, warps, before int) [][]string {
	byLane, byWarp := t.along(lanes, t.lane, 32, t.tile/32, 0), t.along(warps, t.warp, tileWarps, (t.tile+before)/tileWarps, before)
	list := make([][]string, len(byLane))
	for c, p := range byLane {
		for _, q := range byWarp {
			list[c] = append(list[c], t.result(expr.Pred, "and.pred %s, %s, %s", p, q))
		}
	}
	return list
}

// along returns predicates for n indices along one of [tileAxis, innermost], `step` apart from place - before on: the index exists.
func (t *tileWriter) along(axis int, place string, step, n, before int) []string {
	list := make([]string, n)
	for i := range list {
		at := t.Register(t.kind)
		t.Line("add.%s %s, %s, %s", t.index, at, t.begin[axis], t.indexOf(place))
		t.Line("add.%s %s, %s, %d", t.index, at, at, i*step-before)
		list[i] = t.predicate("lt", at, t.extents[axis])
	}
	return list
}

// elementsOf returns the addresses of n of the thread's elements of an operand or output, of column c from number k on.
func (t *tileWriter) elementsOf(p *address, c, k, n int) []string {
	byLane, byWarp := p.ofRow[t.rowAxes-1], p.ofRow[t.tileAxis]
	if p.lanes == transposed {
		byLane, byWarp = byWarp, byLane
	}
	at, step := t.Register(t.kind), t.Register(t.kind)
	lane, warp := t.result(expr.B32, "add.u32 %s, %s, %d", t.lane, 32*c), t.result(expr.B32, "add.u32 %s, %s, %d", t.warp, tileWarps*k)
	t.Line("mul.lo.%s %s, %s, %s", t.index, at, t.indexOf(lane), byLane)
	t.Line("mad.lo.%s %s, %s, %s, %s", t.index, at, t.indexOf(warp), byWarp, at)
	t.Line("mul.lo.%s %s, %s, %d", t.index, step, byWarp, tileWarps)
	list := make([]string, n)
	for i := range list {
		if list[i] = t.Register(expr.B64); i == 0 {
			t.address(list[i], p.first[0], at, p.size())
		} else {
			t.address(list[i], list[i-1], step, p.size())
		}
	}
	return list
}

// loadTransposed loads the thread's elements of a transposed operand.
func (t *tileWriter) loadTransposed(p *address, inside [][]string) [][]string {
	if t.skewed { // loads begin with the margin
		back := t.calculate("mul.lo", p.ofRow[t.rowAxes-1], tileMargin)
		p.first[0] = t.before(p.first[0], back, p.size())
	}
	regs := make([][]string, t.tile/32)
	for c := range regs {
		for k, at := range t.elementsOf(p, c, 0, (t.tile+t.margin())/tileWarps) {
			r := t.Register(p.dtype.Kind())
			t.loadElement(p.dtype, r, "["+at+"]", inside[c][k])
			regs[c] = append(regs[c], r)
		}
	}
	return regs
}

// rowBytes returns the bytes from a row of an operand's tile in shared memory to the next: such that
// neither a row nor a column has two elements in one bank.
func (t *tileWriter) rowBytes(d expr.Dtype) int64 {
	return int64(t.tile+t.margin())*d.Size() + max(d.Size(), 4)
}

// tileName returns the name of operand i's tile in shared memory, which has a row for each index along tileAxis.
func tileName(i int) string { return fmt.Sprintf("tile%d", i) }

// sharedAt returns the address of the thread's first element in an operand's tile: of row warp or lane, and of the column of the other.
func (t *tileWriter) sharedAt(i int, row, column string) string {
	r, d := t.result(expr.B32, "mov.u32 %s, %s", tileName(i)), t.types[i]
	t.Line("mad.lo.u32 %s, %s, %d, %s", r, row, t.rowBytes(d), r)
	t.Line("mad.lo.u32 %s, %s, %d, %s", r, column, d.Size(), r)
	return r
}

// storeShared stores the thread's elements of a transposed operand to shared memory.
func (t *tileWriter) storeShared(i int, regs [][]string) {
	d := t.types[i]
	t.Declare(fmt.Sprintf(".shared .align 16 .b8 %s[%d]", tileName(i), int64(t.tile)*t.rowBytes(d)))
	at := t.sharedAt(i, t.lane, t.warp)
	for c, list := range regs {
		for k, r := range list {
			t.Line("st.shared.%s %s, %s", memoryType(d), location{at, int64(32*c)*t.rowBytes(d) + int64(tileWarps*k)*d.Size()}, r)
		}
	}
}

// compute computes four of the thread's elements, from number k of column c on, and stores the results.
func (t *tileWriter) compute(c, k int, inside [][]string) {
	const n = 4
	var shifts []string
	if t.skewed {
		shifts = t.skew(c, k, n, inside)
	}
	elements := make([][]string, len(t.types))
	for i, d := range t.types {
		switch p := t.places[i]; {
		case p.rows == fixed:
			elements[i] = slices.Repeat([]string{p.base}, n)
		case p.lanes == transposed:
			first := t.sharedAt(i, t.warp, t.lane)
			for j := range n {
				r, at := t.Register(d.Kind()), first
				if t.skewed {
					at = t.result(expr.B32, "mul.lo.u32 %s, %s, %d", shifts[j], d.Size())
					t.Line("sub.u32 %s, %s, %s", at, first, at)
				}
				t.Line("ld.shared.%s %s, %s", memoryType(d), r, location{at, int64(tileWarps*(k+j))*t.rowBytes(d) + int64(32*c+t.margin())*d.Size()})
				elements[i] = append(elements[i], r)
			}
		default:
			at := t.shifted(p, t.elementsOf(p, c, k, n), shifts)
			if p.mark == ordinal {
				elements[i] = at
				break
			}
			for j, at := range at {
				r := t.Register(d.Kind())
				t.loadElement(d, r, "["+at+"]", inside[c][k+j])
				elements[i] = append(elements[i], r)
			}
		}
	}
	results := t.results(elements, n)
	for out, p := range t.places[len(t.types):] {
		for j, at := range t.shifted(p, t.elementsOf(p, c, k, n), shifts) {
			t.Line("@%s st.global.%s [%s], %s", inside[c][k+j], memoryType(p.dtype), at, results[out][j])
		}
	}
}
