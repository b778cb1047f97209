package nn

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// LSTM is PyTorch's LSTM with batch_first: x is (batch, time, in), the result (batch, time, hidden). Layer l has weight_ih_l (4 hidden, in), weight_hh_l (4 hidden,
// hidden), bias_ih_l and bias_hh_l, in the order of gates i, f, g, o. Options: [Layers], [LayerDropout], [Bidirectional], [Carry], [NoBias].
//
//	c = sigmoid(f) c + sigmoid(i) tanh(g)
//	h = sigmoid(o) tanh(c)
func LSTM(s *Scope, x *G.Node, hidden int, opts ...LayerOption) *G.Node {
	return s.recurrent("LSTM", 4, []string{"h", "c"}, x, hidden, opts, func(in, re *G.Node, state []*G.Node) []*G.Node {
		g := s.split(s.Keep(ops.Map("a + b", in, re)), 4)
		if !s.ok() {
			return state
		}
		c := s.Keep(ops.Map("sigmoid(b)*d + sigmoid(a)*tanh(c)", g[0], g[1], g[2], state[1]))
		return []*G.Node{s.Keep(ops.Map("sigmoid(a)*tanh(b)", g[3], c)), c}
	})
}

// GRU is PyTorch's GRU with batch_first: as [LSTM], with weights of 3 hidden rows, in the order of gates r, z, n.
//
//	n = tanh(n of x + sigmoid(r) (n of h))
//	h = (1 - sigmoid(z)) n + sigmoid(z) h
func GRU(s *Scope, x *G.Node, hidden int, opts ...LayerOption) *G.Node {
	return s.recurrent("GRU", 3, []string{"h"}, x, hidden, opts, func(in, re *G.Node, state []*G.Node) []*G.Node {
		i, h := s.split(in, 3), s.split(re, 3)
		if !s.ok() {
			return state
		}
		const next = "(1 - sigmoid(b + e)) * tanh(c + sigmoid(a + d)*f) + sigmoid(b + e)*g"
		return []*G.Node{s.Keep(ops.Map(next, i[0], i[1], i[2], h[0], h[1], h[2], state[0]))}
	})
}

// split cuts gates, (batch, n hidden), into n parts.
func (s *Scope) split(x *G.Node, n int) []*G.Node {
	if !s.ok() {
		return nil
	}
	sizes := make([]int, n)
	for i := range sizes {
		sizes[i] = x.Shape()[1] / n
	}
	parts, err := ops.Split(x, 1, sizes...)
	s.Keep(nil, err)
	return parts
}

// step returns the next state of a recurrent layer, whose first part is the output, from the gates of the input and of the output before, (batch, gates hidden) each.
type step func(in, re *G.Node, state []*G.Node) []*G.Node

// recurrent unrolls the layers of a recurrent network.
func (s *Scope) recurrent(layer string, gates int, names []string, x *G.Node, hidden int, opts []LayerOption, next step) *G.Node {
	o := s.read(layer, opts, settings{"Layers": 1, "Carry": 0, "NoBias": 0, "Bidirectional": 0, "LayerDropout": 0})
	_, ok := s.shape(layer, x, 3, 3, "(batch, time, width)")
	switch {
	case !ok:
	case hidden < 1 || o["Layers"] < 1:
		s.fail("%s got hidden %d and %v layers, want numbers above 0", layer, hidden, o["Layers"])
	case o["Carry"]*o["Bidirectional"] != 0:
		s.fail("%s got Carry and Bidirectional, want one of them: the state before a sequence's end is not known", layer)
	}
	for l := 0; l < int(o["Layers"]) && s.ok(); l++ {
		if p := o["LayerDropout"]; l > 0 && p != 0 {
			x = Dropout(s, x, p)
		}
		y := s.unroll(fmt.Sprintf("_l%d", l), gates, names, x, hidden, o, false, next)
		if o["Bidirectional"] != 0 {
			y = s.Keep(ops.Concat(2, y, s.unroll(fmt.Sprintf("_l%d_reverse", l), gates, names, x, hidden, o, true, next)))
		}
		x = y
	}
	return s.Keep(x, nil)
}

// unroll unrolls a layer over the times of x, the last one first if reverse is set.
func (s *Scope) unroll(suffix string, gates int, names []string, x *G.Node, hidden int, o settings, reverse bool, next step) *G.Node {
	if !s.ok() {
		return nil
	}
	batch, time, init := x.Shape()[0], x.Shape()[1], Uniform(1/math.Sqrt(float64(hidden)))
	parameter := func(name string, shape ...int) *G.Node { return s.Parameter(name+suffix, init, shape...) }
	ih, hh := parameter("weight_ih", gates*hidden, x.Shape()[2]), parameter("weight_hh", gates*hidden, hidden)
	var bias, re *G.Node
	if o["NoBias"] == 0 {
		bias, re = parameter("bias_ih", gates*hidden), parameter("bias_hh", gates*hidden)
	}
	inputs := s.Keep(ops.Linear(x, ih, bias))
	var begin []*G.Node
	for _, name := range names {
		if o["Carry"] != 0 {
			begin = append(begin, s.Cache(name+suffix, s.dtype, batch, hidden))
		} else {
			begin = append(begin, s.constant(tensor.Shape{batch, hidden}, func(int) float64 { return 0 }))
		}
	}
	state, outputs := begin, make([]*G.Node, time)
	for i := range time {
		t := i
		if reverse {
			t = time - 1 - i
		}
		now := s.Keep(ops.Reshape(s.Keep(ops.Slice(inputs, nil, G.S(t, t+1))), batch, gates*hidden))
		state = next(now, s.Keep(ops.Linear(state[0], hh, re)), state)
		outputs[t] = state[0]
	}
	if o["Carry"] != 0 {
		for i, n := range begin {
			s.Next(n, state[i])
		}
	}
	return s.Keep(ops.Stack(1, outputs...))
}
