package ops_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// updateCase is an Update of drawn shapes, with its reference.
type updateCase struct {
	shape     tensor.Shape
	n, axis   int
	positions []int // one, or one for each index of axis 0
	scalar    bool
}

func drawUpdate(r *rand.Rand) updateCase {
	c := updateCase{}
	for range 1 + r.IntN(4) {
		c.shape = append(c.shape, 1+r.IntN(5))
	}
	c.axis = r.IntN(len(c.shape))
	c.n = 1 + r.IntN(c.shape[c.axis])
	c.scalar = c.axis == 0 || r.IntN(2) == 0
	for range c.shape[0] {
		c.positions = append(c.positions, r.IntN(c.shape[c.axis]-c.n+1))
		if c.scalar {
			break
		}
	}
	return c
}

func (c updateCase) rowsShape() tensor.Shape {
	s := c.shape.Clone()
	s[c.axis] = c.n
	return s
}

// at calls f for each element of the rows with its index there and in the whole.
func (c updateCase) each(f func(row, whole int)) {
	rows := c.rowsShape()
	index := make([]int, len(rows))
	for row := range rows.TotalSize() {
		rest := row
		for a := len(rows) - 1; a >= 0; a-- {
			index[a], rest = rest%rows[a], rest/rows[a]
		}
		p := c.positions[0]
		if !c.scalar {
			p = c.positions[index[0]]
		}
		whole := 0
		for a, i := range index {
			if a == c.axis {
				i += p
			}
			whole = whole*c.shape[a] + i
		}
		f(row, whole)
	}
}

// TestUpdate compares values and gradients with loops, on Gorgonia's machines and on Stheno's, in place and not.
func TestUpdate(t *testing.T) {
	withoutTag(t)
	node := testutil.Get[*G.Node](t)
	r := testutil.Random(t)
	for range 200 {
		c := drawUpdate(r)
		random := func(s tensor.Shape) *tensor.Dense {
			d := tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(s...))
			for i := range d.Float64s() {
				d.Float64s()[i] = r.NormFloat64()
			}
			return d
		}
		x, rows, weights, part := random(c.shape), random(c.rowsShape()), random(c.shape), random(c.rowsShape())
		wantOut, wantX, wantRows := slices.Clone(x.Float64s()), slices.Clone(weights.Float64s()), make([]float64, rows.Size())
		wantRead := make([]float64, rows.Size())
		c.each(func(row, whole int) {
			wantRead[row] = x.Float64s()[whole]
			wantOut[whole] = rows.Float64s()[row]
			wantX[whole] = part.Float64s()[row]
			wantRows[row] = weights.Float64s()[whole]
		})
		type graph struct {
			g                         *G.ExprGraph
			x, rows, out, read, total *G.Node
		}
		axis := c.axis
		if r.IntN(2) == 0 {
			axis -= len(c.shape)
		}
		build := func() *graph {
			g := &graph{g: G.NewGraph()}
			g.x = G.NewTensor(g.g, tensor.Float64, len(c.shape), G.WithShape(c.shape...), G.WithName("x"), G.WithValue(x.Clone().(*tensor.Dense)))
			g.rows = G.NewTensor(g.g, tensor.Float64, len(c.shape), G.WithShape(c.rowsShape()...), G.WithName("rows"), G.WithValue(rows.Clone().(*tensor.Dense)))
			w := G.NewTensor(g.g, tensor.Float64, len(c.shape), G.WithShape(c.shape...), G.WithName("w"), G.WithValue(weights))
			p := G.NewTensor(g.g, tensor.Float64, len(c.shape), G.WithShape(c.rowsShape()...), G.WithName("p"), G.WithValue(part))
			position := G.NewScalar(g.g, tensor.Int, G.WithName("position"), G.WithValue(c.positions[0]))
			if !c.scalar {
				position = G.NewVector(g.g, tensor.Int, G.WithName("positions"), G.WithShape(len(c.positions)), G.WithValue(tensor.New(tensor.WithShape(len(c.positions)), tensor.WithBacking(slices.Clone(c.positions)))))
			}
			g.out, g.read = node(ops.Update(g.x, g.rows, position, axis)), node(ops.RowsAt(g.x, position, c.n, axis))
			g.total = node(G.Add(node(ops.Sum(node(ops.Map("a*b", g.out, w)))), node(ops.Sum(node(ops.Map("a*b", g.read, p))))))
			return g
		}
		check := func(machine, what string, v G.Value, want []float64) {
			t.Helper()
			got := v.Data()
			if f, scalar := got.(float64); scalar {
				got = []float64{f}
			}
			if !slices.Equal(got.([]float64), want) {
				t.Fatalf("%s, %+v: %s: got %v, want %v", machine, c, what, got, want)
			}
		}
		for machine, run := range map[string]func(g *graph){
			"tape": func(g *graph) {
				testutil.Get[G.Nodes](t)(G.Grad(g.total, g.x, g.rows))
				vm := G.NewTapeMachine(g.g)
				defer vm.Close()
				testutil.Do(t, vm.RunAll())
			},
			"lisp": func(g *graph) {
				vm := G.NewLispMachine(g.g)
				defer vm.Close()
				testutil.Do(t, vm.RunAll())
			},
			"stheno": func(g *graph) {
				testutil.Get[G.Nodes](t)(G.Grad(g.total, g.x, g.rows))
				vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(g.g, cudaops.OnAny(), cudaops.Strict(), cudaops.Keep(g.out, g.read)))
				defer vm.Close()
				testutil.Do(t, vm.RunAll())
			},
			"state": func(g *graph) {
				testutil.Get[G.Nodes](t)(G.Grad(g.total, g.x, g.rows))
				vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(g.g, cudaops.OnAny(), cudaops.Strict(), cudaops.Keep(g.out, g.read), cudaops.State(g.x, g.out)))
				defer vm.Close()
				testutil.Do(t, vm.RunAll())
				testutil.Do(t, vm.Pull())
				check("state", "next", g.x.Value(), wantOut)
			},
		} {
			g := build()
			run(g)
			check(machine, "out", g.out.Value(), wantOut)
			check(machine, "read", g.read.Value(), wantRead)
			check(machine, "gradient of x", testutil.Get[G.Value](t)(g.x.Grad()), wantX)
			check(machine, "gradient of rows", testutil.Get[G.Value](t)(g.rows.Grad()), wantRows)
		}
	}
}

