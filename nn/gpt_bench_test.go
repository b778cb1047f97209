package nn_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// gpt2 is GPT-2 of 124 million parameters.
var gpt2 = GPT{Layers: 12, Width: 768, Heads: 12, Vocabulary: 50304, Context: 1024, Dtype: tensor.Float32}

// BenchmarkToken draws one token after another from GPT-2 124M with a cache of 1024 positions, the largest logit each time, in the first half of the cache and in the second, and reports the time from
// the graph to the first token.
func BenchmarkToken(b *testing.B) {
	for _, o := range []struct {
		name string
		cudaops.Option
	}{{"float32", cudaops.Precision(cudaops.FullPrecision)}, {"mixed", cudaops.Mixed(cudaops.BF16)}} {
		for _, from := range []int{0, gpt2.Context / 2} {
			b.Run(fmt.Sprint(o.name, "/", from), func(b *testing.B) { benchmarkToken(b, from, o.Option) })
		}
	}
}

func benchmarkToken(b *testing.B, from int, by cudaops.Option) {
	s := cudaops.NewStore()
	defer s.Close()
	step := testutil.Get[*Step](b)(gpt2.Step(1, 0, nil, nil, nn.In(s)))
	opts := []cudaops.Option{cudaops.OnAny(), cudaops.Strict(), by, cudaops.Outputs(step.Next)}
	testutil.Do(b, G.Let(step.Token, tensor.New(tensor.WithShape(1, 1), tensor.WithBacking([]int{7}))))
	began := time.Now()
	vm := testutil.Get[*cudaops.VM](b)(step.NewVM(opts...))
	defer vm.Close()
	made := time.Since(began)
	restart := func(vm *cudaops.VM) {
		testutil.Do(b, G.Let(step.Position(), from))
		testutil.Do(b, vm.RunAll())
	}
	restart(vm)
	first := time.Since(began)
	for i := 0; b.Loop(); i++ {
		if i%500 == 499 {
			restart(vm)
		}
		testutil.Do(b, vm.RunAll())
	}
	b.StopTimer()
	launches := 0
	for _, s := range vm.Report().Steps {
		launches += len(s.Kernels)
	}
	b.ReportMetric(float64(launches), "launches")
	b.ReportMetric(float64(made.Milliseconds()), "ms/VM")
	b.ReportMetric(float64(first.Milliseconds()), "ms/first")
	if !testing.Verbose() {
		return
	}
	timed := testutil.Get[*cudaops.VM](b)(step.NewVM(append(opts, cudaops.Timed())...))
	defer timed.Close()
	restart(timed)
	for range 10 {
		testutil.Do(b, timed.RunAll())
	}
	b.Log(timed.Report())
}

// BenchmarkLoss is the cross-entropy of 8192 rows of 50304 logits with its gradient: a step of the report, between products of few terms.
func BenchmarkLoss(b *testing.B) {
	g := G.NewGraph()
	const rows, classes = 8192, 50304
	x := G.NewMatrix(g, tensor.Float32, G.WithShape(rows, 4), G.WithName("x"), G.WithInit(G.Gaussian(0, 1)))
	w := G.NewMatrix(g, tensor.Float32, G.WithShape(4, classes), G.WithName("w"), G.WithInit(G.Gaussian(0, 1)))
	logits := testutil.Get[*G.Node](b)(ops.MatMul(x, w))
	labels := G.NewVector(g, tensor.Int32, G.WithShape(rows), G.WithName("labels"))
	loss := testutil.Get[*G.Node](b)(ops.CrossEntropy(logits, labels))
	testutil.Get[G.Nodes](b)(G.Grad(loss, w))
	r := rand.New(rand.NewPCG(1, 1))
	y := tensor.New(tensor.Of(tensor.Int32), tensor.WithShape(rows))
	for i := range y.Int32s() {
		y.Int32s()[i] = int32(r.IntN(classes))
	}
	testutil.Do(b, G.Let(labels, y))
	vm := testutil.Get[*cudaops.VM](b)(cudaops.NewVM(g, cudaops.OnAny(), cudaops.Strict(), cudaops.Resident(x, labels), cudaops.Train(G.NewVanillaSolver(), w), cudaops.Timed()))
	defer vm.Close()
	for b.Loop() {
		testutil.Do(b, vm.RunAll())
	}
	b.Log(vm.Report())
}

