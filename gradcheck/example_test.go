package gradcheck_test

import (
	"fmt"

	"github.com/stheno-ml/stheno/gradcheck"
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
