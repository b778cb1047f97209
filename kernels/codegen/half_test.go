package codegen

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
	"pgregory.net/rapid"
)

// halves is a function of two numbers of 16 bits whose outputs are the sum as float32 and rounded to both types of 16 bits.
func halves(t *testing.T) expr.Func {
	t.Helper()
	b := expr.NewBuilder(expr.BF16, expr.F16)
	sum := b.Apply(expr.Add, b.Convert(b.Operand(0), expr.Float32), b.Convert(b.Operand(1), expr.Float32))
	return testutil.Get[expr.Func](t)(b.Func(sum, b.Convert(sum, expr.BF16), b.Convert(sum, expr.F16)))
}

// Numbers of 16 bits are loaded, converted and stored, wherever operands lie.
func TestHalves(t *testing.T) {
	f := halves(t)
	for i, dev := range []kernels.Device{kernels.HostDevice(), {Major: 7, SMs: 80, SharedOptin: 96 << 10}, {Major: 9, SMs: 132, SharedOptin: 227 << 10}} {
		for _, shape := range [][]int{{1}, {7}, {3, 5}, {33, 64}, {130, 48}} {
			rows, columns := shape[0], shape[len(shape)-1]
			for _, views := range [][2]View{
				{Dense(shape), Dense(shape)},
				{Dense(shape), {Elements: kernels.Count(shape), Strides: append([]int{1}, rows)[:len(shape)]}}, // transposed
				{{Elements: int64(columns), Strides: append([]int{0}, 1)[2-len(shape):]}, Dense(shape)},        // repeated
			} {
				var in [2][]float64
				for k := range views[0].Elements {
					in[0] = append(in[0], float64(k%200)-100)
				}
				for k := range views[1].Elements {
					in[1] = append(in[1], math.Ldexp(float64(k%128), -3))
				}
				p := testutil.Get[*kernels.Plan](t)(Map(dev, f, shape, views[0], views[1]))
				out := exprtest.Memory(p.Out)
				testutil.Do(t, p.Run([][]byte{exprtest.Pack(expr.BF16, in[0]), exprtest.Pack(expr.F16, in[1])}, out, nil))
				at := func(v View, i int) int64 {
					to := v.Offset
					for a := len(shape) - 1; a >= 0; a-- {
						to, i = to+int64(i%shape[a]*v.Strides[a]), i/shape[a]
					}
					return to
				}
				n := kernels.Count(shape)
				sums := exprtest.Unpack(expr.Float32, out[:4*n])
				bf16 := exprtest.Unpack(expr.BF16, out[p.Parts[1]:][:2*n])
				f16 := exprtest.Unpack(expr.F16, out[p.Parts[2]:][:2*n])
				for k := range sums {
					sum := in[0][at(views[0], k)] + in[1][at(views[1], k)]
					if sums[k] != sum || bf16[k] != exprtest.Round(sum, 8) || f16[k] != exprtest.Round(sum, 11) {
						t.Fatalf("%v: element %d of %v is %v, %v, %v, want %v rounded to 24, 8 and 11 bits", p, k, views, sums[k], bf16[k], f16[k], sum)
					}
				}
				if i > 0 {
					if err := new(kernels.Checker).Check(p); err != nil {
						t.Error(err)
					}
				}
			}
		}
	}
}

// converted returns the memory of elements of one type as another one.
func converted(t *testing.T, memory []byte, from, to expr.Dtype) []byte {
	b := expr.NewBuilder(from)
	n := int64(len(memory)) / from.Size()
	p := testutil.Get[*kernels.Plan](t)(Map(kernels.HostDevice(), testutil.Get[expr.Func](t)(b.Func(b.Convert(b.Operand(0), to))), []int{int(n)}, Dense([]int{int(n)})))
	out := exprtest.Memory(p.Out)
	testutil.Do(t, p.Run([][]byte{memory}, out, nil))
	return out
}

