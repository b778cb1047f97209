package cudaops

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A quirk is a graph that Gorgonia's tape machine computes wrongly. The table in
// docs/gorgonia-ops.md describes each.
type quirk struct {
	name  string
	build func(t *testing.T, dt tensor.Dtype) (g *G.ExprGraph, y *G.Node)
	want  []float64 // of y
	grads [][]float64
	tape  string // the tape machine's outcome: "wrong", "fails", or "" where running it would end the process
}

func quirks() []quirk {
	node := func(t *testing.T) func(*G.Node, error) *G.Node { return testutil.Get[*G.Node](t) }
	nan, inf := math.NaN(), math.Inf(1)
	// pairs returns a matrix with rows of two numbers.
	pairs := func(t *testing.T, g *G.ExprGraph, dt tensor.Dtype, x ...float64) *G.Node {
		return node(t)(G.Reshape(numbers(g, dt, "x", x...), tensor.Shape{len(x) / 2, 2}))
	}
	return []quirk{
		{
			name: "Rectify of infinities", tape: "wrong", want: []float64{0, nan, inf, 0, 3}, grads: [][]float64{{0, 0, 1, 0, 1}},
			build: func(t *testing.T, dt tensor.Dtype) (*G.ExprGraph, *G.Node) {
				g := G.NewGraph()
				return g, node(t)(G.Rectify(numbers(g, dt, "x", -inf, nan, inf, -2, 3)))
			},
		},
		{
			name: "Rectify of a product with infinities", tape: "wrong", want: []float64{0, inf, nan, nan, 2, 0}, grads: [][]float64{{nan, nan}, {-1, 0, 1}},
			build: func(t *testing.T, dt tensor.Dtype) (*G.ExprGraph, *G.Node) {
				g := G.NewGraph()
				return g, node(t)(G.Rectify(node(t)(G.Mul(column(g, dt, -inf, nan, 2), pairs(t, g, dt, 1, -1)))))
			},
		},
		{
			name: "Rectify of a product with infinities and a bias", tape: "wrong", want: []float64{0, inf, nan, nan, 3, 0}, grads: [][]float64{{1, 1}, {nan, nan}, {-1, 0, 1}},
			build: func(t *testing.T, dt tensor.Dtype) (*G.ExprGraph, *G.Node) {
				g := G.NewGraph()
				p := node(t)(G.Mul(column(g, dt, -inf, nan, 2), pairs(t, g, dt, 1, -1)))
				return g, node(t)(G.Rectify(node(t)(G.BroadcastAdd(p, numbers(g, dt, "b", 1, 1), nil, []byte{0}))))
			},
		},
		{
			name: "LeakyRelu of infinities", tape: "wrong", want: []float64{-inf, nan, inf, -.5, 3}, grads: [][]float64{{.25, 0, 1, .25, 1}},
			build: func(t *testing.T, dt tensor.Dtype) (*G.ExprGraph, *G.Node) {
				g := G.NewGraph()
				return g, node(t)(G.LeakyRelu(numbers(g, dt, "x", -inf, nan, inf, -2, 3), .25))
			},
		},
		{
			name: "derivative of Max of NaN", tape: "wrong", want: []float64{nan}, grads: [][]float64{{0, nan, 0}},
			build: func(t *testing.T, dt tensor.Dtype) (*G.ExprGraph, *G.Node) {
				g := G.NewGraph()
				return g, node(t)(G.Max(numbers(g, dt, "x", 1, nan, 3)))
			},
		},
		{
			name: "derivative of Max of NaN along an axis", tape: "wrong", want: []float64{nan, 3, nan}, grads: [][]float64{{0, nan, 1, 1, nan, nan}},
			build: func(t *testing.T, dt tensor.Dtype) (*G.ExprGraph, *G.Node) {
				g := G.NewGraph()
				return g, node(t)(G.Max(pairs(t, g, dt, 1, nan, 3, 3, nan, nan), 1))
			},
		},
		{
			name: "derivative of Max of NaN along an axis of one element", tape: "wrong", want: []float64{nan, 3}, grads: [][]float64{{nan, 1}},
			build: func(t *testing.T, dt tensor.Dtype) (*G.ExprGraph, *G.Node) {
				g := G.NewGraph()
				return g, node(t)(G.Max(column(g, dt, nan, 3), 1))
			},
		},
		{
			name: "derivative of Max of NaN among others", tape: "wrong", want: []float64{nan, 9, nan}, grads: [][]float64{{1, nan, 2, 2, nan, nan}},
			build: func(t *testing.T, dt tensor.Dtype) (*G.ExprGraph, *G.Node) {
				g := G.NewGraph()
				x := pairs(t, g, dt, 1, nan, 3, 3, nan, nan)
				return g, node(t)(G.Add(node(t)(G.Max(x, 1)), node(t)(G.Sum(x, 1))))
			},
		},
		{
			// The comparison has no derivative, so no gradient goes through the Max.
			name: "derivative of a product with the mask of a Max of NaN", want: []float64{0, nan, 3, 3}, grads: [][]float64{{0, 0, 1, 1}},
			build: func(t *testing.T, dt tensor.Dtype) (*G.ExprGraph, *G.Node) {
				g := G.NewGraph()
				x := pairs(t, g, dt, 1, nan, 3, 3)
				return g, node(t)(G.HadamardProd(x, node(t)(G.BroadcastEq(node(t)(G.Max(x, 1)), x, true, []byte{1}, nil))))
			},
		},
		{
			name: "Sum of rank 4 over an inner axis", tape: "wrong", want: []float64{9, 12, 27, 30, 45, 48, 63, 66},
			build: func(t *testing.T, dt tensor.Dtype) (*G.ExprGraph, *G.Node) {
				g := G.NewGraph()
				return g, node(t)(G.Sum(G.NewTensor(g, dt, 4, G.WithName("x"), G.WithShape(2, 2, 3, 2), G.WithInit(G.RangedFrom(1))), 2))
			},
		},
		{
			name: "Max of rank 4 over an inner axis", tape: "wrong", want: []float64{5, 6, 11, 12, 17, 18, 23, 24},
			build: func(t *testing.T, dt tensor.Dtype) (*G.ExprGraph, *G.Node) {
				g := G.NewGraph()
				return g, node(t)(G.Max(G.NewTensor(g, dt, 4, G.WithName("x"), G.WithShape(2, 2, 3, 2), G.WithInit(G.RangedFrom(1))), 2))
			},
		},
		{
			name: "ByIndices of a matrix of one element", tape: "wrong", want: []float64{3, 3, 3},
			build: func(t *testing.T, dt tensor.Dtype) (*G.ExprGraph, *G.Node) {
				g := G.NewGraph()
				at := G.NewVector(g, tensor.Int, G.WithName("at"), G.WithShape(3), G.WithValue(tensor.New(tensor.WithBacking([]int{0, 0, 0}))))
				return g, node(t)(G.ByIndices(G.NewMatrix(g, dt, G.WithName("x"), G.WithShape(1, 1), G.WithInit(G.RangedFrom(3))), at, 0))
			},
		},
		{
			name: "Softplus beyond 16", tape: "wrong", want: []float64{softplus(16.5), softplus(18), softplus(-18)},
			build: func(t *testing.T, dt tensor.Dtype) (*G.ExprGraph, *G.Node) {
				g := G.NewGraph()
				return g, node(t)(G.Softplus(numbers(g, dt, "x", 16.5, 18, -18)))
			},
		},
		{
			name: "SoftMax along an axis of one element", tape: "wrong", want: []float64{1, 1},
			build: func(t *testing.T, dt tensor.Dtype) (*G.ExprGraph, *G.Node) {
				g := G.NewGraph()
				return g, node(t)(G.SoftMax(column(g, dt, 1, 1000), 1))
			},
		},
		{
			name: "Sigmoid beyond 19", tape: "wrong", want: []float64{1 / (1 + math.Exp(-19.5)), 1 / (1 + math.Exp(-24)), 1 / (1 + math.Exp(24))},
			build: func(t *testing.T, dt tensor.Dtype) (*G.ExprGraph, *G.Node) {
				g := G.NewGraph()
				return g, node(t)(G.Sigmoid(numbers(g, dt, "x", 19.5, 24, -24)))
			},
		},
		{
			name: "derivative of OuterProd", tape: "fails", want: []float64{3, 4, 5, 6, 8, 10},
			grads: [][]float64{{12, 12}, {3, 3, 3}},
			build: func(t *testing.T, dt tensor.Dtype) (*G.ExprGraph, *G.Node) {
				g := G.NewGraph()
				return g, node(t)(G.OuterProd(numbers(g, dt, "x", 1, 2), numbers(g, dt, "y", 3, 4, 5)))
			},
		},
		{
			name: "derivative of OuterProd of vectors of one length", tape: "wrong", want: []float64{3, 4, 6, 8},
			grads: [][]float64{{7, 7}, {3, 3}},
			build: func(t *testing.T, dt tensor.Dtype) (*G.ExprGraph, *G.Node) {
				g := G.NewGraph()
				return g, node(t)(G.OuterProd(numbers(g, dt, "x", 1, 2), numbers(g, dt, "y", 3, 4)))
			},
		},
		{
			name: "MinBetween of scalars", tape: "fails", want: []float64{2}, grads: [][]float64{{1}, {0}},
			build: func(t *testing.T, dt tensor.Dtype) (*G.ExprGraph, *G.Node) {
				g := G.NewGraph()
				return g, node(t)(G.MinBetween(numbers(g, dt, "x", 2), numbers(g, dt, "y", 3)))
			},
		},
		{
			name: "MaxBetween of scalars", tape: "fails", want: []float64{3}, grads: [][]float64{{0}, {1}},
			build: func(t *testing.T, dt tensor.Dtype) (*G.ExprGraph, *G.Node) {
				g := G.NewGraph()
				return g, node(t)(G.MaxBetween(numbers(g, dt, "x", 2), numbers(g, dt, "y", 3)))
			},
		},
		{
			name: "Slice of a matrix of one element along both axes", want: []float64{14}, grads: [][]float64{{4, 5}},
			build: func(t *testing.T, dt tensor.Dtype) (*G.ExprGraph, *G.Node) {
				g := G.NewGraph()
				row := node(t)(G.Reshape(numbers(g, dt, "x", 1, 2), tensor.Shape{1, 2}))
				return g, node(t)(G.Slice(node(t)(G.Mul(row, column(g, dt, 4, 5))), G.S(0), G.S(0)))
			},
		},
		{
			// The end of the logistic regression example.
			name: "a comparison of a vector and a scalar that gives bool", want: []float64{0, 0, 1},
			build: func(t *testing.T, dt tensor.Dtype) (*G.ExprGraph, *G.Node) {
				g := G.NewGraph()
				half := G.NewConstant(0.5)
				if dt == tensor.Float32 {
					half = G.NewConstant(float32(0.5))
				}
				return g, node(t)(G.Gt(node(t)(G.Sigmoid(numbers(g, dt, "x", -1, 0, 1))), half, false))
			},
		},
	}
}

