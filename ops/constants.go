package ops

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"gorgonia.org/gorgonia"
)

// inOneGraph returns the nodes with each constant replaced by one in the graph of the others, if it
// is in no graph, where gorgonia.NewConstant leaves it, or in another graph.
func inOneGraph(nodes []*gorgonia.Node) ([]*gorgonia.Node, error) {
	var g *gorgonia.ExprGraph
	for _, n := range nodes {
		if n != nil && n.Graph() != nil && (g == nil || !internal.IsConstant(n.Op())) {
			g = n.Graph()
			if !internal.IsConstant(n.Op()) {
				break
			}
		}
	}
	if g == nil {
		return nil, errors.New("got inputs that are in no graph, want at least one that is in a graph: constants by themselves are not")
	}
	nodes = slices.Clone(nodes)
	for i, n := range nodes {
		if n == nil || n.Graph() == g || !internal.IsConstant(n.Op()) {
			continue
		}
		nodes[i] = g.AddNode(n)
		if !sameConstant(n, nodes[i]) { // Gorgonia merges constants that are printed alike
			var err error
			if nodes[i], err = Constant(g, n.Value()); err != nil {
				return nil, fmt.Errorf("input %d: %w", i, err)
			}
		}
	}
	return nodes, nil
}

// sameConstant reports whether two constants have the same type and bits.
func sameConstant(a, b *gorgonia.Node) bool {
	if a == b {
		return true
	}
	v, w := a.Value(), b.Value()
	if v == nil || w == nil || v.Dtype() != w.Dtype() || !v.Shape().Eq(w.Shape()) {
		return false
	}
	x, err := values.Bytes(v)
	if err != nil {
		return false
	}
	y, err := values.Bytes(w)
	return err == nil && bytes.Equal(x, y)
}
