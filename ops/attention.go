package ops

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/attention"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// AttentionOption is an option of [Attention].
type AttentionOption func(*attentionOptions)

type attentionOptions struct {
	of     attentionOf
	scaled bool
	counts *gorgonia.Node
	keyed  bool
}

// Causal makes query i see the keys j <= i + Tk - Tq alone: the last query sees all keys, and with as many queries as keys each sees itself and those before.
func Causal() AttentionOption { return func(o *attentionOptions) { o.of.causal = true } }

// KeyCounts makes a query see as many keys as counts has, integers of any type that broadcast to (B, Tq) by numpy's rule: a scalar, a number for each query, or, of shape
// (B, 1), for each sequence. A number that is not 0 to Tk is an error of the run. With [Causal] a query sees the keys that both allow.
func KeyCounts(counts *gorgonia.Node) AttentionOption {
	return func(o *attentionOptions) { o.counts, o.keyed = counts, true }
}

// AttentionScale sets the factor of the products of queries and keys, 1/sqrt(d) by default.
func AttentionScale(scale float64) AttentionOption {
	return func(o *attentionOptions) { o.of.scale, o.scaled = scale, true }
}

// RowsFirst makes the layout (B, T, H, d) in place of (B, H, T, d), for all operands and the result.
func RowsFirst() AttentionOption { return func(o *attentionOptions) { o.of.rowsFirst = true } }

// Attention is softmax attention of queries over keys and values:
//
//	out[b][h][i] = Σ_j w[j] v[b][g][j], w = softmax over the keys j that query i sees of scale q[b][h][i] · k[b][g][j], g = h Hkv / H
//
//	q          k, v        out
//	(B,H,Tq,d) (B,Hkv,Tk,d) (B,H,Tq,d)
//
// q, k and v are of float32 or float64, one type; H is a multiple of Hkv, so that several heads of queries may read one of keys, and d is at most 256. The options are [Causal],
// [KeyCounts], [AttentionScale] and [RowsFirst]. Where a query sees no key, out is 0, and so are its gradients. Keys that a query does not see do not affect it, except
// by NaN and infinities in gradients and in 16 bits, where tensor cores multiply them by 0.
//
// Neither the weights nor their gradients are ever in memory: kernels go through the keys block by block and keep the maximum and the sum of each row. Of few queries, as of one
// token and a cache, the keys are split among blocks, and the results of these are merged in a fixed order. Gradients have no gradient.
func Attention(q, k, v *gorgonia.Node, opts ...AttentionOption) (*gorgonia.Node, error) {
	n, err := attend(q, k, v, opts)
	if err != nil {
		return nil, fmt.Errorf("ops: Attention: %w", err)
	}
	return n, nil
}

func attend(q, k, v *gorgonia.Node, opts []AttentionOption) (*gorgonia.Node, error) {
	var o attentionOptions
	for _, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("got a nil option")
		}
		opt(&o)
	}
	inputs := []*gorgonia.Node{q, k, v}
	types, err := anyTypesOf(inputs)
	if err != nil {
		return nil, err
	}
	if d := types[0].Shape; !o.scaled && len(d) == 4 {
		o.of.scale = 1 / math.Sqrt(float64(d[3]))
	}
	if s := o.of.scale; math.IsNaN(s) || math.IsInf(s, 0) || types[0].Dtype == kernels.Float32 && math.Abs(s) > math.MaxFloat32 {
		return nil, fmt.Errorf("got scale %v, want a finite number of the type of q", s)
	}
	if o.keyed {
		inputs = append(inputs, o.counts)
	}
	return Apply(o.of, inputs...)
}

// attentionOf is Attention of q, k, v and, if there are, counts.
type attentionOf struct {
	causal, rowsFirst bool
	scale             float64
}

func (a attentionOf) String() string {
	name := "Attention["
	if a.causal {
		name += "causal "
	}
	return name + number(a.scale) + "]"
}

// problem returns the problem of inputs q, k, v and, if there are, counts.
func (a attentionOf) problem(in ...Type) (p attention.Problem, err error) {
	if len(in) < 3 || len(in) > 4 {
		return p, fmt.Errorf("got %d inputs, want q, k, v and at most counts", len(in))
	}
	if err := CheckFloats(in[:3], 3); err != nil {
		return p, err
	}
	heads, rows := 1, 2
	if a.rowsFirst {
		heads, rows = 2, 1
	}
	q, k, v := in[0].Shape, in[1].Shape, in[2].Shape
	for i, s := range []tensor.Shape{q, k, v} {
		if len(s) != 4 {
			return p, fmt.Errorf("input %d: got shape %v, want 4 axes", i, s)
		}
	}
	switch {
	case !sameShape(k, v):
		return p, fmt.Errorf("input 2: got v of shape %v and k of shape %v, want one shape", v, k)
	case k[0] != q[0] || k[3] != q[3]:
		return p, fmt.Errorf("input 1: got k of shape %v and q of shape %v, want equal first and last axes", k, q)
	case q[heads]%k[heads] != 0:
		return p, fmt.Errorf("input 1: got %d heads of q and %d of k, want a multiple", q[heads], k[heads])
	case q[3] > attention.MaxDim:
		return p, fmt.Errorf("input 0: got rows of %d elements, want at most %d", q[3], attention.MaxDim)
	}
	p = attention.Problem{Dtype: in[0].Dtype, Batch: int64(q[0]), Heads: int64(q[heads]), KeyHeads: int64(k[heads]), Queries: int64(q[rows]), Keys: int64(k[rows]), Dim: int64(q[3]),
		Scale: a.scale, Causal: a.causal, RowsFirst: a.rowsFirst}
	if len(in) == 4 {
		counts, whole := in[3], tensor.Shape{q[0], q[rows]}
		view, ok := broadcastView(counts.Shape, whole)
		if !counts.Dtype.IsInteger() || !ok {
			return p, fmt.Errorf("input 3: got counts %v, want integers of a shape that broadcasts to %v", counts, whole)
		}
		p.Counts = attention.Counts{Dtype: counts.Dtype, Elements: counts.Elements(), Batch: int64(view.Strides[0]), Row: int64(view.Strides[1])}
	}
	return p, nil
}

