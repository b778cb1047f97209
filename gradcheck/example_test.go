package gradcheck_test

import (
	"fmt"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/gradcheck"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The gradients of tanh(w x + b) by w, x and b.
func ExampleCheck() {
	layer := func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
		w, x, b := in[0], in[1], in[2]
		wx, err := gorgonia.Mul(w, x)
		if err != nil {
			return nil, err
		}
		y, err := ops.Add(wx, b)
		if err != nil {
			return nil, err
		}
		return gorgonia.Tanh(y)
	}
	inputs, err := gradcheck.Random(1, tensor.Float32, tensor.Shape{4, 3}, tensor.Shape{3}, tensor.Shape{4})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(gradcheck.Check(layer, inputs))
	// Output: <nil>
}

// The price of a precision of products: the largest error of the gradients of two layers.
func ExampleLargest() {
	layers := func(in ...*gorgonia.Node) (*gorgonia.Node, error) {
		hidden, err := gorgonia.Mul(in[0], in[1])
		if err == nil {
			hidden, err = gorgonia.Tanh(hidden)
		}
		if err != nil {
			return nil, err
		}
		return gorgonia.Mul(hidden, in[2])
	}
	inputs, err := gradcheck.Random(1, tensor.Float32, tensor.Shape{8, 16}, tensor.Shape{16, 12}, tensor.Shape{12, 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, by := range []kernels.Precision{cudaops.FullPrecision, cudaops.TF32, cudaops.BF16} {
		machine := func(g *gorgonia.ExprGraph) (gorgonia.VM, error) {
			return cudaops.NewVM(g, cudaops.OnHost(), cudaops.Precision(by))
		}
		var largest float64
		err := gradcheck.Check(layers, inputs, gradcheck.Machine(machine), gradcheck.Modes(gradcheck.SymDiff), gradcheck.Tolerance(0.1, 0.1), gradcheck.Seed(1), gradcheck.Largest(&largest))
		fmt.Printf("%v: %v, %.1g\n", by, err, max(largest, 1e-6))
	}
	// Output:
	// float32: <nil>, 1e-06
	// TF32: <nil>, 0.002
	// BF16: <nil>, 0.009
}
