package ops

import (
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func addOp(t *testing.T, dt kernels.Dtype, shape ...int) *Op {
	t.Helper()
	op, err := newOp(add{}, Type{dt, shape}, Type{dt, shape})
	if err != nil {
		t.Fatal(err)
	}
	return op
}

func TestUsePreallocDo(t *testing.T) {
	op := addOp(t, kernels.Float32, 3)
	vector := func(x ...float32) *tensor.Dense { return tensor.New(tensor.WithBacking(x)) }
	a, b := vector(1, 2, 3), vector(10, 20, 30)
	for _, c := range []struct {
		name     string
		prealloc gorgonia.Value
		reused   bool
	}{
		{"fits", vector(7, 7, 7), true},
		{"other shape", vector(7, 7), false},
		{"other type", tensor.New(tensor.WithBacking([]float64{7, 7, 7})), false},
		{"scalar", gorgonia.NewF32(7), false},
		{"none", nil, false},
		{"an input", a, false},
	} {
		out, err := op.UsePreallocDo(c.prealloc, a, b)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := out.Data().([]float32); !slices.Equal(got, []float32{11, 22, 33}) {
			t.Errorf("%s: got %v, want [11 22 33]", c.name, got)
		}
		if (out == c.prealloc) != c.reused {
			t.Errorf("%s: memory reused: %v, want %v", c.name, out == c.prealloc, c.reused)
		}
		if got := a.Data().([]float32); !slices.Equal(got, []float32{1, 2, 3}) {
			t.Fatalf("%s: the input was written: %v", c.name, got)
		}
	}
}

// An op is made for inputs of given shapes.
func TestOtherInputs(t *testing.T) {
	op := addOp(t, kernels.Float32, 3)
	if s, err := op.InferShape(tensor.Shape{3}, tensor.Shape{3}); err != nil || !slices.Equal(s, tensor.Shape{3}) {
		t.Errorf("got shape %v, %v, want (3)", s, err)
	}
	for _, in := range [][]gorgonia.DimSizer{nil, {tensor.Shape{3}}, {tensor.Shape{3}, tensor.Shape{4}}, {tensor.Shape{4}, tensor.Shape{4}}} {
		if s, err := op.InferShape(in...); err == nil || !strings.Contains(err.Error(), "Add") {
			t.Errorf("inputs of shapes %v: got %v, %v, want an error that names Add", in, s, err)
		}
	}
	g := gorgonia.NewGraph()
	x := gorgonia.NewVector(g, tensor.Float32, gorgonia.WithShape(5), gorgonia.WithName("x"))
	if n, err := gorgonia.ApplyOp(op, x, x); err == nil {
		t.Errorf("an op for 3 elements on 5 gives %v", n)
	}
	if err := op.DoDiff(gorgonia.ExecutionContext{}, gorgonia.Nodes{x}, x); err == nil {
		t.Error("DoDiff with a gradient and one input of two gives no error")
	}
	if _, err := op.SymDiff(gorgonia.Nodes{x}, x, x); err == nil {
		t.Error("SymDiff with one input of two gives no error")
	}
}

func TestDoErrors(t *testing.T) {
	op := addOp(t, kernels.Float32, 3)
	a := tensor.New(tensor.WithBacking([]float32{1, 2, 3}))
	for name, in := range map[string][]gorgonia.Value{
		"too few":     {a},
		"too many":    {a, a, a},
		"none":        {a, nil},
		"other shape": {a, tensor.New(tensor.WithBacking([]float32{1, 2}))},
		"other type":  {a, tensor.New(tensor.WithBacking([]float64{1, 2, 3}))},
		"masked":      {a, tensor.New(tensor.WithBacking([]float32{1, 2, 3}, []bool{false, true, false}))},
	} {
		if out, err := op.Do(in...); err == nil || !strings.HasPrefix(err.Error(), "ops: Add: ") {
			t.Errorf("%s: got %v and error %v, want one that names Add", name, out, err)
		}
	}
}
