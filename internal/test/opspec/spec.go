// Package opspec describes the ops of package ops for everything that runs all of them: tests,
// benchmarks, sanitizers, the comparison with Gorgonia on the host and the README's table. Each op
// has a file here, named as in package ops, which registers its Spec; there is no other list.
package opspec

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Spec describes an op: its formula, the cases that it runs in, and the inputs that it must
// refuse.
type Spec struct {
	Name    string // the constructor's name
	Formula string // one line for the op table
	Doc     string // one sentence for the op table
	Cases   []Case
	Bad     []Bad
	// Random draws a case for the property tests.
	Random func(r *rand.Rand) Case
	// Wide draws a case for benches, see [Draw].
	Wide func(s *Sizes) Case
	// Peers is Python that calls other libraries for the same result, see bench/op_peers.py.
	Peers string
	// Tolerance is relative to the float64 reference: a factor of the sum of the absolute values of
	// an element's terms, in units of the type's epsilon.
	Tolerance float64
	// Types are the element types of the inputs, nil for float32 and float64.
	Types []kernels.Dtype
	// AnyType marks ops that take integers and bool as well, and Mixed those whose inputs may be of several types.
	AnyType, Mixed bool
	// Exact marks ops that count: the output is int64 and equals the reference.
	Exact bool
	// NoGradient marks ops that refuse to be differentiated.
	NoGradient bool
	// Once marks ops whose gradients have no gradient themselves.
	Once bool
	// Stops marks ops whose gradient is 0 by definition, other than the limit of differences.
	Stops bool
	// Several marks ops that refuse inputs of one element.
	Several bool
	// Generated marks ops that are functions, for which kernels are generated, that consist of other ops, or whose cases have constants of
	// integers. Packages codegen, gemm and basic test their kernels in all sizes, so the Spec needs neither Wide nor a case beyond 2^31 bytes.
	Generated bool
}

// ToleranceOf returns the tolerance in a type.
func (s Spec) ToleranceOf(dt kernels.Dtype) float64 {
	if dt == kernels.Float64 && s.Tolerance > 0 {
		// Sums in double are rounded once for float32, but at every addition for
		// float64. The errors mostly cancel, in sums of any length.
		return s.Tolerance + 3
	}
	return s.Tolerance
}

// Build applies an op, or several, to nodes.
type Build func(in ...*gorgonia.Node) (*gorgonia.Node, error)

// Case is one use of an op on inputs of given shapes. Tests run it unless it is
// Timed, Large or there for the comparison with Gorgonia.
type Case struct {
	Name   string
	Shapes []tensor.Shape
	Parameters
	// Types are the element types that the case runs in, nil for those of the Spec.
	Types []kernels.Dtype
	Build Build
	// Composed is set if Build makes a graph of several ops, which has no plan of
	// its own: machines alone run it.
	Composed bool
	// Reference computes in float64, by the plainest loops, the output and for
	// each element the sum of the absolute values of its terms, both row-major.
	// No code is shared with the kernels.
	Reference func(in ...[]float64) (out, magnitude []float64)
	// Magnitude computes the same sums of absolute values by an op applied to the absolute inputs:
	// timed inputs are too large for Reference. nil means Build itself.
	Magnitude Build
	// Timed are the element types that benchmarks on a GPU time the case in.
	Timed []kernels.Dtype
	// Gorgonia builds the same with Gorgonia's own ops. The benchmark on the host compares the two.
	Gorgonia Build
	// Large marks operands beyond 2^31 bytes. Tests run them on request.
	Large bool
	// Fill writes an operand of a Timed case whose time depends on its values, nil for random
	// numbers.
	Fill func(operand []byte)
	// Least returns the bytes that a device moves at least for operands of a type, where an
	// operand must be read more than once; nil where reading the inputs once and writing the output do.
	Least func(dt kernels.Dtype, dev kernels.Device) int64
	// Version is the numbered version that Build selects, 0 for the op itself.
	Version int
	// Coarse marks the cases whose float32 kernel keeps fewer bits of numbers near
	// the least normal one, as the description of the version or the op mentions.
	Coarse bool
	// Atomic marks the versions that add up in the order in which atomic
	// operations happen: within the tolerance, but not bit-equal over runs.
	Atomic bool
}

// Bad is a use of an op that its constructor must refuse.
type Bad struct {
	Name   string
	Shapes []tensor.Shape // of float64 inputs
	Build  Build
	Want   string // words of the error
}

// specs is filled by the files of the ops, one register call each.
var specs []Spec

// register adds a Spec at start-up; it returns true so that a file can say
// var _ = register(...).
func register(s Spec) bool {
	if s.Types == nil {
		s.Types = []kernels.Dtype{kernels.Float32, kernels.Float64}
	}
	for i, c := range s.Cases {
		s.Cases[i] = complete(s, c)
	}
	if draw := s.Random; draw != nil {
		s.Random = func(r *rand.Rand) Case { return complete(s, draw(r)) }
	}
	specs = append(specs, s)
	slices.SortFunc(specs, func(a, b Spec) int { return strings.Compare(a.Name, b.Name) })
	return true
}

// complete fills in the fields that a case inherits from its Spec.
func complete(s Spec, c Case) Case {
	if c.Types == nil {
		c.Types = s.Types
	}
	if c.Magnitude == nil {
		c.Magnitude = c.Build
	}
	return c
}

