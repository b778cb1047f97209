package cudaops

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// joinCases are concatenations, of whole inputs, of views and of computed values, and their
// opposite.
func joinCases() (list []lowered) {
	for _, c := range []struct {
		axis   int
		shapes [][]int
		noTape string
	}{
		{0, [][]int{{3}, {4}}, ""}, {0, [][]int{{1}, {5}, {1}}, ""}, {0, [][]int{{6}}, ""},
		{0, [][]int{{2, 3}, {4, 3}}, ""}, {1, [][]int{{2, 3}, {2, 4}, {2, 8}}, ""}, {1, [][]int{{4, 1}, {4, 3}}, ""}, {0, [][]int{{1, 3}, {1, 3}}, ""},
		{0, [][]int{{2, 3, 4}, {1, 3, 4}}, ""}, {1, [][]int{{2, 3, 4}, {2, 2, 4}, {2, 1, 4}}, ""}, {2, [][]int{{2, 3, 4}, {2, 3, 4}}, ""},
		{3, [][]int{{2, 1, 3, 4}, {2, 1, 3, 5}}, ""}, {1, [][]int{{2, 2, 2, 1, 3}, {2, 3, 2, 1, 3}}, ""},
	} {
		list = append(list, lowered{
			name: fmt.Sprintf("concat of %v along %d", c.shapes, c.axis), shapes: c.shapes, noTape: c.noTape,
			build: func(x ...*G.Node) (*G.Node, error) { return G.Concat(c.axis, x...) },
			ref:   func(x ...array) array { return joined(c.axis, x...) },
		})
	}
	return append(list, lowered{
		name: "concat of views", shapes: [][]int{{4, 6}, {6, 4}},
		build: func(x ...*G.Node) (*G.Node, error) {
			return G.Concat(1, G.Must(G.Slice(x[0], nil, G.S(3, 6))), G.Must(G.Slice(x[0], nil, G.S(0, 3))), G.Must(G.Transpose(x[1])))
		},
		ref: func(x ...array) array {
			rolled := generate([]int{4, 6}, func(i []int) float64 { return x[0].at(i[0], (i[1]+3)%6) })
			return joined(1, rolled, x[1].transposed(1, 0))
		},
	}, lowered{
		name: "concat of what is computed, in what is computed", shapes: [][]int{{3, 5}, {3, 2}},
		build: func(x ...*G.Node) (*G.Node, error) {
			return G.Square(G.Must(G.Concat(1, G.Must(G.Cube(x[0])), x[1], G.Must(G.Cube(x[0])))))
		},
		ref: func(x ...array) array {
			cubes := x[0].apply(func(v float64) float64 { return v * v * v })
			return joined(1, cubes, x[1], cubes).apply(func(v float64) float64 { return v * v })
		},
	}, lowered{
		name: "unconcat", shapes: [][]int{{2, 6}},
		build: func(x ...*G.Node) (*G.Node, error) {
			parts, err := G.Unconcat(x[0], 1, 3)
			if err != nil {
				return nil, err
			}
			return G.HadamardProd(parts[2], parts[0])
		},
		ref: func(x ...array) array {
			return generate([]int{2, 2}, func(i []int) float64 { return x[0].at(i[0], i[1]+4) * x[0].at(i[0], i[1]) })
		},
	})
}

// joined concatenates arrays along an axis.
func joined(axis int, x ...array) array {
	shape := slices.Clone(x[0].shape)
	shape[axis] = 0
	for _, a := range x {
		shape[axis] += a.shape[axis]
	}
	return generate(shape, func(i []int) float64 {
		at, k := slices.Clone(i), 0
		for ; at[axis] >= x[k].shape[axis]; k++ {
			at[axis] -= x[k].shape[axis]
		}
		return x[k].at(at...)
	})
}

// diagonalCases are matrices with the elements of a tensor on the diagonal.
func diagonalCases() (list []lowered) {
	for _, shape := range [][]int{{2}, {7}, {2, 3}, {2, 1, 3}} {
		list = append(list, lowered{
			name: fmt.Sprintf("diagonal of %v", shape), shapes: [][]int{shape}, noGradient: true,
			build: func(x ...*G.Node) (*G.Node, error) { return G.DiagFlat(x[0]) },
			ref:   func(x ...array) array { return diagonalOf(x[0].flat()) },
		})
	}
	return append(list, lowered{
		name: "diagonal of a transpose", shapes: [][]int{{3, 2}}, noGradient: true, noTape: "it takes the elements as they lie in memory",
		build: func(x ...*G.Node) (*G.Node, error) { return G.DiagFlat(G.Must(G.Transpose(x[0]))) },
		ref:   func(x ...array) array { return diagonalOf(x[0].transposed(1, 0).flat()) },
	})
}

