package expr

import (
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
)

// Assembler writes the PTX of one kernel: its own instructions, added by
// [Assembler.Line], and those of functions, added by [Assembler.Apply].
//
// Elements are in registers of their size: f32 and f64 in such, the integers
// and bool in b32 or b64.
type Assembler struct {
	functions *Functions
	head      strings.Builder
	text      strings.Builder
	counts    [kindCount]int
	known     map[instruction]string // results, by the instruction that computes them
	divided   map[string]divided     // quotients
	uniform   map[string]bool        // registers that many elements are computed with
	before    map[string]string      // registers that had the value of another
	labels    int
	items     map[int]bool // tables and functions that the instructions name
}

// Kind is a kind of register.
type Kind int

// The kinds of registers.
const (
	F32 Kind = iota
	F64
	B32
	B64
	Pred
	kindCount
)

// kinds are the registers' types and prefixes, none of which the compiler uses.
var kinds = [kindCount]struct{ dtype, prefix string }{{"f32", "%x"}, {"f64", "%y"}, {"b32", "%w"}, {"b64", "%l"}, {"pred", "%q"}}

// instruction identifies a value by how it is computed.
type instruction struct {
	op       Op
	from, to Dtype
	x, y, z  string
}

// NewAssembler returns an assembler of a kernel without instructions.
func NewAssembler(fs *Functions) *Assembler {
	return &Assembler{functions: fs, known: map[instruction]string{}, divided: map[string]divided{}, before: map[string]string{}, uniform: map[string]bool{}, items: map[int]bool{}}
}

// Register returns a new register.
func (a *Assembler) Register(k Kind) string {
	r := kinds[k].prefix + strconv.Itoa(a.counts[k])
	a.counts[k]++
	return r
}

// Kind returns the kind of register that elements of a type are in.
func (d Dtype) Kind() Kind {
	switch {
	case d == Float32:
		return F32
	case d == Float64:
		return F64
	case d.Size() == 8:
		return B64
	}
	return B32
}

// Line adds an instruction without its semicolon, as by [fmt.Sprintf].
func (a *Assembler) Line(format string, args ...any) {
	a.text.WriteByte('\t')
	fmt.Fprintf(&a.text, format, args...)
	a.text.WriteString(";\n")
}

// Declare adds a declaration, without its semicolon, to the head of the module.
func (a *Assembler) Declare(line string) { a.head.WriteString(line + ";\n") }

// Label adds a label.
func (a *Assembler) Label(name string) { a.text.WriteString(name + ":\n") }

// Block returns the instructions as a block, which has registers of its own.
func (a *Assembler) Block() string {
	var w strings.Builder
	w.WriteString("\t{\n")
	a.body(&w)
	w.WriteString("\t}\n")
	return w.String()
}

// Globals returns the tables and functions that the instructions name, for the head
// of their module.
func (a *Assembler) Globals() string {
	text := ""
	for i, it := range a.functions.items { // in their order
		if a.items[i] {
			text += it.text
		}
	}
	return text
}

// body writes the registers' declarations and the instructions.
func (a *Assembler) body(w *strings.Builder) {
	for k, n := range a.counts {
		if n > 0 {
			fmt.Fprintf(w, "\t.reg .%s %s<%d>;\n", kinds[k].dtype, kinds[k].prefix, n)
		}
	}
	w.WriteString(a.text.String())
}

// Version is the PTX that functions take, of CUDA 11.0, and MinDriver the CUDA
// version, as in 11000 for 11.0, that a driver must support for it.
// Instructions that came with compute capability 9.0 need the version of CUDA 11.8, as such devices do.
const (
	Version       = ".version 7.0"
	MinDriver     = 11000
	hopperVersion = ".version 7.8"
)

// Blocks are those that an entry point is for.
type Blocks struct {
	Threads  int // of a block, at most
	Cluster  int // blocks of a cluster; 0: there are none
	Resident int // blocks that a multiprocessor shall have registers for; 0: as many as the assembler chooses
}

// Text returns a module of the one entry point with those parameters, such as
// ".u64 n", for devices from a compute capability on, as in "sm_70".
func (a *Assembler) Text(target, entry string, parameters []string, blocks Blocks) string {
	var w strings.Builder
	version, directives := Version, ""
	if target == "sm_90" {
		version = hopperVersion
	}
	if blocks.Resident > 0 {
		directives = fmt.Sprintf(".minnctapersm %d\n", blocks.Resident)
	}
	if blocks.Cluster > 0 {
		directives += fmt.Sprintf(".explicitcluster\n.reqnctapercluster %d, 1, 1\n", blocks.Cluster)
	}
	w.WriteString(version + "\n.target " + target + "\n.address_size 64\n\n" + a.head.String() + a.Globals())
	fmt.Fprintf(&w, "\n.visible .entry %s(\n\t.param %s\n)\n.maxntid %d, 1, 1\n%s{\n", entry, strings.Join(parameters, ",\n\t.param "), blocks.Threads, directives)
	a.body(&w)
	w.WriteString("\tret;\n}\n")
	return w.String()
}

// Uniform declares registers that many elements are computed with, so that it pays to prepare their
// inverses once: see [quotient].
func (a *Assembler) Uniform(registers ...string) {
	for _, r := range registers {
		a.uniform[r] = true
	}
}

// Again declares that a register has the value that another had: results computed from that one
// are used again for this one.
func (a *Assembler) Again(register, before string) { a.before[register] = before }

// Apply adds the instructions of f for one element of each operand, and returns the
// registers of its outputs. Results computed before from the same registers are
// used again: a register has one value, and is set before Apply.
func (a *Assembler) Apply(f Func, operands []string) []string {
	return a.ApplyLanes(f, [][]string{operands}, "")[0]
}

