package tape

import (
	"errors"
	"runtime"
	"sync"

	"gorgonia.org/gorgonia"
)

// NewMachine is gorgonia.NewTapeMachine without its faults in a CUDA build:
//
//   - It is made, run and closed on an OS thread of its own, where its CUDA
//     context stays current, so that several machines in one process work.
//   - A panic of an op is an error, and so is one of Gorgonia's where the machine
//     is made or closed.
//   - Faults of the graph's program on a device are repaired: memory
//     freed that others hold, and more calls queued than the queue has room for.
//   - BindDualValues binds the gradients of tensors too, and WithNaNWatch and
//     WithInfWatch see them.
//   - Inputs that are transposed, sliced or column-major tensors are copied in the order
//     of their elements; Gorgonia copies their memory to the device as it lies.
//   - Reset leaves the values of the graph's nodes alone.
//   - Close first moves the values of the graph's nodes out of device memory,
//     so that they can be read afterwards.
//
// Without the tag cuda it does the same for the machine of that build. The
// machine must be closed.
func NewMachine(g *gorgonia.ExprGraph, opts ...gorgonia.VMOpt) (gorgonia.VM, error) {
	return start(g, func(m *machine) error {
		program, err := compile(g)
		if err != nil {
			return err
		}
		m.vm = gorgonia.NewTapeMachine(g, append([]gorgonia.VMOpt{program}, opts...)...)
		if m.binder, err = takeBinding(g, m.vm); err != nil {
			return err
		}
		return watch(m.vm)
	})
}

// NewLispMachine is gorgonia.NewLispMachine on the host, whatever the build: on a device its pool
// is too small for most graphs and its gradients start from undefined memory. Gorgonia makes it on
// a device first, though: in a CUDA build without a device, a graph with one of Gorgonia's ops for
// CUDA is an error. The machine must be closed. A panic of an op ends the program, because Gorgonia
// runs the graph in a goroutine of its own and takes the ops from the graph itself.
func NewLispMachine(g *gorgonia.ExprGraph, opts ...gorgonia.VMOpt) (gorgonia.VM, error) {
	return start(g, func(m *machine) error {
		m.vm = gorgonia.NewLispMachine(g, opts...)
		return toHostOnly(m.vm)
	})
}

// start makes a machine on a thread of its own.
func start(g *gorgonia.ExprGraph, open func(*machine) error) (gorgonia.VM, error) {
	if g == nil {
		return nil, errors.New("tape: got a nil graph")
	}
	if err := check(g); err != nil {
		return nil, err
	}
	m := &machine{graph: g, work: make(chan func())}
	go func() {
		// The thread ends with the goroutine, and the context that is current
		// on it with both.
		runtime.LockOSThread()
		for f := range m.work {
			f()
		}
	}()
	if err := m.do(func() error { return open(m) }); err != nil {
		close(m.work)
		return nil, err
	}
	return m, nil
}

type machine struct {
	graph  *gorgonia.ExprGraph
	vm     gorgonia.VM
	binder *binder

	mu     sync.Mutex
	work   chan func() // for the machine's thread
	closed bool
	err    error // of Close
}

// do runs f on the machine's thread.
func (m *machine) do(f func() error) (err error) {
	done := make(chan struct{})
	m.work <- func() {
		defer close(done)
		defer recovered(&err, "Gorgonia's machine")
		err = f()
	}
	<-done
	return err
}

func (m *machine) RunAll() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return errors.New("tape: the machine is closed")
	}
	return m.do(func() error {
		restore, err := inOrder(m.graph, m.vm)
		defer restore()
		if err != nil {
			return err
		}
		if err := m.vm.RunAll(); err != nil {
			return err
		}
		return m.binder.bind()
	})
}

func (m *machine) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.do(func() error {
		rewind(m.vm)
		return nil
	})
}

// Close closes the machine once; further calls return the first one's error.
func (m *machine) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.closed = true
		m.err = m.do(func() error {
			if err := closable(m.vm); err != nil {
				return err
			}
			return errors.Join(keep(m.graph, m.vm), m.vm.Close())
		})
		close(m.work)
	}
	return m.err
}
