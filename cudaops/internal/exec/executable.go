package exec

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Executable is a placed program ready to run on a backend: memory is allocated, kernels are loaded, constants are copied,
// and each sequence of device instructions is captured as one launch. It must not be used concurrently, except for Stage.
type Executable struct {
	// Times holds the duration of each instruction in the last run. Device instructions have one only if they are timed.
	Times []time.Duration
	// Starts holds the start of each instruction, relative to the start of the run, of several ranks that of the first. The starts of device
	// instructions are measured from the first one, which counts from when it was queued.
	Starts []time.Duration

	program *program.Program
	backend Backend
	slots   map[*program.Value]int // slots of the values on the host
	// lastRead is, for each base, the index of the last instruction that reads it; len(Instrs) for an output.
	lastRead  map[*program.Value]int
	frame     []gorgonia.Value // the values on the host, by slot; cleared after a run, except for constants
	setup     int              // number of slots of constants, which come first
	inputs    []int            // slots
	outputs   []int            // slots
	sets      []*bufferSet     // two if runs overlap, else one
	copier    AsyncCopier      // nil if the backend is no AsyncCopier or runs do not overlap
	pool      setPool
	launches  []queued // the device instructions except copies
	timed     bool
	ranked    bool // one of several ranks: Stage copies nothing, and timed instructions are captured, so that they overlap as they do when not timed
	events    int
	timings   []timing
	begun     time.Time                       // start of the last run
	queued    time.Duration                   // when the first timed device instruction of the run was queued
	downloads []*transfer                     // queued in this run and not delivered yet
	ctx       context.Context                 // of the run being started
	changes   map[*program.Buffer]bool        // buffers of states that runs change
	changed   bool                            // the run being started has changed a state
	pending   bool                            // a run was started and not finished
	borrows   bool                            // copies read the memory of inputs until they complete
	unstaged  bool                            // some copies use no staging memory
	others    []*Executable                   // of the first rank, the other ranks
	meeting   *Meeting                        // of the first rank, where the ranks exchange values
	rounds    map[*program.Value]func() error // launches that set copies in 16 bits, as bound for the first use
	apart     error                           // of the first rank: from a run that has changed the states of some ranks
}

// timing is the pair of events around an instruction: event and event+1.
type timing struct{ instr, event int }

var errNoSuchOp = errors.New("the instruction cannot run")

// New allocates b's arena and makes p ready to run on it. With timed, Times includes device instructions, measured by events
// around each; nothing is captured then.
func New(p *program.Program, b Backend, timed bool) (*Executable, error) {
	return newExecutable(p, b, timed, true)
}

// newExecutable is New; alone is false for one of several ranks.
func newExecutable(p *program.Program, b Backend, timed, alone bool) (_ *Executable, err error) {
	if p.Stage < program.Placed {
		return nil, fmt.Errorf("the program is %v, want placed", p.Stage)
	}
	if b, ok := b.(preloader); ok {
		done := b.Preload(p.Plans())
		defer func() { err = driver.Join(err, done()) }()
	}
	if err := Open(b); err != nil {
		return nil, err
	}
	if err := b.Alloc(p.Arena); err != nil {
		return nil, fmt.Errorf("memory for the graph's values on %s: %w", b.Name(), err)
	}
	e := &Executable{
		Times:   make([]time.Duration, len(p.Instrs)),
		Starts:  make([]time.Duration, len(p.Instrs)),
		program: p, backend: b, slots: map[*program.Value]int{}, lastRead: map[*program.Value]int{}, timed: timed, ranked: !alone, changes: map[*program.Buffer]bool{},
	}
	for i, in := range p.Instrs {
		for _, v := range in.In {
			e.lastRead[v.Base] = i
		}
	}
	for _, v := range p.Outputs {
		e.lastRead[v.Base] = len(p.Instrs)
	}
	trains := false
	for _, u := range p.Updates {
		e.changes[u.State.Buffer] = true
		trains = trains || u.Next != u.State
	}
	if b, ok := b.(AsyncCopier); ok && trains && !timed {
		e.copier = b
	}
	if len(p.Updates) > 0 { // states are initially 0, and the gaps between inputs of a ConcatInPlace are read
		if err := b.Clear(Span{Size: p.Arena}); err != nil {
			return nil, err
		}
	}
	if err := e.runSetup(); err != nil {
		return nil, err
	}
	e.setup = len(e.frame)
	if err := e.bindSets(); err != nil {
		return nil, err
	}
	e.outputs = program.Collect(p.Outputs, func(v *program.Value) int { return e.slots[v] })
	return e, nil
}

