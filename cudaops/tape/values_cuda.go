//go:build cuda

package tape

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// keep binds copies in Go's memory to the nodes whose values lie in a machine's pool, which is
// freed when the machine is closed.
func keep(g *gorgonia.ExprGraph, vm gorgonia.VM) error {
	m, ok := vm.(gorgonia.CUDAMachine)
	if !ok || len(m.Engines()) == 0 { // nothing ran on a device
		return nil
	}
	c, err := contextOf(&m.Engines()[0], 0)
	if err != nil {
		return err
	}
	var errs []error
	for _, n := range g.AllNodes() {
		v := n.Value()
		if v == nil || n.IsVar() {
			continue
		}
		if _, ok := values.Dtype(v.Dtype()); !ok || !c.ctx.OnDevice(driver.Ptr(v.Uintptr())) {
			continue
		}
		if v, err = clone(v); err == nil {
			err = gorgonia.UnsafeLet(n, v)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("tape: node %v: %w", n, err))
		}
	}
	return errors.Join(errs...)
}

// inOrder binds a row-major copy to each input that is not in row-major order, for a run on a device: Gorgonia copies the
// memory of such values without their strides, and for a slice more bytes than it has allocated. restore binds the
// original values again; it is never nil.
func inOrder(g *gorgonia.ExprGraph, vm gorgonia.VM) (restore func(), err error) {
	if m, ok := vm.(gorgonia.CUDAMachine); !ok || len(m.Engines()) == 0 {
		return func() {}, nil
	}
	return compactInputs(g)
}

func compactInputs(g *gorgonia.ExprGraph) (restore func(), err error) {
	own := map[*gorgonia.Node]gorgonia.Value{}
	restore = func() {
		for n, v := range own {
			gorgonia.UnsafeLet(n, v) // cannot fail: it was bound before
		}
	}
	for _, n := range g.AllNodes() {
		d, ok := n.Value().(*tensor.Dense)
		if !ok || !n.IsVar() || values.Contiguous(d) {
			continue
		}
		c := values.Compact(d)
		if c == gorgonia.Value(d) {
			return restore, fmt.Errorf("tape: input %v is masked, or a transposed or sliced tensor of %v, which Gorgonia's machine copies wrongly to a device: want a contiguous copy", internal.Name(n), d.Dtype())
		}
		if err := gorgonia.UnsafeLet(n, c); err != nil {
			return restore, fmt.Errorf("tape: input %v: %w", internal.Name(n), err)
		}
		own[n] = d
	}
	return restore, nil
}

// closable waits until a machine can be closed. Closing needs each engine's goroutine, which can
// fail in two ways: until it has started cuBLAS it holds a lock, and engines are closed as copies,
// in which the lock would stay locked; and it ends when a CUDA call fails, and then never answers.
func closable(vm gorgonia.VM) error {
	m, ok := vm.(gorgonia.CUDAMachine)
	if !ok {
		return nil
	}
	engines := m.Engines()
	for i := range engines {
		limit := time.Minute
		failed := engines[i].Errors()
		if failed != nil {
			limit = 2 * time.Second
		}
		done := make(chan error, 1)
		go func() { done <- engines[i].Context().Do(func() error { return nil }) }()
		select {
		case <-done:
		case <-time.After(limit):
			broken.Store(vm, true)
			return fmt.Errorf("tape: the machine cannot be closed and keeps its memory, its engine does not answer: %w", errors.Join(failed, errEngine))
		}
	}
	return nil
}

var errEngine = errors.New("a CUDA call of the machine failed")

// broken machines are kept referenced: Gorgonia's finalizer would hang on them.
var broken sync.Map

// toHostOnly makes a LispMachine free its engines and run on the host.
func toHostOnly(vm gorgonia.VM) error {
	m, ok := vm.(interface {
		gorgonia.CUDAMachine
		ForceCPU()
	})
	if !ok {
		return fmt.Errorf("tape: got a %T, want Gorgonia's LispMachine", vm)
	}
	if len(m.Engines()) == 0 {
		return nil
	}
	if err := closable(vm); err != nil {
		return err
	}
	m.ForceCPU()
	return nil
}

// clone copies a value of one of the kernels' types into Go's memory.
func clone(v gorgonia.Value) (gorgonia.Value, error) {
	from, err := values.Bytes(v)
	if err != nil {
		return nil, err
	}
	dt, _ := values.Dtype(v.Dtype())
	c, to := values.New(dt, v.Shape())
	copy(to, from)
	return c, nil
}

// A binder implements BindDualValues: after a run, it adds the gradient of each node to the one
// bound to it. Gorgonia's own way returns zeros for tensors on a device.
type binder struct {
	graph *gorgonia.ExprGraph
	all   bool
	nodes gorgonia.Nodes // unless all
}

// takeBinding removes the request from the machine.
func takeBinding(g *gorgonia.ExprGraph, vm gorgonia.VM) (*binder, error) {
	nodes, asked, err := internal.TakeDualValues(vm)
	if err != nil || !asked {
		return nil, err
	}
	return &binder{graph: g, all: len(nodes) == 0, nodes: nodes}, nil
}

func (b *binder) bind() error {
	if b == nil {
		return nil
	}
	nodes := b.nodes
	if b.all {
		nodes = b.graph.AllNodes()
	}
	for _, n := range nodes {
		if n.Deriv() == nil || n.Value() == nil || n.Deriv().Value() == nil {
			continue
		}
		if err := bindGradient(n, n.Deriv().Value()); err != nil {
			return fmt.Errorf("tape: gradient of node %v: %w", n, err)
		}
	}
	return nil
}

func bindGradient(n *gorgonia.Node, d gorgonia.Value) error {
	old, err := n.Grad()
	if err != nil {
		return err
	}
	if old == d { // nothing bound yet: Grad answered with the derivative's node
		if d, err = clone(d); err != nil {
			return err
		}
		gorgonia.WithGrad(d)(n)
		return nil
	}
	dt, _ := values.Dtype(d.Dtype())
	sum, ok := values.Own(old, dt, d.Shape())
	if !ok {
		return fmt.Errorf("it is %v of shape %v, the one bound to the node %v of shape %v", d.Dtype(), d.Shape(), old.Dtype(), old.Shape())
	}
	more, err := values.Bytes(d)
	if err != nil {
		return err
	}
	p := basic.Add(kernels.HostDevice(), dt, int64(len(more))/dt.Size())
	return p.Run([][]byte{sum, more}, sum, nil) // element by element: in place is safe
}