func diagonalOf(x array) array {
	n := len(x.v)
	return generate([]int{n, n}, func(i []int) float64 {
		if i[0] == i[1] {
			return x.v[i[0]]
		}
		return 0
	})
}

// indexed applies ByIndices with constant or given indices.
func indexed(x *G.Node, axis int, indices ...int) (*G.Node, error) {
	v := tensor.New(tensor.WithShape(len(indices)), tensor.WithBacking(indices))
	return G.ByIndices(x, G.NewVector(x.Graph(), tensor.Int, G.WithName("indices"), G.WithShape(len(indices)), G.WithValue(v)), axis)
}

// indexCases are elements by index, each once, several times, or not at all.
func indexCases() (list []lowered) {
	const inner = "it takes other elements, of an axis behind the first"
	for _, c := range []struct {
		shape   []int
		axis    int
		indices []int
		noTape  string
	}{
		{[]int{5}, 0, []int{3, 0, 3}, "its derivative of a vector adds to other elements"},
		{[]int{6, 4}, 0, []int{5, 0, 2, 2, 5, 5, 1}, ""}, {[]int{6, 3}, 0, []int{4}, ""}, {[]int{3, 1}, 0, []int{1, 1, 1, 1}, ""},
		{[]int{4, 5}, 1, []int{0, 4, 4}, inner}, {[]int{3, 4, 5}, 0, []int{2, 0, 2}, ""}, {[]int{3, 4, 5}, 1, []int{3, 0, 3, 1}, inner},
		{[]int{3, 4, 5}, 2, []int{1, 1}, inner}, {[]int{2, 3, 2, 3}, 2, []int{1, 0, 1}, inner}, {[]int{2, 2, 3, 2, 2}, 2, []int{2, 2, 0, 1}, inner},
	} {
		list = append(list, lowered{
			name: fmt.Sprintf("elements %v along %d of %v", c.indices, c.axis, c.shape), shapes: [][]int{c.shape}, noTape: c.noTape,
			build: func(x ...*G.Node) (*G.Node, error) { return indexed(x[0], c.axis, c.indices...) },
			ref: func(x ...array) array {
				shape := slices.Clone(c.shape)
				shape[c.axis] = len(c.indices)
				return generate(shape, func(i []int) float64 {
					at := slices.Clone(i)
					at[c.axis] = c.indices[i[c.axis]]
					return x[0].at(at...)
				})
			},
		})
	}
	return append(list, lowered{
		name: "elements of a transpose, squared", shapes: [][]int{{4, 6}}, noTape: "it takes the elements as they lie in memory",
		build: func(x ...*G.Node) (*G.Node, error) {
			return G.Square(G.Must(indexed(G.Must(G.Transpose(x[0])), 0, 5, 1, 5)))
		},
		ref: func(x ...array) array {
			return generate([]int{3, 4}, func(i []int) float64 {
				v := x[0].at(i[1], []int{5, 1, 5}[i[0]])
				return v * v
			})
		},
	})
}

// An index outside of the axis is an error, also where the device computes it,
// and leaves everything as it was.
func TestIndexOutside(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		for _, bad := range []int{-1, 4, 1 << 40} {
			for _, computed := range []bool{false, true} {
				g := G.NewGraph()
				x := G.NewMatrix(g, tensor.Float64, G.WithName("x"), G.WithShape(4, 3), G.WithInit(G.Ones()))
				at := tensor.New(tensor.WithShape(3), tensor.WithBacking([]int{1, 0, bad}))
				indices := G.NewVector(g, tensor.Int, G.WithName("indices"), G.WithShape(3), G.WithValue(at))
				if computed {
					f := G.NewVector(g, tensor.Float64, G.WithName("floats"), G.WithShape(3), G.WithValue(tensor.New(tensor.WithBacking([]float64{1, 0, float64(bad)}))))
					indices = testutil.Get[*G.Node](t)(G.ConvType(G.Must(G.Neg(G.Must(G.Neg(f)))), tensor.Float64, tensor.Int))
				}
				out := testutil.Get[*G.Node](t)(G.ByIndices(x, indices, 0))
				testutil.Get[G.Nodes](t)(G.Grad(G.Must(G.Sum(out)), x))
				vm := machine(t, g, on)
				err := vm.RunAll()
				if want := fmt.Sprintf("got index %d at 2, want 0 to 3", bad); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got the error %v, want one with %q", err, want)
				}
				if out.Value() != nil {
					t.Errorf("after an error, the node has the value %v", out.Value())
				}
			}
		}
	})
}

