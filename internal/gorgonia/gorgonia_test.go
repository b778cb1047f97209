package gorgonia

import (
	"testing"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func TestOpNames(t *testing.T) {
	g := G.NewGraph()
	x := G.NewMatrix(g, tensor.Float64, G.WithName("x"), G.WithShape(2, 3))
	reshaped := G.Must(G.Reshape(x, tensor.Shape{6}))
	var v G.Value
	read := G.Read(x, &v)
	scalar, matrix := g.AddNode(G.NewConstant(1.5)), g.AddNode(G.NewConstant(tensor.Ones(tensor.Float64, 2, 2)))
	tanh := G.Must(G.Tanh(x))
	for _, c := range []struct {
		n                             *G.Node
		name                          string
		reshape, statement, aConstant bool
	}{
		{reshaped, "reshapeOp", true, false, false},
		{read, "readOp", false, true, false},
		{scalar, "constantScalar", false, false, true},
		{matrix, "constantTensor", false, false, true},
		{tanh, "elemUnaryOp", false, false, false},
	} {
		op := c.n.Op()
		if got := OpName(op); got != c.name {
			t.Errorf("the op of %v is a %q, want %q", c.n, got, c.name)
		}
		if IsReshape(op) != c.reshape || IsStatement(op) != c.statement || IsConstant(op) != c.aConstant {
			t.Errorf("%v: reshape %v, statement %v, constant %v", c.n, IsReshape(op), IsStatement(op), IsConstant(op))
		}
	}
	if got := OpName(otherOp{tanh.Op()}); got != "" {
		t.Errorf("the op of another module is called %q", got)
	}
	if got := OpName(nil); got != "" {
		t.Errorf("no op is called %q", got)
	}
	if to, err := ReadTarget(read.Op()); err != nil || to != &v {
		t.Errorf("Read fills %p, %v; want %p", to, err, &v)
	}
	if to, err := ReadTarget(tanh.Op()); err != nil || to != nil {
		t.Errorf("tanh fills %v, %v", to, err)
	}
}

type otherOp struct{ G.Op }

func TestSetOp(t *testing.T) {
	g := G.NewGraph()
	n := G.Must(G.Tanh(G.NewVector(g, tensor.Float64, G.WithName("x"), G.WithShape(3))))
	own := n.Op()
	restore, err := SetOp(n, otherOp{own})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := n.Op().(otherOp); !ok {
		t.Errorf("the op is %T", n.Op())
	}
	if restore(); n.Op() != own {
		t.Errorf("restored, the op is %T", n.Op())
	}
}

func TestIsCost(t *testing.T) {
	g := G.NewGraph()
	x := G.NewVector(g, tensor.Float64, G.WithName("x"), G.WithShape(3))
	square := G.Must(G.Square(x))
	cost := G.Must(G.Sqrt(G.Must(G.Sum(square))))
	if _, err := G.Grad(cost, x); err != nil {
		t.Fatal(err)
	}
	if !IsCost(cost) || IsCost(square) || IsCost(x) {
		t.Errorf("cost %v, square %v, input %v; want the cost alone", IsCost(cost), IsCost(square), IsCost(x))
	}
}
