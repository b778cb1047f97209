package cudaops

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/loader"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
)

// Session gives direct access to a device: allocate, copy, launch, copy back, free. It is for programs that demonstrate or
// try a kernel; graphs run on a [VM].
//
// Launches are queued and run asynchronously in order; CopyTo, CopyFrom and Sync wait for all queued work. A session must
// not be used concurrently. When a session and its buffers become unreachable, its memory is released as by Close.
type Session struct {
	device  *sessionDevice
	checker kernels.Checker
	cleanup runtime.Cleanup
	closed  bool
}

// Buffer is memory of a session's device, from [Session.Alloc].
type Buffer struct {
	session *Session
	memory  program.Memory
	size    int64
	freed   bool
}

// Size returns the number of bytes.
func (b *Buffer) Size() int64 {
	if b == nil {
		return 0
	}
	return b.size
}

// Open opens a session on a CUDA device, by its number. The error wraps [ErrNoDevice] if there is no such device.
func Open(device int) (*Session, error) {
	g, err := exec.OpenGPU(device)
	if err != nil {
		return nil, err
	}
	return newSession(g), nil
}

// OpenHost opens a session on the host, where launches run the kernels' Go bodies. So the same program runs without a GPU.
func OpenHost() *Session { return newSession(new(exec.HostBackend)) }

func newSession(b exec.Backend) *Session {
	s := &Session{device: &sessionDevice{b, map[program.Memory]bool{}, map[kernels.Image]*loader.Bound{}}}
	// The device does not refer to the session, so that an unreachable session is collected.
	d := s.device
	s.cleanup = onUnreachable(&s.closed, func() { d.close() })
	return s
}

// Alloc returns a 256-byte aligned buffer of n bytes on the device with undefined contents.
func (s *Session) Alloc(n int64) (*Buffer, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	if n < 0 {
		return nil, fmt.Errorf("cudaops: cannot allocate %d bytes", n)
	}
	m, err := s.device.NewMemory(n)
	if err != nil {
		return nil, fmt.Errorf("cudaops: %w", err)
	}
	s.device.held[m] = true
	return &Buffer{session: s, memory: m, size: n}, nil
}

// CopyTo waits for queued work and copies src to the start of dst.
func (s *Session) CopyTo(dst *Buffer, src []byte) error {
	err := s.check(dst, int64(len(src)))
	if err == nil {
		err = dst.memory.Write(0, src)
	}
	return failure("cudaops: copy to the device", err)
}

// CopyFrom waits for queued work and copies the start of src to dst. Its error may come from an earlier launch.
func (s *Session) CopyFrom(dst []byte, src *Buffer) error {
	err := s.check(src, int64(len(dst)))
	if err == nil {
		err = src.memory.Read(dst, 0)
	}
	return failure("cudaops: copy from the device", err)
}

// Launch queues a kernel with shared bytes of dynamic shared memory per block. args are all of the kernel's parameters, in
// order and with their types: *Buffer, int32, int64, float32 or float64. Launch returns an error if they do not match the
// parameters in the kernel's PTX or, without PTX, those that the driver reports. It does not check how the kernel uses
// them: as in CUDA, an access out of bounds causes an error of a later call or a wrong result.
func (s *Session) Launch(k *kernels.Kernel, grid, block [3]int, shared int, args ...any) error {
	return s.launch(kernels.Launch{Kernel: k, Grid: grid, Block: block, Shared: shared}, args)
}

// LaunchCooperative is [Session.Launch] of a grid whose blocks wait for one another. It returns an error if they cannot all be
// resident at once.
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
	return failure("cudaops: launch of "+l.Kernel.Entry, s.launchChecked(l, args))
}

// launchChecked queues a launch with arguments args.
func (s *Session) launchChecked(l kernels.Launch, args []any) error {
	l.Args = make([]any, len(args))
	for i := range 3 {
		if l.Grid[i] < 1 || l.Block[i] < 1 || l.Shared < 0 {
			return fmt.Errorf("got grid %v, block %v, %d bytes shared, want extents of 1 or more", l.Grid, l.Block, l.Shared)
		}
	}
	// A plan whose inputs are the buffers among the arguments, since a plan refers to operands by number.
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
	dev, checked := s.device.Device(), false
	if err := plan.Check(dev); err != nil {
		return err
	}
	if dev.Kind == kernels.GPU || l.Kernel.Image != nil { // the host needs no CUDA code
		err := s.checker.CheckLaunch(plan, &plan.Launches[0])
		if checked = err == nil; !checked && !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	return s.device.launch(plan, operands, checked)
}

// Sync waits for all queued work. Its error may come from any earlier launch.
func (s *Session) Sync() error {
	if err := s.usable(); err != nil {
		return err
	}
	return s.device.Sync()
}

// Free waits for queued work and releases a buffer. Freeing a buffer twice is an error.
func (s *Session) Free(m *Buffer) error {
	err := s.check(m, 0)
	if err == nil {
		m.freed = true
		err = s.device.free(m.memory)
		m.memory = nil
	}
	return failure("cudaops: free", err)
}

// Close waits for queued work, frees all memory and ends the session. Further calls do nothing.
func (s *Session) Close() error {
	if s == nil || s.device == nil || s.closed {
		return nil
	}
	s.closed = true
	s.cleanup.Stop()
	return s.device.close()
}

// usable returns an error if the session is nil, a zero value or closed.
func (s *Session) usable() error {
	switch {
	case s == nil || s.device == nil:
		return errors.New("cudaops: got a session that Open did not make")
	case s.closed:
		return errors.New("cudaops: the session is closed")
	}
	return nil
}

// check returns an error unless a buffer belongs to the session, is not freed and has at least n bytes.
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
