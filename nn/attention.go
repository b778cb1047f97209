package nn

import (
	"fmt"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels/attention"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// position is the number of tokens that earlier runs have read, a state of graphs with Cached.
type position struct {
	node        *G.Node
	batch, time int
}

// Position returns the number of tokens that runs have read, a state of int. It is nil without [Cached], and before the first layer that has positions.
func (s *Scope) Position() *G.Node {
	if !s.made() || s.position == nil {
		return nil
	}
	return s.position.node
}

// before returns the position for sequences of a batch, or nil without Cached.
func (s *Scope) before(batch, time int) *G.Node {
	if !s.ok() || s.context == 0 {
		return nil
	}
	if p := s.position; p != nil {
		if p.batch != batch || p.time != time {
			s.fail("got %d sequences of %d tokens, want %d of %d as for the layers before: the graph has one position", batch, time, p.batch, p.time)
		}
		return p.node
	}
	// Caches of another length, and another model in the Store, whose first layer with positions has another path, have a position of their own.
	n := s.input(s.At(fmt.Sprintf("position(%d, %d)", batch, s.context)).path, tensor.Int, nil)
	next := s.Keep(ops.Map(fmt.Sprintf("a + %d", time), n))
	if !s.ok() {
		return nil
	}
	s.position, s.next[n] = &position{n, batch, time}, next
	s.caches, s.reset = append(s.caches, n), append(s.reset, n)
	return n
}

// rows returns the rows of a table for the positions of a run: the first rows, or under Cached the rows from the position on.
func (s *Scope) rows(table *G.Node, batch, time int) *G.Node {
	p := s.before(batch, time)
	switch {
	case !s.ok():
		return nil
	case p == nil:
		return s.Keep(ops.Slice(table, G.S(0, time)))
	}
	return s.Keep(ops.RowsAt(table, p, time, 0))
}

// Positions adds a learnt row to each position of x, (batch, time, width): weight (count, width), an Embedding in PyTorch.
func Positions(s *Scope, x *G.Node, count int) *G.Node {
	shape, ok := s.shape("Positions", x, 3, 3, "(batch, time, width)")
	if ok && max(shape[1], s.context) > count {
		s.fail("Positions got %d positions, want at least the %d of the tokens and of Cached", count, max(shape[1], s.context))
	}
	if !s.ok() {
		return nil
	}
	table := s.Parameter("weight", Normal(1), count, shape[2])
	return s.Keep(ops.Map("a + b", x, s.rows(table, shape[0], shape[1])))
}

// SelfAttention is PyTorch's MultiheadAttention of x with itself: in_proj_weight (3 width, width), in_proj_bias, out_proj.weight and out_proj.bias. x is (batch,
// time, width). With [KeyHeads] in_proj_weight has width + 2 n width / heads rows. Options: [NoBias] and the options of [Attention].
func SelfAttention(s *Scope, x *G.Node, heads int, opts ...LayerOption) *G.Node {
	const layer = "SelfAttention"
	o := s.read(layer, opts, settings{"NoBias": 0, "Causal": 0, "Rotary": 0, "Pattern": 0, "KeyCounts": 0, "KeyHeads": float64(heads)})
	shape, ok := s.shape(layer, x, 3, 3, "(batch, time, width)")
	if !ok || !s.checkHeads(layer, shape[2], heads, o) {
		return nil
	}
	width := shape[2]
	keys := width / heads * int(o["KeyHeads"])
	rows := width + 2*keys
	weight := s.Parameter("in_proj_weight", Uniform(math.Sqrt(6/float64(rows+width))), rows, width)
	parts, err := ops.Split(s.Keep(ops.Linear(x, weight, s.bias("in_proj_bias", o, Constant(0), rows))), -1, width, keys, keys)
	if s.Keep(nil, err); !s.ok() {
		return nil
	}
	y, out := s.attention(layer, parts[0], parts[1], parts[2], heads, o, opts), s.At("out_proj")
	return out.Keep(ops.Linear(y, out.Parameter("weight", fanIn(width), width, width), out.bias("bias", o, Constant(0), width)))
}

// Split3 cuts the last axis of x into three parts of one size, such as queries, keys and values.
func Split3(s *Scope, x *G.Node) (a, b, c *G.Node) {
	shape, ok := s.shape("Split3", x, 1, 0, "(..., 3 width)")
	if !ok {
		return nil, nil, nil
	}
	width := shape[len(shape)-1] / 3
	parts, err := ops.Split(x, -1, width, width, width)
	if s.Keep(nil, err); !s.ok() {
		return nil, nil, nil
	}
	return parts[0], parts[1], parts[2]
}

// Attention is the scaled dot-product attention of q, (batch, time, width), to k and v, (batch, keys, width), in heads of width / heads elements each. The result
// is (batch, time, width).
//
//	softmax(q kᵀ / √(width / heads)) v
//
// With [KeyHeads] k and v are (batch, keys, n width / heads). Options: [Causal], [Rotary], [KeyHeads], [KeyCounts], [Pattern]. Under [Cached] causal attention is to the keys and
// values of the runs before, too. It is ops.Attention; the weights are in memory only for a Pattern, and in heads of more than 256 elements.
func Attention(s *Scope, q, k, v *G.Node, heads int, opts ...LayerOption) *G.Node {
	return s.attention("Attention", q, k, v, heads, s.read("Attention", opts, settings{"Causal": 0, "Rotary": 0, "Pattern": 0, "KeyCounts": 0, "KeyHeads": float64(heads)}), opts)
}

// checkHeads reports whether the options of an attention fit its width.
func (s *Scope) checkHeads(layer string, width, heads int, o settings) bool {
	keyHeads := int(o["KeyHeads"])
	switch {
	case heads < 1 || width%heads != 0 || o["Rotary"] != 0 && width/heads%2 != 0:
		s.fail("%s got %d heads of width %d, want a divisor, for Rotary with an even width of a head", layer, heads, width)
	case keyHeads < 1 || heads%keyHeads != 0:
		s.fail("%s got KeyHeads(%d) for %d heads, want a divisor", layer, keyHeads, heads)
	}
	return s.ok()
}

func (s *Scope) attention(layer string, q, k, v *G.Node, heads int, o settings, opts []LayerOption) *G.Node {
	const want = "(batch, time, width)"
	of, _ := s.shape(layer, q, 3, 3, want)
	to, _ := s.shape(layer, k, 3, 3, want)
	and, ok := s.shape(layer, v, 3, 3, want)
	if !ok || !s.checkHeads(layer, of[2], heads, o) {
		return nil
	}
	keyHeads, causal := int(o["KeyHeads"]), o["Causal"] != 0
	if of[0] != to[0] || to[2] != of[2]/heads*keyHeads || !slices.Equal(to, and) || causal && of[1] != to[1] {
		s.fail("%s got q of shape %v, k of %v and v of %v, want (batch, time, width) and twice (batch, keys, width), as many keys as times under Causal, and width %d of keys", layer, of, to, and, of[2]/heads*keyHeads)
	}
	q, k, v = s.heads(q, heads), s.heads(k, keyHeads), s.heads(v, keyHeads)
	if o["Rotary"] != 0 {
		q, k = s.rotate(q, o["Rotary"]), s.rotate(k, o["Rotary"])
	}
	fused := []ops.AttentionOption{ops.RowsFirst()}
	inKernel := o["Pattern"] == 0 && of[2]/heads <= attention.MaxDim
	var seen *G.Node // the number of keys that each position sees, which broadcasts to (batch, time), if not nil
	switch {
	case !causal:
	case inKernel && s.context == 0:
		fused = append(fused, ops.Causal())
	default:
		seen = s.positions(of[0], of[1])
	}
	if s.ok() && causal && s.context > 0 {
		k, v = s.remember(k, v)
	}
	if o["KeyCounts"] != 0 {
		seen = s.keyCounts(layer, of[0], seen, opts)
	}
	if !s.ok() {
		return nil
	}
	if inKernel {
		if seen != nil {
			fused = append(fused, ops.KeyCounts(seen))
		}
		return s.Keep(ops.Reshape(s.Keep(ops.Attention(q, k, v, fused...)), of...))
	}
	y, weights := s.attend(q, k, v, seen)
	for _, l := range opts {
		if l.nodes != nil && s.ok() {
			*l.nodes = append(*l.nodes, s.Keep(ops.Reshape(weights, of[0], heads, of[1], k.Shape()[1])))
		}
	}
	return s.Keep(ops.Reshape(y, of...))
}

// keyCounts returns the counts of KeyCounts, (batch, 1), or their minimum with seen, (batch, time).
func (s *Scope) keyCounts(layer string, batch int, seen *G.Node, opts []LayerOption) *G.Node {
	for _, l := range opts {
		if l.name != "KeyCounts" || !s.ok() {
			continue
		}
		shape, ok := s.shape(layer, l.node, 1, 1, "integers of shape (batch) for KeyCounts")
		if !ok {
			return nil
		}
		if dt, known := values.Dtype(l.node.Dtype()); shape[0] != batch || !known || !dt.IsInteger() {
			s.fail("%s got KeyCounts of %v and shape %v, want integers of shape (%d)", layer, l.node.Dtype(), shape, batch)
		}
		counts := s.Keep(ops.Reshape(l.node, batch, 1))
		if seen == nil {
			return counts
		}
		return s.Keep(ops.Map("min(a, b)", counts, seen))
	}
	return seen
}

// heads returns x, (batch, time, width), as (batch, time, heads, width / heads).
func (s *Scope) heads(x *G.Node, heads int) *G.Node {
	if !s.ok() {
		return nil
	}
	shape := x.Shape()
	return s.Keep(ops.Reshape(x, shape[0], shape[1], heads, shape[2]/heads))
}

// attend returns the attention of heads of q, (batch, time, heads, width), to k and v, (batch, keys, key heads, width), of its shape, and its weights, (batch, key heads,
// heads of one of keys, time, keys). A position sees as many keys as seen has, which broadcasts to (batch, time); nil is all. One that sees none gets 0.
func (s *Scope) attend(q, k, v, seen *G.Node) (y, weights *G.Node) {
	if !s.ok() {
		return nil, nil
	}
	of, to := q.Shape(), k.Shape()
	group := of[2] / to[2]
	grouped := func(x *G.Node, rows, heads int) *G.Node { // (batch, key heads, heads of one of keys, rows, width)
		return s.Keep(ops.Permute(s.Keep(ops.Reshape(x, of[0], rows, to[2], heads, of[3])), 0, 2, 3, 1, 4))
	}
	q, k, v = grouped(q, of[1], group), grouped(k, to[1], 1), grouped(v, to[1], 1)
	scores := s.Keep(ops.Map(fmt.Sprintf("a * %v", 1/math.Sqrt(float64(of[3]))), s.Keep(ops.MatMul(q, k, ops.TransB()))))
	var visible *G.Node
	if seen != nil {
		if seen.Dims() == 2 {
			seen = s.Keep(ops.Reshape(seen, of[0], 1, 1, -1, 1))
		} else {
			seen = s.Keep(ops.Reshape(seen, of[1], 1))
		}
		visible = s.Keep(ops.Less(s.iota(1, to[1]), seen))
		scores = s.Keep(ops.Where(visible, scores, s.constant(tensor.Shape{}, func(int) float64 { return math.Inf(-1) })))
	}
	weights = s.Keep(ops.SoftMax(scores, -1))
	if s.ok() && seen != nil && seen.Dims() > 2 { // a position may see no key
		weights = s.Keep(ops.Where(visible, weights, s.constant(tensor.Shape{}, func(int) float64 { return 0 })))
	}
	return s.Keep(ops.Permute(s.Keep(ops.MatMul(weights, v)), 0, 3, 1, 2, 4)), weights
}

// positions returns how many positions there are up to and with each of a run.
func (s *Scope) positions(batch, time int) *G.Node {
	own := s.iota(time)
	if p := s.before(batch, time); p != nil {
		return s.Keep(ops.Map("a + b + 1", own, p))
	}
	return s.Keep(ops.Map("a + 1", own))
}

// remember returns keys and values, each (batch, time, heads, width), after those of all positions so far. One cache holds both, side by side along the axis of heads: a run then
// updates one state in one launch.
func (s *Scope) remember(k, v *G.Node) (keys, values *G.Node) {
	rows := s.Keep(ops.Concat(2, k, v))
	if !s.ok() {
		return nil, nil
	}
	shape, heads := rows.Shape(), k.Shape()[2]
	old := s.cache("keys and values", s.dtype, shape[0], s.context, shape[2], shape[3])
	next := s.Keep(ops.Update(old, rows, s.before(shape[0], shape[1]), 1))
	s.Next(old, next)
	parts, err := ops.Split(next, 2, heads, heads)
	if s.Keep(nil, err); !s.ok() {
		return nil, nil
	}
	return parts[0], parts[1]
}

// rotate turns pairs of elements of x, (batch, time, heads, width), by angles of their positions.
func (s *Scope) rotate(x *G.Node, base float64) *G.Node {
	if !s.ok() {
		return nil
	}
	batch, time, half := x.Shape()[0], x.Shape()[1], x.Shape()[3]/2
	table := func(f func(float64) float64) *G.Node {
		t := s.constant(tensor.Shape{max(time, s.context), 1, half}, func(i int) float64 {
			return f(float64(i/half) * math.Pow(base, -float64(i%half)/float64(half)))
		})
		return s.rows(t, batch, time)
	}
	parts, err := ops.Split(x, 3, half, half)
	cos, sin := table(math.Cos), table(math.Sin)
	if s.Keep(nil, err); !s.ok() {
		return nil
	}
	return s.Keep(ops.Concat(3, s.Keep(ops.Map("a*c - b*d", parts[0], parts[1], cos, sin)), s.Keep(ops.Map("b*c + a*d", parts[0], parts[1], cos, sin))))
}

// iota returns the constants 0, 1, ... in a shape.
func (s *Scope) iota(shape ...int) *G.Node {
	if !s.ok() || !s.room("positions", tensor.Int, shape) {
		return nil
	}
	v := tensor.New(tensor.Of(tensor.Int), tensor.WithShape(shape...))
	for i := range v.Ints() {
		v.Ints()[i] = i
	}
	return s.Keep(ops.Constant(s.graph, v))
}

// constant returns a constant of the scope's element type, f(i) at each index of its memory.
func (s *Scope) constant(shape tensor.Shape, f func(i int) float64) *G.Node {
	if !s.ok() || !s.room("constants", s.dtype, shape) {
		return nil
	}
	v := tensor.New(tensor.Of(s.dtype), tensor.WithShape(shape...))
	for i := range v.Size() {
		if s.dtype == tensor.Float32 {
			v.Float32s()[i] = float32(f(i))
		} else {
			v.Float64s()[i] = f(i)
		}
	}
	return s.Keep(ops.Constant(s.graph, v))
}
