package nn_test

import (
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

// decoder is a transformer for the tests: rotary positions and one head of keys in one block, and learnt positions before.
func decoder(s *nn.Scope, tokens *G.Node) *G.Node {
	x := nn.Positions(s.At("wpe"), nn.Embedding(s.At("wte"), tokens, 9, 8), 12)
	for i, o := range [][]nn.LayerOption{{nn.Causal()}, {nn.Causal(), nn.Rotary(100), nn.KeyHeads(1)}} {
		x = nn.Residual(s.At("h", i, "attn"), x, func(s *nn.Scope, x *G.Node) *G.Node {
			return nn.SelfAttention(s, nn.RMSNorm(s.At("norm"), x), 2, o...)
		})
	}
	return nn.Linear(s.At("wte").Tied(), x, 9, nn.NoBias())
}

// machine is a graph of a function of tokens, with its VM.
type machine struct {
	*nn.Scope
	tokens, y *G.Node
	vm        *cudaops.VM
}

func newMachine(t *testing.T, store *cudaops.Store, f nn.Layer, batch, time int, opts ...nn.Option) *machine {
	m := &machine{Scope: nn.New(G.NewGraph(), append(opts, nn.In(store), nn.Dtype(tensor.Float64), nn.Seed(3))...)}
	m.tokens = m.Input("tokens", tensor.Int, batch, time)
	m.y = f(m.Scope, m.tokens)
	m.vm = testutil.Get[*cudaops.VM](t)(m.NewVM(cudaops.OnAny(), cudaops.Strict(), cudaops.Keep(m.y)))
	t.Cleanup(func() { m.vm.Close() })
	return m
}

// run returns the outputs for the columns from, from + 1, ... of rows of tokens.
func (m *machine) run(t *testing.T, rows [][]int, from int) []float64 {
	t.Helper()
	var list []int
	for _, r := range rows {
		list = append(list, r[from:from+m.tokens.Shape()[1]]...)
	}
	testutil.Do(t, G.Let(m.tokens, tensor.New(tensor.WithShape(m.tokens.Shape()...), tensor.WithBacking(list))))
	testutil.Do(t, m.vm.RunAll())
	return elements(t, m.y.Value())
}

// Token by token with a cache, or after a prompt that another graph has read, the outputs are those of the whole sequence; Reset of any of the graphs begins another one.
func TestCached(t *testing.T) {
	store := cudaops.NewStore()
	defer store.Close()
	const batch, time, prompt, classes = 2, 12, 5, 9
	r, rows := rand.New(rand.NewPCG(5, 6)), make([][]int, batch)
	for i := range batch * time {
		rows[i%batch] = append(rows[i%batch], r.IntN(classes))
	}
	whole := newMachine(t, store, decoder, batch, time)
	want := whole.run(t, rows, 0)
	step, read := newMachine(t, store, decoder, batch, 1, nn.Cached(time)), newMachine(t, store, decoder, batch, prompt, nn.Cached(time))
	other := newMachine(t, store, decoder, 1, 1, nn.Cached(time)) // has caches of its own
	same := func(what string, m *machine, from int) {
		t.Helper()
		n := m.tokens.Shape()[1]
		for i, got := range m.run(t, rows, from) {
			k, c := i/classes, i%classes
			if w := want[(k/n*time+from+k%n)*classes+c]; math.Abs(got-w) > 1e-9*(1+math.Abs(w)) {
				t.Fatalf("%s: token %d of row %d: got %v, want %v", what, from+k%n, k/n, got, w)
			}
		}
	}
	for i := range time {
		same("token by token", step, i)
		if i < 3 {
			other.run(t, rows[:1], i)
		}
	}
	unrun := nn.New(G.NewGraph(), nn.In(store), nn.Dtype(tensor.Float64), nn.Cached(time)) // without a VM
	decoder(unrun, unrun.Input("tokens", tensor.Int, batch, 2))
	for i, by := range []*nn.Scope{read.Scope, step.Scope, unrun} {
		testutil.Do(t, by.Reset())
		same(fmt.Sprintf("a prompt after Reset of scope %d", i), read, 0)
		for i := prompt; i < time; i++ {
			same("after a prompt", step, i)
		}
	}
	testutil.Do(t, step.vm.Pull(step.Position()))
	if got := step.Position().Value().Data(); got != time {
		t.Errorf("the position is %v, want %d", got, time)
	}
	if err := step.vm.RunAll(); err == nil {
		t.Error("got no error of a token beyond the context")
	}
	testutil.Do(t, G.Let(step.Position(), time-1)) // the run has changed nothing
	same("the last token again", step, time-1)
	for _, p := range testutil.Get[[]cudaops.Learnable](t)(store.Parameters()) {
		if strings.Contains(p.Name, "keys") || strings.Contains(p.Name, "position") {
			t.Errorf("%s is a parameter of the Store", p.Name)
		}
	}
	s := nn.New(G.NewGraph(), nn.Cached(4))
	nn.Positions(s, s.Input("a", tensor.Float32, 1, 2, 3), 9)
	nn.Positions(s.At("b"), s.Input("c", tensor.Float32, 1, 3, 3), 9)
	if err := s.Err(); err == nil || !strings.Contains(err.Error(), "nn: b: got 1 sequences of 3 tokens, want 1 of 2") {
		t.Errorf("got the error %v of two lengths in one graph", err)
	}
}

// Caches of two lengths, and two models, in one Store do not move each other's position.
func TestPositions(t *testing.T) {
	store := cudaops.NewStore()
	defer store.Close()
	model := func(path string) nn.Layer {
		return func(s *nn.Scope, tokens *G.Node) *G.Node {
			return nn.SelfAttention(s.At(path), nn.Embedding(s.At(path, "in"), tokens, 9, 4), 2, nn.Causal(), nn.Rotary(100))
		}
	}
	rows := [][]int{{1, 2, 3, 4, 5, 6}}
	type reader struct {
		whole []float64
		step  *machine
	}
	var readers []reader
	for _, path := range []string{"large", "small"} {
		whole := newMachine(t, store, model(path), 1, 6).run(t, rows, 0)
		for _, n := range []int{6, 9} {
			readers = append(readers, reader{whole, newMachine(t, store, model(path), 1, 1, nn.Cached(n))})
		}
	}
	for token := range 6 {
		for k, r := range readers {
			for i, got := range r.step.run(t, rows, token) {
				if want := r.whole[4*token+i]; math.Abs(got-want) > 1e-12 {
					t.Fatalf("reader %d, token %d: element %d is %v, want %v", k, token, i, got, want)
				}
			}
		}
	}
}

// The pattern of an attention has rows that add up to 1, and is 0 where a position may not look.
func TestPattern(t *testing.T) {
	s := nn.New(G.NewGraph(), nn.Dtype(tensor.Float64))
	x := s.Input("x", tensor.Float64, 1, 4, 6)
	var patterns G.Nodes
	y := nn.SelfAttention(s, x, 3, nn.Causal(), nn.Pattern(&patterns))
	vm := testutil.Get[*cudaops.VM](t)(s.NewVM(cudaops.OnAny(), cudaops.Keep(append(patterns, y)...)))
	defer vm.Close()
	v := tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(1, 4, 6))
	for i := range v.Float64s() {
		v.Float64s()[i] = math.Sin(float64(i))
	}
	testutil.Do(t, G.Let(x, v))
	testutil.Do(t, vm.RunAll())
	for i, w := range elements(t, patterns[0].Value()) {
		if row, key := i/4%4, i%4; (w > 0) != (key <= row) || row == 0 && key == 0 && w != 1 {
			t.Errorf("head %d: the weight of key %d for position %d is %v", i/16, key, row, w)
		}
	}
}

