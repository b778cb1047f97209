package codegen

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// Operands with bounds: views that read as 0 outside of a part of an axis.

// bound is the part of an axis of the merged shape in which an operand has elements;
// extent 0 is for all of it.
type bound struct {
	axis         int
	from, extent int64
}

// bound notes the bounds of operands along axis a of the shape, which became axis
// merged, or a part of it.
func (m *mapping) bound(shape []int, operands []View, a, merged int, joined bool) {
	for i, v := range operands {
		switch b := &m.bounds[i]; {
		case v.bounded(shape) && v.Bounds.Axis == a:
			*b = bound{merged, int64(v.Bounds.From), int64(v.Bounds.To - v.Bounds.From)}
		case joined && b.extent > 0 && b.axis == merged:
			b.from, b.extent = b.from*int64(shape[a]), b.extent*int64(shape[a])
		}
	}
}

// bounded returns the axis of each operand's bounds, "" if none has any.
func (m *mapping) bounded() string {
	axes, any := make([]byte, len(m.bounds)), false
	for i, b := range m.bounds {
		axes[i], any = byte(b.axis), any || b.extent > 0
	}
	if !any {
		return ""
	}
	return string(axes)
}

// boundParameters adds the parameters of an operand's bounds.
func (w *mapWriter) boundParameters() (from, extent string) {
	return w.parameter(w.index, w.kind), w.parameter(w.index, w.kind)
}

// padded returns the addresses of a vector's elements of operand i, and predicates: the
// element is one of the buffer.
func (w *mapWriter) padded(i int, indices [][]string) (addresses, inside []string) {
	for k := range w.width {
		index := indices[min(k, len(indices)-1)]
		offset, within, address := w.Register(w.kind), w.Register(expr.Pred), w.Register(expr.B64)
		for axis, at := range index {
			if w.inner && axis == w.axes-1 && k > 0 { // those behind the first follow along this axis
				next := w.Register(w.kind)
				w.Line("add.%s %s, %s, %d", w.index, next, at, k)
				at = next
			}
			if axis == int(w.bounded[i]) {
				shifted := w.Register(w.kind)
				w.Line("sub.%s %s, %s, %s", w.index, shifted, at, w.bounds[i][0])
				w.Line("setp.lt.%s %s, %s, %s", w.index, within, shifted, w.bounds[i][1]) // unsigned: not below either
				at = shifted
			}
			if axis == 0 {
				w.Line("mul.lo.%s %s, %s, %s", w.index, offset, at, w.strides[i][axis])
			} else {
				w.Line("mad.lo.%s %s, %s, %s, %s", w.index, offset, at, w.strides[i][axis], offset)
			}
		}
		w.address(address, w.bases[i], offset, w.types[i].Size())
		addresses, inside = append(addresses, address), append(inside, within)
	}
	return addresses, inside
}

// merge takes, of the parts of a concatenation, the one that each element is in: the address there becomes that of
// operand 0.
func (w *mapWriter) merge(v *vector) {
	for i := 1; i < len(w.types); i++ {
		for k, at := range v.addresses[i] {
			w.Line("selp.b64 %s, %s, %s, %s", v.addresses[0][k], at, v.addresses[0][k], v.inside[i][k])
		}
	}
}

// loadPadded loads element k of operand i of a vector, if it exists and is inside of the
// bounds; exists may be "".
func (w *mapWriter) loadPadded(v *vector, i, k int, exists string) {
	d, r, inside := w.types[i], v.elements[i][k], v.inside[i][k]
	if w.merged && exists == "" {
		w.Line("ld.global.%s %s, %s", memoryType(d), r, location{v.addresses[i][k], 0})
		return
	}
	if w.merged {
		inside = exists
	} else if exists != "" {
		both := w.Register(expr.Pred)
		w.Line("and.pred %s, %s, %s", both, inside, exists)
		inside = both
	}
	w.Line("mov.b%d %s, 0", 8*max(d.Size(), 4), r)
	w.Line("@%s ld.global.%s %s, %s", inside, memoryType(d), r, location{v.addresses[i][k], 0})
}

// pad copies n elements of operand i from the block's index on, or zeros; of a part of a concatenation after the first
// those that it has alone.
func pad[T kernels.Element](b *block, i int, to []T, n int) {
	from, strides, last := kernels.Elements[T](b.operands[i]), b.strides[i], len(b.shape)-1
	bound := b.bounds[i]
	index := append(b.walk[:0], b.index...)
	for k := 0; k < n; {
		run := min(int64(n-k), b.shape[last]-index[last])
		shifted := index[bound.axis] - bound.from
		inside := shifted >= 0 && shifted < bound.extent
		if bound.axis == last && shifted < 0 {
			run = min(run, -shifted)
		} else if bound.axis == last && inside {
			run = min(run, bound.extent-shifted)
		}
		to := to[k : k+int(run)]
		if inside {
			at := -bound.from * strides[bound.axis]
			for a, s := range strides {
				at += index[a] * s
			}
			for j := range to {
				to[j] = from[at+int64(j)*strides[last]]
			}
		} else if i == 0 || !b.layout.merged {
			clear(to)
		}
		k += int(run)
		index[last] += run
		for a := last; a > 0 && index[a] == b.shape[a]; a-- {
			index[a] = 0
			index[a-1]++
		}
	}
}
