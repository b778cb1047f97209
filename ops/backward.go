package ops

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/internal/guard"
)

// Backward builds the derivatives of a loss by the inputs of a primitive: see [Primitive].Adjoints.
// Its terms become nodes for gorgonia.Grad and values for gorgonia.NewLispMachine. A mistake, such
// as the number of an input that does not exist, becomes the error of the differentiation.
//
//	// out = a * b, element by element
//	func (p mul) Adjoints(b *ops.Backward) []ops.Term {
//		return []ops.Term{b.Apply(p, b.Grad(), b.In(1)), b.Apply(p, b.In(0), b.Grad())}
//	}
type Backward struct {
	in        []Term
	out, grad Term
	reason    string // why there is no gradient
	err       error  // the first mistake
}

// Term is a value in the computation of derivatives. The zero Term is a
// derivative that is zero everywhere or that is not defined.
type Term struct{ *term }

// A term is an input, the output or its derivative, or the result of an op on
// other terms.
type term struct {
	of       *Backward
	typ      Type
	leaf     int // where op is nil: inputs are 0, 1, ..., then the output and its derivative
	op       *Op // also nil after a mistake
	operands []Term
}

// Type returns the type of the value, the zero Type for the zero Term.
func (t Term) Type() Type {
	if t.term == nil {
		return Type{}
	}
	return t.typ
}

func newBackward(o *Op) *Backward {
	b := new(Backward)
	for i, t := range o.in {
		b.in = append(b.in, Term{&term{of: b, typ: t, leaf: i}})
	}
	b.out = Term{&term{of: b, typ: o.out, leaf: len(o.in)}}
	b.grad = Term{&term{of: b, typ: o.out, leaf: len(o.in) + 1}}
	return b
}

// In returns input i, counted from 0.
func (b *Backward) In(i int) Term {
	if i < 0 || i >= len(b.in) {
		return b.fail("got input %d, want 0 to %d", i, len(b.in)-1)
	}
	return b.in[i]
}

// Out returns the output.
func (b *Backward) Out() Term { return b.out }

// Grad returns the derivative of the loss by the output. It has the output's
// type.
func (b *Backward) Grad() Term { return b.grad }

// Apply returns the result of a primitive on operands. It is computed once, and only if a wanted
// derivative needs it.
func (b *Backward) Apply(p Primitive, operands ...Term) Term {
	if b.err != nil {
		return Term{&term{of: b}}
	}
	name, err := nameOf(p)
	if err != nil {
		return b.fail("%w", err)
	}
	types := make([]Type, len(operands))
	for i, t := range operands {
		if err := b.check(t); err != nil {
			return b.fail("%s: operand %d is %w", name, i, err)
		}
		types[i] = t.typ
	}
	op, err := newOp(p, types...)
	if err != nil {
		return b.fail("%w", err)
	}
	return Term{&term{of: b, typ: op.out, op: op, operands: operands}}
}

// None declares that the primitive has no gradient. The error of a differentiation includes the
// reason, a sentence. Adjoints returns the result of None.
func (b *Backward) None(reason string) []Term {
	b.reason = reason
	if reason == "" {
		b.reason = "none is defined"
	}
	return nil
}

// fail keeps the first mistake.
func (b *Backward) fail(format string, a ...any) Term {
	if b.err == nil {
		b.err = fmt.Errorf(format, a...)
	}
	return Term{&term{of: b}}
}

// check returns an error unless t is a value of b.
func (b *Backward) check(t Term) error {
	switch {
	case t.term == nil:
		return errors.New("the zero Term, want a value")
	case t.of != b:
		return errors.New("a Term of another differentiation")
	}
	return nil
}

// derive returns the derivatives by the op's inputs: zero Terms if none has floating-point numbers.
func (o *Op) derive() (terms []Term, err error) {
	if !slices.ContainsFunc(o.in, func(t Type) bool { return t.Dtype.IsFloat() }) {
		return make([]Term, len(o.in)), nil
	}
	b := newBackward(o)
	err = guard.Recover("Adjoints", func() error { terms = o.primitive.Adjoints(b); return nil })
	switch {
	case b.err != nil:
		err = b.err
	case err != nil:
	case b.reason != "":
		return nil, fmt.Errorf("ops: %v has no gradient: %s", o, b.reason)
	case len(terms) != len(o.in):
		err = fmt.Errorf("got derivatives by %d inputs, want %d: the zero Term by one that has none", len(terms), len(o.in))
	}
	for i := 0; i < len(terms) && err == nil; i++ {
		t, in := terms[i], o.in[i]
		switch {
		case t.term == nil:
		case t.of != b:
			err = fmt.Errorf("the derivative by input %d is %w", i, b.check(t))
		case !in.Dtype.IsFloat():
			err = fmt.Errorf("got a derivative by input %d, which is %v: want the zero Term", i, in)
		case !t.typ.equal(in):
			err = fmt.Errorf("the derivative by input %d is %v, want %v", i, t.typ, in)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("ops: adjoints of %v: %w", o, err)
	}
	return terms, nil
}

// evaluate computes terms and their operands, as nodes or as values: leaves are the inputs, the
// output and its derivative, and apply applies an op. A zero Term has a zero T.
func evaluate[T any](terms []Term, leaves []T, apply func(o *Op, operands []T) (T, error)) ([]T, error) {
	done := make(map[*term]T)
	var compute func(t *term) (T, error)
	compute = func(t *term) (result T, err error) {
		if t.op == nil {
			return leaves[t.leaf], nil
		}
		if result, ok := done[t]; ok {
			return result, nil
		}
		operands := make([]T, len(t.operands))
		for i, o := range t.operands {
			if operands[i], err = compute(o.term); err != nil {
				return result, err
			}
		}
		if result, err = apply(t.op, operands); err == nil {
			done[t] = result
		}
		return result, err
	}
	results := make([]T, len(terms))
	for i, t := range terms {
		if t.term == nil {
			continue
		}
		var err error
		if results[i], err = compute(t.term); err != nil {
			return nil, err
		}
	}
	return results, nil
}
