package codegen

import (
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// Kernels of a normalized vector times a matrix compute several rows together, and load before they wait what no launch changes, and nothing else.
func TestRowsTogether(t *testing.T) {
	dev := kernels.Device{Name: "test", Major: 9, SMs: 132, SharedOptin: 232448, Cooperative: true}
	b := expr.NewBuilder(expr.Float32, expr.BF16, expr.Float32)
	x := b.Apply(expr.Sub, b.Operand(0), b.Apply(expr.RowSum, b.Operand(0)))
	f := testutil.Get[expr.Func](t)(b.Func(b.Apply(expr.Add, b.Apply(expr.RowSum, b.Apply(expr.Mul, x, b.Convert(b.Operand(1), expr.Float32))), b.Operand(2))))
	for _, c := range []struct{ rows, each int }{{3072, 4}, {2304, 4}, {1536, 4}, {2302, 2}, {2301, 1}, {768, 2}, {300, 1}} {
		for _, constant := range []bool{false, true} {
			shape := []int{c.rows, 768}
			views := []View{{Elements: 768, Strides: []int{0, 1}}, Dense(shape), {Elements: int64(c.rows), Strides: []int{1, 0}}}
			views[1].Constant, views[1].Matmul = constant, true
			l := testutil.Get[*kernels.Plan](t)(Rows(dev, f, shape, []int{1}, []bool{true}, views...)).Launches[0]
			if l.Grid[0]*c.each != c.rows {
				t.Errorf("%v: got %d blocks, want %d rows each", shape, l.Grid[0], c.each)
			}
			code := testutil.Get[kernels.Code](t)(l.Kernel.Image.Code(9, 0))
			if !code.WaitsForDependencies(rowsEntry) {
				t.Errorf("%v, constant %v: the kernel does not wait", shape, constant)
			}
			text := string(testutil.Get[[]byte](t)(l.Kernel.Image.(image).PTX(9)))
			before, after, _ := strings.Cut(text, "griddepcontrol.wait")
			early, late := strings.Count(before, "ld.global.L1::no_allocate.v4.u16"), strings.Count(after, "ld.global.v4.u16")
			if strings.Contains(before, "ld.global.f32") || strings.Contains(before, "ld.global.v") || (early > 0) != constant || (late > 0) == constant {
				t.Errorf("%v, constant %v: got %d loads of the matrix before the wait and %d after it:\n%s", shape, constant, early, late, text)
			}
			if n := strings.Count(after, "ld.global.v4.f32") + strings.Count(after, "ld.global.f32"); n > 8+8 {
				t.Errorf("%v: got %d loads, want the vector loaded once for all rows:\n%s", shape, n, text)
			}
			views[1].Matmul = false
			l = testutil.Get[*kernels.Plan](t)(Rows(dev, f, shape, []int{1}, []bool{true}, views...)).Launches[0]
			double := string(testutil.Get[[]byte](t)(l.Kernel.Image.(image).PTX(9)))
			if of, all := strings.Count(text, "cvt.f64.f32"), strings.Count(double, "cvt.f64.f32"); of == 0 || all != of*(1+c.each) {
				t.Errorf("%v: got %d conversions to double with sums of a matmul, and %d without, want those of the vector, and of %d rows besides", shape, of, all, c.each)
			}
			if n := strings.Count(text, "bar.sync"); n != 2 {
				t.Errorf("%v: got %d barriers, want one for each stage", shape, n)
			}
		}
	}
}
