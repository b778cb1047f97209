package expr

import "math"

// Number is a constant that an [Assembler] takes from a register.
type Number struct {
	Dtype Dtype
	Value float64
}

// Numbers returns the function with its constants taken out, and these in the order in which [Assembler.Numbers] takes their
// registers. Functions that differ in those constants alone, such as 1/n for several n, become one.
// 0, 1, -1 and numbers that are not finite stay: they don't follow from sizes.
func (f Func) Numbers() (Func, []Number) {
	g := f.graph()
	var list []Number
	for i := range g.nodes {
		if n := &g.nodes[i]; n.op == constant && n.value() != 0 && math.Abs(n.value()) != 1 && !math.IsInf(n.value(), 0) && !math.IsNaN(n.value()) {
			list = append(list, Number{n.dtype, n.value()})
			n.op, n.bits = number, uint64(len(list)-1)
		}
	}
	return g.encode(), list
}

// NumberTypes returns the types of the constants that [Func.Numbers] took out of the function.
func (f Func) NumberTypes() (list []Dtype) {
	for _, n := range f.graph().nodes {
		if n.op == number {
			list = append(list, n.dtype)
		}
	}
	return list
}

// Numbers declares the registers of the constants that were taken out of the functions that follow.
func (a *Assembler) Numbers(registers []string) { a.numbers = registers }
