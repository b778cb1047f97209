package bench

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
	"pgregory.net/rapid"
)

// Kernels that compute several rows of a matrix times a vector together, and load what is constant early, compute the bits of kernels for one row.
func TestRowsTogetherOnGPU(t *testing.T) {
	dev := device0(t)
	if dev.Major < 9 {
		t.Skipf("got %s, want compute capability 9.0", dev.Name)
	}
	older := dev
	older.Major = 8 // whose kernels prefetch nothing
	testutil.CheckProperty(t, func(t *rapid.T) {
		rows := rapid.SampledFrom([]int{2, 4, 8, 1}).Draw(t, "each") * dev.SMs * rapid.IntRange(2, 5).Draw(t, "blocks")
		columns := rapid.SampledFrom([]int{36, 260, 768, 770, 1024, 2500, 3072}).Draw(t, "columns")
		shape := []int{rows, columns}
		as := rapid.SampledFrom([]expr.Dtype{expr.Float32, expr.BF16, expr.F16}).Draw(t, "type")
		b := expr.NewBuilder(expr.Float32, as, expr.Float32, expr.Float32, expr.Float32)
		x, w, gain, bias, residual := b.Operand(0), b.Convert(b.Operand(1), expr.Float32), b.Operand(2), b.Operand(3), b.Operand(4)
		if rapid.Bool().Draw(t, "normalized") {
			x = b.Apply(expr.Sub, x, b.Apply(expr.Div, b.Apply(expr.RowSum, x), b.Constant(expr.Float32, float64(columns))))
			x = b.Apply(expr.Div, x, b.Apply(expr.Sqrt, b.Apply(expr.RowSum, b.Apply(expr.Mul, x, x))))
		}
		x = b.Apply(expr.Mul, b.Apply(expr.Mul, x, gain), w)
		outputs := []expr.Value{b.Apply(expr.Add, residual, b.Apply(expr.Tanh, b.Apply(expr.Add, b.Apply(expr.RowSum, x), bias)))}
		if rapid.Bool().Draw(t, "maximum") {
			outputs = append(outputs, b.Apply(expr.RowMax, x))
		}
		f, err := b.Func(outputs...)
		if err != nil {
			t.Fatal(err)
		}
		vector, ofRow := codegen.View{Elements: int64(columns), Strides: []int{0, 1}}, codegen.View{Elements: int64(rows), Strides: []int{1, 0}}
		views := []codegen.View{vector, codegen.Dense(shape), vector, ofRow, ofRow}
		matmul := rapid.Bool().Draw(t, "matmul")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		var in [][]byte
		for i, d := range f.Operands() {
			views[i].Constant, views[i].Matmul = rapid.Bool().Draw(t, "constant"), i == 1 && matmul
			in = append(in, exprtest.Pack(d, rowValues(r, int(views[i].Elements), expr.Float32, false)))
		}
		run := func(dev kernels.Device) (*kernels.Plan, []byte) {
			perRow := []bool{true, true}[:len(outputs)]
			p, err := codegen.Rows(dev, f, shape, []int{1}, perRow, views...)
			if err != nil {
				t.Fatal(err)
			}
			out := exprtest.Memory(p.Out)
			if err := Run(0, p, in, out); err != nil {
				t.Fatalf("%v: %v", p, err)
			}
			return p, out
		}
		together, got := run(dev)
		one, want := run(older)
		if !bytes.Equal(got, want) {
			t.Fatalf("the bits of %v are not those of %v", together, one)
		}
		views[1].Matmul = false
		_, double := run(dev)
		sums := kernels.Elements[float32](double)
		for i, y := range kernels.Elements[float32](got) { // of terms of about 1, with a derivative of at most 1 by the sum
			if d := math.Abs(float64(y - sums[i])); d > 1e-6*float64(columns) {
				t.Fatalf("%v: element %d is %v, and %v with sums in double", together, i, y, sums[i])
			}
		}
	})
}
