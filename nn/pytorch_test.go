package nn_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/checkpoint/safetensors"
	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// record is what testdata/make.py wrote.
type record struct {
	testing.TB
	*safetensors.File
}

func open(t testing.TB) record {
	f := testutil.Get[*safetensors.File](t)(safetensors.Open("testdata/modules.safetensors"))
	t.Cleanup(func() { f.Close() })
	return record{t, f}
}

// get returns a tensor of a record as float64.
func (r record) get(name string) *tensor.Dense {
	x := r.Find(name)
	if x == nil {
		r.Fatalf("there is no tensor %s", name)
	}
	shape := tensor.Shape{}
	for _, n := range x.Shape {
		shape = append(shape, int(n))
	}
	v := make([]float64, max(1, shape.TotalSize()))
	testutil.Do(r, safetensors.Elements(x, 0, v))
	if len(shape) == 0 {
		return tensor.New(tensor.FromScalar(v[0]))
	}
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(v))
}

// in returns a dense of float64 in an element type.
func in(dt tensor.Dtype, v *tensor.Dense) *tensor.Dense {
	if dt == tensor.Float64 {
		return v.Clone().(*tensor.Dense)
	}
	c := tensor.New(tensor.Of(dt), tensor.WithShape(v.Shape()...))
	for i, x := range v.Float64s() {
		c.Float32s()[i] = float32(x)
	}
	return c
}

// elements returns the elements of a value in double.
func elements(t testing.TB, v G.Value) []float64 {
	t.Helper()
	switch x := v.Data().(type) {
	case float64:
		return []float64{x}
	case float32:
		return []float64{float64(x)}
	case []float64:
		return x
	case []float32:
		var c []float64
		for _, e := range x {
			c = append(c, float64(e))
		}
		return c
	}
	t.Fatalf("got a value of %T", v.Data())
	return nil
}

// near fails unless a value is the recorded one, relative to the largest element and 1.
func (r record) near(name string, got G.Value, tolerance float64) {
	r.Helper()
	want, largest := r.get(name), 1.0
	if got == nil || got.Shape().TotalSize() != want.Shape().TotalSize() || !got.Shape().Eq(want.Shape()) {
		r.Fatalf("%s: got %v, want shape %v", name, got, want.Shape())
	}
	w := elements(r, want)
	for _, x := range w {
		largest = max(largest, math.Abs(x))
	}
	for i, x := range elements(r, got) {
		if !(math.Abs(x-w[i]) <= tolerance*largest) {
			r.Fatalf("%s: element %d is %v, want %v", name, i, x, w[i])
		}
	}
}

