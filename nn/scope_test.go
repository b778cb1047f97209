package nn_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Wrong inputs are errors that name the path, the input and the accepted inputs. No layer panics, nor do those that follow.
func TestErrors(t *testing.T) {
	stored := cudaops.NewStore()
	defer stored.Close()
	testutil.Do(t, stored.SetParameters([]cudaops.Learnable{{Name: "fc.weight", Value: tensor.New(tensor.WithShape(3, 4), tensor.WithBacking(make([]float32, 12)))}}))
	closed := cudaops.NewStore()
	testutil.Do(t, closed.Close())
	for want, build := range map[string]func(s *nn.Scope, x, image *G.Node) *G.Node{
		"nn: fc: ops: Linear: got x of shape (5, 4)": func(s *nn.Scope, x, _ *G.Node) *G.Node {
			return s.At("fc").Keep(ops.Linear(x, s.Parameter("w", nn.Constant(0), 3, 7), nil))
		},
		"nn: h.1.fc: Linear got a nil node, want (..., in)": func(s *nn.Scope, _, _ *G.Node) *G.Node { return nn.Linear(s.At("h", 1, "fc"), nil, 3) },
		"nn: fc: fc.weight: got shape (0, 4), want extents above 0": func(s *nn.Scope, x, _ *G.Node) *G.Node {
			return nn.Linear(s.At("fc"), x, 0)
		},
		"nn: fc: fc.weight: got shape (4611686018427387904, 4), want extents above 0 and at most 1099511627776 elements": func(s *nn.Scope, x, _ *G.Node) *G.Node {
			return nn.Linear(s.At("fc"), x, 1<<62)
		},
		"nn: e: e.weight: got 4398046511104 bytes (4096.0 GiB) of host memory": func(s *nn.Scope, _, _ *G.Node) *G.Node {
			return nn.Embedding(s.At("e"), s.Input("ids", tensor.Int, 2), 1<<38, 4)
		},
		"nn: AvgPool2d: got 4398046511104 bytes (4096.0 GiB) of host memory": func(s *nn.Scope, _, _ *G.Node) *G.Node {
			return nn.AvgPool2d(s, s.Input("images", tensor.Float32, 1<<20, 1<<20, 1, 1), 1)
		},
		"nn: Grad: fc.weight has a gradient already, want one Grad of a sum of losses": func(s *nn.Scope, x, _ *G.Node) *G.Node {
			y := nn.Linear(s.At("fc"), x, 4)
			if err := s.Grad(nn.MSE(s, y, x)); err != nil {
				t.Error(err)
			}
			_ = s.Grad(nn.L1(s, y, x))
			return y
		},
		"nn: fc: fc.weight is there already: want another path, or Tied": func(s *nn.Scope, x, _ *G.Node) *G.Node {
			return nn.Linear(s.At("fc"), nn.Linear(s.At("fc"), x, 4), 4)
		},
		"nn: fc: parameter fc.weight is tied: got shape (3, 4), want (4, 4)": func(s *nn.Scope, x, _ *G.Node) *G.Node {
			return nn.Linear(s.At("fc").Tied(), nn.Linear(s.At("fc"), x, 4), 3)
		},
		"nn: fc: parameter fc.weight is tied, and there is none": func(s *nn.Scope, x, _ *G.Node) *G.Node { return nn.Linear(s.At("fc").Tied(), x, 4) },
		"nn: in: parameter in.weight is tied, and there is none": func(s *nn.Scope, x, _ *G.Node) *G.Node {
			s.Input("in.weight", tensor.Float32, 4, 4)
			return nn.Linear(s.At("in").Tied(), x, 4)
		},
		"nn: fc: Linear got the option Stride, want one of NoBias": func(s *nn.Scope, x, _ *G.Node) *G.Node { return nn.Linear(s.At("fc"), x, 4, nn.Stride(2)) },
		"got float32 of shape (1099511627776, 256), want at most": func(s *nn.Scope, _, _ *G.Node) *G.Node {
			return nn.Linear(s, s.Input("huge", tensor.Float32, 1<<40, 1), 256)
		},
		"nn: c: Conv2d got shape (5, 4), want (batch, channels, height, width)":  func(s *nn.Scope, x, _ *G.Node) *G.Node { return nn.Conv2d(s.At("c"), x, 4, 3) },
		"nn: c: Conv2d got 3 channels for 3 in 0 groups and windows of 3, want":  func(s *nn.Scope, _, image *G.Node) *G.Node { return nn.Conv2d(s.At("c"), image, 3, 3, nn.Groups(0)) },
		"nn: c: Conv2d got 3 channels for 4 in 3 groups and windows of 3, want":  func(s *nn.Scope, _, image *G.Node) *G.Node { return nn.Conv2d(s.At("c"), image, 4, 3, nn.Groups(3)) },
		"rows: got a filter over 7 elements of 6 with the padding, want at most": func(s *nn.Scope, _, image *G.Node) *G.Node { return nn.Conv2d(s.At("c"), image, 4, 3, nn.Dilation(3)) },
		"nn: n: GroupNorm got 2 groups of 3 channels, want a divisor":            func(s *nn.Scope, _, image *G.Node) *G.Node { return nn.GroupNorm(s.At("n"), image, 2) },
		"GroupNorm got epsilon -1":                                   func(s *nn.Scope, _, image *G.Node) *G.Node { return nn.GroupNorm(s, image, 3, nn.Epsilon(-1)) },
		"MaxPool1d got shape (5, 4), want (batch, channels, length)": func(s *nn.Scope, x, _ *G.Node) *G.Node { return nn.MaxPool1d(s, x, 2) },
		"LSTM got LayerDropout(2), want 0 to 1": func(s *nn.Scope, _, image *G.Node) *G.Node {
			return nn.LSTM(s, row(s, image), 3, nn.LayerDropout(2))
		},
		"SelfAttention got Rotary(0), want a finite base above 0": func(s *nn.Scope, _, image *G.Node) *G.Node {
			return nn.SelfAttention(s, row(s, image), 1, nn.Rotary(0))
		},
		"LSTM got Carry and Bidirectional, want one of them": func(s *nn.Scope, _, image *G.Node) *G.Node {
			return nn.LSTM(s, row(s, image), 3, nn.Carry(), nn.Bidirectional())
		},
		"nn: c: ops: Conv2d: ops: Conv[9x9 stride 1,1 padding 0,0,0,0 dilation": func(s *nn.Scope, _, image *G.Node) *G.Node { return nn.Conv2d(s.At("c"), image, 3, 9) },
		"nn: c: Conv1d got shape (5, 4), want (batch, channels, length)":        func(s *nn.Scope, x, _ *G.Node) *G.Node { return nn.Conv1d(s.At("c"), x, 3, 9) },
		"nn: c: Conv2d got the option OutputPadding, want one of Dilation": func(s *nn.Scope, _, image *G.Node) *G.Node {
			return nn.Conv2d(s.At("c"), image, 3, 3, nn.OutputPadding(1))
		},
		"ConvTranspose2d: got output padding 1 at stride 1": func(s *nn.Scope, _, image *G.Node) *G.Node {
			return nn.ConvTranspose2d(s, image, 3, 3, nn.OutputPadding(1))
		},
		"ConvTranspose1d got shape (5, 4), want (batch, channels, length)": func(s *nn.Scope, x, _ *G.Node) *G.Node { return nn.ConvTranspose1d(s, x, 3, 3) },
		"MaxPool2d got windows of [2 2], stride 0":                         func(s *nn.Scope, _, image *G.Node) *G.Node { return nn.MaxPool2d(s, image, 2, nn.Stride(0)) },
		"AvgPool2d got padding 2 for windows of 3, want at most half":      func(s *nn.Scope, _, image *G.Node) *G.Node { return nn.AvgPool2d(s, image, 3, nn.Padding(2)) },
		"GlobalAvgPool got shape (5, 4), want (batch, channels, ...)":      func(s *nn.Scope, x, _ *G.Node) *G.Node { return nn.GlobalAvgPool(s, x) },
		"nn: n: ops: LayerNorm: got epsilon -1":                            func(s *nn.Scope, x, _ *G.Node) *G.Node { return nn.LayerNorm(s.At("n"), x, nn.Epsilon(-1)) },
		"nn: n: ops: BatchNorm: got momentum 2":                            func(s *nn.Scope, x, _ *G.Node) *G.Node { return nn.BatchNorm(s.At("n"), x, nn.Momentum(2)) },
		"nn: drop: ops: Dropout: got probability 2":                        func(s *nn.Scope, x, _ *G.Node) *G.Node { return nn.Dropout(s.At("drop"), x, 2) },
		"nn: ops: Embedding":                                               func(s *nn.Scope, x, _ *G.Node) *G.Node { return nn.Embedding(s, x, 3, 4) },
		"Positions got 3 positions, want at least the 6":                   func(s *nn.Scope, _, image *G.Node) *G.Node { return nn.Positions(s, row(s, image), 3) },
		"nn: a: SelfAttention got 3 heads of width 7, want a divisor": func(s *nn.Scope, _, image *G.Node) *G.Node {
			return nn.SelfAttention(s.At("a"), row(s, image), 3)
		},
		"nn: a: SelfAttention got KeyCounts of float32 and shape (5), want integers of shape": func(s *nn.Scope, x, image *G.Node) *G.Node {
			return nn.SelfAttention(s.At("a"), row(s, image), 7, nn.KeyCounts(s.Keep(ops.Sum(x, 1))))
		},
		"SelfAttention got a nil node, want integers of shape (batch) for KeyCounts": func(s *nn.Scope, _, image *G.Node) *G.Node {
			return nn.SelfAttention(s, row(s, image), 7, nn.KeyCounts(nil))
		},
		"nn: a: SelfAttention got KeyHeads(2) for 7 heads, want a divisor": func(s *nn.Scope, _, image *G.Node) *G.Node {
			return nn.SelfAttention(s.At("a"), row(s, image), 7, nn.KeyHeads(2))
		},
		"and width 1 of keys": func(s *nn.Scope, _, image *G.Node) *G.Node {
			return nn.Attention(s, row(s, image), row(s, image), row(s, image), 7, nn.KeyHeads(1))
		},
		"as many keys as times under Causal": func(s *nn.Scope, _, image *G.Node) *G.Node {
			k := s.Keep(ops.Slice(row(s, image), nil, G.S(0, 2)))
			return nn.Attention(s, row(s, image), k, k, 1, nn.Causal())
		},
		"nn: lstm: LSTM got hidden 0 and 1 layers":        func(s *nn.Scope, _, image *G.Node) *G.Node { return nn.LSTM(s.At("lstm"), row(s, image), 0) },
		"GRU got shape (5, 4), want (batch, time, width)": func(s *nn.Scope, x, _ *G.Node) *G.Node { return nn.GRU(s, x, 3) },
		"MSE got shapes (5, 4) and (5), want one shape": func(s *nn.Scope, x, _ *G.Node) *G.Node {
			return nn.MSE(s, x, s.Keep(ops.Sum(x, 1)))
		},
		"CrossEntropy got logits of shape (5, 4) and labels of shape (5, 4)": func(s *nn.Scope, x, _ *G.Node) *G.Node { return nn.CrossEntropy(s, x, x) },
		"Sequential got a nil layer 1":                                       func(s *nn.Scope, x, _ *G.Node) *G.Node { return nn.Sequential(s, x, nn.ReLU, nil) },
		"Residual got a nil layer":                                           func(s *nn.Scope, x, _ *G.Node) *G.Node { return nn.Residual(s, x, nil) },
		"parameter a: got a nil Init":                                        func(s *nn.Scope, _, _ *G.Node) *G.Node { return s.Parameter("a", nil, 3) },
		"nn: a..b: At got an empty name":                                     func(s *nn.Scope, x, _ *G.Node) *G.Node { return nn.Linear(s.At("a", "", "b"), x, 3) },
		"Next got ":                                                          func(s *nn.Scope, x, _ *G.Node) *G.Node { s.Next(x, x); return x },
		"Next got n twice": func(s *nn.Scope, x, _ *G.Node) *G.Node {
			b := s.Buffer("n", nn.Constant(0), 3)
			s.Next(b, b)
			s.Next(b, b)
			return b
		},
		"ReLU got a nil node":       func(s *nn.Scope, _, _ *G.Node) *G.Node { return nn.ReLU(s, nil) },
		"Dropout got a nil node":    func(s *nn.Scope, _, _ *G.Node) *G.Node { return nn.Dropout(s, nil, 0.5) },
		"Sequential got a nil node": func(s *nn.Scope, _, _ *G.Node) *G.Node { return nn.Sequential(s, nil) },
	} {
		s := nn.New(G.NewGraph())
		x, image := s.Input("x", tensor.Float32, 5, 4), s.Input("image", tensor.Float32, 2, 3, 6, 7)
		y := build(s, x, image)
		if err := s.Err(); err == nil || !strings.Contains(err.Error(), want) || strings.HasPrefix(want, "nn: ") && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got the error %v, want %q", err, want)
		}
		after(t, s, x, image, y)
		after(t, s, nil, nil, nil)
		if s.Grad(y) != s.Err() || len(s.Options()) > 0 {
			t.Errorf("%s: Grad returns another error, or there are options", want)
		}
		if vm, err := s.NewVM(); vm != nil || err != s.Err() {
			t.Errorf("%s: NewVM returns %v", want, err)
		}
	}
	for want, s := range map[string]*nn.Scope{
		"nn: got a Scope that New did not make": {},
		"got a Scope":                           nil,
		"nn: New got a nil graph":               nn.New(nil),
		"New got a nil option":                  nn.New(G.NewGraph(), nil),
		"New got the element type int":          nn.New(G.NewGraph(), nn.Dtype(tensor.Int)),
		"New got Cached(-1), want 1 to":         nn.New(G.NewGraph(), nn.Cached(-1)),
		"New got Cached(0)":                     nn.New(G.NewGraph(), nn.Cached(0)),
		"New got Cached(1099511627776)":         nn.New(G.NewGraph(), nn.Cached(1<<40)),
		"nn: In got a nil Store":                nn.New(G.NewGraph(), nn.In(nil)),
		"the Store is closed":                   nn.New(G.NewGraph(), nn.In(closed)),
	} {
		if err := s.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got the error %v, want %q", err, want)
		}
		after(t, s, nil, nil, nil)
	}
	s := nn.New(G.NewGraph(), nn.In(stored))
	nn.Linear(s.At("fc"), s.Input("x", tensor.Float32, 5, 3), 4)
	if err, want := s.Err(), "nn: fc: parameter fc.weight: got float32 of shape (4, 3), want float32 of shape (3, 4) as in the Store"; err == nil || err.Error() != want {
		t.Errorf("got the error %v, want %s", err, want)
	}
	s = nn.New(G.NewGraph(), nn.In(stored))
	if s.Input("fc.weight", tensor.Float32, 3, 4); s.Err() == nil {
		t.Error("an input has the name of a parameter, and there is no error")
	}
	s = nn.New(G.NewGraph())
	right := s.Keep(ops.Sum(s.Keep(ops.ArgMax(nn.Linear(s.At("fc"), s.Input("x", tensor.Float32, 5, 3), 4), -1))))
	if err := s.Grad(right); err == nil || !strings.Contains(err.Error(), "got a loss of int64") {
		t.Errorf("Grad of an integer: got error %v", err)
	}
}

