package exprtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

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

// CheckReductions compares the outputs of [Reductions] for elements x with those of a plain loop,
// sums within the effect of the order of additions.
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

// rowBuilder builds a function of one element type.
type rowBuilder struct {
	*expr.Builder
	d expr.Dtype
}

func (b rowBuilder) number(v float64) expr.Value { return b.Constant(b.d, v) }

// RowFunctions returns functions of an element type.
func RowFunctions(d expr.Dtype) (list []RowFunction, err error) {
	for _, c := range []struct {
		name, operands string
		perRow         []bool
		outputs        func(b rowBuilder, x []expr.Value) []expr.Value
	}{
		{"softmax", "e", []bool{false}, softmax},
		{"log-softmax", "e", []bool{false}, logSoftmax},
		{"softmax backward", "ee", []bool{false}, softmaxBackward},
		{"layer norm", "ecc1", []bool{false}, layerNorm},
		{"cross-entropy", "ee", []bool{true, false}, crossEntropy},
		{"sum", "e", []bool{true}, func(b rowBuilder, x []expr.Value) []expr.Value { return []expr.Value{b.Apply(expr.RowSum, x[0])} }},
		{"distance", "ee", []bool{true}, distance},
		{"normalize", "e1", []bool{false}, normalize},
		{"softmax gradient", "ee", []bool{true, false}, softmaxGradient},
		{"log-softmax gradient", "ee", []bool{true, false}, logSoftmaxGradient},
		{"layer norm gradient", "ee1", []bool{true, false}, layerNormGradient},
	} {
		b := rowBuilder{expr.NewBuilder(slices.Repeat([]expr.Dtype{d}, len(c.operands))...), d}
		var x []expr.Value
		for i := range c.operands {
			x = append(x, b.Operand(i))
		}
		f, err := b.Func(c.outputs(b, x)...)
		if err != nil {
			return nil, err
		}
		list = append(list, RowFunction{c.name, f, c.operands, c.perRow})
	}
	return list, nil
}

func softmax(b rowBuilder, x []expr.Value) []expr.Value {
	e := b.Apply(expr.Exp, b.Apply(expr.Sub, x[0], b.Apply(expr.RowMax, x[0])))
	return []expr.Value{b.Apply(expr.Div, e, b.Apply(expr.RowSum, e))}
}

func logSoftmax(b rowBuilder, x []expr.Value) []expr.Value {
	c := b.Apply(expr.Sub, x[0], b.Apply(expr.RowMax, x[0]))
	return []expr.Value{b.Apply(expr.Sub, c, b.Apply(expr.Log, b.Apply(expr.RowSum, b.Apply(expr.Exp, c))))}
}

// softmaxBackward is of the softmax and of the loss's derivative by it.
func softmaxBackward(b rowBuilder, x []expr.Value) []expr.Value {
	sum := b.Apply(expr.RowSum, b.Apply(expr.Mul, x[0], x[1]))
	return []expr.Value{b.Apply(expr.Mul, x[0], b.Apply(expr.Sub, x[1], sum))}
}

// normalize is layer norm without weights, of elements and the inverse of the columns.
func normalize(b rowBuilder, x []expr.Value) []expr.Value {
	center := b.Apply(expr.Sub, x[0], b.Apply(expr.Mul, b.Apply(expr.RowSum, x[0]), x[1]))
	variance := b.Apply(expr.Mul, b.Apply(expr.RowSum, b.Apply(expr.Mul, center, center)), x[1])
	scale := b.Apply(expr.Div, b.number(1), b.Apply(expr.Sqrt, b.Apply(expr.Add, variance, b.number(1e-5))))
	return []expr.Value{b.Apply(expr.Mul, center, scale)}
}

// layerNorm is of elements, weights and biases by column, and the inverse of the columns.
func layerNorm(b rowBuilder, x []expr.Value) []expr.Value {
	normal := normalize(b, []expr.Value{x[0], x[3]})
	return []expr.Value{b.Apply(expr.Add, b.Apply(expr.Mul, normal[0], x[1]), x[2])}
}

// crossEntropy is of logits and the probabilities wanted: a row's loss, and its derivative.
func crossEntropy(b rowBuilder, x []expr.Value) []expr.Value {
	c := b.Apply(expr.Sub, x[0], b.Apply(expr.RowMax, x[0]))
	e := b.Apply(expr.Exp, c)
	sum := b.Apply(expr.RowSum, e)
	loss := b.Apply(expr.Sub, b.Apply(expr.Log, sum), b.Apply(expr.RowSum, b.Apply(expr.Mul, x[1], c)))
	return []expr.Value{loss, b.Apply(expr.Sub, b.Apply(expr.Div, e, sum), x[1])}
}

// softmaxGradient is the sum of a softmax with weights, and its derivative, as the
// compiler makes them of Gorgonia's graph.
func softmaxGradient(b rowBuilder, x []expr.Value) []expr.Value {
	y := softmax(b, x)[0]
	weighted := b.Apply(expr.Mul, y, x[1])
	loss := b.Apply(expr.RowSum, b.Convert(weighted, expr.Float64))
	return []expr.Value{loss, b.Apply(expr.Mul, y, b.Apply(expr.Sub, x[1], b.Apply(expr.RowSum, weighted)))}
}

// logSoftmaxGradient is likewise of a log-softmax.
func logSoftmaxGradient(b rowBuilder, x []expr.Value) []expr.Value {
	y := logSoftmax(b, x)[0]
	loss := b.Apply(expr.RowSum, b.Convert(b.Apply(expr.Mul, y, x[1]), expr.Float64))
	return []expr.Value{loss, b.Apply(expr.Sub, x[1], b.Apply(expr.Mul, b.Apply(expr.Exp, y), b.Apply(expr.RowSum, x[1])))}
}

// layerNormGradient is likewise of a layer norm by quotients, of elements, weights and
// the inverse of the columns.
func layerNormGradient(b rowBuilder, x []expr.Value) []expr.Value {
	mean := func(v expr.Value) expr.Value { return b.Apply(expr.Mul, b.Apply(expr.RowSum, v), x[2]) }
	center := b.Apply(expr.Sub, x[0], mean(x[0]))
	deviation := b.Apply(expr.Sqrt, b.Apply(expr.Add, mean(b.Apply(expr.Mul, center, center)), b.number(1e-5)))
	y := b.Apply(expr.Div, center, deviation)
	loss := b.Apply(expr.RowSum, b.Convert(b.Apply(expr.Mul, y, x[1]), expr.Float64))
	along := b.Apply(expr.RowSum, b.Apply(expr.Mul, b.Apply(expr.Neg, b.Apply(expr.Div, y, deviation)), x[1]))
	scale := b.Apply(expr.Mul, b.Apply(expr.Div, along, b.Apply(expr.Mul, b.number(2), deviation)), x[2])
	t := b.Apply(expr.Add, b.Apply(expr.Div, x[1], deviation), b.Apply(expr.Mul, b.Apply(expr.Mul, center, b.number(2)), scale))
	return []expr.Value{loss, b.Apply(expr.Add, t, mean(b.Apply(expr.Neg, t)))}
}

func distance(b rowBuilder, x []expr.Value) []expr.Value {
	c := b.Apply(expr.Sub, x[0], x[1])
	return []expr.Value{b.Apply(expr.Sqrt, b.Apply(expr.RowSum, b.Apply(expr.Mul, c, c)))}
}
