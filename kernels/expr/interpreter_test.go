package expr_test

import (
	"math"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
	"pgregory.net/rapid"
)

// run evaluates a function on elements, block by block.
func run(f expr.Func, operands ...[]float64) ([][]float64, error) {
	in := expr.NewInterpreter(f)
	n := len(operands[0])
	memory, outputs := make([][]byte, len(operands)), make([][]byte, len(f.Outputs()))
	for i, d := range f.Operands() {
		memory[i] = exprtest.Pack(d, operands[i])
	}
	for i, d := range f.Outputs() {
		outputs[i] = exprtest.Memory(int64(n) * d.Size())
	}
	for lo := 0; lo < n; lo += expr.BlockSize {
		at := func(list [][]byte, types []expr.Dtype) []unsafe.Pointer {
			p := make([]unsafe.Pointer, len(list))
			for i := range list {
				p[i] = unsafe.Pointer(&list[i][int64(lo)*types[i].Size()])
			}
			return p
		}
		if err := in.Run(min(expr.BlockSize, n-lo), at(memory, f.Operands()), at(outputs, f.Outputs())); err != nil {
			return nil, err
		}
	}
	values := make([][]float64, len(outputs))
	for i, d := range f.Outputs() {
		values[i] = exprtest.Unpack(d, outputs[i])
	}
	return values, nil
}

func apply(f expr.Func, operands ...[]float64) ([]float64, error) {
	out, err := run(f, operands...)
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// Functions of many operations compute the bits that their operations compute one by
// one, the exact ones by other code.
func TestFusedIsUnfused(t *testing.T) {
	types := []expr.Dtype{expr.Float32, expr.Float64, expr.Float32, expr.Bool, expr.Int32, expr.Uint8, expr.Int64, expr.Int}
	ops := append(append([]expr.Op(nil), exprtest.Exact...), exprtest.Inexact...)
	testutil.CheckProperty(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{1, 7, expr.BlockSize + 3}).Draw(t, "n")
		d := rapid.SampledFrom([]expr.Dtype{expr.Float32, expr.Float64}).Draw(t, "type")
		var terms []*exprtest.Term
		for range rapid.IntRange(1, 3).Draw(t, "outputs") {
			terms = append(terms, exprtest.Draw(t, types, d, ops, rapid.IntRange(0, 30).Draw(t, "size")))
		}
		operands, bits := make([][]float64, len(types)), make([][]uint64, len(types))
		for i, d := range types {
			few := exprtest.Values(t, d, 7)
			for len(operands[i]) < n {
				operands[i] = append(operands[i], few[:min(7, n-len(operands[i]))]...)
			}
			bits[i] = exprtest.UnpackBits(d, exprtest.Pack(d, operands[i]))
		}
		f, err := exprtest.Func(types, terms...)
		if err != nil {
			t.Fatal(err)
		}
		got, err := run(f, operands...)
		if err != nil {
			t.Fatal(err)
		}
		for k, term := range terms {
			want, err := term.Unfused(n, bits, apply)
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range exprtest.Unpack(term.Dtype, exprtest.PackBits(term.Dtype, want)) {
				if !exprtest.Same(got[k][i], want) {
					t.Fatalf("element %d of output %d of %v is %v, want %v", i, k, f, got[k][i], want)
				}
			}
		}
	})
}

// Two functions are equal if and only if they are written alike.
func TestStringIdentifies(t *testing.T) {
	types := []expr.Dtype{expr.Float32, expr.Float64, expr.Bool}
	testutil.CheckProperty(t, func(t *rapid.T) {
		draw := func() expr.Func {
			d := rapid.SampledFrom([]expr.Dtype{expr.Float32, expr.Float64}).Draw(t, "type")
			f, err := exprtest.Func(types, exprtest.Draw(t, types, d, []expr.Op{expr.Neg, expr.Sub, expr.Mul, expr.Select}, rapid.IntRange(0, 4).Draw(t, "size")))
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		if f, g := draw(), draw(); (f == g) != (f.String() == g.String()) {
			t.Fatalf("%v and %v: equal %v", f, g, f == g)
		}
	})
}

// An output may lie where an operand does, and be an operand, a number or another
// output.
func TestInterpreterOutputs(t *testing.T) {
	f, err := expr.Parse("exp(a) * a - a", expr.Float64, "a")
	if err != nil {
		t.Fatal(err)
	}
	x := []float64{1, 2, 3}
	want, err := apply(f, x)
	if err != nil {
		t.Fatal(err)
	}
	p := []unsafe.Pointer{unsafe.Pointer(&x[0])}
	if err := expr.NewInterpreter(f).Run(3, p, p); err != nil || x[0] != want[0] || x[2] != want[2] {
		t.Errorf("in place: got %v, %v, want %v", x, err, want)
	}
	b := expr.NewBuilder(expr.Float32, expr.Bool)
	y := b.Apply(expr.Add, b.Operand(0), b.Constant(expr.Float32, 1))
	f, err = b.Func(b.Operand(1), y, b.Constant(expr.Float32, 7), y, b.Operand(0), b.Apply(expr.Mul, y, y))
	if err != nil {
		t.Fatal(err)
	}
	got, err := run(f, []float64{3, math.Inf(1)}, []float64{1, 0})
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range [][2]float64{{1, 0}, {4, math.Inf(1)}, {7, 7}, {4, math.Inf(1)}, {3, math.Inf(1)}, {16, math.Inf(1)}} {
		if got[k][0] != want[0] || got[k][1] != want[1] {
			t.Errorf("output %d is %v, want %v", k, got[k], want)
		}
	}
	if err := expr.NewInterpreter(f).Run(expr.BlockSize+1, p, p); err == nil {
		t.Error("more than a block was taken")
	}
}

func BenchmarkInterpreter(b *testing.B) {
	for _, text := range []string{"a*b + c", "tanh(a*b) + c"} {
		b.Run(text, func(b *testing.B) {
			f, err := expr.Parse(text, expr.Float32, "a", "b", "c")
			if err != nil {
				b.Fatal(err)
			}
			in := expr.NewInterpreter(f)
			memory := make([]unsafe.Pointer, 4)
			for i := range memory {
				memory[i] = unsafe.Pointer(&make([]float32, expr.BlockSize)[0])
			}
			for b.Loop() {
				if err := in.Run(expr.BlockSize, memory[:3], memory[3:]); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(4 * 4 * expr.BlockSize)
		})
	}
}
