package codegen

import (
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/ptxas"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
)

// ptxOf returns the PTX of an image that is made when it is needed.
func ptxOf(t testing.TB, image kernels.Image, major int) []byte {
	t.Helper()
	ptx, err := image.(kernels.Generated).PTX(major)
	if err != nil {
		t.Fatalf("%s: %v", image.Name(), err)
	}
	return ptx
}

// assemble assembles an image for a target, and returns the cubin, registers and bytes of spills.
func assemble(t *testing.T, image kernels.Image, target string) (cubin []byte, registers, spills int) {
	t.Helper()
	return ptxas.Assemble(t, image.Name(), ptxOf(t, image, int(target[3]-'0')), target) // of sm_70
}

// assembleMap has the assembler take the kernel of a function, for the i-th of some targets in turn, and fails if it spills.
func assembleMap(t *testing.T, i int, dev kernels.Device, shape []int, f expr.Func, views ...View) {
	t.Helper()
	p, err := Map(dev, f, shape, views...)
	if err != nil {
		t.Fatal(err)
	}
	targets := []string{"sm_70", "sm_80", "sm_90"}
	target, code := targets[i%len(targets)], p.Launches[0].Kernel.Image.(image)
	_, registers, spills := assemble(t, code, target)
	t.Logf("%s: %d registers on %s, %v", f, registers, target, code.layout)
	if spills > 0 {
		t.Errorf("%v spills %d bytes on %s", f, spills, target)
	}
}

// NVIDIA's assembler takes every function of every floating-point type, and spills
// nothing.
func TestMapAssembles(t *testing.T) {
	ptxas.Find(t)
	i, shape := 0, []int{6, 8}
	for _, op := range slices.Concat(exprtest.Exact, exprtest.Inexact) {
		for _, d := range []expr.Dtype{kernels.Float32, kernels.Float64} {
			b := expr.NewBuilder(d, d, kernels.Bool)
			args := []expr.Value{b.Operand(0), b.Operand(1)}[:min(op.Arity(), 2)]
			if op == expr.Select {
				args = append([]expr.Value{b.Operand(2)}, args...)
			}
			f, err := b.Func(b.Apply(op, args...))
			if err != nil {
				t.Fatal(err)
			}
			assembleMap(t, i, kernels.HostDevice(), shape, f, Dense(shape), Dense(shape), Dense(shape))
			i++
		}
	}
}

// The same of operands of every type in every layout.
func TestMapLayoutsAssemble(t *testing.T) {
	if testing.Short() {
		t.Skip("assembles many kernels")
	}
	ptxas.Find(t)
	host, shape := kernels.HostDevice(), []int{6, 8}
	views := []View{Dense(shape), viewAt(1, 0, 0, 0), viewAt(100, 1, 8, 1), viewAt(8, 0, 0, 1), viewAt(6, 0, 1, 0), viewAt(48, 0, 1, 6), within(viewAt(16, 0, 8, 1), 0, 2, 4), within(viewAt(30, 0, 5, 1), 1, 1, 6)}
	i := 0
	for k, v := range views {
		for j, d := range []expr.Dtype{kernels.Float32, kernels.Float64, kernels.Bool, kernels.Uint8, kernels.Int32, kernels.Int64} {
			b := expr.NewBuilder(d, kernels.Float32)
			f, err := b.Func(b.Apply(expr.Lt, b.Apply(expr.Tanh, b.Convert(b.Operand(0), kernels.Float32)), b.Operand(1)))
			if err != nil {
				t.Fatal(err)
			}
			assembleMap(t, i, host, shape, f, v, views[(k+j)%len(views)])
			i++
		}
	}
	for k, d := range []expr.Dtype{kernels.Float32, kernels.Float64} {
		b := expr.NewBuilder(d)
		f, err := b.Func(b.Convert(b.Operand(0), kernels.Int), b.Convert(b.Convert(b.Operand(0), kernels.Int64), kernels.Float32))
		if err != nil {
			t.Fatal(err)
		}
		assembleMap(t, k, host, shape, f, views[k])
	}
	few := kernels.Device{Major: 9, SMs: 132} // of few elements
	for k, v := range views {
		assembleMap(t, k, few, shape, parseMap(t, "tanh(a) < b", "a", "b"), v, views[(k+1)%len(views)])
	}
	sum := parseMap(t, "a + b", "a", "b")
	assembleMap(t, 0, host, []int{7, 9}, sum, viewAt(9, 0, 0, 1), viewAt(63, 0, 1, 7))
	shape = []int{1 << 16, 1 << 16}
	assembleMap(t, 1, host, shape, parseMap(t, "tanh(a*b) + c", "a", "b", "c"), Dense(shape), viewAt(1<<16, 0, 0, 1), viewAt(1<<32, 0, 1, 1<<16))
	shape = []int{1 << 16, 1<<16 - 1}
	assembleMap(t, 2, host, shape, sum, Dense(shape), viewAt(1<<16, 0, 0, 1))
	assembleMap(t, 0, host, shape, sum, Dense(shape), within(viewAt(1<<20, 0, 1, 0), 0, 1, 4))
}

// Text is written in well under the time that the driver needs to compile it.
func BenchmarkMapCode(b *testing.B) {
	shape := []int{128, 512}
	p, err := Map(kernels.HostDevice(), parseMap(b, "tanh(a*b) + c", "a", "b", "c"), shape, Dense(shape), viewAt(512, 0, 0, 1), viewAt(128, 0, 1, 0))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Launches[0].Kernel.Image.Code(9, 0); err != nil {
			b.Fatal(err)
		}
	}
}