// modules are the cases of make.py in terms of layers.
var modules = map[string]nn.Layer{
	"linear":         func(s *nn.Scope, x *G.Node) *G.Node { return nn.Linear(s, x, 3) },
	"linear_no_bias": func(s *nn.Scope, x *G.Node) *G.Node { return nn.Linear(s, x, 3, nn.NoBias()) },
	"layer_norm":     func(s *nn.Scope, x *G.Node) *G.Node { return nn.LayerNorm(s, x) },
	"rms_norm":       func(s *nn.Scope, x *G.Node) *G.Node { return nn.RMSNorm(s, x) },
	"batch_norm_1d":  func(s *nn.Scope, x *G.Node) *G.Node { return nn.BatchNorm(s, x) },
	"batch_norm_2d": func(s *nn.Scope, x *G.Node) *G.Node {
		return nn.BatchNorm(s, x, nn.Momentum(0.3), nn.Epsilon(1e-3))
	},
	"conv1d": func(s *nn.Scope, x *G.Node) *G.Node { return nn.Conv1d(s, x, 4, 3, nn.Stride(2), nn.Padding(1)) },
	"conv2d": func(s *nn.Scope, x *G.Node) *G.Node { return nn.Conv2d(s, x, 4, 3, nn.Padding(1)) },
	"conv2d_stride": func(s *nn.Scope, x *G.Node) *G.Node {
		return nn.Conv2d(s, x, 3, 5, nn.Stride(2), nn.Padding(2), nn.NoBias(), nn.Groups(1))
	},
	"conv1d_dilation": func(s *nn.Scope, x *G.Node) *G.Node {
		return nn.Conv1d(s, x, 4, 3, nn.Stride(2), nn.Padding(2), nn.Dilation(2))
	},
	"conv2d_dilation": func(s *nn.Scope, x *G.Node) *G.Node { return nn.Conv2d(s, x, 3, 3, nn.Padding(1), nn.Dilation(2)) },
	"conv1d_groups": func(s *nn.Scope, x *G.Node) *G.Node {
		return nn.Conv1d(s, x, 4, 3, nn.Padding(1), nn.Groups(2), nn.NoBias())
	},
	"conv2d_groups": func(s *nn.Scope, x *G.Node) *G.Node {
		return nn.Conv2d(s, x, 6, 3, nn.Stride(2), nn.Padding(1), nn.Groups(2))
	},
	"conv2d_depthwise": func(s *nn.Scope, x *G.Node) *G.Node {
		return nn.Conv2d(s, x, 6, 3, nn.Stride(2), nn.Padding(2), nn.Dilation(3), nn.Groups(3))
	},
	"conv_transpose1d": func(s *nn.Scope, x *G.Node) *G.Node {
		return nn.ConvTranspose1d(s, x, 4, 4, nn.Stride(3), nn.Padding(1), nn.OutputPadding(2), nn.Dilation(2))
	},
	"conv_transpose2d": func(s *nn.Scope, x *G.Node) *G.Node {
		return nn.ConvTranspose2d(s, x, 6, 3, nn.Stride(2), nn.Padding(1), nn.OutputPadding(1), nn.Groups(2))
	},
	"conv_transpose2d_no_bias": func(s *nn.Scope, x *G.Node) *G.Node { return nn.ConvTranspose2d(s, x, 2, 2, nn.NoBias()) },
	"max_pool":                 func(s *nn.Scope, x *G.Node) *G.Node { return nn.MaxPool2d(s, x, 2) },
	"max_pool_3":               func(s *nn.Scope, x *G.Node) *G.Node { return nn.MaxPool2d(s, x, 3, nn.Stride(2), nn.Padding(1)) },
	"avg_pool":                 func(s *nn.Scope, x *G.Node) *G.Node { return nn.AvgPool2d(s, x, 2) },
	"avg_pool_3":               func(s *nn.Scope, x *G.Node) *G.Node { return nn.AvgPool2d(s, x, 3, nn.Stride(2), nn.Padding(1)) },
	"global_avg_pool":          nn.GlobalAvgPool,
	"relu":                     nn.ReLU,
	"gelu":                     nn.GELU,
	"gelu_tanh":                nn.GELUTanh,
	"silu":                     nn.SiLU,
	"tanh":                     nn.Tanh,
	"sigmoid":                  nn.Sigmoid,
	"flatten":                  nn.Flatten,
	"sequential": func(s *nn.Scope, x *G.Node) *G.Node {
		linear := func(out int) nn.Layer {
			return func(s *nn.Scope, x *G.Node) *G.Node { return nn.Linear(s, x, out) }
		}
		return nn.Sequential(s, x, linear(8), nn.GELU, func(s *nn.Scope, x *G.Node) *G.Node {
			return nn.Sequential(s, x, linear(4), nn.Tanh)
		})
	},
	"attention":        func(s *nn.Scope, x *G.Node) *G.Node { return nn.SelfAttention(s, x, 3) },
	"attention_causal": func(s *nn.Scope, x *G.Node) *G.Node { return nn.SelfAttention(s, x, 2, nn.Causal(), nn.NoBias()) },
	"rotary": func(s *nn.Scope, x *G.Node) *G.Node {
		q, k, v := nn.Split3(s, x)
		return nn.Attention(s, q, k, v, 2, nn.Causal(), nn.Rotary(10000))
	},
	"lstm":               func(s *nn.Scope, x *G.Node) *G.Node { return nn.LSTM(s, x, 5, nn.Layers(2)) },
	"lstm_no_bias":       func(s *nn.Scope, x *G.Node) *G.Node { return nn.LSTM(s, x, 4, nn.NoBias()) },
	"gru":                func(s *nn.Scope, x *G.Node) *G.Node { return nn.GRU(s, x, 5, nn.Layers(2)) },
	"lstm_bidirectional": func(s *nn.Scope, x *G.Node) *G.Node { return nn.LSTM(s, x, 4, nn.Layers(2), nn.Bidirectional()) },
	"lstm_dropout":       func(s *nn.Scope, x *G.Node) *G.Node { return nn.LSTM(s, x, 4, nn.Layers(3), nn.LayerDropout(1)) },
	"gru_bidirectional":  func(s *nn.Scope, x *G.Node) *G.Node { return nn.GRU(s, x, 4, nn.Bidirectional(), nn.NoBias()) },
	"group_norm":         func(s *nn.Scope, x *G.Node) *G.Node { return nn.GroupNorm(s, x, 2) },
	"instance_norm":      func(s *nn.Scope, x *G.Node) *G.Node { return nn.GroupNorm(s, x, 3, nn.Epsilon(1e-3)) },
	"max_pool_1d":        func(s *nn.Scope, x *G.Node) *G.Node { return nn.MaxPool1d(s, x, 3, nn.Stride(2), nn.Padding(1)) },
	"avg_pool_1d":        func(s *nn.Scope, x *G.Node) *G.Node { return nn.AvgPool1d(s, x, 2) },
	"leaky_relu":         func(s *nn.Scope, x *G.Node) *G.Node { return nn.LeakyReLU(s, x, 0.1) },
	"l1":                 func(s *nn.Scope, x *G.Node) *G.Node { return nn.L1(s, x, targets(s, x)) },
	"smooth_l1":          func(s *nn.Scope, x *G.Node) *G.Node { return nn.SmoothL1(s, x, targets(s, x)) },
	"encoder":            func(s *nn.Scope, x *G.Node) *G.Node { return encoder(s, x, 8, 2, 16) },
	"encoder_post": func(s *nn.Scope, x *G.Node) *G.Node {
		x = nn.LayerNorm(s.At("norm1"), s.Keep(ops.Map("a + b", x, nn.SelfAttention(s.At("self_attn"), x, 2))))
		y := nn.ReLU(s, nn.Linear(s.At("linear1"), x, 16))
		return nn.LayerNorm(s.At("norm2"), s.Keep(ops.Map("a + b", x, nn.Linear(s.At("linear2"), y, 8))))
	},
	"cross_entropy_rows": func(s *nn.Scope, x *G.Node) *G.Node { return nn.CrossEntropy(s, x, someIgnored(s), ops.PerRow()) },
	"cross_entropy_smoothing": func(s *nn.Scope, x *G.Node) *G.Node {
		return nn.CrossEntropy(s, x, someIgnored(s), ops.LabelSmoothing(0.2))
	},
	"attention_padded": func(s *nn.Scope, x *G.Node) *G.Node {
		return nn.SelfAttention(s, x, 3, nn.KeyCounts(integers(s, 4, 1, 5)))
	},
	"attention_padded_causal": func(s *nn.Scope, x *G.Node) *G.Node {
		return nn.SelfAttention(s, x, 2, nn.KeyCounts(integers(s, 3, 6)), nn.Causal())
	},
	"cross_entropy_weights": func(s *nn.Scope, x *G.Node) *G.Node {
		return nn.CrossEntropy(s, x, someIgnored(s), classWeights(s, x))
	},
	"cross_entropy_weights_rows": func(s *nn.Scope, x *G.Node) *G.Node {
		return nn.CrossEntropy(s, x, someIgnored(s), classWeights(s, x), ops.PerRow())
	},
	"cross_entropy_weights_smoothing": func(s *nn.Scope, x *G.Node) *G.Node {
		return nn.CrossEntropy(s, x, someIgnored(s), classWeights(s, x), ops.LabelSmoothing(0.2))
	},
	"cross_entropy": func(s *nn.Scope, x *G.Node) *G.Node {
		labels := tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]int{2, 0, 1, 1, 1, 2}))
		return nn.CrossEntropy(s, x, s.Keep(ops.Constant(s.Graph(), labels)))
	},
	"mse": func(s *nn.Scope, x *G.Node) *G.Node { return nn.MSE(s, x, targets(s, x)) },
	"bce": func(s *nn.Scope, x *G.Node) *G.Node { return nn.BCEWithLogits(s, x, targets(s, x)) },
}