// A graph that evaluates, and any under Loaded, finds its parameters in the Store: names that do not fit are errors, not initial values.
func TestLoaded(t *testing.T) {
	model := func(s *nn.Scope) *nn.Scope {
		x := nn.BatchNorm(s.At("norm"), nn.Linear(s.At("fc"), s.Input("x", tensor.Float32, 5, 4), 3))
		s.Keep(ops.Mean(x))
		return s
	}
	names := []string{"fc.bias", "fc.weight", "norm.bias", "norm.running_mean", "norm.running_var", "norm.weight"}
	evaluation, loaded := nn.Evaluation(), nn.Loaded()
	for _, c := range []struct {
		prefix  string
		skip    string
		add     string
		opt     nn.Option
		message string // "" if the graph has a VM
	}{
		{opt: evaluation}, {opt: loaded}, {opt: nn.Seed(1)},
		{prefix: "module.", opt: nn.Seed(1)}, // a training may begin with some
		{prefix: "module.", opt: evaluation, message: "nn: fc: parameter fc.weight: got a Store without it, which has module.fc.bias, module.fc.weight, module.norm.bias and 3 others, want it there"},
		{prefix: "module.", opt: loaded, message: "nn: fc: parameter fc.weight: got a Store without it"},
		{skip: "norm.running_var", opt: evaluation, message: "nn: norm: parameter norm.running_var: got a Store without it, which has no other, want it there"},
		{skip: "norm.running_var", opt: loaded, message: "nn: norm: parameter norm.running_var: got a Store without it"},
		{skip: "norm.running_var", opt: nn.Seed(1)},
		{add: "norm.num_batches_tracked", opt: evaluation}, {add: "norm.num_batches_tracked", opt: nn.Seed(1)},
		{add: "norm.num_batches_tracked", opt: loaded, message: "nn: Loaded got a Store with norm.num_batches_tracked, which no layer has, want the parameters of the model alone"},
	} {
		store, list := cudaops.NewStore(), []cudaops.Learnable{}
		for _, name := range append(slices.Clone(names), c.add) {
			v := tensor.New(tensor.WithShape(3), tensor.WithBacking([]float32{1, 2, 3}))
			if name == "fc.weight" {
				v = tensor.New(tensor.WithShape(3, 4), tensor.WithBacking(make([]float32, 12)))
			}
			if name != "" && name != c.skip {
				list = append(list, cudaops.Learnable{Name: c.prefix + name, Value: v})
			}
		}
		testutil.Do(t, store.SetParameters(list))
		s := model(nn.New(G.NewGraph(), nn.In(store), c.opt))
		vm, err := s.NewVM(cudaops.OnHost())
		if c.message == "" {
			testutil.Do(t, err)
			testutil.Do(t, vm.Close())
		} else if err == nil || !strings.HasPrefix(err.Error(), c.message) {
			t.Errorf("%+v: got the error %v, want %s", c, err, c.message)
		}
		testutil.Do(t, store.Close())
	}
	empty := cudaops.NewStore()
	defer empty.Close()
	testutil.Do(t, model(nn.New(G.NewGraph(), nn.In(empty), evaluation)).Err()) // a graph that evaluates may be the first one
	for want, s := range map[string]*nn.Scope{
		"nn: fc: parameter fc.weight: got a Store without it, which has no other": nn.New(G.NewGraph(), nn.In(empty), loaded),
		"nn: New got Loaded without a Store, want In":                             nn.New(G.NewGraph(), loaded),
	} {
		if err := model(s).Err(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got the error %v, want %s", err, want)
		}
	}
}

