package nn

import (
	"slices"

	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
)

// CrossEntropy is the mean cross-entropy of labels, integers of shape (...), under the softmax of logits, (..., classes): see ops.CrossEntropy for the
// options. Under ops.PerRow it is the cross-entropy of each label, of shape (...).
func CrossEntropy(s *Scope, logits, labels *G.Node, opts ...ops.CrossEntropyOption) *G.Node {
	shape, ok := s.shape("CrossEntropy", logits, 2, 0, "logits (..., classes)")
	if _, has := s.shape("CrossEntropy", labels, 1, 0, "labels (...)"); !ok || !has {
		return nil
	}
	last := len(shape) - 1
	if !slices.Equal(shape[:last], labels.Shape()) {
		s.fail("CrossEntropy got logits of shape %v and labels of shape %v, want (..., classes) and (...)", shape, labels.Shape())
		return nil
	}
	if last > 1 {
		logits, labels = s.Keep(ops.Reshape(logits, -1, shape[last])), s.Keep(ops.Reshape(labels, -1))
	}
	y := s.Keep(ops.CrossEntropy(logits, labels, opts...))
	if y != nil && y.Dims() > 0 && last > 1 {
		y = s.Keep(ops.Reshape(y, shape[:last]...))
	}
	return y
}

// MSE is the mean of (a - b)². The shapes must be equal: a (n, 1) and a (n) would make a (n, n).
func MSE(s *Scope, a, b *G.Node) *G.Node { return s.mean("MSE", "square(a - b)", a, b) }

// L1 is the mean of |a - b|, PyTorch's L1Loss. The shapes must be equal.
func L1(s *Scope, a, b *G.Node) *G.Node { return s.mean("L1", "abs(a - b)", a, b) }

// SmoothL1 is PyTorch's SmoothL1Loss: the mean of (a - b)² / 2 where |a - b| is below 1, and of |a - b| - 1/2 elsewhere. The shapes must be equal.
func SmoothL1(s *Scope, a, b *G.Node) *G.Node {
	return s.mean("SmoothL1", "select(abs(a - b) < 1, 0.5*square(a - b), abs(a - b) - 0.5)", a, b)
}

// BCEWithLogits is the mean binary cross-entropy of targets, 0 to 1, under the sigmoid of logits of the same shape:
//
//	mean of max(x, 0) - x t + log(1 + e^-|x|)
func BCEWithLogits(s *Scope, logits, targets *G.Node) *G.Node {
	return s.mean("BCEWithLogits", "select(a > 0, a*(1 - b) + softplus(-a), softplus(a) - a*b)", logits, targets)
}

// mean returns the mean of an expression of two nodes of one shape.
func (s *Scope) mean(layer, expression string, a, b *G.Node) *G.Node {
	of, _ := s.shape(layer, a, 0, 0, "a node")
	and, ok := s.shape(layer, b, 0, 0, "a node")
	if ok && !slices.Equal(of, and) {
		s.fail("%s got shapes %v and %v, want one shape", layer, of, and)
	}
	if !s.ok() {
		return nil
	}
	return s.Keep(ops.Mean(s.Keep(ops.Map(expression, a, b))))
}
