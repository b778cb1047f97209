package expr

import (
	"fmt"
	"slices"
)

// RowGradient returns the derivative of a loss by one operand of a function with reductions and one output. perRow reports whether
// a row has one element of the output, and rows, for each operand, whether all elements of a row read the same one. The
// derivative is a function of the operands, then of the derivative of the loss by the output. If all elements of a row read the same
// element of the operand, a row has one element of the derivative.
//
// RowMax and RowMin share the derivative equally among the elements that are equal to the result. If that is NaN, no element is equal
// to it, and the derivative of the row is NaN. [Func.Gradient] has the derivatives of the other operations.
func (f Func) RowGradient(of int, perRow bool, rows []bool) (Func, error) {
	g := f.graph()
	if of < 0 || of >= len(g.operands) || len(rows) != len(g.operands) || len(g.outputs) != 1 {
		return Func{}, fmt.Errorf("expr: got operand %d, %d flags and %d outputs for the gradient of %v, want an operand, a flag for each and one output", of, len(rows), len(g.outputs), f)
	}
	d := rowDiffer{differ: newDiffer(f)}
	d.ofElements, d.ofRows = d.adjoints, slices.Clone(d.adjoints)
	b, seed := d.Builder, d.ofElements
	if perRow {
		seed = d.ofRows
	}
	seed[g.outputs[0]].of = b.Operand(len(g.operands))
	result := b.Constant(g.operands[of], 0)
	for i := len(g.nodes) - 1; i >= 0; i-- {
		n := &g.nodes[i]
		switch {
		case !n.dtype.IsFloat():
		case n.op.reduces():
			d.reduce(n, Value(i))
		case n.op == operand && n.bits == uint64(of) && rows[of]:
			if v := d.whole(Value(i)); v != none {
				result = v
			}
		case n.op == operand && n.bits == uint64(of) && d.ofElements[i].of != none:
			result = d.value(d.ofElements[i])
		default:
			for _, part := range [][]adjoint{d.ofElements, d.ofRows} {
				if d.adjoints = part; part[i].of != none {
					d.back(n, d.here[i], part[i])
				}
			}
		}
	}
	return b.Func(result)
}

// rowDiffer goes backward through a function with reductions. The derivative by a value is the sum of two parts: of the uses of the
// value by each element of a row, and of its uses by the row as a whole.
type rowDiffer struct {
	differ
	ofElements, ofRows []adjoint
}

// whole returns the derivative by a value that is the same for all elements of a row, or none.
func (d *rowDiffer) whole(v Value) Value {
	sum := none
	if r := d.ofRows[v]; r.of != none {
		sum = d.value(r)
	}
	if e := d.ofElements[v]; e.of != none {
		total := d.Apply(RowSum, d.value(e))
		if sum == none {
			return total
		}
		sum = d.Apply(Add, sum, total)
	}
	return sum
}

// reduce adds the derivative by the argument of a reduction.
func (d *rowDiffer) reduce(n *node, v Value) {
	dy := d.whole(v)
	if dy == none {
		return
	}
	if n.op != RowSum {
		equal := d.Convert(d.Apply(Eq, d.here[n.args[0]], d.here[v]), n.dtype)
		dy = d.Apply(Mul, d.Apply(Div, dy, d.Apply(RowSum, equal)), equal)
	}
	d.adjoints = d.ofElements
	d.add(n.args[0], adjoint{dy, none})
}
