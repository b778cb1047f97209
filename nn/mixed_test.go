package nn_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/nn"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// losses returns the losses of the first steps of a GPT's training with the options, under Mixed with a precision of 16 bits. Before half of the
// steps it changes a matrix.
func losses(t *testing.T, m GPT, steps int, by kernels.Precision, opts ...cudaops.Option) []float64 {
	const batch, time = 4, 16
	g := testutil.Get[*Trained](t)(m.Train(batch, time))
	half, mixed := by.Half()
	if mixed {
		opts = append(opts, cudaops.Mixed(by))
	}
	if by == cudaops.F16 {
		opts = append(opts, cudaops.LossScaling(cudaops.GradScaler{}))
	}
	vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(g.Graph, append([]cudaops.Option{cudaops.OnAny(), cudaops.Strict(), cudaops.Outputs(g.Loss),
		cudaops.Train(G.NewAdamSolver(G.WithLearnRate(0.002)), g.Parameters...)}, opts...)...))
	defer vm.Close()
	tokens, labels := text(m, batch, time)
	testutil.Do(t, G.Let(g.Tokens, tokens))
	testutil.Do(t, G.Let(g.Labels, labels))
	var list []float64
	for i := range steps {
		if i == steps/2 { // a value of the user, of which the copy in 16 bits must be made, too
			p := g.Parameters[4] // h.0.attn.c_attn.weight
			testutil.Do(t, vm.Pull(p))
			for k, x := range p.Value().Data().([]float32) {
				p.Value().Data().([]float32)[k] = 1.3 * x
			}
			testutil.Do(t, vm.Push(p))
		}
		testutil.Do(t, vm.RunAll())
		list = append(list, float64(g.Loss.Value().Data().(float32)))
	}
	stored := map[string]int{}
	for _, n := range vm.Report().Nodes {
		stored[n.Stored]++
	}
	least := 1 // on a GPU: most of its products are too small for the tensor cores
	if strings.HasPrefix(vm.Device(), "host") {
		least = 40
	}
	if mixed != (stored[half.String()] >= least && half != kernels.Float32) || mixed != strings.Contains(vm.Report().String(), fmt.Sprintf("nodes stored in %v: ", half)) {
		t.Errorf("the report has nodes stored as %v", stored)
	}
	return list
}

// The losses of a training with activations in 16 bits follow those in float32: the means over 20 steps are within 0.5 %.
func TestMixedLosses(t *testing.T) {
	m := GPT{Layers: 2, Width: 32, Heads: 2, Vocabulary: 72, Context: 16, Dtype: tensor.Float32}
	const steps, each = 60, 20
	full := losses(t, m, steps, cudaops.FullPrecision)
	for _, by := range []kernels.Precision{cudaops.BF16, cudaops.F16} {
		s := cudaops.NewStore()
		defer s.Close()
		mixed, shared := losses(t, m, steps, by), losses(t, m, steps, by, cudaops.In(s))
		for i := range mixed {
			if mixed[i] != shared[i] { // in a Store parameters are rounded by launches
				t.Fatalf("%v, step %d: losses %v and %v of the same input", by, i, mixed[i], shared[i])
			}
		}
		for at := 0; at < steps; at += each {
			var a, b float64
			for i := range each {
				a, b = a+full[at+i]/each, b+mixed[at+i]/each
			}
			t.Logf("%v, steps %d to %d: mean loss %.5f, in float32 %.5f, off by %.3f %%", by, at, at+each, b, a, 100*math.Abs(b-a)/a)
			if !(math.Abs(b-a) <= 0.005*a) {
				t.Errorf("%v, steps %d to %d: mean loss %v, want %v within 0.5 %%", by, at, at+each, b, a)
			}
		}
	}
}

// Ranks that train on the same rows have the losses of one host bit for bit, whether each has the solver's state or a part of it.
func TestMixedRanks(t *testing.T) {
	m := GPT{Layers: 2, Width: 16, Heads: 2, Vocabulary: 40, Context: 16, Dtype: tensor.Float32}
	for _, by := range []kernels.Precision{cudaops.BF16, cudaops.F16} {
		want := losses(t, m, 10, by, cudaops.OnHost())
		for what, opts := range map[string][]cudaops.Option{"ranks": nil, "divided": {cudaops.ShardSolver()}} {
			if got := losses(t, m, 10, by, append(opts, cudaops.OnHosts(2))...); !slices.Equal(got, want) {
				t.Errorf("%v, %s: losses are %v, want %v", by, what, got, want)
			}
		}
	}
}

// Another precision than BF16 and F16, and a graph of float64, are errors.
func TestMixedErrors(t *testing.T) {
	for _, c := range []struct {
		of   tensor.Dtype
		by   kernels.Precision
		want string
	}{
		{tensor.Float32, cudaops.TF32, "Mixed: got [TF32], want BF16 or F16"},
		{tensor.Float32, 9, "want BF16 or F16"},
		{tensor.Float64, cudaops.BF16, "Mixed: got node"},
	} {
		g := testutil.Get[*Trained](t)(GPT{Layers: 1, Width: 8, Heads: 2, Vocabulary: 16, Context: 4, Dtype: c.of}.Train(1, 4))
		if vm, err := cudaops.NewVM(g.Graph, cudaops.OnHost(), cudaops.Mixed(c.by)); err == nil || !strings.Contains(err.Error(), c.want) {
			vm.Close()
			t.Errorf("Mixed(%v) of %v: got %v, want an error with %q", c.by, c.of, err, c.want)
		}
	}
}

