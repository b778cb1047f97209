//go:build cuda

package tape

import (
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// keep binds copies in Go's memory to the nodes whose values lie in a machine's
// pool, which goes when the machine is closed.
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
		if v := n.Value(); v != nil && !n.IsVar() && c.ctx.OnDevice(driver.Ptr(v.Uintptr())) {
			errs = append(errs, copyOut(n, v))
		}
	}
	return errors.Join(errs...)
}

func copyOut(n *gorgonia.Node, v gorgonia.Value) error {
	var c gorgonia.Value
	switch v := v.(type) {
	case *gorgonia.F32:
		x := *v
		c = &x
	case *gorgonia.F64:
		x := *v
		c = &x
	case *tensor.Dense:
		t := tensor.New(tensor.Of(v.Dtype()), tensor.WithShape(v.Shape()...))
		switch v.Dtype() {
		case tensor.Float32:
			copy(t.Float32s(), v.Float32s())
		case tensor.Float64:
			copy(t.Float64s(), v.Float64s())
		default:
			return nil
		}
		c = t
	default:
		return nil
	}
	if err := gorgonia.UnsafeLet(n, c); err != nil {
		return fmt.Errorf("tape: node %v: %w", n, err)
	}
	return nil
}
