package codegen

import (
	"slices"
	"sync"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// access is how a kernel reads an operand.
type access byte

const (
	scalar    access = 's' // one element for all
	dense     access = 'd' // in the order of the output, by vectors
	unaligned access = 'u' // in the order of the output, by elements
	row       access = 'r' // by vectors, from where the vector's first index is
	column    access = 'c' // one element for a vector, where its first index is
	strided   access = 'g' // by elements, each where its index is
	padded    access = 'p' // the same, where they are not zeros
	turned    access = 't' // by tiles: see maptile.go
)

// byIndex reports whether the address follows from the index along each axis.
func (a access) byIndex() bool { return a != scalar && a != dense && a != unaligned }

// mapLayout is all that a kernel is generated from, beside the function.
type mapLayout struct {
	axes     int    // of the merged shape; those of addresses by index
	wide     bool   // indices take 64 bits
	inner    bool   // vectors lie within an innermost axis
	width    int    // elements of a vector
	vectors  int    // of a thread, with one element in all where there are few: see single
	block    int    // threads of a block
	accesses string // an access for each operand
	bounded  string // the axis of each operand's bounds, as a byte, if any has some
	to       access // how outputs are written: like operands
	tile     int    // elements of a tile along either of its axes, 0 without tiles
	across   int    // the axis of a tile beside the innermost one
	skewed   bool   // rows of a tile begin with sectors of the output
	joined   int    // a power of two, parts of a concatenation at most, one for each block along y; 0 for none
	merged   bool   // the operands are parts of a concatenation, and each element is in one of them
	random   string // which operands have a stream: see [randomLetters]
}

// single reports whether every thread has one element.
func (l mapLayout) single() bool { return l.width == 1 && l.vectors == 1 && l.tile == 0 }

// mapping is a function on a merged shape.
type mapping struct {
	types   []expr.Dtype // of the operands
	outputs []expr.Dtype
	parts   []int64 // where the outputs begin, in bytes
	layout  mapLayout
	n       int64
	shape   []int64   // without axes of one element, neighbours joined
	strides [][]int64 // by operand, then axis
	offsets []int64
	bounds  []bound  // by operand
	streams []Stream // by operand, nil for none
	// Outputs lie from an element on, by these strides, which are nil where that is
	// row-major order.
	to        int64
	toStrides []int64
	// Each part of a concatenation has its own first operand, from, and its output begins this many
	// elements after that of the part before.
	from    []kernels.Ref
	next    int64
	extent  int64 // of a part of a concatenation, along its axis
	count   int   // of the parts of a concatenation; 0 without
	eval    *expr.Interpreter
	numbers []expr.Number // constants, which are arguments
	cost    int64         // operations on an element
	blocks  sync.Pool     // of *block, for the Go body
}

// newMapping returns a mapping whose one output lies as a view describes, or whose outputs are
// in row-major order if there is none.
func newMapping(dev kernels.Device, f expr.Func, shape []int, operands []View, into *View) *mapping {
	types := f.Operands()
	m := &mapping{types: types, outputs: f.Outputs(), n: kernels.Count(shape), eval: expr.NewInterpreter(f), cost: int64(max(f.Operations(), 1)), streams: streams(operands)}
	views := operands
	if into != nil {
		views = append(slices.Clone(operands), *into)
	}
	_, m.numbers = f.Numbers()
	m.strides, m.bounds = make([][]int64, len(views)), make([]bound, len(views))
	for _, v := range views {
		m.offsets = append(m.offsets, v.Offset)
	}
	m.parts, _ = mapParts(f, shape)
	m.blocks.New = m.newBlock
	m.merge(shape, views)
	width := vectorWidth(slices.Concat(m.outputs, types))
	few := dev.Major > 0 && into == nil && m.n <= int64(dev.SMs)*kernels.Streaming.On(dev).Few
	if few {
		width = 1 // less code to compile, and threads that are done sooner
	}
	accesses := m.accesses(width)
	for i, a := range accesses {
		if few && (access(a) == row || access(a) == column) { // the same for one element
			accesses[i] = byte(strided)
		}
	}
	if into != nil {
		last := len(operands)
		if a := access(accesses[last]); a != dense && a != row { // no vectors to write
			width, accesses = 1, m.accesses(1)
		}
		m.layout.to, accesses = access(accesses[last]), accesses[:last]
		if m.layout.to.byIndex() {
			m.toStrides = m.strides[last]
		}
		m.to, m.offsets, m.strides, m.bounds = m.offsets[last], m.offsets[:last], m.strides[:last], m.bounds[:last]
	} else {
		m.layout.to = dense
	}
	pol, axes := kernels.Streaming.On(dev), len(m.shape)
	m.layout.width, m.layout.accesses, m.layout.random = width, string(accesses), randomLetters(m.streams)
	if m.toStrides != nil || slices.ContainsFunc(accesses, func(a byte) bool { return access(a).byIndex() }) {
		pol = kernels.Scaling.On(dev)
		m.layout.axes, m.layout.inner = axes, m.isInner(width) && !few
	}
	m.layout.bounded = m.bounded()
	m.layout.vectors, m.layout.block = int(pol.Vectors), pol.Block
	if few {
		m.layout.vectors = 1
	} else if width == 1 {
		m.layout.vectors *= 4
	}
	m.layout.wide = m.wide()
	if dev.Major > 0 && m.streams == nil {
		m.chooseTiles()
	}
	return m
}

// isInner reports whether vectors lie within the innermost axis.
func (m *mapping) isInner(width int) bool {
	axes := len(m.shape)
	return axes > 0 && m.shape[axes-1]%int64(width) == 0
}

// accesses returns how the operands are read, and the output is written, in vectors of that
// width.
func (m *mapping) accesses(width int) []byte {
	list := make([]byte, len(m.strides))
	for i := range list {
		list[i] = byte(m.access(i, int64(width), m.isInner(width)))
	}
	return list
}

// gridBlocks returns the number of blocks.
func (m *mapping) gridBlocks() int64 {
	if m.layout.tile > 0 {
		return m.tiles()
	}
	return kernels.CeilDiv(m.n, int64(m.layout.width*m.layout.vectors*m.layout.block))
}

// wide reports whether indices take more than 31 bits. Threads of the last block
// compute indices beyond the last element, too.
func (m *mapping) wide() bool {
	const most = 1 << 31
	reach := m.n + int64(m.layout.width*m.layout.vectors*m.layout.block)
	for _, strides := range append(slices.Clone(m.strides), m.toStrides) {
		last := int64(0)
		for a, s := range strides {
			last += s * m.shape[a]
		}
		reach = max(reach, last)
	}
	return reach >= most
}

// vectorWidth returns the elements of a vector: those that have 16 bytes in the
// narrowest type that counts. A Bool is computed of or selects among wider ones.
func vectorWidth(types []expr.Dtype) int {
	narrow, wide := false, false
	for _, d := range types {
		narrow, wide = narrow || d.Size() == 4, wide || d.Size() == 8
	}
	if wide && !narrow {
		return 2
	}
	return 4
}

// merge drops axes of one element, and joins neighbours that every operand goes
// through in one stride.
func (m *mapping) merge(shape []int, operands []View) {
	for a, extent := range shape {
		if extent == 1 {
			continue
		}
		last := len(m.shape) - 1
		joined := last >= 0
		for i, v := range operands {
			joined = joined && m.strides[i][last] == int64(v.Strides[a])*int64(extent) && !(v.bounded(shape) && v.Bounds.Axis == a)
		}
		if joined {
			m.shape[last] *= int64(extent)
		} else {
			m.shape = append(m.shape, int64(extent))
			last++
		}
		m.bound(shape, operands, a, last, joined)
		for i, v := range operands {
			m.strides[i] = append(m.strides[i][:last], int64(v.Strides[a]))
		}
	}
}

// access returns how operand i is read in vectors of that width, which lie within
// the innermost axis or not.
func (m *mapping) access(i int, width int64, inner bool) access {
	if m.bounds[i].extent > 0 {
		return padded
	}
	strides, axes := m.strides[i], len(m.shape)
	inOrder, repeated, aligned := true, true, m.offsets[i]%width == 0
	n := int64(1)
	for a := axes - 1; a >= 0; a-- {
		inOrder, repeated = inOrder && strides[a] == n, repeated && strides[a] == 0
		if a < axes-1 {
			aligned = aligned && strides[a]%width == 0
		}
		n *= m.shape[a]
	}
	switch {
	case repeated:
		return scalar
	case inOrder && m.offsets[i]%width == 0:
		return dense
	case inOrder:
		return unaligned
	case inner && strides[axes-1] == 1 && aligned:
		return row
	case inner && strides[axes-1] == 0:
		return column
	}
	return strided
}

// arguments returns those of a launch, in the order of [mapImage.parameters].
func (m *mapping) arguments() []any {
	var args []any
	for i, d := range m.types {
		r := kernels.At(kernels.Operand(i), m.offsets[i]*d.Size())
		if isRandom(m.layout.random, i) {
			r.Offset = 0
		}
		args = append(args, r)
	}
	if m.from != nil {
		args = args[:0]
		for _, r := range m.from {
			args = append(args, r)
		}
	}
	for k, at := range m.parts {
		args = append(args, kernels.At(kernels.Out, at+m.to*m.outputs[k].Size()))
	}
	args = append(args, m.n)
	if m.layout.joined > 0 {
		args = append(args, m.next*m.outputs[0].Size())
	}
	if m.layout.tile > 0 {
		args = append(args, m.tileArguments()...)
	} else {
		args = append(args, divisions(m.shape[:m.layout.axes], m.layout.wide)...)
	}
	for i, a := range m.layout.accesses {
		if access(a).byIndex() {
			for _, s := range m.strides[i] {
				args = append(args, indexArgument(s, m.layout.wide))
			}
		}
		if access(a) == padded {
			args = append(args, indexArgument(m.bounds[i].from, m.layout.wide), indexArgument(m.bounds[i].extent, m.layout.wide))
		}
	}
	for _, s := range m.toStrides {
		args = append(args, indexArgument(s, m.layout.wide))
	}
	args = append(args, randomArguments(m.streams, m.offsets)...)
	return append(args, numberArguments(m.numbers)...)
}