// encoder is that of docs/from-pytorch.md.
func encoder(s *nn.Scope, x *G.Node, width, heads, hidden int) *G.Node {
	x = s.Keep(ops.Add(x, nn.SelfAttention(s.At("self_attn"), nn.LayerNorm(s.At("norm1"), x), heads)))
	y := nn.GELU(s, nn.Linear(s.At("linear1"), nn.LayerNorm(s.At("norm2"), x), hidden))
	return s.Keep(ops.Add(x, nn.Linear(s.At("linear2"), y, width)))
}

// someIgnored are labels of make.py, of which two are ignored.
func someIgnored(s *nn.Scope) *G.Node {
	return s.Keep(ops.Constant(s.Graph(), tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]int{2, -100, 1, -100, 1, 0}))))
}

// integers is a constant vector.
func integers(s *nn.Scope, list ...int) *G.Node {
	return s.Keep(ops.Constant(s.Graph(), tensor.New(tensor.WithBacking(list))))
}

// classWeights are those of make.py, in the element type of x.
func classWeights(s *nn.Scope, x *G.Node) ops.CrossEntropyOption {
	return ops.ClassWeights(s.Keep(ops.Constant(s.Graph(), in(x.Dtype(), tensor.New(tensor.WithBacking([]float64{0.5, 2, 0}))))))
}

