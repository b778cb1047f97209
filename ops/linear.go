package ops

import (
	"fmt"

	"gorgonia.org/gorgonia"
)

// Linear multiplies the last axis of x, of any rank, by a matrix and adds a bias, as PyTorch's nn.Linear:
//
//	out[..., o] = b[o] + sum over i of x[..., i] * w[o, i]
//
// w is (out, in) and b is (out), or nil for none.
func Linear(x, w, b *gorgonia.Node) (*gorgonia.Node, error) {
	inputs := []*gorgonia.Node{x, w}
	if b != nil {
		inputs = append(inputs, b)
	}
	inputs, types, err := floatsOf(inputs...)
	if err != nil {
		return nil, fmt.Errorf("ops: Linear: %w", err)
	}
	shape, matrix := types[0].Shape, types[1].Shape
	last := len(shape) - 1
	if last < 0 || len(matrix) != 2 || shape[last] != matrix[1] {
		return nil, fmt.Errorf("ops: Linear: got x of shape %v and w of shape %v, want x (..., in) and w (out, in)", shape, matrix)
	}
	if b != nil && !sameShape(types[2].Shape, matrix[:1]) {
		return nil, fmt.Errorf("ops: Linear: got b of shape %v and w of shape %v, want b (out) and w (out, in)", types[2].Shape, matrix)
	}
	var out *gorgonia.Node
	if last == 0 {
		out, err = MatMul(inputs[1], inputs[0])
	} else {
		out, err = MatMul(inputs[0], inputs[1], TransB())
	}
	if err == nil && b != nil {
		out, err = Map("a + b", out, inputs[2])
	}
	if err != nil {
		return nil, fmt.Errorf("ops: Linear: %w", err)
	}
	return out, nil
}
