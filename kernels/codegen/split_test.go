package codegen

import (
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/ptxas"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
	"github.com/stheno-ml/stheno/kernels/internal/bf16split"
)

// splitCase is a function of two matrices whose outputs with an element for each index are stored as splits.
type splitCase struct {
	outputs     func(b *expr.Builder, x, y expr.Value) []expr.Value
	shape, axes []int
	perRow      []bool
}

var splitCases = []splitCase{
	{product, []int{8}, nil, nil},
	{product, []int{300, 64}, nil, nil},
	{productAndSum, []int{3, 5000, 8}, nil, nil},
	{productAndRows, []int{2000, 96}, []int{0}, []bool{false, true}},
	{productAndRows, []int{9000, 64}, []int{0}, []bool{false, true}}, // split among blocks
	{centered, []int{300, 96}, []int{1}, []bool{false, false, true}},
	{centered, []int{64, 768}, []int{1}, []bool{false, false, true}},
	{centered, []int{3, 40000}, []int{1}, []bool{false, false, true}}, // by clusters
}

func product(b *expr.Builder, x, y expr.Value) []expr.Value {
	return []expr.Value{b.Apply(expr.Mul, x, y)}
}
func productAndSum(b *expr.Builder, x, y expr.Value) []expr.Value {
	return []expr.Value{b.Apply(expr.Mul, x, y), b.Apply(expr.Add, x, y)}
}
func productAndRows(b *expr.Builder, x, y expr.Value) []expr.Value {
	return []expr.Value{b.Apply(expr.Mul, x, y), b.Apply(expr.RowSum, x)}
}
func centered(b *expr.Builder, x, y expr.Value) []expr.Value {
	sum := b.Apply(expr.RowSum, x)
	return []expr.Value{b.Apply(expr.Sub, y, sum), b.Apply(expr.Mul, x, sum), b.Apply(expr.RowMax, y)}
}

func (c splitCase) plan(t *testing.T, dev kernels.Device, split bool) *kernels.Plan {
	t.Helper()
	b := expr.NewBuilder(expr.Float32, expr.Float32)
	f := testutil.Get[expr.Func](t)(b.Func(c.outputs(b, b.Operand(0), b.Operand(1))...))
	flags := make([]Split, len(f.Outputs()))
	for k := range flags {
		if split && (c.perRow == nil || !c.perRow[k]) {
			flags[k] = SplitInOrder
		}
	}
	if c.axes == nil {
		return testutil.Get[*kernels.Plan](t)(MapSplit(dev, f, c.shape, flags, Dense(c.shape), Dense(c.shape)))
	}
	return testutil.Get[*kernels.Plan](t)(RowsSplits(dev, f, c.shape, c.axes, c.perRow, flags, Dense(c.shape), Dense(c.shape)))
}

// TestSplits compares outputs that are stored as splits, and their ranges, with the elements that the same function stores.
func TestSplits(t *testing.T) {
	r := testutil.Random(t)
	for _, dev := range []kernels.Device{kernels.HostDevice(), {Major: 8, SMs: 108, SharedOptin: 163 << 10}, {Major: 9, SMs: 132, SharedOptin: 227 << 10}} {
		for _, c := range splitCases {
			for _, special := range []float64{1, 1e-30, 1e30, math.Inf(1)} {
				n := kernels.Count(c.shape)
				var in [2][]float64
				for k := range in {
					in[k] = make([]float64, n)
					for i := range in[k] {
						in[k][i] = r.NormFloat64()
					}
					in[k][r.IntN(int(n))] *= special
				}
				inputs := [][]byte{exprtest.Pack(expr.Float32, in[0]), exprtest.Pack(expr.Float32, in[1])}
				p, plain := c.plan(t, dev, true), c.plan(t, dev, false)
				out, want := exprtest.Memory(p.Out), exprtest.Memory(plain.Out)
				testutil.Do(t, p.Run(inputs, out, nil))
				testutil.Do(t, plain.Run(inputs, want, nil))
				for k := range max(len(plain.Parts), 1) {
					from, wanted := out, want
					if len(plain.Parts) > 0 {
						from, wanted = out[p.Parts[k]:], want[plain.Parts[k]:]
					}
					if c.perRow != nil && c.perRow[k] {
						rows := 4 * n / int64(c.shape[c.axes[0]])
						if !slices.Equal(from[:rows], wanted[:rows]) {
							t.Errorf("%v: other sums beside splits", p)
						}
						continue
					}
					elements, splits, all := kernels.Elements[float32](wanted)[:n], kernels.Elements[uint16](from), bf16split.None
					for i, x := range elements {
						split := [3]uint16{splits[i], splits[n+int64(i)], splits[2*n+int64(i)]}
						if all.Add(x); split != bf16split.Encode(x) {
							t.Fatalf("%v: element %d of output %d: got splits %x, want %x of %v", p, i, k, split, bf16split.Encode(x), x)
						}
					}
					got, ranges := bf16split.None, kernels.Elements[uint32](from[6*n:])
					for b := range Ranges(p) {
						got.Join(ranges[2*b], ranges[2*b+1])
					}
					if got != all {
						t.Errorf("%v: got range %v, want %v", p, got, all)
					}
				}
				if dev.Kind == kernels.GPU {
					if err := new(kernels.Checker).Check(p); err != nil {
						t.Error(err)
					}
				}
			}
		}
	}
}

// TestSplitsAssemble assembles kernels that store splits.
func TestSplitsAssemble(t *testing.T) {
	ptxas.Find(t)
	for _, c := range splitCases {
		for target, dev := range map[string]kernels.Device{"sm_80": {Major: 8, SMs: 108, SharedOptin: 163 << 10}, "sm_90": {Major: 9, SMs: 132, SharedOptin: 227 << 10}} {
			assemble(t, c.plan(t, dev, true).Launches[0].Kernel.Image.(image), target)
		}
	}
}

// A map of many elements has fewer blocks of more vectors, as long as there are places for their ranges.
func TestSplitsOfMany(t *testing.T) {
	f := testutil.Get[expr.Func](t)(expr.Identity(expr.Float32))
	for n, want := range map[int]int64{1 << 20: 1 << 8, 1 << 26: 1 << 14, 1<<26 + 8: 1<<13 + 1, 1 << 27: 1 << 14} {
		p := testutil.Get[*kernels.Plan](t)(MapSplit(kernels.Device{Major: 9, SMs: 132, SharedOptin: 227 << 10}, f, []int{n}, []Split{SplitInOrder}, Dense([]int{n})))
		if got := Ranges(p); got != want {
			t.Errorf("%d elements: got %d ranges, want %d", n, got, want)
		}
	}
	const n = 1<<27 + 8
	if p, err := MapSplit(kernels.Device{Major: 9, SMs: 132, SharedOptin: 227 << 10}, f, []int{n}, []Split{SplitInOrder}, Dense([]int{n})); err == nil {
		t.Errorf("got %v, want an error for %d ranges", p, Ranges(p))
	}
}