// row returns an image of 3 channels as sequences of (batch, time, width).
func row(s *nn.Scope, image *G.Node) *G.Node { return s.Keep(ops.Mean(image, 1)) }

// after calls all layers in a scope with an error: none panics, and all return nil.
func after(t *testing.T, s *nn.Scope, x, image, y *G.Node) {
	t.Helper()
	a, b, c := nn.Split3(s, y)
	for i, n := range append([]*G.Node{a, b, c}, nn.Linear(s.At("after"), x, 3), nn.Conv2d(s, image, 3, 3), nn.Conv1d(s, x, 3, 3), nn.ConvTranspose1d(s, x, 3, 3), nn.ConvTranspose2d(s, image, 3, 3), nn.MaxPool2d(s, image, 2), nn.AvgPool2d(s, image, 2),
		nn.GlobalAvgPool(s, image), nn.MaxPool1d(s, x, 2), nn.AvgPool1d(s, x, 2), nn.GroupNorm(s, x, 1), nn.LeakyReLU(s, x, 0.1), nn.L1(s, x, y), nn.SmoothL1(s, x, y), nn.LayerNorm(s, x), nn.RMSNorm(s, x), nn.BatchNorm(s, x), nn.ReLU(s, x), nn.GELU(s, x), nn.GELUTanh(s, x), nn.SiLU(s, x), nn.Tanh(s, x),
		nn.Sigmoid(s, x), nn.Dropout(s, x, 0.5), nn.Flatten(s, x), nn.Residual(s, x, nn.ReLU), nn.Sequential(s, x, nn.ReLU), nn.Embedding(s, x, 3, 4), nn.Positions(s, x, 9),
		nn.SelfAttention(s, x, 2, nn.Causal(), nn.Rotary(100)), nn.Attention(s, x, x, x, 2), nn.LSTM(s, x, 3), nn.GRU(s, x, 3, nn.Carry()), nn.CrossEntropy(s, x, y), nn.MSE(s, x, y), nn.BCEWithLogits(s, y, x),
		s.Parameter("p", nn.Normal(1), 3), s.Buffer("q", nn.Normal(1), 3), s.Cache("r", tensor.Int, 3), s.Input("i", tensor.Int, 3), s.Keep(x, nil), s.Tied().Keep(x, nil)) {
		if n != nil {
			t.Errorf("layer %d after an error returns %v", i, n)
		}
	}
	s.Next(x, y)
	s.Position()
	if s.Err() == nil || s.Grad(nil) != s.Err() || s.Reset() != s.Err() {
		t.Error("the error is gone")
	}
}

