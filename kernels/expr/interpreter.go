package expr

import (
	"fmt"
	"sync"
	"unsafe"
)

// BlockSize is the best number of elements for an [Interpreter] at a time: enough to hide its
// overhead, few enough that the values between operations stay in the first-level cache.
const BlockSize = 512

// Interpreter is the Go body of a function: it runs one operation after the other on blocks of elements. It is safe for several goroutines.
type Interpreter struct {
	operands, outputs []Dtype
	instrs            []instr
	buffers           int // of values between operations
	constants         []node
	pool              sync.Pool // of *workspace
}

// instr is an operation on blocks, which it refers to by number: first the operands, then the outputs, the constants, and buffers.
type instr struct {
	op   Op
	from Dtype // of the last argument
	to   Dtype
	out  int
	args [3]int
}

// copyBlock is an instruction without a node: for an output that is an operand, a constant or another output.
const copyBlock = opCount

// workspace is the memory of one goroutine.
type workspace struct {
	blocks []unsafe.Pointer
	memory []uint64 // of constants and buffers, BlockSize elements each
}

// NewInterpreter returns the Go body of a function.
func NewInterpreter(f Func) *Interpreter {
	g := f.graph()
	in := &Interpreter{operands: g.operands, outputs: f.Outputs()}
	c := compiler{Interpreter: in, graph: g, blocks: make([]int, len(g.nodes)), last: make([]int, len(g.nodes))}
	c.compile()
	in.pool.New = func() any { return in.workspace(c.constantBlock(0)) }
	return in
}

// A compiler assigns blocks to the values of a graph: each value has its own while it is in use.
type compiler struct {
	*Interpreter
	*graph
	blocks []int // of a node's value
	last   []int // node that uses a node's value
	free   []int // buffers
}

func (c *compiler) constantBlock(i int) int {
	return len(c.graph.operands) + len(c.graph.outputs) + i
}

func (c *compiler) compile() {
	outputs := map[Value]int{} // by node, the first of its outputs
	for i := len(c.graph.outputs) - 1; i >= 0; i-- {
		outputs[c.graph.outputs[i]] = i
	}
	for i, n := range c.nodes {
		if n.op == constant {
			c.blocks[i] = c.constantBlock(len(c.constants))
			c.constants = append(c.constants, n)
		}
		for _, a := range n.inputs() {
			c.last[a] = i
		}
	}
	for i := range c.nodes {
		n := &c.nodes[i]
		switch n.op {
		case operand:
			c.blocks[i] = int(n.bits)
		case constant:
		default:
			in := instr{op: n.op, to: n.dtype}
			for k, a := range n.inputs() {
				in.args[k], in.from = c.blocks[a], c.nodes[a].dtype
				if in.from.Size() == n.dtype.Size() { // the result may be written in place
					c.release(a, i)
				}
			}
			if n.op.Arity() == 1 { // the Go body of a unary operation must not read a second block
				in.args[1] = in.args[0]
			}
			if k, ok := outputs[Value(i)]; ok {
				in.out = len(c.graph.operands) + k
			} else {
				in.out = c.buffer()
			}
			c.blocks[i] = in.out
			for _, a := range n.inputs() {
				c.release(a, i)
			}
			c.instrs = append(c.instrs, in)
		}
	}
	for k, v := range c.graph.outputs {
		if out := len(c.graph.operands) + k; c.blocks[v] != out {
			d := c.nodes[v].dtype
			c.instrs = append(c.instrs, instr{op: copyBlock, from: d, to: d, out: out, args: [3]int{c.blocks[v]}})
		}
	}
}

// release frees the buffer of a value that node i is the last to use.
func (c *compiler) release(v Value, i int) {
	first := c.constantBlock(len(c.constants))
	if b := c.blocks[v]; c.last[v] == i && b >= first {
		c.last[v] = -1 // once, also where i uses it twice
		c.free = append(c.free, b)
	}
}

// buffer returns a block that is free.
func (c *compiler) buffer() int {
	if n := len(c.free); n > 0 {
		b := c.free[n-1]
		c.free = c.free[:n-1]
		return b
	}
	c.buffers++
	return c.constantBlock(len(c.constants) + c.buffers - 1)
}

