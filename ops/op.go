package ops

import (
	"fmt"
	"hash"
	"hash/fnv"
	"math"
	"slices"

	"github.com/chewxy/hm"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A technique is what one op adds to what all ops share: its name, how the
// output's shape follows from the inputs', how it runs, and its adjoints. The
// parameters (axes, radius, transposes) are fields of the implementing type;
// the shapes reach plan and adjoints checked by infer.
type technique interface {
	// String names the technique with its parameters, as in "Sum[0 1]".
	String() string
	// infer gives the output's shape, or says what is wrong with the inputs'.
	infer(in []tensor.Shape) (tensor.Shape, error)
	// plan gives the launches on dev.
	plan(dev kernels.Device, dt kernels.Dtype, in []tensor.Shape) (*kernels.Plan, error)
	// adjoints gives, for each input, the op that computes the derivative of
	// the loss by that input. Further entries are intermediate results that
	// entries before them use.
	adjoints(in []tensor.Shape) []adjoint
}

// typed is a technique with element types of its own. The others take float32
// and float64, and give what they take.
type typed interface {
	// result gives the output's type for the inputs' type, or says that it is not
	// taken.
	result(in kernels.Dtype) (kernels.Dtype, error)
}

// undifferentiable is a technique without derivatives: it says why in a sentence
// that goes on from its name.
type undifferentiable interface{ noGradient() string }

// An adjoint computes the derivative of a loss by one input of an op: a
// technique applied to operands, each one an input's number, gradient, or, from
// the number of inputs on, the index in the list of adjoints of an intermediate
// result further down. A nil technique stands for the single operand itself.
//
// One definition serves both of Gorgonia's ways: SymDiff applies it to nodes,
// DoDiff to values.
type adjoint struct {
	technique technique
	operands  []int
}

// gradient as an adjoint's operand is the derivative of the loss by the op's
// output.
const gradient = -1

// Op is a technique on inputs of fixed type and shapes: a Gorgonia Op that is
// differentiable symbolically (gorgonia.Grad) and by dual values
// (gorgonia.NewLispMachine), runs on the host through Do and on any device
// through its plan. It is immutable, so it is safe for several goroutines.
type Op struct {
	technique
	dtype  kernels.Dtype // of the inputs
	result kernels.Dtype // of the output
	in     []tensor.Shape
	out    tensor.Shape
}

var (
	_ gorgonia.SDOp            = (*Op)(nil)
	_ gorgonia.ADOp            = (*Op)(nil)
	_ gorgonia.UsePreallocDoer = (*Op)(nil)
	_ kernels.Planner          = (*Op)(nil)
)

// newOp checks type and shapes and makes the op.
func newOp(t technique, dt kernels.Dtype, in ...tensor.Shape) (*Op, error) {
	result, err := resultOf(t, dt)
	if err != nil {
		return nil, fmt.Errorf("ops: %v: input 0: %w", t, err)
	}
	out, err := t.infer(in)
	if err == nil {
		err = checkSize(out)
	}
	if err != nil {
		return nil, fmt.Errorf("ops: %v: %w", t, err)
	}
	return &Op{technique: t, dtype: dt, result: result, in: in, out: out}, nil
}

// resultOf gives the type of a technique's output.
func resultOf(t technique, in kernels.Dtype) (kernels.Dtype, error) {
	if t, ok := t.(typed); ok {
		return t.result(in)
	}
	if !in.IsFloat() {
		return 0, fmt.Errorf("got %v, want float32 or float64", values.Tensor(in))
	}
	return in, nil
}

// apply checks the nodes and applies the technique to them. It is the body of
// every public constructor.
func apply(t technique, nodes ...*gorgonia.Node) (*gorgonia.Node, error) {
	in := make([]tensor.Shape, len(nodes))
	var dt kernels.Dtype
	for i, n := range nodes {
		d, err := check(n)
		if err != nil {
			return nil, fmt.Errorf("ops: %v: input %d: %w", t, i, err)
		}
		if i > 0 && d != dt {
			return nil, fmt.Errorf("ops: %v: input %d is %v, input 0 is %v: want one type", t, i, values.Tensor(d), values.Tensor(dt))
		}
		if n.Graph() != nodes[0].Graph() {
			return nil, fmt.Errorf("ops: %v: input %d is of another graph than input 0", t, i)
		}
		dt, in[i] = d, n.Shape()
	}
	op, err := newOp(t, dt, in...)
	if err != nil {
		return nil, err
	}
	return gorgonia.ApplyOp(forMachines(op), nodes...)
}

// check says what is wrong with a node as an input.
func check(n *gorgonia.Node) (kernels.Dtype, error) {
	if n == nil {
		return 0, fmt.Errorf("got a nil node")
	}
	if n.Graph() == nil {
		return 0, fmt.Errorf("node %v is in no graph", n)
	}
	var t tensor.Dtype
	switch typ := n.Type().(type) {
	case tensor.Dtype:
		t = typ
	case gorgonia.TensorType:
		t, _ = typ.Of.(tensor.Dtype)
	default:
		return 0, fmt.Errorf("node %v has no element type", n)
	}
	dt, ok := values.Dtype(t)
	if !ok {
		return 0, fmt.Errorf("got %v, which no op takes", t)
	}
	if n.Shape().Dims() != n.Dims() {
		return 0, fmt.Errorf("node %v has no shape yet", n)
	}
	return dt, checkSize(n.Shape())
}

// checkSize says that a tensor of the shape has no elements, or more than can
// be counted in bytes.
func checkSize(s tensor.Shape) error {
	n := 1
	for _, d := range s {
		if d < 1 {
			return fmt.Errorf("got shape %v, want at least one element", s)
		}
		if n > math.MaxInt/16/d {
			return fmt.Errorf("got shape %v, which has too many elements", s)
		}
		n *= d
	}
	return nil
}

// Plan gives the launches of the op on dev. It implements kernels.Planner.
func (o *Op) Plan(dev kernels.Device) (*kernels.Plan, error) {
	p, err := o.plan(dev, o.dtype, o.in)
	if err != nil {
		return nil, fmt.Errorf("ops: %v: %w", o, err)
	}
	return p, nil
}

// Arity is the number of inputs.
func (o *Op) Arity() int { return len(o.in) }

// Type is the function type of the op; since it is made for given inputs, it
// is free of type variables.
func (o *Op) Type() hm.Type {
	types := make([]hm.Type, 0, len(o.in)+1)
	for _, s := range o.in {
		types = append(types, typeOf(o.dtype, s))
	}
	return hm.NewFnType(append(types, typeOf(o.result, o.out))...)
}

func typeOf(dt kernels.Dtype, s tensor.Shape) hm.Type {
	t := values.Tensor(dt)
	if s.IsScalar() {
		return t
	}
	return gorgonia.TensorType{Dims: s.Dims(), Of: t}
}

// InferShape gives the output's shape. It is an error if the inputs' shapes are
// not those that the op was made for.
func (o *Op) InferShape(in ...gorgonia.DimSizer) (tensor.Shape, error) {
	shapes, err := gorgonia.DimSizersToShapes(in)
	if err != nil {
		return nil, fmt.Errorf("ops: %v: %w", o, err)
	}
	if !slices.EqualFunc(shapes, o.in, func(a, b tensor.Shape) bool { return slices.Equal(a, b) }) {
		return nil, fmt.Errorf("ops: %v: got inputs of shapes %v, want %v", o, shapes, o.in)
	}
	return o.out.Clone(), nil
}

// Do runs the op's plan on the host.
func (o *Op) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	out, mem := values.New(o.result, o.out)
	if err := o.run(mem, in); err != nil {
		return nil, err
	}
	return out, nil
}

