package expr

import "math"

// Number is a constant that an [Assembler] takes from a register.
type Number struct{ of node }

// Argument returns the number as an argument of a launch: a float32, a float64, an int32 or an int64.
func (n Number) Argument() any {
	switch d := n.of.dtype; {
	case d == Float32:
		return float32(n.of.value())
	case d == Float64:
		return n.of.value()
	case d.Size() == 8:
		return n.of.integer()
	}
	return int32(n.of.integer())
}

// isNumber reports whether Func.Numbers takes a node out.
func (n *node) isNumber() bool {
	switch {
	case n.op != constant:
		return false
	case n.dtype.IsInteger():
		return n.integer() < -1 || n.integer() > 1
	}
	return n.value() != 0 && math.Abs(n.value()) != 1 && !math.IsInf(n.value(), 0) && !math.IsNaN(n.value())
}

// Numbers returns the function with its constants taken out, and these in the order in which [Assembler.Numbers] takes their
// registers. Functions that differ in those constants alone, such as 1/n for several n, become one.
// 0, 1, -1 and numbers that are not finite stay: they don't follow from sizes.
func (f Func) Numbers() (Func, []Number) {
	g := f.graph()
	var list []Number
	for i := range g.nodes {
		if n := &g.nodes[i]; n.isNumber() {
			list = append(list, Number{*n})
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
