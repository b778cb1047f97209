package exec

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/values"
	"gorgonia.org/gorgonia"
)

// Executable is a placed program ready to run on a backend: memory reserved,
// kernels loaded, constants in place. It is for one goroutine at a time.
type Executable struct {
	// Times are how long the instructions of the program took in the last run:
	// host instructions always, kernels if they are timed.
	Times []time.Duration

	program *program.Program
	backend Backend
	slots   map[*program.Value]int // of the values on the host
	frame   []gorgonia.Value       // the values on the host, by slot; those of a run go at its end
	inputs  []int                  // slots
	outputs []int                  // slots
	steps   []step
	setup   int // slots of setup, which stay
	timed   bool
	events  int
}

// A step is an instruction bound to the backend.
type step struct {
	instr int
	sync  bool // it reads what was downloaded: wait for it first
	run   func() error
	event int  // the first of its two events, if kernels are timed; else below zero
	host  bool // timed by the host's clock
}

// New makes p ready to run on b, whose arena it reserves. With timed, Times has
// the kernels' times too, measured by events around each.
func New(p *program.Program, b Backend, timed bool) (*Executable, error) {
	if p.Stage < program.Placed {
		return nil, fmt.Errorf("the program is %v, want placed", p.Stage)
	}
	if err := b.Alloc(p.Arena); err != nil {
		return nil, fmt.Errorf("memory for the graph's values on %s: %w", b.Name(), err)
	}
	e := &Executable{
		Times:   make([]time.Duration, len(p.Instrs)),
		program: p, backend: b, slots: map[*program.Value]int{}, timed: timed,
	}
	if err := e.runSetup(); err != nil {
		return nil, err
	}
	e.setup = len(e.frame)
	pending := map[*program.Value]bool{} // downloaded since the last Sync
	for i, in := range p.Instrs {
		if err := e.add(i, in, pending); err != nil {
			return nil, inNode(in, err)
		}
	}
	for _, v := range p.Outputs {
		e.outputs = append(e.outputs, e.slots[v])
	}
	return e, b.Events(e.events)
}

// runSetup takes the constants over and copies them where they are needed.
func (e *Executable) runSetup() error {
	for _, in := range e.program.Setup {
		switch op := in.Op.(type) {
		case program.Constant:
			e.frame[e.slot(in.Out[0])] = op.Value
		case program.Copy:
			if err := e.upload(in)(); err != nil {
				return inNode(in, err)
			}
		default:
			return inNode(in, fmt.Errorf("%v before the first run", in.Op))
		}
	}
	return e.backend.Sync()
}

// slot returns the place of a value on the host.
func (e *Executable) slot(v *program.Value) int {
	i, ok := e.slots[v]
	if !ok {
		i = len(e.frame)
		e.slots[v] = i
		e.frame = append(e.frame, nil)
	}
	return i
}

// add binds an instruction.
func (e *Executable) add(i int, in *program.Instr, pending map[*program.Value]bool) error {
	s := step{instr: i, event: -1}
	switch op := in.Op.(type) {
	case program.Input:
		e.inputs = append(e.inputs, e.slot(in.Out[0]))
		return nil
	case program.Host:
		s.run, s.host = e.host(op.Op, in), true
	case program.Alias:
		if in.Out[0].Space == program.OnDevice {
			return nil // the same memory
		}
		s.run = e.host(op.Op, in)
	case program.Copy:
		if in.Out[0].Space == program.OnDevice {
			s.run = e.upload(in)
			break
		}
		s.run = e.download(in)
		pending[in.Out[0]] = true
	case program.Kernel:
		run, err := e.backend.Bind(op.Plan, spans(in.In), span(in.Out[0].Base.Buffer), span(in.Scratch))
		if err != nil {
			return err
		}
		if s.run = run; e.timed {
			s.event = e.events
			e.events += 2
		}
	default:
		return fmt.Errorf("%v cannot run", in.Op)
	}
	if slices.ContainsFunc(in.In, func(v *program.Value) bool { return pending[v] }) {
		s.sync = true
		clear(pending)
	}
	e.steps = append(e.steps, s)
	return nil
}

