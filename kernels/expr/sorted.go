package expr

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// Sorted returns the function with the arguments of each sum and product in an order
// that follows from what they are. So it is the same for functions that differ in that
// order alone, which give the same bits but for the sign and the payload of NaN.
func (f Func) Sorted() Func {
	g := f.graph()
	digests := make([][sha256.Size]byte, len(g.nodes)) // of a node with all that it is computed from
	for i := range g.nodes {
		n := &g.nodes[i]
		args := n.inputs()
		if n.op == Add || n.op == Mul {
			slices.SortFunc(args, func(a, b Value) int { return bytes.Compare(digests[a][:], digests[b][:]) })
		}
		code := binary.LittleEndian.AppendUint64([]byte{byte(n.op), byte(n.dtype)}, n.bits)
		for _, a := range args {
			code = append(code, digests[a][:]...)
		}
		digests[i] = sha256.Sum256(code)
	}
	b := NewBuilder(g.operands...)
	operands := make([]Value, len(g.operands))
	for i := range operands {
		operands[i] = b.Operand(i)
	}
	here := b.values(g, operands)
	outputs := make([]Value, len(g.outputs))
	for i, v := range g.outputs {
		outputs[i] = here[v]
	}
	sorted, err := b.Func(outputs...)
	if err != nil { // of the zero Func, which has no outputs
		return f
	}
	return sorted
}
