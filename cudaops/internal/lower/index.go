package lower

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// The rules of this file lower ops that choose elements by indices, which are values of the graph.

// gathering is a ByIndices, or its derivative, as a planner: for a tensor of the shape, with count
// indices along the axis.
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

// Plan implements kernels.Planner.
func (g gathering) Plan(dev kernels.Device) (*kernels.Plan, error) {
	if g.adjoint {
		return kernels.Scatter(dev, g.dtype, g.shape, g.axis, g.count)
	}
	return kernels.Gather(dev, g.dtype, g.shape, g.axis, g.count)
}

// byIndices lowers ByIndices and its derivative, whose inputs are x, the output's gradient and the
// indices. The kernels skip indices outside of the axis; [Graph.Check] reports them.
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
	c.within(indices, x.Shape[axis])
	return c.emit(program.Kernel{Planner: g}, c.Type, in...)
}

// ranged are indices, an output of the program, that must lie within an axis.
type ranged struct {
	node   *gorgonia.Node
	output int
	extent int
}

// within records that the indices must lie within an axis of that extent.
func (c *call) within(indices *program.Value, extent int) {
	r := ranged{c.node, c.output(indices), extent}
	c.graph.ranges = append(c.graph.ranges, r)
}

// Check returns an error that names the first index, in the outputs of a run, outside of its axis.
func (g *Graph) Check(outputs []gorgonia.Value) error {
	for _, r := range g.ranges {
		m, err := values.Bytes(outputs[r.output])
		if err != nil {
			return fmt.Errorf("node %s: its indices are %w", internal.Name(r.node), err)
		}
		for i, at := range kernels.Elements[int](m) {
			if at < 0 || at >= r.extent {
				return fmt.Errorf("node %s: got index %d at %d, want 0 to %d", internal.Name(r.node), at, i, r.extent-1)
			}
		}
	}
	return nil
}

// diagonal lowers DiagFlat, whose element type Gorgonia does not know. The elements of an n x n
// matrix, in order, are those of an n x (n + 1) matrix whose first column is the diagonal and whose
// others are 0, without the last n.
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
	padded := c.padded(column, t, view, kernels.Bounds{Axis: 1, To: 1})
	t.Shape = c.Shape
	return c.alias(padded, t, program.Contiguous(c.Shape))
}
