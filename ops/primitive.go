package ops

import (
	"errors"
	"fmt"
	"math"

	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Primitive holds the part of an op that is its own. [Apply] makes nodes of it, which have
// everything that Stheno's own ops have: both of Gorgonia's ways of differentiation, Do on the
// host, the kernels on a GPU. Other modules define their ops by it too, with kernels of their own:
// see docs/write-your-own-kernel.md.
//
// Parameters, such as axes or a radius, are fields of the implementing type. They are plain data,
// without functions or channels, and never change: a graph merges two nodes with equal fields and
// inputs.
type Primitive interface {
	// String returns the name with its parameters, as in "Scale[0.5]".
	String() string
	// Infer returns the type of the output, or an error that names what it got and what it wants. It
	// is called first, with any number of inputs of any types. It must not change their shapes,
	// which the result may share.
	Infer(in ...Type) (Type, error)
	// Plan returns the launches on dev, for inputs that Infer accepted.
	Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error)
	// Adjoints returns, for each input, the derivative of the loss by that input, or
	// the zero Term where the output does not depend on it smoothly. A primitive
	// that has no gradient at all returns b.None("why"). It is not called if no
	// input has floating-point numbers.
	Adjoints(b *Backward) []Term
}

// Pointwise is a primitive whose output at each index is a function of the inputs' elements at that
// index. The inputs broadcast to the output's shape by numpy's rule: shapes are aligned at their last axes, and an input repeats
// along axes that it lacks and along its axes of one element. A machine that compiles graphs uses the
// function instead of the plan and makes one kernel of it and its neighbours.
type Pointwise interface {
	Primitive
	// Func returns the function, with one operand for each input, for inputs that Infer accepted.
	Func(in ...Type) (expr.Func, error)
}

// Rowwise is a primitive that computes a function with reductions over rows, such as softmax. A machine that compiles graphs uses
// the function instead of the plan and makes one kernel of it and its neighbours.
type Rowwise interface {
	Primitive
	// Rows returns the function, for inputs that Infer accepted.
	Rows(in ...Type) (Rows, error)
}

// Rows is a function with reductions. The inputs broadcast to one shape by numpy's rule. A row is all elements of that shape that
// differ in their indices along some axes alone. Without axes it is a function of elements, for one that takes indices.
type Rows struct {
	Func   expr.Func    // operands: the inputs, then Iotas; it has one output; see expr.ParseRows
	Shape  tensor.Shape // that the inputs broadcast to
	Axes   []int        // of a row, rising
	PerRow bool         // the output has one element for each row instead of one for each element
	// Iotas are operands that no memory holds: each element, an Int64, is the sum of its indices times these strides, one for each axis of
	// Shape. Stride 1 along an axis and 0 elsewhere gives the index along it.
	Iotas [][]int
}

// Plan returns the launches that compute the function of inputs of given types. It is the Plan of most [Rowwise] primitives.
func (r Rows) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	views := make([]codegen.View, len(in))
	for i, t := range in {
		var ok bool
		if views[i], ok = broadcastView(t.Shape, r.Shape); !ok {
			return nil, fmt.Errorf("input %d: got shape %v, want one that broadcasts to %v", i, t.Shape, r.Shape)
		}
	}
	for _, strides := range r.Iotas {
		views = append(views, codegen.View{Strides: strides, Iota: true})
	}
	if len(r.Axes) == 0 {
		return codegen.Map(dev, r.Func, r.Shape, views...)
	}
	return codegen.Rows(dev, r.Func, r.Shape, r.Axes, []bool{r.PerRow}, views...)
}

// indexAlong returns the strides of an iota that is the index along an axis of a shape.
func indexAlong(axis int, shape tensor.Shape) []int {
	strides := make([]int, len(shape))
	strides[axis] = 1
	return strides
}

// Indexing is a primitive with inputs of integers that must be indices. Kernels ignore other integers; a machine returns an error that names
// the first one.
type Indexing interface {
	Primitive
	// Limit reports whether the elements of an input must be from 0 to below count, or also, for inputs that Infer accepted.
	Limit(input int, in ...Type) (count, also int, limited bool)
}

// Viewer is a primitive whose output is its one input seen through a view: elements in another order, repeated, left out, or 0
// beyond the bounds of the view. A machine that compiles graphs reads the input's memory through the view and copies nothing, except for
// a view with bounds, which becomes part of the kernel that reads it where possible.
type Viewer interface {
	Primitive
	// View returns the view of the input, in row-major order, in the output's shape, for an input that Infer accepted.
	View(in ...Type) (codegen.View, error)
}

// Type is the element type and the shape of an operand.
type Type struct {
	Dtype kernels.Dtype
	Shape tensor.Shape
}

// String returns the element type and the shape, as in "float32 (3, 4)".
func (t Type) String() string { return fmt.Sprintf("%v %v", values.Tensor(t.Dtype), t.Shape) }

// Bytes returns the size of a tensor of the type.
func (t Type) Bytes() int64 { return t.Elements() * t.Dtype.Size() }

// Elements returns the number of elements, 1 for a scalar.
func (t Type) Elements() int64 { return kernels.Count(t.Shape) }

