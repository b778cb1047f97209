package nn_test

import (
	"context"
	"math"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/nn"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// text is a batch of sequences in which each token follows from the one before it, and the tokens after each.
func text(m GPT, batch, time int) (tokens, labels *tensor.Dense) {
	var a, b []int32
	for row := range batch {
		token := row
		for range time {
			a = append(a, int32(token))
			token = (5*token + 3) % m.Vocabulary
			b = append(b, int32(token))
		}
	}
	return tensor.New(tensor.WithShape(batch, time), tensor.WithBacking(a)), tensor.New(tensor.WithShape(batch, time), tensor.WithBacking(b))
}

// trained trains a GPT in a Store until it knows the text.
func trained(t testing.TB, m GPT) *cudaops.Store {
	const batch, time = 8, 12
	s := cudaops.NewStore()
	g := testutil.Get[*Trained](t)(m.Train(batch, time))
	vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(g.Graph, cudaops.OnAny(), cudaops.Strict(), cudaops.In(s), cudaops.Outputs(g.Loss), cudaops.Train(G.NewAdamSolver(G.WithLearnRate(0.01)), g.Parameters...)))
	defer vm.Close()
	tokens, labels := text(m, batch, time)
	testutil.Do(t, G.Let(g.Tokens, tokens))
	testutil.Do(t, G.Let(g.Labels, labels))
	loss := func() float64 {
		switch v := g.Loss.Value().Data().(type) {
		case float32:
			return float64(v)
		case float64:
			return v
		}
		return math.NaN()
	}
	testutil.Do(t, vm.RunAll())
	first := loss()
	if want := math.Log(float64(m.Vocabulary)); math.Abs(first-want) > 0.2 {
		t.Errorf("the first loss is %v, want about %v", first, want)
	}
	for range 150 {
		testutil.Do(t, vm.RunAll())
	}
	if last := loss(); !(last < 0.05) {
		t.Fatalf("the loss is %v after training, and was %v, want less than 0.05", last, first)
	}
	return s
}

// TestGPT trains a GPT, and samples from the parameters on the device with a cache: the largest logit is the next token of the text, and the logits are
// those of the whole sequence without a cache.
func TestGPT(t *testing.T) {
	m := GPT{Layers: 2, Width: 32, Heads: 4, Vocabulary: 16, Context: 16, Dtype: tensor.Float64}
	s := trained(t, m)
	defer s.Close()
	const batch, time = 3, 10
	step := testutil.Get[*Step](t)(m.Step(batch, 0, nil, nil, nn.In(s)))
	sampler := testutil.Get[*cudaops.VM](t)(step.NewVM(cudaops.OnAny(), cudaops.Strict(), cudaops.Keep(step.Logits, step.Next)))
	defer sampler.Close()
	whole := testutil.Get[*Trained](t)(m.Train(batch, time))
	reader := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(whole.Graph, cudaops.OnAny(), cudaops.Strict(), cudaops.In(s), cudaops.Inference(), cudaops.Outputs(whole.Logits)))
	defer reader.Close()
	tokens, labels := text(m, batch, time)
	testutil.Do(t, G.Let(whole.Tokens, tokens))
	testutil.Do(t, G.Let(whole.Labels, labels))
	testutil.Do(t, reader.RunAll())
	testutil.Do(t, G.Let(step.Token, tensor.New(tensor.WithShape(batch, 1), tensor.WithBacking([]int{0, 1, 2}))))
	want := whole.Logits.Value().Data().([]float64)
	for i := range time {
		testutil.Do(t, sampler.RunAll())
		got := step.Logits.Value().Data().([]float64)
		for row := range batch {
			if next, label := step.Next.Value().Data().([]int)[row], int(labels.Data().([]int32)[row*time+i]); next != label {
				t.Fatalf("token %d of row %d is %d, want %d", i, row, next, label)
			}
			for c := range m.Vocabulary {
				if g, w := got[row*m.Vocabulary+c], want[(row*time+i)*m.Vocabulary+c]; math.Abs(g-w) > 1e-9*(1+math.Abs(w)) {
					t.Fatalf("logit %d of token %d, row %d: got %v with a cache, want %v", c, i, row, g, w)
				}
			}
		}
	}
	testutil.Do(t, sampler.Pull(step.Position()))
	if step.Position().Value().Data() != time {
		t.Errorf("the position is %v after %d tokens", step.Position().Value(), time)
	}
	for _, in := range sampler.Report().Steps {
		if in.Where == "host" {
			t.Errorf("step %v runs on the host", in)
		}
	}
	for range m.Context - time {
		testutil.Do(t, sampler.RunAll())
	}
	for range 2 {
		if err := sampler.RunAll(); err == nil {
			t.Error("got no error of a position beyond the context")
		}
	}
	testutil.Do(t, sampler.Pull(step.Position())) // the runs have changed nothing
	if step.Position().Value().Data() != m.Context {
		t.Errorf("the position is %v after %d tokens", step.Position().Value(), m.Context)
	}
	testutil.Do(t, G.Let(step.Position(), m.Context-1))
	testutil.Do(t, sampler.RunAll())
}

// TestGPTSizes: prompts of several lengths and batches by one Cache.
func TestGPTSizes(t *testing.T) {
	m := GPT{Layers: 1, Width: 16, Heads: 2, Vocabulary: 16, Context: 16, Dtype: tensor.Float32}
	s := trained(t, m)
	defer s.Close()
	const time = 6
	c, err := cudaops.NewCache(s, func(size int) (*cudaops.Sized, error) {
		g, err := m.Train(size, time, nn.In(s))
		if err != nil {
			return nil, err
		}
		testutil.Do(t, G.Let(g.Labels, tensor.New(tensor.Of(tensor.Int32), tensor.WithShape(size, time))))
		return &cudaops.Sized{Graph: g.Graph, In: []*G.Node{g.Tokens}, Out: []*G.Node{g.Logits},
			Options: []cudaops.Option{cudaops.OnAny(), cudaops.Strict(), cudaops.Inference(), cudaops.Outputs(g.Logits)}}, nil
	}, cudaops.Limit{VMs: 2})
	testutil.Do(t, err)
	defer c.Close()
	for _, batch := range []int{1, 5, 2, 5} {
		tokens, labels := text(m, batch, time)
		out := testutil.Get[[]G.Value](t)(c.Run(context.Background(), tokens))
		logits := out[0].Data().([]float32)
		for i, label := range labels.Data().([]int32) {
			row := logits[i*m.Vocabulary:][:m.Vocabulary]
			best := 0
			for k, v := range row {
				if v > row[best] {
					best = k
				}
			}
			if best != int(label) {
				t.Fatalf("batch %d, token %d: got %d, want %d", batch, i, best, label)
			}
		}
	}
}
