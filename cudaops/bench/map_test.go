package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/internal/must"
	"github.com/stheno-ml/stheno/internal/precise"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
	"pgregory.net/rapid"
)

// mapOnGPU runs a function on dense operands.
func mapOnGPU(dev kernels.Device, f expr.Func, operands ...[]float64) ([]float64, error) {
	shape := []int{len(operands[0])}
	inputs, views := make([][]byte, len(operands)), make([]kernels.View, len(operands))
	for i, d := range f.Operands() {
		inputs[i], views[i] = exprtest.Pack(d, operands[i]), kernels.Dense(shape)
	}
	p, err := kernels.Map(dev, f, shape, views...)
	if err != nil {
		return nil, err
	}
	out := exprtest.Memory(p.Out)
	if err := Run(0, p, inputs, out); err != nil {
		return nil, err
	}
	return exprtest.Unpack(f.Outputs()[0], out), nil
}

// A fused kernel gives the bits of one kernel for each operation; where all
// operations are exact, those of other code on the host.
func TestMapOnGPU(t *testing.T) {
	dev := device0(t)
	all := append(append([]expr.Op(nil), exprtest.Exact...), exprtest.Inexact...)
	for name, ops := range map[string][]expr.Op{"exact": exprtest.Exact, "all": all} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				m := exprtest.DrawMap(t, ops, rapid.IntRange(0, 10).Draw(t, "size"))
				views := make([]kernels.View, len(m.Views))
				for i, v := range m.Views {
					views[i] = kernels.View(v)
				}
				p, err := kernels.Map(dev, m.Func, m.Shape, views...)
				if err != nil {
					t.Fatal(err)
				}
				out := exprtest.Memory(p.Out)
				if err := Run(0, p, m.Inputs(), out); err != nil {
					t.Fatalf("%v: %v", p, err)
				}
				want, err := m.Want(func(f expr.Func, operands ...[]float64) ([]float64, error) { return mapOnGPU(dev, f, operands...) })
				if err != nil {
					t.Fatal(err)
				}
				offsets := p.Parts
				for k, d := range m.Func.Outputs() {
					for i, got := range exprtest.Unpack(d, out[offsets[k]:][:int64(len(want[k]))*d.Size()]) {
						if !exprtest.Same(got, want[k][i]) {
							t.Fatalf("element %d of output %d is %v, want %v; %v", i, k, got, want[k][i], p)
						}
					}
				}
			})
		})
	}
}

// Exact operations of two edges, such as NaN, infinities and zeros of both signs,
// give the host's bits.
func TestMapEdgesOnGPU(t *testing.T) {
	dev := device0(t)
	for _, d := range []expr.Dtype{expr.Float32, expr.Float64} {
		var x, y []float64
		for _, a := range exprtest.Edges {
			for _, b := range exprtest.Edges {
				if d == expr.Float32 {
					a, b = float64(float32(a)), float64(float32(b))
				}
				x, y = append(x, a), append(y, b)
			}
		}
		for _, op := range append(exprtest.Exact, expr.Eq, expr.Ne, expr.Lt, expr.Le, expr.Gt, expr.Ge) {
			b := expr.NewBuilder(d, d)
			args := []expr.Value{b.Operand(0), b.Operand(1)}
			if op == expr.Select {
				args = append([]expr.Value{b.Apply(expr.Lt, args...)}, args...)
			}
			f := must.Get[expr.Func](t)(b.Func(b.Apply(op, args[:op.Arity()]...)))
			got := must.Get[[]float64](t)(mapOnGPU(dev, f, x, y))
			for i, want := range mapOnHost(t, f, x, y) {
				if !exprtest.Same(got[i], want) {
					t.Errorf("%v of %v and %v is %v, want %v", f, x[i], y[i], got[i], want)
				}
			}
		}
	}
}

// mapOnHost runs a function on dense operands with its Go body.
func mapOnHost(t *testing.T, f expr.Func, operands ...[]float64) []float64 {
	t.Helper()
	shape := []int{len(operands[0])}
	inputs, views := make([][]byte, len(operands)), make([]kernels.View, len(operands))
	for i, d := range f.Operands() {
		inputs[i], views[i] = exprtest.Pack(d, operands[i]), kernels.Dense(shape)
	}
	p := must.Get[*kernels.Plan](t)(kernels.Map(kernels.HostDevice(), f, shape, views...))
	out := exprtest.Memory(p.Out)
	must.Do(t, p.Run(inputs, out, nil))
	return exprtest.Unpack(f.Outputs()[0], out)
}

