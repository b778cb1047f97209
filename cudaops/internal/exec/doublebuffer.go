package exec

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/streamcopy"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// AsyncCopier is a Backend with a second stream for host-to-device copies. Its methods may be called concurrently
// with Backend's, except MakeEvents, RecordWork and WorkWaitsCopies.
type AsyncCopier interface {
	Backend
	// CopyAsync queues a copy from pinned memory to a span, without waiting for the work stream.
	CopyAsync(to Span, src []byte) error
	// SyncCopies waits for all queued copies.
	SyncCopies() error
	// RecordCopies records copy event i after the copies queued so far. WorkWaitsCopies makes the work stream wait for
	// copy event i; SyncCopyEvent blocks the caller until it. CopiesWaitWork makes the copy stream wait for work event i.
	RecordCopies(i int) error
	WorkWaitsCopies(i int) error
	SyncCopyEvent(i int) error
	CopiesWaitWork(i int) error
	// Pinned reports whether memory is pinned, so that CopyAsync may read it.
	Pinned(m []byte) bool
	// MakeEvents makes n copy events and n work events. RecordWork records work event i after the work queued so far;
	// SyncWork blocks the caller until it.
	MakeEvents(n int) error
	RecordWork(i int) error
	SyncWork(i int) error
}

// CopyLimit is the size in bytes above which inputs are copied on the copy stream: see copyLimit.
const CopyLimit = copyLimit

// bufferSet is the memory owned by one run in flight: staging buffers, and the device buffers of double-buffered
// inputs. With two sets used alternately, the inputs of one run are copied while the previous run computes.
type bufferSet struct {
	number    int
	steps     []step
	uploads   []*transfer // on the work stream
	copies    []*transfer // on the copy stream
	launched  atomic.Bool // the set's previous run was queued and may still be in flight
	state     setState
	inputs    []gorgonia.Value // the staged values, in the order of the inputs, while state is staged
	order     int              // the set's number among all staged so far, while state is staged
	copying   bool             // copies for the set's next run were queued on the copy stream
	readsUser bool             // some of these copies read the user's memory
	retained  []gorgonia.Value // values no longer staged, kept alive while the device may still copy from them
}

// setState is what a set is used for.
type setState int

const (
	idle     setState = iota
	filling           // Stage copies inputs
	staged            // it holds the inputs of a later run
	starting          // a run is being queued
)

// setPool tracks which set is free, staged or in use.
type setPool struct {
	sync.Mutex              // guards the sets' state, inputs and order
	staged     int          // how often a set was staged
	last       int          // index of the set of the last run
	open       sync.RWMutex // held for reading by Stage
	closed     bool
}

// bindSets makes the sets.
func (e *Executable) bindSets() error {
	n := 1
	if e.copier != nil {
		n = 2
		if err := e.copier.MakeEvents(n); err != nil {
			return err
		}
	}
	for k := range n {
		s := &bufferSet{number: k}
		e.sets = append(e.sets, s)
		if k == 1 {
			e.program.SwapAlternates()
			defer e.program.SwapAlternates()
		}
		if err := e.bind(s); err != nil {
			return err
		}
	}
	return nil
}

// copiesAsync reports whether an instruction is a copy on the copy stream.
func (e *Executable) copiesAsync(in *program.Instr) bool {
	return program.Is[program.Copy](in.Op) && e.copier != nil && in.Out[0].Space == program.OnDevice && in.Out[0].Buffer.Alternate != nil
}

// Stages reports whether Stage can copy inputs ahead of a run.
func (e *Executable) Stages() bool { return e.copier != nil && !e.unstaged && !e.ranked }

// Stage copies input values to the device for a later run while the current run computes. inputs are in the order of
// [program.Program.Inputs]; nil entries are not staged. A later run with the same value as input uses the staged copy.
// A value may be changed as soon as that run, or another one, has started.
//
// Any goroutine may call Stage. It reports false if it staged nothing, because the memory that it would write is in
// use.
func (e *Executable) Stage(inputs []gorgonia.Value) (done bool, err error) {
	e.pool.open.RLock()
	defer e.pool.open.RUnlock()
	if !e.Stages() || e.pool.closed {
		return false, nil
	}
	s := e.reserve()
	if s == nil {
		return false, nil
	}
	err = e.stage(s, inputs)
	e.pool.Lock()
	defer e.pool.Unlock()
	if err != nil {
		s.discard()
		return false, err
	}
	e.pool.staged++
	s.state, s.inputs, s.order = staged, slices.Clone(inputs), e.pool.staged
	return true, nil
}

