package bench

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/must"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// windows returns a graph of some launches in a row on 1024 elements.
func windows(t testing.TB, launches int) (g *gorgonia.ExprGraph, x *gorgonia.Node, out *gorgonia.Value) {
	g = gorgonia.NewGraph()
	x = gorgonia.NewVector(g, tensor.Float32, gorgonia.WithName("x"), gorgonia.WithShape(1024), gorgonia.WithInit(gorgonia.Uniform(0, 1)))
	y := x
	for range launches {
		y = must.Get[*gorgonia.Node](t)(ops.WindowSum(y, 1, ops.Same()))
	}
	out = new(gorgonia.Value)
	gorgonia.Read(y, out)
	return g, x, out
}

// The cost of a run from Let to value beyond the device's own time: 30 launches are to
// cost 15 us.
func BenchmarkBeyondTheDevice(b *testing.B) {
	device0(b)
	for _, launches := range []int{1, 5, 30} {
		b.Run(fmt.Sprint(launches), func(b *testing.B) {
			g, x, out := windows(b, launches)
			timing := must.Get[*GraphTiming](b)(TimeGraph(0, g, 31, time.Second))
			vm := must.Get[*cudaops.VM](b)(cudaops.NewVM(g))
			defer vm.Close()
			value := x.Value()
			var runs []time.Duration
			for b.Loop() {
				start := time.Now()
				err := gorgonia.Let(x, value)
				if err == nil {
					err = vm.RunAll()
				}
				if err != nil {
					b.Fatal(err)
				}
				runs = append(runs, time.Since(start))
			}
			if *out == nil {
				b.Fatal("there is no value")
			}
			slices.Sort(runs)
			run, device := runs[len(runs)/2], median(timing.Runs)
			b.ReportMetric(float64(device.Nanoseconds())/1e3, "us-device")
			b.ReportMetric(float64((run-device).Nanoseconds())/1e3, "us-beyond")
		})
	}
}

// A graph of 40 different fused kernels is to be ready within 1.5 s when the driver's
// cache has none of them (CUDA_CACHE_DISABLE=1), and within 50 ms when it has all.
func BenchmarkFirstMachine(b *testing.B) {
	device0(b)
	g := gorgonia.NewGraph()
	y := gorgonia.NewVector(g, tensor.Float32, gorgonia.WithName("x"), gorgonia.WithShape(1024), gorgonia.WithInit(gorgonia.Uniform(0, 1)))
	functions := []func(*gorgonia.Node) (*gorgonia.Node, error){gorgonia.Exp, gorgonia.Tanh, gorgonia.Sigmoid, gorgonia.Sin, gorgonia.Log1p, gorgonia.Softplus, gorgonia.Square}
	for k := range 40 { // a function of three, no two alike
		for _, f := range []int{k % 7, k / 7 % 7, (k + k/7 + 1) % 7} {
			y = must.Get[*gorgonia.Node](b)(functions[f](y))
		}
		y = must.Get[*gorgonia.Node](b)(ops.WindowSum(y, 1, ops.Same()))
	}
	must.Get[*cudaops.Session](b)(cudaops.Open(0)).Close() // the driver has started
	b.ResetTimer()
	start := time.Now()
	vm := must.Get[*cudaops.VM](b)(cudaops.NewVM(g))
	first := time.Since(start)
	must.Do(b, vm.Close())
	b.ReportMetric(float64(first.Microseconds())/1e3, "ms-first")
}
