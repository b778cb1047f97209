package cudaops

import (
	"fmt"
	"math"
	"strings"
	"testing"

	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// unaryCases are the element-wise ops of one operand.
func unaryCases() (list []lowered) {
	sigmoid := func(v float64) float64 { return 1 / (1 + math.Exp(-v)) }
	for _, c := range []struct {
		name     string
		op       func(*G.Node) (*G.Node, error)
		ref      func(float64) float64
		positive bool
		constant bool   // Gorgonia makes no derivative
		wrong    string // its derivative in Gorgonia
	}{
		{"abs", G.Abs, math.Abs, false, false, ""},
		{"sign", G.Sign, func(v float64) float64 { return math.Copysign(1, v) }, false, true, ""},
		{"ceil", G.Ceil, math.Ceil, false, true, ""},
		{"floor", G.Floor, math.Floor, false, true, ""},
		{"sin", G.Sin, math.Sin, false, false, ""},
		{"cos", G.Cos, math.Cos, false, false, ""},
		{"exp", G.Exp, math.Exp, false, false, ""},
		{"log", G.Log, math.Log, true, false, ""},
		{"log2", G.Log2, math.Log2, true, false, "ln 2 / x for 1 / (x ln 2)"},
		{"neg", G.Neg, func(v float64) float64 { return -v }, false, false, ""},
		{"square", G.Square, func(v float64) float64 { return v * v }, false, false, ""},
		{"sqrt", G.Sqrt, math.Sqrt, true, false, ""},
		{"inverse", G.Inverse, func(v float64) float64 { return 1 / v }, true, false, ""},
		{"inversesqrt", G.InverseSqrt, func(v float64) float64 { return 1 / math.Sqrt(v) }, true, false, "-x√x / 2 for -1 / (2x√x)"},
		{"cube", G.Cube, func(v float64) float64 { return v * v * v }, false, false, ""},
		{"tanh", G.Tanh, math.Tanh, false, false, ""},
		{"sigmoid", G.Sigmoid, sigmoid, false, false, ""},
		{"log1p", G.Log1p, math.Log1p, true, false, ""},
		{"expm1", G.Expm1, math.Expm1, false, false, ""},
		{"softplus", G.Softplus, func(v float64) float64 { return math.Log1p(math.Exp(v)) }, false, false, ""},
		{"mish", G.Mish, func(v float64) float64 { return v * math.Tanh(math.Log1p(math.Exp(v))) }, false, false, ""},
		{"rectify", G.Rectify, func(v float64) float64 { return max(v, 0) }, false, false, ""},
		{"leakyrelu", func(x *G.Node) (*G.Node, error) { return G.LeakyRelu(x, 0.125) }, func(v float64) float64 { return max(v, 0.125*v) }, false, false, ""},
		{"log of a softmax", func(x *G.Node) (*G.Node, error) { return G.Log(G.Must(G.Sigmoid(x))) }, func(v float64) float64 { return math.Log(sigmoid(v)) }, false, false, ""},
	} {
		for _, shape := range [][]int{nil, {1}, {7}, {1, 1}, {3, 5}, {5, 1}, {2, 3, 4}} {
			list = append(list, lowered{
				name: fmt.Sprintf("%s of %v", c.name, shape), shapes: [][]int{shape}, positive: c.positive, noGradient: c.constant, wrongGradient: c.wrong,
				build: func(x ...*G.Node) (*G.Node, error) { return c.op(x[0]) },
				ref:   func(x ...array) array { return x[0].apply(c.ref) },
			})
		}
	}
	return list
}

// binaryCases are the element-wise ops of two operands.
func binaryCases() (list []lowered) {
	truth := func(f func(x, y float64) bool) func(x, y float64) float64 {
		return func(x, y float64) float64 {
			if f(x, y) {
				return 1
			}
			return 0
		}
	}
	boolean := func(f func(a, b *G.Node, same bool) (*G.Node, error)) func(a, b *G.Node) (*G.Node, error) {
		return func(a, b *G.Node) (*G.Node, error) { return f(a, b, false) }
	}
	same := func(f func(a, b *G.Node, same bool) (*G.Node, error)) func(a, b *G.Node) (*G.Node, error) {
		return func(a, b *G.Node) (*G.Node, error) { return f(a, b, true) }
	}
	for _, c := range []struct {
		name     string
		op       func(a, b *G.Node) (*G.Node, error)
		ref      func(x, y float64) float64
		positive bool
		constant bool // Gorgonia makes no derivative
	}{
		{"add", G.Add, func(x, y float64) float64 { return x + y }, false, false},
		{"sub", G.Sub, func(x, y float64) float64 { return x - y }, false, false},
		{"mul", G.HadamardProd, func(x, y float64) float64 { return x * y }, false, false},
		{"div", G.HadamardDiv, func(x, y float64) float64 { return x / y }, true, false},
		{"pow", G.Pow, math.Pow, true, false},
		{"lt", same(G.Lt), truth(func(x, y float64) bool { return x < y }), false, true},
		{"gt", same(G.Gt), truth(func(x, y float64) bool { return x > y }), false, true},
		{"lte", same(G.Lte), truth(func(x, y float64) bool { return x <= y }), false, true},
		{"gte", same(G.Gte), truth(func(x, y float64) bool { return x >= y }), false, true},
		{"eq", same(G.Eq), truth(func(x, y float64) bool { return x == y }), false, true},
		{"ne", same(G.Ne), truth(func(x, y float64) bool { return x != y }), false, true},
		{"bool lt", boolean(G.Lt), truth(func(x, y float64) bool { return x < y }), false, true},
		{"bool gt", boolean(G.Gt), truth(func(x, y float64) bool { return x > y }), false, true},
		{"bool lte", boolean(G.Lte), truth(func(x, y float64) bool { return x <= y }), false, true},
		{"bool gte", boolean(G.Gte), truth(func(x, y float64) bool { return x >= y }), false, true},
		{"bool eq", boolean(G.Eq), truth(func(x, y float64) bool { return x == y }), false, true},
		{"bool ne", boolean(G.Ne), truth(func(x, y float64) bool { return x != y }), false, true},
		{"equal bools", func(a, b *G.Node) (*G.Node, error) {
			return G.Eq(G.Must(G.Lt(a, b, false)), G.Must(G.Lte(a, b, false)), false)
		}, truth(func(x, y float64) bool { return x != y }), false, true},
	} {
		for _, shapes := range [][][]int{{nil, nil}, {{7}, {7}}, {{7}, nil}, {nil, {7}}, {{3, 5}, {3, 5}}, {{3, 5}, nil}, {nil, {3, 5}}, {{2, 3, 4}, {2, 3, 4}}, {{1}, {1}}, {{1, 1}, nil}, {nil, {1}}} {
			list = append(list, lowered{
				name: fmt.Sprintf("%s of %v and %v", c.name, shapes[0], shapes[1]), shapes: shapes, positive: c.positive, noGradient: c.constant,
				build: func(x ...*G.Node) (*G.Node, error) { return c.op(x[0], x[1]) },
				ref: func(x ...array) array {
					if len(x[0].shape) < len(x[1].shape) {
						return combine(func(x, y float64) float64 { return c.ref(y, x) }, x[1], x[0])
					}
					return combine(c.ref, x[0], x[1])
				},
			})
		}
	}
	return append(list, betweenCases()...)
}

// betweenCases are MinBetween and MaxBetween.
func betweenCases() (list []lowered) {
	for _, shape := range [][]int{{7}, {3, 5}, {2, 3, 4}} {
		list = append(list, lowered{
			name: fmt.Sprintf("min between %v", shape), shapes: [][]int{shape, shape},
			build: func(x ...*G.Node) (*G.Node, error) { return G.MinBetween(x[0], x[1]) },
			ref:   func(x ...array) array { return combine(math.Min, x[0], x[1]) },
		}, lowered{
			name: fmt.Sprintf("max between %v", shape), shapes: [][]int{shape, shape},
			build: func(x ...*G.Node) (*G.Node, error) { return G.MaxBetween(x[0], x[1]) },
			ref:   func(x ...array) array { return combine(math.Max, x[0], x[1]) },
		})
	}
	return list
}

// activationCases are activations that Gorgonia composes of several ops.
func activationCases() []lowered {
	return []lowered{{
		name: "global average pool", shapes: [][]int{{2, 3, 4, 5}}, noGradient: true,
		build: func(x ...*G.Node) (*G.Node, error) { return G.GlobalAveragePool2D(x[0]) },
		ref: func(x ...array) array {
			return x[0].sum(2, 3).apply(func(v float64) float64 { return v / 20 }).as([]int{2, 3, 1, 1})
		},
	}, {
		name: "conversion", shapes: [][]int{{3, 4}}, noGradient: true,
		build: func(x ...*G.Node) (*G.Node, error) {
			n := G.NewMatrix(x[0].Graph(), tensor.Int, G.WithName("n"), G.WithShape(3, 4), G.WithValue(tensor.New(tensor.WithShape(3, 4), tensor.WithBacking(tensor.Range(tensor.Int, 0, 12)))))
			return G.Add(x[0], G.Must(G.ConvType(n, tensor.Int, x[0].Dtype())))
		},
		ref: func(x ...array) array {
			k := -1.0
			return x[0].apply(func(v float64) float64 { k++; return v + k })
		},
	}, {
		name: "binary cross-entropy", shapes: [][]int{{4, 3}, {4, 3}},
		build: func(x ...*G.Node) (*G.Node, error) { return G.BinaryXent(G.Must(G.Sigmoid(x[0])), x[1]) },
		ref: func(x ...array) array {
			return combine(func(x, y float64) float64 {
				p := 1 / (1 + math.Exp(-x))
				return -(y*math.Log(p) + (1-y)*math.Log(1-p))
			}, x[0], x[1])
		},
	}, {
		name: "log-sum-exp of a vector, as Gorgonia has it", shapes: [][]int{{6}}, positive: true,
		build: func(x ...*G.Node) (*G.Node, error) { return G.LogSumExp(x[0], 0) },
		ref: func(x ...array) array {
			m := x[0].max()
			return combine(func(sum, m float64) float64 { return math.Log(sum + m) }, combine(func(v, m float64) float64 { return math.Exp(v - m) }, x[0], m).sum(), m)
		},
	}}
}

// Gorgonia's element-wise ops of tensors of two shapes are refused, whatever the elements are; a scalar fits every shape.
func TestElementsOfTwoShapes(t *testing.T) {
	both := func(f func(a, b *G.Node, same bool) (*G.Node, error), same bool) func(a, b *G.Node) (*G.Node, error) {
		return func(a, b *G.Node) (*G.Node, error) { return f(a, b, same) }
	}
	shapes := [][]int{nil, {1}, {3}, {1, 1}, {3, 1}, {1, 3}, {1, 1, 1}}
	refused, fit := 0, 0
	for name, op := range map[string]func(a, b *G.Node) (*G.Node, error){
		"Add": G.Add, "Sub": G.Sub, "HadamardProd": G.HadamardProd, "HadamardDiv": G.HadamardDiv, "Pow": G.Pow, "Lt": both(G.Lt, true), "Eq": both(G.Eq, false),
		"MinBetween": G.MinBetween, "MaxBetween": G.MaxBetween,
	} {
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64, tensor.Int} {
			for i, s := range shapes {
				for k, u := range shapes {
					g := G.NewGraph()
					a := G.NewTensor(g, dt, len(s), G.WithName("a"), G.WithShape(s...))
					b := G.NewTensor(g, dt, len(u), G.WithName("b"), G.WithShape(u...))
					var y *G.Node
					if err := guard.Recover(name, func() (err error) { y, err = op(a, b); return err }); err != nil {
						continue // Gorgonia refuses it itself
					}
					what := fmt.Sprintf("%s of %v of shapes %v and %v", name, dt, s, u)
					vm, err := NewVM(g, OnHost())
					if i == k || s == nil || u == nil {
						if fit++; err != nil {
							t.Errorf("%s: got the error %v", what, err)
						}
						vm.Close()
						continue
					}
					refused++
					want := fmt.Sprintf("got operands of shapes %v and %v, want equal shapes or a scalar", a.Shape(), b.Shape())
					if vm != nil || err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "node "+internal.Name(y)) {
						t.Errorf("%s: got the error %v, want one with %q", what, err, want)
					}
				}
			}
		}
	}
	if refused == 0 || fit == 0 {
		t.Errorf("%d pairs of shapes differ and %d fit, want some of each", refused, fit)
	}
}