func softplus(x float64) float64 { return math.Log1p(math.Exp(x)) }

// numbers returns an input, a scalar for one number.
func numbers(g *G.ExprGraph, dt tensor.Dtype, name string, x ...float64) *G.Node {
	var v any = x
	if dt == tensor.Float32 {
		single := make([]float32, len(x))
		for i := range x {
			single[i] = float32(x[i])
		}
		if v = single; len(x) == 1 {
			v = single[0]
		}
	} else if len(x) == 1 {
		v = x[0]
	}
	if len(x) == 1 {
		return G.NewScalar(g, dt, G.WithName(name), G.WithValue(v))
	}
	return G.NewVector(g, dt, G.WithName(name), G.WithShape(len(x)), G.WithValue(tensor.New(tensor.WithBacking(v))))
}

// column returns an input of one column.
func column(g *G.ExprGraph, dt tensor.Dtype, x ...float64) *G.Node {
	return G.Must(G.Reshape(numbers(g, dt, "y", x...), tensor.Shape{len(x), 1}))
}

// right names the values of a quirk that are not as they should be, "" if there are none.
func (q quirk) right(t *testing.T, y *G.Node, inputs G.Nodes, dt tensor.Dtype) string {
	near := func(got G.Value, want []float64) bool {
		v := floats(t, got)
		return slices.EqualFunc(v, want, func(a, b float64) bool {
			return math.Abs(a-b) <= tolerance(dt)/100*math.Abs(b) || a == b || a != a && b != b
		})
	}
	if !near(y.Value(), q.want) {
		return fmt.Sprint("the value is ", y.Value().Data())
	}
	for i, want := range q.grads {
		if d, err := inputs[i].Grad(); err != nil || !near(d, want) {
			return "the gradient of " + inputs[i].Name()
		}
	}
	return ""
}

