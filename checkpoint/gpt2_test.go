package checkpoint

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/checkpoint/safetensors"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The sizes in testdata/gpt2/make.py.
const (
	gptVocabulary, gptContext, gptTokens = 64, 12, 10
	gptWidth, gptHeads, gptLayers        = 24, 3, 2
)

// gpt builds the forward pass of a GPT for one sequence, with parameters named as GPT-2's.
type gpt struct {
	testing.TB
	g          *G.ExprGraph
	dt         tensor.Dtype
	outIn      bool // weights are (out, in), as nn.Linear has them
	parameters G.Nodes
	ids        *G.Node
	logits     *G.Node
}

func newGPT(t testing.TB, dt tensor.Dtype, outIn bool) *gpt {
	m := &gpt{TB: t, g: G.NewGraph(), dt: dt, outIn: outIn}
	node := testutil.Get[*G.Node](t)
	whole := func(name string, x ...int) *G.Node {
		return G.NewVector(m.g, tensor.Int, G.WithName(name), G.WithShape(len(x)), G.WithValue(tensor.New(tensor.WithBacking(x))))
	}
	positions := make([]int, gptTokens)
	for i := range positions {
		positions[i] = i
	}
	m.ids = whole("ids", positions...)
	wte := m.parameter("wte.weight", gptVocabulary, gptWidth)
	x := m.add(node(G.ByIndices(wte, m.ids, 0)), node(G.ByIndices(m.parameter("wpe.weight", gptContext, gptWidth), whole("positions", positions...), 0)))
	for i := range gptLayers {
		h := fmt.Sprintf("h.%d.", i)
		x = m.add(x, m.linear(m.attention(m.linear(m.norm(x, h+"ln_1"), h+"attn.c_attn", 3*gptWidth)), h+"attn.c_proj", gptWidth))
		inner := m.linear(m.norm(x, h+"ln_2"), h+"mlp.c_fc", 4*gptWidth)
		inner = node(ops.Map("0.5*a*(1 + tanh(0.7978845608028654*(a + 0.044715*cube(a))))", inner))
		x = m.add(x, m.linear(inner, h+"mlp.c_proj", gptWidth))
	}
	m.logits = node(ops.MatMul(m.norm(x, "ln_f"), wte, ops.TransB()))
	return m
}

func (m *gpt) parameter(name string, shape ...int) *G.Node {
	n := G.NewTensor(m.g, m.dt, len(shape), G.WithName(name), G.WithShape(shape...))
	m.parameters = append(m.parameters, n)
	return n
}

func (m *gpt) node(n *G.Node, err error) *G.Node {
	m.Helper()
	testutil.Do(m, err)
	return n
}

func (m *gpt) add(a, b *G.Node) *G.Node { return m.node(ops.Add(a, b)) }

// rows repeats a vector for each row.
func (m *gpt) rows(v *G.Node) *G.Node { return m.node(ops.Broadcast(v, gptTokens, 0)) }

func (m *gpt) linear(x *G.Node, name string, out int) *G.Node {
	in := x.Shape()[1]
	var y *G.Node
	if m.outIn {
		y = m.node(ops.MatMul(x, m.parameter(name+".weight", out, in), ops.TransB()))
	} else {
		y = m.node(ops.MatMul(x, m.parameter(name+".weight", in, out)))
	}
	return m.add(y, m.rows(m.parameter(name+".bias", out)))
}

func (m *gpt) norm(x *G.Node, name string) *G.Node {
	columns := func(v *G.Node) *G.Node { return m.node(ops.Broadcast(v, gptWidth, 1)) }
	centred := m.node(ops.Map("a - b", x, columns(m.node(ops.Mean(x, 1)))))
	variance := columns(m.node(ops.Mean(m.node(ops.Map("square(a)", centred)), 1)))
	scale, shift := m.rows(m.parameter(name+".weight", gptWidth)), m.rows(m.parameter(name+".bias", gptWidth))
	return m.node(ops.Map("a*inverseSqrt(b + 0.00001)*c + d", centred, variance, scale, shift))
}

