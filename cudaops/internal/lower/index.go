package lower

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"gorgonia.org/gorgonia"
)

// The rules of this file lower ops that gather elements by indices, which are values of the graph.

// gathering plans a ByIndices or its gradient, for a tensor of the shape with count indices along the axis.
type gathering struct {
	dtype   kernels.Dtype
	shape   []int
	axis    int
	count   int64
	adjoint bool
}

// String names the op.
func (g gathering) String() string {
	if g.adjoint {
		return "scatter"
	}
	return "gather"
}

func (g gathering) Plan(dev kernels.Device) (*kernels.Plan, error) {
	if g.adjoint {
		return basic.Scatter(dev, g.dtype, g.shape, g.axis, g.count)
	}
	return basic.Gather(dev, g.dtype, g.shape, g.axis, g.count)
}

// byIndices lowers ByIndices and its gradient, whose inputs are x, the output's gradient and the indices. The kernels skip
// indices outside of the axis; [Graph.CheckInput] and [Graph.Check] report them.
func byIndices(c *call) *program.Value {
	axis, derivative, ok := internal.ByIndices(c.node.Op())
	if !ok || !c.numbers() || len(c.in) < 2 || axis >= len(c.in[0].Shape) {
		return nil
	}
	x, indices := c.in[0], c.in[len(c.in)-1]
	g := gathering{c.Dtype, x.Shape, axis, indices.Elements(), derivative}
	want := slices.Clone(x.Shape)
	want[axis] = int(g.count)
	if !indices.Numeric || indices.Dtype != kernels.Int || kernels.Int.Size() != kernels.Int64.Size() {
		return nil
	}
	in := []*program.Value{x, indices}
	if derivative {
		in[0] = c.in[1]
		if len(c.in) != 3 || !c.Dtype.IsFloat() || in[0].Dtype != c.Dtype || in[0].Elements() != kernels.Count(want) {
			return nil
		}
		want = x.Shape
	}
	if !slices.Equal(want, c.Shape) {
		return nil
	}
	c.within(indices, x.Shape[axis], 0)
	return c.emit(program.Kernel{Planner: g}, c.Type, in...)
}

// ranged is a value whose elements must be indices within an axis: an input or, if input is nil, an output of the program.
type ranged struct {
	node   *gorgonia.Node
	input  *gorgonia.Node
	output int
	extent int
	also   int // the only other valid index
}

// indexing records which inputs of an op of package ops are indices. It lowers nothing.
func indexing(c *call) *program.Value {
	op, ok := c.node.Op().(interface {
		Limit(input int) (count, also int, limited bool)
	})
	if !ok {
		return nil
	}
	for i, v := range c.in {
		if count, also, limited := op.Limit(i); limited && v.Numeric {
			c.within(v, count, also)
		}
	}
	return nil
}

// below returns the number that all elements of a node's value are below, and not below 0, or 0 if that is not known.
func below(n *gorgonia.Node) int {
	op, ok := n.Op().(interface {
		Below() int
		View() (codegen.View, bool)
	})
	if !ok {
		return 0
	}
	if b := op.Below(); b > 0 {
		return b
	}
	children, err := internal.Children(n)
	if v, viewer := op.View(); viewer && v.Bounds.To == 0 && err == nil && len(children) == 1 {
		return below(children[0])
	}
	return 0
}

// within records that the indices must be within an axis of that extent, or also. It checks constant indices immediately.
func (c *call) within(indices *program.Value, extent, also int) {
	r := ranged{node: c.node, extent: extent, also: also}
	isBelow := func(n *gorgonia.Node) bool { b := below(n); return b > 0 && b <= extent }
	if isBelow(indices.Def.Nodes[0]) {
		return
	}
	if all := indices.Base; indices.IsContiguous() && indices.Elements() == all.Elements() {
		switch op := all.Def.Op.(type) {
		case program.Constant:
			c.err = r.check(op.Value)
			return
		case program.Input:
			r.input = all.Def.Nodes[0]
		case program.State:
			r.input = all.Def.Nodes[0]
		}
	}
	if r.input == nil {
		r.output = c.output(indices)
	}
	c.graph.ranges = append(c.graph.ranges, r)
}

// CheckInput returns an error that names the first index outside of its axis in the value of an input.
func (g *Graph) CheckInput(n *gorgonia.Node, v gorgonia.Value) error {
	for _, r := range g.ranges {
		if r.input == n {
			if err := r.check(v); err != nil {
				return err
			}
		}
	}
	return nil
}

// ComputesIndices reports whether a run computes indices, for [Graph.Check] or for the next run.
func (g *Graph) ComputesIndices() bool {
	return slices.ContainsFunc(g.ranges, func(r ranged) bool { return r.input == nil }) || slices.ContainsFunc(g.Indices, func(x Indices) bool { return x.Next >= 0 })
}

// Indices are a shared input that holds indices. They are checked by [Graph.CheckInput] before each run, since another program, or the run before, may have changed them.
type Indices struct {
	Shared int // in Graph.Shared
	Next   int // in Program.Outputs, the value after a run; -1 if a run leaves indices within their axis
}

// indices records that a shared input with that value after a run, nil if no run changes it, holds indices, if it does.
func (l *lowerer) indices(shared int, next *program.Value) {
	s, most, found := l.want.Shared[shared], 0, false
	for _, r := range l.graph.ranges {
		if r.input == s.Node && (!found || r.extent < most) {
			most, found = r.extent, true
		}
	}
	if !found {
		return
	}
	x := Indices{shared, -1}
	if next != nil {
		if b := below(s.Next); b == 0 || b > most {
			x.Next = l.output(next)
		}
	}
	l.graph.Indices = append(l.graph.Indices, x)
}

// Check returns an error that names the first index outside of its axis in the outputs of a run.
func (g *Graph) Check(outputs []gorgonia.Value) error {
	for _, r := range g.ranges {
		if r.input == nil {
			if err := r.check(outputs[r.output]); err != nil {
				return err
			}
		}
	}
	return nil
}

// check returns an error that names the first index in a value outside of the axis. The op of a node with a name says what the indices are.
func (r ranged) check(v gorgonia.Value) error {
	err := values.CheckIndices(v, r.extent, r.also)
	switch {
	case err == nil:
		return nil
	case internal.IsNamed(r.node):
		return fmt.Errorf("node %s, %v: %w", internal.Name(r.node), r.node.Op(), err)
	}
	return fmt.Errorf("node %s: %w", internal.Name(r.node), err)
}

// diagonal lowers DiagFlat, whose element type Gorgonia does not infer. In row-major order, the elements of the n x n
// matrix are the first n² elements of an n x (n + 1) matrix whose first column is the diagonal and whose other columns are
// 0.
func diagonal(c *call) *program.Value {
	if !internal.IsDiagFlat(c.node.Op()) || len(c.in) != 1 || !c.in[0].Numeric {
		return nil
	}
	n := int(c.in[0].Elements())
	if n < 2 || !slices.Equal(c.Shape, []int{n, n}) {
		return nil
	}
	t := c.in[0].Type
	t.Shape = []int{n, n + 1}
	column := c.reshaped(c.in[0], []int{n})
	view := program.View{Offset: column.View.Offset, Strides: []int64{column.View.Strides[0], 0}}
	padded := c.padded(column, t, view, codegen.Bounds{Axis: 1, To: 1})
	t.Shape = c.Shape
	return c.alias(padded, t, program.Contiguous(c.Shape))
}
