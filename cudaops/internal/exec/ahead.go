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

// Beside is a backend whose device copies and computes at the same time. Its methods may be
// called by another goroutine than those of Backend, but for Marks, Mark and FollowCopies.
type Beside interface {
	Backend
	// CopyBeside begins to fill a span from pinned memory, without waiting for work under way.
	CopyBeside(to Span, src []byte) error
	// SyncCopies waits for such copies.
	SyncCopies() error
	// MarkCopies puts mark i behind those begun so far. FollowCopies makes work that is queued from now on wait for
	// it, and AwaitCopies waits. FollowWork makes copies that begin from now on wait for mark i of the work.
	MarkCopies(i int) error
	FollowCopies(i int) error
	AwaitCopies(i int) error
	FollowWork(i int) error
	// Pinned reports whether memory is pinned, so that CopyBeside may read it.
	Pinned(m []byte) bool
	// Marks makes n marks of either kind; Mark puts one behind the work that was queued, and Await waits until
	// that is done.
	Marks(n int) error
	Mark(i int) error
	Await(i int) error
}

// CopyLimit is the size in bytes from which on it pays to copy an input beside the work: see
// copyLimit.
const CopyLimit = copyLimit

// A set is the memory that a run of the program uses alone while it is under way: staging memory, and the
// places of inputs that have two. With two sets that take turns, the values of a run are copied to the device while
// the run before computes.
type set struct {
	number   int
	parts    []part
	uploads  []*transfer // queued with the work
	copies   []*transfer // beside the work
	launched atomic.Bool // its last run was queued, and is perhaps not done
	use      use
	inputs   []gorgonia.Value // the staged values, by number, while use is staged
	since    int
	copying  bool // copies beside the work have begun for its run
	own      bool // some of them read memory of the user's
	// held keeps staged values alive that a run has taken or that are not wanted any more, for as long as
	// the device may still copy from them.
	held []gorgonia.Value
}

// use is the use of a set.
type use int

const (
	idle     use = iota
	filling      // by Stage
	staged       // for a run to come
	starting     // of a run
)

// turns keeps whose turn it is.
type turns struct {
	sync.Mutex // of the sets' use, inputs and since
	staged     int
	last       int          // the set of the last run
	open       sync.RWMutex // held for reading by Stage
	closed     bool
}

// bindSets makes the sets.
func (e *Executable) bindSets() error {
	n := 1
	if e.beside != nil {
		n = 2
		if err := e.beside.Marks(n); err != nil {
			return err
		}
	}
	for k := range n {
		s := &set{number: k}
		e.sets = append(e.sets, s)
		if k == 1 {
			e.program.SwapTwins()
			defer e.program.SwapTwins()
		}
		if err := e.bind(s); err != nil {
			return err
		}
	}
	return nil
}

// isBeside reports whether an instruction is a copy beside the work of the device.
func (e *Executable) isBeside(in *program.Instr) bool {
	_, copies := in.Op.(program.Copy)
	return copies && e.beside != nil && in.Out[0].Space == program.OnDevice && in.Out[0].Buffer.Twin != nil
}

// Stages reports whether Stage does anything.
func (e *Executable) Stages() bool { return e.beside != nil && !e.unstaged }

// Stage copies values of inputs to the device for a later run, beside the run under way: in the order
// of [program.Program.Inputs], nil for those that are not known yet. A later run that gets one of
// these very values takes it from there. The value may be changed once that run, or another one, has started.
//
// Another goroutine may call it. It reports false if it did nothing, because the device still works on
// the memory that it would write.
func (e *Executable) Stage(inputs []gorgonia.Value) (done bool, err error) {
	e.turns.open.RLock()
	defer e.turns.open.RUnlock()
	if !e.Stages() || e.turns.closed {
		return false, nil
	}
	s := e.reserve()
	if s == nil {
		return false, nil
	}
	err = e.stage(s, inputs)
	e.turns.Lock()
	defer e.turns.Unlock()
	if err != nil {
		s.drop()
		return false, err
	}
	e.turns.staged++
	s.use, s.inputs, s.since = staged, slices.Clone(inputs), e.turns.staged
	return true, nil
}

// reserve returns a set for Stage: an idle one if there is one, that of the last run as the last choice; else the
// set that has waited for its run the longest. It returns nil while another Stage fills a set.
func (e *Executable) reserve() *set {
	e.turns.Lock()
	defer e.turns.Unlock()
	var found *set
	for k := range e.sets {
		s := e.sets[(e.turns.last+1+k)%len(e.sets)]
		switch {
		case s.use == filling:
			return nil
		case s.use == idle && (found == nil || found.use == staged),
			s.use == staged && (found == nil || found.use == staged && s.since < found.since):
			found = s
		}
	}
	if found != nil {
		found.drop()
		found.use = filling
	}
	return found
}

// hold ends the staging of the values, and keeps those alive that the device may still copy from.
func (s *set) hold() {
	if s.own && s.inputs != nil {
		s.held = s.inputs
	}
	s.inputs = nil
}

// drop forgets the staged values.
func (s *set) drop() {
	s.hold()
	s.use, s.copying, s.own = idle, false, false
	for _, list := range [][]*transfer{s.uploads, s.copies} {
		for _, t := range list {
			t.ready = false
		}
	}
}

// await waits for the last run of a set.
func (e *Executable) await(s *set) error {
	if !s.launched.Load() {
		return nil
	}
	err := e.beside.Await(s.number)
	s.launched.Store(false)
	return err
}

