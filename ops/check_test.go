package ops

import (
	"math"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

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

// A primitive's mistake is an error that names it, never a panic.
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
		{given{&fields{infer: Type{99, nil}}, "Given"}, "ops: Given: output: got kernels.Dtype(99), which is not an element type"},
		{given{&fields{infer: Type{0, tensor.Shape{3, 0}}}, "Given"}, "ops: Given: output: got shape (3, 0), want at least one element"},
		{given{&fields{plan: &kernels.Plan{Launches: []kernels.Launch{{Kernel: &kernels.Kernel{Body: func(kernels.Call) {}}}}}}, "Given"},
			"ops: Given: it holds a func(kernels.Call), which cannot be compared"},
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
		{panics{"body"}, "ops: Panics: kernels: panics: the Go body of kernel panics panicked: oh"},
		{given{&fields{infer: vector3}, "Given"}, "ops: Given: Plan returned nil and no error"},
		{given{&fields{infer: vector3, plan: &kernels.Plan{}}, "Given"}, "ops: Given: the plan takes 0 inputs, want 1"},
		{given{&fields{infer: vector3, plan: &kernels.Plan{Inputs: []int64{12}, Out: 24}}, "Given"}, "takes 12 bytes of input 0, want the 24 of float64 (3)"},
		{given{&fields{infer: vector3, plan: &kernels.Plan{Inputs: []int64{24}, Out: 12}}, "Given"}, "output has 12 bytes, want the 24 of float64 (3)"},
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
	b, err := Apply(given{&fields{infer: Type{kernels.Float64, tensor.ScalarShape()}, adjoints: "none"}, "Given"}, in[0])
	if err != nil {
		t.Fatal(err)
	}
	loss, err := Add(a, b)
	if err != nil {
		t.Fatal(err)
	}
	if grads, err := gorgonia.Grad(loss, in...); err == nil || !strings.Contains(err.Error(), "Given has no gradient") {
		t.Errorf("got %v and error %v, want one that names Given", grads, err)
	}
}

// A step of Slice beyond the range takes the range's first element, however long it is.
func TestSliceStep(t *testing.T) {
	x := gorgonia.NewMatrix(gorgonia.NewGraph(), tensor.Float64, gorgonia.WithShape(3, 4), gorgonia.WithInit(gorgonia.RangedFrom(0)), gorgonia.WithName("x"))
	for step, columns := range map[int]int{2: 2, 3: 2, math.MaxInt: 1} {
		y, err := Slice(x, gorgonia.S(1, 3, step), gorgonia.S(0, 4, step))
		if err != nil {
			t.Fatal(err)
		}
		if want := (tensor.Shape{1, columns}); !y.Shape().Eq(want) {
			t.Errorf("step %d: got shape %v, want %v", step, y.Shape(), want)
		}
		vm := gorgonia.NewTapeMachine(x.Graph())
		if err := vm.RunAll(); err != nil {
			t.Fatal(err)
		}
		if got := y.Value().Data().([]float64)[0]; got != 4 {
			t.Errorf("step %d: got %v, want 4", step, got)
		}
		vm.Close()
	}
}
