package notebook

import (
	"fmt"

	"gorgonia.org/gorgonia"
)

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