// The option OverRanks reduces the moments of a BatchNorm over ranks; without it, and in evaluation, there is nothing to reduce.
func TestOverRanks(t *testing.T) {
	reduces := func(options []nn.Option, opts ...nn.LayerOption) (n int) {
		g := G.NewGraph()
		s := nn.New(g, options...).At("bn")
		nn.BatchNorm(s, s.Input("x", tensor.Float32, 4, 3), opts...)
		testutil.Do(t, s.Err())
		for _, node := range g.AllNodes() {
			if node.Op() != nil && strings.Contains(fmt.Sprint(node.Op()), "AllReduce") {
				n++
			}
		}
		return n
	}
	var training []nn.Option
	if reduces(training, nn.OverRanks()) == 0 {
		t.Error("with OverRanks no moment is reduced over ranks")
	}
	if n := reduces(training) + reduces([]nn.Option{nn.Evaluation()}, nn.OverRanks()); n != 0 {
		t.Errorf("%d values are reduced over ranks without OverRanks or in evaluation, want none", n)
	}
}

// Initial values follow from seed and path: neither the order of layers nor other layers change them.
func TestOrder(t *testing.T) {
	of := func(seed uint64, paths ...string) map[string][]float64 {
		s := nn.New(G.NewGraph(), nn.Seed(seed))
		x := s.Input("x", tensor.Float32, 2, 6)
		for _, p := range paths {
			nn.Linear(s.At(p), x, 5)
		}
		testutil.Do(t, s.Err())
		all := map[string][]float64{}
		for _, p := range s.Parameters() {
			all[p.Name()] = elements(t, p.Value())
		}
		return all
	}
	one, other, seeded := of(1, "a", "b"), of(1, "c", "b", "a"), of(2, "a", "b")
	for name, v := range one {
		if !slices.Equal(v, other[name]) || slices.Equal(v, seeded[name]) {
			t.Errorf("%s: got %v in one order, %v in another, %v of another seed", name, v[:2], other[name][:2], seeded[name][:2])
		}
	}
	if slices.Equal(one["a.weight"], one["b.weight"]) {
		t.Error("two layers have the same values")
	}
}

