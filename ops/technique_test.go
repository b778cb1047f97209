package ops

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/tape"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// times is a technique as another module writes one: out = factor a b, for a and b of
// one shape, whose adjoints are what adjoints says.
type times struct {
	factor   float64
	adjoints func(times) []Adjoint
}

func (t times) String() string { return fmt.Sprintf("Times[%v]", t.factor) }

func (times) Infer(in []tensor.Shape) (tensor.Shape, error) {
	if len(in) != 2 || !in[0].Eq(in[1]) {
		return nil, fmt.Errorf("got shapes %v, want two equal ones", in)
	}
	return in[0].Clone(), nil
}

func (t times) Plan(_ kernels.Device, dt kernels.Dtype, in []tensor.Shape) (*kernels.Plan, error) {
	n := int64(in[0].TotalSize())
	k := &kernels.Kernel{Entry: "times", Body: func(c kernels.Call) {
		a, b, out := kernels.Slice[float64](c, 0), kernels.Slice[float64](c, 1), kernels.Slice[float64](c, 2)
		for i := range c.Int(3) {
			out[i] = c.Float(4) * a[i] * b[i]
		}
	}}
	return &kernels.Plan{Op: t.String(), Inputs: []int64{n * dt.Size(), n * dt.Size()}, Out: n * dt.Size(), Launches: []kernels.Launch{
		{Kernel: k, Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1},
			Args: []any{kernels.Ref{Operand: 0}, kernels.Ref{Operand: 1}, kernels.Ref{Operand: kernels.Out}, n, t.factor}}}}, nil
}

func (t times) Adjoints([]tensor.Shape) []Adjoint { return t.adjoints(t) }

func right(t times) []Adjoint {
	return []Adjoint{{t, []int{Gradient, 1}}, {t, []int{0, Gradient}}}
}

func pair() (*gorgonia.ExprGraph, *gorgonia.Node, *gorgonia.Node) {
	g := gorgonia.NewGraph()
	node := func(name string, values ...float64) *gorgonia.Node {
		return gorgonia.NewVector(g, tensor.Float64, gorgonia.WithName(name), gorgonia.WithShape(len(values)),
			gorgonia.WithValue(tensor.New(tensor.WithBacking(values))))
	}
	return g, node("a", 1, 2, 3), node("b", 4, 5, 6)
}

// Another module's technique runs and has its gradient, by Gorgonia's own machine;
// with the tag cuda in a graph on a device, where it has no image.
func TestApply(t *testing.T) {
	g, a, b := pair()
	y, err := Apply(times{3, right}, a, b)
	if err != nil {
		t.Fatal(err)
	}
	loss, err := Sum(y)
	if err != nil {
		t.Fatal(err)
	}
	grads, err := gorgonia.Grad(loss, a, b)
	if err != nil {
		t.Fatal(err)
	}
	vm, err := tape.NewMachine(g)
	if err != nil {
		t.Fatal(err)
	}
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	if err := vm.Close(); err != nil {
		t.Error(err)
	}
	for i, want := range []string{"[12  30  54]", "[12  15  18]", "[3  6  9]"} {
		if got := fmt.Sprint(append([]*gorgonia.Node{y}, grads...)[i].Value()); got != want {
			t.Errorf("value %d is %s, want %s", i, got, want)
		}
	}

	// Two with different parameters are different ops, and so are ours and theirs.
	other, err := Apply(times{4, right}, a, b)
	if err != nil {
		t.Fatal(err)
	}
	if y.Op().Hashcode() == other.Op().Hashcode() {
		t.Error("Times[3] and Times[4] have one hash")
	}
	alias, err := Apply(sameName{}, a, b)
	if err != nil {
		t.Fatal(err)
	}
	if y.Op().Hashcode() == alias.Op().Hashcode() {
		t.Error("two techniques with one name have one hash")
	}
}

// sameName is another type with the name of times{3}.
type sameName struct{ times }

func (sameName) String() string { return "Times[3]" }

func TestApplyErrors(t *testing.T) {
	_, a, _ := pair()
	if _, err := Apply(nil, a); err == nil {
		t.Error("no technique passes")
	}
	if _, err := Apply(times{}); err == nil {
		t.Error("no inputs pass")
	}
	for want, inputs := range map[string][]*gorgonia.Node{"two equal ones": {a}, "nil node": {a, nil}} {
		if _, err := Apply(times{}, inputs...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
	for want, adjoints := range map[string][]Adjoint{
		"Times[1] has no gradient":             nil,
		"adjoints for 1 inputs, want 2":        {{nil, []int{Gradient}}},
		"has the operands [2]":                 {{nil, []int{2}}, {nil, []int{Gradient}}},
		"has the operands [-2]":                {{nil, []int{Gradient}}, {nil, []int{-2}}},
		"has the operands []":                  {{nil, nil}, {nil, []int{Gradient}}},
		"got shapes [(3)], want two equal one": {{times{}, []int{Gradient}}, {nil, []int{Gradient}}},
	} {
		_, a, b := pair()
		y, err := Apply(times{1, func(times) []Adjoint { return adjoints }}, a, b)
		if err != nil {
			t.Fatal(err)
		}
		loss, err := Sum(y)
		if err != nil {
			t.Fatal(err)
		}
		_, err = gorgonia.Grad(loss, a, b)
		t.Logf("%v", err)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("symbolic gradient: got error %v, want one with %q", err, want)
		}
		_, a, b = pair()
		if y, err = Apply(times{1, func(times) []Adjoint { return adjoints }}, a, b); err != nil {
			t.Fatal(err)
		}
		if loss, err = Sum(y); err != nil {
			t.Fatal(err)
		}
		lisp, err := tape.NewLispMachine(loss.Graph())
		if err != nil {
			t.Fatal(err)
		}
		if err := lisp.RunAll(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("gradient by dual values: got error %v, want one with %q", err, want)
		}
		lisp.Close()
	}
}
