package exprtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/kernels/expr"
)

// RowShape is a shape and axes along which its rows lie.
type RowShape struct{ Shape, Axes []int }

// RowShapes are of all kinds: short and long rows along and across the innermost axis,
// extents that vectors divide and that they don't, and rows that are split.
var RowShapes = []RowShape{
	{[]int{1}, []int{0}}, {[]int{7}, nil}, {[]int{1, 1}, []int{0, 1}}, {[]int{3, 1}, []int{1}}, {[]int{1, 3}, []int{0}},
	{[]int{5, 10}, []int{1}}, {[]int{301, 4}, []int{1}}, {[]int{33, 128}, []int{1}}, {[]int{17, 1000}, []int{1}}, {[]int{3, 1009}, []int{1}},
	{[]int{1201, 1000}, []int{1}}, {[]int{2, 4096}, []int{1}}, {[]int{2, 20000}, []int{1}}, {[]int{2, 32768}, []int{1}}, {[]int{2, 50_257}, []int{1}}, {[]int{67, 65536}, []int{1}}, {[]int{1, 100_003}, []int{1}}, {[]int{2, 200_000}, []int{1}},
	{[]int{10, 5}, []int{0}}, {[]int{4, 301}, []int{0}}, {[]int{128, 33}, []int{0}}, {[]int{1000, 64}, []int{0}}, {[]int{100_003, 3}, []int{0}}, {[]int{5000, 12}, []int{0}},
	{[]int{12, 100_000}, []int{0}}, {[]int{5, 7, 12}, []int{1}}, {[]int{5, 7, 12}, []int{0, 2}}, {[]int{8, 16, 7, 4}, []int{0, 2, 3}}, {[]int{6, 5, 4, 3}, []int{1, 3}},
	{[]int{2, 300, 8, 100}, []int{1, 3}}, {[]int{2, 2, 2, 2, 2, 2}, []int{0, 2, 4}},
}

// Elements returns the number of elements of the shape.
func (s RowShape) Elements() int {
	n := 1
	for _, d := range s.Shape {
		n *= d
	}
	return n
}

// Reductions is the function of the sum, the maximum and the minimum of a row.
func Reductions(d expr.Dtype) (expr.Func, error) {
	b := expr.NewBuilder(d)
	return b.Func(b.Apply(expr.RowSum, b.Operand(0)), b.Apply(expr.RowMax, b.Operand(0)), b.Apply(expr.RowMin, b.Operand(0)))
}

// reduced is a row's reductions, made one element after the other.
type reduced struct{ sum, most, least, magnitude float64 }

