package ops

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/tape"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// elementwise plans f, element by element, over operands of one type, float64.
func elementwise(name string, in []Type, f func(x []float64) float64) *kernels.Plan {
	p := &kernels.Plan{Op: name, Out: in[0].Bytes()}
	for _, t := range in {
		p.Inputs = append(p.Inputs, t.Bytes())
	}
	body := func(c kernels.Call) {
		out := kernels.Slice[float64](c, kernels.At(kernels.Out, 0))
		for k := range out {
			x := make([]float64, len(in))
			for i := range x {
				x[i] = kernels.Slice[float64](c, kernels.In(kernels.Operand(i)))[k]
			}
			out[k] = f(x)
		}
	}
	p.Launches = []kernels.Launch{{Kernel: &kernels.Kernel{Entry: name, Body: body},
		Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}}}
	return p
}

// times is a primitive as another module writes one: out = factor a b.
type times struct{ Factor float64 }

func (t times) String() string { return fmt.Sprintf("Times[%v]", t.Factor) }

func (times) Infer(in ...Type) (Type, error) {
	if err := CheckFloats(in, 2); err != nil {
		return Type{}, err
	}
	if !in[0].Shape.Eq(in[1].Shape) {
		return Type{}, fmt.Errorf("got shapes %v and %v, want two equal ones", in[0].Shape, in[1].Shape)
	}
	return in[0], nil
}

func (t times) Plan(_ kernels.Device, in ...Type) (*kernels.Plan, error) {
	return elementwise("times", in, func(x []float64) float64 { return t.Factor * x[0] * x[1] }), nil
}

func (t times) Adjoints(b *Backward) []Term {
	return []Term{b.Apply(t, b.Grad(), b.In(1)), b.Apply(t, b.In(0), b.Grad())}
}

// exp is out = e^x, whose derivative is the output.
type exp struct{}

func (exp) String() string                 { return "Exp" }
func (exp) Infer(in ...Type) (Type, error) { return in[0], CheckFloats(in, 1) }

func (exp) Plan(_ kernels.Device, in ...Type) (*kernels.Plan, error) {
	return elementwise("exp", in, func(x []float64) float64 { return math.Exp(x[0]) }), nil
}

func (exp) Adjoints(b *Backward) []Term {
	b.Apply(panics{"Plan"}, b.In(0)) // nothing needs it, so it is never planned
	return []Term{b.Apply(times{1}, b.Grad(), b.Out())}
}

// gather is out[i] = x[index[i]] for a float64 vector and int64 indices.
type gather struct{}

func (gather) String() string { return "Gather" }

func (gather) Infer(in ...Type) (Type, error) {
	if len(in) != 2 || in[0].Dtype != kernels.Float64 || in[1].Dtype != kernels.Int64 {
		return Type{}, fmt.Errorf("got %v, want float64 and int64", in)
	}
	return Type{kernels.Float64, in[1].Shape}, nil
}

func (gather) Plan(_ kernels.Device, in ...Type) (*kernels.Plan, error) {
	return gatherPlan("gather", in, Type{kernels.Float64, in[1].Shape}, func(x, out []float64, at []int64) {
		for i, k := range at {
			out[i] = x[k]
		}
	}), nil
}

// There is no derivative by an index.
func (gather) Adjoints(b *Backward) []Term {
	return []Term{b.Apply(scatter{b.In(0).Type().Shape[0]}, b.Grad(), b.In(1)), {}}
}

// scatter is out[index[i]] += x[i] into a vector of N zeros.
type scatter struct{ N int }

func (s scatter) String() string { return "Scatter" }

func (s scatter) Infer(in ...Type) (Type, error) {
	return Type{kernels.Float64, tensor.Shape{s.N}}, nil
}

func (s scatter) Plan(_ kernels.Device, in ...Type) (*kernels.Plan, error) {
	return gatherPlan("scatter", in, Type{kernels.Float64, tensor.Shape{s.N}}, func(x, out []float64, at []int64) {
		clear(out)
		for i, k := range at {
			out[k] += x[i]
		}
	}), nil
}

func (scatter) Adjoints(b *Backward) []Term { return []Term{b.Apply(gather{}, b.Grad(), b.In(1)), {}} }

func gatherPlan(name string, in []Type, out Type, f func(x, out []float64, at []int64)) *kernels.Plan {
	return &kernels.Plan{Op: name, Inputs: []int64{in[0].Bytes(), in[1].Bytes()}, Out: out.Bytes(), Launches: []kernels.Launch{{
		Kernel: &kernels.Kernel{Entry: name, Body: func(c kernels.Call) {
			f(kernels.Slice[float64](c, kernels.In(0)), kernels.Slice[float64](c, kernels.At(kernels.Out, 0)), kernels.Slice[int64](c, kernels.In(1)))
		}},
		Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1},
	}}}
}