// BenchmarkStep is a step of AdamW of a small GPT and of GPT-2 124M in float32, with products in TF32, with values in BF16, and so with its parameters in a Store.
func BenchmarkStep(b *testing.B) {
	small := GPT{Layers: 4, Width: 256, Heads: 4, Vocabulary: 256, Context: 256, Dtype: tensor.Float32}
	for _, c := range []struct {
		name string
		GPT
		batch int
	}{{"small", small, 16}, {"124M", gpt2, 8}} {
		for _, o := range []struct {
			name string
			cudaops.Option
		}{{"float32", cudaops.Precision(cudaops.FullPrecision)}, {"TF32", cudaops.Precision(cudaops.TF32)}, {"mixed", cudaops.Mixed(cudaops.BF16)}, {"store", cudaops.Options(cudaops.Mixed(cudaops.BF16), cudaops.In(cudaops.NewStore()))}} {
			b.Run(c.name+"/"+o.name, func(b *testing.B) { benchmarkStep(b, c.GPT, c.batch, o.Option) })
		}
	}
}

func benchmarkStep(b *testing.B, m GPT, batch int, by cudaops.Option) {
	g := testutil.Get[*Trained](b)(m.Train(batch, m.Context))
	r := rand.New(rand.NewPCG(1, 1))
	tokens, labels := make([]int32, batch*m.Context), make([]int32, batch*m.Context)
	for i := range tokens {
		tokens[i] = int32(r.IntN(256))
		labels[i] = (5*tokens[i] + 3) % 256
	}
	testutil.Do(b, G.Let(g.Tokens, tensor.New(tensor.WithShape(batch, m.Context), tensor.WithBacking(tokens))))
	testutil.Do(b, G.Let(g.Labels, tensor.New(tensor.WithShape(batch, m.Context), tensor.WithBacking(labels))))
	opts := []cudaops.Option{cudaops.OnAny(), cudaops.Strict(), by, cudaops.Outputs(g.Loss), cudaops.Resident(g.Tokens, g.Labels),
		cudaops.Train(G.NewAdamW(G.WithLearnRate(3e-4), G.WithBeta2(0.95), G.WithRho(0.1)), g.Parameters...)}
	benchmarkSteps(b, func(opts ...cudaops.Option) (*cudaops.VM, error) { return cudaops.NewVM(g.Graph, opts...) }, g.Loss, opts)
}

// benchmarkSteps times runs of a VM, reports its memory, its launches and a loss, and with -v logs the time of each launch.
func benchmarkSteps(b *testing.B, newVM func(...cudaops.Option) (*cudaops.VM, error), loss *G.Node, opts []cudaops.Option) {
	vm := testutil.Get[*cudaops.VM](b)(newVM(opts...))
	for range 3 {
		testutil.Do(b, vm.RunAll())
	}
	for b.Loop() {
		testutil.Do(b, vm.RunAll())
	}
	b.StopTimer()
	report := vm.Report()
	launches := 0
	for _, s := range report.Steps {
		launches += len(s.Kernels)
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N), "ms/step")
	b.ReportMetric(float64(report.Arena>>20), "MiB")
	b.ReportMetric(float64(launches), "launches")
	b.ReportMetric(float64(loss.Value().Data().(float32)), "loss")
	vm.Close()
	if !testing.Verbose() {
		return
	}
	timed := testutil.Get[*cudaops.VM](b)(newVM(append(opts, cudaops.Timed())...))
	defer timed.Close()
	for range 5 {
		testutil.Do(b, timed.RunAll())
	}
	b.Log(timed.Report())
}