// Attention in heads, of which several share keys and values, is that of the definition: step by step with a cache, with the weights as a pattern and without, and in heads that are wider
// than the kernels take.
func TestKeyHeads(t *testing.T) {
	for _, c := range []struct{ time, heads, keyHeads, dim int }{{7, 6, 2, 4}, {5, 3, 1, 2}, {3, 2, 1, 260}} {
		r, width, keys := rand.New(rand.NewPCG(7, uint64(c.dim))), c.heads*c.dim, c.keyHeads*c.dim
		values := func(width int) *tensor.Dense {
			v := tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(1, c.time, width))
			for i := range v.Float64s() {
				v.Float64s()[i] = r.NormFloat64()
			}
			return v
		}
		in := []*tensor.Dense{values(width), values(keys), values(keys)}
		q, k, v := in[0].Float64s(), in[1].Float64s(), in[2].Float64s()
		want := make([]float64, c.time*width)
		for i := range c.time {
			for h := range c.heads {
				from, sum := h*c.keyHeads/c.heads*c.dim, 0.0
				out := want[i*width+h*c.dim:][:c.dim]
				for j := range i + 1 {
					score := 0.0
					for e := range c.dim {
						score += q[i*width+h*c.dim+e] * k[j*keys+from+e]
					}
					weight := math.Exp(score / math.Sqrt(float64(c.dim)))
					sum += weight
					for e := range out {
						out[e] += weight * v[j*keys+from+e]
					}
				}
				for e := range out {
					out[e] /= sum
				}
			}
		}
		var patterns G.Nodes
		for name, opts := range map[string][]nn.LayerOption{"fused": nil, "with a pattern": {nn.Pattern(&patterns)}} {
			for _, step := range []int{c.time, 1} {
				var model []nn.Option
				if step == 1 {
					model = append(model, nn.Cached(c.time))
				}
				s := nn.New(G.NewGraph(), append(model, nn.Dtype(tensor.Float64))...)
				var x G.Nodes
				for i, w := range []int{width, keys, keys} {
					x = append(x, s.Input("qkv"[i:i+1], tensor.Float64, 1, step, w))
				}
				y := nn.Attention(s, x[0], x[1], x[2], c.heads, append(opts, nn.Causal(), nn.KeyHeads(c.keyHeads))...)
				vm := testutil.Get[*cudaops.VM](t)(s.NewVM(cudaops.OnAny(), cudaops.Keep(y)))
				if results := vm.Results(); name == "fused" && step == c.time && len(results) > 1 {
					t.Errorf("%+v: a run has the results %v, want the attention alone", c, results)
				}
				for at := 0; at < c.time; at += step {
					for i, n := range x {
						w := n.Shape()[2]
						testutil.Do(t, G.Let(n, tensor.New(tensor.WithShape(1, step, w), tensor.WithBacking(in[i].Float64s()[at*w:(at+step)*w]))))
					}
					testutil.Do(t, vm.RunAll())
					for i, got := range elements(t, y.Value()) {
						if w := want[at*width+i]; !(math.Abs(got-w) < 1e-12*(1+math.Abs(w))) {
							t.Fatalf("%+v, %s, %d tokens a run: element %d is %v, want %v", c, name, step, at*width+i, got, w)
						}
					}
				}
				vm.Close()
			}
		}
	}
}

