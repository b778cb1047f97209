package codegen

import (
	"github.com/stheno-ml/stheno/kernels/expr"
)

// Operands with bounds: views that read as 0 outside of a part of an axis.

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
			if w.inner && axis == w.rowAxes-1 && k > 0 { // those behind the first follow along this axis
				next := w.Register(w.kind)
				w.Line("add.%s %s, %s, %d", w.index, next, at, k)
				at = next
			}
			if axis == w.place(i).mark.axis() {
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
