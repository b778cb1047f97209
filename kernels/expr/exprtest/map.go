package exprtest

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels/expr"
	"pgregory.net/rapid"
)

// View describes where the elements of a shape are in a buffer, as codegen.View does.
type View struct {
	Elements int64
	Offset   int64
	Strides  []int
	Bounds   struct{ Axis, From, To int }
	Stream   struct { // 0 for none
		Number int
		Normal bool
	}
	Iota     bool
	Constant bool
	Matmul   bool
}

// Map is a function applied to views: of elements, or with reductions of rows. A row is all elements that differ in the indices along the axes alone.
type Map struct {
	Func       expr.Func
	Shape      []int
	Axes       []int
	PerRow     []bool // by output: a row has one element of it; nil without rows
	Views      []View
	Buffers    [][]uint64 // memory of the elements of each operand's buffer, or of its stream; nil of an iota
	State      [2]int64   // seed and run of the streams
	reductions []*Term    // operations on a term of the operands and of the reductions before, which are operands behind them
	terms      []*Term    // the outputs, of both
}

// MapTypes are the types of the operands that DrawMap takes from.
var MapTypes = []expr.Dtype{expr.Float32, expr.Float64, expr.Float32, expr.Bool, expr.Float32, expr.Int32, expr.Uint8, expr.Int64, expr.Float64}

// DrawMap draws a function of up to 4 operands and of up to 3 outputs of up to size operations, a shape of rank 0 to 6 and views of all
// sorts: dense, scalar, broadcast along any axes, transposed, sliced.
func DrawMap(t *rapid.T, ops []expr.Op, size int) *Map {
	m := &Map{}
	m.drawShape(t, 0, 6, 6000, 1, 2, 3, 4, 5, 8, 16, 33, 100)
	types, _, _ := m.drawOperands(t, MapTypes)
	for range rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "outputs") {
		d := rapid.SampledFrom([]expr.Dtype{expr.Float32, expr.Float64, expr.Bool}).Draw(t, "output")
		if d == expr.Bool {
			m.terms = append(m.terms, condition(t, types, ops, size))
		} else {
			m.terms = append(m.terms, Draw(t, types, d, ops, size))
		}
	}
	m.build(t, types)
	return m
}

// drawShape draws a shape of a rank in a range and of at most so many elements.
func (m *Map) drawShape(t *rapid.T, least, most, elements int, extents ...int) {
	for range rapid.IntRange(least, most).Draw(t, "rank") {
		extent := rapid.SampledFrom(extents).Draw(t, "extent")
		if m.Elements()*extent > elements {
			extent = 1
		}
		m.Shape = append(m.Shape, extent)
	}
}

// drawAxes draws the axes of rows.
func (m *Map) drawAxes(t *rapid.T) {
	m.PerRow = []bool{}
	for a := range m.Shape {
		if rapid.Bool().Draw(t, "reduced") {
			m.Axes = append(m.Axes, a)
		}
	}
}

// drawOperands draws up to 4 operands of some types, or all of float32, with their views and buffers. Some are the same along a row.
func (m *Map) drawOperands(t *rapid.T, from []expr.Dtype) (types []expr.Dtype, uniform bool, ofRow []int) {
	types, rows := make([]expr.Dtype, rapid.IntRange(0, 4).Draw(t, "operands")), m.PerRow != nil
	uniform = rapid.Bool().Draw(t, "uniform")
	for i := range types {
		types[i] = rapid.SampledFrom(from).Draw(t, "type")
		if uniform {
			types[i] = expr.Float32
		}
		v := drawView(t, m.Shape, !rows)
		if rows && rapid.IntRange(0, 3).Draw(t, "same along a row") == 0 {
			ofRow = append(ofRow, i)
			for _, a := range m.Axes {
				v.Strides[a] = 0
			}
		}
		few, buffer := Values(t, types[i], 11), make([]uint64, v.Elements)
		for k := range buffer {
			at := k
			if rows {
				at += k / 11
			}
			buffer[k] = bitsOf(types[i], few[at%11])
		}
		m.drawStream(t, types[i], &v, buffer)
		m.Views, m.Buffers = append(m.Views, v), append(m.Buffers, buffer)
	}
	return types, uniform, ofRow
}

