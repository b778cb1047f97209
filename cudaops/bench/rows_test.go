package bench

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
	"pgregory.net/rapid"
)

// viewsOf returns views as plans take them.
func viewsOf(list []exprtest.View) []codegen.View {
	views := make([]codegen.View, len(list))
	for i, v := range list {
		views[i] = codegen.View(v)
	}
	return views
}

// rowsOnGPU runs functions on dense operands of a shape: of one reduction on rows, and
// element by element.
func rowsOnGPU(dev kernels.Device, s exprtest.RowShape) exprtest.Apply {
	return func(f expr.Func, operands ...[]float64) ([]float64, error) {
		if f.Reductions() == 0 {
			return mapOnGPU(dev, f, operands...)
		}
		p, err := codegen.Rows(dev, f, s.Shape, s.Axes, []bool{true}, codegen.Dense(s.Shape))
		if err != nil {
			return nil, err
		}
		out := exprtest.Memory(p.Out)
		if err := Run(0, p, [][]byte{exprtest.Pack(f.Operands()[0], operands[0])}, out); err != nil {
			return nil, err
		}
		rows, all := exprtest.Unpack(f.Outputs()[0], out), make([]float64, len(operands[0]))
		for i := range all {
			row, _ := exprtest.RowOf(s.Shape, s.Axes, i)
			all[i] = rows[row]
		}
		return all, nil
	}
}

// A fused kernel computes the bits of one kernel for each operation and reduction.
func TestRowsOnGPU(t *testing.T) {
	dev := device0(t)
	all := append(append([]expr.Op(nil), exprtest.Exact...), exprtest.Inexact...)
	testutil.CheckProperty(t, func(t *rapid.T) {
		m := exprtest.DrawRows(t, all, rapid.IntRange(0, 10).Draw(t, "size"))
		p, err := codegen.Rows(dev, m.Func, m.Shape, m.Axes, m.PerRow, viewsOf(m.Views)...)
		if err != nil {
			t.Fatal(err)
		}
		out := exprtest.Memory(p.Out)
		if err := Run(0, p, m.Inputs(), out); err != nil {
			t.Fatalf("%v: %v", p, err)
		}
		if !codegen.RowsWhole(dev, m.Shape, m.Axes) && !codegen.RowsSplit(m.Func, m.PerRow) {
			return // sums have another order
		}
		if err := m.Check(out, p.Parts, rowsOnGPU(dev, exprtest.RowShape{Shape: m.Shape, Axes: m.Axes})); err != nil {
			t.Fatalf("%v; %v", err, p)
		}
	})
}