// Results that the tape machine computes wrongly are right here; and it does compute them wrongly.
func TestQuirks(t *testing.T) {
	for _, q := range quirks() {
		for _, dt := range []tensor.Dtype{tensor.Float64, tensor.Float32} {
			graph := func() (*G.ExprGraph, *G.Node, G.Nodes) {
				g, y := q.build(t, dt)
				inputs := g.Inputs()
				slices.SortFunc(inputs, func(a, b *G.Node) int { return strings.Compare(a.Name(), b.Name()) })
				if q.grads != nil {
					cost := y
					if !y.IsScalar() {
						cost = testutil.Get[*G.Node](t)(G.Sum(y))
					}
					testutil.Get[G.Nodes](t)(G.Grad(cost, inputs...))
				}
				return g, y, inputs
			}
			t.Run(q.name+"/"+dt.String(), func(t *testing.T) {
				onBackends(t, func(t *testing.T, on Option) {
					g, y, inputs := graph()
					vm := machine(t, g, on, Keep(y), Strict())
					testutil.Do(t, vm.RunAll())
					if wrong := q.right(t, y, inputs, dt); wrong != "" {
						t.Error(wrong)
					}
				})
				if q.tape == "" || G.CUDA || strings.Contains(q.name, "beyond") && dt == tensor.Float32 { // float32 has no digits for the tail
					return
				}
				g, y, inputs := graph()
				err := G.NewTapeMachine(g, G.TraceExec()).RunAll()
				if failed := err != nil; failed != (q.tape == "fails") {
					t.Fatalf("the tape machine gives error %v: the table in docs/gorgonia-ops.md says that it %s", err, q.tape)
				}
				if err == nil && q.right(t, y, inputs, dt) == "" {
					t.Errorf("the tape machine is right: docs/gorgonia-ops.md says that it is wrong")
				}
			})
		}
	}
}

