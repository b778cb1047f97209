package stheno_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/checkpoint"
	"github.com/stheno-ml/stheno/checkpoint/safetensors"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// This file has the programs of a user of package ops, without package nn: a GPT in training, in sampling with a cache of keys and values, and loaded from a
// file in GPT-2's layout, and a convolutional network with BatchNorm.

// gpt describes a decoder-only transformer with the names and layout of GPT-2.
type gpt struct {
	vocabulary, context, width, heads, layers int
	dtype                                     tensor.Dtype
	outIn                                     bool // weights are (out, in), as nn.Linear has them, else (in, out)
}

// gptGraph is a graph of a gpt. Each method that makes nodes fails the test if it cannot.
type gptGraph struct {
	testing.TB
	gpt
	*G.ExprGraph
	parameters G.Nodes
	states     []cudaops.Option
	position   *G.Node // of the first token; nil for a whole sequence
}

func (m gpt) graph(t testing.TB) *gptGraph { return &gptGraph{TB: t, gpt: m, ExprGraph: G.NewGraph()} }

func (g *gptGraph) node(n *G.Node, err error) *G.Node {
	g.Helper()
	testutil.Do(g, err)
	return n
}

func (g *gptGraph) constant(v any) *G.Node { return g.node(ops.Constant(g.ExprGraph, v)) }

func (g *gptGraph) input(name string, dt tensor.Dtype, shape ...int) *G.Node {
	return G.NewTensor(g.ExprGraph, dt, len(shape), G.WithName(name), G.WithShape(shape...))
}

// parameter returns a parameter, which begins with initial values if a program does not load it.
func (g *gptGraph) parameter(name string, shape ...int) *G.Node {
	n := g.input(name, g.dtype, shape...)
	initial := G.Gaussian(0, 0.1)
	switch {
	case strings.HasSuffix(name, ".bias"):
		initial = G.Zeroes()
	case len(shape) == 1:
		initial = G.Ones()
	}
	G.WithInit(initial)(n)
	g.parameters = append(g.parameters, n)
	return n
}

// keep makes next the value of a node in the next run.
func (g *gptGraph) keep(n, next *G.Node) *G.Node {
	g.states = append(g.states, cudaops.State(n, next))
	return next
}

func (g *gptGraph) linear(x *G.Node, name string, out int) *G.Node {
	in := x.Shape()[x.Dims()-1]
	if g.outIn {
		return g.node(ops.Linear(x, g.parameter(name+".weight", out, in), g.parameter(name+".bias", out)))
	}
	return g.node(ops.Add(g.node(ops.MatMul(x, g.parameter(name+".weight", in, out))), g.parameter(name+".bias", out)))
}

func (g *gptGraph) norm(x *G.Node, name string) *G.Node {
	return g.node(ops.LayerNorm(x, g.parameter(name+".weight", g.width), g.parameter(name+".bias", g.width), 1e-5))
}

// attention attends to the earlier positions: those of x, or of x and a cache.
func (g *gptGraph) attention(x *G.Node, name string, batch, time int) *G.Node {
	size := g.width / g.heads
	parts, err := ops.Split(g.linear(x, name+".c_attn", 3*g.width), -1, g.width, g.width, g.width)
	testutil.Do(g, err)
	for i, p := range parts {
		parts[i] = g.node(ops.Permute(g.node(ops.Reshape(p, batch, time, g.heads, size)), 0, 2, 1, 3))
	}
	keys := time
	if g.position != nil {
		keys = g.context
		for i, what := range []string{".keys", ".values"} {
			cache := g.input(name+what, g.dtype, batch, g.heads, keys, size)
			parts[i+1] = g.keep(cache, g.node(ops.Update(cache, parts[i+1], g.position, 2)))
		}
	}
	scores := g.node(ops.Map(fmt.Sprintf("a / sqrt(%d)", size), g.node(ops.MatMul(parts[0], parts[1], ops.TransB()))))
	later := g.node(ops.Less(g.node(ops.Reshape(g.positions(time), time, 1)), g.constant(upTo(keys))))
	minus := any(math.Inf(-1))
	if g.dtype == tensor.Float32 {
		minus = float32(math.Inf(-1))
	}
	y := g.node(ops.MatMul(g.node(ops.SoftMax(g.node(ops.Where(later, g.constant(minus), scores)), -1)), parts[2]))
	return g.linear(g.node(ops.Reshape(g.node(ops.Permute(y, 0, 2, 1, 3)), batch, time, g.width)), name+".c_proj", g.width)
}