// Functions of numbers that are stored in 16 bits compute the bits of the float32 function, of operands and with outputs that are rounded.
func TestStored(t *testing.T) {
	testutil.CheckProperty(t, func(r *rapid.T) {
		m := exprtest.DrawRows(r, append(slices.Clone(exprtest.Exact), exprtest.Inexact...), rapid.IntRange(0, 10).Draw(r, "size"))
		dev, in := rapid.SampledFrom(devices).Draw(r, "device"), m.Inputs()
		draw := func(types []expr.Dtype, plain func(i int) bool) (stored []expr.Dtype) {
			for i, d := range types {
				if d == expr.Float32 && !plain(i) {
					d = rapid.SampledFrom([]expr.Dtype{expr.Float32, expr.BF16, expr.F16}).Draw(r, "stored")
				}
				stored = append(stored, d)
			}
			return stored
		}
		from := draw(m.Func.Operands(), func(i int) bool { return m.Views[i].Stream.Number != 0 })
		to := draw(m.Func.Outputs(), func(int) bool { return false })
		plain := slices.Clone(in)
		for i, d := range from {
			if d != m.Func.Operands()[i] {
				in[i] = converted(t, in[i], expr.Float32, d)
				plain[i] = converted(t, in[i], d, expr.Float32)
			}
		}
		want := testutil.Get[*kernels.Plan](t)(planRows(dev, m))
		wanted := testutil.Get[[]byte](t)(runGuarded(want, plain))
		m.Func = testutil.Get[expr.Func](t)(m.Func.Stored(from, to))
		got := testutil.Get[*kernels.Plan](t)(planRows(dev, m))
		out := testutil.Get[[]byte](t)(runGuarded(got, in))
		testutil.Do(t, checkLaunches(got))
		for k, d := range to {
			list := [2][]byte{wanted[want.Parts[k]:], out[got.Parts[k]:]}
			n := int64(m.Outputs()[k])
			if d == expr.BF16 || d == expr.F16 {
				list[0] = converted(t, list[0][:4*n], expr.Float32, d)
			}
			if n *= d.Size(); !bytes.Equal(list[0][:n], list[1][:n]) {
				r.Fatalf("output %d of %v is not that of %v in %v", k, got, want, d)
			}
		}
	})
}

// NVIDIA's assembler takes the conversions, and loads and stores of nothing but numbers of 16 bits, without spills.
func TestHalvesAssemble(t *testing.T) {
	shape := []int{64, 64}
	b := expr.NewBuilder(expr.BF16)
	negative := testutil.Get[expr.Func](t)(b.Func(b.Convert(b.Apply(expr.Neg, b.Convert(b.Operand(0), expr.Float32)), expr.F16)))
	for _, target := range []string{"sm_70", "sm_80", "sm_90"} {
		for _, f := range []expr.Func{halves(t), negative} {
			dev := kernels.Device{Major: int(target[3] - '0'), SMs: 1, SharedOptin: 96 << 10}
			p := testutil.Get[*kernels.Plan](t)(Map(dev, f, shape, []View{Dense(shape), Dense(shape)}[:len(f.Operands())]...))
			if _, registers, spills := assemble(t, p.Launches[0].Kernel.Image, target); spills > 0 {
				t.Errorf("%v for %s: %d registers, %d bytes of spills", f, target, registers, spills)
			}
		}
	}
}

// NVIDIA's assembler takes rows of numbers of 16 bits, in registers, in shared memory and reloaded, without spills.
func TestStoredRowsAssemble(t *testing.T) {
	b := expr.NewBuilder(expr.Float32, expr.Float32)
	e := b.Apply(expr.Exp, b.Apply(expr.Sub, b.Operand(0), b.Apply(expr.RowMax, b.Operand(0))))
	f := testutil.Get[expr.Func](t)(b.Func(b.Apply(expr.Mul, b.Operand(1), b.Apply(expr.Div, e, b.Apply(expr.RowSum, e)))))
	f = testutil.Get[expr.Func](t)(f.Stored([]expr.Dtype{expr.BF16, expr.F16}, []expr.Dtype{expr.BF16}))
	for _, target := range []string{"sm_70", "sm_80", "sm_90"} {
		dev := kernels.Device{Major: int(target[3] - '0'), SMs: 132, SharedOptin: 96 << 10}
		for _, s := range [][]int{{8192, 768}, {8192, 1001}, {4096, 4096}, {64, 50304}} {
			p := testutil.Get[*kernels.Plan](t)(Rows(dev, f, s, []int{1}, []bool{false}, Dense(s), Dense(s)))
			if _, registers, spills := assemble(t, p.Launches[0].Kernel.Image, target); spills > 0 {
				t.Errorf("%v for %s: %d registers, %d bytes of spills", p, target, registers, spills)
			}
		}
	}
}
