package ops

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// hidden has every kind of field. Its String leaves all of them out.
type hidden struct {
	b bool
	i int8
	u uint16
	f float32
	c complex128
	s string
	l []int
	a [2]int
	m map[string][]int
	p *hidden
	x any
}

func (hidden) String() string                 { return "Hidden" }
func (hidden) Infer(in ...Type) (Type, error) { return in[0], nil }

func (hidden) Plan(kernels.Device, ...Type) (*kernels.Plan, error) { return nil, nil }
func (hidden) Adjoints(b *Backward) []Term                         { return b.None("") }

// alike is hidden by another type.
type alike hidden

func (alike) String() string                 { return "Hidden" }
func (alike) Infer(in ...Type) (Type, error) { return in[0], nil }

func (alike) Plan(kernels.Device, ...Type) (*kernels.Plan, error) { return nil, nil }
func (alike) Adjoints(b *Backward) []Term                         { return b.None("") }

// Two primitives that differ in any field, in the type or in the types of inputs are
// two nodes; equal ones are one, wherever in memory their fields lie.
func TestIdentity(t *testing.T) {
	float32x3 := Type{kernels.Float32, tensor.Shape{3}}
	identify := func(p Primitive, in ...Type) identity {
		op, err := newOp(p, in...)
		if err != nil {
			t.Fatal(err)
		}
		return op.identity
	}
	seen := map[identity]int{}
	for i, p := range []Primitive{
		hidden{}, &hidden{}, alike{}, hidden{b: true}, hidden{i: 1}, hidden{u: 1}, hidden{f: 1}, hidden{f: float32(math.Copysign(0, -1))}, hidden{c: 1i}, hidden{s: "1"},
		hidden{l: []int{0}}, hidden{l: []int{0, 0}}, hidden{a: [2]int{0, 1}}, hidden{m: map[string][]int{"a": nil}}, hidden{m: map[string][]int{"a": {1}, "b": {2}}},
		hidden{m: map[string][]int{"a": {2}, "b": {1}}}, hidden{p: &hidden{}}, hidden{p: &hidden{i: 1}}, hidden{x: int32(0)}, hidden{x: int64(0)}, hidden{x: alike{}}, hidden{x: hidden{}},
	} {
		for k, in := range [][]Type{{vector3}, {float32x3}, {vector3, vector3}, {{kernels.Float64, tensor.Shape{1, 3}}}} {
			id := identify(p, in...)
			if other, ok := seen[id]; ok {
				t.Errorf("primitives %d and %d, on inputs %d, have one identity", other, i, k)
			}
			seen[id] = i
		}
	}
	make2 := func() Primitive {
		m := map[string][]int{}
		for i := range 20 {
			m[fmt.Sprint(i)] = []int{i}
		}
		return hidden{m: m, p: &hidden{l: []int{7}}, x: &hidden{}}
	}
	if a, b := identify(make2(), vector3), identify(make2(), vector3); a != b {
		t.Error("equal primitives have two identities")
	}
	loop := &hidden{}
	loop.p = loop
	for _, p := range []Primitive{loop, hidden{x: func() {}}, hidden{x: make(chan int)}} {
		if _, err := newOp(p, vector3); err == nil || !strings.Contains(err.Error(), "want plain parameters") {
			t.Errorf("a primitive that is no plain data gave error %v", err)
		}
	}
	// The same in every run and on every machine: recorded once.
	id := identify(exp{}, vector3)
	if got, want := fmt.Sprintf("%x", id[:4]), "fd80adba"; got != want {
		t.Errorf("the identity of Exp begins with %s, want %s", got, want)
	}
}

// Nodes of an op on different inputs are different nodes, also where their hashes agree, so that Gorgonia takes one for the other. One op on one input is one node.
func TestHashesAgree(t *testing.T) {
	node := func(g *gorgonia.ExprGraph, i int) *gorgonia.Node {
		n, err := StopGradient(gorgonia.NewScalar(g, tensor.Float64, gorgonia.WithName(fmt.Sprint("x", i))))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	first, second, seen := 0, 0, map[uint32]int{}
	for i := 0; second == 0; i++ {
		hash := node(gorgonia.NewGraph(), i).Hashcode()
		if other, ok := seen[hash]; ok {
			first, second = other, i
		}
		seen[hash] = i
	}
	t.Logf("of x%d and x%d", first, second)
	g := gorgonia.NewGraph()
	x, y := node(g, first), node(g, second)
	if x == y {
		t.Error("two inputs have one node")
	}
	if node(g, second) != y || node(g, first) != x {
		t.Error("one input has two nodes")
	}
}
