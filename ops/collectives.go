package ops

import (
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
)

// Reduction is how a collective combines the values of ranks.
type Reduction bool

// The reductions: the sum of the ranks' values in the order of the ranks, and that sum divided by their number.
const (
	SumOfRanks  Reduction = false
	MeanOfRanks Reduction = true
)

// AllReduce returns the reduction of x over the ranks that run the graph, the same on all:
//
//	out[r] = x[0] + ... + x[n-1]
//
// where x[s] is the value of rank s of n. Gorgonia's machines, and a VM without ranks, are one rank, so out is x.
//
// Derivatives by the inputs of collectives are those of the sum of all ranks' losses. That of AllReduce is the AllReduce of the gradient.
func AllReduce(x *gorgonia.Node, of Reduction) (*gorgonia.Node, error) {
	return apply(kernels.Collective{Kind: kernels.AllReduce, Mean: bool(of)}, x)
}

// BroadcastFrom returns the value that x has on rank root, on all ranks. The derivative by x is the sum of all ranks' gradients on rank
// root, and 0 on others.
func BroadcastFrom(x *gorgonia.Node, root int) (*gorgonia.Node, error) {
	return apply(kernels.Collective{Kind: kernels.Broadcast, Root: root}, x)
}

// AllGather concatenates x of all ranks along its first axis, in the order of the ranks, on each of them:
//
//	out[r] = x[0], ..., x[ranks-1]
//
// A run by another number of ranks is an error; one rank alone gives x. The derivative by x is the ReduceScatter of the gradient.
func AllGather(x *gorgonia.Node, ranks int) (*gorgonia.Node, error) {
	return apply(kernels.Collective{Kind: kernels.AllGather, Ranks: ranks}, x)
}

// ReduceScatter reduces x over the ranks and returns on each a part of the result, which is split along the first axis:
//
//	out[r] = part r of (x[0] + ... + x[ranks-1])
//
// The extent of that axis must be a multiple of the ranks. A run by another number of ranks is an error; one rank alone gives x. The
// derivative by x is the AllGather of the gradient, divided by the ranks for the mean.
func ReduceScatter(x *gorgonia.Node, ranks int, of Reduction) (*gorgonia.Node, error) {
	return apply(kernels.Collective{Kind: kernels.ReduceScatter, Ranks: ranks, Mean: bool(of)}, x)
}

func apply(c kernels.Collective, x *gorgonia.Node) (*gorgonia.Node, error) {
	return Apply(collective{c}, x)
}

// collective is an operation on the values of all ranks. Its number of ranks is 0 for the kinds whose shapes do not depend on it.
type collective struct{ kernels.Collective }

// sized reports whether shapes depend on the number of ranks.
func (c collective) sized() bool {
	return c.Kind == kernels.AllGather || c.Kind == kernels.ReduceScatter
}

func (c collective) String() string {
	name := c.Kind.String()
	if c.Mean {
		name += "Mean"
	}
	switch {
	case c.sized():
		return fmt.Sprintf("%s[%d]", name, c.Ranks)
	case c.Kind == kernels.Broadcast:
		return fmt.Sprintf("BroadcastFrom[rank %d]", c.Root)
	case c.Kind == kernels.Reduce:
		return fmt.Sprintf("%s[rank %d]", name, c.Root)
	}
	return name
}

func (c collective) Infer(in ...Type) (Type, error) {
	if err := CheckFloats(in, 1); err != nil {
		return Type{}, err
	}
	x := in[0]
	switch {
	case c.Root < 0:
		return Type{}, fmt.Errorf("got rank %d, want one from 0 on", c.Root)
	case !c.sized():
		return x, nil
	case c.Ranks < 1:
		return Type{}, fmt.Errorf("got %d ranks, want at least 1", c.Ranks)
	case x.Shape.IsScalar():
		return Type{}, errors.New("got a scalar, want a first axis")
	}
	out := Type{x.Dtype, x.Shape.Clone()}
	if c.Kind == kernels.AllGather {
		out.Shape[0] *= c.Ranks
	} else if out.Shape[0] /= c.Ranks; out.Shape[0]*c.Ranks != x.Shape[0] {
		return Type{}, fmt.Errorf("got shape %v, want a first axis that is a multiple of %d ranks", x.Shape, c.Ranks)
	}
	return out, nil
}

// Plan returns the launches of one rank, which is the identity.
func (c collective) Plan(dev kernels.Device, in ...Type) (*kernels.Plan, error) {
	if err := c.for1(); err != nil {
		return nil, err
	}
	f, err := expr.Identity(in[0].Dtype)
	if err != nil {
		return nil, err
	}
	return codegen.Map(dev, f, in[0].Shape, codegen.Dense(in[0].Shape))
}

// for1 returns an error unless one rank computes the collective.
func (c collective) for1() error {
	switch {
	case c.sized() && c.Ranks > 1:
		return fmt.Errorf("got 1 rank, want %d", c.Ranks)
	case c.Root > 0:
		return fmt.Errorf("got 1 rank, want more than %d", c.Root)
	}
	return nil
}

func (c collective) Adjoints(b *Backward) []Term {
	adjoint := c
	switch c.Kind {
	case kernels.Reduce:
		adjoint.Kind = kernels.Broadcast
	case kernels.Broadcast:
		adjoint.Kind = kernels.Reduce
	case kernels.AllGather:
		adjoint.Kind = kernels.ReduceScatter
	case kernels.ReduceScatter:
		adjoint.Kind, adjoint.Mean = kernels.AllGather, false
	}
	g := b.Apply(adjoint, b.Grad())
	if c.Kind == kernels.ReduceScatter && c.Mean {
		g = b.elements(fmt.Sprintf("a / %d", c.Ranks), g)
	}
	return []Term{g}
}