// Of rows that are split among blocks, outputs for each element that depend on no reduction are stored as the reductions read their operands: all are those of separate plans, to the bit.
func TestRowsStreamOnGPU(t *testing.T) {
	dev := device0(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 11))
	for _, as := range []expr.Dtype{expr.Float32, expr.BF16, expr.F16} {
		b := expr.NewBuilder(expr.Float32, expr.Float32)
		x := b.Apply(expr.Mul, b.Operand(0), b.Apply(expr.Sigmoid, b.Operand(1)))
		whole := testutil.Get[expr.Func](t)(b.Func(x, b.Apply(expr.RowSum, x), b.Apply(expr.RowMax, b.Operand(1))))
		mapped, sums := testutil.Get[expr.Func](t)(b.Func(x)), testutil.Get[expr.Func](t)(b.Func(b.Apply(expr.RowSum, x), b.Apply(expr.RowMax, b.Operand(1))))
		stored := func(f expr.Func, out ...expr.Dtype) expr.Func {
			return testutil.Get[expr.Func](t)(f.Stored([]expr.Dtype{as, as}, out))
		}
		whole, mapped, sums = stored(whole, as, expr.Float32, expr.Float32), stored(mapped, as), stored(sums, expr.Float32, expr.Float32)
		for k, s := range []exprtest.RowShape{{Shape: []int{8192, 768}, Axes: []int{0}}, {Shape: []int{8, 1023, 97}, Axes: []int{0, 1}}, {Shape: []int{3, 400_003}, Axes: []int{1}}, {Shape: []int{40_000, 5}, Axes: []int{0}}, {Shape: []int{1 << 20}, Axes: []int{0}}} {
			if testing.Short() {
				s.Shape[0] = max(s.Shape[0]/4, 1)
				if as != []expr.Dtype{expr.Float32, expr.BF16, expr.F16}[k%3] {
					continue
				}
			}
			if codegen.RowsWhole(dev, s.Shape, s.Axes) {
				continue
			}
			n := s.Elements()
			in := [][]byte{exprtest.Pack(as, rowValues(r, n, expr.Float32, false)), exprtest.Pack(as, rowValues(r, n, expr.Float32, false))}
			views := []codegen.View{codegen.Dense(s.Shape), codegen.Dense(s.Shape)}
			run := func(p *kernels.Plan, err error) []byte {
				testutil.Do(t, err)
				out := exprtest.Memory(p.Out)
				testutil.Do(t, Run(0, p, in, out))
				return out
			}
			p := testutil.Get[*kernels.Plan](t)(codegen.Rows(dev, whole, s.Shape, s.Axes, []bool{false, true, true}, views...))
			got := run(p, nil)
			elements := run(codegen.Map(dev, mapped, s.Shape, views...))
			rows := testutil.Get[*kernels.Plan](t)(codegen.Rows(dev, sums, s.Shape, s.Axes, []bool{true, true}, views...))
			ofRows := run(rows, nil)
			if len(p.Launches) != 2 || !bytes.Equal(got[:len(elements)], elements) {
				t.Errorf("%v of %v over %v: the elements are not those of a map by %v", as, s.Shape, s.Axes, p)
			}
			for k := range 2 {
				if size := p.OutputBytes(1 + k); !bytes.Equal(got[p.Parts[1+k]:][:size], ofRows[rows.Parts[k]:][:size]) {
					t.Errorf("%v of %v over %v: reduction %d is not that of its own plan", as, s.Shape, s.Axes, k)
				}
			}
		}
	}
}

// rowValues returns elements of a shape: numbers, or edges among them, such as NaN and -0.
func rowValues(r *rand.Rand, n int, d expr.Dtype, edges bool) []float64 {
	x := make([]float64, n)
	for i := range x {
		if x[i] = r.NormFloat64(); edges && r.IntN(4) == 0 {
			x[i] = exprtest.Edges[r.IntN(len(exprtest.Edges))]
			if math.Abs(x[i]) > 1e300 || math.IsNaN(x[i]) && r.IntN(20) > 0 { // what overflows depends on the order
				x[i] = math.Copysign(0, -1)
			}
		}
		if d == expr.Float32 {
			x[i] = float64(float32(x[i]))
		}
	}
	return x
}

