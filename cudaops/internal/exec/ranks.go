package exec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Exchange is a rank on the host, as its backend uses it. Exchange computes a collective of in into out when all ranks have called it
// for the same collective; the other ranks' memory must not change meanwhile.
type Exchange interface {
	Exchange(c kernels.Collective, d kernels.Dtype, in, out []byte) error
}

// Meeting is where the ranks of one process exchange values on the host, and learn of ranks that fail.
type Meeting struct {
	mu      sync.Mutex
	all     sync.Cond // signals that a collective is complete or has failed
	what    exchanged // the collective that the ranks arrive for
	in, out [][]byte  // of each rank that has arrived
	arrived int
	done    int      // collectives so far
	failed  error    // why a rank has left
	abort   func()   // ends the collectives of ranks on GPUs, for good; nil on the host
	first   int      // number of the first rank of this process
	peers   Exchange // with the ranks of other processes, or nil
	size    int      // ranks of all processes, where peers is set
}

// exchanged is what ranks must agree on.
type exchanged struct {
	of      kernels.Collective
	dtype   kernels.Dtype
	in, out int // bytes
}

// NewMeeting returns the ranks of a meeting of n.
func NewMeeting(n int) (*Meeting, []Exchange) {
	m := &Meeting{in: make([][]byte, n), out: make([][]byte, n)}
	m.all.L = &m.mu
	ranks := make([]Exchange, n)
	for r := range ranks {
		ranks[r] = member{m, r}
	}
	return m, ranks
}

// NewProcess returns the meeting of the one rank of this process with those of other processes, size in all; leave ends its exchanges.
func NewProcess(rank, size int, peers Exchange, leave func()) *Meeting {
	m, _ := NewMeeting(1)
	m.first, m.size, m.peers, m.abort = rank, size, peers, leave
	return m
}

// same returns the bytes that the first rank of all processes has, and together those of all processes added up.
func (m *Meeting) same(b []byte) ([]byte, error)     { return m.exchange(kernels.Broadcast, b) }
func (m *Meeting) together(b []byte) ([]byte, error) { return m.exchange(kernels.AllReduce, b) }

// exchange returns the result of a collective of the bytes of all processes.
func (m *Meeting) exchange(kind kernels.CollectiveKind, b []byte) ([]byte, error) {
	if m == nil || m.peers == nil {
		return b, nil
	}
	out := make([]byte, len(b))
	return out, m.peers.Exchange(kernels.Collective{Kind: kind, Ranks: m.size}, kernels.Uint8, b, out)
}

// member is a rank of a meeting.
type member struct {
	*Meeting
	rank int
}

// Exchange implements Exchange. The last rank to arrive computes the results of all.
func (m member) Exchange(c kernels.Collective, d kernels.Dtype, in, out []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	what := exchanged{c, d, len(in), len(out)}
	if m.arrived == 0 {
		m.what = what
	} else if m.what != what && m.failed == nil {
		m.fail(fmt.Errorf("rank %d: got %+v, want %+v as on the other ranks", m.rank, what, m.what))
	}
	if m.failed != nil {
		return m.failed
	}
	m.in[m.rank], m.out[m.rank] = in, out
	if m.arrived++; m.arrived == len(m.in) {
		if err := c.Run(d, m.in, m.out); err != nil {
			m.fail(err)
			return err
		}
		m.arrived = 0
		m.done++
		m.all.Broadcast()
		return nil
	}
	for done := m.done; m.done == done; m.all.Wait() {
		if m.failed != nil {
			return m.failed
		}
	}
	return nil
}

// fail makes the exchanges of all ranks fail, unless they do. The lock is held.
func (m *Meeting) fail(err error) {
	if m.failed == nil {
		if m.failed = err; m.abort != nil {
			m.abort()
		}
	}
	m.all.Broadcast()
}

// leave records that a rank cannot go on.
func (m *Meeting) leave(rank int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail(fmt.Errorf("rank %d: %w", m.first+rank, err))
}

// renew returns why a rank has left, and makes the meeting ready for another run if the ranks are on the host. No rank may be in it.
func (m *Meeting) renew() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.failed
	if m.arrived = 0; m.abort == nil {
		m.failed = nil
	}
	return err
}

// NewRanks is New on several ranks: backends that exchange values at the meeting, in the order of the ranks. They are made ready
// concurrently, because ranks on GPUs wait for each other. The result is the first rank, which starts and closes the others and
// sets their states; its outputs and states are those of the first rank.
func NewRanks(p *program.Program, m *Meeting, backends []Backend, timed bool) (*Executable, error) {
	ranks, errs := make([]*Executable, len(backends)), make([]error, len(backends))
	var wait sync.WaitGroup
	for r, b := range backends {
		wait.Go(func() {
			if ranks[r], errs[r] = newExecutable(p, b, timed, false); errs[r] != nil {
				m.leave(r, errs[r])
			}
		})
	}
	wait.Wait()
	if err := m.renew(); err != nil {
		for r, b := range backends {
			if r > 0 { // the first is the caller's
				err = driver.Join(err, b.Close())
			}
		}
		return nil, err
	}
	ranks[0].others, ranks[0].meeting = ranks[1:], m
	return ranks[0], nil
}

// rank returns the rank's number among those of all processes.
func (e *Executable) rank(i int) int {
	if e.meeting == nil {
		return i
	}
	return e.meeting.first + i
}

// Ranks returns all ranks of this process, of the first one.
func (e *Executable) Ranks() []*Executable { return append([]*Executable{e}, e.others...) }

// startRanks starts a run of all ranks.
func (e *Executable) startRanks(ctx context.Context, inputs []gorgonia.Value) error {
	if ctx.Err() != nil {
		return Cancelled(ctx, "the run was cancelled")
	}
	if e.apart != nil {
		return e.differ()
	}
	if err := e.meeting.renew(); err != nil { // ranks on GPUs cannot go on
		return err
	}
	ranks := e.Ranks()
	shares := make([][]gorgonia.Value, len(ranks))
	for r := range ranks {
		shares[r] = slices.Clone(inputs)
	}
	for i, v := range e.program.Inputs() {
		if !v.Def.Op.(program.Input).Split {
			continue
		}
		all, whole := values.Compact(inputs[i]), program.Contiguous(v.Shape)
		for r := range ranks {
			var err error
			if shares[r][i], err = values.View(all, v.Shape, int64(r)*v.Elements(), whole.Strides, whole.Bounds); err != nil {
				return err
			}
		}
	}
	begun := time.Now()
	var wait sync.WaitGroup
	for r, rank := range ranks {
		wait.Go(func() {
			if err := rank.start(context.Background(), shares[r], begun); err != nil {
				e.meeting.leave(r, err)
			}
		})
	}
	wait.Wait()
	err := e.meeting.renew()
	if err != nil && e.Changed() {
		e.apart = err
	}
	return err
}

// differ returns the error of a call that wants equal states on all ranks.
func (e *Executable) differ() error {
	return fmt.Errorf("the states of the ranks differ since a run failed: want a snapshot restored: %w", e.apart)
}

// Rejoin records that all states have been set on all ranks.
func (e *Executable) Rejoin() { e.apart = nil }

// FinishRanks waits for the started run and returns the outputs of each rank.
func (e *Executable) FinishRanks() (outputs [][]gorgonia.Value, err error) {
	var errs []error
	for _, rank := range e.Ranks() {
		out, err := rank.Finish()
		outputs, errs = append(outputs, out), append(errs, err)
	}
	return outputs, errors.Join(errs...)
}
