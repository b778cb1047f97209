package cudaops

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A convolution has the precision of the VM: on a GPU with kernels for it it rounds its operands, elsewhere it has all bits.
func TestConvPrecision(t *testing.T) {
	const images, channels, side, filters = 4, 64, 14, 64
	onBackends(t, func(t *testing.T, on Option) {
		r := rand.New(rand.NewPCG(testutil.Seed(t), 0))
		for _, by := range []kernels.Precision{FullPrecision, TF32, BF16, F16} {
			g := G.NewGraph()
			draw := func(name string, shape ...int) *G.Node {
				data := make([]float32, tensor.Shape(shape).TotalSize())
				for i := range data {
					data[i] = float32(r.NormFloat64())
				}
				return G.NodeFromAny(g, tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data)), G.WithName(name))
			}
			x, w := draw("x", images, channels, side, side), draw("w", filters, channels, 3, 3)
			y := G.Must(ops.Conv2d(x, w, nil, ops.Padding(1)))
			vm := machine(t, g, on, Precision(by), Keep(y))
			testutil.Do(t, vm.RunAll())
			got, a, b := y.Value().Data().([]float32), x.Value().Data().([]float32), w.Value().Data().([]float32)
			worst := 0.0
			for range 2000 {
				n, f, p, q := r.IntN(images), r.IntN(filters), r.IntN(side), r.IntN(side)
				var sum, size float64
				for c := range channels {
					for i := range 9 {
						u, v := p+i/3-1, q+i%3-1
						if u < 0 || u >= side || v < 0 || v >= side {
							continue
						}
						term := float64(a[((n*channels+c)*side+u)*side+v]) * float64(b[(f*channels+c)*9+i])
						sum, size = sum+term, size+math.Abs(term)
					}
				}
				worst = max(worst, math.Abs(float64(got[((n*filters+f)*side+p)*side+q])-sum)/size)
			}
			most := math.Ldexp(1, 1-significant[by])
			if by == FullPrecision || vm.Report().Device == "host backend" {
				most = 0x1p-20
			}
			t.Logf("%v: error %v of the sum of magnitudes", by, worst)
			if !(worst <= most) {
				t.Errorf("%v: got an error of %v of the sum of magnitudes, want at most %v", by, worst, most)
			}
		}
	})
}
