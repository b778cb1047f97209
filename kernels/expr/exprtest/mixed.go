package exprtest

import (
	"math"
	"math/big"
	"slices"

	"github.com/stheno-ml/stheno/kernels/expr"
	"pgregory.net/rapid"
)

// MixedTypes are the types of operands and values of [DrawMixed].
var MixedTypes = []expr.Dtype{expr.Float32, expr.Float64, expr.Uint8, expr.Int32, expr.Int64, expr.Int, expr.Bool}

var (
	mixedIntegers = []expr.Op{expr.Neg, expr.Abs, expr.Add, expr.Sub, expr.Mul, expr.Min, expr.Max, expr.Square, expr.Cube, expr.Select}
	mixedFloats   = []expr.Op{expr.Neg, expr.Abs, expr.Add, expr.Sub, expr.Mul, expr.Min, expr.Max, expr.Select}
	mixedBools    = []expr.Op{expr.And, expr.Or, expr.Not, expr.Eq, expr.Ne, expr.Lt, expr.Le, expr.Gt, expr.Ge, expr.Select}
)

// DrawMixed draws a term of type d over operands of those types, of up to size operations of integers, Bool and floating-point numbers,
// with conversions between any two types.
func DrawMixed(t *rapid.T, operands []expr.Dtype, d expr.Dtype, size int) *Term {
	if size == 0 {
		return mixedLeaf(t, operands, d)
	}
	if rapid.IntRange(0, 4).Draw(t, "conversion") == 0 {
		return converted(DrawMixed(t, operands, rapid.SampledFrom(MixedTypes).Draw(t, "from"), size-1), d)
	}
	ops := mixedIntegers
	if d == expr.Bool {
		ops = mixedBools
	} else if d.IsFloat() {
		ops = mixedFloats
	}
	op := rapid.SampledFrom(ops).Draw(t, "op")
	term, of, rest := &Term{Kind: Operation, Dtype: d, Op: op}, d, size-1
	switch op {
	case expr.Eq, expr.Ne:
		of = rapid.SampledFrom(MixedTypes).Draw(t, "compared")
	case expr.Lt, expr.Le, expr.Gt, expr.Ge:
		of = rapid.SampledFrom(MixedTypes[:6]).Draw(t, "compared")
	}
	for i := range op.Arity() {
		part, argument := rest/(op.Arity()-i), of
		if rest -= part; op == expr.Select && i == 0 {
			argument = expr.Bool
		}
		term.Args = append(term.Args, DrawMixed(t, operands, argument, part))
	}
	return term
}

func mixedLeaf(t *rapid.T, operands []expr.Dtype, d expr.Dtype) *Term {
	i := rapid.IntRange(-1, len(operands)-1).Draw(t, "operand")
	if i >= 0 {
		return converted(&Term{Kind: Operand, Dtype: operands[i], Index: i}, d)
	}
	v := rapid.SampledFrom([]float64{0, 1, -1, 2, 7, -100, 200, 1e6}).Draw(t, "number")
	if d == expr.Bool || d == expr.Uint8 {
		return converted(&Term{Kind: Number, Dtype: expr.Int32, Value: v}, d)
	}
	return &Term{Kind: Number, Dtype: d, Value: v}
}

// Bits draws the memory of an element of a type, often an edge.
func Bits(t *rapid.T, d expr.Dtype) uint64 {
	if d.IsFloat() {
		edges := append([]float64{127.5, 255, 255.5, 256, -0.99, 2147483647, 2147483648, -2147483648, -2147483904, 0x1p63, 0x1p63 - 1024, -0x1p63, -0x1p64}, Edges...)
		return bitsOf(d, rapid.OneOf(rapid.SampledFrom(edges), rapid.Float64Range(-300, 300), rapid.Float64Range(-1e10, 1e10)).Draw(t, "float"))
	}
	if d == expr.Bool {
		return uint64(rapid.IntRange(0, 1).Draw(t, "bool"))
	}
	v := rapid.OneOf(rapid.SampledFrom([]int64{0, 1, -1, 2, math.MaxInt64, math.MinInt64, math.MaxInt32, math.MinInt32, 1<<53 + 1, 1<<24 + 1, 255}), rapid.Int64Range(-200, 200), rapid.Int64()).Draw(t, "integer")
	return wrapped(d, big.NewInt(v))
}

