package exec

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
)

// beside holds a GPU's resources for copies beside its work.
type beside struct {
	copies *driver.Stream
	copied []*driver.Event // marks among them
	marks  []*driver.Event
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

// FollowWork implements Beside.
func (g *GPUBackend) FollowWork(i int) error { return g.beside.copies.Wait(g.beside.marks[i]) }

// Pinned implements Beside.
func (g *GPUBackend) Pinned(m []byte) bool { return g.ctx.Pinned(m) }

// closeBeside releases all of it.
func (g *GPUBackend) closeBeside() (errs []error) {
	b := &g.beside
	if b.copies != nil {
		errs = append(errs, b.copies.Sync(), b.copies.Close())
	}
	for _, m := range slices.Concat(b.marks, b.copied) {
		errs = append(errs, m.Close())
	}
	return errs
}
