package bench

import (
	"fmt"
	"math"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
	"pgregory.net/rapid"
)

// Random functions of integers, Bool, floating-point numbers and iotas, with conversions between all types and reductions of integers,
// compute the bits of package big.
func TestMixedOnGPU(t *testing.T) {
	device := device0(t)
	for _, rows := range []bool{false, true} {
		t.Run(fmt.Sprintf("rows %v", rows), func(t *testing.T) {
			testutil.CheckProperty(t, func(t *rapid.T) {
				size, dev := rapid.IntRange(0, 8).Draw(t, "size"), device
				m := exprtest.DrawMixedMap(t, size)
				if rapid.Bool().Draw(t, "of many") {
					dev = ofMany(device)
				}
				p, err := codegen.Map(dev, m.Func, m.Shape, viewsOf(m.Views)...)
				if rows {
					m = exprtest.DrawMixedRows(t, size)
					p, err = codegen.Rows(device, m.Func, m.Shape, m.Axes, m.PerRow, viewsOf(m.Views)...)
				}
				if err != nil {
					t.Fatal(err)
				}
				out := exprtest.Memory(p.Out)
				if err := Run(0, p, m.Inputs(), out); err != nil {
					t.Fatalf("%v: %v", p, err)
				}
				if err := m.Check(out, p.Parts, nil); err != nil {
					t.Fatalf("%v; %v", err, p)
				}
			})
		})
	}
}

// Sums, maxima and minima of integers in rows of all kinds are those of a plain loop.
func TestRowsReduceIntegersOnGPU(t *testing.T) {
	dev := device0(t)
	r := testutil.Random(t)
	types := []expr.Dtype{expr.Uint8, expr.Int32, expr.Int64, expr.Int}
	for i, s := range exprtest.RowShapes {
		for k, d := range types {
			if testing.Short() && k != i%len(types) {
				continue // a checker follows every access
			}
			x := exprtest.Integers(r, d, s.Elements())
			f := testutil.Get[expr.Func](t)(exprtest.Reductions(d))
			p := testutil.Get[*kernels.Plan](t)(codegen.Rows(dev, f, s.Shape, s.Axes, []bool{true, true, true}, codegen.Dense(s.Shape)))
			out := exprtest.Memory(p.Out)
			testutil.Do(t, Run(0, p, [][]byte{exprtest.PackBits(d, x)}, out))
			var outputs [][]byte
			for k, at := range p.Parts {
				outputs = append(outputs, out[at:at+p.OutputBytes(k)])
			}
			testutil.Do(t, s.CheckIntegers(d, x, outputs))
		}
	}
}

// Maxima and minima of three integers, of which some are negated, and of rows of negated ones, are those of a plain loop: assemblers lose such signs of signed numbers.
func TestNegatedExtremesOnGPU(t *testing.T) {
	const rows, columns = 40, 300
	dev, r := device0(t), random(t)
	shape := []int{rows, columns}
	b := expr.NewBuilder(expr.Int32, expr.Int32, expr.Int32)
	x, y, z := b.Operand(0), b.Operand(1), b.Operand(2)
	var outputs []expr.Value
	var want []func(x, y, z int32) int32
	for _, op := range []expr.Op{expr.Max, expr.Min} {
		of := func(a, b int32) int32 { return max(a, b) }
		if op == expr.Min {
			of = func(a, b int32) int32 { return min(a, b) }
		}
		negated := b.Apply(expr.Neg, x)
		outputs = append(outputs, b.Apply(op, b.Apply(op, y, negated), z), b.Apply(op, b.Apply(op, negated, y), z), b.Apply(op, z, b.Apply(op, x, negated)),
			b.Apply(op, b.Apply(expr.Abs, negated), y), b.Apply(op, b.Apply(op, y, b.Apply(expr.Sub, b.Integer(expr.Int32, 0), x)), z))
		want = append(want, func(x, y, z int32) int32 { return of(of(y, -x), z) }, func(x, y, z int32) int32 { return of(of(-x, y), z) }, func(x, y, z int32) int32 { return of(z, of(x, -x)) },
			func(x, y, z int32) int32 { return of(max(x, -x), y) }, func(x, y, z int32) int32 { return of(of(y, -x), z) })
	}
	dense := codegen.Dense(shape)
	p := testutil.Get[*kernels.Plan](t)(codegen.Map(dev, testutil.Get[expr.Func](t)(b.Func(outputs...)), shape, dense, dense, dense))
	var in [3][]int32
	var bytes [][]byte
	for i := range in {
		for range rows * columns {
			in[i] = append(in[i], int32(r.Uint32())>>r.IntN(31))
		}
		bytes = append(bytes, kernels.Bytes(in[i]))
	}
	out := exprtest.Memory(p.Out)
	testutil.Do(t, Run(0, p, bytes, out))
	for k, at := range p.Parts {
		for i, got := range kernels.Elements[int32](out[at : at+4*rows*columns]) {
			if w := want[k](in[0][i], in[1][i], in[2][i]); got != w {
				t.Fatalf("output %d of %v: got %d for %d, %d and %d, want %d", k, p, got, in[0][i], in[1][i], in[2][i], w)
			}
		}
	}
	b = expr.NewBuilder(expr.Int32)
	negated := b.Apply(expr.Neg, b.Operand(0))
	p = testutil.Get[*kernels.Plan](t)(codegen.Rows(dev, testutil.Get[expr.Func](t)(b.Func(b.Apply(expr.RowMax, negated), b.Apply(expr.RowMin, negated))), shape, []int{1}, []bool{true, true}, dense))
	out = exprtest.Memory(p.Out)
	testutil.Do(t, Run(0, p, bytes[:1], out))
	for row := range rows {
		most, least := int32(math.MinInt32), int32(math.MaxInt32)
		for _, v := range in[0][row*columns : (row+1)*columns] {
			most, least = max(most, -v), min(least, -v)
		}
		for k, w := range []int32{most, least} {
			if got := kernels.Elements[int32](out[p.Parts[k]:])[row]; got != w {
				t.Fatalf("%v: row %d, output %d: got %d, want %d", p, row, k, got, w)
			}
		}
	}
}
