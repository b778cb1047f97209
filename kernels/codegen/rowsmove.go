package codegen

import (
	"github.com/stheno-ml/stheno/kernels"
)

// span is the indices of a block along rows or columns.
type span struct {
	first, n       int64
	reach          reach
	shape, strides []int64
}

// spans returns the indices of the block in operand or output i: the inner one, whose
// elements are contiguous, and the outer one.
func (t *rowTile) spans(i int) (inner, outer span) {
	byRow, byColumn, _ := t.layout.access(i)
	rows := span{t.row, t.rows, byRow, t.rowShape, t.rowStrides[i]}
	columns := span{t.column, t.columns, byColumn, t.colShape, t.colStrs[i]}
	if t.grid.across {
		return rows, columns
	}
	return columns, rows
}

// stride returns the stride of a span that has one.
func (s span) stride() (int64, bool) {
	if s.reach == fixed || s.reach == indexed {
		return 0, s.reach == fixed
	}
	return s.strides[len(s.strides)-1], true
}

// origin returns where the elements of operand or output i begin.
func (t *rowTile) origin(i int) int64 {
	if i < len(t.types) {
		return 0
	}
	return t.split
}

// inOrder reports whether the block's elements of operand or output i lie in memory as
// in a block, and where.
func (t *rowTile) inOrder(i int) (at int64, ok bool) {
	inner, outer := t.spans(i)
	near, ok := inner.stride()
	far, along := outer.stride()
	if !ok || inner.n > 1 && near != 1 || outer.n > 1 && (!along || far != inner.n) {
		return 0, false
	}
	return t.origin(i) + inner.first*near + dot(outer.first, outer.shape, outer.strides), true
}

// runs calls f for the runs of the block's elements that have one stride in the memory
// of operand or output i: with a run's first element in the block and in memory, the
// stride, and the number.
func (t *rowTile) runs(i int, f func(k, at, stride, n int64)) {
	inner, outer := t.spans(i)
	stride, even := inner.stride()
	k := int64(0)
	for o := range outer.n {
		base := t.origin(i) + dot(outer.first+o, outer.shape, outer.strides)
		if even {
			f(k, base+inner.first*stride, stride, inner.n)
			k += inner.n
			continue
		}
		last := len(inner.shape) - 1
		for at := inner.first; at < inner.first+inner.n; {
			n := min(inner.shape[last]-at%inner.shape[last], inner.first+inner.n-at)
			f(k, base+dot(at, inner.shape, inner.strides), inner.strides[last], n)
			k, at = k+n, at+n
		}
	}
}

// dot returns the offset of an index in row-major order of a shape.
func dot(index int64, shape, strides []int64) (offset int64) {
	for a := len(shape) - 1; a > 0; a-- {
		offset += index % shape[a] * strides[a]
		index /= shape[a]
	}
	if len(shape) > 0 {
		offset += index * strides[0]
	}
	return offset
}

// gather copies the block's elements of operand i into its block.
func (t *rowTile) gather(i int) {
	to, from, size := t.blocks[i], t.memory[i], t.types[i].Size()
	t.runs(i, func(k, at, stride, n int64) { move(size, to, k, 1, from, at, stride, n) })
}

// draw makes the block's elements of random operand i.
func (t *rowTile) draw(i int) {
	g := newGenerator(t.memory[i], t.streams[i])
	t.runs(i, func(k, at, stride, n int64) { g.fill(t.types[i], t.blocks[i], k, t.offsets[i]+at, stride, n) })
}

// store copies the outputs of a step that are in blocks to where they belong.
func (t *rowTile) store(step *rowStep) {
	for k, output := range step.to {
		i := len(t.types) + output
		if _, ok := t.inOrder(i); ok {
			continue
		}
		to, from, size := t.memory[i], t.blockOf(k), t.dtype(i).Size()
		t.runs(i, func(k, at, stride, n int64) { move(size, to, at, stride, from, k, 1, n) })
	}
}

// repeat copies a result of a reduction, or a value that the step hoists, to each element of
// its row.
func (t *rowTile) repeat(i int, step *rowStep) {
	s, size := i-len(t.types)-len(t.kept), int64(0)
	if s < step.known {
		size = t.scalars[s].Size()
	} else {
		size = step.hoisted[s-step.known].Size()
	}
	to, from := t.blocks[i], t.results[s]
	if t.grid.across {
		for c := range t.columns {
			move(size, to, c*t.rows, 1, from, 0, 1, t.rows)
		}
		return
	}
	for r := range t.rows {
		move(size, to, r*t.columns, 1, from, r, 0, t.columns)
	}
}

// move copies n elements of that size from one stride to another.
func move(size int64, to []byte, toAt, toStride int64, from []byte, fromAt, fromStride, n int64) {
	switch size {
	case 1:
		moveElements(kernels.Elements[uint8](to)[toAt:], toStride, kernels.Elements[uint8](from)[fromAt:], fromStride, n)
	case 4:
		moveElements(kernels.Elements[uint32](to)[toAt:], toStride, kernels.Elements[uint32](from)[fromAt:], fromStride, n)
	default:
		moveElements(kernels.Elements[int64](to)[toAt:], toStride, kernels.Elements[int64](from)[fromAt:], fromStride, n)
	}
}

func moveElements[T kernels.Element](to []T, toStride int64, from []T, fromStride, n int64) {
	switch {
	case toStride == 1 && fromStride == 1:
		copy(to[:n], from)
	case toStride == 1 && fromStride == 0:
		for k := range to[:n] {
			to[k] = from[0]
		}
	case toStride == 1:
		for k := range to[:n] {
			to[k] = from[int64(k)*fromStride]
		}
	default:
		for k := range n {
			to[k*toStride] = from[k*fromStride]
		}
	}
}
