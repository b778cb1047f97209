package codegen

import (
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/internal/policy"
)

// Tiles whose rows begin with sectors of the output: see maptile.go.

// isSkewed reports whether rows of the first output begin within sectors.
func (n *nest) isSkewed() bool {
	size, strides, inner := n.outputs[0].Size(), n.rowStrides[len(n.types)], len(n.rowShape)-1
	if strides[inner] != 1 || size < 4 {
		return false
	}
	within := n.views[len(n.types)].Offset * size % policy.SectorBytes
	for _, s := range strides[:inner] {
		within |= s * size % policy.SectorBytes
	}
	return within != 0
}

// tileMargin is the number of columns before the first one that a skewed tile loads.
const tileMargin = 8

// margin returns the columns before the first one.
func (t *tileWriter) margin() int {
	if t.skewed {
		return tileMargin
	}
	return 0
}

// before returns an address less so many elements of a size.
func (t *tileWriter) before(address, elements string, size int64) string {
	r, bytes := t.Register(expr.B64), t.Register(expr.B64)
	if t.wide {
		t.Line("mul.lo.u64 %s, %s, %d", bytes, elements, size)
	} else {
		t.Line("mul.wide.u32 %s, %s, %d", bytes, elements, size)
	}
	t.Line("sub.u64 %s, %s, %s", r, address, bytes)
	return r
}

// skew returns how many elements before the tile's first column each of some rows of a skewed tile begins, and changes whether
// the thread's elements there exist.
func (t *tileWriter) skew(c, k, n int, inside [][]string) (shifts []string) {
	d := t.outputs[0]
	width := shift(int(d.Size()))
	at := t.elementsOf(t.places[len(t.types)], c, k, n)
	column := t.Register(t.kind)
	t.Line("add.%s %s, %s, %s", t.index, column, t.begin[1], t.indexOf(t.lane))
	t.Line("add.%s %s, %s, %d", t.index, column, column, 32*c)
	for j := range n {
		shift, low, mine, exists := t.Register(expr.B32), t.Register(expr.B64), t.Register(t.kind), t.Register(expr.Pred)
		t.Line("mul.wide.u32 %s, %s, %d", low, t.lane, d.Size())
		t.Line("sub.u64 %s, %s, %s", low, at[j], low)
		t.Line("cvt.u32.u64 %s, %s", shift, low)
		t.Line("and.b32 %s, %s, 31", shift, shift) // columns of a warp take whole sectors
		t.Line("shr.u32 %s, %s, %s", shift, shift, width)
		t.Line("sub.%s %s, %s, %s", t.index, mine, column, t.indexOf(shift))
		t.Line("setp.lt.%s %s, %s, %s", t.index, exists, mine, t.extents[1])
		t.Line("and.pred %s, %s, %s", exists, exists, inside[c][k+j])
		inside[c][k+j] = exists
		shifts = append(shifts, shift)
	}
	return shifts
}

// shifted changes addresses of operand or output elements, one for each row, to those of the rows' columns.
func (t *tileWriter) shifted(p *address, at, shifts []string) []string {
	for j, shift := range shifts {
		by := t.Register(t.kind)
		t.Line("mul.lo.%s %s, %s, %s", t.index, by, t.indexOf(shift), p.ofRow[t.rowAxes-1])
		at[j] = t.before(at[j], by, p.size())
	}
	return at
}
