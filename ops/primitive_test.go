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
	args := []any{kernels.Ref{Operand: kernels.Out}}
	for i := range in {
		args = append(args, kernels.Ref{Operand: kernels.Operand(i)})
	}
	body := func(c kernels.Call) {
		out := kernels.Slice[float64](c, 0)
		for k := range out {
			x := make([]float64, len(in))
			for i := range x {
				x[i] = kernels.Slice[float64](c, i+1)[k]
			}
			out[k] = f(x)
		}
	}
	p.Launches = []kernels.Launch{{Kernel: &kernels.Kernel{Entry: name, Body: body},
		Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}, Args: args}}
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
			f(kernels.Slice[float64](c, 0), kernels.Slice[float64](c, 2), kernels.Slice[int64](c, 1))
		}},
		Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1},
		Args: []any{kernels.Ref{Operand: 0}, kernels.Ref{Operand: 1}, kernels.Ref{Operand: kernels.Out}},
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

// panics is a primitive whose named method panics.
type panics struct{ method string }

func (p panics) panic(method string) {
	if p.method == method {
		panic("oh")
	}
}

func (p panics) String() string { p.panic("String"); return "Panics" }

func (p panics) Infer(in ...Type) (Type, error) { p.panic("Infer"); return in[0], nil }

func (p panics) Plan(_ kernels.Device, in ...Type) (*kernels.Plan, error) {
	p.panic("Plan")
	return elementwise("panics", in, func(x []float64) float64 { p.panic("body"); return x[0] }), nil
}

func (p panics) Adjoints(b *Backward) []Term { p.panic("Adjoints"); return []Term{b.Grad()} }

// given is a primitive of one input with methods from outside.
type given struct {
	*fields
	name string
}

type fields struct {
	infer    Type
	plan     *kernels.Plan
	adjoints string
}

func (g given) String() string                 { return g.name }
func (g given) Infer(in ...Type) (Type, error) { return g.infer, nil }

func (g given) Plan(kernels.Device, ...Type) (*kernels.Plan, error) { return g.plan, nil }

func (g given) Adjoints(b *Backward) []Term {
	switch g.adjoints {
	case "none":
		return b.None("it is a test's")
	case "two":
		return []Term{b.Grad(), b.Grad()}
	case "another input":
		return []Term{b.Apply(exp{}, b.In(1))}
	case "zero operand":
		return []Term{b.Apply(exp{}, Term{})}
	case "nil primitive":
		return []Term{b.Apply(nil, b.Grad())}
	case "nil pointer":
		return []Term{b.Apply((*given)(nil), b.Grad())}
	case "refused":
		return []Term{b.Apply(times{2}, b.Grad())}
	case "after a mistake":
		return []Term{b.Apply(times{2}, b.Apply(times{2}, b.Grad()), Term{})}
	case "other type":
		return []Term{b.Apply(given{&fields{infer: Type{kernels.Float64, tensor.Shape{7}}}, "Seven"}, b.Grad())}
	case "other differentiation":
		return []Term{new(Backward).Grad(), newBackward(&Op{}).Grad()}[1:]
	}
	return nil
}

var vector3 = Type{kernels.Float64, tensor.Shape{3}}

