package gorgonia

import (
	"reflect"

	"gorgonia.org/gorgonia"
)

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