// positions returns the positions of the tokens.
func (g *gptGraph) positions(time int) *G.Node {
	p := g.constant(upTo(time))
	if g.position != nil {
		p = g.node(ops.Add(p, g.position))
	}
	return p
}

// upTo returns 0, 1, ... below n.
func upTo(n int) *tensor.Dense {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return tensor.New(tensor.WithShape(n), tensor.WithBacking(list))
}

// logits returns the logits of the token after each one. ids is batch x time.
func (g *gptGraph) logits(ids *G.Node) *G.Node {
	batch, time := ids.Shape()[0], ids.Shape()[1]
	wte := g.parameter("wte.weight", g.vocabulary, g.width)
	x := g.node(ops.Add(g.node(ops.Embedding(wte, ids)), g.node(ops.Embedding(g.parameter("wpe.weight", g.context, g.width), g.positions(time)))))
	for i := range g.layers {
		h := fmt.Sprintf("h.%d.", i)
		x = g.node(ops.Add(x, g.attention(g.norm(x, h+"ln_1"), h+"attn", batch, time)))
		inner := g.node(ops.GELUTanh(g.linear(g.norm(x, h+"ln_2"), h+"mlp.c_fc", 4*g.width)))
		x = g.node(ops.Add(x, g.linear(inner, h+"mlp.c_proj", g.width)))
	}
	return g.node(ops.MatMul(g.norm(x, "ln_f"), wte, ops.TransB()))
}

// trainGPT trains with decay for matrices alone, and keeps the parameters in a Store.
func trainGPT(t testing.TB, m gpt, text []int, batch, time, steps int) *cudaops.Store {
	g := m.graph(t)
	ids, labels := g.input("ids", tensor.Int, batch, time), g.input("labels", tensor.Int, batch, time)
	logits := g.logits(ids)
	loss := g.node(ops.CrossEntropy(g.node(ops.Reshape(logits, -1, m.vocabulary)), g.node(ops.Reshape(labels, -1))))
	testutil.Get[G.Nodes](t)(G.Grad(loss, g.parameters...))
	var matrices, others G.Nodes
	for _, p := range g.parameters {
		if p.Dims() > 1 {
			matrices = append(matrices, p)
		} else {
			others = append(others, p)
		}
	}
	store := cudaops.NewStore()
	vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(g.ExprGraph, cudaops.OnAny(), cudaops.Strict(), cudaops.In(store), cudaops.Outputs(loss), cudaops.ClipNorm(1),
		cudaops.Train(G.NewAdamW(G.WithLearnRate(0.01), cudaops.WeightDecay(0.01)), matrices...),
		cudaops.Train(G.NewAdamW(G.WithLearnRate(0.01), cudaops.WeightDecay(0)), others...)))
	defer vm.Close()
	for step := range steps {
		var x, y []int
		for row := range batch {
			from := (step*batch + 7*row) % (len(text) - time)
			x, y = append(x, text[from:][:time]...), append(y, text[from+1:][:time]...)
		}
		testutil.Do(t, vm.Let(ids, x))
		testutil.Do(t, vm.Let(labels, y))
		testutil.Do(t, vm.RunAll())
	}
	return store
}

// TestProgramGPT trains a GPT on a periodic text. From the parameters on the device, a second VM writes the text on, token by token with a cache for two
// texts at once, and has the logits of a third one, which reads whole sequences without a cache.
func TestProgramGPT(t *testing.T) {
	m := gpt{vocabulary: 8, context: 16, width: 16, heads: 2, layers: 2, dtype: tensor.Float64, outIn: true}
	period := []int{0, 1, 2, 1, 3, 4, 5, 6, 7, 5}
	text := slices.Concat(period, period, period, period)
	store := trainGPT(t, m, text, 4, 12, 120)
	defer store.Close()
	const batch = 2
	step := m.graph(t)
	step.position = step.input("position", tensor.Int)
	step.keep(step.position, step.node(ops.Add(step.position, step.constant(1))))
	token := step.input("token", tensor.Int, batch, 1)
	last := step.node(ops.Reshape(step.logits(token), batch, m.vocabulary))
	drawn := step.node(ops.Categorical(last, 0, nil, nil))
	sampler := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(step.ExprGraph, append(step.states, cudaops.OnAny(), cudaops.Strict(), cudaops.In(store),
		cudaops.Inference(), cudaops.Outputs(last, drawn))...))
	defer sampler.Close()
	for _, s := range sampler.Report().Steps {
		if s.Where == "host" || strings.Contains(fmt.Sprint(s.Nodes), "copy") {
			t.Errorf("step %v of a token", s)
		}
	}
	from := []int{0, 7}
	written := [batch][]int{text[from[0]:][:4], text[from[1]:][:4]}
	var logits [batch][]float64
	for i := range m.context {
		testutil.Do(t, sampler.Let(token, []int{written[0][i], written[1][i]}))
		testutil.Do(t, sampler.RunAll())
		for row, next := range drawn.Value().Data().([]int) {
			logits[row] = append(logits[row], last.Value().Data().([]float64)[row*m.vocabulary:][:m.vocabulary]...)
			if len(written[row]) == i+1 { // behind the prompt
				written[row] = append(slices.Clone(written[row]), next)
			}
		}
	}
	if err := sampler.RunAll(); err == nil {
		t.Error("got no error of a token beyond the context")
	}
	whole := m.graph(t)
	ids := whole.input("ids", tensor.Int, 1, m.context)
	all := whole.logits(ids)
	reader := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(whole.ExprGraph, cudaops.OnAny(), cudaops.Strict(), cudaops.In(store), cudaops.Inference()))
	defer reader.Close()
	for row := range batch {
		if want := text[from[row]:][:12]; !slices.Equal(written[row][:12], want) {
			t.Errorf("text %d: got %v, want %v", row, written[row][:12], want)
		}
		testutil.Do(t, reader.Let(ids, written[row][:m.context]))
		testutil.Do(t, reader.RunAll())
		if far := largestDifference(logits[row], all.Value().Data().([]float64)); far > 1e-9 {
			t.Errorf("text %d: the logits with a cache differ by %g from those without", row, far)
		}
	}
}

