package cudaops

import (
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func TestReadFillsInPlace(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		g, a, b, z := sum2(t, 2)
		var into, input G.Value
		G.Read(z, &into)
		G.Read(a, &input)
		testutil.Do(t, G.Let(a, vector(1, 2)))
		testutil.Do(t, G.Let(b, vector(3, 4)))
		vm := machine(t, g, on)
		testutil.Do(t, vm.RunAll())
		held := into
		equal(t, "read", into, vector(4, 6), 0)
		equal(t, "read input", input, vector(1, 2), 0)
		testutil.Do(t, G.Let(a, vector(0, 0)))
		testutil.Do(t, vm.RunAll())
		equal(t, "the value that was read first", held, vector(3, 4), 0)
		equal(t, "bound", z.Value(), vector(3, 4), 0)
		into.(*tensor.Dense).Set(0, 99.0)
		equal(t, "bound after a write to the value that was read", z.Value(), vector(3, 4), 0)
		input.(*tensor.Dense).Set(0, 99.0)
		equal(t, "input after a write to the value that was read", a.Value(), vector(0, 0), 0)
	})
}

// The derivative of sum(a + b) by a and by b is one node, and a constant for
// Gorgonia's Sum; each input still needs a gradient that it may write.
func TestSharedGradients(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		g, a, b, z := sum2(t, 3)
		cost := testutil.Get[*G.Node](t)(ops.Sum(z))
		testutil.Get[G.Nodes](t)(G.Grad(cost, a, b))
		testutil.Do(t, G.Let(a, vector(1, 2, 3)))
		testutil.Do(t, G.Let(b, vector(1, 1, 1)))
		vm := machine(t, g, on)
		s := G.NewVanillaSolver(G.WithLearnRate(1))
		for step := range 3 {
			testutil.Do(t, vm.RunAll())
			testutil.Do(t, s.Step(G.NodesToValueGrads(G.Nodes{a, b})))
			d := -1 - float64(step)
			equal(t, "a", a.Value(), vector(1+d, 2+d, 3+d), 0)
			equal(t, "b", b.Value(), vector(1+d, 1+d, 1+d), 0)
		}
	})
}

func TestGradientsAfterDualValues(t *testing.T) {
	m := newMLP(t, tensor.Float64, 3, 4, 5, 2)
	tape := tapeMachine(t, m.g, G.BindDualValues(m.weights...))
	testutil.Do(t, tape.RunAll())
	testutil.Do(t, tape.Close())
	m2 := newMLP(t, tensor.Float64, 3, 4, 5, 2)
	for i, w := range m.weights { // other weights, on a graph that holds old gradients
		d := w.Value().(*tensor.Dense)
		d.Set(0, 0.25)
		testutil.Do(t, G.Let(m2.weights[i], d.Clone().(*tensor.Dense)))
	}
	testutil.Do(t, machine(t, m.g, OnHost()).RunAll())
	tape = tapeMachine(t, m2.g)
	testutil.Do(t, tape.RunAll())
	for i, w := range m.weights {
		equal(t, w.Name(), testutil.Get[G.Value](t)(w.Grad()), testutil.Get[G.Value](t)(m2.weights[i].Grad()), 1e-12)
	}
}

func TestReshapeIsAnAlias(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		node := testutil.Get[*G.Node](t)
		r := rand.New(rand.NewPCG(1, 1))
		g := G.NewGraph()
		x := G.NewMatrix(g, tensor.Float64, G.WithName("x"), G.WithShape(4, 6), G.WithValue(draw(r, tensor.Float64, 4, 6)))
		w := G.NewMatrix(g, tensor.Float64, G.WithName("w"), G.WithShape(3, 2), G.WithValue(draw(r, tensor.Float64, 3, 2)))
		// input -> reshape -> device -> reshape -> host -> root reshape
		a := node(ops.MatMul(node(G.Reshape(x, tensor.Shape{8, 3})), w))
		h := node(G.Square(node(G.Reshape(a, tensor.Shape{2, 8}))))
		z := node(G.Reshape(h, tensor.Shape{4, 4}))
		dev := node(G.Reshape(a, tensor.Shape{16}))
		vm := machine(t, g, on)
		testutil.Do(t, vm.RunAll())
		gotZ, gotDev := z.Value(), dev.Value()
		if !gotZ.Shape().Eq(tensor.Shape{4, 4}) || !gotDev.Shape().Eq(tensor.Shape{16}) {
			t.Errorf("shapes %v and %v", gotZ.Shape(), gotDev.Shape())
		}
		tape := tapeMachine(t, g)
		testutil.Do(t, tape.RunAll())
		equal(t, "z", gotZ, z.Value(), 1e-12)
		equal(t, "dev", gotDev, dev.Value(), 1e-12)
		aliases := 0
		for _, n := range vm.Report().Nodes {
			if n.Where == "alias" {
				aliases++
			}
		}
		if aliases != 4 {
			t.Errorf("%d aliases, want 4:\n%v", aliases, vm.Report())
		}
	})
}