// What a primitive gets wrong is an error that names it, never a panic.
func TestPrimitiveErrors(t *testing.T) {
	x := []float64{1, 2, 3}
	for _, c := range []struct {
		p    Primitive
		want string
	}{
		{nil, "ops: Apply: got a nil primitive"},
		{(*given)(nil), "ops: Apply: got a nil *ops.given as primitive"},
		{panics{"String"}, "ops: Apply: String of ops.panics panicked: oh"},
		{panics{"Infer"}, "ops: Panics: Infer panicked: oh"},
		{times{2}, "ops: Times[2]: got 1 inputs, want 2"},
		{given{&fields{}, "Given"}, ""}, // a scalar
		{given{&fields{infer: Type{99, nil}}, "Given"}, "ops: Given: output: got kernels.Dtype(99), which is no element type"},
		{given{&fields{infer: Type{0, tensor.Shape{3, 0}}}, "Given"}, "ops: Given: output: got shape (3, 0), want at least one element"},
		{given{&fields{plan: &kernels.Plan{Launches: []kernels.Launch{{Kernel: &kernels.Kernel{Body: func(kernels.Call) {}}}}}}, "Given"},
			"ops: Given: it holds a func(kernels.Call), which cannot be told from another one"},
	} {
		if n, err := Apply(c.p, vectors(x)...); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("Apply gave %v and error %v, want %q", n, err, c.want)
		}
	}
	if _, err := Apply(exp{}); err == nil || !strings.Contains(err.Error(), "Exp: got no inputs") {
		t.Errorf("Apply to nothing gave error %v", err)
	}
	for _, c := range []struct {
		p    Primitive
		want string
	}{
		{panics{"Plan"}, "ops: Panics: Plan panicked: oh"},
		{panics{"body"}, "ops: Panics: its kernel panicked: oh"},
		{given{&fields{infer: vector3}, "Given"}, "ops: Given: Plan returned nil and no error"},
		{given{&fields{infer: vector3, plan: &kernels.Plan{}}, "Given"}, "ops: Given: the plan takes 0 inputs, want 1"},
		{given{&fields{infer: vector3, plan: &kernels.Plan{Inputs: []int64{12}, Out: 24}}, "Given"}, "takes 12 bytes of input 0, want the 24 of float64 (3)"},
		{given{&fields{infer: vector3, plan: &kernels.Plan{Inputs: []int64{24}, Out: 12}}, "Given"}, "gives 12 bytes, want the 24 of float64 (3)"},
		{given{&fields{infer: vector3, plan: &kernels.Plan{Inputs: []int64{24}, Out: 24, Launches: make([]kernels.Launch, 1)}}, "Given"}, "launch 0 of the plan has no kernel"},
	} {
		in := vectors(x)
		y, err := Apply(c.p, in...)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := y.Op().Do(in[0].Value()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Do gave %v and error %v, want %q", v, err, c.want)
		}
	}
}