// targets are those of make.py, in the element type of x.
func targets(s *nn.Scope, x *G.Node) *G.Node {
	v := tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float64{0, 1, 0.25, 1, 0, 0.5}))
	return s.Keep(ops.Constant(s.Graph(), in(x.Dtype(), v)))
}

// Each layer has the parameters, values, gradients and running statistics of PyTorch's module.
func TestPyTorch(t *testing.T) {
	const tolerance = 1e-5
	r := open(t)
	for name, layer := range modules {
		for _, dt := range []tensor.Dtype{tensor.Float64, tensor.Float32} {
			t.Run(name+"/"+dt.String(), func(t *testing.T) {
				r := record{t, r.File}
				store := cudaops.NewStore()
				defer store.Close()
				var list []cudaops.Learnable
				for _, x := range r.Tensors {
					if p, ok := strings.CutPrefix(x.Name, name+"/"); ok && p[0] != '.' && !strings.HasSuffix(p, "num_batches_tracked") {
						list = append(list, cudaops.Learnable{Name: "m." + p, Value: in(dt, r.get(x.Name))})
					}
				}
				testutil.Do(t, store.SetParameters(list))
				x := r.get(name + "/.x")
				build := func(opts ...nn.Option) (s *nn.Scope, input, y *G.Node) {
					s = nn.New(G.NewGraph(), append(opts, nn.In(store), nn.Dtype(dt))...)
					input = s.Input("input", dt, x.Shape()...)
					return s, input, layer(s.At("m"), input)
				}
				for i, opts := range [][]nn.Option{{nn.Evaluation()}, nil} { // EvalMode does the same
					s, input, y := build(opts...)
					vm := testutil.Get[*cudaops.VM](t)(s.NewVM(cudaops.OnAny(), cudaops.Strict(), cudaops.EvalMode(), cudaops.Keep(y)))
					if results := vm.Results(); i == 0 && len(results) > 1 {
						t.Errorf("a run has the results %v, want that of the layer alone: nothing reads some nodes of the graph", results)
					}
					testutil.Do(t, G.Let(input, in(dt, x)))
					testutil.Do(t, vm.RunAll())
					r.near(name+"/.evaluated", y.Value(), tolerance)
					testutil.Do(t, vm.Close())
				}
				s, input, y := build()
				g := s.Keep(ops.Constant(s.Graph(), in(dt, r.get(name+"/.g"))))
				loss := s.Keep(ops.Sum(s.Keep(ops.Map("a*b", y, g))))
				learnables := append(s.Parameters(), input)
				testutil.Do(t, s.Err())
				testutil.Get[G.Nodes](t)(G.Grad(loss, learnables...))
				vm := testutil.Get[*cudaops.VM](t)(s.NewVM(cudaops.OnAny(), cudaops.Keep(y)))
				defer vm.Close()
				testutil.Do(t, G.Let(input, in(dt, x)))
				testutil.Do(t, vm.RunAll())
				r.near(name+"/.y", y.Value(), tolerance)
				for _, p := range learnables {
					n := name + "/.dx"
					if p != input {
						n = name + "/.d/" + strings.TrimPrefix(p.Name(), "m.")
					}
					r.near(n, testutil.Get[G.Value](t)(p.Grad()), tolerance)
				}
				after := testutil.Get[[]cudaops.Learnable](t)(store.Parameters())
				if len(after) != len(list) {
					t.Errorf("the layer has %d parameters, want the %d of PyTorch's module", len(after), len(list))
				}
				for _, p := range after {
					if n := name + "/.next/" + strings.TrimPrefix(p.Name, "m."); r.Find(n) != nil {
						r.near(n, p.Value, tolerance)
					}
				}
			})
		}
	}
	for _, x := range r.Tensors {
		if name, _, _ := strings.Cut(x.Name, "/"); modules[name] == nil && name != "embedding" {
			t.Errorf("no layer is compared with module %s", name)
		}
	}
}

