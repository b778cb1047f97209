package passes

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
)

// group is a set of Maps that become one instruction. Its iteration space is a shape. With reductions in it, the
// elements along axes are a row, and each member computes one value per element or one per row.
type group struct {
	members    []*vertex // in the order of the program
	shape      []int     // without axes of extent 1
	axes       []int     // of shape; nil without reductions
	count      int64     // elements of shape
	operations int       // of all members
	instr      *program.Instr

	visited          int       // number of the front that found it last
	readers, sources []*vertex // outside of it, once a search has visited them
}

// newGroup returns the group of one Map. It returns nil for instructions that cannot be fused: those without
// elements, with rows of one element (indistinguishable from elements), or with several outputs.
func newGroup(v *vertex) *group {
	v.op = v.Op.(program.Map)
	g := &group{members: []*vertex{v}, count: kernels.Count(v.op.Shape), operations: max(v.op.Func.Operations(), 1)}
	for a, d := range v.op.Shape {
		if d != 1 && slices.Contains(v.op.Axes, a) {
			g.axes = append(g.axes, len(g.shape))
		}
		if d != 1 {
			g.shape = append(g.shape, d)
		}
	}
	if g.count == 0 || v.isRows() && g.axes == nil || len(v.Out) != 1 {
		return nil
	}
	v.domain, v.count, v.flat = g.shape, g.count, !v.isRows() && flat(v.In)
	return g
}

// flat reports whether the elements of views may be traversed in any shape: each view is contiguous or repeats one
// element.
func flat(in []*program.Value) bool {
	return !slices.ContainsFunc(in, func(v *program.Value) bool { return !v.IsContiguous() && !repeated(v) })
}

// repeated reports whether a view is a single element, repeated.
func repeated(v *program.Value) bool {
	if v.IsBounded() {
		return false
	}
	for a, d := range v.Shape {
		if d != 1 && v.View.Strides[a] != 0 {
			return false
		}
	}
	return true
}

// iteratesOver reports whether a member can iterate over a shape of count elements.
func (v *vertex) iteratesOver(shape []int, count int64) bool {
	return v.count == count && (v.flat || slices.Equal(v.domain, shape) || !v.isRows() && !slices.ContainsFunc(v.In, (*program.Value).IsBounded) && splits(v.domain, shape))
}

// splits reports whether into is shape with some axes split into several.
func splits(shape, into []int) bool {
	n, a := 1, 0
	for _, d := range into {
		if n *= d; a < len(shape) && n == shape[a] {
			n, a = 1, a+1
		}
	}
	return n == 1 && a == len(shape)
}

// fits reports whether all members can iterate over the elements or the rows of the group.
func (g *group) fits() bool {
	rows := g.rowShape()
	count := kernels.Count(rows)
	for _, m := range g.members {
		if !m.iteratesOver(g.shape, g.count) && (g.axes == nil || m.isRows() || !m.iteratesOver(rows, count)) {
			return false
		}
	}
	return true
}

func (v *vertex) isRows() bool { return len(v.op.Axes) > 0 }

// merge returns the group of the members of a and b, or nil if their iteration spaces are incompatible.
func merge(a, b *group) *group {
	g := &group{members: slices.Concat(a.members, b.members), shape: a.shape, axes: a.axes, count: a.count, operations: a.operations + b.operations}
	switch {
	case a.axes == nil && b.axes != nil:
		g.shape, g.axes, g.count = b.shape, b.axes, b.count
	case a.axes != nil && b.axes != nil && !slices.Equal(a.axes, b.axes):
		return nil
	case a.axes == nil && !g.fits(): // a can be flat where b is not
		g.shape, g.count = b.shape, b.count
	}
	if !g.fits() || g.axes != nil && slices.ContainsFunc(g.members, notInRows) {
		return nil
	}
	return g
}