// Faults that Gorgonia puts into a graph before a machine sees it are kept, and reported.
func TestKeptQuirks(t *testing.T) {
	node := testutil.Get[*G.Node](t)
	g := G.NewGraph()
	x := G.NewMatrix(g, tensor.Float64, G.WithName("x"), G.WithShape(1, 3), G.WithInit(G.RangedFrom(1)))
	if soft, log := node(G.SoftMax(x)), node(G.LogSoftMax(x)); soft != log {
		t.Error("LogSoftMax is a node of its own beside SoftMax")
	}
	h := G.NewGraph()
	z := G.NewMatrix(h, tensor.Float64, G.WithName("z"), G.WithShape(1, 3), G.WithInit(G.RangedFrom(1)))
	soft := node(G.SoftMax(z))
	if log := node(G.Log(soft)); log != soft {
		t.Error("the logarithm of a SoftMax is a node of its own")
	}
	onBackends(t, func(t *testing.T, on Option) {
		testutil.Do(t, machine(t, g, on).RunAll())
		testutil.Do(t, machine(t, h, on).RunAll())
		total := math.Exp(-2) + math.Exp(-1) + 1
		for i, want := range []float64{-2, -1, 0} {
			if got := floats(t, soft.Value())[i]; math.Abs(got-(want-math.Log(total))) > 1e-12 {
				t.Errorf("the logarithm of a SoftMax, element %d, is %v", i, got)
			}
		}
	})
}
