package cudaops

import (
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/loader"
	"github.com/stheno-ml/stheno/kernels"
)

// Session is a device used by hand: allocate, copy, launch, copy back, free.
// It is for programs that show or try a kernel; graphs run on a [VM], which
// does all of this by itself.
//
// Launches are queued in order and run while the host goes on; CopyTo, CopyFrom
// and Sync wait for all that was queued. A session is for one goroutine.
type Session struct {
	gpu     *exec.GPUBackend // nil for the host
	buffers map[*Buffer]bool
	bound   map[kernels.Image]*loader.Bound
	closed  bool
}

// Buffer is memory of a session's device, from [Session.Alloc].
type Buffer struct {
	session *Session
	size    int64
	address driver.Ptr // of a GPU
	bytes   []byte     // of the host
}

// Size is the number of bytes.
func (b *Buffer) Size() int64 { return b.size }

// Open opens a session on CUDA device number i. The error wraps [ErrNoDevice]
// if there is none.
func Open(device int) (*Session, error) {
	g, err := exec.OpenGPU(device)
	if err != nil {
		return nil, err
	}
	return &Session{gpu: g, buffers: map[*Buffer]bool{}, bound: map[kernels.Image]*loader.Bound{}}, nil
}

// OpenHost opens a session on the host, where launches run the kernels' Go
// bodies: the same program works without a GPU.
func OpenHost() *Session { return &Session{buffers: map[*Buffer]bool{}} }

// Alloc returns a buffer of n bytes on the device, 256-byte aligned. What it holds is
// undefined.
func (s *Session) Alloc(n int64) (*Buffer, error) {
	if s.closed {
		return nil, errSessionClosed
	}
	if n < 0 {
		return nil, fmt.Errorf("cudaops: cannot allocate %d bytes", n)
	}
	m := &Buffer{session: s, size: n}
	var err error
	if s.gpu != nil {
		m.address, err = s.gpu.Context().Alloc(n)
	} else {
		m.bytes, err = exec.HostMemory(n)
	}
	if err != nil {
		return nil, fmt.Errorf("cudaops: %w", err)
	}
	s.buffers[m] = true
	return m, nil
}

// CopyTo copies src to the start of dst, once what was queued is done, and waits.
func (s *Session) CopyTo(dst *Buffer, src []byte) error {
	if err := s.check(dst, int64(len(src))); err != nil {
		return fmt.Errorf("cudaops: copy to the device: %w", err)
	}
	if s.gpu != nil {
		return errors.Join(s.gpu.Stream().Upload(dst.address, src), s.gpu.Stream().Sync())
	}
	copy(dst.bytes, src)
	return nil
}

// CopyFrom fills dst from the start of src, once what was queued is done, and
// waits. Its error may be that of a kernel that was launched before.
func (s *Session) CopyFrom(dst []byte, src *Buffer) error {
	if err := s.check(src, int64(len(dst))); err != nil {
		return fmt.Errorf("cudaops: copy from the device: %w", err)
	}
	if s.gpu != nil {
		return errors.Join(s.gpu.Stream().Download(dst, src.address), s.gpu.Stream().Sync())
	}
	copy(dst, src.bytes)
	return nil
}