// consistent reports whether members of a and b use each other's results at the same elements or rows, so that they can be
// passed in registers.
func (g *group) consistent(a, b *group) bool {
	for _, m := range g.members {
		for i, s := range m.sources {
			if s != nil && s.group != m.group && (s.group == a || s.group == b) && !g.finds(m, s, m.In[i]) {
				return false
			}
		}
	}
	return true
}

// adopt sets the group of all members.
func (g *group) adopt() {
	for _, m := range g.members {
		m.group = g
	}
}

// inside reports whether an instruction is a member; v is nil for an instruction of Setup.
func (g *group) inside(v *vertex) bool { return v != nil && v.group == g }

// inputs counts the inputs of members that are computed outside of the group, with repetitions.
func (g *group) inputs() (n int) {
	for _, m := range g.members {
		for _, s := range m.sources {
			if !g.inside(s) {
				n++
			}
		}
	}
	return n
}

// operands returns the distinct views that members read of values computed outside of the group, except numbers, which
// become literals of the function.
func (g *group) operands() (list []operand) {
	for _, m := range g.members {
		for i, v := range m.In {
			if isNumber(v) || g.inside(m.sources[i]) {
				continue
			}
			if o := g.operand(m, v); !slices.ContainsFunc(list, o.equal) {
				list = append(list, o)
			}
		}
	}
	return list
}

// outputs returns the members whose results are read outside of the group.
func (g *group) outputs() (list []*vertex) {
	for _, m := range g.members {
		if m.liveOut || slices.ContainsFunc(m.readers, func(r *vertex) bool { return !g.inside(r) }) {
			list = append(list, m)
		}
	}
	return list
}

// reduces reports whether the group has reductions and only per-row outputs.
func (g *group) reduces() bool {
	return g.axes != nil && !slices.ContainsFunc(g.outputs(), func(m *vertex) bool { return !g.perRow(m) })
}

// notInRows reports whether a member cannot be part of a Map with reductions: it reads a view with bounds, or overwrites a state.
func notInRows(m *vertex) bool {
	return m.updates || slices.ContainsFunc(m.In, (*program.Value).IsBounded)
}

// rowShape returns the shape without the axes.
func (g *group) rowShape() []int { return program.Without(g.shape, g.axes) }

// onRows reports whether a member computes one value per row.
func (g *group) onRows(m *vertex) bool { return m.count != g.count }

// perRow reports whether the result of a member has one element per row.
func (g *group) perRow(m *vertex) bool {
	if m.isRows() {
		return m.op.PerRow[0]
	}
	return g.onRows(m)
}

// finds reports whether an input of member m equals, at each element, the result of member source at that element or its
// row.
func (g *group) finds(m, source *vertex, v *program.Value) bool {
	perRow := g.perRow(source)
	if v.View.Offset != 0 || v.IsBounded() || g.onRows(m) && !perRow {
		return false
	}
	strides, n := g.strides(m, v), int64(1)
	for a, d := range slices.Backward(g.shape) {
		want := n
		if perRow && slices.Contains(g.axes, a) {
			want = 0
		} else {
			n *= int64(d)
		}
		if strides[a] != want {
			return false
		}
	}
	return true
}

// strides returns the strides of an input of a member along the axes of the group. For a member with one value per row,
// the strides along the axes of a row are 0.
func (g *group) strides(m *vertex, v *program.Value) []int64 {
	onRows := g.onRows(m)
	var own []int64
	for a, d := range v.Shape {
		if d != 1 {
			own = append(own, v.View.Strides[a])
		}
	}
	over := g.shape
	if onRows {
		over = g.rowShape()
	}
	switch {
	case slices.Equal(m.domain, over):
	case !m.flat:
		own, _ = program.SplitAxes(m.domain, own, over...)
	case repeated(v):
		own = make([]int64, len(over))
	default: // traversed in another shape
		own = program.Contiguous(over).Strides
	}
	if !onRows {
		return own
	}
	strides := make([]int64, len(g.shape))
	for a := range g.shape {
		if !slices.Contains(g.axes, a) {
			strides[a], own = own[0], own[1:]
		}
	}
	return strides
}