// host returns what runs an op's Do.
func (e *Executable) host(op gorgonia.Op, in *program.Instr) func() error {
	from, to := make([]int, len(in.In)), e.slot(in.Out[0])
	for i, v := range in.In {
		from[i] = e.slot(v)
	}
	return func() error {
		args := make([]gorgonia.Value, len(from))
		for i, slot := range from {
			args[i] = e.frame[slot]
		}
		out, err := program.Do(op, args...)
		e.frame[to] = values.Compact(out)
		return err
	}
}

// upload returns what copies a value to the device.
func (e *Executable) upload(in *program.Instr) func() error {
	from, to, v := e.slot(in.In[0]), span(in.Out[0].Base.Buffer), in.Out[0]
	return func() error {
		h := e.frame[from]
		if h == nil {
			return errors.New("it has no value")
		}
		m, err := values.Bytes(h)
		if err != nil {
			return fmt.Errorf("its value is %w", err)
		}
		if h.Dtype() != values.Tensor(v.Dtype) || int64(len(m)) != v.Bytes() {
			return fmt.Errorf("its value is %v of shape %v, want %v of shape %v", h.Dtype(), h.Shape(), values.Tensor(v.Dtype), v.Shape)
		}
		return e.backend.Upload(to, m)
	}
}

// download returns what copies a value to the host, into new memory.
func (e *Executable) download(in *program.Instr) func() error {
	from, to, v := span(in.In[0].Base.Buffer), e.slot(in.Out[0]), in.Out[0]
	return func() error {
		h, m := values.New(v.Dtype, v.Shape)
		e.frame[to] = h
		return e.backend.Download(m, from)
	}
}

// Run runs the program once on the values of its inputs, in the order of
// [program.Program.Inputs], and returns those of its outputs. It keeps none of
// them.
func (e *Executable) Run(inputs []gorgonia.Value) (outputs []gorgonia.Value, err error) {
	defer clear(e.frame[e.setup:])
	for i, slot := range e.inputs {
		e.frame[slot] = values.Compact(inputs[i])
	}
	for i := range e.steps {
		if err := e.step(&e.steps[i]); err != nil {
			// What is under way still uses host memory.
			return nil, errors.Join(inNode(e.program.Instrs[e.steps[i].instr], err), e.backend.Sync())
		}
	}
	if err := e.backend.Sync(); err != nil {
		return nil, err
	}
	for _, s := range e.steps {
		if s.event < 0 {
			continue
		}
		if e.Times[s.instr], err = e.backend.Elapsed(s.event, s.event+1); err != nil {
			return nil, err
		}
	}
	outputs = make([]gorgonia.Value, len(e.outputs))
	for i, slot := range e.outputs {
		outputs[i] = e.frame[slot]
	}
	return outputs, nil
}

func (e *Executable) step(s *step) error {
	if s.sync {
		if err := e.backend.Sync(); err != nil {
			return err
		}
	}
	switch {
	case s.host:
		start := time.Now()
		err := s.run()
		e.Times[s.instr] = time.Since(start)
		return err
	case s.event >= 0:
		if err := e.backend.Record(s.event); err != nil {
			return err
		}
		if err := s.run(); err != nil {
			return err
		}
		return e.backend.Record(s.event + 1)
	}
	return s.run()
}

// Close gives the backend back. Further calls do nothing.
func (e *Executable) Close() error { return e.backend.Close() }

func span(b *program.Buffer) Span {
	if b == nil {
		return Span{}
	}
	return Span{b.Offset, b.Size}
}

func spans(list []*program.Value) []Span {
	out := make([]Span, len(list))
	for i, v := range list {
		out[i] = span(v.Base.Buffer)
	}
	return out
}

// inNode says at which node of the graph an instruction failed.
func inNode(in *program.Instr, err error) error {
	if err == nil || len(in.Nodes) == 0 {
		return err
	}
	return fmt.Errorf("node %s: %w", in.Nodes[0].Name(), err)
}
