package cudaops

import (
	"errors"
	"fmt"
	"runtime"

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
// and Sync wait for all that was queued. A session is for one goroutine. One that is dropped
// with its buffers releases its memory, as Close does.
type Session struct {
	device  sessionDevice
	checker kernels.Checker
	cleanup runtime.Cleanup
	closed  bool
}

// Buffer is memory of a session's device, from [Session.Alloc].
type Buffer struct {
	session *Session
	memory  memory
	size    int64
	freed   bool
}

// Size is the number of bytes.
func (b *Buffer) Size() int64 {
	if b == nil {
		return 0
	}
	return b.size
}

// Open opens a session on CUDA device number i. The error wraps [ErrNoDevice]
// if there is none.
func Open(device int) (*Session, error) {
	g, err := exec.OpenGPU(device)
	if err != nil {
		return nil, err
	}
	return newSession(&gpuSession{gpu: g, held: map[driver.Ptr]bool{}, bound: map[kernels.Image]*loader.Bound{}}), nil
}

// OpenHost opens a session on the host, where launches run the kernels' Go
// bodies: the same program works without a GPU.
func OpenHost() *Session { return newSession(hostSession{}) }

func newSession(d sessionDevice) *Session {
	s := &Session{device: d}
	// The device does not point to the session, so that one that is dropped is found.
	s.cleanup = runtime.AddCleanup(s, func(d sessionDevice) { d.close() }, d)
	return s
}

// Alloc returns a buffer of n bytes on the device, 256-byte aligned. Its contents are
// undefined.
func (s *Session) Alloc(n int64) (*Buffer, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	if n < 0 {
		return nil, fmt.Errorf("cudaops: cannot allocate %d bytes", n)
	}
	m, err := s.device.alloc(n)
	if err != nil {
		return nil, fmt.Errorf("cudaops: %w", err)
	}
	return &Buffer{session: s, memory: m, size: n}, nil
}

// CopyTo copies src to the start of dst, once what was queued is done, and waits.
func (s *Session) CopyTo(dst *Buffer, src []byte) error {
	err := s.check(dst, int64(len(src)))
	if err == nil {
		err = s.device.upload(dst.memory, src)
	}
	if err != nil {
		return fmt.Errorf("cudaops: copy to the device: %w", err)
	}
	return nil
}

// CopyFrom fills dst from the start of src, once what was queued is done, and
// waits. Its error may be that of a kernel that was launched before.
func (s *Session) CopyFrom(dst []byte, src *Buffer) error {
	err := s.check(src, int64(len(dst)))
	if err == nil {
		err = s.device.download(dst, src.memory)
	}
	if err != nil {
		return fmt.Errorf("cudaops: copy from the device: %w", err)
	}
	return nil
}

// Launch queues a kernel on a grid of blocks of threads with a number of bytes of
// dynamic shared memory. args are the kernel's parameters, all of them, in order
// and of their types: *Buffer, int32, int64, float32 or float64. It is an error if the kernel
// takes others, as far as its PTX or, without one, the driver describes them.
// The kernel's use of them is not checked: as in CUDA, an access outside
// its memory is an error of a later call or a wrong result.
func (s *Session) Launch(k *kernels.Kernel, grid, block [3]int, shared int, args ...any) error {
	return s.launch(kernels.Launch{Kernel: k, Grid: grid, Block: block, Shared: shared}, args)
}

// LaunchCooperative is [Session.Launch] of a grid whose blocks wait for one another: the
// device starts all of them together. It is an error if they do not fit on the device at once.
func (s *Session) LaunchCooperative(k *kernels.Kernel, grid, block [3]int, shared int, args ...any) error {
	return s.launch(kernels.Launch{Kernel: k, Grid: grid, Block: block, Shared: shared, Cooperative: true}, args)
}

func (s *Session) launch(l kernels.Launch, args []any) error {
	if err := s.usable(); err != nil {
		return err
	}
	if l.Kernel == nil {
		return errors.New("cudaops: launch: got a nil kernel")
	}
	if err := s.launchChecked(l, args); err != nil {
		return fmt.Errorf("cudaops: launch of %s: %w", l.Kernel.Entry, err)
	}
	return nil
}

// launchChecked queues a launch whose arguments args are.
func (s *Session) launchChecked(l kernels.Launch, args []any) error {
	l.Args = make([]any, len(args))
	for i := range 3 {
		if l.Grid[i] < 1 || l.Block[i] < 1 || l.Shared < 0 {
			return fmt.Errorf("got grid %v, block %v, %d bytes shared, want extents of 1 or more", l.Grid, l.Block, l.Shared)
		}
	}
	// A plan whose inputs are the buffers that the arguments name: kernels take
	// operands by number.
	plan := &kernels.Plan{Op: l.Kernel.Entry}
	var operands []*Buffer
	for i, a := range args {
		switch a := a.(type) {
		case *Buffer:
			if err := s.check(a, 0); err != nil {
				return fmt.Errorf("argument %d: %w", i, err)
			}
			l.Args[i] = kernels.Ref{Operand: kernels.Operand(len(operands))}
			operands, plan.Inputs = append(operands, a), append(plan.Inputs, a.size)
		case int32, int64, float32, float64:
			l.Args[i] = a
		default:
			return fmt.Errorf("argument %d is a %T, want *Buffer, int32, int64, float32 or float64", i, a)
		}
	}
	plan.Launches = []kernels.Launch{l}
	dev, checked := s.device.properties(), false
	if err := plan.Check(dev); err != nil {
		return err
	}
	if dev.Major > 0 || l.Kernel.Image != nil { // the host needs no CUDA code
		err := s.checker.CheckLaunch(plan, &plan.Launches[0])
		if checked = err == nil; !checked && !errors.Is(err, kernels.ErrNoSignatures) {
			return err
		}
	}
	return s.device.launch(plan, operands, checked)
}

// Sync waits until all that was queued is done. Its error may be that of any
// kernel before.
func (s *Session) Sync() error {
	if err := s.usable(); err != nil {
		return err
	}
	return s.device.sync()
}

// Free releases a buffer, once what was queued is done. Freeing it again is an
// error.
func (s *Session) Free(m *Buffer) error {
	err := s.check(m, 0)
	if err == nil {
		m.freed = true
		err = s.device.free(m.memory)
		m.memory = memory{}
	}
	if err != nil {
		return fmt.Errorf("cudaops: free: %w", err)
	}
	return nil
}

// Close frees all memory and ends the session, once what was queued is done.
// Further calls do nothing.
func (s *Session) Close() error {
	if s == nil || s.device == nil || s.closed {
		return nil
	}
	s.closed = true
	s.cleanup.Stop()
	return s.device.close()
}

// usable returns an error if there is no session, or if it is closed.
func (s *Session) usable() error {
	switch {
	case s == nil || s.device == nil:
		return errors.New("cudaops: got a session that Open did not make")
	case s.closed:
		return errors.New("cudaops: the session is closed")
	}
	return nil
}

// check returns an error unless a buffer has n bytes to use.
func (s *Session) check(m *Buffer, n int64) error {
	if err := s.usable(); err != nil {
		return err
	}
	switch {
	case m == nil:
		return errors.New("got a nil buffer")
	case m.session != s:
		return errors.New("got a buffer of another session")
	case m.freed:
		return errors.New("got a buffer that was freed")
	case n > m.size:
		return fmt.Errorf("got %d bytes for a buffer of %d", n, m.size)
	}
	return nil
}
