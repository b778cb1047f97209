package driver

import (
	"fmt"
	"unsafe"
)

// Pinned is host memory that stays where it is, which the device copies to and
// from at full speed while the host goes on. It is no memory of Go's.
type Pinned struct {
	Bytes []byte

	ctx *Context
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
	return &Pinned{unsafe.Slice((*byte)(p), n), c}, nil
}

// Address returns where the device finds a piece of pinned memory that is not empty:
// where the host does.
func Address(pinned []byte) Ptr { return Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(pinned)))) }

// Free gives the memory back, once the device has finished with it. Further calls
// do nothing.
func (p *Pinned) Free() error {
	if p.Bytes == nil {
		return nil
	}
	at := uintptr(unsafe.Pointer(unsafe.SliceData(p.Bytes)))
	p.Bytes = nil
	return p.ctx.call(cuMemFreeHost, at)
}