// OnHost returns the bytes of host memory that a run allocates: its values on the host and, if the device is the host, the
// arena.
func OnHost(p *program.Program, dev kernels.Device) int64 {
	bytes := int64(0)
	if dev.Kind == kernels.CPU {
		bytes = p.Arena
	}
	for _, in := range p.Instrs {
		for _, v := range in.Out {
			if !program.Is[program.Input](in.Op) && v.Space == program.OnHost && v.Numeric && (v.Base == v || !values.Shares(v.Shape, v.View.Strides, v.View.Bounds)) {
				bytes += v.Bytes()
			}
		}
	}
	return bytes
}

// runSetup sets the slots of constants and copies constants to the device.
func (e *Executable) runSetup() error {
	for _, in := range e.program.Setup {
		switch op := in.Op.(type) {
		case program.State, program.Iota: // New clears states, and an iota has no memory
		case program.Constant:
			e.frame[e.slot(in.Out[0])] = op.Value
		case program.Copy:
			m, err := e.bytes(in)
			if err == nil {
				err = e.backend.Upload(span(in.Out[0].Base.Buffer), m)
			}
			if err != nil {
				return in.InNode(err)
			}
		default:
			return in.InNode(fmt.Errorf("%v before the first run", in.Op))
		}
	}
	return e.backend.Sync()
}

// slot returns the slot of a value on the host.
func (e *Executable) slot(v *program.Value) int {
	i, ok := e.slots[v]
	if !ok {
		i = len(e.frame)
		e.slots[v] = i
		e.frame = append(e.frame, nil)
	}
	return i
}

// bytes returns the host memory that an upload reads.
func (e *Executable) bytes(in *program.Instr) ([]byte, error) {
	return bytesOf(e.frame[e.slots[in.In[0]]], in.Out[0])
}

// bytesOf returns the memory of a value, or an error unless it has the type of want.
func bytesOf(h gorgonia.Value, want *program.Value) ([]byte, error) {
	if h == nil {
		return nil, errors.New("got no value")
	}
	m, err := values.Bytes(h)
	if err != nil {
		return nil, fmt.Errorf("got %w", err)
	}
	if h.Dtype() != values.Tensor(want.Dtype) || int64(len(m)) != want.Bytes() {
		return nil, fmt.Errorf("got %v of shape %v, want %v of shape %v", h.Dtype(), h.Shape(), values.Tensor(want.Dtype), want.Shape)
	}
	return m, nil
}

// Run runs the program once and returns the values of its outputs. inputs are in the order of [program.Program.Inputs]. The
// Executable keeps no reference to inputs or outputs.
func (e *Executable) Run(inputs []gorgonia.Value) (outputs []gorgonia.Value, err error) {
	if err := e.Start(context.Background(), inputs); err != nil {
		return nil, err
	}
	return e.Finish()
}

// Start queues a run without waiting for its end; Finish, another Start and most other calls wait for it. The inputs may be
// changed when Start returns. A failure on the device is returned by a later call.
//
// When ctx is done, Start stops between instructions or captured pieces of work, but not after it has changed a state: the
// states always have the values from before a run or from after it.
//
// With other ranks, Start stops only before the run begins.
func (e *Executable) Start(ctx context.Context, inputs []gorgonia.Value) error {
	if e.others != nil {
		return e.startRanks(ctx, inputs)
	}
	return e.start(ctx, inputs, time.Now())
}

func (e *Executable) start(ctx context.Context, inputs []gorgonia.Value, begun time.Time) (err error) {
	e.ctx, e.changed, e.begun = ctx, false, begun
	defer func() {
		e.ctx = nil
		if err != nil {
			clear(e.frame[e.setup:])
		}
	}()
	if err := e.cancelled(); err != nil {
		return err
	}
	if e.pending && (len(e.sets) == 1 || e.unstaged) { // staging memory is still in use
		if err := e.backend.Sync(); err != nil {
			return err
		}
	}
	e.pending, e.downloads = false, e.downloads[:0] // results of an unfinished run are discarded
	s, err := e.acquire(inputs)
	if err != nil {
		return err
	}
	defer func() { err = driver.Join(err, e.release(s, err == nil)) }()
	clear(e.frame[e.setup:])
	for i, slot := range e.inputs {
		e.frame[slot] = values.Compact(inputs[i])
	}
	for i := range s.steps {
		p := &s.steps[i]
		if p.wait {
			if err := e.wait(); err != nil {
				return err
			}
		}
		if err := p.run(); err != nil {
			// Work in flight still uses host memory.
			return driver.Join(err, e.wait())
		}
	}
	e.pending = true
	if e.borrows {
		return e.backend.Sync()
	}
	return nil
}