// convnet has dropout and running statistics.
func convnet(s *nn.Scope, x *G.Node) *G.Node {
	for i := range 2 {
		x = nn.ReLU(s, nn.BatchNorm(s.At("bn", i), nn.Conv2d(s.At("conv", i), x, 4, 3, nn.Padding(1))))
	}
	x = nn.Flatten(s, nn.MaxPool2d(s, x, 2))
	x = nn.BatchNorm(s.At("norm"), nn.Linear(s.At("fc"), x, 8))
	return nn.Linear(s.At("head"), nn.Dropout(s, x, 0.5), 3)
}

// Graphs of one function share a Store: one trains, and those of other batch sizes evaluate alike, rows alone too, in both ways to evaluate. A graph that finds its
// parameters in the Store makes no values.
func TestGraphs(t *testing.T) {
	store := cudaops.NewStore()
	defer store.Close()
	r := rand.New(rand.NewPCG(1, 2))
	images := func(n int) *tensor.Dense {
		v := tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(n, 1, 6, 6))
		for i := range v.Float64s() {
			v.Float64s()[i] = r.NormFloat64()
		}
		return v
	}
	s := nn.New(G.NewGraph(), nn.In(store), nn.Dtype(tensor.Float64))
	x, labels := s.Input("x", tensor.Float64, 8, 1, 6, 6), s.Input("labels", tensor.Int, 8)
	loss := nn.CrossEntropy(s, convnet(s, x), labels)
	testutil.Do(t, s.Grad(loss))
	if n := len(s.Parameters()); n != 14 {
		t.Errorf("got %d parameters, want 14", n)
	}
	training := testutil.Get[*cudaops.VM](t)(s.NewVM(cudaops.OnAny(), cudaops.Train(G.NewAdamSolver(), s.Parameters()...)))
	defer training.Close()
	all := images(8)
	type evaluation struct {
		x, y *G.Node
		vm   *cudaops.VM
	}
	evaluate := func(rows int, opts ...nn.Option) evaluation {
		s := nn.New(G.NewGraph(), append(opts, nn.In(store), nn.Dtype(tensor.Float64))...)
		x := s.Input("x", tensor.Float64, rows, 1, 6, 6)
		e := evaluation{x: x, y: convnet(s, x)}
		for _, p := range s.Parameters() {
			if p.Value() != nil {
				t.Fatalf("%s has a value, which the Store has too", p.Name())
			}
		}
		e.vm = testutil.Get[*cudaops.VM](t)(s.NewVM(cudaops.OnAny(), cudaops.Keep(e.y), cudaops.EvalMode()))
		return e
	}
	evaluations := []evaluation{evaluate(8), evaluate(8, nn.Evaluation()), evaluate(1, nn.Evaluation())}
	run := func(e evaluation, v *tensor.Dense) []float64 {
		testutil.Do(t, G.Let(e.x, v))
		testutil.Do(t, e.vm.RunAll())
		return elements(t, e.y.Value())
	}
	var before []float64
	for range 3 {
		testutil.Do(t, G.Let(x, all))
		testutil.Do(t, G.Let(labels, tensor.New(tensor.WithBacking([]int{0, 1, 2, 0, 1, 2, 0, 1}))))
		testutil.Do(t, training.RunAll())
		want := run(evaluations[0], all)
		if slices.Equal(want, before) {
			t.Error("the evaluation does not see the training")
		}
		if got := run(evaluations[1], all); !slices.Equal(got, want) {
			t.Errorf("got %v in a graph of Evaluation, want %v as under EvalMode", got, want)
		}
		for i := range 8 {
			one := tensor.New(tensor.WithShape(1, 1, 6, 6), tensor.WithBacking(all.Float64s()[36*i:][:36]))
			for k, got := range run(evaluations[2], one) {
				if math.Abs(got-want[3*i+k]) > 1e-12 {
					t.Fatalf("row %d alone: logit %d is %v, want %v", i, k, got, want[3*i+k])
				}
			}
		}
		before = want
	}
	for _, e := range evaluations {
		testutil.Do(t, e.vm.Close())
	}
}

