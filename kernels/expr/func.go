package expr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Func is an element-wise function of operands with one or more outputs: a graph in which equal subexpressions are one node. Two Funcs are == if and
// only if their graphs are equal. The zero Func has no operands and no outputs.
type Func struct {
	code string // graph.encode
}

// Value is a node of a [Builder].
type Value int32

// node is an operation on earlier nodes.
type node struct {
	op    Op
	dtype Dtype
	args  [3]Value
	bits  uint64 // the number of an operand or of a constant taken out, a constant as float64 or int64
}

// value returns a constant of a floating-point type, and integer one of an integer type.
func (n *node) value() float64 { return math.Float64frombits(n.bits) }
func (n *node) integer() int64 { return int64(n.bits) }

// inputs returns the arguments.
func (n *node) inputs() []Value { return n.args[:n.op.Arity()] }

// graph is a decoded Func. Its nodes are in topological order: each node follows the nodes that it uses.
type graph struct {
	operands []Dtype
	nodes    []node
	outputs  []Value
}

// nodeBytes is the size of a node in a Func's code.
const nodeBytes = 2 + 3*2 + 8

// maxNodes is the most nodes of a function: their numbers take two bytes.
const maxNodes = 1 << 16

// encode writes a graph: counts of operands, nodes and outputs, then each.
func (g *graph) encode() Func {
	le := binary.LittleEndian
	code := make([]byte, 0, 6+len(g.operands)+len(g.nodes)*nodeBytes+2*len(g.outputs))
	for _, n := range []int{len(g.operands), len(g.nodes), len(g.outputs)} {
		code = le.AppendUint16(code, uint16(n))
	}
	for _, d := range g.operands {
		code = append(code, byte(d))
	}
	for _, n := range g.nodes {
		code = append(code, byte(n.op), byte(n.dtype))
		for _, a := range n.args {
			code = le.AppendUint16(code, uint16(a))
		}
		code = le.AppendUint64(code, n.bits)
	}
	for _, v := range g.outputs {
		code = le.AppendUint16(code, uint16(v))
	}
	return Func{string(code)}
}

// graph decodes the function.
func (f Func) graph() *graph {
	if f.code == "" {
		return &graph{}
	}
	le, code := binary.LittleEndian, []byte(f.code)
	take := func() int {
		n := le.Uint16(code)
		code = code[2:]
		return int(n)
	}
	g := &graph{make([]Dtype, take()), make([]node, take()), make([]Value, take())}
	for i := range g.operands {
		g.operands[i] = Dtype(code[i])
	}
	code = code[len(g.operands):]
	for i := range g.nodes {
		n := &g.nodes[i]
		n.op, n.dtype = Op(code[0]), Dtype(code[1])
		for a := range n.args {
			n.args[a] = Value(le.Uint16(code[2+2*a:]))
		}
		n.bits = le.Uint64(code[8:])
		code = code[nodeBytes:]
	}
	for i := range g.outputs {
		g.outputs[i] = Value(take())
	}
	return g
}

// Operands returns the element types of the operands.
func (f Func) Operands() []Dtype { return f.graph().operands }

// Outputs returns the element types of the outputs.
func (f Func) Outputs() []Dtype {
	g := f.graph()
	list := make([]Dtype, len(g.outputs))
	for i, v := range g.outputs {
		list[i] = g.nodes[v].dtype
	}
	return list
}

// Operations returns the number of operations on each element, conversions left out.
func (f Func) Operations() int {
	n := 0
	for _, node := range f.graph().nodes {
		if node.op > convert {
			n++
		}
	}
	return n
}

// Identity returns the function of one operand that is the operand.
func Identity(d Dtype) (Func, error) {
	b := NewBuilder(d)
	return b.Func(b.Operand(0))
}

// Trim returns the function without the operands that it does not depend on, and the numbers of those that it keeps.
func (f Func) Trim() (Func, []int) {
	g := f.graph()
	var kept []int
	var types []Dtype
	number := make([]uint64, len(g.operands))
	for k, d := range g.operands {
		used := func(n node) bool { return n.op == operand && n.bits == uint64(k) }
		if slices.ContainsFunc(g.nodes, used) {
			number[k] = uint64(len(kept))
			kept, types = append(kept, k), append(types, d)
		}
	}
	for i := range g.nodes {
		if n := &g.nodes[i]; n.op == operand {
			n.bits = number[n.bits]
		}
	}
	g.operands = types
	return g.encode(), kept
}

// Builder makes a [Func]. Values that are computed alike are one Value. After the first error
// further calls return meaningless values, and [Builder.Func] returns the error.
type Builder struct {
	operands []Dtype
	nodes    []node
	index    map[node]Value
	err      error
}

