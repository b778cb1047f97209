package codegen

import (
	"slices"
	"sync"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// nest is a function on an iteration space of rows and columns. A row of [Rows] has the elements that are reduced together; each element
// of a [Map] is a row of one column.
type nest struct {
	types   []expr.Dtype // of the operands
	outputs []expr.Dtype
	numbers []expr.Number // constants of the function, which are arguments
	cost    int64         // operations on an element

	grid               rowGrid
	layout             layout
	rows, columns      int64
	rowShape, colShape []int64 // merged
	// Of the operands, then of the outputs:
	rowStrides, colStrides [][]int64
	views                  []View
	bounds                 []bound

	perRow  []bool // by output; nil for a Map
	staged  expr.Staged
	scalars []expr.Dtype // results of the reductions, in order
	used    []int        // operands that the function depends on

	part int64 // elements from the outputs of a split, or of a part of a concatenation, to those of the next

	// Of the Go body:
	steps                   []rowStep    // the stages, then the outputs of each element and those of each row
	kept                    []expr.Dtype // values of elements that are kept from step to step
	blockRows, blockColumns int64        // at most
	grain                   int64        // tiles of a goroutine, at least
	tiles                   sync.Pool    // of *rowTile
}

// layout is everything, except the function, that determines a kernel's code.
type layout struct {
	entry         string // mapEntry or rowsEntry
	perRow        string // a letter for each output of Rows: r for one element a row, e for all elements
	places        string // four bytes for each operand, then each output: see place
	splitOutputs  string // a letter for each output: s if it is stored as splits, c with channels last; "" for none
	wide          bool   // indices take 64 bits
	inner         bool   // vectors are within an innermost axis
	width         int    // elements of a vector
	threadsPerRow int    // as in rowGrid, like the next two
	rowsPerBlock  int
	stridedAxis   bool
	vectors       int // of a thread of Map; resident vectors of a thread of Rows, 0 if each step reloads them
	rowAxes       int // of the merged rows, for addresses by index
	colAxes       int // of the merged columns

	// Map:
	tile     int  // elements of a tile along either of its axes, 0 without tiles
	tileAxis int  // the axis of a tile other than the innermost one
	skewed   bool // rows of a tile begin with sectors of the output
	joined   int  // a power of two, parts of a concatenation at most, one for each block along y; 0 for none
	merged   bool // the operands are parts of a concatenation, and each element is in one of them

	// Rows:
	split          bool // each block has a split of a row
	cluster        int  // as in rowGrid, like the next
	sharesPerBlock int
	streams        bool   // the outputs with an element for each index are stored while the only stage reads the operands
	full           bool   // all vectors of a thread exist
	small          bool   // their number is a power of two, and those of the second half may not exist
	partial        bool   // there are more, which each step reloads
	shared         string // by operand: how many of them, the last, are in shared memory instead of registers; see splitResident
	bytesPerIter   int    // bytes that a thread loads in a loop iteration
	prefetch       bool   // operands are prefetched to L2 before the wait for prerequisite kernels: see prefetchesRows
	rowsPerThread  int    // consecutive rows that the threads of a row compute together, 0 for one: see chooseRowsPerThread
	early          string // by operand: 'e' if it is loaded before the wait for prerequisite kernels; "" for none
	matmul         string // by operand: 'm' for a matrix whose products with a vector are summed in float32; "" for none
}

// oneElement reports whether every thread of a Map has one element.
func (l *layout) oneElement() bool { return l.width == 1 && l.vectors == 1 && l.tile == 0 }

// place is how the elements of an operand or output are addressed.
type place struct {
	rows, columns addressing
	lanes         laneLayout
	mark          mark
}

// place returns the place of operand i; outputs come after the operands.
func (l *layout) place(i int) place {
	p := l.places[4*i:]
	return place{addressing(p[0]), addressing(p[1]), laneLayout(p[2]), mark(p[3])}
}

// setPlaces sets the places of operands and outputs.
func (l *layout) setPlaces(list []place) {
	letters := make([]byte, 0, 4*len(list))
	for _, p := range list {
		letters = append(letters, byte(p.rows), byte(p.columns), byte(p.lanes), byte(p.mark))
	}
	l.places = string(letters)
}

// addressing is how an address follows from the number of a row, or of a column.
type addressing byte

const (
	fixed      addressing = 'f' // it does not
	unitStride addressing = 'n' // an element on for each
	linear     addressing = 'l' // in one stride, which is an argument
	indexed    addressing = 'i' // from the index along each axis
)

// laneLayout is how the elements of a vector are stored.
type laneLayout byte

const (
	single     laneLayout = '1' // one element for all
	aligned    laneLayout = 't' // contiguous, and aligned for vectors
	contiguous laneLayout = 'a' // contiguous
	strided    laneLayout = 's' // in one stride
	scattered  laneLayout = 'x' // each where its index is
	transposed laneLayout = 'z' // read by tiles: see maptile.go
)

// mark tells operands with a stream or with bounds from others.
type mark byte

const (
	plain   mark = '-'
	uniform mark = 'r' // random numbers
	normal  mark = 'n'
	ordinal mark = 'i'    // an iota
	bounded mark = 1 << 7 // and the axis of the bounds
)

func (m mark) random() bool { return m == uniform || m == normal }

// computed reports whether addresses are numbers from which elements are computed.
func (m mark) computed() bool { return m.random() || m == ordinal }

// axis returns the axis of an operand's bounds, -1 for none.
func (m mark) axis() int { return max(int(m)-int(bounded), -1) }

// bound is the part of an axis of the merged shape in which an operand has elements; extent 0 is for all of it.
type bound struct {
	axis         int
	from, extent int64
}

// newNest merges the axes of a call whose outputs are stored as views describe.
func newNest(c call, g rowGrid, outputs []View) *nest {
	views := slices.Concat(c.operands, outputs)
	n := &nest{types: c.f.Operands(), outputs: c.storedOutputs(), perRow: c.perRow, grid: g, cost: int64(max(c.f.Operations(), 1)), part: 1, views: views}
	_, n.numbers = c.f.Numbers()
	n.layout.splitOutputs = c.splitLetters()
	n.bounds = make([]bound, len(views))
	n.rows, n.rowShape, n.rowStrides = mergeAxes(c.shape, c.kept(), views, n.bounds)
	n.columns, n.colShape, n.colStrides = mergeAxes(c.shape, c.axes, views, nil)
	n.setBlock()
	n.tiles.New = n.newTile
	return n
}

// mergeAxes returns the extent of some axes together, and their shape and strides with axes of one element left out and neighbours joined where all
// strides allow it. It notes the bounds of views of the merged axes, unless bounds is nil.
func mergeAxes(shape, axes []int, views []View, bounds []bound) (n int64, merged []int64, strides [][]int64) {
	n, strides = 1, make([][]int64, len(views))
	for _, a := range axes {
		extent := int64(shape[a])
		if n *= extent; extent == 1 {
			continue
		}
		last := len(merged) - 1
		joined := last >= 0
		for i, v := range views {
			joined = joined && strides[i][last] == int64(v.Strides[a])*extent && !(v.bounded(shape) && v.Bounds.Axis == a)
		}
		if joined {
			merged[last] *= extent
		} else {
			merged = append(merged, extent)
			last++
		}
		for i, v := range views {
			strides[i] = append(strides[i][:last], int64(v.Strides[a]))
		}
		for i := range bounds {
			switch b, v := &bounds[i], views[i]; {
			case v.bounded(shape) && v.Bounds.Axis == a:
				*b = bound{last, int64(v.Bounds.From), int64(v.Bounds.To - v.Bounds.From)}
			case joined && b.extent > 0 && b.axis == last:
				b.from, b.extent = b.from*extent, b.extent*extent
			}
		}
	}
	return n, merged, strides
}

// address sets the places of operands and outputs, for vectors of the grid's width. Without vectors, elements of a vector have no fixed distance.
func (n *nest) address(vectors bool) {
	l := &n.layout
	l.rowAxes, l.colAxes, l.width = 0, 0, int(n.grid.width)
	inner := n.innerShape()
	l.inner = vectors && len(inner) > 0 && inner[len(inner)-1]%n.grid.width == 0
	list := make([]place, len(n.views))
	for i := range list {
		p := place{addressingOf(n.rowShape, n.rowStrides[i]), addressingOf(n.colShape, n.colStrides[i]), single, plain}
		switch v := n.views[i]; {
		case v.Stream.Normal:
			p.mark = normal
		case v.Stream.Number != 0:
			p.mark = uniform
		case v.Iota:
			p.mark = ordinal
		}
		if p.columns == linear && n.colStrides[i][len(n.colShape)-1] == 1 {
			p.columns = unitStride
		}
		if n.isMap() && p.rows == linear {
			if p.rows = indexed; n.rowStrides[i][len(n.rowShape)-1] == 1 {
				p.rows = unitStride
			}
		}
		if b := n.bounds[i]; b.extent > 0 {
			p.rows, p.lanes, p.mark = indexed, scattered, bounded+mark(b.axis)
		} else if p.lanes = n.laneLayout(i, p); n.isMap() && i >= len(n.types) && p.rows == fixed { // an output of one element
			p.rows, p.lanes = unitStride, aligned
		}
		if p.rows == indexed {
			l.rowAxes = len(n.rowShape)
		}
		if p.columns == indexed {
			l.colAxes = len(n.colShape)
		}
		list[i] = p
	}
	l.setPlaces(list)
	l.inner = l.inner && !(n.isMap() && l.rowAxes == 0)
}

// isIota reports whether operand or output i is an iota.
func (n *nest) isIota(i int) bool { return n.views[i].Iota }

// isMap reports whether the function is one of [Map].
func (n *nest) isMap() bool { return n.perRow == nil }

// innerShape returns the axes that vectors run along.
func (n *nest) innerShape() []int64 {
	if n.grid.stridedAxis {
		return n.rowShape
	}
	return n.colShape
}

// addressingOf returns how addresses follow from numbers in row-major order of a shape.
func addressingOf(shape, strides []int64) addressing {
	if len(shape) == 0 || slices.Max(strides) == 0 {
		return fixed
	}
	n := strides[len(strides)-1]
	for a := len(shape) - 1; a >= 0; a-- {
		if strides[a] != n {
			return indexed
		}
		n *= shape[a]
	}
	return linear
}

// laneLayout returns how the elements of a vector of operand or output i are stored.
func (n *nest) laneLayout(i int, p place) laneLayout {
	of, strides, others := p.columns, n.colStrides[i], n.rowStrides[i]
	if n.grid.stridedAxis {
		of, strides, others = p.rows, n.rowStrides[i], n.colStrides[i]
	}
	switch {
	case of == fixed || n.grid.width == 1 && !n.isMap():
		return single
	case of == indexed && !n.layout.inner:
		return scattered
	}
	last, size := len(strides)-1, n.dtype(i).Size()
	unit := n.grid.width * size
	if !n.isMap() {
		unit = min(16, unit)
	}
	misaligned := func(stride int64) bool { return stride*size%unit != 0 }
	if of == indexed {
		others = slices.Concat(others, strides[:last])
	}
	switch {
	case strides[last] == 0:
		return single
	case strides[last] == 1 && n.isIota(i):
		return aligned
	case strides[last] == 1 && !misaligned(n.views[i].Offset) && !slices.ContainsFunc(others, misaligned):
		return aligned
	case of == indexed && n.isMap():
		return scattered
	case strides[last] == 1:
		return contiguous
	}
	return strided
}

// dtype returns the element type of operand or output i.
func (n *nest) dtype(i int) expr.Dtype {
	if i < len(n.types) {
		return n.types[i]
	}
	return n.outputs[i-len(n.types)]
}

// isWide reports whether indices take more than 31 bits. Threads compute up to `beyond` indices past the last row and column, but access
// no memory there.
func (n *nest) isWide(beyond int64) bool {
	reach := max(n.rows, n.columns) + beyond
	for i := range n.views {
		if n.isMap() && i >= len(n.types) && n.layout.place(i).rows == unitStride {
			continue
		}
		last := int64(0)
		for a, s := range n.rowStrides[i] {
			last += s * n.rowShape[a]
		}
		for a, s := range n.colStrides[i] {
			last += s * n.colShape[a]
		}
		reach = max(reach, last)
	}
	return reach >= 1<<31
}

// launch appends the launch of a nest of f whose operands and outputs are there.
func (n *nest) launch(p *kernels.Plan, f expr.Func, from, to []kernels.Ref) error {
	return n.launchWith(p, f, n.arguments(from, to))
}

func (n *nest) launchWith(p *kernels.Plan, f expr.Func, args []any) error {
	blocks := n.blocks()
	if err := n.checkSplits(blocks); err != nil {
		return err
	}
	if err := kernels.CheckGrid(blocks); err != nil {
		return err
	}
	f, _ = f.Numbers()
	kernel := &kernels.Kernel{Image: image{f, n.layout}, Entry: n.layout.entry, Body: n.body}
	l := p.Launch(kernel, int(blocks), n.layout.threadsPerRow*n.layout.rowsPerBlock, args...)
	l.Grid[1], l.Shared = int(n.grid.splits), n.layout.sharedBytes(n.types)
	return nil
}

// blocks returns the number of blocks.
func (n *nest) blocks() int64 {
	switch {
	case n.layout.tile > 0:
		tiles := int64(1)
		for _, extent := range n.tileGrid() {
			tiles *= extent
		}
		return tiles
	case n.layout.channelsLast():
		return min(n.squares(), squareMaxBlocks)
	case n.isMap():
		return kernels.CeilDiv(n.rows, int64(n.layout.width*n.layout.vectors*n.layout.rowsPerBlock))
	}
	return kernels.CeilDiv(n.rows, n.grid.rowsInBlock()*max(int64(n.layout.rowsPerThread), 1)) * max(n.grid.cluster, 1)
}

// arguments returns those of a launch, in the order of [mapWriter.parameters] or [rowsWriter.parameters].
func (n *nest) arguments(from, to []kernels.Ref) (args []any) {
	l := &n.layout
	index := func(values ...int64) {
		for _, v := range values {
			args = append(args, indexArgument(v, l.wide))
		}
	}
	for i, r := range slices.Concat(from, to) {
		if n.isIota(i) {
			continue
		}
		if !l.place(i).mark.random() {
			r.Offset += n.views[i].Offset * n.dtype(i).Size()
		}
		args = append(args, r)
	}
	if n.isMap() {
		args = append(args, n.rows)
	} else {
		index(n.rows, n.columns)
	}
	if l.split {
		index(n.grid.colsPerSplit)
	} else if l.cluster > 0 || l.sharesPerBlock > 0 {
		index(n.grid.colsPerBlock)
	}
	if l.tile > 0 {
		args = append(args, n.tileArguments()...)
	} else {
		args = append(args, divisions(n.rowShape[:l.rowAxes], l.wide)...)
		args = append(args, divisions(n.colShape[:l.colAxes], l.wide)...)
	}
	for i := range n.views {
		if n.isMap() && i > len(n.types) { // outputs of a map have strides together
			break
		}
		p := l.place(i)
		for k, strides := range [][]int64{n.rowStrides[i], n.colStrides[i]} {
			switch []addressing{p.rows, p.columns}[k] {
			case linear:
				index(strides[len(strides)-1])
			case indexed:
				index(strides...)
			}
		}
		if p.mark.axis() >= 0 {
			index(n.bounds[i].from, n.bounds[i].extent)
		}
	}
	for i := range n.types {
		if n.isIota(i) {
			args = append(args, n.views[i].Offset)
		} else if n.views[i].Stream.Number != 0 {
			args = append(args, n.views[i].Offset, int32(n.views[i].Stream.Number))
		}
	}
	for _, c := range n.numbers {
		args = append(args, c.Argument())
	}
	for k := range to {
		if elements := n.rows * n.columns; n.isSplit(k) {
			args = append(args, elements*expr.BF16.Size(), kernels.At(to[k].Operand, to[k].Offset+splitPlanes*elements*expr.BF16.Size()))
		}
	}
	return args
}