func TestViewsAsInputs(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		g := G.NewGraph()
		a := G.NewMatrix(g, tensor.Float64, G.WithName("a"), G.WithShape(2, 3))
		z := testutil.Get[*G.Node](t)(ops.Add(a, a))
		av := tensor.New(tensor.WithShape(3, 2), tensor.WithBacking([]float64{1, 2, 3, 4, 5, 6}))
		testutil.Do(t, av.T())
		testutil.Do(t, G.Let(a, av))
		vm := machine(t, g, on)
		testutil.Do(t, vm.RunAll())
		equal(t, "2a of a transposed a", z.Value(), vector(2, 6, 10, 4, 8, 12), 0)
		big := tensor.New(tensor.WithShape(3, 4), tensor.WithBacking(tensor.Range(tensor.Float64, 0, 12)))
		s := testutil.Get[tensor.View](t)(big.Slice(tensor.S(1, 3), tensor.S(1, 4)))
		testutil.Do(t, G.Let(a, s))
		testutil.Do(t, vm.RunAll())
		equal(t, "2a of a slice", z.Value(), vector(10, 12, 14, 18, 20, 22), 0)
	})
}

func TestScalarsAndConstants(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		node := testutil.Get[*G.Node](t)
		g := G.NewGraph()
		x := G.NewScalar(g, tensor.Float32, G.WithName("x"), G.WithValue(float32(3)))
		c := G.NewConstant(float32(4))
		y := node(ops.Add(x, g.AddNode(c)))
		m := G.NewConstant(tensor.New(tensor.WithShape(2), tensor.WithBacking([]float32{1, 2})))
		v := node(ops.Add(g.AddNode(m), g.AddNode(m)))
		z := node(G.HadamardProd(v, y))
		vm := machine(t, g, on, Keep(y))
		for range 2 {
			testutil.Do(t, vm.RunAll())
			if s, scalar := y.Value().(*G.F32); !scalar || *s != 7 {
				t.Fatalf("y is %v, a %T", y.Value(), y.Value())
			}
			equal(t, "z", z.Value(), vector(14, 28), 0)
		}
		for _, n := range vm.Report().Nodes {
			if n.Where == "constant" && n.In != 0 {
				t.Errorf("constant %s is copied in every run", n.Name)
			}
		}
	})
}

// Gorgonia's Reshape moves the elements of a transposed tensor in place, under
// the feet of whoever else uses it.
func TestReshapeOfTransposed(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		node := testutil.Get[*G.Node](t)
		g := G.NewGraph()
		x := G.NewMatrix(g, tensor.Float64, G.WithName("x"), G.WithShape(2, 3))
		xv := tensor.New(tensor.WithShape(3, 2), tensor.WithBacking([]float64{1, 4, 2, 5, 3, 6}))
		testutil.Do(t, xv.T())
		testutil.Do(t, G.Let(x, xv)) // 1 2 3, 4 5 6
		flat := node(G.Reshape(x, tensor.Shape{6}))
		square, twice := node(G.Square(flat)), node(ops.Add(flat, flat))
		turned := node(G.Transpose(x)) // on the host: 1 4, 2 5, 3 6
		row, neg := node(G.Reshape(turned, tensor.Shape{1, 6})), node(G.Neg(turned))
		sum := node(ops.Sum(turned, 0))
		vm := machine(t, g, on)
		for range 2 {
			testutil.Do(t, vm.RunAll())
			equal(t, "square", square.Value(), vector(1, 4, 9, 16, 25, 36), 0)
			equal(t, "twice", twice.Value(), vector(2, 4, 6, 8, 10, 12), 0)
			equal(t, "row", row.Value(), vector(1, 4, 2, 5, 3, 6), 0)
			equal(t, "neg", neg.Value(), vector(-1, -4, -2, -5, -3, -6), 0)
			equal(t, "sum", sum.Value(), vector(6, 15), 0)
			equal(t, "x", xv, vector(1, 2, 3, 4, 5, 6), 0)
		}
	})
}

func TestRandomAndDropout(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		node := testutil.Get[*G.Node](t)
		g := G.NewGraph()
		x := G.NewVector(g, tensor.Float64, G.WithName("x"), G.WithShape(1000), G.WithValue(tensor.Ones(tensor.Float64, 1000)))
		noise := G.GaussianRandomNode(g, tensor.Float64, 0, 1, 1000)
		z := node(ops.Add(x, noise))
		d := node(G.Dropout(x, 0.5))
		vm := machine(t, g, on)
		testutil.Do(t, vm.RunAll())
		first := floats(t, z.Value())
		zeros := 0
		for _, v := range floats(t, d.Value()) {
			if v == 0 {
				zeros++
			}
		}
		if zeros < 300 || zeros > 700 {
			t.Errorf("dropout of a half gives %d zeros of 1000", zeros)
		}
		testutil.Do(t, vm.RunAll())
		if second := floats(t, z.Value()); first[0] == second[0] && first[1] == second[1] {
			t.Error("two runs draw the same noise")
		}
		testutil.Do(t, machine(t, g, on, EvalMode()).RunAll())
		equal(t, "dropout in evaluation", d.Value(), x.Value(), 0)
	})
}

// The extent of an axis is known when the VM is made; its node gets a value all the
// same, and so do views that nothing computes.
func TestFoldedNodesHaveValues(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		node := testutil.Get[*G.Node](t)
		g := G.NewGraph()
		x := G.NewMatrix(g, tensor.Float64, G.WithName("x"), G.WithShape(2, 3), G.WithValue(tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float64{1, 2, 3, 4, 5, 6}))))
		size := node(G.SizeOf(1, x))
		turned := node(G.Transpose(x))
		row := node(G.Slice(x, G.S(1)))
		vm := machine(t, g, on)
		testutil.Do(t, vm.RunAll())
		equal(t, "size", size.Value(), vector(3), 0)
		equal(t, "transposed", turned.Value(), vector(1, 4, 2, 5, 3, 6), 0)
		equal(t, "row", row.Value(), vector(4, 5, 6), 0)
	})
}
