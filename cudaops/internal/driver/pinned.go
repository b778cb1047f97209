package driver

import (
	"fmt"
	"unsafe"
)

// Pinned is host memory that stays where it is, which the device copies to and
// from at full speed while the host goes on: memory of the driver's, or of Go's that was
// pinned.
type Pinned struct {
	Bytes []byte

	ctx *Context
	own bool // it is Go's
}

// AllocPinned returns n bytes of pinned memory, contents undefined.
func (c *Context) AllocPinned(n int64) (*Pinned, error) {
	if n < 0 {
		return nil, fmt.Errorf("cannot allocate %d bytes of pinned memory", n)
	}
	const portable = 1 // CU_MEMHOSTALLOC_PORTABLE: pinned for all contexts
	var at uintptr
	if err := c.call(cuMemHostAlloc, uintptr(unsafe.Pointer(&at)), uintptr(max(n, 1)), portable); err != nil {
		return nil, fmt.Errorf("cannot allocate %d bytes of pinned memory: %w", n, err)
	}
	// The address is C's, so nothing moves it and the collector leaves it alone.
	p := *(*unsafe.Pointer)(unsafe.Pointer(&at))
	return &Pinned{Bytes: unsafe.Slice((*byte)(p), n), ctx: c}, nil
}

// Pin makes a piece of Go's memory pinned until Free. It should begin and end with a page, and no
// other piece may be pinned in the same pages.
func (c *Context) Pin(m []byte) (*Pinned, error) {
	const portable = 1 // CU_MEMHOSTREGISTER_PORTABLE
	if err := c.call(cuMemPin, uintptr(unsafe.Pointer(unsafe.SliceData(m))), uintptr(len(m)), portable); err != nil {
		return nil, fmt.Errorf("cannot pin %d bytes of memory: %w", len(m), err)
	}
	return &Pinned{Bytes: m, ctx: c, own: true}, nil
}

// Address returns where the device finds a piece of pinned memory that is not empty:
// where the host does.
func Address(pinned []byte) Ptr { return Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(pinned)))) }

// Free releases the memory, or makes it Go's as before, once the device has finished with it.
// Further calls do nothing.
func (p *Pinned) Free() error {
	if p.Bytes == nil {
		return nil
	}
	at := uintptr(unsafe.Pointer(unsafe.SliceData(p.Bytes)))
	if p.own {
		err := p.ctx.call(cuMemUnpin, at)
		p.Bytes = nil // not before: it keeps the memory
		return err
	}
	p.Bytes = nil
	return p.ctx.call(cuMemFreeHost, at)
}