// NewBuilder returns a builder of a function of operands of those element types.
func NewBuilder(operands ...Dtype) *Builder {
	b := &Builder{operands: operands, index: map[node]Value{}}
	for _, d := range operands {
		if d >= dtypeCount {
			b.fail("got element type %d of an operand, want one of this package's", d)
		}
	}
	if len(operands) >= maxNodes {
		b.fail("got %d operands, want fewer than %d", len(operands), maxNodes)
	}
	return b
}

func (b *Builder) fail(format string, args ...any) Value {
	if b.err == nil {
		b.err = fmt.Errorf("expr: "+format, args...)
	}
	return -1
}

// add returns the value of a node, which is new or known.
func (b *Builder) add(n node) Value {
	if b.err != nil {
		return -1
	}
	v, known := b.index[n]
	if !known {
		if len(b.nodes) == maxNodes {
			return b.fail("got more than %d operations", maxNodes)
		}
		v = Value(len(b.nodes))
		b.nodes = append(b.nodes, n)
		b.index[n] = v
	}
	return v
}

// dtype returns the element type of a value, false if there is none.
func (b *Builder) dtype(v Value) (Dtype, bool) {
	if b.err != nil {
		return 0, false
	}
	if v < 0 || int(v) >= len(b.nodes) {
		b.fail("got value %d, want one that this builder has returned", v)
		return 0, false
	}
	return b.nodes[v].dtype, true
}

// Operand returns operand i.
func (b *Builder) Operand(i int) Value {
	if i < 0 || i >= len(b.operands) {
		return b.fail("got operand %d, want one of %d", i, len(b.operands))
	}
	return b.add(node{op: operand, dtype: b.operands[i], bits: uint64(i)})
}

// Inputs returns all operands.
func (b *Builder) Inputs() []Value {
	list := make([]Value, len(b.operands))
	for i := range list {
		list[i] = b.Operand(i)
	}
	return list
}

// Integer returns an integer of type d, wrapped to its range.
func (b *Builder) Integer(d Dtype, v int64) Value {
	if !d.IsInteger() {
		return b.fail("got an integer constant of %v, want an integer type", d)
	}
	return b.add(node{op: constant, dtype: d, bits: uint64(d.wrap(v))})
}

// Constant returns a number converted to d, as by [Builder.Convert]: rounded to Float32 or Float64, or an integer.
func (b *Builder) Constant(d Dtype, v float64) Value {
	if d.IsInteger() {
		return b.Integer(d, truncate(v, d))
	}
	if !d.IsFloat() {
		return b.fail("got a constant of %v, want one of a number type", d)
	}
	if d == Float32 {
		v = float64(float32(v))
	}
	if math.IsNaN(v) {
		v = math.NaN() // one of the many
	}
	return b.add(node{op: constant, dtype: d, bits: math.Float64bits(v)})
}

// Convert returns x as an element of d. BF16 and F16 are converted from and to Float32 alone. The package's documentation
// describes conversions to integers and Bool.
func (b *Builder) Convert(x Value, d Dtype) Value {
	from, ok := b.dtype(x)
	switch {
	case !ok:
		return -1
	case from == d:
		return x
	case from.isHalf() && d != Float32, d.isHalf() && from != Float32:
		return b.fail("got a conversion of %v to %v, want one from or to f32", from, d)
	case d == Bool:
		return b.Apply(Ne, x, b.Constant(from, 0))
	case b.nodes[x].op == constant && from.IsFloat() && !d.isHalf(): // conversions of numbers are exact or rounded once
		return b.Constant(d, b.nodes[x].value())
	case b.nodes[x].op == constant && d.IsInteger():
		return b.Integer(d, b.nodes[x].integer())
	case b.nodes[x].op == constant && d == Float32:
		return b.Constant(d, float64(float32(b.nodes[x].integer())))
	case b.nodes[x].op == constant && d == Float64:
		return b.Constant(d, float64(b.nodes[x].integer()))
	}
	return b.add(node{op: convert, dtype: d, args: [3]Value{x}})
}

// Apply returns an operation on values. Its arguments are of one type, Float32 or Float64, which is the result's too; comparisons return a Bool, and
// the first argument of Select is one. Neg, Abs, Add, Sub, Mul, Min, Max, Square, Cube, comparisons, Select and reductions also take integers, of
// which RowSum is an Int64; And, Or, Not, Eq, Ne, Select and RowSum take Bool.
func (b *Builder) Apply(op Op, args ...Value) Value {
	if op <= convert || op >= opCount {
		return b.fail("got operation %d, want one of this package's", op)
	}
	if len(args) != op.Arity() {
		return b.fail("got %d arguments for %v, want %d", len(args), op, op.Arity())
	}
	numbers := args
	if op == Select {
		if d, ok := b.dtype(args[0]); ok && d != Bool {
			b.fail("got a condition of %v for select, want bool", d)
		}
		numbers = args[1:]
	}
	d, _ := b.dtype(numbers[0])
	for _, a := range numbers {
		if t, ok := b.dtype(a); ok && (t != d || !op.takes(t)) {
			b.fail("got arguments of %v and %v for %v, want both of one type that it takes", d, t, op)
		}
	}
	if b.err != nil {
		return -1
	}
	return b.reduce(op, d, args)
}