// cancelled returns an error if the context of the run being started is done and the run has changed no state.
func (e *Executable) cancelled() error {
	if e.ctx == nil || e.changed || e.ctx.Err() == nil {
		return nil
	}
	return Cancelled(e.ctx, "the run was cancelled")
}

// Cancelled returns the error of a context that is done, with its cause, after what.
func Cancelled(ctx context.Context, what string) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s: %w: %w", what, err, cause)
}

// Changed reports whether the last started run has changed a state, even if it failed.
func (e *Executable) Changed() bool {
	changed := e.changed
	for _, o := range e.others {
		changed = changed || o.Changed()
	}
	return changed
}

// Pending reports whether a run was started and not finished.
func (e *Executable) Pending() bool { return e.pending }

// Finish waits for the started run and returns the values of its outputs.
func (e *Executable) Finish() (outputs []gorgonia.Value, err error) {
	defer clear(e.frame[e.setup:])
	e.pending = false
	if err := e.wait(); err != nil {
		return nil, err
	}
	earliest := time.Duration(0) // start of the first instruction, since event 0
	for _, t := range e.timings {
		if e.Times[t.instr], err = e.backend.Elapsed(t.event, t.event+1); err != nil {
			return nil, err
		}
		start, err := e.backend.Elapsed(0, t.event)
		if err != nil {
			return nil, err
		}
		e.Starts[t.instr], earliest = e.queued+start, min(earliest, start)
	}
	for _, t := range e.timings {
		e.Starts[t.instr] -= earliest
	}
	return program.Collect(e.outputs, func(slot int) gorgonia.Value { return e.frame[slot] }), nil
}

// Launching returns the instructions that launch kernels, in order.
func (e *Executable) Launching() []*program.Instr {
	return program.Collect(e.launches, func(l queued) *program.Instr { return l.instr })
}

// Replay captures the launches of the first n instructions of Launching, without copies, and returns a function that queues
// them. They read the values that the last Run copied to the device. The program must have been compiled with
// passes.Target.Replay, so that these values are still in memory. It is for measurements.
func (e *Executable) Replay(n int) (func() error, error) {
	var o order
	work := make([]Work, n)
	for i, l := range e.launches[:n] {
		work[i] = Work{l.queue, o.add(i, l.instr)}
	}
	return e.capture(work)
}

// capture captures work and returns a function that queues all of it.
func (e *Executable) capture(work []Work) (func() error, error) {
	reduced(work)
	return e.backend.Capture(longestFirst(work))
}

// wait waits for all queued work and delivers the downloads.
func (e *Executable) wait() error {
	var failed error
	for _, t := range e.downloads {
		failed = driver.Join(failed, t.prepare())
	}
	err := driver.Join(e.backend.Sync(), failed)
	for _, s := range e.sets {
		s.launched.Store(false)
	}
	if err == nil {
		for _, t := range e.downloads {
			t.deliver(e)
		}
	}
	e.downloads = e.downloads[:0]
	return err
}

// Settle waits for all queued work of all ranks, which may use memory that other executables use too. It may be called after Close.
func (e *Executable) Settle() error {
	e.pool.open.RLock()
	defer e.pool.open.RUnlock()
	if e.pool.closed {
		return nil
	}
	var errs []error
	for _, rank := range e.Ranks() {
		errs = append(errs, rank.backend.Sync())
	}
	return driver.Join(errs...)
}

// Close closes the backend. Further calls do nothing.
func (e *Executable) Close() error {
	e.pool.open.Lock() // waits for Stage
	defer e.pool.open.Unlock()
	e.pool.closed = true
	errs := []error{e.backend.Close()}
	for _, o := range e.others {
		errs = append(errs, o.Close())
	}
	if m := e.meeting; m != nil && m.peers != nil {
		m.abort()
	}
	return driver.Join(errs...)
}

func span(b *program.Buffer) Span {
	if b == nil {
		return Span{}
	}
	return Span{b.Offset, b.Size, b.Home}
}

// part returns the span of a value within its base, up to its last element.
func part(v *program.Value) Span {
	s := span(v.Base.Buffer)
	return Span{s.Offset + v.View.Offset*v.Dtype.Size(), v.Reach() * v.Dtype.Size(), s.Home}
}

// results returns the spans of an instruction's outputs.
func results(in *program.Instr) []Span {
	return program.Collect(in.Out, func(v *program.Value) Span { return span(v.Base.Buffer) })
}

// operands returns the spans of an instruction's inputs. If the plan reads views, as that of a Map does, these are the
// buffers of the inputs' bases.
func operands(in *program.Instr) []Span {
	return program.Collect(in.Operands(), func(v *program.Value) Span {
		if program.ReadsViews(in.Op) {
			return span(v.Base.Buffer)
		}
		return part(v)
	})
}
