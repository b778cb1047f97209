package graphspec

import (
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// BenchmarkConvnet is a step of SGD of the network of Gorgonia's example convnet on images that are on the device, in float32, TF32 and with values in BF16. With -v it prints the launches.
func BenchmarkConvnet(b *testing.B) {
	for _, step := range []Step{sgd(ConvnetExample(100)), sgd(ConvnetExample(2048))} {
		for _, o := range []struct {
			name string
			cudaops.Option
		}{{"float32", cudaops.Precision(cudaops.FullPrecision)}, {"TF32", cudaops.Precision(cudaops.TF32)}, {"mixed", cudaops.Mixed(cudaops.BF16)}} {
			b.Run(step.Size+"/"+o.name, func(b *testing.B) {
				p := step.Program(step.Values(random(b)))
				opts := []cudaops.Option{cudaops.OnAny(), cudaops.Strict(), o.Option, cudaops.Outputs(p.Loss), cudaops.Resident(p.Batch...), cudaops.Train(step.Solver(), p.Learnables...)}
				vm := testutil.Get[*cudaops.VM](b)(cudaops.NewVM(p.Graph, opts...))
				for range 3 {
					testutil.Do(b, vm.RunAll())
				}
				for b.Loop() {
					testutil.Do(b, vm.RunAll())
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/1000/float64(b.N), "us/step")
				testutil.Do(b, vm.Close())
				if !testing.Verbose() {
					return
				}
				vm = testutil.Get[*cudaops.VM](b)(cudaops.NewVM(p.Graph, append(opts, cudaops.Timed())...))
				for range 5 {
					testutil.Do(b, vm.RunAll())
				}
				b.Log(vm.Report())
				testutil.Do(b, vm.Close())
			})
		}
	}
}