// Tied layers share parameters, whose gradients add up.
func TestTied(t *testing.T) {
	s := nn.New(G.NewGraph(), nn.Dtype(tensor.Float64), nn.Initial(func(name string, shape tensor.Shape) nn.Init {
		if name != "a.weight" || !shape.Eq(tensor.Shape{2, 2}) {
			t.Errorf("got %s of shape %v", name, shape)
		}
		return nn.Constant(3)
	}))
	x := s.Keep(ops.Constant(s.Graph(), tensor.New(tensor.WithShape(1, 2), tensor.WithBacking([]float64{1, 2}))))
	y := nn.Linear(s.At("a").Tied(), nn.Linear(s.At("a"), x, 2, nn.NoBias()), 2, nn.NoBias())
	testutil.Do(t, s.Grad(s.Keep(ops.Sum(y))))
	vm := testutil.Get[*cudaops.VM](t)(s.NewVM(cudaops.OnAny(), cudaops.Keep(y)))
	defer vm.Close()
	testutil.Do(t, vm.RunAll())
	p := s.Parameters()
	if len(p) != 1 || fmt.Sprint(elements(t, y.Value())) != "[54 54]" || fmt.Sprint(elements(t, testutil.Get[G.Value](t)(p[0].Grad()))) != "[15 21 15 21]" {
		t.Errorf("got %d parameters, %v", len(p), y.Value())
	}
}