// drawView draws a view, with bounds if it may be bounded.
func drawView(t *rapid.T, shape []int, bounded bool) View {
	v := View{Strides: make([]int, len(shape))}
	sort := rapid.SampledFrom([]string{"dense", "dense", "scalar", "broadcast", "transposed", "sliced", "any"}).Draw(t, "view")
	axes := make([]int, len(shape)) // from the outermost in memory
	for a := range axes {
		axes[a] = a
	}
	if sort == "transposed" || sort == "any" {
		axes = rapid.Permutation(axes).Draw(t, "axes")
	}
	if rank := len(shape); bounded && rank > 0 && rapid.IntRange(0, 3).Draw(t, "bounded") == 0 {
		v.Bounds.Axis = rapid.IntRange(0, rank-1).Draw(t, "bounded axis")
		v.Bounds.From = rapid.IntRange(0, shape[v.Bounds.Axis]-1).Draw(t, "from")
		v.Bounds.To = rapid.IntRange(v.Bounds.From+1, shape[v.Bounds.Axis]).Draw(t, "to")
	}
	n, last := 1, 0
	for i := len(axes) - 1; i >= 0; i-- {
		a, step, pad := axes[i], 1, 0
		if sort == "scalar" || (sort == "broadcast" || sort == "any") && rapid.Bool().Draw(t, "repeated") {
			continue
		}
		if sort == "sliced" || sort == "any" {
			step, pad = rapid.IntRange(1, 2).Draw(t, "step"), rapid.IntRange(0, 4).Draw(t, "pad")
		}
		v.Strides[a] = n * step
		extent := shape[a]
		if v.Bounds.To > 0 && v.Bounds.Axis == a {
			extent = v.Bounds.To - v.Bounds.From
		}
		last += v.Strides[a] * (extent - 1)
		n *= extent*step + pad
	}
	if sort != "dense" || rapid.IntRange(0, 3).Draw(t, "offset at all") == 0 {
		v.Offset = int64(rapid.IntRange(0, 9).Draw(t, "offset"))
	}
	v.Elements = v.Offset + int64(last) + 1
	return v
}

// Elements returns the number of elements of the output.
func (m *Map) Elements() int {
	n := 1
	for _, d := range m.Shape {
		n *= d
	}
	return n
}

// build makes the function.
func (m *Map) build(t *rapid.T, types []expr.Dtype) {
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
func (m *Map) Inputs() (list [][]byte) {
	for i, d := range m.Func.Operands() {
		switch v := m.Views[i]; {
		case v.Stream.Number != 0:
			list = append(list, PackBits(expr.Int64, []uint64{uint64(m.State[0]), uint64(m.State[1])}))
		case !v.Iota:
			list = append(list, PackBits(d, m.Buffers[i]))
		}
	}
	return list
}

// Outputs returns the number of elements of each output.
func (m *Map) Outputs() []int {
	list := slices.Repeat([]int{m.Elements()}, len(m.terms))
	for k, perRow := range m.PerRow {
		if perRow {
			list[k] = len(m.rows())
		}
	}
	return list
}

// rows returns the first element of each row.
func (m *Map) rows() (first []int) {
	for k := range m.Elements() {
		if row, is := m.Row(k); is {
			first = append(first, make([]int, max(row+1-len(first), 0))...)
			first[row] = k
		}
	}
	return first
}

// Check returns an error unless outputs, which begin at those places of memory, have the bits that the operations compute one by one, by
// [Term.Unfused] of operands looked up element by element. For reductions in the function apply returns each row's at all of its elements.
func (m *Map) Check(out []byte, parts []int64, apply Apply) error {
	n, rows, operands := m.Elements(), m.rows(), make([][]uint64, len(m.Views))
	for i, v := range m.Views {
		for k := range n {
			operands[i] = append(operands[i], v.element(m.Shape, k, m.Buffers[i]))
		}
	}
	for _, r := range m.reductions {
		x, err := r.Args[0].Unfused(n, operands, apply)
		if err != nil {
			return err
		}
		results, all := make([]uint64, len(rows)), make([]uint64, n)
		for k := range x {
			row, _ := m.Row(k)
			v := convertBits(r.Args[0].Dtype, r.Dtype, x[k])
			if k != rows[row] {
				v = r.join(results[row], v)
			}
			results[row] = v
		}
		for k := range all {
			row, _ := m.Row(k)
			all[k] = results[row]
		}
		operands = append(operands, all)
	}
	for k, n := range m.Outputs() {
		x := m.terms[k]
		want, err := x.Unfused(m.Elements(), operands, apply)
		if err != nil {
			return err
		}
		for i, got := range UnpackBits(x.Dtype, out[parts[k]:][:int64(n)*x.Dtype.Size()]) {
			at := i
			if m.PerRow != nil && m.PerRow[k] {
				at = rows[i]
			}
			if !SameBits(x.Dtype, got, want[at]) {
				return fmt.Errorf("element %d of output %d of %v is %#x, want %#x", i, k, m.Func, got, want[at])
			}
		}
	}
	return nil
}

// join returns a reduction of two elements.
func (t *Term) join(x, y uint64) uint64 {
	op := map[expr.Op]expr.Op{expr.RowSum: expr.Add, expr.RowMax: expr.Max, expr.RowMin: expr.Min}[t.Op]
	joined := Term{Kind: Operation, Dtype: t.Dtype, Op: op, Args: []*Term{t, t}}
	return joined.exact([]uint64{x, y})
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
		return uint64(at)
	}
	return buffer[at]
}