// The gradient of a vector which is repeated along an axis, and whose reshape is used elsewhere, is the sum of gradients that
// Gorgonia makes of two shapes.
func TestGradientsOfTwoShapes(t *testing.T) {
	node := testutil.Get[*G.Node](t)
	for _, extents := range [][]int{{3, 4}, {3, 1}, {1, 3}, {1, 1}} {
		for axis := range extents {
			n := extents[1-axis]
			row := tensor.Shape{n, n}
			row[axis] = 1
			want := make([]float64, n) // of the sum of x * v and of the square of the row
			for i := range want {
				want[i] = 2 * float64(i+1)
				for k := range extents[axis] {
					at := [][2]int{{k, i}, {i, k}}[axis]
					want[i] += float64(at[0]*extents[1] + at[1] + 1)
				}
			}
			for _, rowFirst := range []bool{true, false} {
				g := G.NewGraph()
				x := G.NewMatrix(g, tensor.Float64, G.WithName("x"), G.WithShape(extents...), G.WithInit(G.RangedFrom(1)))
				v := G.NewVector(g, tensor.Float64, G.WithName("v"), G.WithShape(n), G.WithInit(G.RangedFrom(1)))
				r := node(G.Reshape(v, row))
				all := node(G.Sum(node(G.BroadcastHadamardProd(x, v, nil, []byte{byte(axis)}))))
				square := node(G.Sum(node(G.Square(r))))
				if rowFirst {
					all, square = square, all
				}
				testutil.Get[G.Nodes](t)(G.Grad(node(G.Add(all, square)), v))
				vm := machine(t, g, OnHost())
				testutil.Do(t, vm.RunAll())
				wantFloats(t, fmt.Sprint("x of ", extents, ", v repeated along ", axis), testutil.Get[G.Value](t)(v.Grad()), want...)
			}
		}
	}
}
