package exprtest

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"

	"github.com/stheno-ml/stheno/kernels/expr"
	"pgregory.net/rapid"
)

// Mixed is a function of mixed types applied to views, with reductions along axes for rows.
type Mixed struct {
	Func       expr.Func
	Shape      []int
	Axes       []int
	PerRow     []bool // by output; nil for a map
	Views      []View
	Buffers    [][]uint64 // elements of each operand's buffer, nil of an iota
	reductions []*Term    // operations on a term of the operands and of the reductions before, which are operands behind them
	terms      []*Term    // the outputs, of both
}

// DrawMixedMap draws a function of up to 4 operands, of all types and iotas among them, and of up to 3 outputs of up to size operations,
// a shape and views of all sorts.
func DrawMixedMap(t *rapid.T, size int) *Mixed {
	m := &Mixed{}
	types := m.drawOperands(t, true)
	for range rapid.IntRange(1, 3).Draw(t, "outputs") {
		m.terms = append(m.terms, DrawMixed(t, types, rapid.SampledFrom(MixedTypes).Draw(t, "output"), size))
	}
	m.build(t, types)
	return m
}

// DrawMixedRows is DrawMixedMap with reductions of integers, and maxima and minima of floating-point numbers.
func DrawMixedRows(t *rapid.T, size int) *Mixed {
	m := &Mixed{PerRow: []bool{}}
	types := m.drawOperands(t, false)
	for a := range m.Shape {
		if rapid.Bool().Draw(t, "reduced") {
			m.Axes = append(m.Axes, a)
		}
	}
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

// drawOperands draws the shape, views and buffers.
func (m *Mixed) drawOperands(t *rapid.T, bounded bool) (types []expr.Dtype) {
	n := 1
	for range rapid.IntRange(1, 4).Draw(t, "rank") {
		extent := rapid.SampledFrom([]int{1, 2, 3, 4, 8, 16, 17, 40, 300}).Draw(t, "extent")
		if n*extent > 3000 {
			extent = 1
		}
		n *= extent
		m.Shape = append(m.Shape, extent)
	}
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

// build makes the function.
func (m *Mixed) build(t *rapid.T, types []expr.Dtype) {
	var whole func(x *Term) *Term
	whole = func(x *Term) *Term {
		return x.replaced(func(o *Term) *Term {
			if o.Index < len(types) {
				return o
			}
			return whole(m.reductions[o.Index-len(types)])
		})
	}
	var outputs []*Term
	for _, x := range m.terms {
		outputs = append(outputs, whole(x))
	}
	var err error
	if m.Func, err = Func(types, outputs...); err != nil {
		t.Fatal(err)
	}
}

// replaced returns the term with other terms in place of its operands.
func (t *Term) replaced(by func(operand *Term) *Term) *Term {
	if t.Kind == Operand {
		return by(t)
	}
	u := *t
	u.Args = nil
	for _, a := range t.Args {
		u.Args = append(u.Args, a.replaced(by))
	}
	return &u
}

// Inputs returns the memory of the operands that have some.
func (m *Mixed) Inputs() (list [][]byte) {
	for i, d := range m.Func.Operands() {
		if !m.Views[i].Iota {
			list = append(list, PackBits(d, m.Buffers[i]))
		}
	}
	return list
}

// Want returns the outputs' elements by [Term.Element].
func (m *Mixed) Want() [][]uint64 {
	n := 1
	for _, d := range m.Shape {
		n *= d
	}
	elements, rows := make([][]uint64, n), []int{} // operands by element; a row's first element
	for k := range elements {
		for i, v := range m.Views {
			elements[k] = append(elements[k], v.element(m.Shape, k, m.Buffers[i]))
		}
		if row, first := RowOf(m.Shape, m.Axes, k); first {
			for len(rows) <= row {
				rows = append(rows, 0)
			}
			rows[row] = k
		}
	}
	for _, r := range m.reductions {
		results := make([]uint64, len(rows))
		for k, operands := range elements {
			row, _ := RowOf(m.Shape, m.Axes, k)
			x := convertBits(r.Args[0].Dtype, r.Dtype, r.Args[0].Element(operands))
			if k == rows[row] {
				results[row] = x
			} else {
				results[row] = r.join(results[row], x)
			}
		}
		for k := range elements {
			row, _ := RowOf(m.Shape, m.Axes, k)
			elements[k] = append(elements[k], results[row])
		}
	}
	want := make([][]uint64, len(m.terms))
	for i, x := range m.terms {
		if m.PerRow != nil && m.PerRow[i] {
			for _, k := range rows {
				want[i] = append(want[i], x.Element(elements[k]))
			}
			continue
		}
		for _, operands := range elements {
			want[i] = append(want[i], x.Element(operands))
		}
	}
	return want
}

// join returns a reduction of two elements.
func (t *Term) join(x, y uint64) uint64 {
	op := map[expr.Op]expr.Op{expr.RowSum: expr.Add, expr.RowMax: expr.Max, expr.RowMin: expr.Min}[t.Op]
	if t.Dtype.IsFloat() {
		v, _ := exactly(op, []float64{floatOf(t.Dtype, x), floatOf(t.Dtype, y)})
		return bitsOf(t.Dtype, v)
	}
	return integrally(op, t.Dtype, t.Dtype, []uint64{x, y})
}

// element returns element k of a shape.
func (v View) element(shape []int, k int, buffer []uint64) uint64 {
	at := v.Offset
	for a := len(shape) - 1; a >= 0; a-- {
		index := k % shape[a]
		k /= shape[a]
		if b := v.Bounds; b.To > 0 && b.Axis == a {
			if index < b.From || index >= b.To {
				return 0
			}
			index -= b.From
		}
		at += int64(index * v.Strides[a])
	}
	if v.Iota {
		return wrapped(expr.Int64, big.NewInt(at))
	}
	return buffer[at]
}

// Integers draws n elements of an integer type.
func Integers(r *rand.Rand, d expr.Dtype, n int) []uint64 {
	list := make([]uint64, n)
	for i := range list {
		list[i] = r.Uint64() >> (64 - 8*d.Size()) >> r.IntN(8*int(d.Size()))
	}
	return list
}

// CheckIntegers compares the outputs of [Reductions] for integers x, given by their memory, with those of a plain loop.
func (s RowShape) CheckIntegers(d expr.Dtype, x []uint64, outputs [][]byte) error {
	shift := 64 - 8*d.Size()
	signed := func(d expr.Dtype, bits uint64) int64 {
		if d == expr.Uint8 {
			return int64(bits)
		}
		return int64(bits<<shift) >> shift
	}
	var want [3][]int64 // sums, maxima, minima
	for i, bits := range x {
		row, first := RowOf(s.Shape, s.Axes, i)
		for k := range want {
			for len(want[k]) <= row {
				want[k] = append(want[k], 0)
			}
		}
		v := signed(d, bits)
		want[0][row] += v
		if first || v > want[1][row] {
			want[1][row] = v
		}
		if first || v < want[2][row] {
			want[2][row] = v
		}
	}
	sums := UnpackBits(expr.Int64, outputs[0])
	extremes := [][]uint64{nil, UnpackBits(d, outputs[1]), UnpackBits(d, outputs[2])}
	for row, sum := range want[0] {
		if got := int64(sums[row]); got != sum {
			return fmt.Errorf("%v over %v of %v: the sum of row %d is %d, want %d", d, s.Axes, s.Shape, row, got, sum)
		}
		for k := 1; k < 3; k++ {
			if got := signed(d, extremes[k][row]); got != want[k][row] {
				return fmt.Errorf("%v over %v of %v: extreme %d of row %d is %d, want %d", d, s.Axes, s.Shape, k, row, got, want[k][row])
			}
		}
	}
	return nil
}
