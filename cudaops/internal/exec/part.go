package exec

import (
	"slices"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// A part is a piece of the program that runs as a whole: one instruction on the
// host, or a run of instructions of the device.
type part struct {
	wait bool // it reads a value that was downloaded
	run  func() error
}

// stageLimit is the largest value, in bytes, that is copied through staging
// memory. A larger one would cost more in memory than a launch of its own costs
// in time.
const stageLimit = 64 << 20

// bind makes parts of the program's instructions for a set.
func (e *Executable) bind(s *set) error {
	var device []int // instructions of the device in a row
	flush := func() error {
		err := e.addDevice(s, device)
		device = nil
		return err
	}
	downloaded := map[*program.Value]bool{} // since a part last waited
	s.parts = append(s.parts, part{run: func() error { return e.copyBeside(s) }})
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
		case program.Join:
			continue // the joined values are there
		case program.Alias:
			if in.Out[0].Space == program.OnDevice {
				continue // the same memory
			}
			if err := flush(); err != nil {
				return err
			}
			e.addAlias(s, i, downloaded)
		default:
			if _, copies := in.Op.(program.Copy); copies && in.Out[0].Space == program.OnHost {
				downloaded[in.Out[0]] = true
			} else if e.isBeside(in) {
				s.copies = append(s.copies, &transfer{instr: in, upload: true, slot: e.slot(in.In[0]), to: span(in.Out[0].Base.Buffer)})
				continue
			}
			device = append(device, i)
			if e.timed || !e.staged(in) {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	return flush()
}

// staged reports whether an instruction can be captured: it is no copy of a value
// that is too large for staging memory.
func (e *Executable) staged(in *program.Instr) bool {
	_, copies := in.Op.(program.Copy)
	return !copies || in.Out[0].Bytes() <= stageLimit
}

// addHost adds a part that calls an op's Do. Some of Gorgonia's ops write into their inputs,
// so inputs that are needed elsewhere are copied for them.
func (e *Executable) addHost(s *set, i int, op gorgonia.Op, downloaded map[*program.Value]bool) {
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

// neededElsewhere reports whether the memory of an operand of instruction i is read after
// it, or is not the run's own.
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

// addAlias adds a part that makes a view of a value on the host.
func (e *Executable) addAlias(s *set, i int, downloaded map[*program.Value]bool) {
	v := e.program.Instrs[i].Out[0]
	base := e.slot(v.Base)
	e.onHost(s, i, []*program.Value{v.Base}, downloaded, func() (gorgonia.Value, error) {
		return values.View(e.frame[base], v.Shape, v.View.Offset, v.View.Strides, v.View.Bounds)
	})
}

// onHost adds a part that makes the value of an instruction on the host out of
// others there.
func (e *Executable) onHost(s *set, i int, from []*program.Value, downloaded map[*program.Value]bool, f func() (gorgonia.Value, error)) {
	in := e.program.Instrs[i]
	to := e.slot(in.Out[0])
	p := part{run: func() error {
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
	s.parts = append(s.parts, p)
}

// addDevice adds a part of instructions of the device. More than one are captured, and
// go to the device as one launch, in which those that do not wait for each other may
// run side by side.
func (e *Executable) addDevice(s *set, instrs []int) error {
	if len(instrs) == 0 {
		return nil
	}
	first := e.program.Instrs[instrs[0]]
	capture := len(instrs) > 1
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
	launch := work[0].Queue
	if capture {
		var err error
		if launch, err = e.capture(work); err != nil {
			return first.InNode(err)
		}
	}
	changes := slices.ContainsFunc(instrs, func(i int) bool { return e.changesState(e.program.Instrs[i]) })
	s.uploads = append(s.uploads, uploads...)
	s.parts = append(s.parts, part{run: func() error {
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
		if err := launch(); err != nil {
			return first.InNode(err)
		}
		e.changed = e.changed || changes
		return nil
	}})
	return nil
}

// stoppable returns a function that queues an instruction of the device unless the run is to stop. Where
// work is captured, the backend calls it when it captures or, as that of the host does, in
// each run.
func (e *Executable) stoppable(in *program.Instr, queue func() error) func() error {
	return func() error {
		if err := e.cancelled(); err != nil {
			return in.InNode(err)
		}
		e.changed = e.changed || e.changesState(in)
		return in.InNode(queue())
	}
}

// changesState reports whether an instruction writes into a state.
func (e *Executable) changesState(in *program.Instr) bool {
	return slices.ContainsFunc(in.Out, func(v *program.Value) bool { return v.Base.Buffer != nil && e.changes[v.Base.Buffer] })
}

// queued is an instruction with the function that queues it.
type queued struct {
	instr *program.Instr
	queue func() error
}

// deviceInstr returns a function that queues an instruction of the device, and for a copy its
// transfer.
func (e *Executable) deviceInstr(i int, in *program.Instr, capture bool) (queue func() error, t *transfer, err error) {
	switch in.Op.(type) {
	case program.Kernel, program.Map, program.Rows, program.Concat:
		run, err := e.backend.Bind(in.Plan, operands(in), results(in), span(in.Scratch))
		if err != nil || !e.timed {
			return run, nil, err
		}
		return e.between(i, run), nil, nil
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
			return e.between(i, func() error { return e.backend.Upload(to, t.memory) }), t, nil
		}
		t.slot = e.slot(in.Out[0])
		from, v := operands(in)[0], in.Out[0]
		return e.between(i, func() (err error) {
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

// between returns a function that queues instruction i of the device between two events, if
// instructions are timed.
func (e *Executable) between(i int, queue func() error) func() error {
	if !e.timed {
		return queue
	}
	start := e.events
	e.events += 2
	e.timings = append(e.timings, timing{i, start})
	return func() error {
		if start == 0 {
			e.queued = time.Since(e.begun)
		}
		if err := e.backend.Record(start); err != nil {
			return err
		}
		if err := queue(); err != nil {
			return err
		}
		return e.backend.Record(start + 1)
	}
}

// A transfer is a copy between host and device. In work that is captured it goes
// through staging memory, whose address stays: the host fills that of an upload
// before the launch, and takes a download over into a new value once the device
// has finished.
type transfer struct {
	instr  *program.Instr
	upload bool
	slot   int    // of the value on the host
	memory []byte // source or target of the copy: of the value, or staging memory
	staged bool
	value  gorgonia.Value // of a download that is under way
	into   []byte         // its memory, if it is staged
	to     Span           // of an upload beside the work
	ready  bool           // an upload is filled already: see Stage
}

// fill gets an upload ready.
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

// prepare makes the value of a download, while the device is at work.
func (t *transfer) prepare() (err error) {
	if v := t.instr.Out[0]; t.staged {
		t.value, t.into, err = values.Make(v.Dtype, v.Shape)
	}
	return t.instr.InNode(err)
}

// take makes a download that is done a value of this run.
func (t *transfer) take(e *Executable) {
	if t.staged {
		copyParallel(t.into, t.memory)
	} else {
		t.memory = nil
	}
	e.frame[t.slot] = t.value
	t.value, t.into = nil, nil
}

// copyParallel copies by several goroutines where that is worth it.
func copyParallel(dst, src []byte) {
	if len(src) < leastPiece {
		copy(dst, src)
		return
	}
	pieces(len(src), func(lo, hi int64) { copy(dst[lo:hi], src[lo:hi]) })
}

// pieces calls f for pieces of n bytes, side by side, of 1 MB at least: smaller ones made runs with a batch of 13 MB
// slower by a third, and two goroutines copy 400 KB in twice the time that one takes (H200, bench/notes/engine.md).
func pieces(n int, f func(lo, hi int64)) {
	kernels.Parallel(int64(n), kernels.CeilDiv(int64(n), int64(max(n/leastPiece, 1))), f)
}

const leastPiece = 1 << 20
