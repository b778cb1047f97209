package exec

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
)

// copyStream holds a GPU's copy stream and the events that order it with the work stream.
type copyStream struct {
	stream     *driver.Stream
	copyEvents []*driver.Event
	workEvents []*driver.Event
}

var _ AsyncCopier = (*GPUBackend)(nil)

func (g *GPUBackend) MakeEvents(n int) (err error) {
	if g.async.stream, err = g.ctx.NewStream(); err != nil {
		return err
	}
	for range n {
		for _, list := range []*[]*driver.Event{&g.async.workEvents, &g.async.copyEvents} {
			m, err := g.ctx.NewSyncEvent()
			if err != nil {
				return err
			}
			*list = append(*list, m)
		}
	}
	return nil
}

func (g *GPUBackend) RecordWork(i int) error { return g.stream.Record(g.async.workEvents[i]) }
func (g *GPUBackend) SyncWork(i int) error   { return g.watched(g.async.workEvents[i].Sync) }

func (g *GPUBackend) CopyAsync(to Span, src []byte) error {
	return g.async.stream.UploadPinned(g.Address(to.Offset), src)
}

func (g *GPUBackend) SyncCopies() error           { return g.async.stream.Sync() }
func (g *GPUBackend) RecordCopies(i int) error    { return g.async.stream.Record(g.async.copyEvents[i]) }
func (g *GPUBackend) WorkWaitsCopies(i int) error { return g.stream.Wait(g.async.copyEvents[i]) }
func (g *GPUBackend) SyncCopyEvent(i int) error   { return g.async.copyEvents[i].Sync() }
func (g *GPUBackend) CopiesWaitWork(i int) error  { return g.async.stream.Wait(g.async.workEvents[i]) }
func (g *GPUBackend) Pinned(m []byte) bool        { return g.ctx.Pinned(m) }

// closeCopies releases the copy stream and its events.
func (g *GPUBackend) closeCopies() (errs []error) {
	b := &g.async
	if b.stream != nil {
		errs = append(errs, b.stream.Sync(), b.stream.Close())
	}
	for _, m := range slices.Concat(b.workEvents, b.copyEvents) {
		errs = append(errs, m.Close())
	}
	return errs
}