// ApplyLanes is [Assembler.Apply] for several elements, lanes, side by side. Where exists
// is not "", it is the predicate that the elements matter.
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

// Scope adds the instructions that body adds. Their results are computed again
// after it: body is a loop's, or may be jumped over.
func (a *Assembler) Scope(body func()) {
	before := maps.Clone(a.known)
	body()
	a.known = before
}

// values returns the registers of a graph's nodes by lane, adding the instructions of new
// ones; those that depend on operands not given are "".
func (a *Assembler) values(g *graph, lanes [][]string, exists string) [][]string {
	values, varies, uniform := make([][]string, len(g.nodes)), make([]bool, len(g.nodes)), make([]bool, len(g.nodes))
	for i := range g.nodes {
		n := &g.nodes[i]
		values[i], uniform[i] = make([]string, len(lanes)), true
		for _, v := range n.inputs() {
			varies[i], uniform[i] = varies[i] || varies[v], uniform[i] && uniform[v]
		}
		if n.op == operand {
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
				values[i][lane] = literal(n.dtype, n.value())
			}
		}
		switch {
		case n.op == operand || n.op == constant:
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

// node returns the register of a node's value in a lane, "" if it depends on operands not
// given.
func (a *Assembler) node(g *graph, n *node, values [][]string, lane int, varies []bool) string {
	in, ready := instruction{op: n.op, to: n.dtype}, true
	text := []*string{&in.x, &in.y, &in.z}
	for k, v := range n.inputs() {
		*text[k], in.from = values[v][lane], g.nodes[v].dtype
		ready = ready && values[v][lane] != ""
	}
	if n.op.transcendental() && !varies[n.args[0]] {
		in.x = a.opaque(n.dtype, in.x)
	}
	if !ready {
		return ""
	}
	return a.value(in)
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

// literal returns a number of a floating-point type, all its bits.
func literal(d Dtype, v float64) string {
	if d == Float32 {
		return fmt.Sprintf("0f%08X", math.Float32bits(float32(v)))
	}
	return fmt.Sprintf("0d%016X", math.Float64bits(v))
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

// convert adds a conversion. Integers are rounded to floating-point numbers, and those to
// integers toward 0.
func (a *Assembler) convert(r string, in instruction) {
	if !in.to.IsFloat() {
		a.Line("cvt.rzi.s64.%v %s, %s", in.from, r, in.x)
		return
	}
	switch in.from {
	case Bool:
		a.Line("selp.%v %s, %s, %s, %s", in.to, r, literal(in.to, 1), literal(in.to, 0), in.x)
	case Float32:
		a.Line("cvt.f64.f32 %s, %s", r, in.x)
	case Float64:
		a.Line("cvt.rn.f32.f64 %s, %s", r, in.x)
	default:
		a.Line("cvt.rn.%v.s%s %s, %s", in.to, kinds[in.from.Kind()].dtype[1:], r, in.x)
	}
}

// plain are the operations of one instruction. Sums and products are marked as
// rounded, so that the assembler does not make one of both.
var plain = map[Op]string{Neg: "neg.%v", Abs: "abs.%v", Ceil: "cvt.rpi.%[1]v.%[1]v", Floor: "cvt.rmi.%[1]v.%[1]v", Sqrt: "sqrt.rn.%v",
	Add: "add.rn.%v", Sub: "sub.rn.%v", Mul: "mul.rn.%v", Div: "div.rn.%v"}

// comparison are the conditions of setp. Those but neu are false for a NaN.
var comparison = map[Op]string{Eq: "eq", Ne: "neu", Lt: "lt", Le: "le"}

// instruct adds an operation of one or a few instructions.
func (a *Assembler) instruct(r string, in instruction) {
	d := in.to
	switch {
	case plain[in.op] != "" && in.y == "":
		a.Line(fmt.Sprintf(plain[in.op], d)+" %s, %s", r, in.x)
	case plain[in.op] != "":
		a.Line(fmt.Sprintf(plain[in.op], d)+" %s, %s, %s", r, in.x, in.y)
	case comparison[in.op] != "":
		a.Line("setp.%s.%v %s, %s, %s", comparison[in.op], in.from, r, in.x, in.y)
	case in.op == Select:
		kind := d.String()
		if minus0 := literal(d, math.Copysign(0, -1)); in.y == minus0 || in.z == minus0 {
			// NVIDIA's assembler takes a choice between -0 and a positive constant for a
			// number without a sign, and drops abs of it. Of bits it assumes nothing.
			kind = "b" + kind[1:]
		}
		a.Line("selp.%s %s, %s, %s, %s", kind, r, in.y, in.z, in.x)
	case in.op == Sign:
		p, q, t := a.Register(Pred), a.Register(Pred), a.Register(d.Kind())
		a.Line("setp.lt.%v %s, %s, %s", d, p, in.x, literal(d, 0))
		a.Line("setp.gt.%v %s, %s, %s", d, q, in.x, literal(d, 0))
		a.Line("selp.%v %s, %s, %s, %s", d, t, literal(d, -1), in.x, p)
		a.Line("selp.%v %s, %s, %s, %s", d, r, literal(d, 1), t, q)
	default: // Min and Max, which lose a NaN in PTX
		p, nan, t := a.Register(Pred), a.Register(d.Kind()), a.Register(d.Kind())
		a.Line("setp.nan.%v %s, %s, %s", d, p, in.x, in.y)
		a.Line("add.rn.%v %s, %s, %s", d, nan, in.x, in.y)
		a.Line("%v.%v %s, %s, %s", in.op, d, t, in.x, in.y)
		a.Line("selp.%v %s, %s, %s, %s", d, r, nan, t, p)
	}
}
