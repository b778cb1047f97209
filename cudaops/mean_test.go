package cudaops

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/internal/must"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The derivative by each of n numbers is that by their mean over n, to the last bit.
func TestMeanGradientDivides(t *testing.T) {
	sizes := [][2]int{{1, 300}, {2, 4096}, {3, 4096}, {5, 4097}, {7, 4096}, {10, 5000}, {49, 3001}, {1000, 257}, {1<<20 - 3, 2}}
	onBackends(t, func(t *testing.T, on Option) {
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			for _, s := range sizes {
				node, r := must.Get[*G.Node](t), rand.New(rand.NewPCG(17, uint64(s[0])))
				n, k := s[0], s[1]
				g := G.NewGraph()
				x := G.NewMatrix(g, dt, G.WithName("x"), G.WithShape(n, k), G.WithValue(tensor.New(tensor.Of(dt), tensor.WithShape(n, k))))
				v := G.NewVector(g, dt, G.WithName("v"), G.WithShape(k), G.WithValue(draw(r, dt, k)))
				must.Get[G.Nodes](t)(G.Grad(node(ops.Dot(node(ops.Mean(x, 0)), v)), x))
				must.Do(t, machine(t, g, on).RunAll())
				grad, by := floats(t, must.Get[G.Value](t)(x.Grad())), floats(t, v.Value())
				for i, got := range grad {
					want := by[i%k] / float64(n)
					if dt == tensor.Float32 {
						want = float64(float32(want))
					}
					if math.Float64bits(got) != math.Float64bits(want) {
						t.Fatalf("mean of %d numbers of %v: derivative %d is %x, want %x / %d = %x", n, dt, i, got, by[i%k], n, want)
					}
				}
			}
		}
	})
}