// All returns the Specs of all ops in the order of their names.
func All() []Spec { return slices.Clone(specs) }

// Find returns the Spec of an op.
func Find(name string) (s Spec, ok bool) {
	i := slices.IndexFunc(specs, func(s Spec) bool { return s.Name == name })
	if i < 0 {
		return s, false
	}
	return specs[i], true
}

// Tested reports whether the case is small and has a reference, so that every
// test suite runs it.
func (c Case) Tested() bool { return c.Timed == nil && c.Gorgonia == nil && !c.Large }

// Bytes returns the least number of bytes that a device moves for a plan of the case.
func (c Case) Bytes(p *kernels.Plan, dt kernels.Dtype, dev kernels.Device) int64 {
	if c.Least == nil {
		return p.Bytes()
	}
	return c.Least(dt, dev)
}

// Elements returns the number of elements of all inputs.
func (c Case) Elements() int {
	n := 0
	for _, s := range c.Shapes {
		n += s.TotalSize()
	}
	return n
}

// timed is a case that benchmarks time in the given types, float32 alone if none
// is given.
func timed(name string, c Case, types ...kernels.Dtype) Case {
	if types == nil {
		types = []kernels.Dtype{kernels.Float32}
	}
	c.Name, c.Timed = name, types
	return c
}

// inBoth is a timed case in both floating-point types.
var inBoth = []kernels.Dtype{kernels.Float32, kernels.Float64}

// against is a case for the comparison on the host with Gorgonia's own ops.
func against(name string, c Case, by Build) Case {
	c.Name, c.Gorgonia = name, by
	return c
}

// large is a case with an operand beyond 2^31 bytes, in one type.
func large(c Case, of kernels.Dtype) Case {
	c.Name, c.Large, c.Types = "large "+c.Name, true, []kernels.Dtype{of}
	return c
}

// versioned is a case of an op, timed or not, run by version v, which build
// applies.
func versioned(v int, c Case, build Build) Case {
	name := fmt.Sprintf("version %d %s", v, c.Name)
	if c.Timed != nil {
		name = fmt.Sprintf("%s version %d", c.Name, v)
	}
	c.Name, c.Build, c.Version = name, build, v
	return c
}

// bad is a use that the constructor refuses.
func bad(name string, build Build, want string, shapes ...tensor.Shape) Bad {
	return Bad{Name: name, Shapes: shapes, Build: build, Want: want}
}

// Nodes makes the case's inputs, of type dt and in a graph of their own, and applies
// Build to them. They have the values vs, or none where vs is nil.
func (c Case) Nodes(dt kernels.Dtype, vs []gorgonia.Value) (in gorgonia.Nodes, out *gorgonia.Node, err error) {
	g := gorgonia.NewGraph()
	for i, s := range c.Shapes {
		opts := []gorgonia.NodeConsOpt{gorgonia.WithShape(s...), gorgonia.WithName(fmt.Sprintf("in%d", i))}
		if vs != nil {
			opts = append(opts, gorgonia.WithValue(vs[i]))
		}
		in = append(in, gorgonia.NewTensor(g, values.Tensor(dt), s.Dims(), opts...))
	}
	out, err = c.Build(in...)
	return in, out, err
}

// Plan returns how a case that is not Composed runs on dev with inputs of type
// dt, and the type of its output.
func (c Case) Plan(dt kernels.Dtype, dev kernels.Device) (*kernels.Plan, ops.Type, error) {
	_, out, err := c.Nodes(dt, nil)
	if err != nil {
		return nil, ops.Type{}, err
	}
	planner, ok := out.Op().(kernels.Planner)
	if !ok {
		return nil, ops.Type{}, fmt.Errorf("the op is a %T, want a kernels.Planner", out.Op())
	}
	result, ok := values.Dtype(out.Dtype())
	if !ok {
		return nil, ops.Type{}, fmt.Errorf("the output is of %v", out.Dtype())
	}
	p, err := planner.Plan(dev)
	if err == nil && len(p.Inputs) != len(c.Shapes) {
		err = fmt.Errorf("the plan takes %d inputs, the case has %d: it is made of several ops", len(p.Inputs), len(c.Shapes))
	}
	return p, ops.Type{Dtype: result, Shape: out.Shape()}, err
}

// unary is an op of one input.
func unary(f func(x *gorgonia.Node) (*gorgonia.Node, error)) Build {
	return func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return f(in[0]) }
}

// binary is an op of two inputs.
func binary(f func(a, b *gorgonia.Node) (*gorgonia.Node, error)) Build {
	return func(in ...*gorgonia.Node) (*gorgonia.Node, error) { return f(in[0], in[1]) }
}

// Devices returns GPUs of the kinds that plans distinguish.
func Devices() []kernels.Device {
	return []kernels.Device{
		{Name: "Volta", Major: 7, SMs: 80, SharedOptin: 96 << 10, L2: 6 << 20, Memory: 16 << 30, Cooperative: true},
		{Name: "Ampere", Major: 8, SMs: 108, SharedOptin: 163 << 10, L2: 40 << 20, Memory: 40 << 30, Cooperative: true},
		{Name: "Hopper", Major: 9, SMs: 132, SharedOptin: 227 << 10, L2: 50 << 20, Memory: 80 << 30, Cooperative: true},
		{Name: "Blackwell", Major: 10, SMs: 148, SharedOptin: 227 << 10, L2: 126 << 20, Memory: 180 << 30, Cooperative: true},
	}
}
