package lower

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
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
	for _, n := range l.want.Split {
		v := l.valueOf[n]
		if v == nil {
			return fmt.Errorf("Split: got node %v, which is not in the graph", n)
		}
		if !program.Is[program.Input](v.Def.Op) || v.Shape.IsScalar() {
			return fmt.Errorf("Split: got node %s of shape %v, want an input with an axis of the batch that each run copies to the device", internal.Name(n), n.Shape())
		}
	}
	return nil
}

// overRanks returns the reduction of losses and gradients.
func (l *lowerer) overRanks() program.Collective {
	return program.Collective{Collective: kernels.Collective{Kind: kernels.AllReduce, Ranks: l.ranks, Mean: !l.want.SumRanks}}
}

// reduceCosts makes the outputs of costs the reductions over the ranks. Each is reduced when it has been computed, beside the backward pass.
func (l *lowerer) reduceCosts() {
	if l.ranks == 1 {
		return
	}
	reduced := map[int]bool{}
	for _, o := range l.graph.Outputs {
		if v := l.graph.Program.Outputs[o.Index]; internal.IsCost(o.Node) && v.Numeric && v.Dtype.IsFloat() && !reduced[o.Index] {
			p := l.graph.Program
			p.Outputs[o.Index], reduced[o.Index] = l.call(o.Node, v.Type).emit(l.overRanks(), v.Type, v), true
			end := len(p.Instrs) - 1
			p.Instrs = slices.Insert(p.Instrs[:end], slices.Index(p.Instrs, v.Def)+1, p.Instrs[end])
		}
	}
}

// BucketBytes is the number of bytes of gradients from which on they are reduced, in one operation. Among two H100 (NV18, NCCL 2.28) an
// all-reduce takes 44 to 50 us up to 4 MB, 81 us for 16 MB and 254 us for 64 MB: above 16 MB the time per byte hardly falls, and less of
// the reduction runs beside the backward pass.
const BucketBytes = 16 << 20

// reduceGradients adds the reductions of the learnables' gradients over the ranks, each after the last gradient that it reduces. The
// gradients are reduced in the order in which the backward pass computes them or, if the training is sharded, by groups.
func (l *lowerer) reduceGradients() {
	if l.ranks == 1 {
		return
	}
	p, at := l.graph.Program, map[*program.Instr]int{}
	for i, in := range p.Instrs {
		at[in] = i + 1 // instructions of Setup stay at 0
	}
	after := map[int][]*program.Instr{} // by the position behind which they are inserted
	if l.graph.Trained.training.Sharded {
		l.scatterGradients(at, after)
	} else {
		l.reduceBuckets(at, after)
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

// reduceBuckets reduces gradients on all ranks.
func (l *lowerer) reduceBuckets(at map[*program.Instr]int, after map[int][]*program.Instr) {
	p := l.graph.Program
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
	l.gradients = map[*program.Value]*program.Value{}
	bucket, bytes := &program.Instr{Op: l.overRanks()}, int64(0)
	for i, v := range gradients {
		sent := v
		if half, ok := l.graph.Trained.half(v.Dtype); ok {
			convert := l.convert(v, half, nodes[v])
			sent, after[at[v.Def]] = convert.Out[0], append(after[at[v.Def]], convert)
		}
		bucket.In, bucket.Nodes = append(bucket.In, sent), append(bucket.Nodes, nodes[v]...)
		l.gradients[v] = p.NewValue(bucket, v.Name, sent.Type)
		if bytes += sent.Bytes(); bytes >= BucketBytes || i == len(gradients)-1 {
			after[at[v.Def]] = append(after[at[v.Def]], bucket)
			bucket, bytes = &program.Instr{Op: l.overRanks()}, 0
		}
	}
}

// half returns the type of 16 bits in which gradients of a type travel between ranks, and false if they travel in their own.
func (t *Trained) half(d kernels.Dtype) (kernels.Dtype, bool) {
	half, ok := t.training.Reduced.Half()
	return half, ok && d == kernels.Float32
}

// convert returns an instruction that makes a value one of another element type, from or to float32.
func (l *lowerer) convert(v *program.Value, to kernels.Dtype, nodes []*gorgonia.Node) *program.Instr {
	f := l.checked(written(func(b *expr.Builder) expr.Value { return b.Convert(b.Operand(0), to) }, v))
	t := v.Type
	t.Dtype = to
	in := &program.Instr{Op: program.Map{Func: f, Shape: v.Shape}, In: []*program.Value{v}, Nodes: nodes}
	l.graph.Program.NewValue(in, v.Name, t)
	return in
}

// scatterGradients reduces the concatenated gradients of each group, of which each rank gets its part.
func (l *lowerer) scatterGradients(at map[*program.Instr]int, after map[int][]*program.Instr) {
	t := l.graph.Trained
	for _, g := range t.groups {
		last, whole, part := 0, g.whole(), g.part()
		half, convert := t.half(g.dtype)
		if convert {
			whole.Dtype, part.Dtype = half, half
		}
		join := &program.Instr{Op: program.ConcatInPlace{Tail: g.tail, Zeros: t.sums()}, Nodes: t.nodes(g)}
		for _, m := range g.members {
			v := l.gradientOf(t.Learned[m].Node)
			last = max(last, at[v.Def])
			if convert {
				in := l.convert(v, half, []*gorgonia.Node{t.Learned[m].Node})
				v, after[at[v.Def]] = in.Out[0], append(after[at[v.Def]], in)
			}
			join.In = append(join.In, v)
		}
		op := l.overRanks()
		op.Kind = kernels.ReduceScatter
		scatter := &program.Instr{Op: op, In: []*program.Value{l.graph.Program.NewValue(join, "gradients", whole)}, Nodes: join.Nodes}
		g.received = l.graph.Program.NewValue(scatter, "gradients", part)
		after[last] = append(after[last], join, scatter)
	}
}

// onPart emits a collective between the parameters of a group and the part of a rank.
func (e *updater) onPart(kind kernels.CollectiveKind, v *program.Value, to program.Type) *program.Value {
	return e.emit(program.Collective{Collective: kernels.Collective{Kind: kind, Ranks: e.ranks}}, to, v)
}

// derivative returns the gradient of a learnable, reduced over the ranks, in the type in which it travels.
func (e *updater) derivative(l Learned) *program.Value {
	v := e.gradientOf(l.Node)
	if e.ranks == 1 {
		return v
	}
	return e.gradients[v]
}
