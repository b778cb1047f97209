package ops

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/values"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func TestAll(t *testing.T) {
	specs := All()
	if !slices.IsSortedFunc(specs, func(a, b Spec) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the Specs are not in the order of their names")
	}
	for i, s := range specs {
		if s.Name == "" || s.Formula == "" || s.Doc == "" || s.Random == nil || len(s.Cases) == 0 {
			t.Errorf("Spec %q lacks a name, formula, sentence, cases or Random", s.Name)
		}
		if i > 0 && specs[i-1].Name == s.Name {
			t.Errorf("%s is registered twice", s.Name)
		}
		names := make(map[string]bool)
		for _, c := range s.Cases {
			if names[c.Name] || c.Build == nil || c.Reference == nil {
				t.Errorf("%s: case %q is named twice or lacks Build or Reference", s.Name, c.Name)
			}
			names[c.Name] = true
		}
	}
	specs[0] = Spec{}
	if All()[0].Name == "" {
		t.Error("All gives its own memory away")
	}
}

func addOp(t *testing.T, dt tensor.Dtype, shape ...int) *Op {
	t.Helper()
	of, _ := values.Dtype(dt)
	op, err := newOp(add{}, of, shape, shape)
	if err != nil {
		t.Fatal(err)
	}
	return op
}

// Ops of other parameters, types or shapes are other nodes of a graph, which
// tells them by their hashes.
func TestHash(t *testing.T) {
	seen := make(map[uint32]string)
	for _, s := range All() {
		for _, c := range s.Cases {
			for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
				g := gorgonia.NewGraph()
				in := make([]*gorgonia.Node, len(c.Shapes))
				for i, shape := range c.Shapes {
					in[i] = gorgonia.NewTensor(g, dt, len(shape), gorgonia.WithShape(shape...))
				}
				n, err := c.Build(in...)
				if err != nil {
					t.Fatalf("%s, case %s: %v", s.Name, c.Name, err)
				}
				o := n.Op()
				what := o.String() + " " + dt.String()
				for _, shape := range c.Shapes {
					what += fmt.Sprint(shape)
				}
				if other, ok := seen[o.Hashcode()]; ok && other != what {
					t.Errorf("%s and %s have one hash", other, what)
				}
				seen[o.Hashcode()] = what
			}
		}
	}
	if a, b := addOp(t, tensor.Float32, 3), addOp(t, tensor.Float32, 3); a.Hashcode() != b.Hashcode() {
		t.Error("equal ops have two hashes")
	}
}

func TestUsePreallocDo(t *testing.T) {
	op := addOp(t, tensor.Float32, 3)
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
	op := addOp(t, tensor.Float32, 3)
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
	op := addOp(t, tensor.Float32, 3)
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