// mapBound is the allowed error of a function in units in the last place.
func mapBound(op expr.Op) float64 {
	for _, exact := range exprtest.Exact {
		if op == exact {
			return 0.5
		}
	}
	if op == expr.Sigmoid || op == expr.Softplus {
		return 4
	}
	return 2
}

// Functions of float64, and Pow of both types, at random arguments, against
// arithmetic of many more digits.
func TestMapFloat64OnGPU(t *testing.T) {
	dev := device0(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	n := 4000
	if testing.Short() {
		n = 500
	}
	for _, op := range exprtest.Inexact {
		for _, d := range []expr.Dtype{expr.Float32, expr.Float64} {
			if op != expr.Pow && d == expr.Float32 {
				continue
			}
			t.Run(fmt.Sprintf("%v %v", op, d), func(t *testing.T) {
				b := expr.NewBuilder(d, d)
				f := must.Get[expr.Func](t)(b.Func(b.Apply(op, []expr.Value{b.Operand(0), b.Operand(1)}[:op.Arity()]...)))
				x, y := arguments(r, op, d, n)
				got := must.Get[[]float64](t)(mapOnGPU(dev, f, x, y))
				truth, most, at, bits := precise.Function(op.String()), 0.0, 0, map[expr.Dtype]int{expr.Float32: 24, expr.Float64: 53}[d]
				for i := range got {
					if e := precise.Error(got[i], truth(x[i], y[i]), bits); e > most {
						most, at = e, i
					}
				}
				t.Logf("| %s | %v | %.3f | at %v %v |", op, d, most, x[at], y[at])
				if most > mapBound(op) {
					t.Errorf("%s of %v, %v is %v, off by %g units in the last place, want at most %v", op, x[at], y[at], got[at], most, mapBound(op))
				}
			})
		}
	}
}

// arguments draws n arguments in the domain of an operation: of all magnitudes and
// where functions change; y is for Pow, and mostly such that its value is a number.
func arguments(r *rand.Rand, op expr.Op, d expr.Dtype, n int) (x, y []float64) {
	for len(x) < n {
		v := []float64{math.Ldexp(1+r.Float64(), r.IntN(2000)-1000), 40 * r.Float64(), 1500 * r.Float64(), 1 + (r.Float64()-0.5)/8,
			float64(r.IntN(1e6)) * math.Pi / 2}[r.IntN(5)]
		w := (r.Float64() - 0.5) * 1450 / math.Log(v)
		switch op {
		case expr.Log, expr.Log2, expr.Pow:
		case expr.Log1p:
			if r.IntN(2) == 0 && v < 1 {
				v = -v
			}
		default:
			if r.IntN(2) == 0 {
				v = -v
			}
		}
		if d == expr.Float32 {
			v, w = float64(float32(v)), float64(float32(w/8))
		}
		if v != 0 && v != 1 && !math.IsInf(v, 0) {
			x, y = append(x, v), append(y, w)
		}
	}
	return x, y
}

// More than 2^31 elements take indices of 64 bits.
func TestMapHugeOnGPU(t *testing.T) {
	dev := device0(t)
	if os.Getenv("STHENO_LARGE") != "1" {
		t.Skip("SKIPPED, NOT TESTED: 14 GB of the host's memory, without STHENO_LARGE=1")
	}
	b := expr.NewBuilder(expr.Uint8, expr.Float32)
	f := must.Get[expr.Func](t)(b.Func(b.Apply(expr.Lt, b.Convert(b.Operand(0), expr.Float32), b.Operand(1))))
	shape := []int{65537, 32770}
	p := must.Get[*kernels.Plan](t)(kernels.Map(dev, f, shape, kernels.Dense(shape), kernels.View{Elements: 65537, Strides: []int{1, 0}}))
	x, limit, out := make([]byte, kernels.Count(shape)), make([]float32, 65537), make([]byte, kernels.Count(shape))
	for i := range x {
		x[i] = byte(i >> 3)
	}
	for i := range limit {
		limit[i] = float32(i % 256)
	}
	must.Do(t, Run(0, p, [][]byte{x, unsafe.Slice((*byte)(unsafe.Pointer(&limit[0])), 4*65537)}, out))
	for i, got := range out {
		want := byte(0)
		if float32(x[i]) < limit[i/32770] {
			want = 1
		}
		if got != want {
			t.Fatalf("element %d is %d, want %d", i, got, want)
		}
	}
}
