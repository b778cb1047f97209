package driver

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Stream is a queue of work that the device executes in order.
type Stream struct {
	ctx    *Context
	handle uintptr

	mu   sync.Mutex
	held [][]byte // host memory of copies that may still be in flight

	// captured maps each captured kernel to whether it waits for its dependencies. It is nil unless the stream captures.
	captured map[GraphNode]bool
}

// NewStream makes a blocking stream: it is ordered with [Context.Upload], Download and Memset8.
func (c *Context) NewStream() (*Stream, error) {
	s := &Stream{ctx: c}
	if err := c.call(cuStreamCreate, uintptr(unsafe.Pointer(&s.handle)), 0); err != nil {
		return nil, err
	}
	return s, nil
}

// DefaultStream returns the context's default stream, which is ordered with all blocking streams. It needs no Close.
func (c *Context) DefaultStream() *Stream { return &Stream{ctx: c} }

// Close releases the stream; queued work still completes. Further calls do nothing. Sync must be called first if uploads or
// downloads are in flight.
func (s *Stream) Close() error { return closeHandle(s.ctx, &s.handle, cuStreamDestroy) }

// Sync waits for all queued work. Its error may come from any earlier launch.
func (s *Stream) Sync() error {
	s.mu.Lock()
	held := s.held
	s.held = nil
	s.mu.Unlock()
	err := s.ctx.call(cuStreamSynchronize, s.handle)
	runtime.KeepAlive(held)
	return err
}

// Handle returns the CUstream, for another library's calls.
func (s *Stream) Handle() uintptr { return s.handle }

// Clear queues the filling of bytes with zeros.
func (s *Stream) Clear(at Ptr, bytes int64) error {
	return s.ctx.call(cuMemsetAsync, uintptr(at), 0, uintptr(bytes), s.handle)
}

func (s *Stream) hold(b []byte) {
	s.mu.Lock()
	s.held = append(s.held, b)
	s.mu.Unlock()
}

// Upload queues a copy of src to the device. src must not change before Sync.
func (s *Stream) Upload(dst Ptr, src []byte) error {
	s.hold(src)
	return s.UploadPinned(dst, src)
}

// UploadPinned is Upload from pinned memory. The caller keeps src alive until the copy has completed.
func (s *Stream) UploadPinned(dst Ptr, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	return s.ctx.call(cuMemcpyHtoDAsync, uintptr(dst), uintptr(unsafe.Pointer(&src[0])), uintptr(len(src)), s.handle)
}

// Download queues a copy of device memory to dst, which is complete after Sync.
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

// Launch queues kernel f with shared bytes of dynamic shared memory per block. Each of params points to an argument of
// exactly the kernel's parameter type; the arguments are copied before Launch returns. A failure of the kernel is
// returned by a later call. The blocks of a cooperative launch wait for one another, so all must be resident at once
// ([Function.MaxActiveBlocks] per SM).
func (s *Stream) Launch(f *Function, grid, block [3]uint32, shared uint32, cooperative bool, params []unsafe.Pointer) error {
	call := cuLaunchKernel
	if cooperative {
		call = cuLaunchCooperative
	}
	return s.launch(f, grid, block, shared, cooperative, params, func(array unsafe.Pointer) error {
		// The last argument is that of cuLaunchKernel alone.
		return s.ctx.call(call, f.handle,
			uintptr(grid[0]), uintptr(grid[1]), uintptr(grid[2]),
			uintptr(block[0]), uintptr(block[1]), uintptr(block[2]),
			uintptr(shared), s.handle, uintptr(array), 0)
	})
}

// launchAttribute is a CUlaunchAttribute that sets the blocks of a cluster, launchConfig a CUlaunchConfig.
type launchAttribute struct {
	id      uint64
	cluster [3]uint32
	_       [52]byte
}

type launchConfig struct {
	grid, block [3]uint32
	shared      uint32
	stream      uintptr
	attributes  unsafe.Pointer
	count       uint32
}

// LaunchClusters is [Stream.Launch] in clusters of so many consecutive blocks along x, which divide the grid, of a kernel whose code does not set them.
func (s *Stream) LaunchClusters(f *Function, grid, block [3]uint32, shared, cluster uint32, params []unsafe.Pointer) error {
	const clusterDimension = 4 // a CUlaunchAttributeID
	return s.launch(f, grid, block, shared, false, params, func(array unsafe.Pointer) error {
		var pin runtime.Pinner
		defer pin.Unpin()
		attribute := &launchAttribute{id: clusterDimension, cluster: [3]uint32{cluster, 1, 1}}
		pin.Pin(attribute)
		config := &launchConfig{grid, block, shared, s.handle, unsafe.Pointer(attribute), 1}
		return s.ctx.call(cuLaunchKernelEx, uintptr(unsafe.Pointer(config)), f.handle, uintptr(array), 0)
	})
}

// launch calls queue with the array of a kernel's arguments, and records the kernel if the stream captures.
func (s *Stream) launch(f *Function, grid, block [3]uint32, shared uint32, cooperative bool, params []unsafe.Pointer, queue func(array unsafe.Pointer) error) error {
	// C reads Go pointers through a Go pointer, so their targets must be pinned.
	var pin runtime.Pinner
	defer pin.Unpin()
	for _, p := range params {
		pin.Pin(p)
	}
	if err := queue(unsafe.Pointer(unsafe.SliceData(params))); err != nil {
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
