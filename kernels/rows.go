package kernels

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels/expr"
)

// Rows plans a function with reductions, such as softmax, exp(x - rowmax(x)) /
// rowsum(exp(x - rowmax(x))), of operands that are views of one shape. A row is all
// elements that differ in the indices along axes alone; perRow says of each output
// whether a row has one element of it. Outputs are in row-major order: those of an
// element for each index in the whole shape, those of one a row in the shape
// without the axes. Several outputs lie one behind the other as [Plan.Parts] says.
//
// How a sum is ordered follows from the shape, the axes and the element type alone,
// not from the rest of the function: a function that is split at its reductions, so
// that each is made by a plan of its own, gives the same bits, if [RowsWhole] reports
// true or the function has one stage of reductions and no output but theirs.
//
// An error says which argument does not fit.
func Rows(dev Device, f expr.Func, shape, axes []int, perRow []bool, operands ...View) (*Plan, error) {
	name := fmt.Sprintf("rows(%v, %v over %v)", f, shape, axes)
	m, err := newRowMapping(f, shape, axes, perRow, operands)
	if err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", name, err)
	}
	p := &Plan{Op: name, Flops: Count(shape) * int64(f.Operations())}
	for i, v := range operands {
		p.Inputs = append(p.Inputs, v.Elements*m.types[i].Size())
	}
	p.Parts, p.Out = m.parts()
	if m.rows > 0 {
		p.Launch(&Kernel{rowsImage{}, rowsEntry, m.body}, 1, 1, m.arguments(p.Parts)...)
	}
	return p, nil
}

// RowsWhole reports whether rows of that shape are each computed by one block, so that
// what comes after a reduction belongs in the same plan. Few long rows are split
// among blocks instead.
func RowsWhole(dev Device, shape, axes []int) bool {
	return true
}

// rowMapping is a function with reductions on a merged shape.
type rowMapping struct {
	types   []expr.Dtype // of the operands
	outputs []expr.Dtype
	perRow  []bool
	staged  expr.Staged
	scalars []expr.Dtype // results of the reductions, in order

	rows, columns       int64
	rowShape, colShape  []int64   // merged
	rowStrides, colStrs [][]int64 // of the operands, then of the outputs
	offsets             []int64   // of the operands

	eval []*expr.Interpreter // of the stages, then Elements and Row; nil for no outputs
	cost int64
}

// newRowMapping checks the arguments of [Rows] and merges axes.
func newRowMapping(f expr.Func, shape, axes []int, perRow []bool, operands []View) (*rowMapping, error) {
	if err := checkMap(f, shape, operands); err != nil {
		return nil, err
	}
	if len(perRow) != len(f.Outputs()) {
		return nil, fmt.Errorf("got %d flags for %d outputs", len(perRow), len(f.Outputs()))
	}
	for i, a := range axes {
		if a < 0 || a >= len(shape) || i > 0 && a <= axes[i-1] {
			return nil, fmt.Errorf("got axes %v of shape %v, want rising axes of it", axes, shape)
		}
	}
	for _, d := range slices.Concat(f.Operands(), f.Outputs()) {
		if !d.IsFloat() && d != expr.Bool {
			return nil, errors.New("got integers, want float32, float64 or bool")
		}
	}
	m := &rowMapping{types: f.Operands(), outputs: f.Outputs(), perRow: perRow, cost: int64(max(f.Operations(), 1))}
	var err error
	if m.staged, err = f.Stages(perRow); err != nil {
		return nil, err
	}
	for _, s := range m.staged.Stages {
		m.scalars = append(m.scalars, s.Func.Outputs()...)
	}
	m.merge(shape, axes, operands)
	for _, s := range m.staged.Stages {
		m.eval = append(m.eval, expr.NewInterpreter(s.Func))
	}
	m.eval = append(m.eval, expr.NewInterpreter(m.staged.Elements), expr.NewInterpreter(m.staged.Row))
	return m, nil
}

// merge splits the shape into rows and columns, and joins neighbouring axes that every
// operand and output goes through in one stride.
func (m *rowMapping) merge(shape, axes []int, operands []View) {
	var rowAxes []int
	for a := range shape {
		if !slices.Contains(axes, a) {
			rowAxes = append(rowAxes, a)
		}
	}
	strides := make([][]int, 0, len(operands)+len(m.outputs))
	for _, v := range operands {
		m.offsets = append(m.offsets, v.Offset)
		strides = append(strides, v.Strides)
	}
	for k := range m.outputs {
		strides = append(strides, outputStrides(shape, rowAxes, m.perRow[k]))
	}
	m.rows, m.rowShape, m.rowStrides = mergeAxes(shape, rowAxes, strides)
	m.columns, m.colShape, m.colStrs = mergeAxes(shape, axes, strides)
}

// outputStrides returns the strides along all axes of an output in row-major order,
// with an element for each index or one for each row.
func outputStrides(shape, rowAxes []int, perRow bool) []int {
	if !perRow {
		return rowMajor(shape)
	}
	strides, n := make([]int, len(shape)), 1
	for _, a := range slices.Backward(rowAxes) {
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

// parts returns where the outputs begin, and the bytes of all.
func (m *rowMapping) parts() (parts []int64, bytes int64) {
	sizes := make([]int64, len(m.outputs))
	for k, d := range m.outputs {
		sizes[k] = m.rows * d.Size()
		if !m.perRow[k] {
			sizes[k] *= m.columns
		}
	}
	return layOut(sizes)
}
