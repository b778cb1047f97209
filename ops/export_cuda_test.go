//go:build cuda

package ops

import "gorgonia.org/gorgonia"

// OnDevice returns the form of an op that Gorgonia's machines run on a device, and
// the types of its inputs and output.
func OnDevice(op gorgonia.Op) (onDevice gorgonia.Op, in []Type, out Type) {
	o, ok := op.(*Op)
	if !ok { // there is a device
		o = op.(cudaOp).Op
	}
	return cudaOp{o}, o.in, o.out
}
