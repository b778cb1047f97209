package expr

import (
	"maps"
	"math"
	"strings"
)

// Uniform declares registers that many elements are computed with, so that it pays to prepare their inverses once: see [quotient].
func (a *Assembler) Uniform(registers ...string) {
	for _, r := range registers {
		a.uniform[r] = true
	}
}

// Again declares that a register has the value that another had: results computed from that one are used again for this one.
func (a *Assembler) Again(register, before string) { a.before[register] = before }

// Apply adds the instructions of f for one element of each operand, and returns the registers of its outputs. Results computed before from the same
// registers are used again: a register has one value, and is set before Apply.
func (a *Assembler) Apply(f Func, operands []string) []string {
	return a.ApplyLanes(f, [][]string{operands}, "")[0]
}

// ApplyLanes is [Assembler.Apply] for several elements, lanes, side by side. Where exists is not "", it is the predicate that the elements matter.
func (a *Assembler) ApplyLanes(f Func, lanes [][]string, exists string) [][]string {
	g := f.graph()
	values, outputs := a.values(g, lanes, exists), make([][]string, len(lanes))
	for lane := range lanes {
		for _, v := range g.outputs {
			d := g.nodes[v].dtype
			r := a.Register(d.Kind())
			if d == Bool {
				a.Line("selp.b32 %s, 1, 0, %s", r, values[v][lane])
			} else {
				a.Line("mov.%s %s, %s", kinds[d.Kind()].dtype, r, values[v][lane])
			}
			outputs[lane] = append(outputs[lane], r)
		}
	}
	return outputs
}

// Prepare adds the instructions of f that need no more than the operands given, so
// that [Assembler.Apply] finds their results: an operand that is not known yet is "".
func (a *Assembler) Prepare(f Func, operands []string) {
	a.values(f.graph(), [][]string{operands}, "")
}

// Scope adds the instructions that body adds. Their results are computed again after it: body is a loop's, or may be jumped over.
func (a *Assembler) Scope(body func()) {
	before := maps.Clone(a.known)
	body()
	a.known = before
}

// values returns the registers of a graph's nodes by lane, adding the instructions of new ones; those that depend on operands not given are "".
func (a *Assembler) values(g *graph, lanes [][]string, exists string) [][]string {
	values, varies, uniform := make([][]string, len(g.nodes)), make([]bool, len(g.nodes)), make([]bool, len(g.nodes))
	for i := range g.nodes {
		n := &g.nodes[i]
		values[i], uniform[i] = make([]string, len(lanes)), true
		for _, v := range n.inputs() {
			varies[i], uniform[i] = varies[i] || varies[v], uniform[i] && uniform[v]
		}
		if n.op == operand || n.op == number {
			varies[i] = true
		}
		for lane, operands := range lanes {
			switch n.op {
			case operand:
				r := operands[n.bits]
				uniform[i] = uniform[i] && a.uniform[r]
				if n.dtype == Bool && r != "" {
					r = a.value(instruction{op: operand, to: Bool, x: r})
				}
				values[i][lane] = r
			case constant:
				values[i][lane] = n.literal()
			case number:
				values[i][lane] = a.numbers[n.bits]
			}
		}
		switch {
		case n.op == operand || n.op == constant || n.op == number:
		case n.op == Div && n.dtype == Float32 && (g.nodes[n.args[1]].op == constant || uniform[n.args[1]] && !uniform[n.args[0]]):
			a.quotients(values[i], values[n.args[0]], values[n.args[1]], exists)
		default:
			for lane := range lanes {
				values[i][lane] = a.node(g, n, values, lane, varies)
			}
		}
	}
	return values
}

