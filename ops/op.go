package ops

import (
	"fmt"
	"hash"
	"hash/fnv"
	"slices"
	"sync"

	"github.com/chewxy/hm"
	"github.com/stheno-ml/stheno/internal/fingerprint"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/internal/hostblas"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/gemm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Op is a primitive on inputs of fixed types: a Gorgonia Op that is
// differentiable symbolically (gorgonia.Grad) and by dual values
// (gorgonia.NewLispMachine), runs on the host through Do and on any device
// through its plan. It is immutable, so it is safe for several goroutines.
type Op struct {
	primitive   Primitive
	name        string
	in          []Type
	out         Type
	identity    identity
	forms       forms
	derivatives func() ([]Term, error) // derivatives by the inputs, made at first use
}

var (
	_ gorgonia.SDOp            = (*Op)(nil)
	_ gorgonia.ADOp            = (*Op)(nil)
	_ gorgonia.UsePreallocDoer = (*Op)(nil)
	_ kernels.Planner          = (*Op)(nil)
)

// newOp checks the inputs' types and makes the op. Errors begin with the
// primitive's name.
func newOp(p Primitive, in ...Type) (*Op, error) {
	name, err := nameOf(p)
	if err != nil {
		return nil, err
	}
	o := &Op{primitive: p, name: name, in: make([]Type, len(in))}
	for i, t := range in {
		o.in[i] = Type{t.Dtype, slices.Clone(t.Shape)}
	}
	err = guard.Recover("Infer", func() (err error) { o.out, err = p.Infer(o.in...); return err })
	if err == nil {
		if err = o.out.check(); err != nil {
			err = fmt.Errorf("output: %w", err)
		}
	}
	if err == nil {
		o.forms, err = formsOf(p, o.in, o.out)
	}
	if err == nil {
		o.identity, err = identify(p, name, o.in)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	o.out.Shape = slices.Clone(o.out.Shape)
	o.derivatives = sync.OnceValues(o.derive)
	return o, nil
}

// apply applies the op to nodes.
func (o *Op) apply(inputs []*gorgonia.Node) (*gorgonia.Node, error) {
	inputs, err := inOneGraph(inputs)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", o, err)
	}
	for i, n := range inputs {
		switch t, err := typeOf(n); {
		case err != nil:
			return nil, fmt.Errorf("%v: input %d: %w", o, i, err)
		case !t.equal(o.in[i]):
			return nil, fmt.Errorf("%v: input %d: got %v, want %v", o, i, t, o.in[i])
		case n.Graph() != inputs[0].Graph():
			return nil, fmt.Errorf("%v: input %d: got a node of another graph, want that of input 0", o, i)
		}
	}
	return applyDistinct(o.forGraph().(distinct), inputs)
}

// distinct is an op that differs from others in a graph by its identity.
type distinct interface {
	gorgonia.Op
	known() identity
	renamed() distinct // the same op with another identity
}

func (o *Op) known() identity { return o.identity }

func (o *Op) renamed() distinct {
	other := *o
	other.identity = fingerprint.Of(o.identity[:])
	return other.forGraph().(distinct)
}

// applyDistinct is gorgonia.ApplyOp with a node of that op and these inputs. Gorgonia takes two nodes of one type and shape for one if their hashes, of 32 bits, agree, as they do by
// chance in a large graph, and returns the first. The op then gets another identity.
func applyDistinct(op distinct, inputs []*gorgonia.Node) (*gorgonia.Node, error) {
	for range 100 {
		n, err := gorgonia.ApplyOp(op, inputs...)
		if err != nil {
			return nil, err
		}
		children, err := internal.Children(n)
		if of, ok := n.Op().(distinct); err != nil || ok && of.known() == op.known() && slices.Equal(children, inputs) {
			return n, nil
		}
		op = op.renamed()
	}
	return nil, fmt.Errorf("%v: got another node of the graph for it, want a new one", op)
}

// Primitive returns the primitive of the op.
func (o *Op) Primitive() Primitive { return o.primitive }

// String returns the name of the primitive.
func (o *Op) String() string { return o.name }

// Plan returns the launches of the op on dev. It implements kernels.Planner.
func (o *Op) Plan(dev kernels.Device) (p *kernels.Plan, err error) {
	err = guard.Recover("Plan", func() (err error) { p, err = o.primitive.Plan(dev, o.in...); return err })
	if err == nil {
		err = o.checkPlan(p, dev)
	}
	if err != nil {
		return nil, fmt.Errorf("ops: %v: %w", o, err)
	}
	return p, nil
}

// Pointwise returns the op's function of elements, if its primitive is [Pointwise]; ok is false for
// any other.
func (o *Op) Pointwise() (f expr.Func, ok bool) { return o.forms.function, o.forms.pointwise }

// Rows returns the op's function of rows, if its primitive is [Rowwise]; ok is false for any other.
func (o *Op) Rows() (r Rows, ok bool) { return o.forms.rows, o.forms.rowwise }

// View returns the op as a view of its input in row-major order, if its primitive is a [Viewer]; ok is false for any other.
func (o *Op) View() (v codegen.View, ok bool) { return o.forms.view, o.forms.viewer }

// Concat returns the axis along which the op concatenates its inputs, if it does; ok is false for any other op.
func (o *Op) Concat() (axis int, ok bool) {
	c, ok := o.primitive.(concat)
	return c.axis, ok
}

// Collective returns the op as a collective, with 0 ranks for one that any number of ranks computes; ok is false for any other op.
func (o *Op) Collective() (c kernels.Collective, ok bool) {
	of, ok := o.primitive.(collective)
	return of.Collective, ok
}

// Product returns the op as a product of matrices, if it is one; ok is false for any other.
func (o *Op) Product() (p gemm.Product, ok bool) {
	m, ok := o.primitive.(matMul)
	if !ok {
		return p, false
	}
	p, err := m.Product(o.in...)
	return p, err == nil
}

// Arity returns the number of inputs.
func (o *Op) Arity() int { return len(o.in) }

// Type returns the function type of the op. The op is made for given inputs, so its type has no
// type variables.
func (o *Op) Type() hm.Type {
	types := make([]hm.Type, 0, len(o.in)+1)
	for _, t := range o.in {
		types = append(types, t.hm())
	}
	return hm.NewFnType(append(types, o.out.hm())...)
}

// hm returns the type as Gorgonia writes it.
func (t Type) hm() hm.Type {
	of := values.Tensor(t.Dtype)
	if t.Shape.IsScalar() {
		return of
	}
	return gorgonia.TensorType{Dims: t.Shape.Dims(), Of: of}
}

// InferShape returns the output's shape. It is an error if the inputs' shapes
// are not those that the op was made for.
func (o *Op) InferShape(in ...gorgonia.DimSizer) (tensor.Shape, error) {
	shapes, err := gorgonia.DimSizersToShapes(in)
	if err != nil {
		return nil, fmt.Errorf("ops: %v: %w", o, err)
	}
	if !slices.EqualFunc(shapes, o.in, func(s tensor.Shape, t Type) bool { return sameShape(s, t.Shape) }) {
		return nil, fmt.Errorf("ops: %v: got inputs of shapes %v, want %v", o, shapes, o.in)
	}
	return o.out.Shape.Clone(), nil
}

// Do runs the op's plan on the host.
func (o *Op) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	out, mem, err := values.Make(o.out.Dtype, o.out.Shape)
	if err != nil {
		return nil, fmt.Errorf("ops: %v: its output: %w", o, err)
	}
	if err := o.run(mem, in); err != nil {
		return nil, err
	}
	return out, nil
}