// UsePreallocDo is Do into prealloc; where prealloc cannot be written in place
// (other type, shape or strides), the result is a new value.
func (o *Op) UsePreallocDo(prealloc gorgonia.Value, in ...gorgonia.Value) (gorgonia.Value, error) {
	mem, ok := values.Own(prealloc, o.result, o.out)
	if !ok {
		return o.Do(in...)
	}
	for _, v := range in { // the kernels' outputs do not alias inputs
		if v == prealloc {
			return o.Do(in...)
		}
	}
	if err := o.run(mem, in); err != nil {
		return nil, err
	}
	return prealloc, nil
}

// checkValues says what is wrong with values as inputs.
func (o *Op) checkValues(in []gorgonia.Value) error {
	if len(in) != len(o.in) {
		return fmt.Errorf("ops: %v: got %d inputs, want %d", o, len(in), len(o.in))
	}
	for i, v := range in {
		if v == nil {
			return fmt.Errorf("ops: %v: input %d has no value", o, i)
		}
		if v.Dtype() != values.Tensor(o.dtype) || !slices.Equal(v.Shape(), o.in[i]) {
			return fmt.Errorf("ops: %v: input %d is %v of shape %v, want %v of shape %v",
				o, i, v.Dtype(), v.Shape(), values.Tensor(o.dtype), o.in[i])
		}
	}
	return nil
}

// run runs the op's plan on the host.
func (o *Op) run(out []byte, in []gorgonia.Value) error {
	if err := o.checkValues(in); err != nil {
		return err
	}
	mem := make([][]byte, len(in))
	for i, v := range in {
		var err error
		if mem[i], err = values.Bytes(v); err != nil {
			return fmt.Errorf("ops: %v: input %d is %w", o, i, err)
		}
	}
	p, err := o.Plan(kernels.HostDevice())
	if err != nil {
		return err
	}
	return p.Run(mem, out, nil)
}

// DiffWRT says that the op is differentiable by every input, or by none.
func (o *Op) DiffWRT(inputs int) []bool {
	wrt := make([]bool, inputs)
	for i := range wrt {
		wrt[i] = o.differentiable() == nil
	}
	return wrt
}

// differentiable says why the op has no gradient.
func (o *Op) differentiable() error {
	if t, ok := o.technique.(undifferentiable); ok {
		return fmt.Errorf("ops: %v has no gradient: %s", o, t.noGradient())
	}
	return nil
}

