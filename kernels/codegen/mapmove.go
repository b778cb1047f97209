package codegen

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels/expr"
)

// loadScalars loads operands of one element.
func (w *mapWriter) loadScalars() {
	w.follow()
	for i, d := range w.types {
		if w.place(i).rows == fixed && w.sources[i] != nil {
			w.bases[i] = w.numbers(w.sources[i], d, w.bases[i], 1, false)[0]
		} else if w.place(i).rows == fixed {
			r := w.Register(d.Kind())
			w.Line("ld.global.%s %s, [%s]", memoryType(d), r, w.bases[i])
			w.bases[i] = r
		}
	}
}

// load loads the elements of a vector.
func (w *mapWriter) load(v *vector) {
	for i, d := range w.types {
		if w.sources[i] != nil && w.place(i).rows != fixed {
			v.elements = append(v.elements, w.draw(v, i))
			continue
		}
		if w.merged && i > 0 {
			v.elements = append(v.elements, v.elements[0])
			continue
		}
		regs := make([]string, w.width)
		for k := range regs {
			switch p := w.place(i); {
			case p.rows == fixed:
				regs[k] = w.bases[i]
			case p.spread == single && k > 0:
				regs[k] = regs[0]
			default:
				regs[k] = w.Register(d.Kind())
			}
		}
		v.elements = append(v.elements, regs)
	}
	w.branch(v, "load", func() {
		for i, d := range w.types {
			if w.sources[i] != nil || w.merged && i > 0 {
				continue
			}
			switch regs, p := v.elements[i], w.place(i); {
			case p.rows == fixed:
			case p.spread == together:
				w.whole("ld.global", d, location{v.addresses[i][0], 0}, regs)
			case p.spread == single:
				w.Line("ld.global.%s %s, [%s]", memoryType(d), regs[0], v.addresses[i][0])
			case p.mark.axis() >= 0:
				for k := range regs {
					w.loadPadded(v, i, k, "")
				}
			default:
				for k, r := range regs {
					w.Line("ld.global.%s %s, %s", memoryType(d), r, elementAt(v.addresses[i], k, d.Size()))
				}
			}
		}
	}, func(k int, exists string) {
		for i, d := range w.types {
			p, r := w.place(i), v.elements[i][k]
			if p.rows == fixed || p.spread == single && k > 0 || w.sources[i] != nil || w.merged && i > 0 {
				continue
			}
			if p.mark.axis() >= 0 {
				w.loadPadded(v, i, k, exists)
				continue
			}
			w.Line("mov.b%d %s, 0", 8*max(d.Size(), 4), r)
			w.Line("@%s ld.global.%s %s, %s", exists, memoryType(d), r, elementAt(v.addresses[i], k, d.Size()))
		}
	})
}

// draw returns the elements of a vector of random operand i.
func (w *mapWriter) draw(v *vector, i int) (list []string) {
	s, d, at := w.sources[i], w.types[i], v.addresses[i]
	switch p := w.place(i); {
	case p.spread == together || p.rows == next:
		return w.numbers(s, d, at[0], w.width, p.spread == together && int64(w.width)%perBlock(d) == 0)
	case p.spread == single:
		return slices.Repeat(w.numbers(s, d, at[0], 1, false), w.width)
	}
	for k := range w.width {
		list = append(list, w.numbers(s, d, at[k], 1, false)...)
	}
	return list
}

// store stores the results of a vector.
func (w *mapWriter) store(v *vector) {
	w.branch(v, "store", func() {
		for out, d := range w.outputs {
			w.whole("st.global", d, location{v.to[out], 0}, v.results[out])
		}
	}, func(k int, exists string) {
		for out, d := range w.outputs {
			w.Line("@%s st.global.%s %s, %s", exists, memoryType(d), elementAt(v.to[out:out+1], k, d.Size()), v.results[out][k])
		}
	})
}

// branch does all of a vector at once if its elements all exist, else element by
// element, each if it exists.
func (w *mapWriter) branch(v *vector, what string, full func(), element func(k int, exists string)) {
	if w.oneElement() {
		full()
		return
	}
	name := func(s string) string { return fmt.Sprintf("%s_%s%d", what, s, v.number) }
	w.Line("@!%s bra %s", v.full, name("elements"))
	full()
	w.Line("bra %s", name("done"))
	w.Label(name("elements"))
	for k := range w.width {
		at, exists := w.Register(w.kind), w.Register(expr.Pred)
		w.Line("add.%s %s, %s, %d", w.index, at, v.first, k)
		w.Line("setp.lt.%s %s, %s, %s", w.index, exists, at, w.n)
		element(k, exists)
	}
	w.Label(name("done"))
}