// A mistake in Adjoints is the error of both ways of differentiation.
func TestAdjointErrors(t *testing.T) {
	for adjoints, want := range map[string]string{
		"none":                  "ops: Given has no gradient: it is a test's",
		"":                      "adjoints of Given: got derivatives by 0 inputs, want 1",
		"two":                   "got derivatives by 2 inputs, want 1",
		"another input":         "adjoints of Given: got input 1, want 0 to 0",
		"zero operand":          "Exp: operand 0 is the zero Term, want a value",
		"nil primitive":         "got a nil primitive",
		"nil pointer":           "got a nil *ops.given",
		"refused":               "adjoints of Given: Times[2]: got 1 inputs, want 2",
		"after a mistake":       "adjoints of Given: Times[2]: got 1 inputs, want 2",
		"other type":            "the derivative by input 0 is float64 (7), want float64 (3)",
		"other differentiation": "the derivative by input 0 is a Term of another differentiation",
	} {
		p := given{&fields{infer: vector3, adjoints: adjoints}, "Given"}
		in := []Type{vector3}
		p.plan = &kernels.Plan{Inputs: []int64{in[0].Bytes()}, Out: vector3.Bytes()} // leaves zeros
		_, errs := gradients(t, p, 1, []float64{1, 2, 3})
		for way, name := range []string{"SymDiff", "DoDiff"} {
			if errs[way] == nil || !strings.Contains(errs[way].Error(), want) {
				t.Errorf("%q: %s gave error %v, want %q", adjoints, name, errs[way], want)
			}
		}
	}
	_, errs := gradients(t, panics{"Adjoints"}, 1, []float64{1, 2, 3})
	for _, err := range errs {
		if want := "adjoints of Panics: Adjoints panicked: oh"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
}

// An op without a gradient in the middle of a loss is an error: without it the
// gradient would be that of the rest.
func TestNoSilentPartOfAGradient(t *testing.T) {
	in := vectors([]float64{1, 2, 3})
	a, err := Sum(in[0])
	if err != nil {
		t.Fatal(err)
	}
	b, err := Reduce(in[0], "a + b*b", 0)
	if err != nil {
		t.Fatal(err)
	}
	loss, err := Add(a, b)
	if err != nil {
		t.Fatal(err)
	}
	if grads, err := gorgonia.Grad(loss, in...); err == nil || !strings.Contains(err.Error(), "Reduce[a + (b * b), 0] has no gradient") {
		t.Errorf("got %v and error %v, want one that names Reduce", grads, err)
	}
}

// hidden has every kind of field. Its String leaves all of them out.
type hidden struct {
	b bool
	i int8
	u uint16
	f float32
	c complex128
	s string
	l []int
	a [2]int
	m map[string][]int
	p *hidden
	x any
}

func (hidden) String() string                 { return "Hidden" }
func (hidden) Infer(in ...Type) (Type, error) { return in[0], nil }

func (hidden) Plan(kernels.Device, ...Type) (*kernels.Plan, error) { return nil, nil }
func (hidden) Adjoints(b *Backward) []Term                         { return b.None("") }

// alike is hidden by another type.
type alike hidden

func (alike) String() string                 { return "Hidden" }
func (alike) Infer(in ...Type) (Type, error) { return in[0], nil }

func (alike) Plan(kernels.Device, ...Type) (*kernels.Plan, error) { return nil, nil }
func (alike) Adjoints(b *Backward) []Term                         { return b.None("") }

// Two primitives that differ in any field, in the type or in the types of inputs are
// two nodes; equal ones are one, wherever in memory their fields lie.
func TestIdentity(t *testing.T) {
	float32x3 := Type{kernels.Float32, tensor.Shape{3}}
	identify := func(p Primitive, in ...Type) identity {
		op, err := newOp(p, in...)
		if err != nil {
			t.Fatal(err)
		}
		return op.identity
	}
	seen := map[identity]int{}
	for i, p := range []Primitive{
		hidden{}, &hidden{}, alike{}, hidden{b: true}, hidden{i: 1}, hidden{u: 1}, hidden{f: 1}, hidden{f: float32(math.Copysign(0, -1))}, hidden{c: 1i}, hidden{s: "1"},
		hidden{l: []int{0}}, hidden{l: []int{0, 0}}, hidden{a: [2]int{0, 1}}, hidden{m: map[string][]int{"a": nil}}, hidden{m: map[string][]int{"a": {1}, "b": {2}}},
		hidden{m: map[string][]int{"a": {2}, "b": {1}}}, hidden{p: &hidden{}}, hidden{p: &hidden{i: 1}}, hidden{x: int32(0)}, hidden{x: int64(0)}, hidden{x: alike{}}, hidden{x: hidden{}},
	} {
		for k, in := range [][]Type{{vector3}, {float32x3}, {vector3, vector3}, {{kernels.Float64, tensor.Shape{1, 3}}}} {
			id := identify(p, in...)
			if other, ok := seen[id]; ok {
				t.Errorf("primitives %d and %d, on inputs %d, have one identity", other, i, k)
			}
			seen[id] = i
		}
	}
	make2 := func() Primitive {
		m := map[string][]int{}
		for i := range 20 {
			m[fmt.Sprint(i)] = []int{i}
		}
		return hidden{m: m, p: &hidden{l: []int{7}}, x: &hidden{}}
	}
	if a, b := identify(make2(), vector3), identify(make2(), vector3); a != b {
		t.Error("equal primitives have two identities")
	}
	loop := &hidden{}
	loop.p = loop
	for _, p := range []Primitive{loop, hidden{x: func() {}}, hidden{x: make(chan int)}} {
		if _, err := newOp(p, vector3); err == nil || !strings.Contains(err.Error(), "want plain parameters") {
			t.Errorf("a primitive that is no plain data gave error %v", err)
		}
	}
	// The same in every run and on every machine: recorded once.
	id := identify(exp{}, vector3)
	if got, want := fmt.Sprintf("%x", id[:4]), "c528ab23"; got != want {
		t.Errorf("the identity of Exp begins with %s, want %s", got, want)
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