// stage begins the copies of a set, and fills the staging memory of its uploads. The last run of the set may still be under
// way: the device itself holds the copies back until that ends.
func (e *Executable) stage(s *set, inputs []gorgonia.Value) error {
	of := map[int]gorgonia.Value{}
	for i, v := range inputs {
		if v != nil {
			of[e.inputs[i]] = values.Compact(v)
		}
	}
	if err := e.stageCopies(s, of); err != nil {
		return err
	}
	if err := e.await(s); err != nil {
		return err
	}
	for _, t := range s.uploads {
		if v := of[t.slot]; v != nil && t.staged {
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

// stageCopies begins the copies of values by slot.
func (e *Executable) stageCopies(s *set, of map[int]gorgonia.Value) (err error) {
	if s.held != nil {
		if err := e.beside.AwaitCopies(s.number); err != nil {
			return err
		}
		s.held = nil
	}
	if s.launched.Load() {
		err = e.beside.FollowWork(s.number)
	}
	for _, t := range s.copies {
		if v := of[t.slot]; v != nil && err == nil {
			err = e.begin(s, t, v)
			t.ready = err == nil
		}
	}
	if err != nil {
		return driver.Join(err, e.beside.SyncCopies())
	}
	return e.beside.MarkCopies(s.number)
}

// begin begins a copy beside the work: from the value's own memory, if that is pinned.
func (e *Executable) begin(s *set, t *transfer, v gorgonia.Value) error {
	m, err := bytesOf(v, t.instr.Out[0])
	if err != nil {
		return t.instr.InNode(err)
	}
	s.copying = true
	if e.beside.Pinned(m) {
		s.own = true
		return t.instr.InNode(e.beside.CopyBeside(t.to, m))
	}
	if t.memory == nil {
		if t.memory, err = e.beside.Stage(t.to.Size); err != nil {
			return t.instr.InNode(err)
		}
	}
	if err := e.beside.AwaitCopies(s.number); err != nil { // those before from the same memory
		return t.instr.InNode(err)
	}
	var failed atomic.Pointer[error]
	inTurn(int64(len(m)), func(lo, hi int64) { // each is on its way while others are brought into staging memory
		streamcopy.Copy(t.memory[lo:hi], m[lo:hi])
		streamcopy.Fence()
		if err := e.beside.CopyBeside(Span{t.to.Offset + lo, hi - lo}, t.memory[lo:hi]); err != nil {
			failed.Store(&err)
		}
	})
	if err := failed.Load(); err != nil {
		return t.instr.InNode(*err)
	}
	return nil
}

// copyBeside begins the copies, not yet staged, of a run that is being started, and makes its work wait for all
// of its copies.
func (e *Executable) copyBeside(s *set) error {
	some := false
	for _, t := range s.copies {
		if !t.ready {
			if err := e.begin(s, t, e.frame[t.slot]); err != nil {
				return err
			}
			some = true
		}
	}
	if some {
		if err := e.beside.MarkCopies(s.number); err != nil {
			return err
		}
	}
	if s.copying {
		return e.beside.FollowCopies(s.number)
	}
	return nil
}

// take returns the set for a run: of those with staged values that the run has, the one that was staged first; else one
// that is not in use.
func (e *Executable) take(inputs []gorgonia.Value) (*set, error) {
	s := e.choose(inputs)
	if err := e.await(s); err != nil {
		return nil, driver.Join(err, e.give(s, false))
	}
	return s, nil
}

// choose does so, but for waiting for the set's last run, and makes it the set of the last run.
func (e *Executable) choose(inputs []gorgonia.Value) (s *set) {
	e.turns.Lock()
	defer e.turns.Unlock()
	defer func() { e.turns.last = s.number }()
	for _, o := range e.sets {
		if o.use == staged && (s == nil || o.since < s.since) && o.has(inputs) {
			s = o
		}
	}
	if s != nil {
		for _, t := range slices.Concat(s.uploads, s.copies) {
			i := slices.Index(e.inputs, t.slot)
			t.ready = t.ready && i >= 0 && inputs[i] == s.inputs[i]
		}
		s.hold()
		s.use = starting
		return s
	}
	for k := range e.sets { // nobody wants the staged values
		o := e.sets[(e.turns.last+1+k)%len(e.sets)]
		if o.use == filling {
			continue
		}
		if o.drop(); s == nil {
			s = o
		}
	}
	s.use = starting
	return s
}

// has reports whether one of the values is staged.
func (s *set) has(inputs []gorgonia.Value) bool {
	for i, v := range s.inputs {
		if v != nil && v == inputs[i] {
			return true
		}
	}
	return false
}

// give releases a set when the work of its run is queued. If the run could not be started it waits for the copies.
func (e *Executable) give(s *set, started bool) (err error) {
	if e.beside != nil && started {
		err = e.beside.Mark(s.number)
		s.launched.Store(true)
		if s.own { // its owner may write there when the run has returned
			err = driver.Join(err, e.beside.AwaitCopies(s.number))
			s.held = nil
		}
	} else if e.beside != nil {
		err = e.beside.SyncCopies()
	}
	e.turns.Lock()
	defer e.turns.Unlock()
	s.drop()
	return err
}

// inTurn calls f for chunks of n bytes, in several goroutines, each of which takes the next chunk: the device copies the first
// ones while the host still works on others. A batch of 13 MB came to the device in 0.63 ms by 12 goroutines and chunks of 256 KB, in 0.73 to 0.81 by 16 and
// 512 KB, in 0.72 to 0.79 by 16 and pieces of 0.8 MB that went through the caches (H200, 16 cores, bench/notes/engine.md).
func inTurn(n int64, f func(lo, hi int64)) {
	const chunk = 256 << 10
	if n < leastPiece {
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