// reduce adds an operation, replaced by fewer kinds of operations if these compute the same bits.
func (b *Builder) reduce(op Op, d Dtype, args []Value) Value {
	switch op {
	case Neg:
		if x := &b.nodes[args[0]]; x.op == constant && d.IsInteger() {
			return b.Integer(d, -x.integer())
		} else if x.op == constant {
			return b.Constant(d, -x.value())
		}
	case Mul:
		for i, a := range args {
			if b.isOne(a) {
				return args[1-i]
			}
		}
	case Div:
		if b.isOne(args[1]) {
			return args[0]
		}
	case Gt:
		op, args = Lt, []Value{args[1], args[0]}
	case Ge:
		op, args = Le, []Value{args[1], args[0]}
	case Square:
		op, args = Mul, []Value{args[0], args[0]}
	case Cube:
		op, args = Mul, []Value{b.Apply(Mul, args[0], args[0]), args[0]}
	case Inverse:
		op, args = Div, []Value{b.Constant(d, 1), args[0]}
	case InverseSqrt:
		op, args = Div, []Value{b.Constant(d, 1), b.Apply(Sqrt, args[0])}
	case Eq:
		if d == Bool {
			return b.Apply(Not, b.Apply(Ne, args...))
		}
	case Select:
		if d == Bool {
			return b.Apply(Or, b.Apply(And, args[0], args[1]), b.Apply(And, b.Apply(Not, args[0]), args[2]))
		}
	case RowSum:
		if !d.IsFloat() {
			d, args = Int64, []Value{b.Convert(args[0], Int64)}
		}
	}
	if op.compares() {
		d = Bool
	}
	n := node{op: op, dtype: d}
	copy(n.args[:], args)
	return b.add(n)
}

// isOne reports whether a value is the constant 1.
func (b *Builder) isOne(v Value) bool {
	n := &b.nodes[v]
	return n.op == constant && (n.dtype.IsFloat() && n.value() == 1 || n.dtype.IsInteger() && n.integer() == 1)
}

// Inline returns the outputs of f for the given operands, which have the types of its own: f becomes a part of the function that is being built.
func (b *Builder) Inline(f Func, operands ...Value) []Value {
	g := f.graph()
	outputs := make([]Value, len(g.outputs))
	if len(operands) != len(g.operands) {
		b.fail("got %d operands for %v, want %d", len(operands), f, len(g.operands))
	}
	for i, v := range operands {
		if d, ok := b.dtype(v); ok && d != g.operands[i] {
			b.fail("got operand %d of %v for %v, want %v", i, d, f, g.operands[i])
		}
	}
	if b.err != nil {
		return outputs
	}
	here := b.values(g, operands)
	for i, v := range g.outputs {
		outputs[i] = here[v]
	}
	return outputs
}

// values adds the nodes of g, applied to the given operands, and returns their values.
func (b *Builder) values(g *graph, operands []Value) []Value {
	here := make([]Value, len(g.nodes))
	for i, n := range g.nodes {
		args := make([]Value, n.op.Arity())
		for a, v := range n.inputs() {
			args[a] = here[v]
		}
		switch n.op {
		case operand:
			here[i] = operands[n.bits]
		case constant:
			here[i] = b.add(n)
		case convert: // of a number, perhaps, by now
			here[i] = b.Convert(args[0], n.dtype)
		default:
			here[i] = b.Apply(n.op, args...)
		}
	}
	return here
}

// Func returns the function with those outputs, at least one. It returns the first error of the calls before it. The builder can go on to be used.
func (b *Builder) Func(outputs ...Value) (Func, error) {
	for _, v := range outputs {
		b.dtype(v)
	}
	if b.err == nil && len(outputs) == 0 {
		return Func{}, errors.New("expr: got no outputs, want at least one")
	}
	if b.err != nil {
		return Func{}, b.err
	}
	g := &graph{operands: b.operands, outputs: make([]Value, len(outputs))}
	there := make([]Value, len(b.nodes)) // of a node of b in g, from 1
	for i, v := range outputs {
		g.outputs[i] = b.visit(g, there, v)
	}
	return g.encode(), nil
}

// visit appends a node to g after those that it uses, so that the order depends on the graph alone.
func (b *Builder) visit(g *graph, there []Value, v Value) Value {
	if there[v] == 0 {
		n := b.nodes[v]
		for i, a := range n.inputs() {
			n.args[i] = b.visit(g, there, a)
		}
		g.nodes = append(g.nodes, n)
		there[v] = Value(len(g.nodes))
	}
	return there[v] - 1
}
