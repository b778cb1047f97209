package program

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Eval runs the program by the plainest means, at any stage, and returns the values of Outputs: ops
// by their Do, plans by the kernels' Go bodies. It defines the results of a program.
// inputs are the values of [Program.Inputs], in order.
//
// A program that is placed runs in an arena of its own, poisoned first, each value at its place, so
// that buffers that wrongly share memory, and memory that is read before it is written, show in the
// results.
func (p *Program) Eval(inputs []gorgonia.Value) ([]gorgonia.Value, error) {
	outputs, _, err := p.Step(inputs, nil)
	return outputs, err
}

// Step is Eval of a program with states: it also takes the values of the states, in the
// order of Updates, nil for zeros, and returns them as they are after the run.
func (p *Program) Step(inputs, states []gorgonia.Value) (outputs, next []gorgonia.Value, err error) {
	e := interpreter{program: p, inputs: inputs, held: map[*Value]gorgonia.Value{}, states: map[*Value]gorgonia.Value{}}
	for i, v := range states {
		e.states[p.Updates[i].State] = v
	}
	if want := len(p.Inputs()); len(inputs) != want {
		return nil, nil, fmt.Errorf("program: got %d inputs, want %d", len(inputs), want)
	}
	if p.Stage >= Placed {
		const poison = 0xff // NaN in any float type
		e.arena = kernels.Bytes(make([]float64, (p.Arena+7)/8))
		copy(e.arena, bytes.Repeat([]byte{poison}, len(e.arena)))
	}
	for in := range p.All() {
		if err := e.instr(in); err != nil {
			return nil, nil, fmt.Errorf("program: %v: %w", in.Op, err)
		}
	}
	outputs, next = make([]gorgonia.Value, len(p.Outputs)), make([]gorgonia.Value, len(p.Updates))
	for i, v := range p.Outputs {
		if outputs[i], err = e.load(v); err != nil {
			return nil, nil, fmt.Errorf("program: output %d: %w", i, err)
		}
	}
	for i, u := range p.Updates {
		if next[i], err = e.load(u.Next); err != nil {
			return nil, nil, fmt.Errorf("program: state %d: %w", i, err)
		}
	}
	return outputs, next, nil
}

// interpreter is the state of one Eval.
type interpreter struct {
	program *Program
	inputs  []gorgonia.Value // those not taken yet
	held    map[*Value]gorgonia.Value
	states  map[*Value]gorgonia.Value // those given
	arena   []byte
}

func (e *interpreter) instr(in *Instr) error {
	if Launches(in.Op) {
		return e.launch(in)
	}
	args := make([]gorgonia.Value, len(in.In))
	for i, v := range in.In {
		var err error
		if args[i], err = e.load(v); err != nil {
			return err
		}
	}
	var out gorgonia.Value
	var err error
	switch op := in.Op.(type) {
	case Input:
		out, e.inputs = values.Compact(e.inputs[0]), e.inputs[1:]
	case Constant:
		out = values.Compact(op.Value)
	case State:
		if out = e.states[in.Out[0]]; out == nil {
			out, _ = values.New(in.Out[0].Dtype, in.Out[0].Shape)
		}
	case Join:
		return e.join(in, args)
	case Host:
		for i, v := range args { // some ops write into their inputs
			if WritesThrough(in.In[i].Def.Op) {
				continue
			}
			if args[i], err = values.Clone(v); err != nil {
				return err
			}
		}
		out, err = Do(op.Op, in.Out[0].Type, args...)
	case Alias:
		return e.alias(in.Out[0])
	case Copy:
		out, err = values.Clone(args[0])
	default:
		err = errors.New("no such op")
	}
	if err != nil {
		return err
	}
	return e.store(in.Out[0], out)
}

