// Package programs holds programs of a user, written with package ops, for tests of the whole: a GPT and a convolutional network.
package programs

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// GPT is a decoder-only transformer with learned positions, in the layout of GPT-2.
type GPT struct {
	Layers, Width, Heads, Vocabulary, Context int
	Dtype                                     tensor.Dtype
}

// graph builds one graph. It keeps the first error.
type graph struct {
	GPT
	*G.ExprGraph
	parameters []*G.Node
	random     *rand.Rand
	states     [][2]*G.Node // each with its next value
	err        error
}

func (m GPT) newGraph() *graph {
	return &graph{GPT: m, ExprGraph: G.NewGraph(), random: rand.New(rand.NewPCG(1, 1))}
}

// keep returns a node, and keeps the first error.
func (g *graph) keep(n *G.Node, err error) *G.Node {
	if g.err == nil && err != nil {
		g.err = err
	}
	return n
}

// parameter returns a parameter of normal numbers with a deviation, or of one number if that is 0.
func (g *graph) parameter(name string, deviation, constant float64, shape ...int) *G.Node {
	v := tensor.New(tensor.Of(g.Dtype), tensor.WithShape(shape...))
	for i := range v.Size() {
		x := constant
		if deviation > 0 {
			x = deviation * g.random.NormFloat64()
		}
		if g.Dtype == tensor.Float32 {
			v.Float32s()[i] = float32(x)
		} else {
			v.Float64s()[i] = x
		}
	}
	n := G.NewTensor(g.ExprGraph, g.Dtype, len(shape), G.WithShape(shape...), G.WithName(name), G.WithValue(v))
	g.parameters = append(g.parameters, n)
	return n
}

func (g *graph) linear(x *G.Node, name string, out int) *G.Node {
	if g.err != nil {
		return nil
	}
	in := x.Shape()[x.Dims()-1]
	return g.keep(ops.Linear(x, g.parameter(name+".weight", 0.02, 0, out, in), g.parameter(name+".bias", 0, 0, out)))
}

func (g *graph) norm(x *G.Node, name string) *G.Node {
	if g.err != nil {
		return nil
	}
	return g.keep(ops.LayerNorm(x, g.parameter(name+".weight", 0, 1, g.Width), g.parameter(name+".bias", 0, 0, g.Width), 1e-5))
}

// heads returns x, batch x time x width, as batch x heads x time x width / heads.
func (g *graph) heads(x *G.Node) *G.Node {
	if g.err != nil {
		return nil
	}
	b, t := x.Shape()[0], x.Shape()[1]
	return g.keep(ops.Permute(g.keep(ops.Reshape(x, b, t, g.Heads, g.Width/g.Heads)), 0, 2, 1, 3))
}

// cached returns keys or values with those of all positions so far, in a state.
func (g *graph) cached(x, position *G.Node, name string) *G.Node {
	if g.err != nil || position == nil {
		return x
	}
	s := x.Shape()
	state := G.NewTensor(g.ExprGraph, g.Dtype, 4, G.WithShape(s[0], s[1], g.Context, s[3]), G.WithName(name))
	next := g.keep(ops.Update(state, x, position, 2))
	g.states = append(g.states, [2]*G.Node{state, next})
	return next
}

// attention is causal self-attention. seen, time x keys or 1 x keys, is true where a position may look.
func (g *graph) attention(x, seen, position *G.Node, name string) *G.Node {
	qkv := g.linear(x, name+".c_attn", 3*g.Width)
	if g.err != nil {
		return nil
	}
	parts, err := ops.Split(qkv, 2, g.Width, g.Width, g.Width)
	if g.keep(nil, err); g.err != nil {
		return nil
	}
	q, k, v := g.heads(parts[0]), g.heads(parts[1]), g.heads(parts[2])
	k, v = g.cached(k, position, name+".keys"), g.cached(v, position, name+".values")
	if g.err != nil {
		return nil
	}
	scores := g.keep(ops.MatMul(q, k, ops.TransB()))
	if g.err != nil {
		return nil
	}
	scale := 1 / math.Sqrt(float64(g.Width/g.Heads))
	low := g.keep(ops.Constant(g.ExprGraph, g.number(math.Inf(-1))))
	scores = g.keep(ops.Where(seen, g.keep(ops.Map(fmt.Sprintf("a * %v", scale), scores)), low))
	if g.err != nil {
		return nil
	}
	y := g.keep(ops.MatMul(g.keep(ops.SoftMax(scores, -1)), v))
	if g.err != nil {
		return nil
	}
	y = g.keep(ops.Reshape(g.keep(ops.Permute(y, 0, 2, 1, 3)), x.Shape()...))
	return g.linear(y, name+".c_proj", g.Width)
}

