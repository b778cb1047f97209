package bench

import (
	"fmt"
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
	for _, s := range exprtest.RowShapes {
		for _, d := range []expr.Dtype{expr.Uint8, expr.Int32, expr.Int64, expr.Int} {
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
