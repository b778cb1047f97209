package coverage

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/cudaops"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/guard"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Row is the result for a case.
type Row struct {
	Case
	Forward  []string // kinds of steps: map, rows, the names of kernels, host; view or constant if there are none
	Backward Side
	Before   bool           // fused with a map before it
	After    bool           // and with one after it
	Types    []tensor.Dtype // on the device, forward
}

// Side is where the derivative is computed.
type Side string

// The sides.
const (
	OnDevice Side = "device"
	OnHost   Side = "host"
	None     Side = "none" // Gorgonia has no derivative, or fails to make one
)

func (c Case) measure() (r Row, err error) {
	r.Case = c
	for _, dt := range []tensor.Dtype{tensor.Float64, tensor.Float32} {
		kinds, err := c.forward(dt)
		if errors.Is(err, errNoGraph) && len(r.Types) > 0 {
			continue // an op of one type
		}
		if err != nil {
			return r, err
		}
		if len(r.Forward) == 0 || slices.Contains(r.Forward, "host") {
			r.Forward = kinds
		}
		if !slices.Contains(kinds, "host") {
			r.Types = append(r.Types, dt)
		}
	}
	if r.Backward, err = c.backward(); err != nil {
		return r, err
	}
	r.Before, r.After, err = c.neighbours()
	return r, err
}

var errNoGraph = errors.New("Gorgonia makes no such graph")

// graph builds a case's graph. Gorgonia's functions panic if they cannot.
func (c Case) graph(dt tensor.Dtype, wrap func(*G.Node) *G.Node) (in *inputs, y *G.Node, err error) {
	in = &inputs{g: G.NewGraph(), dtype: dt, wrap: wrap}
	if err := guard.Recover(c.Names[0], func() (err error) { y, err = c.build(in); return err }); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errNoGraph, err)
	}
	return in, y, nil
}

// report compiles a graph and returns its report before a run, and the number of its steps on the host that have no kernel.
func report(g *G.ExprGraph, keep ...*G.Node) (r cudaops.Report, hosts int, err error) {
	vm, err := cudaops.NewVM(g, cudaops.OnHost(), cudaops.Keep(keep...))
	if err != nil {
		return r, 0, err
	}
	r = vm.Report()
	for _, s := range r.Steps {
		if s.Reason != "" {
			hosts++
		}
	}
	return r, hosts, vm.Close()
}

// forward returns the kinds of steps of a case, without its derivatives.
func (c Case) forward(dt tensor.Dtype) ([]string, error) {
	in, y, err := c.graph(dt, nil)
	if err != nil {
		return nil, err
	}
	r, _, err := report(in.g, y)
	if err != nil {
		return nil, err
	}
	var kinds []string
	for _, s := range r.Steps {
		if k := kind(s); !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
	}
	if len(kinds) > 0 {
		return kinds, nil
	}
	for _, n := range r.Nodes {
		if n.Name == internal.Name(y) {
			kinds = []string{map[bool]string{true: "constant", false: "view"}[n.Where == "constant"]}
		}
	}
	return kinds, nil
}

// kind returns one word for the kind of a step.
func kind(s cudaops.Step) string {
	if s.Where == "host" {
		return "host"
	}
	words := strings.FieldsFunc(s.Op, func(r rune) bool { return strings.ContainsRune(" [(,{", r) })
	if words[0] == "kernel" && len(words) > 1 {
		return words[1]
	}
	return words[0]
}

// backward returns where the derivatives by a case's inputs are computed.
func (c Case) backward() (side Side, err error) {
	in, y, err := c.graph(tensor.Float64, nil)
	if errors.Is(err, errNoGraph) {
		in, y, err = c.graph(tensor.Float32, nil)
	}
	if err != nil {
		return None, err
	}
	_, before, err := report(in.g, y)
	if err != nil {
		return None, err
	}
	var grads G.Nodes
	if guard.Recover("Grad", func() (err error) { grads, err = gradients(y, in); return err }) != nil || len(in.made) == 0 {
		return None, nil
	}
	_, after, err := report(in.g, append(grads, y)...)
	if err != nil {
		return None, err
	}
	if after > before {
		return OnHost, nil
	}
	return OnDevice, nil
}

// gradients adds derivatives of a weighted sum of y's elements.
func gradients(y *G.Node, in *inputs) (G.Nodes, error) {
	cost := y
	if !y.IsScalar() {
		weights := G.NewTensor(in.g, y.Dtype(), y.Dims(), G.WithShape(y.Shape()...), G.WithName("weights"))
		cost = G.Must(G.Sum(G.Must(G.HadamardProd(y, weights))))
	}
	return G.Grad(cost, in.made...)
}

// neighbours reports whether a case becomes one step with a map before it and with one after it.
func (c Case) neighbours() (before, after bool, err error) {
	named := func(name string) func(*G.Node) *G.Node {
		return func(n *G.Node) *G.Node {
			y := G.Must(G.Tanh(n))
			G.WithName(name)(y)
			return y
		}
	}
	in, last, err := c.graph(tensor.Float32, named("before"))
	if err != nil {
		return false, false, err
	}
	// Gorgonia may be unable to make a map of the result, and panic; then the result itself is last.
	guard.Recover("Tanh", func() error { last = named("after")(last); return nil })
	r, _, err := report(in.g, last)
	if err != nil {
		return false, false, err
	}
	for _, s := range r.Steps {
		if s.Where == "host" {
			continue
		}
		// A case with a step of its own leaves the neighbour alone in its step; a view has no step,
		// so that its neighbours are in one.
		own := slices.ContainsFunc(s.Nodes, func(n string) bool { return n != "before" && n != "after" })
		first, second := slices.Contains(s.Nodes, "before"), slices.Contains(s.Nodes, "after")
		before, after = before || first && (own || second), after || second && (own || first)
	}
	return before, after, nil
}