// DrawMixedMap draws a function of up to 4 operands, of all types and iotas among them, and of up to 3 outputs of up to size operations,
// a shape and views of all sorts.
func DrawMixedMap(t *rapid.T, size int) *Map {
	m := &Map{}
	types := m.drawMixed(t, true)
	for range rapid.IntRange(1, 3).Draw(t, "outputs") {
		m.terms = append(m.terms, DrawMixed(t, types, rapid.SampledFrom(MixedTypes).Draw(t, "output"), size))
	}
	m.build(t, types)
	return m
}

// DrawMixedRows is DrawMixedMap with reductions of integers, and maxima and minima of floating-point numbers.
func DrawMixedRows(t *rapid.T, size int) *Map {
	m := &Map{}
	types := m.drawMixed(t, false)
	m.drawAxes(t)
	all, results := slices.Clone(types), []expr.Dtype{}
	for range rapid.IntRange(1, 3).Draw(t, "reductions") {
		op, d := rapid.SampledFrom([]expr.Op{expr.RowSum, expr.RowMax, expr.RowMin}).Draw(t, "reduction"), rapid.SampledFrom(MixedTypes).Draw(t, "reduced type")
		if op == expr.RowSum && d.IsFloat() || op != expr.RowSum && d == expr.Bool {
			d = expr.Int32
		}
		r := &Term{Kind: Operation, Dtype: d, Op: op, Args: []*Term{DrawMixed(t, all, d, size)}}
		if op == expr.RowSum {
			r.Dtype = expr.Int64
		}
		m.reductions, all, results = append(m.reductions, r), append(all, r.Dtype), append(results, r.Dtype)
	}
	for range rapid.IntRange(1, 3).Draw(t, "outputs") {
		d, perRow := rapid.SampledFrom(MixedTypes).Draw(t, "output"), rapid.Bool().Draw(t, "one a row")
		m.PerRow = append(m.PerRow, perRow)
		if perRow {
			m.terms = append(m.terms, DrawMixed(t, results, d, size).replaced(func(o *Term) *Term {
				return &Term{Kind: Operand, Dtype: o.Dtype, Index: o.Index + len(types)}
			}))
		} else {
			m.terms = append(m.terms, DrawMixed(t, all, d, size))
		}
	}
	m.build(t, types)
	return m
}

// drawMixed draws the shape, views and buffers.
func (m *Map) drawMixed(t *rapid.T, bounded bool) (types []expr.Dtype) {
	m.drawShape(t, 1, 4, 3000, 1, 2, 3, 4, 8, 16, 17, 40, 300)
	for range rapid.IntRange(0, 4).Draw(t, "operands") {
		d := rapid.SampledFrom(MixedTypes).Draw(t, "type")
		iota := rapid.IntRange(0, 3).Draw(t, "iota") == 0
		v := drawView(t, m.Shape, bounded && !iota)
		var buffer []uint64
		if iota {
			d, v.Elements, v.Iota = expr.Int64, 0, true
			v.Offset += rapid.SampledFrom([]int64{0, 0, -7, 1 << 40}).Draw(t, "first")
		}
		for k := range v.Elements {
			if k < 11 {
				buffer = append(buffer, Bits(t, d))
			} else {
				buffer = append(buffer, buffer[(k+k/11)%11])
			}
		}
		types, m.Views, m.Buffers = append(types, d), append(m.Views, v), append(m.Buffers, buffer)
	}
	return types
}
