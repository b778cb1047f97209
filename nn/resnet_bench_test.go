package nn_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// BenchmarkResNet is a step of SGD of ResNet-18 on 512 images of side 32, in float32, with products in TF32, and with values in BF16. With -v it prints the launches.
func BenchmarkResNet(b *testing.B) {
	for _, o := range []struct {
		name string
		cudaops.Option
	}{{"float32", cudaops.Precision(cudaops.FullPrecision)}, {"TF32", cudaops.Precision(cudaops.TF32)}, {"mixed", cudaops.Mixed(cudaops.BF16)}} {
		b.Run(o.name, func(b *testing.B) {
			const batch, side = 512, 32
			n := testutil.Get[*Network](b)(ResNet{64, 10}.Train(batch, side))
			r := rand.New(rand.NewPCG(1, 1))
			x, labels := make([]float32, batch*3*side*side), make([]int64, batch)
			for i := range x {
				x[i] = float32(r.NormFloat64())
			}
			for i := range labels {
				labels[i] = int64(r.IntN(10))
			}
			testutil.Do(b, G.Let(n.X, tensor.New(tensor.WithShape(batch, 3, side, side), tensor.WithBacking(x))))
			testutil.Do(b, G.Let(n.Labels, tensor.New(tensor.WithShape(batch), tensor.WithBacking(labels))))
			opts := []cudaops.Option{cudaops.OnAny(), cudaops.Strict(), o.Option, cudaops.Outputs(n.Loss), cudaops.Resident(n.X, n.Labels), cudaops.Train(G.NewVanillaSolver(G.WithLearnRate(0.01)), n.Parameters()...)}
			benchmarkSteps(b, n.Scope.NewVM, n.Loss, opts)
		})
	}
}
