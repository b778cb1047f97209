package exprtest

import (
	"github.com/stheno-ml/stheno/kernels/expr"
	"pgregory.net/rapid"
)

// View describes where the elements of a shape lie in a buffer, as kernels.View does.
type View struct {
	Elements int64
	Offset   int64
	Strides  []int
	Bounds   struct{ Axis, From, To int }
	Stream   struct { // 0 for none
		Number int
		Normal bool
	}
	Iota bool
}

// Map is a function applied to views.
type Map struct {
	Func    expr.Func
	Shape   []int
	Views   []View
	Buffers [][]float64 // elements of each operand's buffer, or of its stream
	State   [2]int64    // seed and run of the streams
	terms   []*Term
}

// MapTypes are the types of the operands that DrawMap takes from.
var MapTypes = []expr.Dtype{expr.Float32, expr.Float64, expr.Float32, expr.Bool, expr.Float32, expr.Int32, expr.Uint8, expr.Int64, expr.Float64}

// DrawMap draws a function of up to 4 operands and of up to 3 outputs of up to size operations, a shape of
// rank 0 to 6 and views of all sorts: dense, scalar, broadcast along any axes,
// transposed, sliced.
func DrawMap(t *rapid.T, ops []expr.Op, size int) *Map {
	m := &Map{}
	n := 1
	for range rapid.IntRange(0, 6).Draw(t, "rank") {
		extent := rapid.SampledFrom([]int{1, 2, 3, 4, 5, 8, 16, 33, 100}).Draw(t, "extent")
		if n*extent > 6000 {
			extent = 1
		}
		n *= extent
		m.Shape = append(m.Shape, extent)
	}
	types := make([]expr.Dtype, rapid.IntRange(0, 4).Draw(t, "operands"))
	uniform := rapid.Bool().Draw(t, "uniform")
	for i := range types {
		types[i] = rapid.SampledFrom(MapTypes).Draw(t, "type")
		if uniform {
			types[i] = expr.Float32
		}
		v := drawView(t, m.Shape, true)
		few := Values(t, types[i], 11)
		buffer := make([]float64, v.Elements)
		for k := range buffer {
			buffer[k] = few[k%len(few)]
		}
		m.drawStream(t, types[i], &v, buffer)
		m.Views, m.Buffers = append(m.Views, v), append(m.Buffers, buffer)
	}
	for range rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "outputs") {
		d := rapid.SampledFrom([]expr.Dtype{expr.Float32, expr.Float64, expr.Bool}).Draw(t, "output")
		if d == expr.Bool {
			m.terms = append(m.terms, condition(t, types, ops, size))
		} else {
			m.terms = append(m.terms, Draw(t, types, d, ops, size))
		}
	}
	f, err := Func(types, m.terms...)
	if err != nil {
		t.Fatal(err)
	}
	m.Func = f
	return m
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

// Want returns the outputs' elements, each operation run on its own as by
// [Term.Unfused].
func (m *Map) Want(apply Apply) ([][]float64, error) {
	n := m.Elements()
	operands := make([][]float64, len(m.Views))
	for i, v := range m.Views {
		operands[i] = make([]float64, n)
		for k := range n {
			at, rest, outside := v.Offset, k, false
			for a := len(m.Shape) - 1; a >= 0; a-- {
				index := rest % m.Shape[a]
				rest /= m.Shape[a]
				if v.Bounds.To > 0 && v.Bounds.Axis == a {
					outside = index < v.Bounds.From || index >= v.Bounds.To
					index -= v.Bounds.From
				}
				at += int64(index * v.Strides[a])
			}
			if !outside {
				operands[i][k] = m.Buffers[i][at]
			}
		}
	}
	want := make([][]float64, len(m.terms))
	for k, term := range m.terms {
		var err error
		if want[k], err = term.Unfused(n, operands, apply); err != nil {
			return nil, err
		}
	}
	return want, nil
}

// Inputs returns the operands' memory.
func (m *Map) Inputs() [][]byte {
	list := make([][]byte, len(m.Buffers))
	for i, d := range m.Func.Operands() {
		list[i] = Pack(d, m.Buffers[i])
		if m.Views[i].Stream.Number != 0 {
			list[i] = Pack(expr.Int64, []float64{float64(m.State[0]), float64(m.State[1])})
		}
	}
	return list
}
