package nn_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/nn"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Convolutions of drawn shapes, groups, dilations, strides and paddings are sums over the windows' elements, and NaN and infinities stay where windows have them.
func TestConvolutions(t *testing.T) {
	seed := testutil.Seed(t)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 60 {
		groups, size, stride, dilation := 1+r.IntN(3), 1+r.IntN(3), 1+r.IntN(3), 1+r.IntN(3)
		batch, in, out := 1+r.IntN(3), groups*(1+r.IntN(3)), groups*(1+r.IntN(3))
		reach := dilation*(size-1) + 1
		pad := r.IntN(min(reach, 3))
		h, w := max(1, reach-2*pad)+r.IntN(6), max(1, reach-2*pad)+r.IntN(6)
		s := nn.New(G.NewGraph(), nn.Dtype(tensor.Float64), nn.Seed(seed))
		x := s.Input("x", tensor.Float64, batch, in, h, w)
		y := nn.Conv2d(s, x, out, size, nn.Groups(groups), nn.Stride(stride), nn.Padding(pad), nn.Dilation(dilation))
		vm := testutil.Get[*cudaops.VM](t)(s.NewVM(cudaops.OnHost(), cudaops.Keep(y)))
		image := make([]float64, x.Shape().TotalSize())
		for i := range image {
			image[i] = r.NormFloat64()
		}
		image[r.IntN(len(image))] = []float64{math.NaN(), math.Inf(1), 0}[r.IntN(3)]
		testutil.Do(t, vm.Let(x, image))
		testutil.Do(t, vm.RunAll())
		weight, bias, got := elements(t, s.Parameters()[0].Value()), elements(t, s.Parameters()[1].Value()), elements(t, y.Value())
		oh, ow := (h+2*pad-reach)/stride+1, (w+2*pad-reach)/stride+1
		if !y.Shape().Eq(tensor.Shape{batch, out, oh, ow}) {
			t.Fatalf("seed %d: got shape %v of x %v, want (%d, %d, %d, %d)", seed, y.Shape(), x.Shape(), batch, out, oh, ow)
		}
		for k, v := range got {
			b, o, i, j := k/(out*oh*ow), k/(oh*ow)%out, k/ow%oh, k%ow
			want := bias[o]
			for c := range in / groups {
				for e := range size * size {
					row, column := i*stride-pad+dilation*(e/size), j*stride-pad+dilation*(e%size)
					pixel := 0.0
					if row >= 0 && row < h && column >= 0 && column < w {
						pixel = image[((b*in+o/(out/groups)*(in/groups)+c)*h+row)*w+column]
					}
					want += weight[(o*(in/groups)+c)*size*size+e] * pixel
				}
			}
			if !(math.Abs(v-want) <= 1e-12) && v != want && !(math.IsNaN(v) && math.IsNaN(want)) {
				t.Fatalf("seed %d: x %v, %d channels in %d groups, window %d, stride %d, padding %d, dilation %d: element %d is %v, want %v", seed, x.Shape(), out, groups, size, stride, pad, dilation, k, v, want)
			}
		}
		testutil.Do(t, vm.Close())
	}
}
