package notebook

import (
	"fmt"
	"math/rand/v2"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Fill binds float32 values to a node: f(i) is element i.
func Fill(n *gorgonia.Node, f func(i int) float64) error {
	values := make([]float32, n.Shape().TotalSize())
	for i := range values {
		values[i] = float32(f(i))
	}
	return gorgonia.Let(n, tensor.New(tensor.WithShape(n.Shape()...), tensor.WithBacking(values)))
}

// Draw binds values from a normal distribution around 0, or zeros for a deviation of 0, such as those
// of biases.
func Draw(n *gorgonia.Node, r *rand.Rand, deviation float64) error {
	return Fill(n, func(int) float64 {
		if deviation == 0 {
			return 0
		}
		return r.NormFloat64() * deviation
	})
}

// Share binds the values of nodes to others of the same shapes, such as the parameters of a
// network that trains to those of one that is tested, in the same order.
func Share(to, from gorgonia.Nodes) error {
	if len(to) != len(from) {
		return fmt.Errorf("got %d nodes to bind %d values to, want as many", len(to), len(from))
	}
	for i, n := range to {
		if err := gorgonia.Let(n, from[i].Value()); err != nil {
			return err
		}
	}
	return nil
}