// vectors makes nodes of one graph with values.
func vectors(backings ...any) (in gorgonia.Nodes) {
	g := gorgonia.NewGraph()
	for i, x := range backings {
		v := tensor.New(tensor.WithBacking(x))
		in = append(in, gorgonia.NewVector(g, v.Dtype(), gorgonia.WithName(fmt.Sprint("x", i)), gorgonia.WithShape(v.Shape()...), gorgonia.WithValue(v)))
	}
	return in
}

// gradients returns the derivatives of Sum(p(in...)) by its first n inputs,
// symbolically and by dual values.
func gradients(t *testing.T, p Primitive, n int, backings ...any) (results [2][]string, errs [2]error) {
	t.Helper()
	for way := range 2 {
		in := vectors(backings...)
		y, err := Apply(p, in...)
		if err != nil {
			t.Fatal(err)
		}
		loss, err := Sum(y)
		if err != nil {
			t.Fatal(err)
		}
		var vm gorgonia.VM
		var grads gorgonia.Nodes
		if way == 0 {
			if grads, errs[way] = gorgonia.Grad(loss, in[:n]...); errs[way] != nil {
				continue
			}
			vm, err = tape.NewMachine(loss.Graph())
		} else {
			vm, err = tape.NewLispMachine(loss.Graph())
		}
		if err != nil {
			t.Fatal(err)
		}
		if errs[way] = vm.RunAll(); errs[way] == nil {
			for i := range n {
				if way == 0 {
					results[way] = append(results[way], fmt.Sprintf("%.4g", grads[i].Value()))
				} else if d, err := in[i].Grad(); err != nil {
					t.Fatal(err)
				} else {
					results[way] = append(results[way], fmt.Sprintf("%.4g", d))
				}
			}
		}
		vm.Close()
	}
	return results, errs
}

// Another module's primitives run and have their gradients, whichever way Gorgonia
// asks: those that use the output, and those of inputs of several types too.
func TestApply(t *testing.T) {
	for _, c := range []struct {
		p    Primitive
		n    int
		in   []any
		want []string
	}{
		{times{3}, 2, []any{[]float64{1, 2, 3}, []float64{4, 5, 6}}, []string{"[12  15  18]", "[3  6  9]"}},
		{exp{}, 1, []any{[]float64{0, 1, 2}}, []string{"[    1  2.718  7.389]"}},
		{gather{}, 1, []any{[]float64{5, 6, 7}, []int64{2, 0, 2, 2}}, []string{"[1  0  3]"}},
	} {
		results, errs := gradients(t, c.p, c.n, c.in...)
		for way, name := range []string{"SymDiff", "DoDiff"} {
			if name == "DoDiff" && c.n < len(c.in) { // a LispMachine makes a derivative for each value, and none for integers
				continue
			}
			if errs[way] != nil || !slices.Equal(results[way], c.want) {
				t.Errorf("%v: %s gave %q and error %v, want %q", c.p, name, results[way], errs[way], c.want)
			}
		}
	}
	in := vectors([]float64{5, 6, 7}, []int64{2, 0})
	y, err := Apply(gather{}, in...)
	if err != nil {
		t.Fatal(err)
	}
	v, err := y.Op().Do(in[0].Value(), in[1].Value())
	if err != nil || fmt.Sprint(v) != "[7  5]" {
		t.Errorf("Gather gave %v and error %v, want [7  5]", v, err)
	}
	if wrt := y.Op().(gorgonia.SDOp).DiffWRT(2); !slices.Equal(wrt, []bool{true, false}) {
		t.Errorf("Gather is differentiable by %v, want by its first input alone", wrt)
	}
	if _, err := Apply(gather{}, in[1], in[0]); err == nil || !strings.Contains(err.Error(), "Gather: got [int64 (2) float64 (3)]") {
		t.Errorf("Gather of an index by a float gave error %v", err)
	}
}

// An op of one output element type and several input types has room for them all.
func TestTypes(t *testing.T) {
	op, err := newOp(gather{}, vector3, Type{kernels.Int64, tensor.Shape{2, 2}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(op.Type()), "Vector float64 → Matrix int64 → Matrix float64"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	v, mem := values.New(kernels.Int64, tensor.Shape{2, 2})
	copy(mem, kernels.Bytes([]int64{2, 1, 0, 0}))
	out, err := op.Do(tensor.New(tensor.WithBacking([]float64{5, 6, 7})), v)
	if err != nil || !slices.Equal(out.Data().([]float64), []float64{7, 6, 5, 5}) {
		t.Errorf("got %v and error %v, want 7 6 5 5", out, err)
	}
}
