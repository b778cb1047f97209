package lower

import (
	"fmt"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/attention"
)

// setPrecision sets the precision of the float32 matmuls, convolutions and attention among the node's instructions, which begin at start.
func (c *call) setPrecision(start int) {
	precision, own := c.want.PrecisionOf[c.node]
	if !own {
		precision = c.want.Precision
	}
	for _, in := range c.graph.Program.Instrs[start:] {
		if conv, ok := program.ConvOf(in.Op); ok && conv.Dtype == kernels.Float32 {
			c.rounded[c.node] = own
			if conv.Round != precision {
				conv.Round = precision
				in.Op = program.Kernel{Planner: conv}
			}
			continue
		}
		if p, ok := program.AttentionOf(in.Op); ok {
			if rounded, ok := attention.Rounded(p, precision); ok {
				c.rounded[c.node] = own
				if precision != kernels.FullPrecision {
					in.Op = program.Kernel{Planner: rounded}
				}
			}
			continue
		}
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

// checkPrecisions returns an error if a node of PrecisionOf is not a float32 matmul or attention.
func (l *lowerer) checkPrecisions() error {
	for n := range l.want.PrecisionOf {
		switch {
		case l.valueOf[n] == nil:
			return fmt.Errorf("Precision: got node %v, which is not in the graph, want a product of float32 matrices", n)
		case !l.rounded[n]:
			dtype, _ := internal.ElementType(n)
			return fmt.Errorf("Precision: got node %s, op %v, of %v, want a product of float32 matrices", internal.Name(n), n.Op(), dtype)
		}
	}
	return nil
}