// Dropout drops in runs that train and keeps all in graphs of Evaluation, other ops with a mode as well, and in VMs that evaluate.
func TestDropout(t *testing.T) {
	share := func(opt []nn.Option, opts ...cudaops.Option) (dropped float64) {
		s := nn.New(G.NewGraph(), opt...)
		x := s.Input("x", tensor.Float32, 4000)
		y := nn.Dropout(s, x, 0.25)
		if opt != nil {
			y = s.Keep(ops.Dropout(y, 0.25))
		}
		z := s.Keep(ops.Map("a + 0", y))
		vm := testutil.Get[*cudaops.VM](t)(s.NewVM(append(opts, cudaops.OnAny(), cudaops.Keep(z))...))
		defer vm.Close()
		testutil.Do(t, vm.Let(x, slices.Repeat([]float32{3}, 4000)))
		testutil.Do(t, vm.RunAll())
		for _, v := range elements(t, z.Value()) {
			if v == 0 {
				dropped++
			} else if v != 3 && v != 4 {
				t.Fatalf("got the element %v", v)
			}
		}
		return dropped / 4000
	}
	if training, evaluation, inference := share(nil), share([]nn.Option{nn.Evaluation()}), share(nil, cudaops.Inference()); math.Abs(training-0.25) > 0.05 || evaluation+inference > 0 {
		t.Errorf("got the shares %v, %v and %v, want 0.25 in training and none in evaluation", training, evaluation, inference)
	}
}