// workspace returns memory whose constants, from block first on, are filled in.
func (in *Interpreter) workspace(first int) *workspace {
	own := len(in.constants) + in.buffers
	w := &workspace{make([]unsafe.Pointer, first+own), make([]uint64, own*BlockSize)}
	for i := range own {
		w.blocks[first+i] = unsafe.Pointer(&w.memory[i*BlockSize])
	}
	for i, n := range in.constants {
		switch at := w.blocks[first+i]; n.dtype.fixed() {
		case Float32:
			fill(block[float32](at, BlockSize), float32(n.value()))
		case Float64:
			fill(block[float64](at, BlockSize), n.value())
		case Uint8:
			fill(block[uint8](at, BlockSize), uint8(n.integer()))
		case Int32:
			fill(block[int32](at, BlockSize), int32(n.integer()))
		case Int64:
			fill(block[int64](at, BlockSize), n.integer())
		}
	}
	return w
}

func fill[T any](s []T, v T) {
	for i := range s {
		s[i] = v
	}
}

// block views memory as n elements.
func block[T any](p unsafe.Pointer, n int) []T { return unsafe.Slice((*T)(p), n) }

// Run evaluates the function on n elements, at most [BlockSize], of each operand into each output, all given by the memory they start in. An output
// may be an operand's memory if it is the only one and of elements of that size.
func (in *Interpreter) Run(n int, operands, outputs []unsafe.Pointer) error {
	if n < 0 || n > BlockSize || len(operands) != len(in.operands) || len(outputs) != len(in.outputs) {
		return fmt.Errorf("expr: got %d elements of %d operands and %d outputs, want at most %d of %d and %d",
			n, len(operands), len(outputs), BlockSize, len(in.operands), len(in.outputs))
	}
	w := in.pool.Get().(*workspace)
	copy(w.blocks, operands)
	copy(w.blocks[len(operands):], outputs)
	for i := range in.instrs {
		in.instrs[i].run(w.blocks, n)
	}
	clear(w.blocks[:len(operands)+len(outputs)]) // the pool keeps no one's memory
	in.pool.Put(w)
	return nil
}

func (i *instr) run(blocks []unsafe.Pointer, n int) {
	out, x, y, z := blocks[i.out], blocks[i.args[0]], blocks[i.args[1]], blocks[i.args[2]]
	switch size := int(i.to.Size()); {
	case i.op == copyBlock:
		copy(block[byte](out, n*size), block[byte](x, n*size))
	case i.op == Select && size == 1:
		selectBlock(block[uint8](out, n), block[bool](x, n), block[uint8](y, n), block[uint8](z, n))
	case i.op == Select && size == 4:
		selectBlock(block[uint32](out, n), block[bool](x, n), block[uint32](y, n), block[uint32](z, n))
	case i.op == Select:
		selectBlock(block[uint64](out, n), block[bool](x, n), block[uint64](y, n), block[uint64](z, n))
	case i.op == convert && i.from == BF16:
		mapBlock(block[float32](out, n), block[uint16](x, n), fromBF16)
	case i.op == convert && i.from == F16:
		mapBlock(block[float32](out, n), block[uint16](x, n), fromF16)
	case i.from == Bool && i.op != convert:
		logicBlock(i.op, block[bool](out, n), block[bool](x, n), block[bool](y, n))
	default:
		switch i.from.fixed() {
		case Float32:
			runOn(i, n, out, x, y, floatBlock[float32])
		case Float64:
			runOn(i, n, out, x, y, floatBlock[float64])
		case Uint8, Bool:
			runOn(i, n, out, x, y, integerBlock[uint8])
		case Int32:
			runOn(i, n, out, x, y, integerBlock[int32])
		case Int64:
			runOn(i, n, out, x, y, integerBlock[int64])
		}
	}
}

// runOn runs an operation on elements of type T.
func runOn[T float | integer](i *instr, n int, out, x, y unsafe.Pointer, operate func(op Op, out, x, y []T)) {
	switch {
	case i.op == convert:
		convertFrom[T](i.to, n, out, x)
	case i.op.compares():
		compareBlock(i.op, block[bool](out, n), block[T](x, n), block[T](y, n))
	default:
		operate(i.op, block[T](out, n), block[T](x, n), block[T](y, n))
	}
}