// launch runs the plan of an instruction, or if there is none yet that of the host, on operands at
// their places.
func (e *interpreter) launch(in *Instr) error {
	plan := in.Plan
	if plan == nil {
		var err error
		if plan, err = in.PlanFor(kernels.HostDevice()); err != nil {
			return err
		}
	}
	operands := make([][]byte, len(in.In))
	for i, v := range in.In {
		if ReadsViews(in.Op) {
			v = v.Base // the plan knows the view
		}
		if b := e.buffer(v); b != nil {
			operands[i] = b[v.View.Offset*v.Dtype.Size():][:v.Bytes()]
			continue
		}
		held, err := e.load(v)
		if err != nil {
			return err
		}
		if operands[i], err = values.Bytes(held); err != nil {
			return err
		}
	}
	var scratch []byte
	if s := in.Scratch; s != nil && e.arena != nil {
		scratch = e.arena[s.Offset : s.Offset+s.Size]
	}
	outputs := make([][]byte, len(in.Out))
	for k, v := range in.Out {
		if outputs[k] = e.buffer(v); outputs[k] == nil {
			e.held[v], outputs[k] = values.New(v.Dtype, v.Shape)
		}
	}
	return kernels.Host{}.Run(plan, operands, outputs, scratch)
}

// buffer returns the memory of the base of a value that is placed, and nil for any
// other.
func (e *interpreter) buffer(v *Value) []byte {
	b := v.Base.Buffer
	if b == nil || e.arena == nil {
		return nil
	}
	return e.arena[b.Offset : b.Offset+b.Size]
}

// load returns a value; one that is placed comes out of the arena.
func (e *interpreter) load(v *Value) (gorgonia.Value, error) {
	if b := e.buffer(v); b != nil {
		out, memory := values.New(v.Dtype, v.Shape)
		values.Gather(memory, b, v.Dtype.Size(), v.Shape, v.View.Offset, v.View.Strides, v.View.Bounds)
		return out, nil
	}
	if held := e.held[v]; held != nil {
		return held, nil
	}
	return nil, fmt.Errorf("%v has no value", v)
}

// store keeps a value; one that is placed goes into the arena.
func (e *interpreter) store(v *Value, value gorgonia.Value) error {
	b := e.buffer(v)
	if b == nil {
		e.held[v] = values.Compact(value)
		return nil
	}
	from, err := values.Bytes(value)
	if err != nil {
		return err
	}
	copy(b, from)
	return nil
}

// alias makes a view of its base, unless the base is placed: then there is nothing to do.
func (e *interpreter) alias(v *Value) error {
	if e.buffer(v) != nil || v.IsRandom() {
		return nil
	}
	base, err := e.load(v.Base)
	if err != nil {
		return err
	}
	e.held[v], err = values.View(base, v.Shape, v.View.Offset, v.View.Strides, v.View.Bounds)
	return err
}

// join concatenates values, unless they are placed that way.
func (e *interpreter) join(in *Instr, parts []gorgonia.Value) error {
	v := in.Out[0]
	if e.buffer(v) != nil {
		return nil
	}
	out, to := values.New(v.Dtype, v.Shape)
	for i, at := range in.Offsets() {
		from, err := values.Bytes(parts[i])
		if err != nil {
			return err
		}
		copy(to[at*v.Dtype.Size():], from)
	}
	e.held[v] = out
	return nil
}

// Do calls an op on the host and returns its value, of the wanted type, with the elements in
// row-major order. Ops of Gorgonia panic at operands that they do not support; the panic becomes an error here.
// It is also an error if an op returns no value, or one of another type.
func Do(op gorgonia.Op, want Type, in ...gorgonia.Value) (out gorgonia.Value, err error) {
	defer func() {
		if r := recover(); r != nil {
			out, err = nil, fmt.Errorf("op %v panicked: %v", op, r)
		}
	}()
	if out, err = op.Do(in...); err != nil {
		return nil, err
	}
	if err := want.Check(out); err != nil {
		return nil, fmt.Errorf("op %v returned %w", op, err)
	}
	return values.Compact(out), nil
}

// Check returns an error that describes v unless it is a value of the type. Its shape may be
// another one with as many elements, as that of some of Gorgonia's ops is.
func (t Type) Check(v gorgonia.Value) error {
	if guard.IsNil(v) {
		return errors.New("no value")
	}
	if t.Numeric && v.Dtype().Type == nil {
		return fmt.Errorf("a value without element type, want %v of shape %v", values.Tensor(t.Dtype), t.Shape)
	}
	if want := values.Tensor(t.Dtype); t.Numeric && (v.Dtype() != want || kernels.Count(v.Shape()) != t.Elements()) {
		return fmt.Errorf("%v of shape %v, want %v of shape %v", v.Dtype(), v.Shape(), want, t.Shape)
	}
	return nil
}
