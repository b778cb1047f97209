package gorgonia

import (
	"fmt"
	"reflect"

	"gorgonia.org/gorgonia"
)

// Children returns the inputs of a node in order, as Gorgonia's own machine reads
// them. The graph's index (From) goes stale when Gorgonia removes a node.
func Children(n *gorgonia.Node) (gorgonia.Nodes, error) {
	f := reflect.ValueOf(n).Elem().FieldByName("children")
	if !f.IsValid() || f.Type() != reflect.TypeFor[gorgonia.Nodes]() {
		return nil, fmt.Errorf("this version of Gorgonia keeps the children of a node elsewhere")
	}
	return *(*gorgonia.Nodes)(f.Addr().UnsafePointer()), nil
}
