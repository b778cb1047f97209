package passes

import (
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// moved returns how often the instructions of a graph, compiled for an H200, read or write
// a tensor of that size; much smaller values count little.
func moved(t *testing.T, g *G.ExprGraph, elements int) (times float64) {
	t.Helper()
	l, err := lower.New(g, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := Run(l.Program, Target{Device: H200}, nil); err != nil {
		t.Fatal(err)
	}
	if err := program.Verify(l.Program); err != nil {
		t.Fatal(err)
	}
	for _, in := range l.Program.Instrs {
		if in.Plan == nil {
			continue
		}
		for _, v := range in.In {
			times += float64(v.Base.Bytes()) / float64(4*elements)
		}
		for _, v := range in.Out {
			times += float64(v.Bytes()) / float64(4*elements)
		}
	}
	return times
}

// A loss that is the sum of results of rows is added up by the kernel that computes them,
// whatever the shape: the matrix and the weights are read once, and the gradient is written once.
func TestLossesOfRowsMoveLittle(t *testing.T) {
	for name, build := range map[string]func(x *G.Node) *G.Node{
		"softmax":     func(x *G.Node) *G.Node { return G.Must(G.SoftMax(x)) },
		"log-softmax": func(x *G.Node) *G.Node { return G.Must(G.LogSoftMax(x)) },
		"centred": func(x *G.Node) *G.Node {
			return G.Must(G.Square(G.Must(G.BroadcastSub(x, G.Must(G.Mean(x, 1)), nil, []byte{1}))))
		},
	} {
		for _, shape := range []tensor.Shape{{600, 21}, {280, 2469}, {66_737, 111}, {920, 87_415}, {67, 213_826}, {3, 60_000}} {
			g := G.NewGraph()
			x, w := G.NewMatrix(g, tensor.Float32, G.WithName("x"), G.WithShape(shape...)), G.NewMatrix(g, tensor.Float32, G.WithName("w"), G.WithShape(shape...))
			if _, err := G.Grad(G.Must(G.Sum(G.Must(G.HadamardProd(build(x), w)))), x); err != nil {
				t.Fatal(err)
			}
			if got := moved(t, g, shape.TotalSize()); got > 3.3 {
				t.Errorf("the gradient of %s of %v moves %.2f tensors, want 3 and a little", name, shape, got)
			}
		}
	}
}

// Norms and Dropout, their gradients, and sums of one tensor move no more than they must:
// reductions that read the same are made together, and cheap values are computed again.
func TestLittleIsMoved(t *testing.T) {
	batch := func(x, scale, bias *G.Node) *G.Node {
		y, _, _, _, err := G.BatchNorm(x, scale, bias, 0.9, 1e-5)
		return G.Must(y, err)
	}
	evaluated := func(x, scale, bias *G.Node) *G.Node {
		y, _, _, op, err := G.BatchNorm(x, scale, bias, 0.9, 1e-5)
		if err == nil {
			err = op.SetTraining(false)
		}
		return G.Must(y, err)
	}
	group := func(x, scale, bias *G.Node) *G.Node {
		return G.Must(G.GroupNorm(x, scale, bias, 4, x.Shape()[1], 1e-5))
	}
	drop := func(x, _, _ *G.Node) *G.Node { return G.Must(G.Dropout(x, 0.25)) }
	few, many := []int{256, 64, 64, 64}, []int{64, 256, 64, 64} // channels: a block takes more than one, or several take one
	for _, c := range []struct {
		name     string
		shape    []int
		build    func(x, scale, bias *G.Node) *G.Node
		gradient bool
		want     float64
	}{
		{"batch norm", few, batch, false, 3},
		{"batch norm, gradient", few, batch, true, 6}, // moments of x, sums of x and dy, the loss and dx
		{"batch norm", many, batch, false, 2},
		{"batch norm, gradient", many, batch, true, 3},
		{"batch norm, evaluating", few, evaluated, false, 2},
		{"batch norm, evaluating, gradient", few, evaluated, true, 5},
		{"group norm", many, group, false, 2},
		{"dropout", few, drop, false, 2},
		{"dropout, gradient", few, drop, true, 3},
	} {
		g := G.NewGraph()
		input := func(name string, shape ...int) *G.Node {
			return G.NewTensor(g, tensor.Float32, len(shape), G.WithName(name), G.WithShape(shape...))
		}
		factors := slices.Repeat([]int{1}, len(c.shape))
		factors[1] = c.shape[1]
		x, scale, bias := input("x", c.shape...), input("scale", factors...), input("bias", factors...)
		y := c.build(x, scale, bias)
		if by := (G.Nodes{x, scale, bias}); c.gradient {
			if c.name == "dropout, gradient" {
				by = by[:1]
			}
			if _, err := G.Grad(G.Must(G.Sum(G.Must(G.HadamardProd(y, input("w", c.shape...))))), by...); err != nil {
				t.Fatal(err)
			}
		}
		if got := moved(t, g, tensor.Shape(c.shape).TotalSize()); math.Abs(got-c.want) > 0.1 {
			t.Errorf("%s of %v moves %.2f tensors, want %v", c.name, c.shape, got, c.want)
		}
	}
	g := G.NewGraph()
	x := G.NewMatrix(g, tensor.Float32, G.WithName("x"), G.WithShape(1<<20, 16))
	G.Must(G.Sum(x, 0))
	G.Must(G.Sum(G.Must(G.Square(x)), 0))
	G.Must(G.Max(x, 0))
	if got := moved(t, g, 16<<20); math.Abs(got-1) > 0.1 {
		t.Errorf("three reductions of a matrix read it %.2f times", got)
	}
}
