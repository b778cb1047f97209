package lower

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
)

// unlowered are Gorgonia's ops without a rule.
var unlowered = []string{
	"sparsemaxOp", "sparsemaxDiffOp", "ctcLossOp", "ctcLossDiffOp", "yoloOp",
}

// host leaves the node to its op's Do.
func host(c *call) *program.Value {
	op := program.Host{Op: c.node.Op()}
	if len(c.in) > 0 {
		op.Reason = c.reason()
	}
	return c.emit(op, c.Type, c.in...)
}

// reason returns why a node stays on the host.
func (c *call) reason() string {
	name := internal.OpName(c.node.Op())
	if name == "" {
		return "no kernel: an op of another module"
	}
	if slices.Contains(unlowered, name) {
		return "no kernel"
	}
	if err := internal.Learnt(); err != nil {
		return "no kernel: " + err.Error()
	}
	shapes := ""
	for _, v := range append(slices.Clone(c.in), &program.Value{Type: c.Type}) {
		if !v.Numeric {
			return "no kernel for values of its type"
		}
		if !v.Dtype.IsFloat() && v.Dtype != kernels.Bool {
			return fmt.Sprintf("no kernel for elements of %v", values.Tensor(v.Dtype))
		}
		shapes += fmt.Sprint(" ", v.Shape)
	}
	return "no kernel for shapes" + shapes
}
