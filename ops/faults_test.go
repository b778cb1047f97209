package ops

import (
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// pointwise is a primitive with a function from outside.
type pointwise struct{ name string }

var pointwiseFunctions = map[string]func() (expr.Func, error){
	"panics": func() (expr.Func, error) { panic("oh") },
	"error":  func() (expr.Func, error) { return expr.Func{}, errors.New("not today") },
	"zero":   func() (expr.Func, error) { return expr.Func{}, nil },
	"two operands": func() (expr.Func, error) {
		b := expr.NewBuilder(expr.Float64, expr.Float64)
		return b.Func(b.Operand(1))
	},
	"two results": func() (expr.Func, error) {
		b := expr.NewBuilder(expr.Float64)
		return b.Func(b.Operand(0), b.Operand(0))
	},
	"float32": func() (expr.Func, error) {
		b := expr.NewBuilder(expr.Float32)
		return b.Func(b.Operand(0))
	},
	"no element type": func() (expr.Func, error) {
		b := expr.NewBuilder(99)
		return b.Func(b.Operand(0))
	},
	"truth": func() (expr.Func, error) {
		b := expr.NewBuilder(expr.Float64)
		return b.Func(b.Apply(expr.Eq, b.Operand(0), b.Constant(expr.Float64, 0)))
	},
}

func (p pointwise) String() string { return p.name }

func (p pointwise) Infer(in ...Type) (Type, error) { return in[0], nil }

func (p pointwise) Plan(kernels.Device, ...Type) (*kernels.Plan, error) {
	return nil, errors.New("the plan was asked for")
}

func (p pointwise) Adjoints(b *Backward) []Term { return b.None("it is a test's") }

func (p pointwise) Func(...Type) (expr.Func, error) { return pointwiseFunctions[p.name]() }

// A Func that is wrong is an error of Apply, where it was ignored in silence.
func TestPointwiseErrors(t *testing.T) {
	for name, want := range map[string]string{
		"panics":          "ops: panics: Func panicked: oh",
		"error":           "ops: error: not today",
		"zero":            "ops: zero: Func: got a function of 0 operands with 0 results, want 1 and 1",
		"two operands":    "ops: two operands: Func: got a function of 2 operands with 1 results, want 1 and 1",
		"two results":     "ops: two results: Func: got a function of 1 operands with 2 results, want 1 and 1",
		"float32":         "ops: float32: Func: operand 0 is float32, want float64",
		"truth":           "ops: truth: Func: its result is bool, want float64",
		"no element type": "ops: no element type: ",
	} {
		if n, err := Apply(pointwise{name}, vectors([]float64{1, 2, 3})...); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Apply gave %v and error %v, want %q", n, err, want)
		}
	}
}

// rowwise and viewer are primitives with a function or a view from outside.
type rowwise struct {
	formMethods
	rows *Rows
}

type viewer struct {
	formMethods
	view *codegen.View
}

type formMethods struct{ name string }

func (p formMethods) String() string                 { return p.name }
func (p formMethods) Infer(in ...Type) (Type, error) { return in[0], nil }

func (p formMethods) Plan(kernels.Device, ...Type) (*kernels.Plan, error) {
	return nil, errors.New("the plan was asked for")
}

func (p formMethods) Adjoints(b *Backward) []Term { return b.None("it is a test's") }

func (p rowwise) Rows(...Type) (Rows, error)        { return *p.rows, nil }
func (p viewer) View(...Type) (codegen.View, error) { return *p.view, nil }

// Rows and views that are wrong are errors of Apply.
func TestFormErrors(t *testing.T) {
	f, err := expr.ParseRows("rowsum(a)", expr.Float64, "a")
	if err != nil {
		t.Fatal(err)
	}
	three := tensor.Shape{3}
	row := func(r Rows) Primitive { return rowwise{formMethods{"Row"}, &r} }
	see := func(v codegen.View) Primitive { return viewer{formMethods{"See"}, &v} }
	for _, c := range []struct {
		p    Primitive
		want string
	}{
		{row(Rows{Func: f, Shape: three, Axes: []int{0}}), ""},
		{rowwise{formMethods{"Row"}, nil}, "ops: Row: Rows panicked"},
		{row(Rows{Func: f, Shape: three, Axes: []int{1}}), "ops: Row: Rows: got axis 1 for shape (3)"},
		{row(Rows{Func: f, Shape: three, Axes: []int{0}, PerRow: true}), "ops: Row: Rows: its result has 1 elements, want the 3 of float64 (3)"},
		{row(Rows{Func: f, Shape: tensor.Shape{2, 2}, Axes: []int{0}}), "ops: Row: Rows: its result has 4 elements"},
		{row(Rows{Shape: three, Axes: []int{0}}), "ops: Row: Rows: got a function of 0 operands"},
		{see(codegen.Dense(three)), ""},
		{viewer{formMethods{"See"}, nil}, "ops: See: View panicked"},
		{see(codegen.View{Elements: 3, Offset: 1, Strides: []int{1}}), "ops: See: View: got a view of elements 1 to 3, want it within 3"},
		{see(codegen.View{Elements: 4, Strides: []int{1}}), "ops: See: View: got a view of 4 elements"},
		{see(codegen.View{Elements: 3}), "ops: See: View: got 0 strides, want 1"},
	} {
		_, err := newOp(c.p, vector3)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix("ops: "+err.Error(), c.want)) {
			t.Errorf("got error %v, want %q", err, c.want)
		}
	}
}