// TestIndicesOutside: a label, an id or a position outside of its axis is the error of its run, given or computed, also where results are not copied to
// the host, and the next run works.
func TestIndicesOutside(t *testing.T) {
	for name, build := range map[string]func(x, i *G.Node) (*G.Node, error){
		"Embedding":    ops.Embedding,
		"Pick":         func(x, i *G.Node) (*G.Node, error) { return ops.Pick(x, G.Must(ops.Reshape(i, 2, 1)), 1) },
		"OneHot":       func(_, i *G.Node) (*G.Node, error) { return ops.OneHot(i, 2, tensor.Float32) },
		"CrossEntropy": func(x, i *G.Node) (*G.Node, error) { return ops.CrossEntropy(x, i) },
		"Update":       func(x, i *G.Node) (*G.Node, error) { return ops.Update(x, G.Must(ops.Slice(x, nil, G.S(0, 1))), i, 1) },
	} {
		for _, computed := range []bool{false, true} {
			for _, every := range []int{1, 3} {
				g := G.NewGraph()
				x := G.NewMatrix(g, tensor.Float64, G.WithName("x"), G.WithShape(2, 2), G.WithInit(G.Ones()))
				i := G.NewVector(g, tensor.Int, G.WithName("i"), G.WithShape(2))
				of := i
				if computed {
					of = testutil.Get[*G.Node](t)(ops.Map("a + 0 * a", i))
				}
				y := testutil.Get[*G.Node](t)(build(x, of))
				vm := testutil.Get[*VM](t)(NewVM(g, OnAny(), Strict(), ReadEvery(every), Outputs(y)))
				for _, at := range []int{0, 2, 1, 1, -1, 0} {
					testutil.Do(t, vm.Let(i, []int{1, at}))
					err := vm.RunAll()
					if wrong := at < 0 || at > 1; wrong == (err == nil) || wrong && !strings.Contains(err.Error(), fmt.Sprintf("got index %d at 1, want 0 to 1", at)) {
						t.Errorf("%s, computed %v, ReadEvery(%d): index %d gives error %v", name, computed, every, at, err)
					}
				}
				testutil.Do(t, vm.Close())
			}
		}
	}
}

// Floats become integers as Go converts them, integers floats, and either may go into a row.
func TestConversions(t *testing.T) {
	values := []float64{0, 0.9, -0.9, 1.5, -1.5, 7, -7, 1e9 + 0.5, -1e12, 1 << 52}
	onBackends(t, func(t *testing.T, on Option) {
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			g := G.NewGraph()
			v := tensor.New(tensor.Of(dt), tensor.WithShape(2, 5))
			ints := make([]int, len(values))
			for i, x := range values {
				if setNumber(v, i, x); dt == tensor.Float32 {
					x = float64(float32(x))
				}
				ints[i] = int(x)
			}
			x := G.NewMatrix(g, dt, G.WithName("x"), G.WithShape(2, 5), G.WithValue(v))
			whole := testutil.Get[*G.Node](t)(G.ConvType(x, dt, tensor.Int))
			back := testutil.Get[*G.Node](t)(G.ConvType(whole, tensor.Int, dt))
			sum := testutil.Get[*G.Node](t)(G.Sum(G.Must(G.Neg(back)), 1))
			input := G.NewMatrix(g, tensor.Int, G.WithName("ints"), G.WithShape(2, 5), G.WithValue(tensor.New(tensor.WithShape(2, 5), tensor.WithBacking(ints))))
			most := testutil.Get[*G.Node](t)(G.Max(G.Must(G.ConvType(input, tensor.Int, dt)), 1))
			vm := machine(t, g, on, Keep(whole, back))
			testutil.Do(t, vm.RunAll())
			if got := onTheHost(vm.Report()); len(got) > 0 {
				t.Errorf("on the host: got %v, want nothing", got)
			}
			if got := whole.Value().Data().([]int); !slices.Equal(got, ints) {
				t.Errorf("%v: got %v, want %v", dt, got, ints)
			}
			want := array{[]int{2, 5}, make([]float64, len(ints))}
			for i, n := range ints {
				want.v[i] = float64(n)
			}
			closeTo(t, "integers as floats", back.Value(), want, 0)
			closeTo(t, "their sum", sum.Value(), want.apply(func(v float64) float64 { return -v }).sum(1), tolerance(dt))
			closeTo(t, "the greatest", most.Value(), want.max(1), 0)
		}
	})
}
