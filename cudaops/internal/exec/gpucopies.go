package exec

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/internal/streamcopy"
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

// Copies of many bytes from memory that is not pinned go through pinned memory, by several goroutines with two pieces each: the device copies one piece
// while the goroutine fills the other. The driver copies such memory by one thread, also for several threads.
//
//	500 MB, with the time to pin, H200, 16 cores  ms
//	driver, 1 to 8 threads                        79 to 84
//	4 goroutines, 1 MB                            28.5, 29.5
//	8 goroutines, 256 KB                          20.4, 21.9
//	8 goroutines, 512 KB; 1 MB                    21.3, 22.0; 26.8, 27.5
//	12; 16; 24 goroutines, 256 KB                 20.6, 21.6; 21.7, 21.9; 21.3, 21.4
const (
	bulkPiece = 256 << 10
	bulkMin   = 16 << 20 // bytes in all; to pin memory takes 0.4 ms a MB
	bulkMax   = 8        // goroutines
)

// uploadAll implements bulkUploader.
func (g *GPUBackend) uploadAll(list []upload) error {
	var pieces []upload
	bytes := 0
	for _, x := range list {
		bytes += len(x.from)
		for at := 0; at < len(x.from); at += bulkPiece {
			to := x.to
			to.Offset += int64(at)
			pieces = append(pieces, upload{to, x.from[at:min(at+bulkPiece, len(x.from))]})
		}
	}
	if bytes < bulkMin {
		return uploadEach(g, list)
	}
	workers := max(1, min(bulkMax, runtime.GOMAXPROCS(0)*3/4))
	memory, err := g.ctx.AllocPinned(int64(workers) * 2 * bulkPiece)
	if err != nil {
		return err
	}
	errs := make([]error, workers+2)
	var next atomic.Int64
	var wait sync.WaitGroup
	for w := range workers {
		wait.Go(func() { errs[w] = g.uploadPieces(pieces, &next, memory.Bytes[w*2*bulkPiece:][:2*bulkPiece]) })
	}
	wait.Wait()
	errs[workers], errs[workers+1] = g.Sync(), memory.Free()
	return driver.Join(errs...)
}

// uploadPieces queues copies of pieces, from the next one on, through two parts of pinned memory.
func (g *GPUBackend) uploadPieces(pieces []upload, next *atomic.Int64, memory []byte) (err error) {
	var copied [2]*driver.Event
	defer func() {
		for _, e := range copied {
			if e != nil {
				err = driver.Join(err, e.Close())
			}
		}
	}()
	for k := 0; ; k = 1 - k {
		i := next.Add(1) - 1
		if i >= int64(len(pieces)) {
			return nil
		}
		if copied[k] == nil {
			if copied[k], err = g.ctx.NewSyncEvent(); err != nil {
				return err
			}
		} else if err = copied[k].Sync(); err != nil {
			return err
		}
		x := pieces[i]
		part := memory[k*bulkPiece:][:len(x.from)]
		streamcopy.Copy(part, x.from)
		streamcopy.Fence()
		if err = g.stream.UploadPinned(g.address(x.to), part); err == nil {
			err = g.stream.Record(copied[k])
		}
		if err != nil {
			return err
		}
	}
}

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