// TestUpdateInPlace: the next value of a state is updated without a copy of the rest, and a wrong position changes nothing.
func TestUpdateInPlace(t *testing.T) {
	withoutTag(t)
	node, g := testutil.Get[*G.Node](t), G.NewGraph()
	cache := G.NewMatrix(g, tensor.Float32, G.WithName("cache"), G.WithShape(5, 3))
	row := G.NewMatrix(g, tensor.Float32, G.WithName("row"), G.WithShape(2, 3))
	at := G.NewScalar(g, tensor.Int, G.WithName("at"))
	next := node(ops.Update(cache, row, at, 0))
	total := node(ops.Sum(next))
	vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(g, cudaops.OnAny(), cudaops.State(cache, next), cudaops.ReadEvery(2)))
	defer vm.Close()
	if steps := vm.Report().Steps; len(steps) != 2 || !strings.Contains(steps[0].Kernels[0], "update_rows") {
		t.Errorf("got the steps %v, want update_rows and a sum", steps)
	}
	one := tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float32{1, 1, 1, 1, 1, 1}))
	for _, p := range []int{0, 4, -1, 3} { // an input, so that a wrong position is an error before the run
		testutil.Do(t, G.Let(row, one))
		testutil.Do(t, G.Let(at, p))
		if err := vm.RunAll(); (err != nil) != (p == 4 || p == -1) || err != nil && !strings.Contains(err.Error(), "want 0 to 3") {
			t.Errorf("position %d: got error %v", p, err)
		}
	}
	testutil.Do(t, vm.Pull())
	if want := []float32{1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1}; !slices.Equal(cache.Value().Data().([]float32), want) {
		t.Errorf("got %v, want %v", cache.Value(), want)
	}
	if total.Value().Data().(float32) != 12 {
		t.Errorf("got the sum %v, want 12", total.Value())
	}
	tape := G.NewTapeMachine(g)
	defer tape.Close()
	testutil.Do(t, G.Let(at, 9))
	if err := tape.RunAll(); err == nil || !strings.Contains(err.Error(), "got index 9 at 0, want 0 to 3") {
		t.Errorf("a tape machine gives %v, want an error of the position", err)
	}
}

// TestUpdateErrors: inputs that do not fit.
func TestUpdateErrors(t *testing.T) {
	g := G.NewGraph()
	tensorOf := func(dt tensor.Dtype, s ...int) *G.Node { return G.NewTensor(g, dt, len(s), G.WithShape(s...)) }
	x, at, f := tensorOf(tensor.Float32, 4, 5), G.NewScalar(g, tensor.Int), G.NewScalar(g, tensor.Float32)
	for want, build := range map[string]func() (*G.Node, error){
		"input 1: got float32 (4, 6), want rows of float32 (4, 5) along axis 1": func() (*G.Node, error) { return ops.Update(x, tensorOf(tensor.Float32, 4, 6), at, 1) },
		"input 1: got float64 (4, 1)":                                           func() (*G.Node, error) { return ops.Update(x, tensorOf(tensor.Float64, 4, 1), at, 1) },
		"Update: input 0: got axis 2 of shape (4, 5), want -2 <= axis < 2":      func() (*G.Node, error) { return ops.Update(x, x, at, 2) },
		"RowsAt: input 0: got axis -3 of shape":                                 func() (*G.Node, error) { return ops.RowsAt(x, at, 1, -3) },
		"got a position of float32, want int or int64":                          func() (*G.Node, error) { return ops.Update(x, x, f, 0) },
		"got a position of shape (5), want a scalar or":                         func() (*G.Node, error) { return ops.Update(x, x, tensorOf(tensor.Int, 5), 1) },
		"got a position of shape (4), want a scalar along":                      func() (*G.Node, error) { return ops.Update(x, x, tensorOf(tensor.Int, 4), 0) },
		"got 0 rows, want 1 to 5":                                               func() (*G.Node, error) { return ops.RowsAt(x, at, 0, 1) },
		"got 6 rows, want 1 to 5 along axis 1 of float32 (":                     func() (*G.Node, error) { return ops.RowsAt(x, at, 6, 1) },
	} {
		if _, err := build(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
}
