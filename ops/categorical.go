package ops

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Categorical draws an index for each row of logits, along the last axis, which is removed from the shape: tokens of a language model. The result is of
// int.
//
//	p(i) is proportional to exp(logits[i] / temperature)
//
// of the k largest logits, and of these of the fewest first ones whose probabilities add up to p or more. temperature, k and p are each a number, a node
// that is a scalar, or a node with one element a row; nil is 1, all and 1. A temperature of 0 takes the largest logit. It is an error of the run if k is
// below 1, p is not above 0 and at most 1, the temperature is below 0, or a row has a NaN, a +Inf or no finite logit. A logit of -Inf is never drawn.
//
// The result has no gradient. Draws are described at [Dropout] and cudaops.Seed.
func Categorical(logits *gorgonia.Node, temperature, k, p any) (*gorgonia.Node, error) {
	n, err := draw(logits, temperature, k, p)
	if err != nil {
		return nil, fmt.Errorf("ops: Categorical: %w", err)
	}
	return n, nil
}

func draw(logits *gorgonia.Node, temperature, k, p any) (*gorgonia.Node, error) {
	t, err := typeOf(logits)
	if err == nil {
		err = CheckFloats([]Type{t}, 1)
	}
	if err != nil {
		return nil, err
	}
	if len(t.Shape) == 0 {
		return nil, fmt.Errorf("got logits %v, want rows", t)
	}
	n, rows := t.Shape[len(t.Shape)-1], without(t.Shape, []int{len(t.Shape) - 1})
	operands := []struct {
		what  string
		value any
		none  float64
		dtype kernels.Dtype
	}{{"temperature", temperature, 1, t.Dtype}, {"k", k, float64(n), kernels.Int64}, {"p", p, 1, t.Dtype}}
	inputs, checks := []*gorgonia.Node{logits}, []string{"a >= 0", "a >= 1", "a > 0 && a <= 1"}
	for _, o := range operands {
		node, _ := o.value.(*gorgonia.Node)
		inputs = append(inputs, node)
	}
	if inputs, err = inOneGraph(inputs); err != nil {
		return nil, err
	}
	var valid []*gorgonia.Node // of operands that are nodes
	for i, o := range operands {
		node := inputs[i+1]
		if _, isNode := o.value.(*gorgonia.Node); isNode {
			if node, err = Cast(node, values.Tensor(o.dtype)); err == nil && !node.IsScalar() && !sameShape(node.Shape(), rows) {
				err = fmt.Errorf("got shape %v, want a scalar or %v", node.Shape(), rows)
			}
			var ok *gorgonia.Node
			if err == nil {
				ok, err = Map(checks[i]+" && a == a", node)
			}
			valid = append(valid, ok)
		} else {
			node, err = numberOf(inputs[0].Graph(), o.value, o.none, o.dtype, i)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.what, err)
		}
		inputs[i+1] = node
	}
	drawn, err := Apply(categorical{newDraws(inputs[0])}, inputs...)
	for _, v := range valid {
		if err == nil {
			drawn, err = invalidUnless(v, drawn)
		}
	}
	if err != nil {
		return nil, err
	}
	return Apply(checked{viewing{reshape{drawn.Shape()}}, n}, drawn)
}

// numberOf returns the constant of temperature, k or p, numbered 0 to 2.
func numberOf(g *gorgonia.ExprGraph, value any, none float64, dt kernels.Dtype, which int) (*gorgonia.Node, error) {
	x := none
	switch v := reflect.ValueOf(value); {
	case value == nil:
	case v.CanInt():
		x = float64(v.Int())
	case v.CanUint():
		x = float64(v.Uint())
	case v.CanFloat():
		x = v.Float()
	default:
		return nil, fmt.Errorf("got a %T, want a number, a node or nil", value)
	}
	switch {
	case which == 0 && !(x >= 0 && x <= math.MaxFloat32):
		return nil, fmt.Errorf("got %v, want 0 or more", x)
	case which == 1 && !(x >= 1 && x == math.Trunc(x)):
		return nil, fmt.Errorf("got %v, want an integer of 1 or more", x)
	case which == 2 && !(x > 0 && x <= 1):
		return nil, fmt.Errorf("got %v, want a number above 0, at most 1", x)
	}
	v, m := values.New(dt, tensor.ScalarShape())
	switch dt {
	case kernels.Float32:
		kernels.Elements[float32](m)[0] = float32(x)
	case kernels.Float64:
		kernels.Elements[float64](m)[0] = x
	default:
		kernels.Elements[int64](m)[0] = int64(min(x, 1<<31))
	}
	return Constant(g, v)
}

// invalidUnless returns x where a condition holds, else -1.
func invalidUnless(condition, x *gorgonia.Node) (*gorgonia.Node, error) {
	types, err := anyTypesOf([]*gorgonia.Node{condition, x})
	if err != nil {
		return nil, err
	}
	b := expr.NewBuilder(types[0].Dtype, types[1].Dtype)
	v := b.Apply(expr.Select, b.Convert(b.Operand(0), kernels.Bool), b.Operand(1), b.Integer(types[1].Dtype, -1))
	return applyFunc("IsValid", b, v, condition, x)
}

// checked is its input, of which an element of -1 is an error.
type checked struct {
	viewing
	count int
}

func (checked) String() string {
	return "Categorical (-1: a row with a NaN, an Inf or no finite logit, k below 1, p not in (0, 1], a temperature below 0)"
}

// Limit makes -1 an error.
func (c checked) Limit(int, ...Type) (count, also int, limited bool) { return c.count, 0, true }

func (c checked) below(...Type) int { return c.count }

// categorical draws without a check: -1 for rows that it cannot draw from.
type categorical struct{ from *draws }

func (categorical) String() string   { return "Categorical" }
func (c categorical) source() *draws { return c.from }
func (categorical) repeats() bool    { return false }

func (c categorical) Infer(in ...Type) (Type, error) {
	if len(in) != 4 {
		return Type{}, fmt.Errorf("got %d inputs, want 4", len(in))
	}
	if kernels.Int.Size() != kernels.Int64.Size() {
		return Type{}, errors.New("want an int of 64 bits")
	}
	shape := in[0].Shape
	return Type{kernels.Int, slices.Clone(without(shape, []int{len(shape) - 1}))}, nil
}

func (categorical) Plan(kernels.Device, ...Type) (*kernels.Plan, error) { return nil, errDraws }

func (c categorical) draw(dev kernels.Device, stream int, in ...Type) (*kernels.Plan, error) {
	n := int64(in[0].Shape[len(in[0].Shape)-1])
	return basic.Categorical(dev, in[0].Dtype, basic.Draws{Rows: in[0].Elements() / n, N: n,
		Temperature: in[1].Elements(), K: in[2].Elements(), P: in[3].Elements(), Stream: int64(stream)})
}

func (categorical) Adjoints(b *Backward) []Term { return []Term{{}, {}, {}, {}} }
