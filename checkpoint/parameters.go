package checkpoint

import (
	"errors"
	"fmt"
	"slices"

	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"gorgonia.org/gorgonia"
)

// SaveParameters writes the values of nodes, and the running means and variances of the BatchNorms of their graph, to a file.
// That is enough to evaluate the graph; the file has no solver state. The file is replaced as by [Save].
//
// It is for programs that call a solver's Step themselves. A VM with [cudaops.Train] keeps its learnables on the device: use
// [Save], or call Pull first.
func SaveParameters(path string, nodes ...*gorgonia.Node) error {
	if err := saveParameters(path, nodes); err != nil {
		return fmt.Errorf("checkpoint: SaveParameters: %w", err)
	}
	return nil
}

func saveParameters(path string, nodes gorgonia.Nodes) error {
	g, err := graphOf(nodes)
	if err != nil {
		return err
	}
	norms := internal.BatchNorms(g)
	h := header{Version: version, BatchNorms: len(norms)}
	var list tensors
	for _, n := range nodes {
		if n.Value() == nil {
			return fmt.Errorf("node %s has no value", n.Name())
		}
		h.Learnables = append(h.Learnables, n.Name())
		list.add(n.Name(), n.Value())
	}
	for i, op := range norms {
		mean, variance := op.Stats()
		list.add(averageName(i, "mean"), mean)
		list.add(averageName(i, "variance"), variance)
	}
	return write(path, h, nil, list)
}

// LoadParameters sets nodes to the tensors with their names in a file of [Save], [SaveParameters] or another program. If the
// file has the running means and variances of the BatchNorms of the nodes' graph, it sets these too. It ignores solver
// state. If it returns an error, nothing has changed. The note is as in [Load]; files of other programs are unchecked.
//
// SetTraining(true) of a BatchNorm resets its mean and variance to 0 and 1, so call it before LoadParameters. Learnables of
// [cudaops.Train] are copied to the device in the next run, as after gorgonia.Let.
func LoadParameters(path string, nodes ...*gorgonia.Node) (note string, err error) {
	if note, err = loadParameters(path, nodes); err != nil {
		return "", fmt.Errorf("checkpoint: LoadParameters: %w", err)
	}
	return note, nil
}

func loadParameters(path string, nodes gorgonia.Nodes) (note string, err error) {
	g, err := graphOf(nodes)
	if err != nil {
		return "", err
	}
	f, err := open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	steps, err := f.parameters(nodes, internal.BatchNorms(g))
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	for _, set := range steps {
		if err := set(); err != nil {
			return "", err
		}
	}
	return f.note, nil
}

// parameters returns functions that set the nodes and the running means and variances.
func (f *file) parameters(nodes gorgonia.Nodes, norms []*gorgonia.BatchNormOp) (set []func() error, err error) {
	for _, n := range nodes {
		v := f.value(n.Name())
		if f.err != nil {
			return nil, f.err
		}
		if want, _ := internal.ElementType(n); v.Dtype() != want || !slices.Equal(v.Shape(), n.Shape()) {
			return nil, fmt.Errorf("node %s: got %v of shape %v, want %v of shape %v", n.Name(), v.Dtype(), v.Shape(), want, n.Shape())
		}
		set = append(set, func() error { return internal.Bind(n, v) })
	}
	for i, op := range norms {
		mean, variance := op.Stats()
		for what, own := range map[string]gorgonia.Value{"mean": mean, "variance": variance} {
			name := averageName(i, what)
			v := f.value(name)
			if f.err != nil {
				return nil, f.err
			}
			dt, _ := values.Dtype(v.Dtype())
			to, ok := values.Own(own, dt, v.Shape())
			if !ok {
				return nil, fmt.Errorf("%s: got %v of shape %v, want %v of shape %v", name, v.Dtype(), v.Shape(), own.Dtype(), own.Shape())
			}
			m, err := values.Bytes(v)
			if err != nil {
				return nil, err
			}
			set = append(set, func() error { copy(to, m); return nil })
		}
	}
	if h := f.header; h != nil { // other tensors are solver state
		for _, name := range h.Learnables {
			for k := range h.Moments {
				f.read[momentName(k+1, name)] = true
			}
		}
	}
	for _, t := range f.Tensors {
		if !f.read[t.Name] {
			return nil, fmt.Errorf("got a file with the tensor %q of shape %v, want only tensors of the nodes and of %d BatchNorms", t.Name, t.Shape, len(norms))
		}
	}
	return set, nil
}

// graphOf returns the graph of nodes, or an error unless they are inputs of one graph with unique names.
func graphOf(nodes gorgonia.Nodes) (*gorgonia.ExprGraph, error) {
	if len(nodes) == 0 {
		return nil, errors.New("got no nodes")
	}
	seen := map[string]bool{}
	for i, n := range nodes {
		if n == nil {
			return nil, fmt.Errorf("node %d is nil", i)
		}
		name := internal.InputName(n)
		switch {
		case n.Op() != nil:
			return nil, fmt.Errorf("node %d, %s: got the result of an op, want an input of the graph", i, n.Name())
		case name == "":
			return nil, fmt.Errorf("node %d, of shape %v, has no name: give it one with gorgonia.WithName", i, n.Shape())
		case seen[name]:
			return nil, fmt.Errorf("node %d: got the name %q again, want different names", i, name)
		case n.Graph() != nodes[0].Graph():
			return nil, fmt.Errorf("node %s: got a node of another graph than %s", name, nodes[0].Name())
		}
		seen[name] = true
	}
	return nodes[0].Graph(), nil
}
