package exec

import (
	"slices"
	"unsafe"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
)

// beside holds a GPU's resources for copies beside its work.
type beside struct {
	copies *driver.Stream
	copied []*driver.Event // marks among them
	marks  []*driver.Event
	pinned []*driver.Pinned // memory of Go's
}

var _ Beside = (*GPUBackend)(nil)

// Marks implements Beside.
func (g *GPUBackend) Marks(n int) (err error) {
	if g.beside.copies, err = g.ctx.NewStream(); err != nil {
		return err
	}
	for range n {
		for _, list := range []*[]*driver.Event{&g.beside.marks, &g.beside.copied} {
			m, err := g.ctx.NewMark()
			if err != nil {
				return err
			}
			*list = append(*list, m)
		}
	}
	return nil
}

// Mark implements Beside.
func (g *GPUBackend) Mark(i int) error { return g.stream.Record(g.beside.marks[i]) }

// Await implements Beside.
func (g *GPUBackend) Await(i int) error { return g.beside.marks[i].Sync() }

// CopyBeside implements Beside.
func (g *GPUBackend) CopyBeside(to Span, src []byte) error {
	return g.beside.copies.UploadPinned(g.Address(to.Offset), src)
}

// SyncCopies implements Beside.
func (g *GPUBackend) SyncCopies() error { return g.beside.copies.Sync() }

// MarkCopies implements Beside.
func (g *GPUBackend) MarkCopies(i int) error { return g.beside.copies.Record(g.beside.copied[i]) }

// FollowCopies implements Beside.
func (g *GPUBackend) FollowCopies(i int) error { return g.stream.Wait(g.beside.copied[i]) }

// AwaitCopies implements Beside.
func (g *GPUBackend) AwaitCopies(i int) error { return g.beside.copied[i].Sync() }

// Pin implements Beside.
func (g *GPUBackend) Pin(m []byte) error {
	p, err := g.ctx.Pin(m)
	if err != nil {
		return err
	}
	g.hostMemory.Lock()
	defer g.hostMemory.Unlock()
	g.beside.pinned = append(g.beside.pinned, p)
	return nil
}

// Pinned implements Beside.
func (g *GPUBackend) Pinned(m []byte) bool {
	g.hostMemory.Lock()
	defer g.hostMemory.Unlock()
	at := uintptr(unsafe.Pointer(unsafe.SliceData(m)))
	for _, p := range g.beside.pinned {
		from := uintptr(unsafe.Pointer(unsafe.SliceData(p.Bytes)))
		if from <= at && at+uintptr(len(m)) <= from+uintptr(len(p.Bytes)) {
			return true
		}
	}
	return false
}

// closeBeside releases all of it.
func (g *GPUBackend) closeBeside() (errs []error) {
	b := &g.beside
	if b.copies != nil {
		errs = append(errs, b.copies.Sync(), b.copies.Close())
	}
	for _, m := range slices.Concat(b.marks, b.copied) {
		errs = append(errs, m.Close())
	}
	for _, p := range b.pinned {
		errs = append(errs, p.Free())
	}
	return errs
}
