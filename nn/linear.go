package nn

import (
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
)

// Linear is PyTorch's Linear: weight (out, in), and bias (out) without [NoBias]. x is (..., in), the result (..., out).
//
//	y = x weightᵀ + bias
func Linear(s *Scope, x *G.Node, out int, opts ...LayerOption) *G.Node {
	o := s.read("Linear", opts, settings{"NoBias": 0})
	shape, ok := s.shape("Linear", x, 1, 0, "(..., in)")
	if !ok {
		return nil
	}
	in := shape[len(shape)-1]
	return s.Keep(ops.Linear(x, s.Parameter("weight", fanIn(in), out, in), s.bias("bias", o, fanIn(in), out)))
}

// bias returns a parameter, or nil with NoBias.
func (s *Scope) bias(name string, o settings, init Init, shape ...int) *G.Node {
	if o["NoBias"] != 0 {
		return nil
	}
	return s.Parameter(name, init, shape...)
}

// Embedding is PyTorch's Embedding: the rows of weight (count, width) at ids, integers of any shape (...). The result is (..., width).
func Embedding(s *Scope, ids *G.Node, count, width int) *G.Node {
	return s.Keep(ops.Embedding(s.Parameter("weight", Normal(1), count, width), ids))
}
