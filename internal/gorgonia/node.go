package gorgonia

import (
	"fmt"
	"reflect"
	"sync"

	"gorgonia.org/gorgonia"
)

// SetOp replaces the op of a node and returns a function that restores its own.
func SetOp(n *gorgonia.Node, op gorgonia.Op) (restore func(), err error) {
	f, err := field(reflect.ValueOf(n).Elem(), "op", reflect.Interface)
	if err != nil {
		return nil, err
	}
	own := n.Op()
	f.Set(reflect.ValueOf(op))
	return func() { f.Set(reflect.ValueOf(own)) }, nil
}

// Bind binds a value to a node as Gorgonia's machines do: whatever the node's shape, and leaving
// its gradient as it is.
func Bind(n *gorgonia.Node, v gorgonia.Value) error {
	bound, err := valueField(reflect.ValueOf(n).Elem(), "boundTo")
	if err != nil {
		return err
	}
	if dual := reflect.ValueOf(*bound); dual.Kind() == reflect.Pointer && dual.Elem().Kind() == reflect.Struct && dual.Elem().Type().Name() == "dualValue" {
		if bound, err = valueField(dual.Elem(), "Value"); err != nil {
			return err
		}
	}
	*bound = v
	return nil
}

// valueField returns a field that is a Value. Setting that by reflection compares all methods,
// which takes a microsecond.
func valueField(of reflect.Value, name string) (*gorgonia.Value, error) {
	f, err := field(of, name, reflect.Interface)
	if err != nil {
		return nil, err
	}
	v, ok := f.Addr().Interface().(*gorgonia.Value)
	if !ok {
		return nil, fmt.Errorf("a %v of this version of Gorgonia has a %v %q, want a Value as in v0.9.18", of.Type(), f.Type(), name)
	}
	return v, nil
}

// InputName returns the name that an input was given, "" if it was given none.
func InputName(n *gorgonia.Node) string {
	if name := n.Name(); name != unnamed() {
		return name
	}
	return ""
}

// unnamed is Gorgonia's name for inputs without a name.
var unnamed = sync.OnceValue(func() string { return gorgonia.NewScalar(gorgonia.NewGraph(), gorgonia.Float64).Name() })

// Name returns the name of a node in messages: its own or, if it has none, its op with the
// positions of its inputs in the graph, or an input's type and shape.
func Name(n *gorgonia.Node) string {
	switch {
	case n == nil:
		return "<nil>"
	case n.Op() == nil && InputName(n) == "":
		return fmt.Sprintf("(unnamed, %v of shape %v)", n.Type(), n.Shape())
	}
	return n.Name()
}
