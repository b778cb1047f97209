package opspec

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// attentionSizes are those of a case.
type attentionSizes struct {
	b, h, hkv, tq, tk, d int
	causal, rowsFirst    bool
	scale                float64 // 0: the default
}

func (s attentionSizes) options() (opts []ops.AttentionOption) {
	if s.causal {
		opts = append(opts, ops.Causal())
	}
	if s.rowsFirst {
		opts = append(opts, ops.RowsFirst())
	}
	if s.scale != 0 {
		opts = append(opts, ops.AttentionScale(s.scale))
	}
	return opts
}

func (s attentionSizes) shapes() []tensor.Shape {
	if s.rowsFirst {
		return []tensor.Shape{{s.b, s.tq, s.h, s.d}, {s.b, s.tk, s.hkv, s.d}, {s.b, s.tk, s.hkv, s.d}}
	}
	return []tensor.Shape{{s.b, s.h, s.tq, s.d}, {s.b, s.hkv, s.tk, s.d}, {s.b, s.hkv, s.tk, s.d}}
}

// row returns where a row of an operand of so many heads and rows begins.
func (s attentionSizes) row(b, h, t, heads, rows int) int {
	if s.rowsFirst {
		return ((b*rows+t)*heads + h) * s.d
	}
	return ((b*heads+h)*rows + t) * s.d
}

// limit is the number of keys that a query sees of n.
func (s attentionSizes) limit(i, n int) int {
	if s.causal {
		n = min(n, i+s.tk-s.tq+1)
	}
	return max(n, 0)
}

// reference computes attention by the definition. counts returns the number of keys of a query.
func (s attentionSizes) reference(counts func(b, i int) int) func(in ...[]float64) (out, magnitude []float64) {
	return func(in ...[]float64) (out, magnitude []float64) {
		out, magnitude = make([]float64, len(in[0])), make([]float64, len(in[0]))
		scale := s.scale
		if scale == 0 {
			scale = 1 / math.Sqrt(float64(s.d))
		}
		for bh := range s.b * s.h {
			b, h := bh/s.h, bh%s.h
			for i := range s.tq {
				n := s.limit(i, counts(b, i))
				if n == 0 {
					continue
				}
				q := in[0][s.row(b, h, i, s.h, s.tq):][:s.d]
				key := func(j int) int { return s.row(b, h*s.hkv/s.h, j, s.hkv, s.tk) }
				scores, wrong := make([]float64, n), 1.0
				for j := range n {
					var sum total
					size := 0.0
					for l, x := range in[1][key(j):][:s.d] {
						sum.addProduct(q[l], x)
						size += math.Abs(q[l] * x)
					}
					scores[j] = sum.value() * scale
					if !math.IsInf(scores[j], 0) { // the weight of -Inf is 0, without an error
						wrong = max(wrong, size*scale)
					}
				}
				e := exponentialsOf(scores)
				at := s.row(b, h, i, s.h, s.tq)
				for l := range s.d {
					var sum total
					size, most := 0.0, 0.0
					for j := range n {
						v := in[2][key(j)+l]
						sum.addProduct(e.e[j]/e.sum, v)
						size += math.Abs(e.e[j] / e.sum * v)
						most = max(most, math.Abs(v))
					}
					if out[at+l], magnitude[at+l] = sum.value(), size*(2*wrong+e.error); wrong > 1e3 { // no longer near the exponentials' tangent
						magnitude[at+l] += most * wrong
					}
				}
			}
		}
		return out, magnitude
	}
}

func attentionCase(s attentionSizes) Case {
	return Case{
		Name: fmt.Sprintf("%+v", s), Shapes: s.shapes(), Parameters: Parameters{Causal: s.causal, RowsFirst: s.rowsFirst}, Coarse: true,
		Build: func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
			return ops.Attention(in[0], in[1], in[2], s.options()...)
		},
		Reference: s.reference(func(int, int) int { return s.tk }),
	}
}

