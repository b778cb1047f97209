package gorgonia

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// crossEntropy returns the graph of BinaryXent(p, y) * p, in which Gorgonia has removed the
// node 1-p.
func crossEntropy(t *testing.T) (g *G.ExprGraph, p, loss, product *G.Node) {
	t.Helper()
	g = G.NewGraph()
	p = G.NewVector(g, tensor.Float64, G.WithName("p"), G.WithShape(3))
	y := G.NewVector(g, tensor.Float64, G.WithName("y"), G.WithShape(3))
	var err error
	if loss, err = G.BinaryXent(p, y); err != nil {
		t.Fatal(err)
	}
	if product, err = G.HadamardProd(loss, p); err != nil {
		t.Fatal(err)
	}
	return g, p, loss, product
}

// Gorgonia's index of a graph loses the children of a node when it removes another
// one, as it does for log(1 - p); the node keeps them.
func TestChildren(t *testing.T) {
	g, p, loss, product := crossEntropy(t)
	for _, c := range []struct {
		node *G.Node
		want G.Nodes
	}{{p, nil}, {product, G.Nodes{loss, p}}} {
		if got, err := Children(c.node); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("Children(%v) returns %v, %v, want %v", c.node, got, err, c.want)
		}
	}
	stale := 0
	for _, n := range g.AllNodes() {
		children, err := Children(n)
		if err != nil || n.Op() != nil && len(children) != n.Op().Arity() {
			t.Errorf("Children(%v) returns %v, %v", n, children, err)
		}
		var edges G.Nodes
		for it := g.From(n.ID()); it.Next(); {
			edges = append(edges, it.Node().(*G.Node))
		}
		if !slices.Equal(edges, children) {
			stale++
		}
	}
	if stale == 0 {
		t.Error("all edges of the graph are right: this test wants a graph where some are not")
	}
}

func TestSort(t *testing.T) {
	g, _, _, _ := crossEntropy(t)
	sorted, err := Sort(g)
	if err != nil || len(sorted) != len(g.AllNodes()) {
		t.Fatalf("Sort returns %d nodes of %d, %v", len(sorted), len(g.AllNodes()), err)
	}
	for i, n := range sorted {
		children, err := Children(n)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range children {
			if j := slices.Index(sorted, c); j <= i {
				t.Errorf("%v is node %d, its input %v is node %d", n, i, c, j)
			}
		}
	}

	g = G.NewGraph() // nothing removed
	x := G.NewMatrix(g, tensor.Float64, G.WithName("x"), G.WithShape(3, 3))
	w := G.NewMatrix(g, tensor.Float64, G.WithName("w"), G.WithShape(3, 3))
	cost := G.Must(G.Sum(G.Must(G.Tanh(G.Must(G.Mul(G.Must(G.Mul(x, w)), w))))))
	if _, err := G.Grad(cost, w, x); err != nil {
		t.Fatal(err)
	}
	want, err := G.Sort(g)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Sort(g); err != nil || !slices.Equal(got, want) {
		t.Errorf("Sort returns %v, %v, Gorgonia's Sort %v", got, err, want)
	}
	part := g.Subgraph(cost, w)
	if _, err := Sort(part); err == nil || !strings.Contains(err.Error(), "outside the graph") {
		t.Errorf("Sort of a part of a graph returns the error %v", err)
	}
}

// Another version of Gorgonia may keep the inputs elsewhere.
func TestFieldOffset(t *testing.T) {
	nodes := reflect.TypeFor[G.Nodes]()
	for want, of := range map[string]reflect.Type{
		"has no field children":        reflect.TypeFor[struct{ inputs G.Nodes }](),
		"children of type []*gorgonia": reflect.TypeFor[struct{ children []*G.Node }](),
	} {
		if _, err := fieldOffset(of, "children", nodes); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error for %v is %v, want one with %q", of, err, want)
		}
	}
	moved := reflect.TypeFor[struct {
		hash     uint64
		children G.Nodes
	}]()
	if got, err := fieldOffset(moved, "children", nodes); err != nil || got != 8 {
		t.Errorf("children lie at byte %d, %v, want 8", got, err)
	}
}
