package gemm

import (
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
)

// Products of operands that a map has stored as splits have the bits of products of the elements, also where operands have to be scaled, and on devices without
// kernels for splits.
func TestStoredSplits(t *testing.T) {
	const m, k, n = 136, 200, 72
	r, check := testutil.Random(t), new(kernels.Checker)
	identity := testutil.Get[expr.Func](t)(expr.Identity(kernels.Float32))
	for _, special := range [][]float32{{1}, {1e-35, 1e-44}, {math.MaxFloat32, -3.399e38}, {1e30, 1e-30}, {float32(math.Inf(-1)), 1e-40}} {
		for i := range 4 {
			p := Product{Dtype: kernels.Float32, Batch: 1, M: m, N: n, K: k, A: Operand{Trans: i >= 2}, B: Operand{Trans: i%2 == 1}}
			var elements [2][]byte
			for j, x := range p.Prepares(Plain) {
				list := make([]float64, x.Rows*x.Cols)
				for e := range list {
					list[e] = r.NormFloat64()
				}
				for _, s := range special {
					list[r.IntN(len(list))] = float64(s)
				}
				elements[j] = exprtest.Pack(kernels.Float32, list)
			}
			for _, dev := range append(slices.Clone(tensorDevices), kernels.HostDevice()) {
				run := func(stored [2]bool) []byte {
					p, in := p, [][]byte{elements[0], elements[1]}
					for j, x := range p.Prepares(BF16Split) {
						o, shape := []*Operand{&p.A, &p.B}[j], []int{int(x.Rows), int(x.Cols)}
						by, err := x.Plan(dev)
						if stored[j] {
							by, err = codegen.MapSplit(dev, identity, shape, []codegen.Split{codegen.SplitInOrder}, codegen.Dense(shape))
							o.Ranges = codegen.Ranges(by)
						}
						testutil.Do(t, err)
						if o.Form = BF16Split; dev.Kind == kernels.CPU && !stored[j] {
							o.Form = Plain
							continue
						}
						splits := exprtest.Memory(by.Out)
						if testutil.Do(t, by.Run([][]byte{elements[j]}, splits, nil)); stored[j] {
							in[j] = splits
						} else {
							in = append(in, splits)
						}
					}
					plan, out := testutil.Get[*kernels.Plan](t)(p.Plan(dev)), exprtest.Memory(m*n*4)
					testutil.Do(t, plan.Run(in, out, nil))
					if dev.Kind == kernels.GPU {
						testutil.Do(t, check.Check(plan))
					}
					return out
				}
				want := kernels.Elements[uint32](run([2]bool{}))
				for _, stored := range [][2]bool{{true, false}, {false, true}, {true, true}} {
					for e, bits := range kernels.Elements[uint32](run(stored)) {
						if bits != want[e] && !(bits<<1 > 0xff000000 && want[e]<<1 > 0xff000000) {
							t.Fatalf("%v of %v on %q with stored splits %v: element %d is %v, want %v", p, special, dev.Name, stored, e, math.Float32frombits(bits), math.Float32frombits(want[e]))
						}
					}
				}
			}
		}
	}
}
