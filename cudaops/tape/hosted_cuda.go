//go:build cuda

package tape

import (
	"slices"

	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// hosted is an op of Gorgonia's that its CUDA build would run on a device with wrong results, and
// that runs on the host instead. It has no CUDADo, so that Gorgonia's compiler has the operands
// copied to the host.
type hosted struct{ gorgonia.Op }

// The output is a new value: the memory of an operand may have another type.
func (hosted) CallsExtern() bool    { return false }
func (hosted) OverwritesInput() int { return -1 }

// host makes the ops that are wrong on a device run on the host, until restore returns the graph's
// nodes their own ops back. restore is not nil, even if there is an error.
func host(g *gorgonia.ExprGraph) (restore func(), err error) {
	var undo []func()
	restore = func() {
		for _, f := range undo {
			f()
		}
	}
	for _, n := range g.AllNodes() {
		if !wrongOnDevice(n) {
			continue
		}
		back, err := internal.SetOp(n, hosted{n.Op()})
		if err != nil {
			return restore, err
		}
		undo = append(undo, back)
	}
	return restore, nil
}

// wrongOnDevice reports for which nodes that is so: element-wise ops of two operands whose operands
// or result are anything but floating-point numbers of one type. Gorgonia chooses the kernel by the
// size of an element alone, so it multiplies two integers as if their bits were float64, and for a
// comparison that returns bool it writes the floating-point number 1 or 0.
func wrongOnDevice(n *gorgonia.Node) bool {
	if n.Op() == nil || internal.OpName(n.Op()) != "elemBinOp" {
		return false
	}
	dt := n.Dtype()
	if dt != tensor.Float32 && dt != tensor.Float64 {
		return true
	}
	children, err := internal.Children(n)
	return err != nil || slices.ContainsFunc(children, func(c *gorgonia.Node) bool { return c.Dtype() != dt })
}
