package codegen

import (
	"math"
	"math/big"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
)

// Sums over a long axis that is not the last, in a launch that does not split it, are within a few roundings of the exact ones on the host.
func TestLongColumns(t *testing.T) {
	r, shape := testutil.Random(t), []int{1 << 15, 64}
	b := expr.NewBuilder(kernels.Float64)
	f := testutil.Get[expr.Func](t)(b.Func(b.Apply(expr.RowSum, b.Apply(expr.Max, b.Operand(0), b.Apply(expr.RowMin, b.Operand(0))))))
	p := testutil.Get[*kernels.Plan](t)(Rows(kernels.HostDevice(), f, shape, []int{0}, []bool{true}, Dense(shape)))
	x, got := make([]float64, shape[0]*shape[1]), make([]float64, shape[1])
	var exact [64]big.Float
	for i := range x {
		x[i] = r.Float64()
		sum := exact[i%64].SetPrec(100)
		sum.Add(sum, big.NewFloat(x[i]))
	}
	testutil.Do(t, p.Run([][]byte{kernels.Bytes(x)}, kernels.Bytes(got), nil))
	for i := range exact {
		if want, _ := exact[i].Float64(); math.Abs(got[i]-want) > 24*0x1p-52*want {
			t.Errorf("sum %d: got %v, want %v", i, got[i], want)
		}
	}
}

// BenchmarkHost runs Go bodies of one goroutine or several: elements in order, broadcast, transposed, padded and concatenated, and rows.
func BenchmarkHost(b *testing.B) {
	host, square, long := kernels.HostDevice(), []int{512, 512}, []int{4096, 8}
	row, column := viewAt(512, 0, 0, 1), viewAt(512, 0, 1, 0)
	sum := parseMap(b, "a + b", "a", "b")
	functions, err := exprtest.RowFunctions(kernels.Float32)
	if err != nil {
		b.Fatal(err)
	}
	softmax, builder := functions[0].Func, expr.NewBuilder(kernels.Float32, kernels.Float32)
	dot, err := builder.Func(builder.Apply(expr.RowSum, builder.Apply(expr.Mul, builder.Operand(0), builder.Operand(1))))
	if err != nil {
		b.Fatal(err)
	}
	rows := func(shape, axes []int, f expr.Func, operands ...View) func() (*kernels.Plan, error) {
		return func() (*kernels.Plan, error) {
			return Rows(host, f, shape, axes, []bool{f.Reductions() == 1}, operands...)
		}
	}
	mapped := func(shape []int, operands ...View) func() (*kernels.Plan, error) {
		return func() (*kernels.Plan, error) { return Map(host, sum, shape, operands...) }
	}
	for _, c := range []struct {
		name string
		plan func() (*kernels.Plan, error)
	}{
		{"dense", mapped(square, Dense(square), Dense(square))},
		{"small", mapped([]int{64}, Dense([]int{64}), Dense([]int{64}))},
		{"row", mapped(square, Dense(square), row)},
		{"column", mapped(square, Dense(square), column)},
		{"scalar", mapped(square, Dense(square), viewAt(1, 0, 0, 0))},
		{"transposed", mapped(square, Dense(square), viewAt(1<<18, 0, 1, 512))},
		{"narrow", mapped(long, viewAt(1<<15, 0, 1, 4096), viewAt(8, 0, 0, 1))},
		{"padded", mapped(square, Dense(square), within(viewAt(1<<18, 0, 512, 1), 1, 100, 400))},
		{"concat", func() (*kernels.Plan, error) {
			return Concat(host, kernels.Float32, square, 1, []int{256, 256}, Dense([]int{512, 256}), viewAt(1<<17, 0, 1, 512))
		}},
		{"merged", func() (*kernels.Plan, error) {
			return Concat(host, kernels.Float32, []int{512, 60}, 1, []int{20, 37, 3}, Dense([]int{512, 20}), Dense([]int{512, 37}), Dense([]int{512, 3}))
		}},
		{"softmax", rows(square, []int{1}, softmax, Dense(square))},
		{"softmax10", rows([]int{4096, 10}, []int{1}, softmax, Dense([]int{4096, 10}))},
		{"across", rows(square, []int{0}, softmax, Dense(square))},
		{"sum", rows(square, []int{1}, dot, Dense(square), row)},
		{"channels", rows([]int{8, 64, 64}, []int{0, 2}, dot, Dense([]int{8, 64, 64}), viewAt(64, 0, 0, 1, 0))},
	} {
		b.Run(c.name, func(b *testing.B) {
			p, err := c.plan()
			if err != nil {
				b.Fatal(err)
			}
			inputs, out, scratch := make([][]byte, len(p.Inputs)), exprtest.Memory(p.Out), exprtest.Memory(p.Scratch)
			for i, n := range p.Inputs {
				inputs[i] = exprtest.Memory(n)
			}
			for b.Loop() {
				if err := p.Run(inputs, out, scratch); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("plan/"+c.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := c.plan(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