// Launch queues a kernel on a grid of blocks of threads with so many bytes of
// dynamic shared memory. args are the kernel's parameters, all of them, in order
// and of their types: *Buffer, int32, int64, float32 or float64.
// What the kernel does with them is not checked: as in CUDA, an access outside
// its memory is an error of a later call or a wrong result.
func (s *Session) Launch(k *kernels.Kernel, grid, block [3]int, shared int, args ...any) error {
	if s.closed {
		return errSessionClosed
	}
	if k == nil {
		return errors.New("cudaops: launch: got a nil kernel")
	}
	launch := kernels.Launch{Kernel: k, Grid: grid, Block: block, Shared: shared, Args: make([]any, len(args))}
	for i := range 3 {
		if grid[i] < 1 || block[i] < 1 || shared < 0 {
			return fmt.Errorf("cudaops: launch of %s: got grid %v, block %v, %d bytes shared, want extents of 1 or more", k.Entry, grid, block, shared)
		}
	}
	// A plan whose inputs are the buffers that the arguments name: kernels take
	// operands by number.
	plan := &kernels.Plan{Op: k.Entry}
	var bytes [][]byte
	var spans []exec.Span
	for i, a := range args {
		switch a := a.(type) {
		case *Buffer:
			if err := s.check(a, 0); err != nil {
				return fmt.Errorf("cudaops: launch of %s: argument %d: %w", k.Entry, i, err)
			}
			launch.Args[i] = kernels.Ref{Operand: kernels.Operand(len(bytes))}
			bytes, spans = append(bytes, a.bytes), append(spans, exec.Span{Offset: int64(a.address), Size: a.size})
			plan.Inputs = append(plan.Inputs, a.size)
		case int32, int64, float32, float64:
			launch.Args[i] = a
		default:
			return fmt.Errorf("cudaops: launch of %s: argument %d is a %T, want *Buffer, int32, int64, float32 or float64", k.Entry, i, a)
		}
	}
	plan.Launches = []kernels.Launch{launch}
	if s.gpu != nil { // its arena is at 0: offsets are addresses
		bound, err := s.gpu.Load(plan, spans, nil, exec.Span{})
		if err != nil {
			return fmt.Errorf("cudaops: launch of %s: %w", k.Entry, err)
		}
		// One bound launch of an image keeps its module loaded until the session is
		// closed, however many there are.
		if old := s.bound[k.Image]; old != nil {
			if err := old.Close(); err != nil {
				return fmt.Errorf("cudaops: launch of %s: %w", k.Entry, err)
			}
		}
		s.bound[k.Image] = bound
		return bound.Run(s.gpu.Stream())
	}
	if k.Body == nil {
		return fmt.Errorf("cudaops: launch of %s: the kernel has no Go body for the host", k.Entry)
	}
	return plan.Run(bytes, nil, nil)
}

// Sync waits until all that was queued is done. Its error may be that of any
// kernel before.
func (s *Session) Sync() error {
	if s.closed {
		return errSessionClosed
	}
	if s.gpu != nil {
		return s.gpu.Sync()
	}
	return nil
}

// Free gives a buffer back, once what was queued is done. Freeing it again is an
// error.
func (s *Session) Free(m *Buffer) error {
	if err := s.check(m, 0); err != nil {
		return fmt.Errorf("cudaops: free: %w", err)
	}
	delete(s.buffers, m)
	m.bytes = nil
	if s.gpu != nil {
		return errors.Join(s.gpu.Sync(), s.gpu.Context().Free(m.address))
	}
	return nil
}

// Close frees all memory and ends the session, once what was queued is done.
// Further calls do nothing.
func (s *Session) Close() error {
	if s.closed {
		return nil
	}
	var errs []error
	for m := range s.buffers {
		errs = append(errs, s.Free(m))
	}
	s.closed = true
	if s.gpu != nil {
		errs = append(errs, s.gpu.Close())
		for _, b := range s.bound {
			errs = append(errs, b.Close())
		}
	}
	return errors.Join(errs...)
}

var errSessionClosed = errors.New("cudaops: the session is closed")

// check returns what is wrong with a buffer of which n bytes are wanted.
func (s *Session) check(m *Buffer, n int64) error {
	switch {
	case s.closed:
		return errSessionClosed
	case m == nil:
		return errors.New("got a nil buffer")
	case m.session != s:
		return errors.New("got a buffer of another session")
	case !s.buffers[m]:
		return errors.New("got a buffer that was freed")
	case n > m.size:
		return fmt.Errorf("got %d bytes for a buffer of %d", n, m.size)
	}
	return nil
}
