package ops

import (
	"math"
	"reflect"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Functions of rows with indices have the gradients of their formulas: a softmax with a causal mask, the cross-entropy of integer labels, and a sum
// weighted by the index, whose gradient has no reduction.
func TestGradientsWithIndices(t *testing.T) {
	const rows, columns = 5, 6
	shape, r := tensor.Shape{rows, columns}, testutil.Random(t)
	x, labels, w := make([]float64, rows*columns), make([]int, rows), make([]float64, rows*columns)
	for i := range x {
		x[i], w[i] = r.NormFloat64(), r.NormFloat64()
	}
	for i := range labels {
		labels[i] = r.IntN(columns)
	}
	column, row := indexAlong(1, shape), indexAlong(0, shape)
	softmax := func(b *expr.Builder, x expr.Value) expr.Value {
		e := b.Apply(expr.Exp, b.Apply(expr.Sub, x, b.Apply(expr.RowMax, x)))
		return b.Apply(expr.Div, e, b.Apply(expr.RowSum, e))
	}
	for _, c := range []struct {
		name  string
		types []kernels.Dtype // of x, of labels if there are any, and of iotas
		iotas [][]int
		out   rowOut
		f     func(b *expr.Builder) expr.Value
		loss  func(x []float64) float64 // of a row r, weighted by w
	}{
		{"causal", []kernels.Dtype{kernels.Float64, kernels.Int64, kernels.Int64}, [][]int{column, row}, ofElements, func(b *expr.Builder) expr.Value {
			return softmax(b, b.Apply(expr.Select, b.Apply(expr.Le, b.Operand(1), b.Operand(2)), b.Operand(0), b.Constant(kernels.Float64, math.Inf(-1))))
		}, func(x []float64) (loss float64) {
			for i := range rows {
				sum := 0.0
				for k := range i + 1 {
					sum += math.Exp(x[i*columns+k])
				}
				for k := range i + 1 {
					loss += w[i*columns+k] * math.Exp(x[i*columns+k]) / sum
				}
			}
			return loss
		}},
		{"cross-entropy", []kernels.Dtype{kernels.Float64, kernels.Int, kernels.Int64}, [][]int{column}, ofRows, func(b *expr.Builder) expr.Value {
			x := b.Operand(0)
			is := b.Apply(expr.Eq, b.Convert(b.Operand(1), kernels.Int64), b.Operand(2))
			return b.Apply(expr.Sub, b.Apply(expr.Log, b.Apply(expr.RowSum, b.Apply(expr.Exp, x))), b.Apply(expr.RowSum, b.Apply(expr.Select, is, x, b.Constant(kernels.Float64, 0))))
		}, func(x []float64) (loss float64) {
			for i, label := range labels {
				sum := 0.0
				for _, v := range x[i*columns:][:columns] {
					sum += math.Exp(v)
				}
				loss += w[i] * (math.Log(sum) - x[i*columns+label])
			}
			return loss
		}},
		{"weighted", []kernels.Dtype{kernels.Float64, kernels.Int64}, [][]int{column}, ofRows, func(b *expr.Builder) expr.Value {
			return b.Apply(expr.RowSum, b.Apply(expr.Mul, b.Operand(0), b.Convert(b.Operand(1), kernels.Float64)))
		}, func(x []float64) (loss float64) {
			for i, v := range x {
				loss += w[i/columns] * v * float64(i%columns)
			}
			return loss
		}},
	} {
		g := gorgonia.NewGraph()
		in := gorgonia.Nodes{gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(shape...), gorgonia.WithValue(tensor.New(tensor.WithShape(shape...), tensor.WithBacking(x))))}
		if len(c.types) > 1+len(c.iotas) {
			in = append(in, gorgonia.NewMatrix(g, tensor.Int, gorgonia.WithName("labels"), gorgonia.WithShape(rows, 1), gorgonia.WithValue(tensor.New(tensor.WithShape(rows, 1), tensor.WithBacking(labels)))))
		}
		b := expr.NewBuilder(c.types...)
		f := testutil.Get[expr.Func](t)(b.Func(c.f(b)))
		y := testutil.Get[*gorgonia.Node](t)(Apply(rowFunc{name: c.name, f: f, shape: shape, axes: []int{1}, out: c.out, iotas: c.iotas}, in...))
		weights := gorgonia.NewTensor(g, tensor.Float64, y.Dims(), gorgonia.WithName("w"), gorgonia.WithShape(y.Shape()...), gorgonia.WithValue(tensor.New(tensor.WithShape(y.Shape()...), tensor.WithBacking(w[:y.Shape().TotalSize()]))))
		loss := testutil.Get[*gorgonia.Node](t)(Sum(testutil.Get[*gorgonia.Node](t)(Map("a * b", y, weights))))
		dx := testutil.Get[gorgonia.Nodes](t)(gorgonia.Grad(loss, in[0]))[0]
		if gorgonia.CUDA {
			t.Skip("in a build with the tag cuda, Gorgonia's tape machine is its CUDA machine")
		}
		vm := gorgonia.NewTapeMachine(g)
		testutil.Do(t, vm.RunAll())
		if got, want := loss.Value().Data().(float64), c.loss(x); math.Abs(got-want) > 1e-12 {
			t.Errorf("%s: got the loss %v, want %v", c.name, got, want)
		}
		for i, got := range dx.Value().Data().([]float64) {
			const h = 1e-5
			at := append([]float64(nil), x...)
			at[i] += h
			up := c.loss(at)
			at[i] -= 2 * h
			if want := (up - c.loss(at)) / (2 * h); math.Abs(got-want) > 1e-8 {
				t.Errorf("%s: got the gradient %v at %d, want %v", c.name, got, i, want)
			}
		}
		testutil.Do(t, vm.Close())
	}
}

// Sums of integers are of int64 and wrap, maxima and minima have the type of the integers.
func TestIntegerReductions(t *testing.T) {
	for _, c := range []struct {
		x    any
		of   func(x *gorgonia.Node, along ...int) (*gorgonia.Node, error)
		want any
	}{
		{[]uint8{200, 100, 255, 1, 2, 3}, Sum, []int64{555, 6}}, {[]int32{math.MaxInt32, 1, -5, 0, 0, -1}, Sum, []int64{math.MaxInt32 - 4, -1}},
		{[]int64{math.MaxInt64, 1, 0, 1, 2, 3}, Sum, []int64{math.MinInt64, 6}}, {[]bool{true, false, true, true, true, true}, Sum, []int64{2, 3}},
		{[]uint8{200, 100, 255, 1, 2, 3}, Max, []uint8{255, 3}}, {[]int{-7, -9, -8, math.MinInt, 1, 0}, Min, []int{-9, math.MinInt}},
	} {
		v := tensor.New(tensor.WithShape(2, 3), tensor.WithBacking(c.x))
		x := gorgonia.NewMatrix(gorgonia.NewGraph(), v.Dtype(), gorgonia.WithName("x"), gorgonia.WithShape(2, 3))
		y := testutil.Get[*gorgonia.Node](t)(c.of(x, 1))
		if got := testutil.Get[gorgonia.Value](t)(y.Op().Do(v)).Data(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v of %v: got %v, want %v", y, c.x, got, c.want)
		}
	}
}