func (a attentionOf) Infer(in ...Type) (Type, error) {
	if _, err := a.problem(in...); err != nil {
		return Type{}, err
	}
	return in[0], nil
}

// attention returns the launches that compute the result alone.
func (a attentionOf) attention(in ...Type) (kernels.Planner, error) {
	p, err := a.problem(in...)
	return attention.Forward{Problem: p, Out: true}, err
}

func (a attentionOf) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	return planAttention(a, dev, in)
}

// Limit makes other counts than 0 to the number of keys an error.
func (a attentionOf) Limit(input int, in ...Type) (count, also int, limited bool) {
	if input != 3 {
		return 0, 0, false
	}
	p, _ := a.problem(in...)
	return int(p.Keys) + 1, 0, true
}

func (a attentionOf) Adjoints(b *Backward) []Term {
	in := []Term{b.In(0), b.In(1), b.In(2)}
	counts := b.in[3:]
	statistics := b.Apply(attentionStatistics{a}, append(in[:3:3], counts...)...)
	operands := append(append(in[:3:3], statistics, b.Out(), b.Grad()), counts...)
	terms := make([]Term, len(b.in))
	for i := range in {
		terms[i] = b.Apply(attentionGradient{a, i}, operands...)
	}
	return terms
}

// attentionStatistics is the logarithm of the sum of exponentials of each row of the scores of Attention, of rows that attention.Problem.Seeing counts.
type attentionStatistics struct{ of attentionOf }

func (s attentionStatistics) String() string { return "AttentionStatistics" }

func (s attentionStatistics) Infer(in ...Type) (Type, error) {
	p, err := s.of.problem(in...)
	return Type{p.Dtype, tensor.Shape{int(p.Batch), int(p.Heads), int(p.Seeing())}}, err
}

func (s attentionStatistics) attention(in ...Type) (kernels.Planner, error) {
	p, err := s.of.problem(in...)
	return attention.Forward{Problem: p, Statistics: true}, err
}

func (s attentionStatistics) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	return planAttention(s, dev, in)
}

func (attentionStatistics) Adjoints(b *Backward) []Term {
	return b.None("it is a part of the gradient of Attention")
}

// attentionGradient is the gradient of Attention w.r.t. q, k or v. Its inputs are q, k, v, the statistics, the output, the gradient w.r.t. that and, if there are, counts.
type attentionGradient struct {
	of  attentionOf
	wrt int // 0: q, 1: k, 2: v
}

func (g attentionGradient) String() string { return "AttentionGradient[" + "qkv"[g.wrt:g.wrt+1] + "]" }

func (g attentionGradient) problem(in ...Type) (attention.Problem, error) {
	if len(in) < 6 {
		return attention.Problem{}, fmt.Errorf("got %d inputs, want 6 or 7", len(in))
	}
	return g.of.problem(append(in[:3:3], in[6:]...)...)
}

func (g attentionGradient) Infer(in ...Type) (Type, error) {
	_, err := g.problem(in...)
	if err != nil {
		return Type{}, err
	}
	return in[g.wrt], nil
}

func (g attentionGradient) attention(in ...Type) (kernels.Planner, error) {
	p, err := g.problem(in...)
	return attention.Backward{Problem: p, Q: g.wrt == 0, K: g.wrt == 1, V: g.wrt == 2}, err
}

func (g attentionGradient) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	return planAttention(g, dev, in)
}

func (attentionGradient) Adjoints(b *Backward) []Term { return b.None("it is a gradient of Attention") }

// attending is a primitive of this file.
type attending interface {
	attention(in ...Type) (kernels.Planner, error)
}

func planAttention(a attending, dev kernels.Device, in []Type) (*kernels.Plan, error) {
	p, err := a.attention(in...)
	if err != nil {
		return nil, err
	}
	return p.Plan(dev)
}

// Attention returns the launches of [Attention], its statistics or a gradient of it, an attention.Forward or attention.Backward; ok is false for any other op.
func (o *Op) Attention() (p kernels.Planner, ok bool) {
	a, ok := o.primitive.(attending)
	if !ok {
		return nil, false
	}
	err := guard.Recover("attention", func() (err error) { p, err = a.attention(o.in...); return err })
	return p, err == nil
}
