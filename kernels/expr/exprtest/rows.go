package exprtest

import (
	"slices"

	"github.com/stheno-ml/stheno/kernels/expr"
	"pgregory.net/rapid"
)

// rowsTypes are the types of the operands that DrawRows takes from.
var rowsTypes = []expr.Dtype{expr.Float32, expr.Float32, expr.Float64, expr.Bool}

// DrawRows draws a function with reductions of up to 4 operands and of up to 4 outputs of up to size operations in all, a shape of rank 1 to 5, axes,
// and views of all sorts, many of which are the same along a row. Operations and outputs have terms in common, such as a value in a reduction that is
// an output of the row as well.
func DrawRows(t *rapid.T, ops []expr.Op, size int) *Map {
	m := &Map{}
	m.drawShape(t, 1, 5, 6000, 1, 2, 3, 4, 5, 8, 16, 33, 100, 257, 1024)
	m.drawAxes(t)
	types, uniform, ofRow := m.drawOperands(t, rowsTypes)
	r := rowTerms{t: t, operands: types, ofRow: ofRow, uniform: uniform}
	few := rapid.Permutation(ops).Draw(t, "operations")[:min(3, len(ops))] // so that equal terms are likely
	for len(r.drawn) < size && r.often("more") {
		r.grow(few)
	}
	for range rapid.SampledFrom([]int{1, 1, 2, 3, 4}).Draw(t, "outputs") {
		perRow := rapid.Bool().Draw(t, "one a row")
		m.PerRow, m.terms = append(m.PerRow, perRow), append(m.terms, r.one(perRow))
	}
	m.build(t, types)
	return m
}

// rowTerms draws terms with reductions, each of terms drawn before or of leaves.
type rowTerms struct {
	t        *rapid.T
	operands []expr.Dtype
	ofRow    []int   // operands that are the same along a row
	uniform  bool    // operations are of float32
	drawn    []*Term // so far, in order
}

// often is true seven times of eight.
func (r *rowTerms) often(what string) bool {
	return rapid.IntRange(0, 7).Draw(r.t, what) > 0
}

func (r *rowTerms) dtype() expr.Dtype {
	if r.uniform {
		return expr.Float32
	}
	return rapid.SampledFrom([]expr.Dtype{expr.Float32, expr.Float32, expr.Float64}).Draw(r.t, "dtype")
}

// grow draws a reduction or another operation.
func (r *rowTerms) grow(ops []expr.Op) {
	d, ofRow := r.dtype(), rapid.IntRange(0, 3).Draw(r.t, "of the row") == 0
	op := rapid.SampledFrom([]expr.Op{expr.RowSum, expr.RowSum, expr.RowMax, expr.RowMin}).Draw(r.t, "reduction")
	if ofRow || rapid.IntRange(0, 2).Draw(r.t, "reduces") > 0 {
		op = rapid.SampledFrom(ops).Draw(r.t, "op")
	}
	term := &Term{Kind: Operation, Dtype: d, Op: op}
	for i := range op.Arity() {
		arg := converted(r.one(ofRow), d)
		if op == expr.Select && i == 0 {
			arg = &Term{Kind: Operation, Dtype: expr.Bool, Op: expr.Lt, Args: []*Term{arg, {Kind: Number, Dtype: d, Value: 0.5}}}
		}
		term.Args = append(term.Args, arg)
	}
	r.drawn = append(r.drawn, term)
}

// one draws a term of those drawn, the last ones more often, or a leaf. perRow makes it the same along a row.
func (r *rowTerms) one(perRow bool) *Term {
	var list []*Term
	for _, x := range slices.Backward(r.drawn) {
		if !perRow || r.perRow(x) {
			list = append(list, x)
		}
	}
	if len(list) > 0 && r.often("drawn before") {
		return rapid.SampledFrom(list).Draw(r.t, "term")
	}
	switch d := r.dtype(); {
	case !perRow:
		return leaf(r.t, r.operands, d)
	case len(r.ofRow) == 0 || !r.often("operand"):
		return &Term{Kind: Number, Dtype: d, Value: rapid.SampledFrom([]float64{0, 1, -0.5, 3}).Draw(r.t, "number")}
	default:
		i := rapid.SampledFrom(r.ofRow).Draw(r.t, "operand of the row")
		return converted(&Term{Kind: Operand, Dtype: r.operands[i], Index: i}, d)
	}
}

// perRow reports whether a term is the same along a row.
func (r *rowTerms) perRow(x *Term) bool {
	switch {
	case x.Kind == Operand:
		return slices.Contains(r.ofRow, x.Index)
	case x.Kind == Operation && reduces(x.Op):
		return true
	}
	return !slices.ContainsFunc(x.Args, func(a *Term) bool { return !r.perRow(a) })
}

// Row returns the number of the row that element i is in, and whether it is the first of it.
func (m *Map) Row(i int) (row int, first bool) {
	return RowOf(m.Shape, m.Axes, i)
}

// RowOf returns the number of the row that element i of a shape is in, and whether it is the first of it.
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
