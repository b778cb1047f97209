package codegen

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// rowMapping is a function with reductions on a merged shape.
type rowMapping struct {
	types   []expr.Dtype // of the operands
	outputs []expr.Dtype
	perRow  []bool
	staged  expr.Staged
	scalars []expr.Dtype // results of the reductions, in order
	used    []int        // operands that the function depends on

	grid                rowGrid
	layout              rowsLayout
	rows, columns       int64
	rowShape, colShape  []int64   // merged
	rowStrides, colStrs [][]int64 // of the operands, then of the outputs
	offsets             []int64   // likewise
	streams             []Stream  // of the operands, nil for none

	steps   []rowStep     // of the Go body: the stages, then the outputs of each element and those of each row
	kept    []expr.Dtype  // values of elements that the Go body keeps from step to step
	numbers []expr.Number // constants of the function, which are arguments
	cost    int64         // operations on an element
}

// rowsLayout is all that a kernel is generated from, beside the function.
type rowsLayout struct {
	across   bool // as in rowGrid, like the next three
	width    int
	threads  int
	beside   int
	split    bool // blocks take a chunk of a row each
	cluster  int  // as in rowGrid, like the next
	walk     int
	wide     bool   // indices take 64 bits
	inner    bool   // vectors lie within an innermost axis
	vectors  int    // of a thread, which it holds; 0: each step reads them again
	full     bool   // all of them exist
	few      bool   // their number is a power of two, and those of the second half may not exist
	rest     bool   // there are more, which each step reads again
	shared   string // how many of them, the last, are in shared memory, not in registers: see share
	turn     int    // bytes that a thread reads in a turn of a loop
	rowAxes  int    // of the merged shape, for addresses by index
	colAxes  int    // likewise
	accesses string // three letters for each operand, then each output: of reach, reach and spread
	random   string // which operands have a stream: see [randomLetters]
}

// access returns how operand i lies; outputs come after the operands.
func (l *rowsLayout) access(i int) (rows, columns reach, lanes spread) {
	return reach(l.accesses[3*i]), reach(l.accesses[3*i+1]), spread(l.accesses[3*i+2])
}

// reach is how an address follows from the number of a row, or of a column.
type reach byte

const (
	fixed   reach = 'f' // it does not
	next    reach = 'n' // an element on for each column
	linear  reach = 'l' // in one stride
	indexed reach = 'i' // from the index along each axis
)

// spread is how the elements of a vector lie.
type spread byte

const (
	single    spread = '1' // one element for all
	together  spread = 't' // contiguous, and aligned for vectors
	adjoining spread = 'a' // contiguous
	spaced    spread = 's' // in one stride
	scattered spread = 'x' // each where its index is
)

// newRowMapping merges axes and finds the layout of a call that was checked.
func newRowMapping(dev kernels.Device, c rowCall, g rowGrid) (*rowMapping, error) {
	m := &rowMapping{types: c.f.Operands(), outputs: c.f.Outputs(), perRow: c.perRow, grid: g, cost: int64(max(c.f.Operations(), 1)), streams: streams(c.operands)}
	_, m.numbers = c.f.Numbers()
	var err error
	if m.staged, err = c.f.Stages(c.perRow); err != nil {
		return nil, err
	}
	for _, s := range m.staged.Stages {
		if n := len(s.Reductions); n > mostReductions {
			return nil, fmt.Errorf("got %d reductions side by side, want at most %d", n, mostReductions)
		}
		m.scalars = append(m.scalars, s.Func.Outputs()...)
	}
	if elementSteps(m.staged) == 1 && slices.Contains(c.perRow, true) && !slices.Contains(c.perRow, false) {
		pol := rowsPolicies.On(dev)
		m.grid = g.walking(int64(dev.SMs), c.rows(), pol.threads)
	}
	_, m.used = c.f.Trim()
	m.merge(c)
	_, ofRow := m.staged.Row.Trim()
	for _, i := range ofRow {
		if i < len(m.types) && slices.Max(append(m.colStrs[i], 0)) > 0 {
			return nil, fmt.Errorf("got an output with one element a row that depends on operand %d, of strides %v, want it the same along axes %v", i, c.operands[i].Strides, c.axes)
		}
	}
	if err := m.makeSteps(c.f); err != nil {
		return nil, err
	}
	m.layOut(dev, rowsPolicies.On(dev))
	return m, nil
}

// merge splits the shape into rows and columns, and joins neighbouring axes that every
// operand and output goes through in one stride.
func (m *rowMapping) merge(c rowCall) {
	strides := make([][]int, 0, len(c.operands)+len(m.outputs))
	for _, v := range c.operands {
		m.offsets, strides = append(m.offsets, v.Offset), append(strides, v.Strides)
	}
	for k := range m.outputs {
		m.offsets, strides = append(m.offsets, 0), append(strides, outputStrides(c.shape, c.kept(), m.perRow[k], int(m.grid.splits)))
	}
	m.rows, m.rowShape, m.rowStrides = mergeAxes(c.shape, c.kept(), strides)
	m.columns, m.colShape, m.colStrs = mergeAxes(c.shape, c.axes, strides)
}

// outputStrides returns the strides along all axes of an output in row-major order,
// with an element for each index, or one for each split of each row.
func outputStrides(shape, kept []int, perRow bool, splits int) []int {
	if !perRow {
		return rowMajor(shape)
	}
	strides, n := make([]int, len(shape)), splits
	for _, a := range slices.Backward(kept) {
		strides[a] = n
		n *= shape[a]
	}
	return strides
}