// Sums, maxima and minima of rows of all kinds are those of a plain loop.
func TestRowsReduceOnGPU(t *testing.T) {
	dev := device0(t)
	r := testutil.Random(t)
	shapes := append([]exprtest.RowShape{{Shape: []int{1 << 26}, Axes: []int{0}}, {Shape: []int{70, 460_001}, Axes: []int{1}}, {Shape: []int{1 << 17, 64}, Axes: []int{0}}}, exprtest.RowShapes...)
	if testing.Short() {
		shapes = shapes[3:]
	}
	for i, c := range shapes {
		for k, d := range []expr.Dtype{expr.Float32, expr.Float64} {
			for _, edges := range []bool{false, true} {
				if testing.Short() && (k != i%2 || edges) {
					continue // a checker follows every access
				}
				if c.Elements() > 1<<24 && (edges || d == expr.Float64) {
					continue
				}
				x := rowValues(r, c.Elements(), d, edges)
				f := testutil.Get[expr.Func](t)(exprtest.Reductions(d))
				p := testutil.Get[*kernels.Plan](t)(codegen.Rows(dev, f, c.Shape, c.Axes, []bool{true, true, true}, codegen.Dense(c.Shape)))
				out := exprtest.Memory(p.Out)
				testutil.Do(t, Run(0, p, [][]byte{exprtest.Pack(d, x)}, out))
				if err := c.CheckReductions(d, x, unpack(p, out, slices.Repeat([]expr.Dtype{d}, len(p.Parts))...)); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// unpack returns the elements of a plan's outputs, each of its type.
func unpack(p *kernels.Plan, out []byte, outputs ...expr.Dtype) (list [][]float64) {
	for k, at := range p.Parts {
		list = append(list, exprtest.Unpack(outputs[k], out[at:at+p.OutputBytes(k)]))
	}
	return list
}

// longRows are rows that clusters of blocks share, and blocks hold or don't, if the
// device's blocks are enough for them.
var longRows = []exprtest.RowShape{
	{Shape: []int{3, 32769}, Axes: []int{1}}, {Shape: []int{3, 50_257}, Axes: []int{1}}, {Shape: []int{2, 65536}, Axes: []int{1}}, {Shape: []int{2, 98_308}, Axes: []int{1}},
	{Shape: []int{2, 200_004}, Axes: []int{1}}, {Shape: []int{1, 400_003}, Axes: []int{1}}, {Shape: []int{2, 600_004}, Axes: []int{1}},
}

// A fused softmax of long rows has the bits of its separate operations, whose sums use clusters of the same number of blocks, of
// fewer blocks, or one block per row.
func TestRowsLongOnGPU(t *testing.T) {
	for _, sms := range []int{0, 2, 4} {
		dev := device0(t)
		dev.SMs = sms
		testRowsLong(t, dev)
	}
}

func testRowsLong(t *testing.T, dev kernels.Device) {
	softmax := testutil.Get[[]exprtest.RowFunction](t)(exprtest.RowFunctions(expr.Float32))[0]
	r := testutil.Random(t)
	for k, s := range longRows {
		if testing.Short() && k%2 > 0 {
			continue
		}
		x := rowValues(r, s.Elements(), expr.Float32, false)
		apply := rowsOnGPU(dev, s)
		one := func(op expr.Op, args ...[]float64) []float64 {
			b := expr.NewBuilder(slices.Repeat([]expr.Dtype{expr.Float32}, len(args))...)
			var values []expr.Value
			for i := range args {
				values = append(values, b.Operand(i))
			}
			return testutil.Get[[]float64](t)(apply(testutil.Get[expr.Func](t)(b.Func(b.Apply(op, values...))), args...))
		}
		e := one(expr.Exp, one(expr.Sub, x, one(expr.RowMax, x)))
		want := one(expr.Div, e, one(expr.RowSum, e))
		p := testutil.Get[*kernels.Plan](t)(codegen.Rows(dev, softmax.Func, s.Shape, s.Axes, softmax.PerRow, viewsOf(softmax.Views(s))...))
		out := exprtest.Memory(p.Out)
		testutil.Do(t, Run(0, p, [][]byte{exprtest.Pack(expr.Float32, x)}, out))
		for i, got := range exprtest.Unpack(expr.Float32, out) {
			if !exprtest.Same(got, want[i]) {
				t.Fatalf("%v, %d multiprocessors: element %d is %v, want %v", s.Shape, dev.SMs, i, got, want[i])
			}
		}
	}
}

// Functions that graphs have much of agree, on rows of all kinds, with the host in
// double precision.
func TestRowsFunctionsOnGPU(t *testing.T) {
	device := device0(t)
	r := testutil.Random(t)
	double := testutil.Get[[]exprtest.RowFunction](t)(exprtest.RowFunctions(expr.Float64))
	for _, d := range []expr.Dtype{expr.Float32, expr.Float64} {
		for i, f := range testutil.Get[[]exprtest.RowFunction](t)(exprtest.RowFunctions(d)) {
			for k, s := range append(longRows, exprtest.RowShapes...) {
				if testing.Short() && (i+k)%10 > 0 { // under sanitizers
					continue
				}
				dev := device
				if k < len(longRows) {
					dev = ofMany(device)
				}
				var inputs, wide [][]byte
				for _, v := range f.Views(s) {
					x := rowValues(r, int(v.Elements), d, false)
					if v.Elements == 1 { // layer norm's, the inverse of the elements of a row
						last, _ := exprtest.RowOf(s.Shape, s.Axes, s.Elements()-1)
						x[0] = float64(float32(float64(last+1) / float64(s.Elements())))
					}
					inputs, wide = append(inputs, exprtest.Pack(d, x)), append(wide, exprtest.Pack(expr.Float64, x))
				}
				p := testutil.Get[*kernels.Plan](t)(codegen.Rows(dev, f.Func, s.Shape, s.Axes, f.PerRow, viewsOf(f.Views(s))...))
				out := exprtest.Memory(p.Out)
				testutil.Do(t, Run(0, p, inputs, out))
				host := testutil.Get[*kernels.Plan](t)(codegen.Rows(kernels.HostDevice(), double[i].Func, s.Shape, s.Axes, f.PerRow, viewsOf(f.Views(s))...))
				truth := exprtest.Memory(host.Out)
				testutil.Do(t, host.Run(wide, truth, nil))
				want := unpack(host, truth, double[i].Func.Outputs()...)
				for o, part := range unpack(p, out, f.Func.Outputs()...) {
					elements, of := s.Elements(), func(i int) int { return i }
					if f.PerRow[o] {
						elements, _ = exprtest.RowOf(s.Shape, s.Axes, elements-1)
						elements++
					} else {
						of = func(i int) int { row, _ := exprtest.RowOf(s.Shape, s.Axes, i); return row }
					}
					if err := near(part[:elements], want[o], d, of); err != nil {
						t.Errorf("%s %v over %v of %v: output %d: %v", f.Name, d, s.Axes, s.Shape, o, err)
					}
				}
			}
		}
	}
}

// near compares results of a few hundred operations that lose no digits of a row's greatest result, or few: of 100 000 short rows some vary
// little, and layer norm divides by how much. of returns the row of an element.
func near(got, want []float64, d expr.Dtype, of func(i int) int) error {
	allowed := map[expr.Dtype]float64{expr.Float32: 3e-4, expr.Float64: 1e-12}[d]
	greatest := map[int]float64{}
	for i, w := range want {
		if size := math.Abs(w); size > max(greatest[of(i)], 1) && !math.IsInf(w, 0) {
			greatest[of(i)] = size
		}
	}
	for i, g := range got {
		if w := want[i]; !exprtest.Same(g, w) && !(math.Abs(g-w) <= allowed*max(greatest[of(i)], 1)) {
			return fmt.Errorf("element %d is %v, want %v", i, g, w)
		}
	}
	return nil
}

// More than 2^31 elements take indices of 64 bits.
func TestRowsHugeOnGPU(t *testing.T) {
	dev := device0(t)
	if os.Getenv("STHENO_LARGE") != "1" {
		t.Skip("SKIPPED, NOT TESTED: 9 GB of the host's memory, without STHENO_LARGE=1")
	}
	b := expr.NewBuilder(expr.Bool)
	f := testutil.Get[expr.Func](t)(b.Func(b.Apply(expr.RowSum, b.Convert(b.Operand(0), expr.Float32))))
	shape := []int{65537, 32770}
	x := make([]byte, kernels.Count(shape))
	rows, columns := make([]float32, shape[0]), make([]float32, shape[1])
	for i := range rows {
		for j := i % 7; j < shape[1]; j += 3 {
			x[i*shape[1]+j] = 1
			rows[i]++
			columns[j]++
		}
	}
	for axis, want := range [][]float32{columns, rows} {
		p := testutil.Get[*kernels.Plan](t)(codegen.Rows(dev, f, shape, []int{axis}, []bool{true}, codegen.Dense(shape)))
		out := make([]float32, len(want))
		testutil.Do(t, Run(0, p, [][]byte{x}, kernels.Bytes(out)))
		for i, got := range out {
			if got != want[i] {
				t.Fatalf("over axis %d: element %d is %v, want %v", axis, i, got, want[i])
			}
		}
	}
}
