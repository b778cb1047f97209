package exec

import (
	"slices"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// step is one host instruction, or a sequence of device instructions that is queued at once.
type step struct {
	wait bool // it reads a downloaded value, so all queued work must complete first
	run  func() error
}

// stageLimit is the size in bytes of the largest value that is copied through staging memory. For larger values staging
// costs too much memory to save a separate copy.
const stageLimit = 64 << 20

// bind makes the steps of the program for a buffer set.
func (e *Executable) bind(s *bufferSet) error {
	var device []int // consecutive device instructions
	flush := func() error {
		err := e.addDevice(s, device)
		device = nil
		return err
	}
	downloaded := map[*program.Value]bool{} // since the last step that waits
	s.steps = append(s.steps, step{run: func() error { return e.startCopies(s) }})
	for i, in := range e.program.Instrs {
		switch op := in.Op.(type) {
		case program.Input:
			if slot := e.slot(in.Out[0]); s.number == 0 {
				e.inputs = append(e.inputs, slot)
			}
		case program.Host:
			if err := flush(); err != nil {
				return err
			}
			e.addHost(s, i, op.Op, downloaded)
		case program.ConcatInPlace:
			continue // its inputs are computed within its buffer
		case program.Alias:
			if in.Out[0].Space == program.OnDevice {
				continue // it shares memory
			}
			if err := flush(); err != nil {
				return err
			}
			e.addAlias(s, i, downloaded)
		default:
			if program.Is[program.Copy](in.Op) && in.Out[0].Space == program.OnHost {
				downloaded[in.Out[0]] = true
			} else if e.copiesAsync(in) {
				s.copies = append(s.copies, &transfer{instr: in, upload: true, slot: e.slot(in.In[0]), to: span(in.Out[0].Base.Buffer)})
				continue
			}
			device = append(device, i)
			if e.timed && !e.ranked || !e.staged(in) {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	return flush()
}

// staged reports whether an instruction can be captured: it is not a copy larger than stageLimit.
func (e *Executable) staged(in *program.Instr) bool {
	return !program.Is[program.Copy](in.Op) || in.Out[0].Bytes() <= stageLimit
}

// addHost adds a step that calls an op's Do. Some of Gorgonia's ops write into their inputs, so the step passes copies of
// inputs that are read elsewhere.
func (e *Executable) addHost(s *bufferSet, i int, op gorgonia.Op, downloaded map[*program.Value]bool) {
	in := e.program.Instrs[i]
	from, shared := make([]int, len(in.In)), make([]bool, len(in.In))
	for k, v := range in.In {
		from[k], shared[k] = e.slot(v), e.neededElsewhere(v, i)
	}
	e.onHost(s, i, in.In, downloaded, func() (gorgonia.Value, error) {
		args := make([]gorgonia.Value, len(from))
		for k, slot := range from {
			args[k] = e.frame[slot]
			if !shared[k] {
				continue
			}
			var err error
			if args[k], err = values.Clone(args[k]); err != nil {
				return nil, err
			}
		}
		return program.Do(op, in.Out[0].Type, args...)
	})
}

// neededElsewhere reports whether the memory of an operand of instruction i is read by another operand or a later
// instruction, or is not owned by the run.
func (e *Executable) neededElsewhere(v *program.Value, i int) bool {
	if program.WritesThrough(v.Base.Def.Op) {
		return false
	}
	switch v.Base.Def.Op.(type) {
	case program.Input, program.Constant:
		return true
	}
	operands := 0
	for _, o := range e.program.Instrs[i].In {
		if o.Base == v.Base {
			operands++
		}
	}
	return operands > 1 || e.lastRead[v.Base] > i
}

// addAlias adds a step that makes a view of a value on the host.
func (e *Executable) addAlias(s *bufferSet, i int, downloaded map[*program.Value]bool) {
	v := e.program.Instrs[i].Out[0]
	base := e.slot(v.Base)
	e.onHost(s, i, []*program.Value{v.Base}, downloaded, func() (gorgonia.Value, error) {
		return values.View(e.frame[base], v.Shape, v.View.Offset, v.View.Strides, v.View.Bounds)
	})
}

// onHost adds a step that computes the value of host instruction i by f, from the values from.
func (e *Executable) onHost(s *bufferSet, i int, from []*program.Value, downloaded map[*program.Value]bool, f func() (gorgonia.Value, error)) {
	in := e.program.Instrs[i]
	to := e.slot(in.Out[0])
	p := step{run: func() error {
		if err := e.cancelled(); err != nil {
			return in.InNode(err)
		}
		start := time.Now()
		out, err := f()
		e.frame[to], e.Times[i], e.Starts[i] = out, time.Since(start), start.Sub(e.begun)
		return in.InNode(err)
	}}
	if p.wait = slices.ContainsFunc(from, func(v *program.Value) bool { return downloaded[v] }); p.wait {
		clear(downloaded)
	}
	s.steps = append(s.steps, p)
}

// addDevice adds a step of device instructions. Several instructions are captured and launched at once; independent ones
// may run concurrently.
func (e *Executable) addDevice(s *bufferSet, instrs []int) error {
	if len(instrs) == 0 {
		return nil
	}
	first := e.program.Instrs[instrs[0]]
	capture, clock := len(instrs) > 1, e.timed && e.events == 0
	var uploads, downloads []*transfer
	var o order
	work := make([]Work, len(instrs))
	for k, i := range instrs {
		in := e.program.Instrs[i]
		f, t, err := e.deviceInstr(i, in, capture)
		if err != nil {
			return in.InNode(err)
		}
		switch {
		case t == nil && s.number == 0:
			e.launches = append(e.launches, queued{in, f})
		case t == nil:
		case t.upload:
			uploads = append(uploads, t)
		default:
			downloads = append(downloads, t)
		}
		work[k] = Work{e.stoppable(in, f), o.add(k, in)}
	}
	if err := e.backend.Events(e.events); err != nil {
		return first.InNode(err)
	}
	launch := work[0].Queue
	if capture {
		var err error
		if launch, err = e.capture(work); err != nil {
			return first.InNode(err)
		}
	}
	changes := slices.ContainsFunc(instrs, func(i int) bool { return e.changesState(e.program.Instrs[i]) })
	s.uploads = append(s.uploads, uploads...)
	s.steps = append(s.steps, step{run: func() error {
		if err := e.cancelled(); err != nil {
			return first.InNode(err)
		}
		for _, t := range uploads {
			if t.ready {
				continue
			}
			if err := t.fill(e); err != nil {
				return t.instr.InNode(err)
			}
		}
		e.downloads = append(e.downloads, downloads...)
		if clock {
			e.queued = time.Since(e.begun)
		}
		if err := launch(); err != nil {
			return first.InNode(err)
		}
		e.changed = e.changed || changes
		return nil
	}})
	return nil
}

// stoppable returns a function that queues a device instruction unless the run is cancelled. If the instruction is captured,
// a GPU backend calls the function during the capture and the host backend in each run.
func (e *Executable) stoppable(in *program.Instr, queue func() error) func() error {
	return func() error {
		if err := e.cancelled(); err != nil {
			return in.InNode(err)
		}
		e.changed = e.changed || e.changesState(in)
		return in.InNode(queue())
	}
}

// changesState reports whether an instruction writes a state.
func (e *Executable) changesState(in *program.Instr) bool {
	return slices.ContainsFunc(in.Out, func(v *program.Value) bool { return v.Base.Buffer != nil && e.changes[v.Base.Buffer] })
}

// queued is a device instruction with the function that queues it.
type queued struct {
	instr *program.Instr
	queue func() error
}

// deviceInstr returns a function that queues a device instruction, and for a copy its transfer.
func (e *Executable) deviceInstr(i int, in *program.Instr, capture bool) (queue func() error, t *transfer, err error) {
	switch op := in.Op.(type) {
	case program.Collective:
		types := program.Collect(in.In, func(v *program.Value) kernels.Dtype { return v.Dtype })
		run, err := e.backend.Collective(op.Collective, types, operands(in), results(in))
		if err != nil {
			return nil, nil, err
		}
		return e.withEvents(i, run), nil, nil
	case program.Kernel, program.Map, program.Concat:
		run, err := e.backend.Bind(in.Plan, operands(in), results(in), span(in.Scratch))
		if err != nil || !e.timed {
			return run, nil, err
		}
		return e.withEvents(i, run), nil, nil
	case program.Copy:
		t = &transfer{instr: in, upload: in.Out[0].Space == program.OnDevice}
		if capture {
			if t.memory, err = e.backend.Stage(in.Out[0].Bytes()); err != nil {
				return nil, nil, err
			}
			t.staged = t.memory != nil
		}
		e.unstaged = e.unstaged || !t.staged
		if t.upload {
			e.borrows = e.borrows || !t.staged
			t.slot = e.slot(in.In[0])
			to := span(in.Out[0].Base.Buffer)
			return e.withEvents(i, func() error { return e.backend.Upload(to, t.memory) }), t, nil
		}
		t.slot = e.slot(in.Out[0])
		from, v := operands(in)[0], in.Out[0]
		return e.withEvents(i, func() (err error) {
			if !t.staged {
				if t.value, t.memory, err = values.Make(v.Dtype, v.Shape); err != nil {
					return err
				}
			}
			return e.backend.Download(t.memory, from)
		}), t, nil
	}
	return nil, nil, errNoSuchOp
}

// withEvents returns a function that queues device instruction i, between two events if instructions are timed.
func (e *Executable) withEvents(i int, queue func() error) func() error {
	if !e.timed {
		return queue
	}
	start := e.events
	e.events += 2
	e.timings = append(e.timings, timing{i, start})
	return func() error {
		if err := e.backend.Record(start); err != nil {
			return err
		}
		if err := queue(); err != nil {
			return err
		}
		return e.backend.Record(start + 1)
	}
}

// transfer is a copy between host and device. A captured transfer uses staging memory at a fixed address. The host fills an
// upload's staging memory before the launch, and copies a download's into a new value after the device has finished.
type transfer struct {
	instr  *program.Instr
	upload bool
	slot   int    // of the value on the host
	memory []byte // host memory of the copy: staging memory, or the value's
	staged bool
	value  gorgonia.Value // destination of a pending download
	into   []byte         // memory of value, if the download is staged
	to     Span           // destination of an upload on the copy stream
	ready  bool           // Stage has filled the upload
}

// fill sets an upload's memory to the value of its input.
func (t *transfer) fill(e *Executable) error {
	m, err := e.bytes(t.instr)
	if err != nil {
		return err
	}
	if t.staged {
		copyParallel(t.memory, m)
	} else {
		t.memory = m
	}
	return nil
}

// prepare allocates the value of a download while the device computes.
func (t *transfer) prepare() (err error) {
	if v := t.instr.Out[0]; t.staged {
		t.value, t.into, err = values.Make(v.Dtype, v.Shape)
	}
	return t.instr.InNode(err)
}

// deliver puts the value of a completed download into its slot.
func (t *transfer) deliver(e *Executable) {
	if t.staged {
		copyParallel(t.into, t.memory)
	} else {
		t.memory = nil
	}
	e.frame[t.slot] = t.value
	t.value, t.into = nil, nil
}

// copyParallel copies large values by several goroutines.
func copyParallel(dst, src []byte) {
	if len(src) < minPiece {
		copy(dst, src)
		return
	}
	pieces(len(src), func(lo, hi int64) { copy(dst[lo:hi], src[lo:hi]) })
}

// pieces calls f concurrently for pieces of n bytes, each of at least minPiece bytes. Smaller pieces made runs with a batch
// of 13 MB a third slower, and two goroutines copied 400 KB in twice the time of one (H200, bench/notes/engine.md).
func pieces(n int, f func(lo, hi int64)) {
	kernels.Parallel(int64(n), kernels.CeilDiv(int64(n), int64(max(n/minPiece, 1))), f)
}

const minPiece = 1 << 20 // bytes
