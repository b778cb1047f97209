package main

import (
	"fmt"
	"strings"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// gpt is a GPT in the layout of GPT-2.
type gpt struct {
	layers, width, heads, vocabulary, context int
	gelu                                      func(*nn.Scope, *G.Node) *G.Node
}

// models returns the programs of GPTs: training steps, prompts, and tokens one after another with caches. Their layers are alike, so two give all
// kernels but those of ClipNorm, which sum over all parameters at once.
func models() (list []graph) {
	for _, c := range []struct {
		gpt
		batch int
	}{
		{gpt{12, 768, 12, 50304, 1024, nn.GELUTanh}, 8},
		{gpt{6, 384, 6, 256, 256, nn.GELU}, 64},
		{gpt{4, 256, 4, 256, 256, nn.GELUTanh}, 16},
		{gpt{4, 256, 4, 5000, 256, nn.GELUTanh}, 16},
	} {
		add := func(by kernels.Precision, name string, build func() (*G.ExprGraph, *lower.Wanted, error)) {
			list = append(list, graph{name: fmt.Sprintf("GPT of width %d, %s, %v", c.width, name, by), lowered: build, mixed: by})
		}
		short := c.gpt
		short.layers = 2
		for _, by := range []kernels.Precision{kernels.FullPrecision, kernels.BF16} {
			add(by, "a step", func() (*G.ExprGraph, *lower.Wanted, error) { return short.step(c.batch, false, by) })
			add(by, "a token", func() (*G.ExprGraph, *lower.Wanted, error) { return short.decode(1, 1, by) })
			add(by, "tokens of a prompt", func() (*G.ExprGraph, *lower.Wanted, error) { return short.decode(1, 16, by) })
			for _, batch := range []int{1, 4, 16, 64} {
				add(by, fmt.Sprintf("%d prompts", batch), func() (*G.ExprGraph, *lower.Wanted, error) { return short.read(batch, 64, by) })
			}
		}
		if c.width == 384 { // as program 09
			add(kernels.FullPrecision, "a step with ClipNorm", func() (*G.ExprGraph, *lower.Wanted, error) { return c.step(c.batch, true, kernels.FullPrecision) })
		}
	}
	return list
}

// logits returns the logits of the token after each one. tokens are batch x time.
func (m gpt) logits(s *nn.Scope, tokens *G.Node) *G.Node {
	x := nn.Positions(s.At("wpe"), nn.Embedding(s.At("wte"), tokens, m.vocabulary, m.width), m.context)
	for l := range m.layers {
		s := s.At("h", l)
		x = nn.Residual(s, x, func(s *nn.Scope, x *G.Node) *G.Node {
			return nn.SelfAttention(s.At("attn"), nn.LayerNorm(s.At("ln_1"), x), m.heads, nn.Causal())
		})
		x = nn.Residual(s, x, func(s *nn.Scope, x *G.Node) *G.Node {
			return nn.Linear(s.At("proj"), m.gelu(s, nn.Linear(s.At("fc"), nn.LayerNorm(s.At("ln_2"), x), 4*m.width)), m.width)
		})
	}
	return nn.Linear(s.At("wte").Tied(), nn.LayerNorm(s.At("ln_f"), x), m.vocabulary, nn.NoBias())
}

// scope returns the scope of a new graph, whose parameters are 0.
func scope(opts ...nn.Option) *nn.Scope {
	return nn.New(G.NewGraph(), append(opts, nn.Initial(func(string, tensor.Shape) nn.Init { return nn.Constant(0) }))...)
}

// step is a training step of sequences of the whole context.
func (m gpt) step(batch int, clip bool, by kernels.Precision) (*G.ExprGraph, *lower.Wanted, error) {
	s := scope()
	loss := nn.CrossEntropy(s, m.logits(s, s.Input("tokens", tensor.Int32, batch, m.context)), s.Input("labels", tensor.Int32, batch, m.context))
	if err := s.Grad(loss); err != nil {
		return nil, nil, err
	}
	solver, _, err := internal.ReadSolver(G.NewAdamW())
	return s.Graph(), &lower.Wanted{Precision: by, Only: G.Nodes{loss}, Train: &lower.Training{Solvers: lower.Gorgonia, ClipNorm: clip, Sets: []lower.Set{{Solver: solver, Learnables: s.Parameters()}}}}, err
}

// read is the largest logit after each sequence of a batch.
func (m gpt) read(batch, time int, by kernels.Precision) (*G.ExprGraph, *lower.Wanted, error) {
	s := scope(nn.Evaluation())
	last := s.Keep(ops.Slice(m.logits(s, s.Input("tokens", tensor.Int32, batch, time)), nil, G.S(time-1)))
	next := s.Keep(ops.ArgMax(last, -1))
	return s.Graph(), inference(s, next, by), s.Err()
}

// decode draws the token after each sequence of a batch, with caches of the tokens before.
func (m gpt) decode(batch, time int, by kernels.Precision) (*G.ExprGraph, *lower.Wanted, error) {
	s := scope(nn.Evaluation(), nn.Cached(m.context))
	token := s.Cache("token", tensor.Int, batch, 1)
	tokens := token
	if time > 1 {
		tokens = s.Input("tokens", tensor.Int, batch, time)
	}
	next := s.Keep(ops.Categorical(m.logits(s, tokens), 1, nil, nil))
	if time > 1 {
		next = s.Keep(ops.Slice(next, nil, G.S(time-1, time)))
	}
	position := s.Keep(ops.Map(fmt.Sprintf("a + %d", time), s.Position()))
	w := inference(s, next, by)
	w.Shared = append(w.Shared, lower.Shared{Node: token, Next: next}, lower.Shared{Node: s.Position(), Next: position})
	half, _ := by.Half()
	for _, n := range s.Graph().AllNodes() {
		children, err := internal.Children(n)
		if err != nil {
			return nil, nil, err
		}
		if len(children) > 0 && children[0].IsVar() && strings.HasPrefix(fmt.Sprint(n.Op()), "Update[") {
			w.Shared = append(w.Shared, lower.Shared{Node: children[0], Next: n, Stored: half})
		}
	}
	return s.Graph(), w, s.Err()
}

// inference wants one node of a graph that evaluates, whose parameters are on the device.
func inference(s *nn.Scope, out *G.Node, by kernels.Precision) *lower.Wanted {
	w := &lower.Wanted{Precision: by, Forward: true, Evaluate: true, Only: G.Nodes{out}}
	for _, n := range s.Parameters() {
		w.Shared = append(w.Shared, lower.Shared{Node: n})
	}
	return w
}