// Where a logit is far on the side of its target, the cost is small, not 0, and neither it nor its gradient overflows elsewhere.
func TestBCEWithLogits(t *testing.T) {
	for _, c := range []struct{ logit, target, cost, gradient float64 }{
		{30, 1, math.Exp(-30), -math.Exp(-30)}, {-30, 0, math.Exp(-30), math.Exp(-30)}, {200, 0, 200, 1}, {-200, 1, 200, -1}, {0, 1, math.Ln2, -0.5},
	} {
		s := nn.New(G.NewGraph())
		x, y := s.Parameter("x", nn.Constant(c.logit), 1), s.Input("y", tensor.Float32, 1)
		loss := nn.BCEWithLogits(s, x, y)
		testutil.Do(t, s.Grad(loss))
		vm := testutil.Get[*cudaops.VM](t)(s.NewVM(cudaops.OnAny()))
		testutil.Do(t, vm.Let(y, []float32{float32(c.target)}))
		testutil.Do(t, vm.RunAll())
		cost, gradient := elements(t, loss.Value())[0], elements(t, testutil.Get[G.Value](t)(x.Grad()))[0]
		if math.Abs(cost/c.cost-1) > 1e-5 || math.Abs(gradient/c.gradient-1) > 1e-5 {
			t.Errorf("logit %v, target %v: got %v with the gradient %v, want %v and %v", c.logit, c.target, cost, gradient, c.cost, c.gradient)
		}
		testutil.Do(t, vm.Close())
	}
}

// TestNames: the Report, the Trace and errors have the path of the layer and the names that nodes were given.
func TestNames(t *testing.T) {
	s := nn.New(G.NewGraph(), nn.Dtype(tensor.Float64))
	x := s.Input("x", tensor.Float64, 2, 3)
	h := nn.SiLU(s.At("act"), nn.Linear(s.At("body", 0, "fc"), x, 4))
	y := s.Keep(G.Log(h))
	G.WithName("answer")(y)
	var trace bytes.Buffer
	vm := testutil.Get[*cudaops.VM](t)(s.NewVM(cudaops.OnHost(), cudaops.KeepAll(), cudaops.Watch(cudaops.NaN), cudaops.Trace(&trace)))
	defer vm.Close()
	weight := s.Parameters()[0].Value().Data().([]float64)
	for i := range weight {
		weight[i] = 1
	}
	in := tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float64{9, 9, 9, 9, 9, 9}))
	testutil.Do(t, G.Let(x, in))
	testutil.Do(t, vm.RunAll())
	in.Float64s()[5] = -99
	err := vm.RunAll()
	if err == nil || !strings.Contains(err.Error(), "node answer") {
		t.Errorf("got error %v of the logarithm of a negative number, want one of node answer", err)
	}
	var nodes strings.Builder
	for _, step := range vm.Report().Steps {
		fmt.Fprintln(&nodes, step.Nodes)
	}
	for what, text := range map[string]string{"report": nodes.String(), "trace": trace.String()} {
		for _, want := range []string{"body.0.fc: Map", "act: SiLU", "answer"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: got no %q in\n%s", what, want, text)
			}
		}
	}
}
