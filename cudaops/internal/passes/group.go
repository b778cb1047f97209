package passes

import (
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/kernels"
)

// group is a set of Maps and Rows that become one instruction. It goes over the
// elements of a shape; with Rows in it, the elements that differ along axes alone
// are a row, and members work on elements or on rows, an element for each.
type group struct {
	members []*program.Instr // in the order of the program
	shape   []int            // without axes of extent 1
	axes    []int            // of shape; nil without Rows
}

// newGroup returns the group of one instruction, nil for one that stays as it is:
// without elements, or with rows of one element, which look like elements.
func newGroup(in *program.Instr) *group {
	g := &group{members: []*program.Instr{in}}
	op, rows := in.Op.(program.Rows)
	for a, d := range in.Domain() {
		if rows && d != 1 && slices.Contains(op.Axes, a) {
			g.axes = append(g.axes, len(g.shape))
		}
		if d == 0 {
			return nil
		}
		if d != 1 {
			g.shape = append(g.shape, d)
		}
	}
	if rows && g.axes == nil {
		return nil
	}
	return g
}

// squeezed returns a shape without its axes of extent 1.
func squeezed(shape []int) []int {
	return slices.DeleteFunc(slices.Clone(shape), func(d int) bool { return d == 1 })
}

// inside returns the members as a set.
func (g *group) inside() map[*program.Instr]bool {
	set := make(map[*program.Instr]bool, len(g.members))
	for _, m := range g.members {
		set[m] = true
	}
	return set
}

// reads reports whether a member reads something that is neither made by a member nor
// a number.
func (g *group) reads() bool {
	inside := g.inside()
	for _, m := range g.members {
		for _, v := range m.In {
			if _, constant := number(v); !constant && !inside[v.Base.Def] {
				return true
			}
		}
	}
	return false
}

// consistent reports whether members find what other members compute where they would
// look for it in memory.
func (g *group) consistent() bool {
	inside := g.inside()
	for _, m := range g.members {
		for _, v := range m.In {
			if inside[v.Base.Def] && !g.finds(m, v) {
				return false
			}
		}
	}
	return true
}

// flat reports whether a member's elements may be counted through, whatever its shape:
// it reads values in row-major order, and numbers.
func flat(m *program.Instr) bool {
	if _, rows := m.Op.(program.Rows); rows {
		return false
	}
	for _, v := range m.In {
		if !v.IsContiguous() && !repeated(v) {
			return false
		}
	}
	return true
}

// repeated reports whether a view is one element, again and again.
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

// goesOver reports whether a member can work on the elements of a shape.
func goesOver(m *program.Instr, shape []int) bool {
	return slices.Equal(squeezed(m.Domain()), shape) || flat(m) && kernels.Count(m.Domain()) == kernels.Count(shape)
}

// fits reports whether all members can work on the elements or the rows of the group.
func (g *group) fits() bool {
	for _, m := range g.members {
		_, rows := m.Op.(program.Rows)
		if !goesOver(m, g.shape) && (g.axes == nil || rows || !goesOver(m, g.rowShape())) {
			return false
		}
	}
	return true
}

// merge returns the group of the members of a and b, nil if they do not go over the
// same elements and rows.
func merge(a, b *group) *group {
	g := &group{members: slices.Concat(a.members, b.members), shape: a.shape, axes: a.axes}
	switch {
	case a.axes == nil && b.axes != nil:
		g.shape, g.axes = b.shape, b.axes
	case a.axes != nil && b.axes != nil && !slices.Equal(a.axes, b.axes):
		return nil
	case a.axes == nil && !g.fits(): // a can be flat where b is not
		g.shape = b.shape
	}
	if !g.fits() || g.axes != nil && slices.ContainsFunc(g.members, readsBounded) {
		return nil
	}
	return g
}

// readsBounded reports whether an instruction reads a view with bounds, as Rows cannot.
func readsBounded(in *program.Instr) bool {
	return slices.ContainsFunc(in.In, (*program.Value).IsBounded)
}

// rowShape returns the shape without the axes.
func (g *group) rowShape() []int {
	var shape []int
	for a, d := range g.shape {
		if !slices.Contains(g.axes, a) {
			shape = append(shape, d)
		}
	}
	return shape
}

// onRows reports whether a member works on rows, an element for each.
func (g *group) onRows(m *program.Instr) bool {
	return kernels.Count(m.Domain()) != kernels.Count(g.shape)
}

// perRow reports whether a value that a member computes has an element for each row.
func (g *group) perRow(v *program.Value) bool {
	if op, rows := v.Def.Op.(program.Rows); rows {
		return op.PerRow[slices.Index(v.Def.Out, v)]
	}
	return g.onRows(v.Def)
}

// finds reports whether input v of member m is, at each element, what the member that
// computes v's base has at that element or at its row.
func (g *group) finds(m *program.Instr, v *program.Value) bool {
	if v.View.Offset != 0 || v.IsBounded() {
		return false
	}
	strides := g.strides(m, v)
	perRow := g.perRow(v.Base)
	if g.onRows(m) && !perRow {
		return false
	}
	n := int64(1)
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

// strides returns the strides of an input of a member along the axes of the group: 0
// along those of a row for a member that works on rows.
func (g *group) strides(m *program.Instr, v *program.Value) []int64 {
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
	if !slices.Equal(squeezed(v.Shape), over) { // a flat member, counted through in another shape
		if own = program.Contiguous(over).Strides; repeated(v) {
			own = make([]int64, len(over))
		}
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
