package driver

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"
)

// Pinned is host memory of the driver's that stays where it is, which the device copies to and
// from at full speed while the host goes on.
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
	return &Pinned{Bytes: unsafe.Slice((*byte)(p), n), ctx: c}, nil
}

// Free releases the memory, once the device has finished with it. Further calls do nothing.
func (p *Pinned) Free() error {
	if p.Bytes == nil {
		return nil
	}
	at := uintptr(unsafe.Pointer(unsafe.SliceData(p.Bytes)))
	p.Bytes = nil
	return p.ctx.call(cuMemFreeHost, at)
}

// MakePinned returns n bytes of Go's memory, zeros, that are pinned, for all contexts, for as long as anything refers to
// them or to a piece of them: the collector leaves memory alone until its finalizer has run, and that unpins it. Work of the device
// is no reference.
func (c *Context) MakePinned(n int64) ([]byte, error) {
	const portable = 1 // CU_MEMHOSTREGISTER_PORTABLE
	page := int64(os.Getpagesize())
	whole := (max(n, 1) + page - 1) / page * page // pinned pages hold nothing else
	block := make([]byte, whole+page)
	skip := -int64(uintptr(unsafe.Pointer(&block[0]))) & (page - 1)
	at := uintptr(unsafe.Pointer(&block[skip]))
	if err := c.call(cuMemPin, at, uintptr(whole), portable); err != nil {
		return nil, fmt.Errorf("cannot pin %d bytes of memory: %w", n, err)
	}
	runtime.SetFinalizer(&block[0], func(*byte) { _ = c.call(cuMemUnpin, at) })
	return block[skip : skip+n : skip+n], nil
}

// Pinned reports whether a piece of host memory is pinned, by whoever.
func (c *Context) Pinned(m []byte) bool {
	const host = 1
	if len(m) == 0 {
		return false
	}
	last := m[len(m)-1:]
	return c.memoryType(Address(m)) == host && c.memoryType(Address(last)) == host
}

// Address returns where the device finds a piece of pinned memory that is not empty:
// where the host does.
func Address(pinned []byte) Ptr { return Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(pinned)))) }
