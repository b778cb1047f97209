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
		mixed, again, shared := losses(t, m, steps, by), losses(t, m, steps, by), losses(t, m, steps, by, cudaops.In(s))
		for i := range mixed {
			if mixed[i] != again[i] || mixed[i] != shared[i] { // in a Store parameters are rounded by launches
				t.Fatalf("%v, step %d: losses %v, %v and %v of the same input", by, i, mixed[i], again[i], shared[i])
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