// largestDifference is that of two lists.
func largestDifference(a, b []float64) (far float64) {
	for i := range max(len(a), len(b)) {
		far = max(far, math.Abs(a[i]-b[i]))
	}
	return far
}

// TestProgramGPT2: a file in GPT-2's layout gives PyTorch's logits, whatever its elements are, from one file and from shards, in graphs of both layouts of
// weights, by nodes and by a Store. checkpoint/testdata/gpt2/make.py made the files.
func TestProgramGPT2(t *testing.T) {
	const folder, time = "checkpoint/testdata/gpt2/", 10
	m := gpt{vocabulary: 64, context: 12, width: 24, heads: 3, layers: 2}
	reference := testutil.Get[*safetensors.File](t)(safetensors.Open(folder + "logits.safetensors"))
	defer reference.Close()
	ids := make([]int, 2*time)
	testutil.Do(t, safetensors.Elements(reference.Find("ids"), 0, ids))
	rename := checkpoint.Rename(func(name string) string {
		if name == "lm_head.weight" || strings.HasSuffix(name, ".attn.bias") {
			return "" // the head is wte.weight, the other is a buffer with the mask
		}
		return strings.TrimPrefix(name, "transformer.")
	})
	transposed := checkpoint.Transposed(func(name string) bool {
		return strings.HasPrefix(name, "h.") && strings.HasSuffix(name, ".weight") && !strings.Contains(name, ".ln_")
	})
	for name, path := range map[string]string{"f32": "f32", "f16": "f16.safetensors", "bf16": "bf16.safetensors"} {
		want := make([]float64, len(ids)*m.vocabulary)
		testutil.Do(t, safetensors.Elements(reference.Find(name), 0, want))
		largest := largestDifference(want, make([]float64, len(want)))
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			m.dtype, m.outIn = dt, dt == tensor.Float32
			opts := []checkpoint.LoadOption{rename}
			if m.outIn {
				opts = append(opts, transposed)
			}
			for _, stored := range []bool{false, true} {
				g := m.graph(t)
				tokens := g.input("ids", tensor.Int, 2, time)
				logits := g.logits(tokens)
				store, on := cudaops.NewStore(), []cudaops.Option{cudaops.OnAny(), cudaops.Strict()}
				if stored {
					on = append(on, cudaops.In(store, g.parameters...))
				} else {
					testutil.Get[checkpoint.Loaded](t)(checkpoint.LoadParameters(folder+path, g.parameters, opts...))
				}
				vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(g.ExprGraph, on...))
				if stored {
					testutil.Get[checkpoint.Loaded](t)(checkpoint.LoadStore(folder+path, store, opts...))
				}
				testutil.Do(t, vm.Let(tokens, ids))
				testutil.Do(t, vm.RunAll())
				got := make([]float64, len(want))
				for i := range got {
					got[i] = element(logits.Value(), i)
				}
				if far := largestDifference(got, want); !(far <= 1e-5*largest) {
					t.Errorf("%s as %v, in a Store %v: the logits differ from PyTorch's by %g of the largest", name, dt, stored, far/largest)
				}
				testutil.Do(t, errors.Join(vm.Close(), store.Close()))
			}
		}
	}
}

