package driver

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"
)

// Pinned is host memory of the driver's whose pages stay in place: the device copies to and from
// it at full speed while the host goes on.
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
	// The memory is not Go's: the collector neither moves nor frees it.
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

// MakePinned returns n zero bytes of Go's memory, pinned for all contexts for as long as anything in Go refers to
// a part of them; then a finalizer unpins them, and the memory is collected. Work of the device does not count as a reference.
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

// Pinned reports whether host memory is pinned, no matter by whom.
func (c *Context) Pinned(m []byte) bool {
	const host = 1
	if len(m) == 0 {
		return false
	}
	last := m[len(m)-1:]
	return c.memoryType(Address(m)) == host && c.memoryType(Address(last)) == host
}

// Address returns the device's address of pinned memory that is not empty: the same as the host's.
func Address(pinned []byte) Ptr { return Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(pinned)))) }
