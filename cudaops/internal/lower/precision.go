package lower

import (
	"fmt"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/kernels"
)

// setPrecision sets the precision of the products of float32 matrices among the node's instructions, from start on.
func (c *call) setPrecision(start int) {
	precision, own := c.precisionOf[c.node]
	if !own {
		precision = c.precision
	}
	for _, in := range c.graph.Program.Instrs[start:] {
		product, ok := program.ProductOf(in.Op)
		if !ok || product.Dtype != kernels.Float32 {
			continue
		}
		c.rounded[c.node] = own
		if product.Round != precision {
			product.Round = precision
			in.Op = program.Kernel{Planner: product}
		}
	}
}

// checkPrecisions returns an error if a node was given a precision that has no use for it.
func (l *lowerer) checkPrecisions() error {
	for n := range l.precisionOf {
		switch {
		case l.of[n] == nil:
			return fmt.Errorf("PrecisionOf: got %v, which is no value of this graph, want a product", n)
		case !l.rounded[n]:
			of, _ := internal.ElementType(n)
			return fmt.Errorf("PrecisionOf: got node %s, op %v, of %v, want a product of float32 matrices", internal.Name(n), n.Op(), of)
		}
	}
	return nil
}