// countedCase has counts of a type that broadcast from a shape.
func countedCase(s attentionSizes, index int, shape tensor.Shape) Case {
	c := attentionCase(s)
	list := below(min(s.tk, 255)+1, max(shape.TotalSize(), 1))
	c.Name += fmt.Sprintf(" %v of shape %v", indexTypes[index], shape)
	c.Composed = true
	c.Build = indexedBy(indexTypes[index], list, shape, func(in []*gorgonia.Node, counts *gorgonia.Node) (*gorgonia.Node, error) {
		return ops.Attention(in[0], in[1], in[2], append(s.options(), ops.KeyCounts(counts))...)
	})
	c.Reference = s.reference(func(b, i int) int {
		switch {
		case len(shape) == 0:
			return list[0]
		case len(shape) == 1:
			return list[i%shape[0]]
		case shape[1] == 1:
			return list[b%shape[0]]
		}
		return list[b%shape[0]*shape[1]+i]
	})
	return c
}

func badAttention(name, want string, q, k, v tensor.Shape, opts ...ops.AttentionOption) Bad {
	return bad(name, func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return ops.Attention(in[0], in[1], in[2], opts...) }, want, q, k, v)
}

var _ = register(Spec{
	Name: "Attention", Formula: "out[i] = Σ_j softmax_j(scale q[i]·k[j]) v[j]", Doc: "Softmax attention, causal or with counts of keys, several heads of queries to one of keys; no matrix of weights in memory.",
	Tolerance: 64, Once: true,
	Cases: []Case{
		attentionCase(attentionSizes{b: 1, h: 1, hkv: 1, tq: 1, tk: 1, d: 1}),
		attentionCase(attentionSizes{b: 1, h: 1, hkv: 1, tq: 3, tk: 5, d: 4}),
		attentionCase(attentionSizes{b: 32, h: 32, hkv: 16, tq: 2, tk: 3, d: 5, causal: true}),
		attentionCase(attentionSizes{b: 16, h: 32, hkv: 16, tq: 24, tk: 3, d: 5}),
		attentionCase(attentionSizes{b: 1, h: 2, hkv: 1, tq: 3, tk: 100, d: 37}),
		attentionCase(attentionSizes{b: 2, h: 4, hkv: 2, tq: 5, tk: 7, d: 3, causal: true, rowsFirst: true}),
		attentionCase(attentionSizes{b: 1, h: 2, hkv: 1, tq: 70, tk: 66, d: 65, causal: true}),
		attentionCase(attentionSizes{b: 1, h: 3, hkv: 3, tq: 130, tk: 129, d: 64, scale: 0.25}),
		attentionCase(attentionSizes{b: 2, h: 1, hkv: 1, tq: 65, tk: 200, d: 130, causal: true, rowsFirst: true}),
		attentionCase(attentionSizes{b: 1, h: 2, hkv: 2, tq: 33, tk: 31, d: 256}),
		attentionCase(attentionSizes{b: 1, h: 6, hkv: 2, tq: 1, tk: 300, d: 64}),
		countedCase(attentionSizes{b: 2, h: 2, hkv: 1, tq: 5, tk: 7, d: 4}, 0, tensor.Shape{2, 5}),
		countedCase(attentionSizes{b: 3, h: 2, hkv: 2, tq: 4, tk: 70, d: 8, causal: true}, 1, tensor.Shape{3, 1}),
		countedCase(attentionSizes{b: 2, h: 1, hkv: 1, tq: 6, tk: 6, d: 5, rowsFirst: true}, 3, tensor.Shape{6}),
		countedCase(attentionSizes{b: 1, h: 2, hkv: 1, tq: 1, tk: 100, d: 16}, 2, tensor.Shape{}),
		large(attentionCase(attentionSizes{b: 3, h: 1, hkv: 1, tq: 1 << 20, tk: 2, d: 256, rowsFirst: true}), kernels.Float32),
		timed("16 x 1024, 12 heads of 64, causal", attentionCase(attentionSizes{b: 16, h: 12, hkv: 12, tq: 1024, tk: 1024, d: 64, causal: true})),
		timed("8192, 16 heads of 128", attentionCase(attentionSizes{b: 1, h: 16, hkv: 16, tq: 8192, tk: 8192, d: 128})),
	},
	Bad: []Bad{
		badAttention("3 axes", "input 0: got shape (2, 3, 4), want 4 axes", tensor.Shape{2, 3, 4}, tensor.Shape{1, 2, 3, 4}, tensor.Shape{1, 2, 3, 4}),
		badAttention("other v", "want one shape", tensor.Shape{1, 2, 3, 4}, tensor.Shape{1, 2, 3, 4}, tensor.Shape{1, 2, 5, 4}),
		badAttention("other rows", "want equal first and last axes", tensor.Shape{1, 2, 3, 4}, tensor.Shape{1, 2, 3, 5}, tensor.Shape{1, 2, 3, 5}),
		badAttention("heads", "got 3 heads of q and 2 of k, want a multiple", tensor.Shape{1, 3, 3, 4}, tensor.Shape{1, 2, 3, 4}, tensor.Shape{1, 2, 3, 4}),
		badAttention("long rows", "got rows of 257 elements, want at most 256", tensor.Shape{1, 1, 1, 257}, tensor.Shape{1, 1, 1, 257}, tensor.Shape{1, 1, 1, 257}),
		badAttention("scale", "got scale NaN, want a finite number", tensor.Shape{1, 1, 1, 2}, tensor.Shape{1, 1, 1, 2}, tensor.Shape{1, 1, 1, 2}, ops.AttentionScale(math.NaN())),
		bad("scale beyond float32", func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
			x := gorgonia.NewTensor(in[0].Graph(), tensor.Float32, 4, gorgonia.WithShape(1, 1, 1, 2), gorgonia.WithName("x"))
			return ops.Attention(x, x, x, ops.AttentionScale(1e39))
		}, "got scale 1e+39, want a finite number of the type of q", tensor.Shape{1}),
		badAttention("a nil option", "got a nil option", tensor.Shape{1, 1, 1, 2}, tensor.Shape{1, 1, 1, 2}, tensor.Shape{1, 1, 1, 2}, nil),
		bad("counts of numbers", func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
			return ops.Attention(in[0], in[0], in[0], ops.KeyCounts(in[0]))
		}, "input 3: got counts float64 (1, 1, 2, 2), want integers", tensor.Shape{1, 1, 2, 2}),
		bad("nil counts", func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
			return ops.Attention(in[0], in[0], in[0], ops.KeyCounts(nil))
		}, "got a nil node", tensor.Shape{1, 1, 2, 2}),
	},
	Random: func(r *rand.Rand) Case {
		s := attentionSizes{b: 1 + r.IntN(3), hkv: 1 + r.IntN(2), tq: 1 + r.IntN(90), tk: 1 + r.IntN(90), d: 1 + r.IntN(140), causal: r.IntN(2) == 1, rowsFirst: r.IntN(2) == 1}
		if r.IntN(4) == 0 {
			s.tq = 1 + r.IntN(3)
		}
		if s.h = s.hkv * (1 + r.IntN(3)); r.IntN(4) == 0 {
			return countedCase(s, r.IntN(4), []tensor.Shape{{s.b, s.tq}, {s.b, 1}, {s.tq}, {}}[r.IntN(4)])
		}
		return attentionCase(s)
	},
	Wide: func(s *Sizes) Case {
		h := s.LogInt(1, 32)
		return attentionCase(attentionSizes{b: s.LogInt(1, 64), h: h, hkv: h, tq: s.LogInt(1, 16384), tk: s.LogInt(1, 16384), d: s.LogInt(8, 256), causal: s.IntN(2) == 1})
	},
	Peers: `
def peers(c, d):
    causal, first = c.get("causal", False), c.get("rows_first", False)
    turn = lambda t: t.transpose(1, 2) if first else t
    q, k, v = c["shapes"]
    tq, tk = (s[1 if first else 2] for s in (q, k))
    from torch.nn.attention.bias import causal_lower_right
    mask = causal_lower_right(tq, tk) if causal else None
    f = lambda q, k, v, *o: torch.nn.functional.scaled_dot_product_attention(turn(q), turn(k), turn(v), attn_mask=mask, enable_gqa=True)
    yield f"PyTorch scaled_dot_product_attention ({TORCH})", lambda: (drawn(d, q), drawn(d, k), drawn(d, v), empty(d, q)), f
`,
})
