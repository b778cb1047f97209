package ops

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Reduce reduces a tensor of any shape to a scalar by an expression of a, what has
// been reduced so far, and b, the next element:
//
//	ops.Reduce(x, "a + b", 0)             the sum
//	ops.Reduce(x, "a + b*b", 0)           the sum of squares
//	ops.Reduce(x, "max(a, abs(b))", 0)    the largest magnitude
//
// The expression is in the language of [Map]. Chunks are reduced side by side and
// then joined, so that it must come down to a + f(b), a * f(b), max(a, f(b)) or
// min(a, f(b)), f being any expression of b:
//
//	out = identity op f(x[0]) op f(x[1]) op ...
//
// It is computed in double precision and rounded once, in the same order in every
// run. identity is 0 for +, 1 for *, and any number for max and min. On a GPU the
// kernel is made of the expression when it first runs there.
//
// An expression that cannot be read or joined, or has more than 4096 characters, is an
// error with the position of what is wrong, counted from 1. Reduce has no gradient.
func Reduce(x *gorgonia.Node, expression string, identity float64) (*gorgonia.Node, error) {
	r, err := kernels.ParseReduction(expression)
	if err != nil {
		return nil, fmt.Errorf("ops: Reduce(%.80q): %w", expression, err)
	}
	neutral := r.Identity()
	if math.IsNaN(identity) || !math.IsInf(neutral, 0) && identity != neutral {
		want := "a number"
		if !math.IsInf(neutral, 0) {
			want = fmt.Sprint(neutral)
		}
		return nil, fmt.Errorf("ops: Reduce(%q): got the identity %v, want %s for %s", expression, identity, want, r.Operator)
	}
	return Apply(reduction{expression, r.String(), identity}, x)
}

// reduction is Reduce by an expression that kernels.ParseReduction takes.
type reduction struct {
	expression string // as given
	normal     string // in the normal form
	identity   float64
}

func (r reduction) String() string { return fmt.Sprintf("Reduce[%s, %v]", r.normal, r.identity) }

func (reduction) Infer(in ...Type) (Type, error) {
	if err := CheckFloats(in, 1); err != nil {
		return Type{}, err
	}
	return Type{in[0].Dtype, tensor.ScalarShape()}, nil
}

func (r reduction) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	parsed, err := kernels.ParseReduction(r.expression)
	if err != nil {
		return nil, err
	}
	return kernels.Reduce(dev, in[0].Dtype, in[0].Elements(), parsed, r.identity), nil
}

func (reduction) Adjoints(b *Backward) []Term {
	return b.None("its expression is not differentiated; Sum, Dot and Gorgonia's own ops have gradients")
}
