package gorgonia

import (
	"reflect"

	"gorgonia.org/gorgonia"
)

// Children returns the inputs of a node in order, as Gorgonia's own machine reads
// them. The graph's index (From) goes stale when Gorgonia removes a node.
func Children(n *gorgonia.Node) (gorgonia.Nodes, error) {
	f, err := field(reflect.ValueOf(n).Elem(), "children", reflect.Slice)
	if err != nil {
		return nil, err
	}
	return f.Interface().(gorgonia.Nodes), nil
}

// SetOp gives a node another op and returns what gives it its own back.
func SetOp(n *gorgonia.Node, op gorgonia.Op) (restore func(), err error) {
	f, err := field(reflect.ValueOf(n).Elem(), "op", reflect.Interface)
	if err != nil {
		return nil, err
	}
	own := n.Op()
	f.Set(reflect.ValueOf(op))
	return func() { f.Set(reflect.ValueOf(own)) }, nil
}