func (g *graph) number(x float64) any {
	if g.Dtype == tensor.Float32 {
		return float32(x)
	}
	return x
}

func (g *graph) add(a, b *G.Node) *G.Node {
	if g.err != nil {
		return nil
	}
	return g.keep(ops.Map("a+b", a, b))
}

// logits returns the logits of the token after each one. tokens are batch x time; positions count from 0, or from the position of a cached step.
func (g *graph) logits(tokens, position *G.Node) *G.Node {
	t := tokens.Shape()[1]
	table := g.parameter("wte.weight", 0.02, 0, g.Vocabulary, g.Width)
	places := g.parameter("wpe.weight", 0.01, 0, g.Context, g.Width)
	index := make([]int, g.Context)
	for i := range index {
		index[i] = i
	}
	keys := g.keep(ops.Constant(g.ExprGraph, tensor.New(tensor.WithShape(1, g.Context), tensor.WithBacking(index))))
	var at, seen *G.Node
	if position != nil {
		at, seen = g.keep(ops.RowsAt(places, position, t, 0)), g.keep(ops.LessEqual(keys, position))
	} else {
		at = g.keep(ops.Slice(places, G.S(0, t)))
		keys = g.keep(ops.Slice(keys, nil, G.S(0, t)))
		if g.err == nil {
			seen = g.keep(ops.LessEqual(keys, g.keep(ops.Reshape(keys, t, 1))))
		}
	}
	if g.err != nil {
		return nil
	}
	x := g.add(g.keep(ops.Embedding(table, tokens)), at)
	for l := range g.Layers {
		name := fmt.Sprintf("h.%d", l)
		x = g.add(x, g.attention(g.norm(x, name+".ln_1"), seen, position, name+".attn"))
		hidden := g.linear(g.norm(x, name+".ln_2"), name+".mlp.c_fc", 4*g.Width)
		if g.err != nil {
			return nil
		}
		x = g.add(x, g.linear(g.keep(ops.GELUTanh(hidden)), name+".mlp.c_proj", g.Width))
	}
	x = g.norm(x, "ln_f")
	if g.err != nil {
		return nil
	}
	return g.keep(ops.MatMul(x, table, ops.TransB()))
}

// Trained is a graph that trains.
type Trained struct {
	Graph          *G.ExprGraph
	Tokens, Labels *G.Node // batch x time; label i is the token after token i
	Logits, Loss   *G.Node
	Parameters     []*G.Node
}

// Train returns the graph of a loss and its gradients.
func (m GPT) Train(batch, time int) (*Trained, error) {
	g := m.newGraph()
	t := &Trained{Graph: g.ExprGraph, Tokens: G.NewMatrix(g.ExprGraph, tensor.Int32, G.WithShape(batch, time), G.WithName("tokens")),
		Labels: G.NewMatrix(g.ExprGraph, tensor.Int32, G.WithShape(batch, time), G.WithName("labels"))}
	if t.Logits = g.logits(t.Tokens, nil); g.err != nil {
		return nil, g.err
	}
	t.Loss = g.keep(ops.CrossEntropy(g.keep(ops.Reshape(t.Logits, batch*time, m.Vocabulary)), g.keep(ops.Reshape(t.Labels, batch*time))))
	if g.err != nil {
		return nil, g.err
	}
	t.Parameters = g.parameters
	_, err := G.Grad(t.Loss, t.Parameters...)
	return t, err
}

// Step is a graph that draws one token after another, with caches.
type Step struct {
	Graph           *G.ExprGraph
	Token, Position *G.Node // states: the last token of each row, and how many tokens came before it
	Logits, Next    *G.Node
	States          [][2]*G.Node
	Parameters      []*G.Node
}

// Step returns the graph of one token. temperature, k and p are those of ops.Categorical.
func (m GPT) Step(batch int, temperature, k, p any) (*Step, error) {
	g := m.newGraph()
	s := &Step{Graph: g.ExprGraph, Token: G.NewMatrix(g.ExprGraph, tensor.Int, G.WithShape(batch, 1), G.WithName("token")),
		Position: G.NewScalar(g.ExprGraph, tensor.Int, G.WithName("position"))}
	if s.Logits = g.logits(s.Token, s.Position); g.err != nil {
		return nil, g.err
	}
	s.Next = g.keep(ops.Categorical(s.Logits, temperature, k, p)) // batch x 1
	if g.err != nil {
		return nil, g.err
	}
	s.Parameters, s.States = g.parameters, append(g.states, [2]*G.Node{s.Token, s.Next}, [2]*G.Node{s.Position, g.keep(ops.Map("a+1", s.Position))})
	return s, g.err
}