// reserve returns a set for Stage: an idle one, that of the last run as the last choice, or else the set that was
// staged first. It returns nil while another Stage fills a set.
func (e *Executable) reserve() *bufferSet {
	e.pool.Lock()
	defer e.pool.Unlock()
	var found *bufferSet
	for k := range e.sets {
		s := e.sets[(e.pool.last+1+k)%len(e.sets)]
		switch {
		case s.state == filling:
			return nil
		case s.state == idle && (found == nil || found.state == staged),
			s.state == staged && (found == nil || found.state == staged && s.order < found.order):
			found = s
		}
	}
	if found != nil {
		found.discard()
		found.state = filling
	}
	return found
}

// retain clears the staged values, but keeps those alive that the device may still copy from.
func (s *bufferSet) retain() {
	if s.readsUser && s.inputs != nil {
		s.retained = s.inputs
	}
	s.inputs = nil
}

// discard clears the staged values and makes the set idle.
func (s *bufferSet) discard() {
	s.retain()
	s.state, s.copying, s.readsUser = idle, false, false
	for _, list := range [][]*transfer{s.uploads, s.copies} {
		for _, t := range list {
			t.ready = false
		}
	}
}

// await waits for the previous run of a set.
func (e *Executable) await(s *bufferSet) error {
	if !s.launched.Load() {
		return nil
	}
	err := e.copier.SyncWork(s.number)
	s.launched.Store(false)
	return err
}

// stage queues the copies of a set and fills the staging memory of its uploads. The set's previous run may still be in
// flight: the copy stream waits for it.
func (e *Executable) stage(s *bufferSet, inputs []gorgonia.Value) error {
	bySlot := map[int]gorgonia.Value{}
	for i, v := range inputs {
		if v != nil {
			bySlot[e.inputs[i]] = values.Compact(v)
		}
	}
	if err := e.stageCopies(s, bySlot); err != nil {
		return err
	}
	if err := e.await(s); err != nil {
		return err
	}
	for _, t := range s.uploads {
		if v := bySlot[t.slot]; v != nil && t.staged {
			m, err := bytesOf(v, t.instr.Out[0])
			if err != nil {
				return t.instr.InNode(err)
			}
			copyParallel(t.memory, m)
			t.ready = true
		}
	}
	return nil
}

// stageCopies queues the copies of a set on the copy stream.
func (e *Executable) stageCopies(s *bufferSet, bySlot map[int]gorgonia.Value) (err error) {
	if s.retained != nil {
		if err := e.copier.SyncCopyEvent(s.number); err != nil {
			return err
		}
		s.retained = nil
	}
	if s.launched.Load() {
		err = e.copier.CopiesWaitWork(s.number)
	}
	for _, t := range s.copies {
		if v := bySlot[t.slot]; v != nil && err == nil {
			err = e.startCopy(s, t, v)
			t.ready = err == nil
		}
	}
	if err != nil {
		return driver.Join(err, e.copier.SyncCopies())
	}
	return e.copier.RecordCopies(s.number)
}

// startCopy queues a copy on the copy stream: from the value's own memory if that is pinned, else through staging
// memory.
func (e *Executable) startCopy(s *bufferSet, t *transfer, v gorgonia.Value) error {
	m, err := bytesOf(v, t.instr.Out[0])
	if err != nil {
		return t.instr.InNode(err)
	}
	s.copying = true
	if e.copier.Pinned(m) {
		s.readsUser = true
		return t.instr.InNode(e.copier.CopyAsync(t.to, m))
	}
	if t.memory == nil {
		if t.memory, err = e.copier.Stage(t.to.Size); err != nil {
			return t.instr.InNode(err)
		}
	}
	if err := e.copier.SyncCopyEvent(s.number); err != nil { // earlier copies read the same staging memory
		return t.instr.InNode(err)
	}
	var failed atomic.Pointer[error]
	copyChunks(int64(len(m)), func(lo, hi int64) { // the device copies a chunk while the host fills others
		streamcopy.Copy(t.memory[lo:hi], m[lo:hi])
		streamcopy.Fence()
		if err := e.copier.CopyAsync(Span{Offset: t.to.Offset + lo, Size: hi - lo}, t.memory[lo:hi]); err != nil {
			failed.Store(&err)
		}
	})
	if err := failed.Load(); err != nil {
		return t.instr.InNode(*err)
	}
	return nil
}

