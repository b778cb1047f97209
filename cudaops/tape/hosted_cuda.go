//go:build cuda

package tape

import (
	"reflect"
	"slices"

	internals "github.com/stheno-ml/stheno/internal/gorgonia"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// hosted is an op of Gorgonia's that its CUDA build would run on a device, with
// wrong results, and that runs on the host instead. It has no CUDADo, and by
// that Gorgonia's compiler tells: it has the operands copied to the host.
type hosted struct{ gorgonia.Op }

// The output is a new value: the memory of an operand may have another type.
func (hosted) CallsExtern() bool    { return false }
func (hosted) OverwritesInput() int { return -1 }

// host makes the ops that are wrong on a device ops for the host, until restore:
// the graph's nodes keep their own ops. restore is there also beside an error.
func host(g *gorgonia.ExprGraph) (restore func(), err error) {
	var undo []func()
	restore = func() {
		for _, f := range undo {
			f()
		}
	}
	for _, n := range g.AllNodes() {
		if wrong, err := wrongOnDevice(n); err != nil {
			return restore, err
		} else if !wrong {
			continue
		}
		op, err := field(reflect.ValueOf(n).Elem(), "op", reflect.Interface)
		if err != nil {
			return restore, err
		}
		own := n.Op()
		undo = append(undo, func() { op.Set(reflect.ValueOf(own)) })
		op.Set(reflect.ValueOf(hosted{own}))
	}
	return restore, nil
}

// wrongOnDevice tells which nodes those are: element-wise ops of two operands
// that have, or give, anything but floating-point numbers of one type. Gorgonia
// chooses the kernel by the size of an element alone, so of two integers it
// multiplies the bits as those of float64, and where it compares numbers for a
// Bool it writes the number 1 or 0 over it.
func wrongOnDevice(n *gorgonia.Node) (bool, error) {
	if n.Op() == nil || reflect.TypeOf(n.Op()).String() != "gorgonia.elemBinOp" {
		return false, nil
	}
	dt := n.Dtype()
	if dt != tensor.Float32 && dt != tensor.Float64 {
		return true, nil
	}
	children, err := internals.Children(n)
	return slices.ContainsFunc(children, func(c *gorgonia.Node) bool { return c.Dtype() != dt }), err
}
