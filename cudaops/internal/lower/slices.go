package lower

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The slice of an op is lowered to a view. When gorgonia.UnsafeLet first sets another slice, the op becomes a moving slice and
// the graph is lowered again. A moving slice is a gather by indices that the device computes from the start and the step of
// the slice. These are inputs of the program, so further slices need no compilation.

// slicing is the slice of a node's op.
type slicing struct {
	node             *gorgonia.Node
	op               interface{ IsSlice() tensor.Slice }
	start, end, step int       // when the graph was lowered
	extent, count    int       // elements along the axis, and those of the node's shape
	begin            []float64 // first element and step of a moving slice, otherwise nil
}

// noteSlice records the slice of a Slice node.
func (l *lowerer) noteSlice(n *gorgonia.Node, children gorgonia.Nodes) (err error) {
	slice, increment, ok := internal.Slice(n.Op())
	if !ok {
		return nil
	}
	whole, part := children[0].Shape(), n.Shape()
	if increment {
		part = children[1].Shape()
	}
	s := slicing{node: n, op: n.Op().(interface{ IsSlice() tensor.Slice }), extent: whole[slice.Axis], count: 1}
	if len(part) == len(whole) {
		s.count = part[slice.Axis]
	}
	s.start, s.end, s.step = s.now()
	if i := slices.Index(l.want.Moving, n.Op()); i >= 0 {
		s.begin = l.begins[2*i : 2*i+2]
		err = s.move()
	}
	l.graph.slices = append(l.graph.slices, s)
	return err
}

func (s slicing) now() (start, end, step int) {
	if now := s.op.IsSlice(); now != nil {
		return now.Start(), now.End(), now.Step()
	}
	return 0, 0, 0
}

// changed reports whether the op's slice differs from the recorded one.
func (s slicing) changed() bool {
	start, end, step := s.now()
	return start != s.start || end != s.end || step != s.step
}

// move sets the begin of a moving slice from the op's slice. It returns an error unless the slice has as many elements as the
// node's shape.
func (s slicing) move() error {
	start, end, step := s.now()
	if end <= start { // the whole axis
		start, end = 0, s.extent
	}
	step = max(step, 1)
	if start < 0 || end > s.extent {
		return fmt.Errorf("node %s: got the slice %d:%d of an axis of %d elements, want a slice within the axis", internal.Name(s.node), start, end, s.extent)
	}
	if n := max((end-start)/step, 1); n != s.count {
		return fmt.Errorf("node %s: got the slice %d:%d:%d of %d elements, want %d as in the node's shape", internal.Name(s.node), start, end, step, n, s.count)
	}
	if s.begin != nil {
		s.begin[0], s.begin[1] = float64(start), float64(step)
	}
	return nil
}

// MoveSlices updates the moving slices with the slices set by gorgonia.UnsafeLet. It returns an error that names a node whose
// slice does not fit.
func (g *Graph) MoveSlices() error {
	for _, s := range g.slices {
		if s.begin == nil && !s.changed() {
			continue
		}
		if err := s.move(); err != nil {
			return err
		}
	}
	return nil
}

// Moving returns the ops with moving slices, including those whose slices were set since the graph was lowered.
func (g *Graph) Moving() (ops []gorgonia.Op) {
	for _, s := range g.slices {
		if op := s.node.Op(); (s.begin != nil || s.changed()) && !slices.Contains(ops, op) {
			ops = append(ops, op)
		}
	}
	return ops
}

// Stale reports whether the graph must be lowered again: because the slice of an op that is not a moving slice, or the mode of
// an op, has changed.
func (g *Graph) Stale() bool {
	stale := func(s slicing) bool { return s.begin == nil && s.changed() }
	return slices.ContainsFunc(g.slices, stale) || slices.ContainsFunc(g.modes, mode.changed)
}

// movingSlice lowers a moving slice or its gradient. The gradient gathers from its second input for each index of the axis; a
// gather returns 0 for indices out of range.
func movingSlice(c *call) *program.Value {
	slice, increment, ok := internal.Slice(c.node.Op())
	if !ok {
		return nil
	}
	k, count := slices.Index(c.want.Moving, c.node.Op()), c.graph.slices[len(c.graph.slices)-1].count
	if k < 0 {
		return nil
	}
	if !c.numbers() || increment && !c.floats(2) {
		return host(c) // reads the op's slice itself
	}
	part := slices.Clone(c.in[0].Shape)
	part[slice.Axis] = count
	from, shape := c.in[0], part
	if increment {
		if c.in[1].Elements() != kernels.Count(part) {
			return host(c)
		}
		from, shape = c.reshaped(c.in[1], part), c.in[0].Shape
	}
	t := program.Type{Numeric: true, Dtype: kernels.Float64, Shape: tensor.Shape{shape[slice.Axis]}}
	begin := func(at int) *program.Value {
		return c.alias(c.beginInput(), t, program.View{Offset: int64(2*k + at), Strides: []int64{0}})
	}
	start, step, number := begin(0), begin(1), c.numbered(shape[slice.Axis])
	t.Dtype = kernels.Int64
	indices := c.mapped(t, func(b *expr.Builder) expr.Value {
		start, step, i := b.Operand(0), b.Operand(1), b.Operand(2)
		if !increment {
			return b.Convert(b.Apply(expr.Add, start, b.Apply(expr.Mul, step, i)), kernels.Int64)
		}
		at := b.Apply(expr.Div, b.Apply(expr.Sub, i, start), step)
		taken := b.Apply(expr.Eq, at, b.Apply(expr.Floor, at))
		return b.Convert(b.Apply(expr.Select, taken, at, b.Constant(kernels.Float64, -1)), kernels.Int64)
	}, start, step, number)
	t.Dtype, t.Shape = c.Dtype, shape
	v := c.emit(program.Kernel{Planner: gathering{dtype: c.Dtype, shape: from.Shape, axis: slice.Axis, count: indices.Elements()}}, t, from, indices)
	if slices.Equal(shape, c.Shape) {
		return v
	}
	return c.alias(v, c.Type, program.Contiguous(c.Shape))
}

// beginInput returns the input that holds the begins of all moving slices.
func (c *call) beginInput() *program.Value {
	if c.begin == nil {
		c.begin = c.stateInput(tensor.New(tensor.WithBacking(c.begins)), kernels.Float64)
	}
	return c.begin
}

// numbered returns the vector 0, 1, ..., n-1.
func (c *call) numbered(n int) *program.Value {
	if c.ranges[n] == nil {
		t := program.Type{Numeric: true, Dtype: kernels.Float64, Shape: tensor.Shape{n}}
		v, m := values.New(t.Dtype, t.Shape)
		for i := range n {
			kernels.Elements[float64](m)[i] = float64(i)
		}
		c.ranges[n] = c.emit(program.Constant{Value: v}, t)
	}
	return c.ranges[n]
}