// node returns the register of a node's value in a lane, "" if it depends on operands not given.
func (a *Assembler) node(g *graph, n *node, values [][]string, lane int, varies []bool) string {
	in, ready := instruction{op: n.op, to: n.dtype}, true
	text := []*string{&in.x, &in.y, &in.z}
	for k, v := range n.inputs() {
		*text[k], in.from = values[v][lane], g.nodes[v].dtype
		ready = ready && values[v][lane] != ""
	}
	if x, ok := g.inverseIsPositive(n); ok {
		in, ready = instruction{op: Inverse, from: in.from, to: Bool, x: values[x][lane]}, values[x][lane] != ""
	}
	if y := &g.nodes[n.args[1]]; n.op == Div && n.dtype == Float64 && y.op == constant {
		if inverse, ok := powerInverse(y.value()); ok { // the product has the quotient's bits
			in.op, in.y = Mul, Literal(Float64, inverse)
		}
	}
	if n.op.transcendental() && !varies[n.args[0]] {
		in.x = a.opaque(n.dtype, in.x)
	}
	if !ready {
		return ""
	}
	return a.value(in)
}

// powerInverse returns the inverse of a power of two, if both are normal numbers.
func powerInverse(x float64) (inverse float64, ok bool) {
	fraction, exponent := math.Frexp(x)
	return 1 / x, math.Abs(fraction) == 0.5 && -1021 <= exponent && exponent <= 1023
}

// inverseIsPositive returns the x of 0 <= 1 / x, and false for any other node.
func (g *graph) inverseIsPositive(n *node) (x Value, ok bool) {
	if n.op != Le || !g.nodes[n.args[0]].isFloat(0) {
		return 0, false
	}
	quotient := g.nodes[n.args[1]]
	return quotient.args[1], quotient.op == Div && g.nodes[quotient.args[0]].isFloat(1)
}

// isFloat reports whether the node is a constant of a floating-point type.
func (n *node) isFloat(v float64) bool {
	return n.op == constant && n.dtype.IsFloat() && n.value() == v
}

// opaque returns a number as one that the assembler does not know: results that the assembler computes
// from a known number may differ from the device's in the last bit.
func (a *Assembler) opaque(d Dtype, x string) string {
	in := instruction{op: constant, to: d, x: x}
	if r, ok := a.known[in]; ok {
		return r
	}
	const zero = "stheno_zero"
	if !strings.Contains(a.head.String(), zero) {
		a.Declare(".const .align 8 .b64 " + zero + " = 0")
	}
	bits, r := 8*d.Size(), a.Register(d.Kind())
	nothing, known := a.Register(B32), a.Register(B32)
	if d == Float64 {
		nothing, known = a.Register(B64), a.Register(B64)
	}
	a.Line("ld.const.b%d %s, [%s]", bits, nothing, zero)
	a.Line("mov.b%d %s, %s", bits, known, x)
	a.Line("xor.b%d %s, %s, %s", bits, known, known, nothing)
	a.Line("mov.b%d %s, %s", bits, r, known)
	a.known[in] = r
	return r
}

// look returns the register of a value that has been computed.
func (a *Assembler) look(in instruction) (r string, known bool) {
	if r, known = a.known[in]; known {
		return r, true
	}
	had := in
	for _, x := range []*string{&had.x, &had.y, &had.z} {
		if before, again := a.before[*x]; again {
			*x = before
		}
	}
	if had == in {
		return "", false
	}
	r, known = a.known[had]
	return r, known
}

// value returns the register of a value, adding its instructions if it is new.
func (a *Assembler) value(in instruction) string {
	if r, ok := a.look(in); ok {
		return r
	}
	kind := in.to.Kind()
	if in.to == Bool {
		kind = Pred
	}
	r := a.Register(kind)
	a.known[in] = r
	switch {
	case in.op == operand: // of Bool
		a.Line("setp.ne.u32 %s, %s, 0", r, in.x)
	case in.op == convert:
		a.convert(r, in)
	case in.op.transcendental():
		b := a.functions.bodies[functionName(in.op, in.to)]
		b.write(&a.text, [...]string{in.x, in.y, result: r})
		for _, i := range b.needs {
			a.items[i] = true
		}
	default:
		a.instruct(r, in)
	}
	return r
}
