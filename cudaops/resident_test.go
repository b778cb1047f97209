package cudaops

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// chooser chooses rows of a data set on the device.
type chooser struct {
	g               *G.ExprGraph
	data, at, chose *G.Node
}

func newChooser(t *testing.T, data *tensor.Dense, n int) *chooser {
	t.Helper()
	c := &chooser{g: G.NewGraph()}
	c.data = G.NewTensor(c.g, data.Dtype(), data.Dims(), G.WithName("data"), G.WithShape(data.Shape()...), G.WithValue(data))
	c.at = G.NewVector(c.g, tensor.Int, G.WithName("at"), G.WithShape(n))
	c.chose = testutil.Get[*G.Node](t)(G.ByIndices(c.data, c.at, 0))
	return c
}

func (c *chooser) choose(t *testing.T, rows ...int) {
	t.Helper()
	testutil.Do(t, G.Let(c.at, tensor.New(tensor.WithBacking(rows))))
}

// reported returns the report's entry of a node.
func reported(t *testing.T, vm *VM, n *G.Node) NodeReport {
	t.Helper()
	for _, r := range vm.Report().Nodes {
		if r.Name == n.Name() {
			return r
		}
	}
	t.Fatalf("the report has no node %s", n.Name())
	return NodeReport{}
}

// The values of Resident go to the device once, and again when others are bound or pushed.
func TestResident(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		c := newChooser(t, tensor.New(tensor.WithShape(3, 2), tensor.WithBacking([]float64{1, 2, 3, 4, 5, 6})), 2)
		vm := machine(t, c.g, on, Resident(c.data), Keep(c.chose))
		c.choose(t, 2, 0)
		testutil.Do(t, vm.RunAll())
		equal(t, "chosen", c.chose.Value(), vector(5, 6, 1, 2), 0)
		c.choose(t, 1, 1)
		testutil.Do(t, vm.RunAll())
		equal(t, "chosen", c.chose.Value(), vector(3, 4, 3, 4), 0)
		if data := reported(t, vm, c.data); vm.Report().In() != 16 || data.In != 0 || data.Where != "state" {
			t.Errorf("%d bytes were copied in, want the 16 of two indices: %+v\n%v", vm.Report().In(), data, vm.Report())
		}
		c.data.Value().(*tensor.Dense).Float64s()[2] = 30 // nobody knows
		testutil.Do(t, vm.RunAll())
		equal(t, "chosen from what was changed in place", c.chose.Value(), vector(3, 4, 3, 4), 0)
		testutil.Do(t, vm.Push(c.data))
		testutil.Do(t, vm.RunAll())
		equal(t, "chosen from what was pushed", c.chose.Value(), vector(30, 4, 30, 4), 0)
		c.data.Value().(*tensor.Dense).Float64s()[2] = 31
		testutil.Do(t, vm.Push())
		testutil.Do(t, vm.RunAll())
		equal(t, "chosen from all that was pushed", c.chose.Value(), vector(31, 4, 31, 4), 0)
		testutil.Do(t, G.Let(c.data, tensor.New(tensor.WithShape(3, 2), tensor.WithBacking([]float64{-1, -2, -3, -4, -5, -6}))))
		testutil.Do(t, vm.RunAll())
		equal(t, "chosen from what was bound", c.chose.Value(), vector(-3, -4, -3, -4), 0)
		c.choose(t, 3, 0)
		if err := vm.RunAll(); err == nil || !strings.Contains(err.Error(), "got index 3") {
			t.Errorf("an index of no row gives the error %v", err)
		}
	})
}