// UsePreallocDo is Do into prealloc; where prealloc cannot be written in place
// (other type, shape or strides), the result is a new value.
func (o *Op) UsePreallocDo(prealloc gorgonia.Value, in ...gorgonia.Value) (gorgonia.Value, error) {
	mem, ok := values.Own(prealloc, o.out.Dtype, o.out.Shape)
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

// run runs the op's plan on the host.
func (o *Op) run(out []byte, in []gorgonia.Value) error {
	if err := o.checkValues(in); err != nil {
		return err
	}
	if err := o.checkLimits(in); err != nil {
		return err
	}
	mem := make([][]byte, len(in))
	for i, v := range in {
		var err error
		if mem[i], err = values.Bytes(v); err != nil {
			return fmt.Errorf("ops: %v: input %d is %w", o, i, err)
		}
	}
	p, state, err := o.planOnHost()
	if err != nil {
		return err
	}
	if state != nil {
		mem = append(mem, state)
	}
	by, err := hostblas.For(gorgonia.WhichBLAS())
	if err != nil {
		return fmt.Errorf("ops: %v: %w", o, err)
	}
	if err := (kernels.Host{BLAS: by}).Run(p, mem, [][]byte{out}, nil); err != nil {
		return fmt.Errorf("ops: %v: %w", o, err)
	}
	return nil
}

// DiffWRT reports by which inputs Gorgonia is to differentiate: by all of them, also for an op
// without a gradient, so that SymDiff is called and returns the reason.
func (o *Op) DiffWRT(inputs int) []bool {
	terms, err := o.derivatives()
	wrt := make([]bool, max(inputs, 0))
	for i := range wrt {
		wrt[i] = err != nil || i < len(terms) && terms[i].term != nil
	}
	return wrt
}

// SymDiff returns the nodes of the derivatives by each input, nil where there is
// none.
func (o *Op) SymDiff(inputs gorgonia.Nodes, output, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	if len(inputs) != len(o.in) {
		return nil, fmt.Errorf("ops: %v: SymDiff got %d inputs, want %d", o, len(inputs), len(o.in))
	}
	terms, err := o.derivatives()
	if err != nil {
		return nil, err
	}
	nodes, err := evaluate(terms, append(slices.Clone(inputs), output, grad), (*Op).apply)
	if err != nil {
		return nil, fmt.Errorf("ops: adjoint of %v: %w", o, err)
	}
	return nodes, nil
}

// DoDiff adds the derivatives by each input to the inputs' gradients.
func (o *Op) DoDiff(ctx gorgonia.ExecutionContext, inputs gorgonia.Nodes, output *gorgonia.Node) error {
	if len(inputs) != len(o.in) {
		return fmt.Errorf("ops: %v: DoDiff got %d inputs, want %d", o, len(inputs), len(o.in))
	}
	if output == nil || slices.Contains(inputs, nil) {
		return fmt.Errorf("ops: %v: DoDiff got a nil node", o)
	}
	terms, err := o.derivatives()
	if err != nil {
		return err
	}
	if err := settle(ctx); err != nil {
		return fmt.Errorf("ops: %v: %w", o, err)
	}
	grad, err := output.Grad()
	if err != nil {
		return fmt.Errorf("ops: %v: the output has no gradient: %w", o, err)
	}
	var leaves []gorgonia.Value
	for _, n := range inputs {
		leaves = append(leaves, n.Value())
	}
	leaves = append(leaves, output.Value(), grad)
	derivs, err := evaluate(terms, leaves, func(o *Op, operands []gorgonia.Value) (gorgonia.Value, error) { return o.Do(operands...) })
	if err != nil {
		return fmt.Errorf("ops: adjoint of %v: %w", o, err)
	}
	for i, d := range derivs {
		if terms[i].term == nil {
			continue
		}
		if err := o.accumulate(inputs[i], i, d); err != nil {
			return err
		}
	}
	return nil
}

// accumulate adds d to the gradient of an input in place.
func (o *Op) accumulate(input *gorgonia.Node, i int, d gorgonia.Value) error {
	sum, err := input.Grad()
	if err != nil {
		return fmt.Errorf("ops: %v: input %d has no gradient: %w", o, i, err)
	}
	mem, ok := values.Own(sum, o.in[i].Dtype, o.in[i].Shape)
	if !ok {
		return fmt.Errorf("ops: %v: the gradient of input %d is a %T of shape %v, want contiguous %v", o, i, sum, sum.Shape(), o.in[i])
	}
	add, err := values.Bytes(d)
	if err != nil {
		return fmt.Errorf("ops: %v: derivative by input %d is %w", o, i, err)
	}
	p := basic.Add(kernels.HostDevice(), o.in[i].Dtype, o.in[i].Elements())
	return p.Run([][]byte{mem, add}, mem, nil) // element by element: in place is safe
}

// ReturnsPtr is true: a machine may reuse the memory of the output.
func (o *Op) ReturnsPtr() bool { return true }

// CallsExtern is false: Do runs Go.
func (o *Op) CallsExtern() bool { return false }

// OverwritesInput is -1: no kernel works in place.
func (o *Op) OverwritesInput() int { return -1 }

// WriteHash writes the identity of the op: the type, name and fields of the primitive, and the
// inputs' types.
func (o *Op) WriteHash(h hash.Hash) { fmt.Fprintf(h, "stheno %v", o.identity) }

// Hashcode returns a hash of the identity.
func (o *Op) Hashcode() uint32 {
	h := fnv.New32a()
	o.WriteHash(h)
	return h.Sum32()
}
