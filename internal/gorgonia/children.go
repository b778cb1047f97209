package gorgonia

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"unsafe"

	"gonum.org/v1/gonum/graph"
	"gonum.org/v1/gonum/graph/iterator"
	"gonum.org/v1/gonum/graph/topo"
	"gorgonia.org/gorgonia"
)

// Children returns the inputs of n in the order of its op's operands, as
// Gorgonia's machines read them; the caller must not change them. The edges of the
// graph, [gorgonia.ExprGraph.From], can be those of another node: their index is
// not brought up to date when Gorgonia removes a node, as [gorgonia.BinaryXent]
// does when it turns log(1-p) into log1p(-p).
//
// It is an error if this version of Gorgonia keeps the inputs elsewhere.
func Children(n *gorgonia.Node) (gorgonia.Nodes, error) {
	offset, err := childrenOffset()
	if err != nil {
		return nil, err
	}
	return *(*gorgonia.Nodes)(unsafe.Add(unsafe.Pointer(n), offset)), nil
}

// childrenOffset returns where a node holds its inputs, in bytes from its start.
var childrenOffset = sync.OnceValues(func() (uintptr, error) {
	return fieldOffset(reflect.TypeFor[gorgonia.Node](), "children", reflect.TypeFor[gorgonia.Nodes]())
})

// fieldOffset returns the offset in bytes of a struct's field of the given name and
// type.
func fieldOffset(of reflect.Type, name string, want reflect.Type) (uintptr, error) {
	f, ok := of.FieldByName(name)
	if !ok {
		return 0, fmt.Errorf("this version of Gorgonia has no field %s in %v, want v0.9.18", name, of)
	}
	if f.Type != want {
		return 0, fmt.Errorf("this version of Gorgonia has the field %s of type %v in %v, want %v as in v0.9.18", name, f.Type, of, want)
	}
	return f.Offset, nil
}

// Sort returns the nodes of g in topological order, nodes before their operands. The
// order is that of [gorgonia.Sort], which follows the graph's edges, wherever these
// are the nodes' [Children].
//
// It is an error if an input of a node is not in g.
func Sort(g *gorgonia.ExprGraph) (gorgonia.Nodes, error) {
	var last int64
	for _, n := range g.AllNodes() {
		last = max(last, n.ID())
	}
	d := directed{g, make([]*gorgonia.Node, last+1), make([]gorgonia.Nodes, last+1)}
	for _, n := range g.AllNodes() {
		d.nodes[n.ID()] = n
	}
	for _, n := range g.AllNodes() {
		children, err := Children(n)
		if err != nil {
			return nil, err
		}
		for _, c := range children {
			if id := c.ID(); id < 0 || id > last || d.nodes[id] != c {
				return nil, fmt.Errorf("node %s has an input outside the graph", Name(n))
			}
		}
		d.children[n.ID()] = children
	}
	sorted, err := topo.SortStabilized(d, func(nodes []graph.Node) {
		slices.SortFunc(nodes, func(a, b graph.Node) int { return cmp.Compare(b.ID(), a.ID()) })
	})
	if err != nil {
		return nil, err
	}
	out := make(gorgonia.Nodes, len(sorted))
	for i, n := range sorted {
		out[i] = n.(*gorgonia.Node)
	}
	return out, nil
}

// directed is a graph whose edges lead from each node to its children. Both slices are
// indexed by ID.
type directed struct {
	*gorgonia.ExprGraph
	nodes    []*gorgonia.Node
	children []gorgonia.Nodes
}

func (d directed) From(id int64) graph.Nodes {
	to := make([]graph.Node, len(d.children[id]))
	for i, c := range d.children[id] {
		to[i] = c
	}
	return iterator.NewOrderedNodes(to)
}
