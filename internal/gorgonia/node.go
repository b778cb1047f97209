package gorgonia

import (
	"fmt"
	"reflect"
	"strings"
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

// Let is [gorgonia.Let]. Its error for a value of another element type has the two types, where Gorgonia's has all elements.
func Let(n *gorgonia.Node, value any) error {
	if v, ok := value.(gorgonia.Value); ok && v.Shape().Eq(n.Shape()) {
		if want, _ := ElementType(n); v.Dtype() != want {
			return fmt.Errorf("got elements of %v, want %v", v.Dtype().Type, want)
		}
	}
	return gorgonia.Let(n, value)
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

// Name returns the name of a node in messages: the one that it was given or, if it has none, its op with the names of its inputs, or
// an input's type and shape.
func Name(n *gorgonia.Node) string { return nameTo(n, 2) }

// nameTo is Name with so many ops without names in each other. The inputs of the last one are their positions in the graph.
func nameTo(n *gorgonia.Node, depth int) string {
	switch {
	case n == nil:
		return "<nil>"
	case n.Op() == nil && InputName(n) == "":
		return fmt.Sprintf("(unnamed, %v of shape %v)", n.Type(), n.Shape())
	}
	children, err := Children(n)
	if err != nil || n.Op() == nil || IsNamed(n) {
		return n.Name()
	}
	inputs := make([]string, len(children))
	for i, c := range children {
		if inputs[i] = fmt.Sprintf("%%%x", c.ID()); depth > 1 || IsNamed(c) {
			inputs[i] = nameTo(c, depth-1)
		}
	}
	return fmt.Sprintf("%v(%s)", n.Op(), strings.Join(inputs, ", "))
}

// IsNamed reports whether a node was given a name; inputs and constants count as named.
func IsNamed(n *gorgonia.Node) bool {
	given, err := field(reflect.ValueOf(n).Elem(), "name", reflect.String)
	return err != nil || n.Op() == nil || given.String() != ""
}