// Constants are in no graph until a node uses them.
func TestConstants(t *testing.T) {
	runtime.LockOSThread() // the context of Gorgonia's CUDA machine belongs to a thread
	defer runtime.UnlockOSThread()
	for name, build := range map[string]func(x *gorgonia.Node) (*gorgonia.Node, error){
		"second": func(x *gorgonia.Node) (*gorgonia.Node, error) {
			return Add(x, gorgonia.NewConstant(tensor.New(tensor.WithBacking([]float64{10, 20, 30}))))
		},
		"first": func(x *gorgonia.Node) (*gorgonia.Node, error) {
			return Add(gorgonia.NewConstant(tensor.New(tensor.WithBacking([]float64{10, 20, 30}))), x)
		},
		"map": func(x *gorgonia.Node) (*gorgonia.Node, error) {
			return Map("a + b*10", x, gorgonia.NewConstant(tensor.New(tensor.WithBacking([]float64{1, 2, 3}))))
		},
		"twice": func(x *gorgonia.Node) (*gorgonia.Node, error) { // the same nodes again
			c := gorgonia.NewConstant(11.0)
			if _, err := Scale(x, c); err != nil {
				return nil, err
			}
			return Scale(x, c)
		},
		"of another graph": func(x *gorgonia.Node) (*gorgonia.Node, error) {
			c := gorgonia.NewConstant(11.0, gorgonia.WithName("eleven"))
			if _, err := Scale(vectors([]float64{5, 6})[0], c); err != nil {
				return nil, err
			}
			return Scale(x, c)
		},
	} {
		x := vectors([]float64{1, 2, 3})[0]
		y, err := build(x)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var cost *gorgonia.Node
		if cost, err = Sum(y); err != nil {
			t.Fatal(err)
		}
		vm := gorgonia.NewLispMachine(x.Graph())
		if err := vm.RunAll(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := cost.Value().Data(); got != 66.0 {
			t.Errorf("%s: got the sum %v, want 66", name, got)
		}
		if y.Graph() != x.Graph() {
			t.Errorf("%s: the node is of another graph", name)
		}
	}
}

// Constants by themselves are in no graph, and have the types that other inputs have.
func TestConstantInputErrors(t *testing.T) {
	x := vectors([]float64{1, 2, 3})[0]
	_, alone := Add(gorgonia.NewConstant(1.0), gorgonia.NewConstant(2.0))
	_, integer := Scale(x, gorgonia.NewConstant(2))
	_, withNil := Add(nil, gorgonia.NewConstant(2.0))
	for want, err := range map[string]error{
		"ops: Add: got inputs that are in no graph": alone,
		"ops: Scale: input 1: got int":              integer,
		"ops: Add: input 0: got a nil node":         withNil,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
}

// A value that there is no memory for, or that is none, is an error of Do.
func TestDoOfNothing(t *testing.T) {
	g := gorgonia.NewGraph()
	x := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(3))
	huge, err := Apply(given{&fields{infer: Type{kernels.Float64, tensor.Shape{1 << 20, 1 << 30}}}, "Huge"}, x)
	if err != nil {
		t.Fatal(err)
	}
	v := tensor.New(tensor.WithBacking([]float64{1, 2, 3}))
	if _, err := huge.Op().Do(v); err == nil || !strings.Contains(err.Error(), "ops: Huge: its output: got float64 of shape (1048576, 1073741824)") {
		t.Errorf("a huge output: got error %v", err)
	}
	sum, err := Sum(x)
	if err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string][]gorgonia.Value{
		"nil": {nil}, "typed nil": {(*tensor.Dense)(nil)}, "nil scalar": {(*gorgonia.F64)(nil)}, "none": {}, "two": {v, v},
		"no tensor": {new(tensor.Dense)}, "sliced": {tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(3))},
	} {
		if _, err := sum.Op().Do(in...); err == nil || !strings.Contains(err.Error(), "ops: Sum") {
			t.Errorf("%s: got error %v", name, err)
		}
		if _, err := sum.Op().(gorgonia.UsePreallocDoer).UsePreallocDo(gorgonia.NewF64(math.NaN()), in...); err == nil {
			t.Errorf("%s into a value: got no error", name)
		}
	}
	if _, err := sum.Op().(gorgonia.UsePreallocDoer).UsePreallocDo((*gorgonia.F64)(nil), v); err != nil {
		t.Errorf("into a nil scalar: %v", err)
	}
	if _, err := sum.Op().InferShape(nil); err == nil {
		t.Error("InferShape of nil gives no error")
	}
	if err := sum.Op().(gorgonia.ADOp).DoDiff(gorgonia.ExecutionContext{}, gorgonia.Nodes{nil}, sum); err == nil || !strings.Contains(err.Error(), "nil node") {
		t.Errorf("DoDiff of nil: got error %v", err)
	}
	if nodes, err := sum.Op().(gorgonia.SDOp).SymDiff(gorgonia.Nodes{nil}, nil, nil); err == nil {
		t.Errorf("SymDiff of nil gives %v", nodes)
	}
	if wrt := sum.Op().(gorgonia.SDOp).DiffWRT(-1); len(wrt) != 0 {
		t.Errorf("DiffWRT of -1 inputs gives %v", wrt)
	}
	if _, _, err := values.Make(kernels.Float64, tensor.Shape{-1}); err == nil {
		t.Error("a tensor of -1 elements gives no error")
	}
}
