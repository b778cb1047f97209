package lower

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
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

// checkSplit returns an error unless all nodes of Split are inputs that each run copies.
func (l *lowerer) checkSplit() error {
	for _, n := range l.split {
		v := l.valueOf[n]
		if v == nil {
			return fmt.Errorf("Split: got node %v, which is not in the graph", n)
		}
		if _, input := v.Def.Op.(program.Input); !input || v.Shape.IsScalar() {
			return fmt.Errorf("Split: got node %s of shape %v, want an input with an axis of the batch that each run copies to the device", internal.Name(n), n.Shape())
		}
	}
	return nil
}

// overRanks returns the reduction of losses and gradients.
func (l *lowerer) overRanks() program.Collective {
	return program.Collective{Collective: kernels.Collective{Kind: kernels.AllReduce, Ranks: l.ranks, Mean: !l.sumRanks}}
}

// reduceCosts makes the outputs of costs the reductions over the ranks.
func (l *lowerer) reduceCosts() {
	if l.ranks == 1 {
		return
	}
	reduced := map[int]bool{}
	for _, o := range l.graph.Outputs {
		if v := l.graph.Program.Outputs[o.Index]; internal.IsCost(o.Node) && v.Numeric && v.Dtype.IsFloat() && !reduced[o.Index] {
			c := &call{lowerer: l, node: o.Node}
			l.graph.Program.Outputs[o.Index], reduced[o.Index] = c.emit(l.overRanks(), v.Type, v), true
		}
	}
}

// bucketBytes is the number of bytes of gradients from which on they are reduced, in one operation. Among two H100 (NV18, NCCL 2.28) an
// all-reduce takes 44 to 50 us up to 4 MB, 81 us for 16 MB and 254 us for 64 MB: above 16 MB the time per byte hardly falls, and less of
// the reduction runs beside the backward pass.
const bucketBytes = 16 << 20

// reduceGradients adds the reductions of the learnables' gradients over the ranks. The gradients are grouped in the order in which
// the backward pass computes them, and each group is reduced after its last one.
func (l *lowerer) reduceGradients() {
	if l.ranks == 1 {
		return
	}
	p, at := l.graph.Program, map[*program.Instr]int{}
	for i, in := range p.Instrs {
		at[in] = i + 1 // those of Setup have 0
	}
	var gradients []*program.Value
	nodes := map[*program.Value][]*gorgonia.Node{}
	for _, m := range l.graph.Trained.Learned {
		v := l.gradientOf(m.Node)
		if nodes[v] == nil {
			gradients = append(gradients, v)
		}
		nodes[v] = append(nodes[v], m.Node)
	}
	slices.SortStableFunc(gradients, func(a, b *program.Value) int { return cmp.Compare(at[a.Def], at[b.Def]) })
	l.reduced = map[*program.Value]*program.Value{}
	after := map[int][]*program.Instr{} // buckets, by the position behind which they are inserted
	bucket, bytes := &program.Instr{Op: l.overRanks()}, int64(0)
	for i, v := range gradients {
		bucket.In, bucket.Nodes = append(bucket.In, v), append(bucket.Nodes, nodes[v]...)
		l.reduced[v] = p.NewValue(bucket, v.Name, v.Type)
		if bytes += v.Bytes(); bytes >= bucketBytes || i == len(gradients)-1 {
			after[at[v.Def]] = append(after[at[v.Def]], bucket)
			bucket, bytes = &program.Instr{Op: l.overRanks()}, 0
		}
	}
	instrs := p.Instrs
	p.Instrs = nil
	for i := range len(instrs) + 1 {
		if i > 0 {
			p.Instrs = append(p.Instrs, instrs[i-1])
		}
		p.Instrs = append(p.Instrs, after[i]...)
	}
}

// derivative returns the gradient of a learnable, reduced over the ranks.
func (e *updater) derivative(l Learned) *program.Value {
	v := e.gradientOf(l.Node)
	if e.ranks == 1 {
		return v
	}
	return e.reduced[v]
}
