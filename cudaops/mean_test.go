package cudaops

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The mean of n numbers is their sum divided by n, and the gradient w.r.t. each number is the gradient w.r.t. the mean divided by
// n, to the last bit.
func TestMeanDivides(t *testing.T) {
	means := map[string][2]func(*G.Node, ...int) (*G.Node, error){"ops": {ops.Sum, ops.Mean}, "Gorgonia": {G.Sum, G.Mean}}
	sizes := [][2]int{{1, 300}, {2, 500}, {3, 500}, {5, 501}, {7, 500}, {10, 500}, {49, 301}, {1000, 57}, {1<<18 - 3, 2}}
	onBackends(t, func(t *testing.T, on Option) {
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			round := func(v float64) float64 {
				if dt == tensor.Float32 {
					return float64(float32(v))
				}
				return v
			}
			for name, f := range means {
				for _, s := range sizes {
					node, r := testutil.Get[*G.Node](t), rand.New(rand.NewPCG(17, uint64(s[0])))
					n, k := s[0], s[1]
					g := G.NewGraph()
					x := G.NewMatrix(g, dt, G.WithName("x"), G.WithShape(n, k), G.WithValue(draw(r, dt, n, k)))
					v := G.NewVector(g, dt, G.WithName("v"), G.WithShape(k), G.WithValue(draw(r, dt, k)))
					sum, mean := node(f[0](x, 0)), node(f[1](x, 0))
					testutil.Get[G.Nodes](t)(G.Grad(node(ops.Dot(mean, v)), x))
					testutil.Do(t, machine(t, g, on, Keep(sum, mean)).RunAll())
					quotient := func(what string, i int, got, of float64) {
						if want := round(of / float64(n)); math.Float64bits(got) != math.Float64bits(want) {
							t.Fatalf("%s, mean of %d numbers of %v: %s %d is %x, want %x / %d = %x", name, n, dt, what, i, got, of, n, want)
						}
					}
					if terms := floats(t, sum.Value()); name == "Gorgonia" || dt == tensor.Float64 { // else the sum is rounded, and that of the mean is not
						for i, got := range floats(t, mean.Value()) {
							quotient("mean", i, got, terms[i])
						}
					}
					by := floats(t, v.Value())
					for i, got := range floats(t, testutil.Get[G.Value](t)(x.Grad())) {
						quotient("derivative", i, got, by[i%k])
					}
				}
			}
		}
	})
}