// mergeAxes returns the extent of some axes together, and their shape and strides with
// axes of one element left out and neighbours joined where all strides allow it.
func mergeAxes(shape, axes []int, strides [][]int) (n int64, merged []int64, out [][]int64) {
	n, out = 1, make([][]int64, len(strides))
	for _, a := range axes {
		extent := int64(shape[a])
		if n *= extent; extent == 1 {
			continue
		}
		last := len(merged) - 1
		joined := last >= 0
		for i, s := range strides {
			joined = joined && out[i][last] == int64(s[a])*extent
		}
		if joined {
			merged[last] *= extent
		} else {
			merged = append(merged, extent)
			last++
		}
		for i, s := range strides {
			out[i] = append(out[i][:last], int64(s[a]))
		}
	}
	return n, merged, out
}

// layOut finds the layout.
func (m *rowMapping) layOut(dev kernels.Device, pol rowsPolicy) {
	g := m.grid
	l := rowsLayout{across: g.across, width: int(g.width), threads: int(g.threads), beside: int(g.beside), split: g.splits > 1, cluster: int(g.cluster), walk: int(g.walk), wide: m.wide(), random: randomLetters(m.streams)}
	if inner := m.innerShape(); len(inner) > 0 {
		l.inner = inner[len(inner)-1]%g.width == 0
	}
	for i := range m.offsets {
		r, c := reachOf(m.rowShape, m.rowStrides[i]), reachOf(m.colShape, m.colStrs[i])
		if c == linear && m.colStrs[i][len(m.colShape)-1] == 1 {
			c = next
		}
		if r == indexed {
			l.rowAxes = len(m.rowShape)
		}
		if c == indexed {
			l.colAxes = len(m.colShape)
		}
		l.accesses += string([]byte{byte(r), byte(c), byte(m.spread(i, r, c, l.inner))})
	}
	m.layout = l
	m.hold(dev, pol)
}

// innerShape returns the axes that vectors lie along.
func (m *rowMapping) innerShape() []int64 {
	if m.grid.across {
		return m.rowShape
	}
	return m.colShape
}

// wide reports whether indices take more than 31 bits. Threads compute indices beyond
// the last row and column, too, but use no address there.
func (m *rowMapping) wide() bool {
	const most, beyond = 1 << 31, 1 << 18
	reach := max(m.rows, m.columns) + beyond
	for i := range m.offsets {
		last := int64(0)
		for a, s := range m.rowStrides[i] {
			last += s * m.rowShape[a]
		}
		for a, s := range m.colStrs[i] {
			last += s * m.colShape[a]
		}
		reach = max(reach, last)
	}
	return reach >= most
}

// reachOf returns how addresses follow from numbers in row-major order of a shape.
func reachOf(shape, strides []int64) reach {
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

// spread returns how the elements of a vector of operand or output i lie. inner reports
// that a vector lies within the innermost axis.
func (m *rowMapping) spread(i int, rows, columns reach, inner bool) spread {
	of, strides, others := columns, m.colStrs[i], slices.Clone(m.rowStrides[i])
	if m.grid.across {
		of, strides, others = rows, m.rowStrides[i], slices.Clone(m.colStrs[i])
	}
	switch {
	case m.grid.width == 1 || of == fixed:
		return single
	case of == indexed && !inner:
		return scattered
	}
	last := len(strides) - 1
	if of == indexed {
		others = append(others, strides[:last]...)
	}
	switch {
	case strides[last] == 0:
		return single
	case strides[last] > 1:
		return spaced
	}
	size := m.dtype(i).Size()
	aligned := m.offsets[i]*size%min(16, m.grid.width*size) == 0
	for _, s := range others {
		aligned = aligned && s*size%min(16, m.grid.width*size) == 0
	}
	if aligned {
		return together
	}
	return adjoining
}

// dtype returns the element type of operand or output i.
func (m *rowMapping) dtype(i int) expr.Dtype {
	if i < len(m.types) {
		return m.types[i]
	}
	return m.outputs[i-len(m.types)]
}

// flags returns perRow as text.
func (m *rowMapping) flags() string {
	text := make([]byte, len(m.perRow))
	for k, one := range m.perRow {
		text[k] = 'e'
		if one {
			text[k] = 'r'
		}
	}
	return string(text)
}

// arguments returns those of a launch, in the order of [rowsWriter.parameters].
func (m *rowMapping) arguments(from, to []kernels.Ref) []any {
	l := m.layout
	var args []any
	for i, r := range slices.Concat(from, to) {
		if !isRandom(l.random, i) {
			r.Offset += m.offsets[i] * m.dtype(i).Size()
		}
		args = append(args, r)
	}
	args = append(args, indexArgument(m.rows, l.wide), indexArgument(m.columns, l.wide))
	if l.split {
		args = append(args, indexArgument(m.grid.chunk, l.wide))
	}
	if l.cluster > 0 || l.walk > 0 {
		args = append(args, indexArgument(m.grid.share, l.wide))
	}
	args = append(args, divisions(m.rowShape[:l.rowAxes], l.wide)...)
	args = append(args, divisions(m.colShape[:l.colAxes], l.wide)...)
	for i := range m.offsets {
		rows, columns, _ := l.access(i)
		for k, strides := range [][]int64{m.rowStrides[i], m.colStrs[i]} {
			switch []reach{rows, columns}[k] {
			case linear:
				args = append(args, indexArgument(strides[len(strides)-1], l.wide))
			case indexed:
				for _, s := range strides {
					args = append(args, indexArgument(s, l.wide))
				}
			}
		}
	}
	args = append(args, randomArguments(m.streams, m.offsets)...)
	return append(args, numberArguments(m.numbers)...)
}