// KeyCounts hides the keys behind a number of each sequence, with the weights as a pattern and without: values are those of the definition, and gradients agree and are finite, also
// of a sequence without keys.
func TestKeyCounts(t *testing.T) {
	const batch, time, heads, dim = 5, 6, 2, 3
	seed := testutil.Seed(t)
	r := rand.New(rand.NewPCG(seed, 1))
	counts := []int{0, time, r.IntN(time), r.IntN(time), r.IntN(time)}
	var in []*tensor.Dense
	for range 3 {
		v := tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(batch, time, heads*dim))
		for i := range v.Float64s() {
			v.Float64s()[i] = r.NormFloat64()
		}
		in = append(in, v)
	}
	for name, causal := range map[string]bool{"all": false, "causal": true} {
		var want, gradients []float64
		for row := range batch * time {
			for h := range heads {
				at, sum, out := func(x, row, e int) float64 { return in[x].Float64s()[(row*heads+h)*dim+e] }, 0.0, make([]float64, dim)
				for j := range counts[row/time] {
					if causal && j > row%time {
						break
					}
					key, score := row/time*time+j, 0.0
					for e := range dim {
						score += at(0, row, e) * at(1, key, e)
					}
					weight := math.Exp(score / math.Sqrt(dim))
					sum += weight
					for e := range dim {
						out[e] += weight * at(2, key, e)
					}
				}
				for _, v := range out {
					want = append(want, v/max(sum, math.SmallestNonzeroFloat64))
				}
			}
		}
		var patterns G.Nodes
		for _, opts := range [][]nn.LayerOption{nil, {nn.Pattern(&patterns)}} {
			s := nn.New(G.NewGraph(), nn.Dtype(tensor.Float64))
			var x G.Nodes
			for i := range in {
				x = append(x, s.Input("qkv"[i:i+1], tensor.Float64, batch, time, heads*dim))
			}
			seen := s.Input("counts", tensor.Int32, batch)
			if opts = append(opts, nn.KeyCounts(seen)); causal {
				opts = append(opts, nn.Causal())
			}
			y := nn.Attention(s, x[0], x[1], x[2], heads, opts...)
			by := testutil.Get[G.Nodes](t)(G.Grad(s.Keep(ops.Sum(s.Keep(ops.Map("a*a*a", y)))), x...))
			vm := testutil.Get[*cudaops.VM](t)(s.NewVM(cudaops.OnAny(), cudaops.Keep(append(by, y)...)))
			defer vm.Close()
			for i, n := range x {
				testutil.Do(t, G.Let(n, in[i]))
			}
			c := make([]int32, batch)
			for i := range c {
				c[i] = int32(counts[i])
			}
			testutil.Do(t, vm.Let(seen, c))
			testutil.Do(t, vm.RunAll())
			var got []float64
			for _, n := range by {
				got = append(got, elements(t, n.Value())...)
			}
			if gradients == nil {
				gradients = got
			}
			for i, w := range slices.Concat(want, gradients) {
				if g := slices.Concat(elements(t, y.Value()), got)[i]; !(math.Abs(g-w) < 1e-12*(1+math.Abs(w))) {
					t.Fatalf("seed %d, %s, %d options: element %d of values and gradients is %v, want %v", seed, name, len(opts), i, g, w)
				}
			}
		}
	}
}