// element returns an element of a value of float32 or float64.
func element(v G.Value, i int) float64 {
	if list, ok := v.Data().([]float32); ok {
		return float64(list[i])
	}
	return v.Data().([]float64)[i]
}

// cnn is a network of a convolution with BatchNorm, pooling and a linear layer, for one batch size.
type cnn struct {
	*G.ExprGraph
	x, logits  *G.Node
	parameters G.Nodes
	states     []cudaops.Option
}

func newCNN(t testing.TB, batch, side, channels, classes int) *cnn {
	n := &cnn{ExprGraph: G.NewGraph()}
	node := testutil.Get[*G.Node](t)
	input := func(name string, init G.InitWFn, shape ...int) *G.Node {
		return G.NewTensor(n.ExprGraph, tensor.Float32, len(shape), G.WithName(name), G.WithShape(shape...), G.WithInit(init))
	}
	parameter := func(name string, init G.InitWFn, shape ...int) *G.Node {
		n.parameters = append(n.parameters, input(name, init, shape...))
		return n.parameters[len(n.parameters)-1]
	}
	n.x = G.NewTensor(n.ExprGraph, tensor.Float32, 4, G.WithName("x"), G.WithShape(batch, 1, side, side))
	y := node(ops.Conv2d(n.x, parameter("conv", G.Gaussian(0, 0.3), channels, 1, 3, 3), nil, ops.Padding(1)))
	mean, variance := input("mean", G.Zeroes(), channels), input("variance", G.Ones(), channels)
	y, nextMean, nextVariance, err := ops.BatchNorm(y, parameter("scale", G.Ones(), channels), parameter("shift", G.Zeroes(), channels), mean, variance, 0.1, 1e-5)
	testutil.Do(t, err)
	n.states = []cudaops.Option{cudaops.State(mean, nextMean), cudaops.State(variance, nextVariance)}
	y = node(ops.Max(node(ops.Map("max(a, 0)", y)), 2, 3))
	n.logits = node(ops.Linear(y, parameter("weight", G.Gaussian(0, 0.3), classes, channels), parameter("bias", G.Zeroes(), classes)))
	return n
}

// TestProgramCNN trains a convolutional network to tell horizontal from vertical lines, evaluates it at another batch size and predicts single images, all
// with the parameters and running statistics of one Store.
func TestProgramCNN(t *testing.T) {
	const side, channels, classes = 6, 4, 2
	images := func(batch, seed int) (x []float32, labels []int) {
		for i := range batch {
			at, label := (i*5+seed)%side, (i+seed)/3%classes
			image := make([]float32, side*side)
			for k := range side {
				if label == 0 {
					image[at*side+k] = 1 + float32(seed%3)
				} else {
					image[k*side+at] = 1 + float32(seed%3)
				}
			}
			x, labels = append(x, image...), append(labels, label)
		}
		return x, labels
	}
	store := cudaops.NewStore()
	defer store.Close()
	n := newCNN(t, 16, side, channels, classes)
	y := G.NewVector(n.ExprGraph, tensor.Int, G.WithName("y"), G.WithShape(16))
	loss := testutil.Get[*G.Node](t)(ops.CrossEntropy(n.logits, y))
	testutil.Get[G.Nodes](t)(G.Grad(loss, n.parameters...))
	training := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(n.ExprGraph, append(n.states, cudaops.OnAny(), cudaops.Strict(), cudaops.In(store), cudaops.Outputs(loss),
		cudaops.ReadEvery(20), cudaops.Train(G.NewAdamSolver(G.WithLearnRate(0.02)), n.parameters...))...))
	defer training.Close()
	for step := range 100 {
		x, labels := images(16, step)
		testutil.Do(t, training.Let(n.x, x))
		testutil.Do(t, training.Let(y, labels))
		testutil.Do(t, training.RunAll())
	}
	for _, batch := range []int{50, 1} {
		n := newCNN(t, batch, side, channels, classes)
		best := testutil.Get[*G.Node](t)(ops.ArgMax(n.logits, -1))
		vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(n.ExprGraph, cudaops.OnAny(), cudaops.Strict(), cudaops.In(store), cudaops.Inference(), cudaops.Outputs(best)))
		x, labels := images(batch, 1001)
		testutil.Do(t, vm.Let(n.x, x))
		testutil.Do(t, vm.RunAll())
		if got := best.Value().Data().([]int); !slices.Equal(got, labels) {
			t.Errorf("batch of %d: got classes %v, want %v", batch, got, labels)
		}
		testutil.Do(t, vm.Close())
	}
}
