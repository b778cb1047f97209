package lower

import (
	"fmt"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
)

// collective lowers a collective of package ops. Without other ranks it is the identity.
func collective(c *call) *program.Value {
	op, ok := c.node.Op().(interface {
		Collective() (kernels.Collective, bool)
	})
	if !ok {
		return nil
	}
	of, ok := op.Collective()
	switch {
	case !ok:
		return nil
	case of.Ranks != 0 && of.Ranks != c.ranks:
		c.err = fmt.Errorf("got %d ranks, want the %d of %v", c.ranks, of.Ranks, c.node.Op())
		return nil
	case of.Root >= c.ranks:
		c.err = fmt.Errorf("got %d ranks, want more than the root %d of %v", c.ranks, of.Root, c.node.Op())
		return nil
	case c.ranks == 1:
		return c.reshaped(c.in[0], c.Shape)
	}
	of.Ranks = c.ranks
	return c.emit(program.Collective{Collective: of}, c.Type, c.in...)
}
