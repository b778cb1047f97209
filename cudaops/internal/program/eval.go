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

// Eval interprets the program at any stage and returns the values of Outputs: it calls the Do of ops and the Go bodies of
// kernels. It defines the results of a program. inputs are the values of [Program.Inputs], in order.
//
// A placed program runs in a new arena filled with NaN, each value at its offset. Buffers that wrongly share memory, and
// reads of memory before it is written, therefore change the results.
func (p *Program) Eval(inputs []gorgonia.Value) ([]gorgonia.Value, error) {
	outputs, _, err := p.Step(inputs, nil)
	return outputs, err
}

// Step is Eval of a program with states. states are their values before the run, in the order of Updates, nil for zeros;
// next are their values after it.
func (p *Program) Step(inputs, states []gorgonia.Value) (outputs, next []gorgonia.Value, err error) {
	all, after, err := p.StepRanks([][]gorgonia.Value{inputs}, [][]gorgonia.Value{states})
	if err != nil {
		return nil, nil, err
	}
	return all[0], after[0], nil
}

// StepRanks is Step on several ranks, which interpret each instruction before any of them interprets the next. inputs, states and the
// results are those of each rank.
func (p *Program) StepRanks(inputs, states [][]gorgonia.Value) (outputs, next [][]gorgonia.Value, err error) {
	ranks := make([]*interpreter, len(inputs))
	for r := range ranks {
		if ranks[r], err = p.interpret(inputs[r], states[r]); err != nil {
			return nil, nil, err
		}
	}
	for in := range p.All() {
		if c, ok := in.Op.(Collective); ok {
			err = collective(c.Collective, in, ranks)
		} else {
			for r := 0; r < len(ranks) && err == nil; r++ {
				err = ranks[r].instr(in)
			}
		}
		if err != nil {
			return nil, nil, fmt.Errorf("program: %v: %w", in.Op, err)
		}
	}
	outputs, next = make([][]gorgonia.Value, len(ranks)), make([][]gorgonia.Value, len(ranks))
	for r, e := range ranks {
		if outputs[r], next[r], err = e.results(); err != nil {
			return nil, nil, err
		}
	}
	return outputs, next, nil
}

// collective interprets a Collective.
func collective(c kernels.Collective, in *Instr, ranks []*interpreter) error {
	if c.Ranks != len(ranks) {
		return fmt.Errorf("got %d ranks, want %d", len(ranks), c.Ranks)
	}
	for i, v := range in.In {
		from, to := make([][]byte, len(ranks)), make([][]byte, len(ranks))
		for r, e := range ranks {
			held, err := e.load(v)
			if err == nil {
				from[r], err = values.Bytes(values.Compact(held))
			}
			if err != nil {
				return err
			}
			out := in.Out[i]
			if b := e.buffer(out); b != nil {
				to[r] = b[:out.Bytes()]
			} else {
				e.held[out], to[r] = values.New(out.Dtype, out.Shape)
			}
		}
		if err := c.Run(v.Dtype, from, to); err != nil {
			return err
		}
	}
	return nil
}

// interpret returns the state of a rank before the first instruction.
func (p *Program) interpret(inputs, states []gorgonia.Value) (*interpreter, error) {
	e := &interpreter{program: p, inputs: inputs, held: map[*Value]gorgonia.Value{}, states: map[*Value]gorgonia.Value{}}
	for i, v := range states {
		e.states[p.Updates[i].State] = v
	}
	if want := len(p.Inputs()); len(inputs) != want {
		return nil, fmt.Errorf("program: got %d inputs, want %d", len(inputs), want)
	}
	if p.Stage >= Placed {
		const poison = 0xff // NaN in any float type
		e.arena = kernels.Bytes(make([]float64, (p.Arena+7)/8))
		copy(e.arena, bytes.Repeat([]byte{poison}, len(e.arena)))
		for _, in := range p.Instrs {
			if join, ok := in.Op.(ConcatInPlace); ok && join.Zeros {
				clear(e.buffer(in.Out[0]))
			}
		}
	}
	return e, nil
}

// results returns the values of the outputs and of the states after the last instruction.
func (e *interpreter) results() (outputs, next []gorgonia.Value, err error) {
	p := e.program
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
	inputs  []gorgonia.Value          // of the Input instructions still to run
	held    map[*Value]gorgonia.Value // values outside of the arena
	states  map[*Value]gorgonia.Value // before the run
	arena   []byte
}

func (e *interpreter) instr(in *Instr) error {
	if Launches(in.Op) {
		return e.launch(in)
	}
	if Is[Alias](in.Op) { // of its base, which alone has memory
		return e.alias(in.Out[0])
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
	case Iota:
		out, _ = values.New(kernels.Int64, nil)
	case ConcatInPlace:
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

// launch runs the plan of an instruction, or a plan for the host before stage Planned.
func (e *interpreter) launch(in *Instr) error {
	plan := in.Plan
	if plan == nil {
		var err error
		if plan, err = in.PlanFor(kernels.HostDevice()); err != nil {
			return err
		}
	}
	inputs := in.Operands()
	operands := make([][]byte, len(inputs))
	for i, v := range inputs {
		if ReadsViews(in.Op) {
			v = v.Base // the plan knows the view
		}
		if b := e.buffer(v); b != nil {
			operands[i] = b[v.View.Offset*v.Dtype.Size():][:v.Reach()*v.Dtype.Size()]
			continue
		}
		from, strided := v, stridedOperand(in.Op, i, v)
		if strided {
			from = v.Base
		}
		held, err := e.load(from)
		if err != nil {
			return err
		}
		if operands[i], err = values.Bytes(held); err != nil {
			return err
		}
		if strided {
			operands[i] = operands[i][v.View.Offset*v.Dtype.Size():][:v.Reach()*v.Dtype.Size()]
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
	if k, kernel := in.Op.(Kernel); kernel && k.InPlace {
		copy(outputs[0], operands[0])
	}
	return kernels.Host{}.Run(plan, operands, outputs, scratch)
}

// buffer returns the memory of a value's base in the arena, or nil if it has none.
func (e *interpreter) buffer(v *Value) []byte {
	b := v.Base.Buffer
	if b == nil || b.Home != nil || e.arena == nil {
		return nil
	}
	return e.arena[b.Offset : b.Offset+b.Size]
}

// load returns a value, from the arena if it has a buffer there.
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

// store sets a value, in the arena if it has a buffer there.
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

// alias sets a value to a view of its base. A base in the arena needs nothing: load applies the view.
func (e *interpreter) alias(v *Value) error {
	if e.buffer(v) != nil || v.IsRandom() || v.IsIota() {
		return nil
	}
	base, err := e.load(v.Base)
	if err != nil {
		return err
	}
	e.held[v], err = values.View(base, v.Shape, v.View.Offset, v.View.Strides, v.View.Bounds)
	return err
}

// join concatenates values, unless they are in the arena, where they are computed at their offsets.
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

// Do calls an op on the host and returns its value with the elements in row-major order. It returns an error if the op
// panics, as Gorgonia's do on unsupported operands, or returns no value or a value of another type than want.
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

// Check returns an error that describes v unless it is a value of the type. Its shape may differ if the number of elements
// is the same: some of Gorgonia's ops return such values.
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