func (m *gpt) attention(qkv *G.Node) *G.Node {
	mask := tensor.New(tensor.Of(m.dt), tensor.WithShape(gptTokens, gptTokens))
	for i := range gptTokens {
		for j := i + 1; j < gptTokens; j++ {
			far := any(-1e9)
			if m.dt == tensor.Float32 {
				far = float32(-1e9)
			}
			testutil.Do(m, mask.SetAt(far, i, j))
		}
	}
	hidden := G.NewMatrix(m.g, m.dt, G.WithName("mask"), G.WithShape(gptTokens, gptTokens), G.WithValue(mask))
	var heads []*G.Node
	const size = gptWidth / gptHeads
	for h := range gptHeads {
		part := func(i int) *G.Node { // of q, k or v; ranges below 256, which Gorgonia tells apart
			return m.node(G.Slice(qkv, nil, G.S(i*gptWidth+h*size, i*gptWidth+(h+1)*size)))
		}
		scores := m.node(ops.MatMul(part(0), part(1), ops.TransB()))
		scores = m.node(ops.Map(fmt.Sprintf("a*%v + b", 1/math.Sqrt(size)), scores, hidden))
		heads = append(heads, m.node(ops.MatMul(m.node(G.SoftMax(scores, 1)), part(2))))
	}
	return m.node(G.Concat(1, heads...))
}

// A file in GPT-2's layout gives PyTorch's logits, whatever its elements are, from one file and from shards, in graphs of both
// layouts of weights, by nodes and by a Store.
func TestGPT2(t *testing.T) {
	reference := testutil.Get[*safetensors.File](t)(safetensors.Open("testdata/gpt2/logits.safetensors"))
	defer reference.Close()
	ids := make([]int, 2*gptTokens)
	testutil.Do(t, safetensors.Elements(reference.Find("ids"), 0, ids))
	rename := Rename(func(name string) string {
		if name == "lm_head.weight" || strings.HasSuffix(name, ".attn.bias") {
			return "" // the head is wte.weight, the other is a buffer with the mask
		}
		return strings.TrimPrefix(name, "transformer.")
	})
	transposed := Transposed(func(name string) bool {
		return strings.HasPrefix(name, "h.") && strings.HasSuffix(name, ".weight") && !strings.Contains(name, ".ln_")
	})
	onBackends(t, func(t *testing.T, on cudaops.Option) {
		for name, path := range map[string]string{"f32": "f32", "f16": "f16.safetensors", "bf16": "bf16.safetensors"} {
			for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
				want := make([]float64, len(ids)*gptVocabulary)
				testutil.Do(t, safetensors.Elements(reference.Find(name), 0, want))
				outIn := dt == tensor.Float32
				opts := []LoadOption{rename}
				if outIn {
					opts = append(opts, transposed)
				}
				store := cudaops.NewStore()
				for _, in := range [][]cudaops.Option{nil, {cudaops.In(store)}} {
					m := newGPT(t, dt, outIn)
					if in == nil {
						testutil.Get[Loaded](t)(LoadParameters("testdata/gpt2/"+path, m.parameters, opts...))
					} else {
						values := make([]cudaops.Learnable, len(m.parameters))
						for i, n := range m.parameters { // the graph's element type, but other values
							values[i] = cudaops.Learnable{Name: n.Name(), Value: tensor.New(tensor.Of(dt), tensor.WithShape(n.Shape()...))}
						}
						testutil.Do(t, store.SetParameters(values))
						testutil.Get[Loaded](t)(LoadStore("testdata/gpt2/"+path, store, opts...))
					}
					vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(m.g, append(in, on)...))
					largest, far := 0.0, 0.0
					for _, x := range want {
						largest = max(largest, math.Abs(x))
					}
					for i := range 2 {
						testutil.Do(t, G.Let(m.ids, tensor.New(tensor.WithBacking(slices.Clone(ids[i*gptTokens:][:gptTokens])))))
						testutil.Do(t, vm.RunAll())
						for k := range gptTokens * gptVocabulary {
							got := testutil.Get[any](t)(m.logits.Value().(*tensor.Dense).At(k/gptVocabulary, k%gptVocabulary))
							x, double := got.(float64)
							if !double {
								x = float64(got.(float32))
							}
							far = max(far, math.Abs(x-want[i*gptTokens*gptVocabulary+k]))
						}
					}
					if !(far <= 1e-5*largest) {
						t.Errorf("%s as %v, in a Store %v: the logits differ from PyTorch's by %g of the largest", name, dt, in != nil, far/largest)
					}
					testutil.Do(t, vm.Close())
				}
				testutil.Do(t, store.Close())
			}
		}
	})
}