// equal reports whether two types have the same element type and shape.
func (t Type) equal(u Type) bool { return t.Dtype == u.Dtype && sameShape(t.Shape, u.Shape) }

// check returns an error if kernels have no such element type, or if there are no elements or more
// than can be counted in bytes.
func (t Type) check() error {
	if t.Dtype > kernels.Bool {
		return fmt.Errorf("got kernels.Dtype(%d), which is not an element type", uint8(t.Dtype))
	}
	n := 1
	for _, d := range t.Shape {
		if d < 1 {
			return fmt.Errorf("got shape %v, want at least one element", t.Shape)
		}
		if n > math.MaxInt/16/d {
			return fmt.Errorf("got shape %v, which has too many elements", t.Shape)
		}
		n *= d
	}
	return nil
}

// CheckFloats returns an error unless there are n inputs of one element type,
// float32 or float64. It is the first line of most Infer methods.
func CheckFloats(in []Type, n int) error {
	if len(in) != n {
		return fmt.Errorf("got %d inputs, want %d", len(in), n)
	}
	for i, t := range in {
		if !t.Dtype.IsFloat() {
			return fmt.Errorf("input %d: got %v, want float32 or float64", i, values.Tensor(t.Dtype))
		}
		if t.Dtype != in[0].Dtype {
			return fmt.Errorf("input %d is %v, input 0 is %v: want one type", i, values.Tensor(t.Dtype), values.Tensor(in[0].Dtype))
		}
	}
	return nil
}

// Apply applies a primitive to nodes of one graph and returns the node of its output. Constants,
// made by [gorgonia.NewConstant], become a part of that graph. The error names the primitive and
// the input, and states the value received and the values allowed. A panic of the primitive is
// returned as an error.
func Apply(p Primitive, inputs ...*gorgonia.Node) (*gorgonia.Node, error) {
	name, err := nameOf(p)
	if err != nil {
		return nil, fmt.Errorf("ops: Apply: %w", err)
	}
	if len(inputs) == 0 {
		return nil, fmt.Errorf("ops: %s: got no inputs, want at least one", name)
	}
	in := make([]Type, len(inputs))
	for i, n := range inputs {
		if in[i], err = typeOf(n); err != nil {
			return nil, fmt.Errorf("ops: %s: input %d: %w", name, i, err)
		}
	}
	op, err := newOp(p, in...)
	if err != nil {
		return nil, fmt.Errorf("ops: %w", err)
	}
	n, err := op.apply(inputs)
	if err != nil {
		return nil, fmt.Errorf("ops: %w", err)
	}
	return n, nil
}

// floatsOf returns inputs, one or more of one floating-point type, in one graph, and their types. The error names the input.
func floatsOf(inputs ...*gorgonia.Node) ([]*gorgonia.Node, []Type, error) {
	inputs, types, err := inputsOf(inputs...)
	if err == nil {
		err = CheckFloats(types, len(types))
	}
	return inputs, types, err
}

// inputsOf returns inputs, one or more, in one graph, and their types. The error names the input.
func inputsOf(inputs ...*gorgonia.Node) ([]*gorgonia.Node, []Type, error) {
	types, err := anyTypesOf(inputs)
	if err == nil {
		inputs, err = inOneGraph(inputs)
	}
	return inputs, types, err
}

// anyTypesOf returns the types of inputs, one or more. The error names the input.
func anyTypesOf(inputs []*gorgonia.Node) ([]Type, error) {
	if len(inputs) == 0 {
		return nil, errors.New("got no inputs, want at least one")
	}
	types := make([]Type, len(inputs))
	for i, n := range inputs {
		var err error
		if types[i], err = typeOf(n); err != nil {
			return nil, fmt.Errorf("input %d: %w", i, err)
		}
	}
	return types, nil
}

// dtypes returns the element types of types, and shapesOf their shapes.
func dtypes(types []Type) []kernels.Dtype {
	list := make([]kernels.Dtype, len(types))
	for i, t := range types {
		list[i] = t.Dtype
	}
	return list
}

func shapesOf(types []Type) []tensor.Shape {
	list := make([]tensor.Shape, len(types))
	for i, t := range types {
		list[i] = t.Shape
	}
	return list
}

// typeOf returns the type of a node, or an error that explains why the node cannot
// be an input.
func typeOf(n *gorgonia.Node) (t Type, err error) {
	if n == nil {
		return t, errors.New("got a nil node")
	}
	if n.Graph() == nil && !internal.IsConstant(n.Op()) {
		return t, fmt.Errorf("node %s is in no graph", internal.Name(n))
	}
	of, ok := internal.ElementType(n)
	if !ok {
		return t, fmt.Errorf("node %s has no element type", internal.Name(n))
	}
	dt, ok := values.Dtype(of)
	if !ok {
		return t, fmt.Errorf("got %v, want an element type that kernels have", of)
	}
	if n.Shape().Dims() != n.Dims() {
		return t, fmt.Errorf("node %s has no shape yet", internal.Name(n))
	}
	t = Type{dt, n.Shape()}
	return t, t.check()
}
