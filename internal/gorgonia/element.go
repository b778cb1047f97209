package gorgonia

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// ElementType returns the type of the elements of a node's value, the zero Dtype for a
// tensor of another type than a Dtype; ok is false for a node that is neither scalar nor tensor.
func ElementType(n *gorgonia.Node) (of tensor.Dtype, ok bool) {
	switch t := n.Type().(type) {
	case tensor.Dtype:
		return t, true
	case gorgonia.TensorType:
		of, _ = t.Of.(tensor.Dtype)
		return of, true
	}
	return of, false
}
