package ops

import (
	"fmt"
	"hash"
	"hash/fnv"

	"github.com/chewxy/hm"
	"github.com/stheno-ml/stheno/internal/fingerprint"
	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/internal/values"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Constant returns a node of g with a copy of a value: a tensor, a Gorgonia value, or a number or bool of Go. Constants of one type
// and shape with the same bits are one node; gorgonia.NewConstant makes one node of those that are printed alike, too. Gradients by a
// constant do not exist.
func Constant(g *gorgonia.ExprGraph, value any) (*gorgonia.Node, error) {
	if g == nil {
		return nil, fmt.Errorf("ops: Constant: got a nil graph")
	}
	c := constant{}
	if err := guard.Recover("the value", func() error { c.v = gorgonia.NewConstant(value).Value(); return nil }); err != nil {
		return nil, fmt.Errorf("ops: Constant: got a %T, want a tensor, a Gorgonia value, a number or a bool", value)
	}
	dt, ok := values.Dtype(c.v.Dtype())
	if !ok {
		return nil, fmt.Errorf("ops: Constant: got %v, want an element type that kernels have", c.v.Dtype())
	}
	b, err := values.Bytes(c.v)
	if err != nil {
		return nil, fmt.Errorf("ops: Constant: the value is %w", err)
	}
	t := Type{dt, c.v.Shape().Clone()}
	if t.Elements() == 0 {
		return nil, fmt.Errorf("ops: Constant: got shape %v, want at least one element", t.Shape)
	}
	var memory []byte
	c.v, memory = values.New(dt, t.Shape)
	copy(memory, b)
	c.bits = fingerprint.Of(memory)
	return applyDistinct(c, []*gorgonia.Node{g.AddNode(gorgonia.NewConstant(0, gorgonia.WithName("input of constants")))})
}

// constant is an op that ignores its input, which Gorgonia needs: gorgonia.Grad removes nodes of an op without inputs that nothing reads, and then finds
// other nodes by wrong numbers.
type constant struct {
	v    gorgonia.Value
	bits identity // hash of the elements
}

func (c constant) known() identity   { return c.bits }
func (c constant) renamed() distinct { return constant{c.v, fingerprint.Of(c.bits[:])} }

// Constant returns the value, which must not be written.
func (c constant) Constant() gorgonia.Value { return c.v }

func (c constant) Arity() int { return 1 }
func (c constant) Type() hm.Type {
	return hm.NewFnType(gorgonia.TypeOf(gorgonia.NewI(0)), gorgonia.TypeOf(c.v))
}
func (c constant) String() string {
	return fmt.Sprintf("Constant[%v of shape %v, %.8x]", c.v.Dtype(), c.v.Shape(), c.bits)
}

func (c constant) InferShape(...gorgonia.DimSizer) (tensor.Shape, error) {
	return c.v.Shape().Clone(), nil
}

// Do returns a copy: machines write into results.
func (c constant) Do(...gorgonia.Value) (gorgonia.Value, error) { return values.Clone(c.v) }

func (c constant) DiffWRT(int) []bool { return []bool{false} }

// SymDiff returns no derivative by the input.
func (c constant) SymDiff(gorgonia.Nodes, *gorgonia.Node, *gorgonia.Node) (gorgonia.Nodes, error) {
	return gorgonia.Nodes{nil}, nil
}

// DoDiff adds nothing to the gradient of the input.
func (c constant) DoDiff(gorgonia.ExecutionContext, gorgonia.Nodes, *gorgonia.Node) error { return nil }

func (c constant) ReturnsPtr() bool     { return true }
func (c constant) CallsExtern() bool    { return false }
func (c constant) OverwritesInput() int { return -1 }

func (c constant) WriteHash(h hash.Hash) {
	fmt.Fprintf(h, "stheno constant %v %v %v", c.v.Dtype(), c.v.Shape(), c.bits)
}

func (c constant) Hashcode() uint32 {
	h := fnv.New32a()
	c.WriteHash(h)
	return h.Sum32()
}
