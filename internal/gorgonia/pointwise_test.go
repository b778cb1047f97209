package gorgonia

import (
	"slices"
	"testing"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func node(t *testing.T) func(n *G.Node, err error) *G.Node {
	return func(n *G.Node, err error) *G.Node {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
}

// Every kind is distinguished from the others, in both types, for scalars and for tensors.
func TestKinds(t *testing.T) {
	if err := Learnt(); err != nil {
		t.Fatal(err)
	}
	node := node(t)
	for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
		g := G.NewGraph()
		x, s := G.NewMatrix(g, dt, G.WithName("x"), G.WithShape(2, 3)), G.NewScalar(g, dt, G.WithName("s"))
		y := G.NewMatrix(g, dt, G.WithName("y"), G.WithShape(2, 3))
		for _, f := range UnaryFunctions {
			want := f.Kind
			for _, in := range []*G.Node{x, s} {
				if got, ok := Unary(node(f.New(in)).Op()); !ok || got != want {
					t.Errorf("%s of %v is taken for %q", want, in.Shape(), got)
				}
			}
		}
		for _, f := range BinaryFunctions {
			want := f.Kind
			for _, in := range [][2]*G.Node{{x, y}, {x, s}, {s, x}, {s, s}} {
				got, same, ok := Binary(node(f.New(in[0], in[1])).Op())
				if comparison := want != "add" && want != "sub" && want != "mul" && want != "div" && want != "pow"; !ok || got != want || same != comparison {
					t.Errorf("%s of %v and %v is taken for %q, same %v", want, in[0].Shape(), in[1].Shape(), got, same)
				}
			}
		}
		if _, same, ok := Binary(node(G.Lt(x, y, false)).Op()); !ok || same {
			t.Errorf("a comparison that gives bool: ok %v, same %v", ok, same)
		}
	}
	g := G.NewGraph()
	if got, ok := Unary(node(G.Sum(G.NewVector(g, G.Float64, G.WithName("v"), G.WithShape(2)))).Op()); ok {
		t.Errorf("a sum is taken for %q", got)
	}
}

func TestProducts(t *testing.T) {
	node := node(t)
	g := G.NewGraph()
	a, b := G.NewMatrix(g, G.Float32, G.WithName("a"), G.WithShape(2, 3)), G.NewMatrix(g, G.Float32, G.WithName("b"), G.WithShape(3, 4))
	v := G.NewVector(g, G.Float32, G.WithName("v"), G.WithShape(3))
	for _, c := range []struct {
		n    *G.Node
		want string
	}{{node(G.Mul(a, b)), "matmul"}, {node(G.Mul(a, v)), "matvec"}, {node(G.Mul(v, v)), "dot"}, {node(G.OuterProd(v, v)), "outer"}} {
		if got, ta, tb, ok := Product(c.n.Op()); !ok || got != c.want || ta || tb {
			t.Errorf("%s is taken for %q, transposed %v, %v", c.want, got, ta, tb)
		}
	}
	cost := node(G.Sum(node(G.Mul(a, b))))
	if _, err := G.Grad(cost, a, b); err != nil {
		t.Fatal(err)
	}
	if _, ta, tb, ok := Product(a.Deriv().Op()); !ok || ta || !tb {
		t.Errorf("the derivative by a: ok %v, transposed %v, %v; want the second operand transposed", ok, ta, tb)
	}
	if _, ta, tb, ok := Product(b.Deriv().Op()); !ok || !ta || tb {
		t.Errorf("the derivative by b: ok %v, transposed %v, %v; want the first operand transposed", ok, ta, tb)
	}
}

func TestShapeOps(t *testing.T) {
	node := node(t)
	g := G.NewGraph()
	x := G.NewTensor(g, G.Float64, 3, G.WithName("x"), G.WithShape(4, 5, 6))
	if p, ok := Transpose(node(G.Transpose(x, 2, 0, 1)).Op()); !ok || !slices.Equal(p, []int{2, 0, 1}) {
		t.Errorf("transpose: %v, %v", p, ok)
	}
	if name, axes, ok := Reduction(node(G.Sum(x, 0, 2)).Op()); !ok || name != "sum" || !slices.Equal(axes, []int{0, 2}) {
		t.Errorf("sum: %s over %v, %v", name, axes, ok)
	}
	if name, axes, ok := Reduction(node(G.Max(x, 1)).Op()); !ok || name != "max" || !slices.Equal(axes, []int{1}) {
		t.Errorf("max: %s over %v, %v", name, axes, ok)
	}
	sliced := node(G.Slice(x, nil, G.S(1, 4)))
	if s, incr, ok := Slice(sliced.Op()); !ok || incr || s != (SliceOf{1, 1, 4, 1, false}) {
		t.Errorf("slice: %+v, %v, %v", s, incr, ok)
	}
	if _, err := G.Grad(node(G.Sum(node(G.Slice(x, G.S(1, 3))))), x); err != nil {
		t.Fatal(err)
	}
	if s, incr, ok := Slice(x.Deriv().Op()); !ok || !incr || s != (SliceOf{0, 1, 3, 1, false}) {
		t.Errorf("derivative of a slice: %+v, %v, %v", s, incr, ok)
	}
	m := G.NewMatrix(g, G.Float64, G.WithName("m"), G.WithShape(4, 5))
	soft := node(G.SoftMax(m))
	if axis, log, d, ok := SoftMax(soft.Op()); !ok || log || d || axis != -1 {
		t.Errorf("softmax: axis %d, log %v, derivative %v, %v", axis, log, d, ok)
	}
	l := G.NewMatrix(g, G.Float64, G.WithName("l"), G.WithShape(4, 5))
	logSoft := node(G.LogSoftMax(l, 1))
	if axis, log, d, ok := SoftMax(logSoft.Op()); !ok || !log || d || axis != 1 {
		t.Errorf("log-softmax: axis %d, log %v, derivative %v, %v", axis, log, d, ok)
	}
	if _, err := G.Grad(node(G.Sum(logSoft)), l); err != nil {
		t.Fatal(err)
	}
	if axis, log, d, ok := SoftMax(l.Deriv().Op()); !ok || !log || !d || axis != 1 {
		t.Errorf("derivative of log-softmax: axis %d, log %v, derivative %v, %v", axis, log, d, ok)
	}
	if name, ok := Between(node(G.MaxBetween(m, l)).Op()); !ok || name != "max" {
		t.Errorf("max between: %q, %v", name, ok)
	}
	wide, _, err := G.Broadcast(G.NewVector(g, G.Float64, G.WithName("v"), G.WithShape(5)), m, G.NewBroadcastPattern([]byte{0}, nil))
	if err != nil {
		t.Fatal(err)
	}
	if axis, ok := Repeat(wide.Op()); !ok || axis != 0 {
		t.Errorf("repeat: axis %d, %v", axis, ok)
	}
	if axis, ok := Size(node(G.SizeOf(1, m)).Op()); !ok || axis != 1 {
		t.Errorf("size: axis %d, %v", axis, ok)
	}
	if _, ok := Transpose(soft.Op()); ok {
		t.Error("a softmax is taken for a transpose")
	}
}
