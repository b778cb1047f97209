package cudaops

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/internal/values"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// endings are the ops that a product's kernel can apply to its sums; x is an operand of the same
// shape.
var endings = map[string]func(c, x *G.Node) *G.Node{
	"plus":    func(c, x *G.Node) *G.Node { return G.Must(G.Add(c, x)) },
	"minus":   func(c, x *G.Node) *G.Node { return G.Must(G.Sub(x, c)) },
	"times":   func(c, x *G.Node) *G.Node { return G.Must(G.HadamardProd(c, x)) },
	"over":    func(c, x *G.Node) *G.Node { return G.Must(G.HadamardDiv(c, x)) },
	"relu":    func(c, x *G.Node) *G.Node { return G.Must(G.Rectify(G.Must(G.Add(c, x)))) },
	"tanh":    func(c, x *G.Node) *G.Node { return G.Must(G.Tanh(G.Must(G.Add(c, x)))) },
	"sigmoid": func(c, x *G.Node) *G.Node { return G.Must(G.Sigmoid(G.Must(G.Add(x, c)))) },
	"by tanh": func(c, x *G.Node) *G.Node {
		one := G.NewConstant(1.0)
		if x.Dtype() == tensor.Float32 {
			one = G.NewConstant(float32(1))
		}
		return G.Must(G.HadamardProd(G.Must(G.Sub(one, G.Must(G.HadamardProd(x, x)))), c))
	},
	"by columns": func(c, x *G.Node) *G.Node {
		return G.Must(G.BroadcastAdd(c, G.Must(G.Slice(x, G.S(0))), nil, []byte{0}))
	},
}

// A product with an epilogue computes the same bits, except in NaN, as the product followed by a Map. If the product's own
// value is an output, a Map computes the function. On a GPU, the sizes cover every kind of product kernel.
func TestEpilogueBits(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		sizes := [][3]int{{5, 7, 6}, {40, 1000, 3}, {33, 70, 41}, {1, 50, 40}, {40, 50, 1}, {70, 16, 70}}
		if strings.HasSuffix(t.Name(), "gpu") {
			sizes = append(sizes, [][3]int{{8, 20000, 8}, {128, 512, 10}, {128, 784, 512}, {512, 512, 512}, {1000, 30, 1000}, {1100, 600, 900}, {1, 5000, 300}, {300, 5000, 1}}...)
		}
		r := testutil.Random(t)
		for name, ending := range endings {
			for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
				for _, s := range sizes {
					if s[2] == 1 && name == "by columns" {
						continue
					}
					a, b, x := draw(r, dt, s[0], s[1]), draw(r, dt, s[1], s[2]), draw(r, dt, s[0], s[2])
					for i, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), 1e-40, math.MaxFloat32} {
						for range max(x.Size()/50, 1) {
							setNumber(x, r.IntN(x.Size()), v)
						}
						if i < 3 {
							setNumber(a, r.IntN(a.Size()), v)
						}
					}
					var got [2]G.Value
					for keep := range got {
						g := G.NewGraph()
						in := make(G.Nodes, 3)
						for i, v := range []*tensor.Dense{a, b, x} {
							in[i] = G.NewMatrix(g, dt, G.WithName(fmt.Sprint("x", i)), G.WithShape(v.Shape()...), G.WithValue(v))
						}
						c := G.Must(G.Mul(in[0], in[1]))
						G.Read(ending(c, in[2]), &got[keep])
						if keep == 1 {
							G.Read(c, new(G.Value))
						}
						vm := machine(t, g, on)
						testutil.Do(t, vm.RunAll())
						if n := len(vm.Report().Steps); n != 1+keep {
							t.Fatalf("%s of %v, the product read %v: got %d steps, want %d", name, s, keep == 1, n, 1+keep)
						}
					}
					if i, ok := sameBits(t, got[0], got[1]); !ok {
						t.Errorf("%s of %v %v: element %d is %v, by a map %v", name, dt, s, i, floats(t, got[0])[i], floats(t, got[1])[i])
					}
				}
			}
		}
	})
}

// sameBits reports whether values have the same bits, NaNs aside, and the first element
// that differs.
func sameBits(t *testing.T, a, b G.Value) (int, bool) {
	x, y := testutil.Get[[]byte](t)(values.Bytes(a)), testutil.Get[[]byte](t)(values.Bytes(b))
	size := len(x) / a.Shape().TotalSize()
	other := floats(t, b)
	for i, v := range floats(t, a) {
		if !bytes.Equal(x[i*size:(i+1)*size], y[i*size:(i+1)*size]) && !(math.IsNaN(v) && math.IsNaN(other[i])) {
			return i, false
		}
	}
	return 0, true
}
