package cudaops

import (
	"fmt"
	"math"
	"testing"

	"github.com/stheno-ml/stheno/internal/must"
	"gonum.org/v1/gonum/stat"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Gorgonia's machines make the faults that docs/gorgonia-ops.md lists. That it is
// right here, the ops' own tests show.
func TestGorgoniaIsWrong(t *testing.T) {
	quiet(t)
	run := func(g *G.ExprGraph) {
		t.Helper()
		m := tapeMachine(t, g)
		must.Do(t, m.RunAll())
		must.Do(t, m.Close())
	}
	const p = 0.25
	d := newDropGraph(t, tensor.Float64, []int{50}, p)
	run(d.g)
	w, y, dx := floats(t, d.w.Value()), floats(t, d.reads[0]), floats(t, must.Get[G.Value](t)(d.x.Grad()))
	for i := range y {
		if want := w[i] / p; y[i] != 0 && dx[i] != want {
			t.Errorf("the derivative of Dropout at a kept element is %v, and %v by the probability", dx[i], want)
		}
	}
	d = newDropGraph(t, tensor.Float64, []int{50}, 0)
	run(d.g)
	if dx := floats(t, must.Get[G.Value](t)(d.x.Grad())); stat.Mean(dx, nil) != 0 {
		t.Errorf("the derivative of Dropout of probability 0 is %v, want zeros", dx)
	}

	n := newNormGraph(t, tensor.Float64, []int{2, 3, 4, 4})
	must.Do(t, G.Let(n.w, tensor.Ones(tensor.Float64, 2, 3, 4, 4)))
	m := tapeMachine(t, n.g, G.EvalMode())
	must.Do(t, n.op.SetStats(tensor.Ones(tensor.Float64, 3), tensor.Ones(tensor.Float64, 3)))
	must.Do(t, m.RunAll())
	if dx := floats(t, must.Get[G.Value](t)(n.x.Grad())); math.Abs(dx[0]-1/math.Sqrt(normEpsilon)) > 1e-9 {
		t.Errorf("the derivative of an evaluating BatchNorm by variances of 1 is %v, want 1 / √epsilon", dx[0])
	}

	g := G.NewGraph()
	image := G.NewTensor(g, tensor.Float64, 4, G.WithName("image"), G.WithShape(1, 1, 4, 66), G.WithInit(G.RangedFrom(0)))
	one := G.NewTensor(g, tensor.Float64, 4, G.WithName("one"), G.WithShape(1, 1, 1, 1), G.WithInit(G.Ones()))
	y4 := must.Get[*G.Node](t)(G.GroupNorm(image, one, one, 1, 1, normEpsilon))
	run(g)
	if mean := stat.Mean(floats(t, y4.Value()), nil); math.Abs(mean-1) < 0.1 {
		t.Errorf("GroupNorm of a group of 264 elements with a bias of 1 has the mean %v, which is right", mean)
	}

	g = G.NewGraph()
	x := G.BinomialRandomNode(g, tensor.Float64, 1001, 0.5, 200)
	run(g)
	if mean := stat.Mean(floats(t, x.Value()), nil); math.Abs(mean-1000) > 10 {
		t.Errorf("1001 trials of a half succeed %v times, want about 1000", mean)
	}
}

// Ops that differ are one node to Gorgonia, where docs/gorgonia-ops.md says so.
func TestMergedOps(t *testing.T) {
	node := must.Get[*G.Node](t)
	g := G.NewGraph()
	x := G.NewMatrix(g, tensor.Float64, G.WithName("x"), G.WithShape(4, 6))
	one := G.NewMatrix(g, tensor.Float64, G.WithName("one"), G.WithShape(1, 6))
	norm := func(momentum, epsilon float64) *G.Node {
		y, _, _, _, err := G.BatchNorm(x, one, one, momentum, epsilon)
		return must.Get[*G.Node](t)(y, err)
	}
	for what, pair := range map[string][2]*G.Node{
		"Dropout":   {node(G.Dropout(x, 0.25)), node(G.Dropout(x, 0.5))},
		"BatchNorm": {norm(0.9, 1e-5), norm(0.92, 1e-3)},
		"GroupNorm": {node(G.GroupNorm(x, one, one, 2, 6, 1e-5)), node(G.GroupNorm(x, one, one, 2, 6, 1e-3))},
		"uniform":   {G.UniformRandomNode(g, tensor.Float64, 0, 1, 4), G.UniformRandomNode(g, tensor.Float64, 0, 1, 4)},
	} {
		if pair[0] != pair[1] {
			t.Errorf("two ops %s of one node are two nodes", what)
		}
	}
	if norm(0.9, 1e-5) == norm(0.5, 1e-5) {
		t.Error("BatchNorm of momentum 0.9 and 0.5 are one node")
	}

	// The derivatives by the parts of a Concat are slices.
	parts := make(G.Nodes, 3)
	for i := range parts {
		parts[i] = G.NewMatrix(g, tensor.Float64, G.WithName(fmt.Sprint("part ", i)), G.WithShape(128, 2))
	}
	whole := G.NewMatrix(g, tensor.Float64, G.WithName("whole"), G.WithShape(384, 2))
	loss := node(G.Sum(node(G.HadamardProd(whole, node(G.Concat(0, parts...))))))
	grads, err := G.Grad(loss, parts...)
	if err != nil {
		t.Fatal(err)
	}
	if grads[0] != grads[2] || grads[0] == grads[1] {
		t.Error("the derivatives by the first and the third of three parts of 128 rows are two nodes, or those by the first and the second are one")
	}
}