// An Embedding, whose ids have no gradient.
func TestEmbedding(t *testing.T) {
	r := open(t)
	s := nn.New(G.NewGraph())
	ids := s.Keep(ops.Constant(s.Graph(), tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]int32{1, 4, 1, 0, 2, 4}))))
	y := nn.Embedding(s, ids, 5, 4)
	testutil.Do(t, s.Err())
	testutil.Do(t, G.Let(s.Parameters()[0], in(tensor.Float32, r.get("embedding/weight"))))
	vm := testutil.Get[*cudaops.VM](t)(s.NewVM(cudaops.OnAny(), cudaops.Keep(y)))
	defer vm.Close()
	testutil.Do(t, vm.RunAll())
	r.near("embedding/.y", y.Value(), 0)
}

// Initial values are drawn from PyTorch's distributions: each has the extent or the deviation of its module's.
func TestInitial(t *testing.T) {
	seed := testutil.Seed(t)
	s := nn.New(G.NewGraph(), nn.Seed(seed), nn.Dtype(tensor.Float64))
	x := s.Input("x", tensor.Float64, 2, 100, 64)
	ids := s.Input("ids", tensor.Int, 3)
	image := s.Input("image", tensor.Float64, 2, 16, 9, 9)
	nn.Linear(s.At("linear"), x, 300)
	nn.Conv2d(s.At("conv"), image, 64, 3)
	nn.Conv1d(s.At("conv1d"), x, 64, 3)
	nn.ConvTranspose2d(s.At("transpose"), image, 48, 3, nn.Groups(2))
	nn.Embedding(s.At("embedding"), ids, 100, 200)
	nn.LayerNorm(s.At("norm"), x)
	nn.BatchNorm(s.At("bn"), x)
	nn.SelfAttention(s.At("attention"), x, 4)
	nn.LSTM(s.At("lstm"), nn.Linear(s.At("in"), s.Input("sequence", tensor.Float64, 1, 2, 9), 25), 50)
	testutil.Do(t, s.Err())
	want := map[string]float64{ // the bound of a uniform distribution; below 0 the deviation of a normal one
		"linear.weight": 1. / 8, "linear.bias": 1. / 8, "conv.weight": 1. / 12, "conv.bias": 1. / 12, "conv1d.weight": 1 / math.Sqrt(300),
		"transpose.weight": 1 / math.Sqrt(24*9), "transpose.bias": 1 / math.Sqrt(24*9),
		"embedding.weight": -1, "attention.in_proj_weight": math.Sqrt(6. / 256), "attention.out_proj.weight": 1. / 8,
		"lstm.weight_ih_l0": 1 / math.Sqrt(50), "lstm.weight_hh_l0": 1 / math.Sqrt(50), "lstm.bias_ih_l0": 1 / math.Sqrt(50), "lstm.bias_hh_l0": 1 / math.Sqrt(50),
	}
	constant := map[string]float64{"norm.weight": 1, "norm.bias": 0, "bn.weight": 1, "bn.bias": 0, "attention.in_proj_bias": 0, "attention.out_proj.bias": 0}
	for _, p := range s.Parameters() {
		largest, sum, squares := 0.0, 0.0, 0.0
		v := elements(t, p.Value())
		for _, e := range v {
			largest, sum, squares = max(largest, math.Abs(e)), sum+e, squares+e*e
		}
		n := float64(len(v))
		mean, deviation := sum/n, math.Sqrt(squares/n)
		if c, ok := constant[p.Name()]; ok {
			if mean != c || largest != c {
				t.Errorf("%s: got mean %v, want %v for each element", p.Name(), mean, c)
			}
			continue
		}
		bound, ok := want[p.Name()]
		spread := math.Abs(bound)
		if bound > 0 {
			spread = bound / math.Sqrt(3)
			if largest > bound || ok && largest < bound*(1-20/n) {
				t.Errorf("seed %d: %s reaches %v, want %v", seed, p.Name(), largest, bound)
			}
		}
		if ok && (math.Abs(mean) > 6*spread/math.Sqrt(n) || math.Abs(deviation/spread-1) > 6/math.Sqrt(n)) {
			t.Errorf("seed %d: %s has mean %v and deviation %v, want 0 and %v", seed, p.Name(), mean, deviation, spread)
		}
		delete(want, p.Name())
	}
	if len(want) > 0 {
		t.Errorf("no parameters %v", want)
	}
}
