package cudaops

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/guard"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Let binds a value to an input of the VM's graph, as [gorgonia.Let] does, for the next
// run. A slice has the elements of a tensor of the input's shape, in row-major order. For an input of [Split] on several ranks the value has the rows of
// all ranks, which gorgonia.Let refuses.
func (vm *VM) Let(n *gorgonia.Node, value any) error {
	if err := vm.has("Let", n); err != nil {
		return err
	}
	shape := vm.RunShape(n)
	value, err := shaped(shape, value)
	if err != nil {
		return fmt.Errorf("cudaops: Let: node %s: %w", internal.Name(n), err)
	}
	let := func() error { return internal.Let(n, value) }
	if v, ok := value.(gorgonia.Value); ok && !shape.Eq(n.Shape()) {
		let = func() error { return vm.letRows(n, v, shape) }
	}
	return failure("cudaops: Let: node "+internal.Name(n), guard.Recover("gorgonia.Let", let))
}

// shaped returns a slice as a tensor of a shape, and other values as they are.
func shaped(shape tensor.Shape, value any) (any, error) {
	of := reflect.TypeOf(value)
	if of == nil || of.Kind() != reflect.Slice || of.Name() != "" {
		return value, nil
	}
	if got := reflect.ValueOf(value).Len(); shape.IsScalar() || got != shape.TotalSize() {
		return nil, fmt.Errorf("got a slice of %d elements, want one for each element of shape %v", got, shape)
	}
	var t *tensor.Dense
	err := guard.Recover("tensor.New", func() error {
		t = tensor.New(tensor.WithShape(shape...), tensor.WithBacking(value))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("got a slice of %v: %w", of.Elem(), err)
	}
	return t, nil
}

// Set binds the value of node b to node a, as Gorgonia's tape machine does. The two nodes then share its memory.
func (vm *VM) Set(a, b *gorgonia.Node) error {
	for _, n := range []*gorgonia.Node{a, b} {
		if err := vm.has("Set", n); err != nil {
			return err
		}
	}
	v := b.Value()
	if v == nil {
		return fmt.Errorf("cudaops: Set: node %s has no value: run the graph first, with Keep unless the node is a result", internal.Name(b))
	}
	return failure("cudaops: Set", internal.Bind(a, v))
}

// Results returns the nodes that a run binds values to, which are not inputs.
func (vm *VM) Results() gorgonia.Nodes {
	if vm == nil || vm.exec == nil {
		return nil
	}
	var list gorgonia.Nodes
	for _, o := range vm.shown.Load().graph.Outputs {
		if o.Read == nil && o.State == nil {
			list = append(list, o.Node)
		}
	}
	return list
}

// has returns an error unless a node is in the VM's graph.
func (vm *VM) has(method string, n *gorgonia.Node) error {
	if vm == nil || vm.exec == nil {
		return fmt.Errorf("cudaops: %s of a VM that NewVM did not make", method)
	}
	if n == nil {
		return fmt.Errorf("cudaops: %s got a nil node", method)
	}
	if slices.ContainsFunc(vm.shown.Load().graph.Nodes, func(own lower.Node) bool { return own.Node == n }) {
		return nil
	}
	return fmt.Errorf("cudaops: %s: node %s is not in the graph of this VM", method, internal.Name(n))
}