// A recurrent network that carries its state computes in pieces what it computes of the whole, until Reset.
func TestCarry(t *testing.T) {
	for name, layer := range map[string]func(*nn.Scope, *G.Node, int, ...nn.LayerOption) *G.Node{"LSTM": nn.LSTM, "GRU": nn.GRU} {
		store := cudaops.NewStore()
		defer store.Close()
		rows := [][]int{{1, 2, 3, 4, 5, 6}, {6, 5, 4, 4, 3, 2}}
		of := func(opts ...nn.LayerOption) nn.Layer {
			return func(s *nn.Scope, x *G.Node) *G.Node {
				return layer(s.At("rnn"), nn.Embedding(s.At("in"), x, 9, 3), 4, append(opts, nn.Layers(2))...)
			}
		}
		want := newMachine(t, store, of(), 2, 6).run(t, rows, 0)
		m := newMachine(t, store, of(nn.Carry()), 2, 2)
		if results := m.vm.Results(); len(results) > 1 {
			t.Errorf("%s: a run has the results %v, want the outputs alone", name, results)
		}
		for again := range 2 {
			for from := 0; from < 6; from += 2 {
				for i, got := range m.run(t, rows, from) {
					if w := want[(i/8*6+from+i/4%2)*4+i%4]; math.Abs(got-w) > 1e-12 {
						t.Fatalf("%s, pass %d, from step %d: output %d is %v, want %v", name, again, from, i, got, w)
					}
				}
			}
			testutil.Do(t, m.Reset())
		}
	}
}

// A Cache of VMs by size takes the options of a scope.
func TestSizes(t *testing.T) {
	store := cudaops.NewStore()
	defer store.Close()
	cache := testutil.Get[*cudaops.Cache](t)(cudaops.NewCache(store, func(rows int) (*cudaops.Sized, error) {
		s := nn.New(G.NewGraph(), nn.In(store), nn.Evaluation(), nn.Dtype(tensor.Float64), nn.Initial(nn.NormalWeights(1)))
		x := s.Input("x", tensor.Float64, rows, 2)
		y := nn.BatchNorm(s.At("norm"), nn.Linear(s.At("fc"), x, 1), nn.Epsilon(0))
		return &cudaops.Sized{Graph: s.Graph(), In: []*G.Node{x}, Out: []*G.Node{y}, Options: append(s.Options(), cudaops.OnAny())}, s.Err()
	}, cudaops.Limit{}))
	defer cache.Close()
	for _, rows := range []int{1, 3} {
		x := tensor.New(tensor.WithShape(rows, 2), tensor.WithBacking(slices.Repeat([]float64{1, -2}, rows)))
		out := testutil.Get[[]G.Value](t)(cache.Run(t.Context(), x))
		parameters := testutil.Get[[]cudaops.Learnable](t)(store.Parameters())
		w := elements(t, parameters[0].Value)
		for _, got := range elements(t, out[0]) {
			if want := w[0] - 2*w[1]; len(parameters) != 6 || math.Abs(got-want) > 1e-12 {
				t.Errorf("%d rows, %d parameters: got %v, want %v", rows, len(parameters), got, want)
			}
		}
	}
}

// Caches of any type and shape are reset, also of a Store that is closed.
func TestReset(t *testing.T) {
	for _, opts := range [][]nn.Option{nil, {nn.In(cudaops.NewStore())}} {
		s := nn.New(G.NewGraph(), opts...)
		a, b := s.Cache("a", tensor.Float32), s.Cache("b", tensor.Bool, 2)
		s.Next(a, s.Keep(ops.Map("a + 1", a)))
		s.Next(b, s.Keep(ops.Map("!a", b)))
		vm := testutil.Get[*cudaops.VM](t)(s.NewVM(cudaops.OnAny()))
		defer vm.Close()
		testutil.Do(t, vm.Store().Close()) // the VM runs on
		for range 2 {
			testutil.Do(t, vm.RunAll())
			testutil.Do(t, vm.Pull())
			if a.Value().Data() != float32(1) || !slices.Equal(b.Value().Data().([]bool), []bool{true, true}) {
				t.Errorf("got %v and %v after a run, want 1 and true", a.Value(), b.Value())
			}
			testutil.Do(t, s.Reset())
		}
		testutil.Do(t, vm.Close())
		testutil.Do(t, s.Reset())
	}
}
