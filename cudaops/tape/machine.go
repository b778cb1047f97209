package tape

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"gorgonia.org/gorgonia"
)

// NewMachine is gorgonia.NewTapeMachine with what that lacks in a CUDA build:
//
//   - Everything runs on one OS thread, as the machine's CUDA context wants it,
//     so that several machines in one process work.
//   - A panic of Gorgonia is an error.
//   - Close first moves the values of the graph's nodes out of device memory,
//     so that they can be read afterwards.
//
// Without the tag cuda it does the same for the machine of that build. The
// machine must be closed; it is for one goroutine at a time.
func NewMachine(g *gorgonia.ExprGraph, opts ...gorgonia.VMOpt) (gorgonia.VM, error) {
	if g == nil {
		return nil, errors.New("tape: got a nil graph")
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
	err := m.do(func() error {
		m.vm = gorgonia.NewTapeMachine(g, opts...)
		return nil
	})
	if err != nil {
		m.stop()
		return nil, err
	}
	return m, nil
}

type machine struct {
	graph *gorgonia.ExprGraph
	vm    gorgonia.VM
	work  chan func()
	once  sync.Once
	err   error // of Close
}

// do runs f on the machine's thread.
func (m *machine) do(f func() error) (err error) {
	done := make(chan struct{})
	m.work <- func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				if e, ok := p.(error); ok {
					err = fmt.Errorf("tape: Gorgonia's machine panicked: %w", e)
				} else {
					err = fmt.Errorf("tape: Gorgonia's machine panicked: %v", p)
				}
			}
		}()
		err = f()
	}
	<-done
	return err
}

func (m *machine) stop() { close(m.work) }

func (m *machine) RunAll() error { return m.do(m.vm.RunAll) }

func (m *machine) Reset() {
	m.do(func() error {
		m.vm.Reset()
		return nil
	})
}

// Close is for once; further calls give the first one's error.
func (m *machine) Close() error {
	m.once.Do(func() {
		m.err = errors.Join(m.do(func() error { return keep(m.graph, m.vm) }), m.do(m.vm.Close))
		m.stop()
	})
	return m.err
}