// startCopies queues the copies that Stage has not queued for the run being started, and makes the work stream wait for
// all of the run's copies.
func (e *Executable) startCopies(s *bufferSet) error {
	queued := false
	for _, t := range s.copies {
		if !t.ready {
			if err := e.startCopy(s, t, e.frame[t.slot]); err != nil {
				return err
			}
			queued = true
		}
	}
	if queued {
		if err := e.copier.RecordCopies(s.number); err != nil {
			return err
		}
	}
	if s.copying {
		return e.copier.WorkWaitsCopies(s.number)
	}
	return nil
}

// acquire returns the set for a run: the one staged first among those that hold any of the run's inputs, otherwise a
// free one. It waits for the set's previous run.
func (e *Executable) acquire(inputs []gorgonia.Value) (*bufferSet, error) {
	s := e.choose(inputs)
	if err := e.await(s); err != nil {
		return nil, driver.Join(err, e.release(s, false))
	}
	return s, nil
}

// choose selects the set for a run without waiting for the set's previous run, and records it as the last one used.
func (e *Executable) choose(inputs []gorgonia.Value) (s *bufferSet) {
	e.pool.Lock()
	defer e.pool.Unlock()
	defer func() { e.pool.last = s.number }()
	for _, o := range e.sets {
		if o.state == staged && (s == nil || o.order < s.order) && o.holdsAny(inputs) {
			s = o
		}
	}
	if s != nil {
		for _, t := range slices.Concat(s.uploads, s.copies) {
			i := slices.Index(e.inputs, t.slot)
			t.ready = t.ready && i >= 0 && inputs[i] == s.inputs[i]
		}
		s.retain()
		s.state = starting
		return s
	}
	for k := range e.sets { // the run uses none of the staged values
		o := e.sets[(e.pool.last+1+k)%len(e.sets)]
		if o.state == filling {
			continue
		}
		if o.discard(); s == nil {
			s = o
		}
	}
	s.state = starting
	return s
}

// holdsAny reports whether one of the inputs is staged in the set.
func (s *bufferSet) holdsAny(inputs []gorgonia.Value) bool {
	for i, v := range s.inputs {
		if v != nil && v == inputs[i] {
			return true
		}
	}
	return false
}

// release makes a set idle after its run has been queued. If the run could not be queued, release waits for the set's
// copies.
func (e *Executable) release(s *bufferSet, started bool) (err error) {
	if e.copier != nil && started {
		err = e.copier.RecordWork(s.number)
		s.launched.Store(true)
		if s.readsUser { // the user may overwrite the inputs once Start has returned
			err = driver.Join(err, e.copier.SyncCopyEvent(s.number))
			s.retained = nil
		}
	} else if e.copier != nil {
		err = e.copier.SyncCopies()
	}
	e.pool.Lock()
	defer e.pool.Unlock()
	s.discard()
	return err
}

// copyChunks calls f for chunks of n bytes in several goroutines, so that the device copies the first chunks while the
// host fills later ones. Time to copy a batch of 13 MB to the device (H200, 16 cores, bench/notes/engine.md):
//
//	goroutines  chunk                            ms
//	12          256 KB                           0.63
//	16          512 KB                           0.73 to 0.81
//	16          0.8 MB, through the CPU's caches 0.72 to 0.79
func copyChunks(n int64, f func(lo, hi int64)) {
	const chunk = 256 << 10
	if n < minPiece {
		f(0, n)
		return
	}
	workers := min(kernels.CeilDiv(n, chunk), int64(max(runtime.GOMAXPROCS(0)*3/4, 1)))
	var next atomic.Int64
	kernels.Parallel(workers, 1, func(int64, int64) {
		for lo := next.Add(chunk) - chunk; lo < n; lo = next.Add(chunk) - chunk {
			f(lo, min(lo+chunk, n))
		}
	})
}
