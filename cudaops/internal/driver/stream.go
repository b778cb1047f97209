package driver

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Stream is a queue of work for the device, done in order.
type Stream struct {
	ctx    *Context
	handle uintptr

	mu   sync.Mutex
	held [][]byte // host memory of copies that may still be under way

	// captured are the kernels that the stream has captured, and whether each waits by itself for
	// those before it. It is nil for a stream that captures nothing.
	captured map[GraphNode]bool
}

// NewStream makes a stream. It keeps order with [Context.Upload], Download and
// Memset8: CUDA calls it a blocking stream.
func (c *Context) NewStream() (*Stream, error) {
	s := &Stream{ctx: c}
	if err := c.call(cuStreamCreate, uintptr(unsafe.Pointer(&s.handle)), 0); err != nil {
		return nil, err
	}
	return s, nil
}

// DefaultStream is CUDA's own stream of the context, which keeps order with all
// blocking streams. It needs no Close.
func (c *Context) DefaultStream() *Stream { return &Stream{ctx: c} }

// Close releases the stream; the work that was queued is still done. Further calls do
// nothing. Sync first if uploads or downloads are under way.
func (s *Stream) Close() error { return closeHandle(s.ctx, &s.handle, cuStreamDestroy) }

// Sync waits until all that was queued is done. Its error may be that of any
// earlier launch.
func (s *Stream) Sync() error {
	s.mu.Lock()
	held := s.held
	s.held = nil
	s.mu.Unlock()
	err := s.ctx.call(cuStreamSynchronize, s.handle)
	runtime.KeepAlive(held)
	return err
}

func (s *Stream) hold(b []byte) {
	s.mu.Lock()
	s.held = append(s.held, b)
	s.mu.Unlock()
}

// Upload queues a copy of src to the device. src must not be changed before
// Sync.
func (s *Stream) Upload(dst Ptr, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	s.hold(src)
	return s.ctx.call(cuMemcpyHtoDAsync, uintptr(dst), uintptr(unsafe.Pointer(&src[0])), uintptr(len(src)), s.handle)
}

// UploadPinned is Upload of pinned memory, which is there until the copy is done.
func (s *Stream) UploadPinned(dst Ptr, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	return s.ctx.call(cuMemcpyHtoDAsync, uintptr(dst), uintptr(unsafe.Pointer(&src[0])), uintptr(len(src)), s.handle)
}

// Download queues a copy of device memory to dst, which is filled after Sync.
func (s *Stream) Download(dst []byte, src Ptr) error {
	if len(dst) == 0 {
		return nil
	}
	s.hold(dst)
	return s.ctx.call(cuMemcpyDtoHAsync, uintptr(unsafe.Pointer(&dst[0])), uintptr(src), uintptr(len(dst)), s.handle)
}

// Copy queues a copy of n bytes from src to dst on the device.
func (s *Stream) Copy(dst, src Ptr, n int64) error {
	if n <= 0 {
		return nil
	}
	return s.ctx.call(cuMemcpyDtoDAsync, uintptr(dst), uintptr(src), uintptr(n), s.handle)
}

// Launch queues kernel f on a grid of blocks of threads, with that many bytes
// of dynamic shared memory. Each of params points to one argument, of exactly
// the type that the kernel takes; the arguments are copied before Launch
// returns. A kernel's own failure is the error of a later call.
func (s *Stream) Launch(f *Function, grid, block [3]uint32, shared uint32, params []unsafe.Pointer) error {
	return s.launch(f, grid, block, shared, params, false)
}

// LaunchCooperative is Launch of a grid whose blocks wait for one another: they
// start together or not at all, also while other kernels run. All must fit on the
// device at once ([Function.MaxActiveBlocks] on each multiprocessor).
func (s *Stream) LaunchCooperative(f *Function, grid, block [3]uint32, shared uint32, params []unsafe.Pointer) error {
	return s.launch(f, grid, block, shared, params, true)
}

func (s *Stream) launch(f *Function, grid, block [3]uint32, shared uint32, params []unsafe.Pointer, cooperative bool) error {
	// C reads Go pointers through a Go pointer here: their targets must stay.
	var pin runtime.Pinner
	defer pin.Unpin()
	for _, p := range params {
		pin.Pin(p)
	}
	var err error
	array := unsafe.SliceData(params)
	if cooperative {
		err = s.ctx.call(cuLaunchCooperative, f.handle,
			uintptr(grid[0]), uintptr(grid[1]), uintptr(grid[2]),
			uintptr(block[0]), uintptr(block[1]), uintptr(block[2]),
			uintptr(shared), s.handle, uintptr(unsafe.Pointer(array)))
	} else {
		err = s.ctx.call(cuLaunchKernel, f.handle,
			uintptr(grid[0]), uintptr(grid[1]), uintptr(grid[2]),
			uintptr(block[0]), uintptr(block[1]), uintptr(block[2]),
			uintptr(shared), s.handle, uintptr(unsafe.Pointer(array)), 0)
	}
	if err != nil {
		return fmt.Errorf("kernel %s, grid %d, block %d, %d bytes of dynamic shared memory: %w", f.Name, grid, block, shared, err)
	}
	if s.captured == nil {
		return nil
	}
	nodes, err := s.Dependencies()
	for _, n := range nodes {
		s.captured[n] = f.WaitsForDependencies && !cooperative
	}
	return err
}

// closeHandle destroys *handle unless that was done before.
func closeHandle(c *Context, handle *uintptr, destroy *proc) error {
	if h := atomic.SwapUintptr(handle, 0); h != 0 {
		return c.call(destroy, h)
	}
	return nil
}