// Under Mixed, caches of keys and values are in 16 bits on the device. The logits are near those of float32, and Pull, Push and Snapshot have the caches in float32.
func TestMixedCache(t *testing.T) {
	m := GPT{Layers: 2, Width: 32, Heads: 4, Vocabulary: 16, Context: 12, Dtype: tensor.Float32}
	for by, tolerance := range map[kernels.Precision]float64{cudaops.BF16: 0.05, cudaops.F16: 0.01} {
		half, _ := by.Half()
		var logits [2][]float64
		for i, opts := range [][]cudaops.Option{nil, {cudaops.Mixed(by)}} {
			store := cudaops.NewStore()
			defer store.Close()
			step := testutil.Get[*Step](t)(m.Step(1, 0, nil, nil, nn.In(store)))
			vm := testutil.Get[*cudaops.VM](t)(step.NewVM(append(opts, cudaops.OnAny(), cudaops.Strict(), cudaops.Keep(step.Logits))...))
			defer vm.Close()
			for token := range m.Context - 2 {
				testutil.Do(t, G.Let(step.Token, tensor.New(tensor.WithShape(1, 1), tensor.WithBacking([]int{token * 5 % 16}))))
				testutil.Do(t, vm.RunAll())
				for _, v := range step.Logits.Value().Data().([]float32) {
					logits[i] = append(logits[i], float64(v))
				}
			}
			if i == 0 {
				continue
			}
			var caches G.Nodes
			for _, n := range step.Graph().AllNodes() {
				if n.Op() == nil && strings.Contains(n.Name(), "attn.keys and values(") {
					caches = append(caches, n)
				}
			}
			stored := 0
			for _, n := range vm.Report().Nodes {
				if slices.ContainsFunc(caches, func(c *G.Node) bool { return c.Name() == n.Name }) && n.Stored == half.String() {
					stored++
				}
			}
			if len(caches) != m.Layers || stored != len(caches) {
				t.Fatalf("%v: %d of %d caches are stored in %v:\n%v", by, stored, len(caches), half, vm.Report())
			}
			snapshot := testutil.Get[*cudaops.Snapshot](t)(vm.Snapshot())
			pulled := func() []float32 {
				testutil.Do(t, vm.Pull(caches[0]))
				return slices.Clone(caches[0].Value().Data().([]float32))
			}
			first, written := pulled(), (m.Context-2)*2*m.Width
			for k, x := range first {
				if x != expr.FromHalf(half, expr.ToHalf(half, x)) || (k < written) != (x != 0) {
					t.Fatalf("%v: element %d of a cache is %v", by, k, x)
				}
				caches[0].Value().Data().([]float32)[k] = 1.001 + x
			}
			testutil.Do(t, vm.Push(caches[0]))
			for k, x := range pulled() {
				if want := expr.FromHalf(half, expr.ToHalf(half, 1.001+first[k])); x != want {
					t.Fatalf("%v: element %d is %v after Push, want %v", by, k, x, want)
				}
			}
			testutil.Do(t, vm.Restore(snapshot))
			if again := pulled(); !slices.Equal(again, first) {
				t.Errorf("%v: a cache is %v after Restore, want %v", by, again, first)
			}
			other := testutil.Get[*Step](t)(m.Step(1, 0, nil, nil, nn.In(store)))
			if _, err := other.NewVM(cudaops.OnAny()); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("want %v as in the Store", half)) {
				t.Errorf("%v: got the error %v of a VM without Mixed with the same caches", by, err)
			}
		}
		large := 0.0
		for _, x := range logits[0] {
			large = max(large, math.Abs(x))
		}
		for i, x := range logits[0] {
			if !(math.Abs(logits[1][i]-x) <= tolerance*large) {
				t.Fatalf("%v: logit %d is %v, want %v", by, i, logits[1][i], x)
			}
		}
	}
}

// A step under Mixed computes with the parameters that its Store has now, in 16 bits or not.
func TestMixedWeights(t *testing.T) {
	m := GPT{Layers: 1, Width: 32, Heads: 4, Vocabulary: 16, Context: 4, Dtype: tensor.Float32}
	store := cudaops.NewStore()
	defer store.Close()
	run := func(s *cudaops.Store) (logits []float32, again func() []float32) {
		step := testutil.Get[*Step](t)(m.Step(1, 0, nil, nil, nn.In(s)))
		vm := testutil.Get[*cudaops.VM](t)(step.NewVM(cudaops.Mixed(cudaops.BF16), cudaops.OnAny(), cudaops.Strict(), cudaops.Keep(step.Logits)))
		t.Cleanup(func() { vm.Close() })
		again = func() []float32 {
			testutil.Do(t, step.Reset())
			testutil.Do(t, vm.RunAll())
			return slices.Clone(step.Logits.Value().Data().([]float32))
		}
		return again(), again
	}
	before, again := run(store)
	changed := testutil.Get[[]cudaops.Learnable](t)(store.Parameters())
	for _, p := range changed {
		for i, x := range p.Value.Data().([]float32) {
			p.Value.Data().([]float32)[i] = 1.5*x + 0.01*float32(i%7)
		}
	}
	testutil.Do(t, store.SetParameters(changed))
	fresh := cudaops.NewStore()
	defer fresh.Close()
	testutil.Do(t, fresh.SetParameters(changed))
	want, _ := run(fresh)
	if got := again(); !slices.Equal(got, want) || slices.Equal(got, before) {
		t.Errorf("got the logits %v after a change of the Store's parameters, which were %v, want %v", got, before, want)
	}
}