// Every type of element may stay on the device; an op on the host and a Read get it from there.
func TestResidentTypes(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		for _, data := range []*tensor.Dense{
			tensor.New(tensor.WithShape(3, 1), tensor.WithBacking([]float32{1, 2, 3})), tensor.New(tensor.WithBacking([]float64{1, 2, 3})),
			tensor.New(tensor.WithBacking([]int{1, 2, 3})), tensor.New(tensor.WithBacking([]int32{1, 2, 3})),
			tensor.New(tensor.WithBacking([]int64{1, 2, 3})), tensor.New(tensor.WithBacking([]byte{1, 2, 3})),
		} {
			c := newChooser(t, data, 2)
			var read G.Value
			G.Read(c.data, &read)
			vm := machine(t, c.g, on, Resident(c.data))
			for _, row := range []int{2, 0} {
				c.choose(t, row, 1)
				testutil.Do(t, vm.RunAll())
				got := testutil.Get[any](t)(c.chose.Value().(*tensor.Dense).At(make([]int, data.Dims())...))
				want := testutil.Get[any](t)(data.At(append([]int{row}, make([]int, data.Dims()-1)...)...))
				if got != want || !read.(*tensor.Dense).Eq(data) {
					t.Errorf("%v: got %v for row %d, want %v; read %v", data.Dtype(), got, row, want, read)
				}
			}
		}
		r := rand.New(rand.NewPCG(4, 4))
		g := G.NewGraph()
		x := G.NewVector(g, tensor.Float64, G.WithName("x"), G.WithShape(5), G.WithValue(draw(r, tensor.Float64, 5)))
		y := testutil.Get[*G.Node](t)(G.Sparsemax(x)) // has no kernel
		testutil.Do(t, machine(t, g, on).RunAll())
		want := y.Value()
		testutil.Do(t, machine(t, g, on, Resident(x)).RunAll())
		equal(t, "an op on the host", y.Value(), want, 0)
	})
}

// Training with a resident input takes the same steps, also where the graph is compiled again,
// and its gradient is there for who asks.
func TestTrainWithResident(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		node := testutil.Get[*G.Node](t)
		data := draw(rand.New(rand.NewPCG(5, 5)), tensor.Float32, 6, 3)
		build := func(opts ...Option) (vm *VM, w, x, part *G.Node) {
			g := G.NewGraph()
			x = G.NewMatrix(g, tensor.Float32, G.WithName("x"), G.WithShape(6, 3), G.WithValue(data))
			w = G.NewVector(g, tensor.Float32, G.WithName("w"), G.WithShape(3), G.WithInit(G.RangedFrom(1)))
			part = node(G.Slice(x, G.S(0, 4)))
			testutil.Get[G.Nodes](t)(G.Grad(node(G.Mean(node(G.Square(node(G.Mul(part, w)))))), w, x))
			if len(opts) > 0 {
				opts = []Option{Resident(x)}
			}
			return machine(t, g, append(opts, on, Train(G.NewMomentum(G.WithLearnRate(0.1)), w))...), w, x, part
		}
		a, want, xa, partA := build()
		b, got, xb, partB := build(Resident())
		for step := range 4 {
			for _, part := range []*G.Node{partA, partB} {
				testutil.Do(t, G.UnsafeLet(part, G.S(step%3, step%3+4)))
			}
			testutil.Do(t, a.RunAll())
			testutil.Do(t, b.RunAll())
			equal(t, "gradient of x", testutil.Get[G.Value](t)(xb.Grad()), testutil.Get[G.Value](t)(xa.Grad()), 0)
		}
		testutil.Do(t, a.Pull())
		testutil.Do(t, b.Pull())
		equal(t, "w", got.Value(), want.Value(), 0)
		if in, not := reported(t, a, xa).In, reported(t, b, xb).In; in != 6*3*4 || not != 0 {
			t.Errorf("x is copied, %d and %d bytes of it, want 72 and 0", in, not)
		}
	})
}

func TestResidentErrors(t *testing.T) {
	p := newPerceptron(t, tensor.Float64, 13)
	s, w := G.NewVanillaSolver(), p.learnables[0]
	for want, opts := range map[string][]Option{
		"nil node":                 {Resident(nil)},
		"node x twice":             {Resident(p.x, p.y), Resident(p.x)},
		"with an op":               {Resident(p.loss)},
		"is a learnable of Train":  {Resident(w), Train(s, w)},
		"node x is not in the gra": {Resident(newPerceptron(t, tensor.Float64, 13).x)},
	} {
		if vm, err := NewVM(p.g, append(opts, OnHost())...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got the error %v, want one with %q", err, want)
			if err == nil {
				testutil.Do(t, vm.Close())
			}
		}
	}
	vm := machine(t, p.g, OnHost(), Resident(p.x))
	testutil.Do(t, G.Let(p.y, draw(p.r, tensor.Float64, 16, 5)))
	if err := vm.RunAll(); err == nil || !strings.Contains(err.Error(), "resident input x has no value") {
		t.Errorf("without a value the error is %v", err)
	}
	if err := vm.Push(p.y); err == nil || !strings.Contains(err.Error(), "want a VM with the option Train") {
		t.Errorf("Push of an input gives the error %v", err)
	}
}