// SymDiff gives the nodes of the derivatives by each input.
func (o *Op) SymDiff(inputs gorgonia.Nodes, output, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	if err := o.differentiable(); err != nil {
		return nil, err
	}
	if len(inputs) != len(o.in) {
		return nil, fmt.Errorf("ops: %v: SymDiff got %d inputs, want %d", o, len(inputs), len(o.in))
	}
	return evaluate(o.adjoints(o.in), inputs, grad, func(t technique, operands []*gorgonia.Node) (*gorgonia.Node, error) {
		n, err := apply(t, operands...)
		if err != nil {
			return nil, fmt.Errorf("ops: adjoint of %v: %w", o, err)
		}
		return n, nil
	})
}

// DoDiff adds the derivatives by each input to the inputs' gradients.
func (o *Op) DoDiff(ctx gorgonia.ExecutionContext, inputs gorgonia.Nodes, output *gorgonia.Node) error {
	if err := o.differentiable(); err != nil {
		return err
	}
	if len(inputs) != len(o.in) {
		return fmt.Errorf("ops: %v: DoDiff got %d inputs, want %d", o, len(inputs), len(o.in))
	}
	if err := settle(ctx); err != nil {
		return fmt.Errorf("ops: %v: %w", o, err)
	}
	grad, err := output.Grad()
	if err != nil {
		return fmt.Errorf("ops: %v: the output has no gradient: %w", o, err)
	}
	type number struct {
		value gorgonia.Value
		shape tensor.Shape
	}
	in := make([]number, len(inputs))
	for i, n := range inputs {
		in[i] = number{n.Value(), o.in[i]}
	}
	derivs, err := evaluate(o.adjoints(o.in), in, number{grad, o.out}, func(t technique, operands []number) (out number, err error) {
		values, shapes := make([]gorgonia.Value, len(operands)), make([]tensor.Shape, len(operands))
		for k, n := range operands {
			values[k], shapes[k] = n.value, n.shape
		}
		op, err := newOp(t, o.dtype, shapes...)
		if err != nil {
			return out, fmt.Errorf("ops: adjoint of %v: %w", o, err)
		}
		out.shape = op.out
		out.value, err = op.Do(values...)
		return out, err
	})
	if err != nil {
		return err
	}
	for i, d := range derivs {
		if err := o.accumulate(inputs[i], i, d.value); err != nil {
			return err
		}
	}
	return nil
}

// evaluate gives the derivatives by the inputs, as nodes or as values.
func evaluate[T any](list []adjoint, inputs []T, grad T, apply func(t technique, operands []T) (T, error)) (_ []T, err error) {
	results := make([]T, len(list))
	for i := len(list) - 1; i >= 0; i-- {
		a := list[i]
		operands := make([]T, len(a.operands))
		for k, j := range a.operands {
			switch {
			case j == gradient:
				operands[k] = grad
			case j < len(inputs):
				operands[k] = inputs[j]
			default:
				operands[k] = results[j]
			}
		}
		if results[i] = operands[0]; a.technique != nil {
			if results[i], err = apply(a.technique, operands); err != nil {
				return nil, err
			}
		}
	}
	return results[:len(inputs)], nil
}

// accumulate adds d to the gradient of an input in place.
func (o *Op) accumulate(input *gorgonia.Node, i int, d gorgonia.Value) error {
	sum, err := input.Grad()
	if err != nil {
		return fmt.Errorf("ops: %v: input %d has no gradient: %w", o, i, err)
	}
	mem, ok := values.Own(sum, o.dtype, o.in[i])
	if !ok {
		return fmt.Errorf("ops: %v: the gradient of input %d is a %T of shape %v, want contiguous %v of shape %v",
			o, i, sum, sum.Shape(), values.Tensor(o.dtype), o.in[i])
	}
	add, err := values.Bytes(d)
	if err != nil {
		return fmt.Errorf("ops: %v: derivative by input %d is %w", o, i, err)
	}
	p := kernels.Add(kernels.HostDevice(), o.dtype, int64(o.in[i].TotalSize()))
	return p.Run([][]byte{mem, add}, mem, nil) // element by element: in place is safe
}

// ReturnsPtr says that the output is memory that a machine may reuse.
func (o *Op) ReturnsPtr() bool { return true }

// CallsExtern is false: Do runs Go.
func (o *Op) CallsExtern() bool { return false }

// OverwritesInput is -1: no kernel works in place.
func (o *Op) OverwritesInput() int { return -1 }

// WriteHash writes what tells this op from another one.
func (o *Op) WriteHash(h hash.Hash) {
	var t fmt.Stringer = o.technique
	if f, ok := t.(foreign); ok {
		t = f.Technique // whose type tells modules apart
	}
	fmt.Fprintf(h, "stheno %T %v %v %v", t, t, o.dtype, o.in)
}

// Hashcode is a hash of WriteHash.
func (o *Op) Hashcode() uint32 {
	h := fnv.New32a()
	o.WriteHash(h)
	return h.Sum32()
}

// plain makes []int of a shape, for the kernels.
func plain(s tensor.Shape) []int { return []int(s) }
