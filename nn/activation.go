package nn

import (
	"fmt"

	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
)

// ReLU is max(x, 0), element by element.
func ReLU(s *Scope, x *G.Node) *G.Node {
	s.shape("ReLU", x, 0, 0, "a node")
	return s.try("ReLU", func() (*G.Node, error) { return G.Rectify(x) })
}

// LeakyReLU is x above 0 and slope x elsewhere, element by element. PyTorch's slope is 0.01.
func LeakyReLU(s *Scope, x *G.Node, slope float64) *G.Node {
	return s.Keep(ops.Map(fmt.Sprintf("select(a > 0, a, %v*a)", slope), x))
}

// GELU is ops.GELU, element by element.
func GELU(s *Scope, x *G.Node) *G.Node { return s.Keep(ops.GELU(x)) }

// GELUTanh is ops.GELUTanh, the GELU of GPT-2, element by element.
func GELUTanh(s *Scope, x *G.Node) *G.Node { return s.Keep(ops.GELUTanh(x)) }

// SiLU is x / (1 + e⁻ˣ), element by element.
func SiLU(s *Scope, x *G.Node) *G.Node { return s.Keep(ops.SiLU(x)) }

// Tanh is the hyperbolic tangent, element by element.
func Tanh(s *Scope, x *G.Node) *G.Node { return s.Keep(ops.Map("tanh(a)", x)) }

// Sigmoid is 1 / (1 + e⁻ˣ), element by element.
func Sigmoid(s *Scope, x *G.Node) *G.Node { return s.Keep(ops.Map("sigmoid(a)", x)) }

// Dropout sets elements to 0 with a probability in runs that train: see ops.Dropout and [Evaluation].
func Dropout(s *Scope, x *G.Node, probability float64) *G.Node {
	if _, ok := s.shape("Dropout", x, 0, 0, "a node"); ok && s.evaluate && probability >= 0 && probability <= 1 {
		return s.Keep(x, nil)
	}
	return s.Keep(ops.Dropout(x, probability))
}

// Flatten joins all axes but the first: (batch, ...) becomes (batch, features).
func Flatten(s *Scope, x *G.Node) *G.Node {
	shape, ok := s.shape("Flatten", x, 1, 0, "(batch, ...)")
	if !ok {
		return nil
	}
	return s.Keep(ops.Reshape(x, shape[0], -1))
}

// Layer is a layer without further arguments, such as [ReLU], or a function with them:
//
//	func(s *nn.Scope, x *gorgonia.Node) *gorgonia.Node { return nn.Linear(s, x, 10) }
type Layer func(s *Scope, x *G.Node) *G.Node

// Sequential applies layers one after the other, each at the path of its number, as PyTorch's Sequential: 0, 1, ...
func Sequential(s *Scope, x *G.Node, layers ...Layer) *G.Node {
	s.shape("Sequential", x, 0, 0, "a node")
	for i, layer := range layers {
		if layer == nil {
			s.fail("Sequential got a nil layer %d", i)
			return nil
		}
		x = layer(s.At(i), x)
	}
	return s.Keep(x, nil)
}

// Residual is x + layer(x).
func Residual(s *Scope, x *G.Node, layer Layer) *G.Node {
	if layer == nil {
		s.fail("Residual got a nil layer")
		return nil
	}
	return s.Keep(ops.Map("a + b", x, layer(s, x)))
}
