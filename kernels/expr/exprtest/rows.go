package exprtest

import (
	"slices"

	"github.com/stheno-ml/stheno/kernels/expr"
	"pgregory.net/rapid"
)

// Rows is a function with reductions applied to views: a row is all elements that
// differ in the indices along the axes alone.
type Rows struct {
	Map
	Axes   []int
	PerRow []bool // by output: a row has one element of it
}

// rowsTypes are the types of the operands that DrawRows takes from.
var rowsTypes = []expr.Dtype{expr.Float32, expr.Float32, expr.Float64, expr.Bool}

// DrawRows draws a function with reductions of up to 4 operands and of up to 3 outputs
// of up to size operations, a shape of rank 1 to 5, axes, and views of all sorts, many
// of which are the same along a row.
func DrawRows(t *rapid.T, ops []expr.Op, size int) *Rows {
	m := &Rows{}
	n := 1
	for range rapid.IntRange(1, 5).Draw(t, "rank") {
		extent := rapid.SampledFrom([]int{1, 2, 3, 4, 5, 8, 16, 33, 100, 257, 1024}).Draw(t, "extent")
		if n*extent > 6000 {
			extent = 1
		}
		n *= extent
		m.Shape = append(m.Shape, extent)
	}
	for a := range m.Shape {
		if rapid.Bool().Draw(t, "reduced") {
			m.Axes = append(m.Axes, a)
		}
	}
	types := make([]expr.Dtype, rapid.IntRange(1, 4).Draw(t, "operands"))
	uniform := rapid.Bool().Draw(t, "uniform")
	var ofRow []int // operands that are the same along a row
	for i := range types {
		types[i] = rapid.SampledFrom(rowsTypes).Draw(t, "type")
		if uniform {
			types[i] = expr.Float32
		}
		v := drawView(t, m.Shape, false)
		if rapid.IntRange(0, 3).Draw(t, "same along a row") == 0 {
			ofRow = append(ofRow, i)
			for _, a := range m.Axes {
				v.Strides[a] = 0
			}
		}
		few := Values(t, types[i], 11)
		buffer := make([]float64, v.Elements)
		for k := range buffer {
			buffer[k] = few[(k+k/11)%len(few)]
		}
		m.drawStream(t, types[i], &v, buffer)
		m.Views, m.Buffers = append(m.Views, v), append(m.Buffers, buffer)
	}
	for range rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "outputs") {
		d := rapid.SampledFrom([]expr.Dtype{expr.Float32, expr.Float32, expr.Float64}).Draw(t, "output")
		perRow := rapid.Bool().Draw(t, "one a row")
		m.PerRow = append(m.PerRow, perRow)
		m.terms = append(m.terms, drawReduced(t, types, ofRow, d, ops, size, perRow))
	}
	f, err := Func(types, m.terms...)
	if err != nil {
		t.Fatal(err)
	}
	m.Func = f
	return m
}

// drawReduced draws a term with reductions; perRow makes it one number for a row: other
// operands than ofRow are in reductions only.
func drawReduced(t *rapid.T, operands []expr.Dtype, ofRow []int, d expr.Dtype, ops []expr.Op, size int, perRow bool) *Term {
	sort := rapid.IntRange(0, 9).Draw(t, "sort")
	switch {
	case size > 0 && sort < 4:
		op := rapid.SampledFrom([]expr.Op{expr.RowSum, expr.RowSum, expr.RowMax, expr.RowMin}).Draw(t, "reduction")
		return &Term{Kind: Operation, Dtype: d, Op: op, Args: []*Term{drawReduced(t, operands, ofRow, d, ops, size-1, false)}}
	case size == 0 || sort == 9:
		if !perRow {
			return leaf(t, operands, d)
		}
		i := rapid.IntRange(-1, len(ofRow)-1).Draw(t, "of the row")
		if i < 0 {
			return &Term{Kind: Number, Dtype: d, Value: rapid.SampledFrom([]float64{0, 1, -0.5, 3}).Draw(t, "number")}
		}
		x := &Term{Kind: Operand, Dtype: operands[ofRow[i]], Index: ofRow[i]}
		if x.Dtype == d {
			return x
		}
		return &Term{Kind: Conversion, Dtype: d, Args: []*Term{x}}
	}
	op := rapid.SampledFrom(ops).Draw(t, "op")
	term, rest := &Term{Kind: Operation, Dtype: d, Op: op}, size-1
	for i := range op.Arity() {
		part := rest / (op.Arity() - i)
		rest -= part
		arg := drawReduced(t, operands, ofRow, d, ops, part, perRow)
		if op == expr.Select && i == 0 {
			arg = &Term{Kind: Operation, Dtype: expr.Bool, Op: expr.Lt, Args: []*Term{arg, {Kind: Number, Dtype: d, Value: 0.5}}}
		}
		term.Args = append(term.Args, arg)
	}
	return term
}

// Row returns the number of the row that element i is in, and whether it is the first
// of it.
func (m *Rows) Row(i int) (row int, first bool) {
	return RowOf(m.Shape, m.Axes, i)
}

// RowOf returns the number of the row that element i of a shape is in, and whether it
// is the first of it.
func RowOf(shape, axes []int, i int) (row int, first bool) {
	first = true
	n := 1
	for a := len(shape) - 1; a >= 0; a-- {
		at := i % shape[a]
		i /= shape[a]
		if slices.Contains(axes, a) {
			first = first && at == 0
			continue
		}
		row += at * n
		n *= shape[a]
	}
	return row, first
}

// Want returns the outputs' elements, each operation run on its own: apply also runs
// functions of one reduction, for which it returns each row's at all of its elements.
func (m *Rows) Want(apply Apply) ([][]float64, error) {
	want, err := m.Map.Want(apply)
	if err != nil {
		return nil, err
	}
	for k, perRow := range m.PerRow {
		if !perRow {
			continue
		}
		var ofRows []float64
		for i, v := range want[k] {
			if row, first := m.Row(i); first {
				for len(ofRows) <= row {
					ofRows = append(ofRows, 0)
				}
				ofRows[row] = v
			}
		}
		want[k] = ofRows
	}
	return want, nil
}
