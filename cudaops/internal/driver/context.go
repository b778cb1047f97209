package driver

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"
)

// Context is a share of a device's primary context, which the whole process uses. Streams, modules,
// events and memory of a context must be released before it is closed.
type Context struct {
	Device *Device

	handle  uintptr
	mu      sync.RWMutex // held for reading by calls, so that Close waits for them; locked until the context is created
	failed  error        // of the creation
	closed  bool
	adopted bool // it belongs to other code, which destroys it
}

// Open takes a share of the device's primary context, creating it if it is the first (0.11 to 0.24 s). Close
// returns it.
func (d *Device) Open() (*Context, error) {
	c := d.Start()
	if err := c.Wait(); err != nil {
		return nil, err
	}
	return c, nil
}

// Start is Open in the background. Calls on the context wait until it is created, and return the error if it could not be.
func (d *Device) Start() *Context {
	c := &Context{Device: d}
	c.mu.Lock()
	go func() {
		defer c.mu.Unlock()
		c.failed = cuDevicePrimaryCtxRetain.call(uintptr(unsafe.Pointer(&c.handle)), d.handle)
	}()
	return c
}

// Wait waits until the context is created.
func (c *Context) Wait() error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.failed
}

// Adopt returns a context that other code of the process has made on the device and destroys:
// handle is its CUcontext. Close only ends its use.
func (d *Device) Adopt(handle uintptr) *Context {
	return &Context{Device: d, handle: handle, adopted: true}
}

// Close returns the share after the calls in progress; the last one closes the primary context.
// Further calls of Close do nothing, and every other call on c fails with [ErrClosed].
func (c *Context) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	if c.adopted || c.failed != nil {
		return nil
	}
	return cuDevicePrimaryCtxRelease.call(c.Device.handle)
}

// call runs p on a thread that has c current. The deferred calls run even if
// the goroutine is ended meanwhile, so neither the thread nor the lock leaks.
//
//go:uintptrescapes
func (c *Context) call(p *proc, args ...uintptr) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closed {
		return fmt.Errorf("%s: %w", p.name, ErrClosed)
	}
	if c.failed != nil {
		return c.failed
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cuCtxSetCurrent.call(c.handle); err != nil {
		return err
	}
	return p.call(args...)
}

// Current calls f on a thread that has c current, for another library's calls.
func (c *Context) Current(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := c.Wait(); err != nil {
		return err
	}
	if err := c.call(cuCtxSetCurrent, c.handle); err != nil {
		return err
	}
	return f()
}

// Ptr is an address in device memory; 0 is none.
type Ptr uint64

// Alloc allocates bytes of device memory, 256-byte aligned, contents undefined. For 0 bytes too it
// returns an address that can be freed. [IsOutOfMemory] reports whether it failed for want of memory.
func (c *Context) Alloc(bytes int64) (Ptr, error) {
	if bytes < 0 {
		return 0, fmt.Errorf("cannot allocate %d bytes of device memory", bytes)
	}
	var p Ptr
	if err := c.call(cuMemAlloc, uintptr(unsafe.Pointer(&p)), uintptr(max(bytes, 1))); err != nil {
		return 0, fmt.Errorf("cannot allocate %d bytes of device memory: %w", bytes, err)
	}
	return p, nil
}

// OnDevice reports whether the device can use p: whether CUDA allocated it on the device, or as
// managed memory.
func (c *Context) OnDevice(p Ptr) bool {
	const device, unified = 2, 4
	kind := c.memoryType(p)
	return kind == device || kind == unified
}

// memoryType returns the CUmemorytype of an address, 0 for memory that CUDA does not know.
func (c *Context) memoryType(p Ptr) uint32 {
	attribute := uint32(2) // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
	kind := new(uint32)
	data := uintptr(unsafe.Pointer(kind)) // void *[1]
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(kind)
	err := c.call(cuPointerGetAttributes, 1, uintptr(unsafe.Pointer(&attribute)), uintptr(unsafe.Pointer(&data)), uintptr(p))
	if err != nil {
		return 0
	}
	return *kind
}

// Free frees memory from Alloc, once the device has finished with it.
func (c *Context) Free(p Ptr) error {
	if p == 0 {
		return nil
	}
	return c.call(cuMemFree, uintptr(p))
}

// Upload copies src to the device and waits, in order with all streams.
func (c *Context) Upload(dst Ptr, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	return c.call(cuMemcpyHtoD, uintptr(dst), uintptr(unsafe.Pointer(&src[0])), uintptr(len(src)))
}

// Download fills dst from the device and waits, in order with all streams.
func (c *Context) Download(dst []byte, src Ptr) error {
	if len(dst) == 0 {
		return nil
	}
	return c.call(cuMemcpyDtoH, uintptr(unsafe.Pointer(&dst[0])), uintptr(src), uintptr(len(dst)))
}

// Memset8 sets n bytes at dst to value, in order with all streams.
func (c *Context) Memset8(dst Ptr, value byte, n int64) error {
	if n <= 0 {
		return nil
	}
	return c.call(cuMemsetD8, uintptr(dst), uintptr(value), uintptr(n))
}

// MemInfo is the device's free and total memory in bytes.
func (c *Context) MemInfo() (free, total int64, err error) {
	err = c.call(cuMemGetInfo, uintptr(unsafe.Pointer(&free)), uintptr(unsafe.Pointer(&total)))
	return free, total, err
}
