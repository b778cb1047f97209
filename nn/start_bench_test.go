package nn_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// small is a GPT of 4 layers.
var small = GPT{Layers: 4, Width: 256, Heads: 4, Vocabulary: 5000, Context: 256, Dtype: tensor.Float32}

// read returns the graph of the token after each prompt of a batch.
func (m GPT) read(batch, length int, opts ...nn.Option) (*cudaops.Sized, *nn.Scope, error) {
	s := m.scope(append(opts, nn.Evaluation())...)
	tokens := s.Input("tokens", tensor.Int32, batch, length)
	last := s.Keep(ops.Slice(m.logits(s, tokens), nil, G.S(length-1)))
	next := s.Keep(ops.ArgMax(last, -1))
	return &cudaops.Sized{Graph: s.Graph(), In: []*G.Node{tokens}, Out: []*G.Node{next}, Options: []cudaops.Option{cudaops.OnAny(), cudaops.Inference()}}, s, s.Err()
}

// tokens returns a batch of prompts.
func (m GPT) tokens(batch, time int) *tensor.Dense {
	t := tensor.New(tensor.Of(tensor.Int32), tensor.WithShape(batch, time))
	for i := range t.Int32s() {
		t.Int32s()[i] = int32(i * 7 % m.Vocabulary)
	}
	return t
}

// sizedBuild returns a graph of a size for a Cache, and its scope.
type sizedBuild func(size int, opts ...nn.Option) (*cudaops.Sized, *nn.Scope, error)

// reader builds graphs for prompts of a length.
func (m GPT) reader(length int) sizedBuild {
	return func(size int, opts ...nn.Option) (*cudaops.Sized, *nn.Scope, error) {
		return m.read(size, length, opts...)
	}
}

// newCache returns a Cache whose Store has the parameters of a model, and the time at which a graph was last built.
func newCache(b *testing.B, build sizedBuild) (*cudaops.Cache, *time.Time) {
	s := cudaops.NewStore()
	_, g, err := build(1)
	testutil.Do(b, err)
	var list []cudaops.Learnable
	for _, n := range g.Parameters() {
		list = append(list, cudaops.Learnable{Name: n.Name(), Value: n.Value()})
	}
	testutil.Do(b, s.SetParameters(list))
	built := new(time.Time)
	c := testutil.Get[*cudaops.Cache](b)(cudaops.NewCache(s, func(size int) (*cudaops.Sized, error) {
		v, _, err := build(size, nn.In(s))
		*built = time.Now()
		return v, err
	}, cudaops.Limit{}))
	b.Cleanup(func() {
		testutil.Do(b, c.Close())
		testutil.Do(b, s.Close())
	})
	return c, built
}

// BenchmarkStart is the time from the end of a graph's construction to the end of its first run, in a Cache whose Store has the weights on the device
// and whose first VM has loaded most kernels: each size is a new VM. It has at most 63 iterations.
func BenchmarkStart(b *testing.B) {
	for name, m := range map[string]GPT{"4 layers": small, "GPT-2 124M": gpt2} {
		b.Run(name, func(b *testing.B) {
			const length = 64
			c, built := newCache(b, m.reader(length))
			var took []time.Duration
			start := func(size int) {
				testutil.Do(b, c.Do(b.Context(), size, func(vm *cudaops.VM, graph *cudaops.Sized) error {
					testutil.Do(b, G.Let(graph.In[0], m.tokens(size, length)))
					testutil.Do(b, vm.RunAll())
					took = append(took, time.Since(*built))
					return nil
				}))
			}
			size := 64 // falling, so that the workspace does not grow
			for start(size); b.Loop(); {
				size--
				start(size)
			}
			b.ReportMetric(milliseconds(took[:1]), "ms/first-VM")
			b.ReportMetric(milliseconds(took[1:]), "ms/next-VM")
		})
	}
}

// perceptron returns the graph of a perceptron 784-512-512-10, whose runs are short.
func perceptron(batch int, opts ...nn.Option) (*cudaops.Sized, *nn.Scope, error) {
	s := nn.New(G.NewGraph(), append(opts, nn.Evaluation())...)
	x := s.Input("x", tensor.Float32, batch, 784)
	h := nn.ReLU(s, nn.Linear(s.At("1"), x, 512))
	y := nn.Linear(s.At("3"), nn.ReLU(s, nn.Linear(s.At("2"), h, 512)), 10)
	return &cudaops.Sized{Graph: s.Graph(), In: []*G.Node{x}, Out: []*G.Node{y}, Options: []cudaops.Option{cudaops.OnAny(), cudaops.Inference()}}, s, s.Err()
}