// CheckReductions compares the outputs of [Reductions] for elements x with those of a plain loop, sums within the effect of the order of additions.
func (s RowShape) CheckReductions(d expr.Dtype, x []float64, outputs [][]float64) error {
	var rows []reduced
	for i, v := range x {
		row, _ := RowOf(s.Shape, s.Axes, i)
		for len(rows) <= row {
			rows = append(rows, reduced{0, math.Inf(-1), math.Inf(1), 0})
		}
		r := &rows[row]
		r.sum, r.magnitude = r.sum+v, r.magnitude+math.Abs(v)
		r.most, r.least = greater(r.most, v), -greater(-r.least, -v)
	}
	for i, r := range rows {
		want, allowed := r.sum, r.magnitude*float64(len(x)/len(rows))*0x1p-53
		if d == expr.Float32 {
			want, allowed = float64(float32(want)), allowed+math.Abs(want)*0x1p-23+0x1p-149
		}
		if got := outputs[0][i]; !Same(got, want) && !(math.Abs(got-want) <= allowed) || got == 0 && math.Signbit(got) {
			return fmt.Errorf("%v over %v of %v: the sum of row %d is %v, want %v", d, s.Axes, s.Shape, i, got, want)
		}
		if most, least := outputs[1][i], outputs[2][i]; !Same(most, r.most) || !Same(least, r.least) {
			return fmt.Errorf("%v over %v of %v: the extremes of row %d are %v and %v, want %v and %v", d, s.Axes, s.Shape, i, most, least, r.most, r.least)
		}
	}
	return nil
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

// greater returns the greater of two numbers, of which -0 is less than 0, or NaN.
func greater(x, y float64) float64 {
	switch {
	case math.IsNaN(x) || math.IsNaN(y):
		return math.NaN()
	case y > x || y == x && math.Signbit(x):
		return y
	}
	return x
}

// RowFunction is a function with reductions that is common in graphs. Operands has a letter for
// each: e if it has an element for each of the shape, c for each column, 1 in all.
type RowFunction struct {
	Name     string
	Func     expr.Func
	Operands string
	PerRow   []bool
}

// Views returns the operands' views of a shape.
func (f RowFunction) Views(s RowShape) (views []View) {
	for _, o := range f.Operands {
		v := View{Elements: 1, Strides: make([]int, len(s.Shape))}
		for a := len(s.Shape) - 1; a >= 0 && o != '1'; a-- {
			if o == 'e' || slices.Contains(s.Axes, a) {
				v.Strides[a] = int(v.Elements)
				v.Elements *= int64(s.Shape[a])
			}
		}
		views = append(views, v)
	}
	return views
}

// rowFunctions are the functions by operands, outputs, r of which a row has one and e of each element, and text: values by name, then the
// outputs, in the language of [expr.ParseRows], of operands x, y, z and w. The loss of values of each element is their sum in float64.
// Gradients are of a loss and its derivative, as the compiler makes them of Gorgonia's graph.
var rowFunctions = [][4]string{
	{"softmax", "e", "e", "e = exp(x - rowmax(x)); e / rowsum(e)"},
	{"log-softmax", "e", "e", "c = x - rowmax(x); c - log(rowsum(exp(c)))"},
	{"softmax backward", "ee", "e", "x * (y - rowsum(x * y))"}, // of the softmax and of the loss's derivative by it
	// Of elements, weights and biases by column, and the inverse of the columns.
	{"layer norm", "ecc1", "e", "c = x - rowsum(x) * w; v = rowsum(c * c) * w; c * (1 / sqrt(v + 1e-5)) * y + z"},
	{"cross-entropy", "ee", "re", "c = x - rowmax(x); e = exp(c); s = rowsum(e); log(s) - rowsum(y * c); e / s - y"}, // of logits and the probabilities wanted
	{"sum", "e", "r", "rowsum(x)"},
	{"distance", "ee", "r", "c = x - y; sqrt(rowsum(c * c))"},
	{"normalize", "e1", "e", "c = x - rowsum(x) * y; v = rowsum(c * c) * y; c * (1 / sqrt(v + 1e-5))"}, // layer norm without weights
	{"softmax gradient", "ee", "re", "e = exp(x - rowmax(x)); s = e / rowsum(e); v = s * y; loss v; s * (y - rowsum(v))"},
	{"log-softmax gradient", "ee", "re", "c = x - rowmax(x); s = c - log(rowsum(exp(c))); v = s * y; loss v; y - exp(s) * rowsum(y)"},
	{"layer norm gradient", "ee1", "re", "c = x - rowsum(x) * z; d = sqrt(rowsum(c * c) * z + 1e-5); n = c / d; v = n * y; loss v; " + // by quotients
		"a = rowsum(-(n / d) * y); s = a / (2 * d) * z; t = y / d + c * 2 * s; t + rowsum(-t) * z"},
}

// RowFunctions returns functions of an element type.
func RowFunctions(d expr.Dtype) (list []RowFunction, err error) {
	for _, c := range rowFunctions {
		f := RowFunction{Name: c[0], Operands: c[1]}
		for _, o := range c[2] {
			f.PerRow = append(f.PerRow, o == 'r')
		}
		if f.Func, err = rowFunction(d, len(f.Operands), c[3]); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		list = append(list, f)
	}
	return list, nil
}

// rowFunction reads a function of some operands.
func rowFunction(d expr.Dtype, operands int, text string) (expr.Func, error) {
	b, names := expr.NewBuilder(slices.Repeat([]expr.Dtype{d}, operands)...), []string{"x", "y", "z", "w"}[:operands]
	values, outputs := b.Inputs(), []expr.Value(nil)
	for part := range strings.SplitSeq(text, "; ") {
		name, value, named := strings.Cut(part, " = ")
		if !named {
			value = part
		}
		of, loss := strings.CutPrefix(value, "loss ")
		f, err := expr.ParseRows(of, d, names...)
		if err != nil {
			return expr.Func{}, err
		}
		v := b.Inline(f, values...)[0]
		switch {
		case named:
			names, values = append(names, name), append(values, v)
		case loss:
			outputs = append(outputs, b.Apply(expr.RowSum, b.Convert(v, expr.Float64)))
		default:
			outputs = append(outputs, v)
		}
	}
	return b.Func(outputs...)
}
