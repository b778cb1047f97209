package cudaops

import (
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A value of each row that is repeated into the rows, and kept as well, is each row's own.
func TestKeptValueOfRows(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		for _, softmax := range []func(*G.Node, ...int) (*G.Node, error){G.SoftMax, G.LogSoftMax} {
			for _, rows := range []int{2, 3, 17, 100} {
				g := G.NewGraph()
				x := G.NewVector(g, tensor.Float64, G.WithName("x"), G.WithShape(rows), G.WithInit(G.Uniform(-1, 1)))
				w := G.NewMatrix(g, tensor.Float64, G.WithName("w"), G.WithShape(rows, 2), G.WithInit(G.Uniform(-1, 1)))
				e := testutil.Get[*G.Node](t)(G.Exp(x))
				testutil.Get[*G.Node](t)(softmax(testutil.Get[*G.Node](t)(G.BroadcastAdd(w, e, nil, []byte{1})), 1))
				testutil.Do(t, machine(t, g, on, Keep(e)).RunAll())
				for r, got := range floats(t, e.Value()) {
					if want := math.Exp(floats(t, x.Value())[r]); math.Abs(got-want) > 1e-12 {
						t.Errorf("exp(x) of row %d of %d is %v, want %v", r, rows, got, want)
					}
				}
			}
		}
	})
}

// Functions that read none of their operands have the shape of these: as values of rows, as terms of sums, and as gradients.
func TestFunctionsWithoutOperands(t *testing.T) {
	ones := func(n int, v float64) []float64 { return slices.Repeat([]float64{v}, n) }
	matrix := func(g *G.ExprGraph, rows, columns int) *G.Node {
		return G.NewMatrix(g, tensor.Float64, G.WithName("x"), G.WithShape(rows, columns), G.WithInit(G.RangedFrom(1)))
	}
	onBackends(t, func(t *testing.T, on Option) {
		for name, c := range map[string]struct {
			want  []float64
			build func(g *G.ExprGraph) *G.Node
		}{
			"1 of maxima": {ones(7, 1), func(g *G.ExprGraph) *G.Node {
				return testutil.Get[*G.Node](t)(ops.Map("1", testutil.Get[*G.Node](t)(G.Max(matrix(g, 4, 7), 0))))
			}},
			"sum of 0.5": {ones(1, 3), func(g *G.ExprGraph) *G.Node {
				return testutil.Get[*G.Node](t)(G.Sum(testutil.Get[*G.Node](t)(ops.Map("0.5", matrix(g, 2, 3)))))
			}},
			"sums of rows of 0.5": {ones(2, 1.5), func(g *G.ExprGraph) *G.Node {
				return testutil.Get[*G.Node](t)(G.Sum(testutil.Get[*G.Node](t)(ops.Map("0.5", matrix(g, 2, 3))), 1))
			}},
		} {
			t.Run(name, func(t *testing.T) {
				g := G.NewGraph()
				n := c.build(g)
				vm := machine(t, g, on)
				for range 2 {
					testutil.Do(t, vm.RunAll())
					if got := floats(t, n.Value()); !slices.Equal(got, c.want) {
						t.Errorf("got %v, want %v", got, c.want)
					}
				}
			})
		}
		for _, f := range []string{"floor(a)", "sign(a)", "select(a > 2, 1, 0)", "3"} {
			t.Run("gradient by "+f, func(t *testing.T) {
				g := G.NewGraph()
				w := G.NewVector(g, tensor.Float64, G.WithName("w"), G.WithShape(4), G.WithInit(G.Uniform(-3, 3)))
				y := testutil.Get[*G.Node](t)(G.BroadcastAdd(matrix(g, 3, 4), testutil.Get[*G.Node](t)(ops.Map(f, w)), nil, []byte{0}))
				loss := testutil.Get[*G.Node](t)(G.Sum(testutil.Get[*G.Node](t)(G.Square(y))))
				testutil.Get[G.Nodes](t)(G.Grad(loss, w))
				vm := machine(t, g, on)
				for run := range 3 {
					testutil.Do(t, vm.RunAll())
					if got := floats(t, testutil.Get[G.Value](t)(w.Grad())); !slices.Equal(got, ones(4, 0)) {
						t.Errorf("run %d: got the gradient %v, want zeros", run, got)
					}
				}
			})
		}
	})
}

// A Map that reads both a part of a Concat and the whole, in different orders, overwrites neither.
func TestMapOfPartAndWhole(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		g := G.NewGraph()
		node := testutil.Get[*G.Node](t)
		x := G.NewTensor(g, tensor.Float64, 3, G.WithName("x"), G.WithShape(1, 16, 16), G.WithInit(G.Uniform(-1, 1)))
		m, n := node(G.Tanh(x)), node(G.Cos(x))
		y := node(G.BroadcastAdd(node(G.Concat(0, m, n, n)), m, nil, []byte{0}))
		testutil.Do(t, machine(t, g, on).RunAll())
		for i, got := range floats(t, y.Value()) {
			v := floats(t, x.Value())[i%256]
			want := math.Tanh(v) + math.Cos(v)
			if i < 256 {
				want = 2 * math.Tanh(v)
			}
			if math.Abs(got-want) > 1e-12 {
				t.Fatalf("element %d is %v, want %v", i, got, want)
			}
		}
	})
}