// BenchmarkCacheRun compares a run of a VM that a Cache made with one of a VM made alone.
func BenchmarkCacheRun(b *testing.B) {
	const batch, length = 8, 64
	images := tensor.New(tensor.WithShape(batch, 784), tensor.WithBacking(tensor.Random(tensor.Float32, batch*784)))
	for name, w := range map[string]struct {
		build sizedBuild
		x     *tensor.Dense
	}{
		"GPT of 4 layers": {small.reader(length), small.tokens(batch, length)}, "GPT-2 124M": {gpt2.reader(length), gpt2.tokens(batch, length)},
		"perceptron": {perceptron, images},
	} {
		b.Run(name, func(b *testing.B) {
			c, _ := newCache(b, w.build)
			v, g, err := w.build(batch)
			testutil.Do(b, err)
			alone := testutil.Get[*cudaops.VM](b)(cudaops.NewVM(g.Graph(), append(v.Options, cudaops.Outputs(v.Out...), cudaops.Resident(g.Parameters()...))...))
			defer alone.Close()
			var own, cached, joined []time.Duration
			for b.Loop() {
				began := time.Now()
				testutil.Do(b, G.Let(v.In[0], w.x))
				testutil.Do(b, alone.RunAll())
				own = append(own, time.Since(began))
				began = time.Now()
				testutil.Do(b, c.Do(b.Context(), batch, func(vm *cudaops.VM, graph *cudaops.Sized) error {
					testutil.Do(b, G.Let(graph.In[0], w.x))
					return vm.RunAll()
				}))
				cached = append(cached, time.Since(began))
				began = time.Now()
				testutil.Get[[]G.Value](b)(c.Run(b.Context(), w.x))
				joined = append(joined, time.Since(began))
			}
			b.ReportMetric(milliseconds(own), "ms/alone")
			b.ReportMetric(milliseconds(cached), "ms/Do")
			b.ReportMetric(milliseconds(joined), "ms/Run")
			b.ReportMetric(milliseconds(cached)/milliseconds(own), "Do/alone")
		})
	}
}

// milliseconds is the median of times.
func milliseconds(list []time.Duration) float64 {
	if len(list) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(list))[len(list)/2].Seconds() * 1e3
}

const firstStep = "TEST_OF_FIRST_STEP"

// TestFirstStep is the process that BenchmarkFirstStep times.
func TestFirstStep(t *testing.T) {
	words := strings.Fields(os.Getenv(firstStep))
	if len(words) == 0 {
		t.Skip("a part of BenchmarkFirstStep")
	}
	by := map[string]cudaops.Option{"float32": cudaops.Precision(cudaops.FullPrecision), "mixed": cudaops.Mixed(cudaops.BF16)}[words[0]]
	const batch = 8
	began := time.Now()
	if len(words) > 1 {
		go cudaops.Open(0)
	}
	g := testutil.Get[*Trained](t)(gpt2.Train(batch, gpt2.Context))
	testutil.Do(t, G.Let(g.Tokens, gpt2.tokens(batch, gpt2.Context)))
	testutil.Do(t, G.Let(g.Labels, gpt2.tokens(batch, gpt2.Context)))
	built := time.Now()
	vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(g.Graph, cudaops.OnAny(), cudaops.Strict(), by, cudaops.Outputs(g.Loss),
		cudaops.Train(G.NewAdamW(G.WithLearnRate(3e-4), G.WithBeta2(0.95), G.WithRho(0.1)), g.Parameters...)))
	made := time.Now()
	testutil.Do(t, vm.RunAll())
	fmt.Println(firstStep, built.Sub(began).Microseconds(), made.Sub(built).Microseconds(), time.Since(made).Microseconds())
	testutil.Do(t, vm.Close())
}

// BenchmarkFirstStep is the first step of AdamW of GPT-2 124M, batch 8 x 1024, each in a process of its own: the times of the graph with its initial values, of the VM, and of
// the step. Without and with a start of the driver while the graph is built.
func BenchmarkFirstStep(b *testing.B) {
	self := testutil.Get[string](b)(os.Executable())
	for _, name := range []string{"float32", "float32 started", "mixed", "mixed started"} {
		b.Run(name, func(b *testing.B) {
			var graphs, vms, steps, all []time.Duration
			for b.Loop() {
				c := exec.Command(self, "-test.run", "^TestFirstStep$", "-test.v")
				c.Env = append(os.Environ(), firstStep+"="+name)
				out := string(testutil.Get[[]byte](b)(c.CombinedOutput()))
				_, times, _ := strings.Cut(out, firstStep)
				var graph, vm, step int64
				if n, err := fmt.Sscan(times, &graph, &vm, &step); n != 3 {
					b.Fatalf("%v: %s", err, out)
				}
				const us = time.Microsecond
				graphs, vms, steps, all = append(graphs, us*time.Duration(graph)), append(vms, us*time.Duration(vm)), append(steps, us*time.Duration(step)), append(all, us*time.Duration(graph+vm+step))
			}
			b.ReportMetric(milliseconds(graphs), "ms/graph")
			b.ReportMetric(milliseconds(vms), "ms/VM")
			b.ReportMetric(milliseconds(steps), "ms/step")
			b.ReportMetric(milliseconds(all), "ms/all")
		})
	}
}
