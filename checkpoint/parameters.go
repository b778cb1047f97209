package checkpoint

import (
	"errors"
	"fmt"
	"slices"

	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
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

// LoadParameters sets nodes to the tensors with their names in a file of [Save], [SaveParameters] or another program. The path is
// that of a file, of an index of shards, or of a folder: see [safetensors.Open]. If the nodes' graph has BatchNorms, it sets their
// running means and variances too, named as in Save. It ignores solver state. If it returns an error, nothing has changed.
//
// Elements of the file are converted to the node's type as by [safetensors.Elements].
// [Rename] and [Transposed] are for files with other names and layouts, [Partial] for those with more or fewer tensors. The content
// of files of other programs is unchecked: see [Loaded].
//
// SetTraining(true) of a BatchNorm resets its mean and variance to 0 and 1, so call it before LoadParameters. Learnables of
// [cudaops.Train] are copied to the device in the next run, as after gorgonia.Let.
func LoadParameters(path string, nodes gorgonia.Nodes, opts ...LoadOption) (Loaded, error) {
	loaded, err := loadParameters(path, nodes, opts)
	if err != nil {
		return Loaded{}, fmt.Errorf("checkpoint: LoadParameters: %w", err)
	}
	return loaded, nil
}

func loadParameters(path string, nodes gorgonia.Nodes, opts []LoadOption) (loaded Loaded, err error) {
	l, err := newLoading(opts)
	if err != nil {
		return loaded, err
	}
	g, err := graphOf(nodes)
	if err != nil {
		return loaded, err
	}
	f, err := open(path)
	if err != nil {
		return loaded, err
	}
	defer f.Close()
	loaded, steps, err := f.parameters(nodes, internal.BatchNorms(g), l)
	if err != nil {
		return loaded, fmt.Errorf("%s: %w", path, err)
	}
	for _, set := range steps {
		if err := set(); err != nil {
			return loaded, err
		}
	}
	return loaded, nil
}

// place is where LoadParameters puts a tensor.
type place struct {
	name  string
	dtype tensor.Dtype
	shape tensor.Shape
	set   func(v gorgonia.Value) error
}

// parameters returns functions that set the nodes and the running means and variances.
func (f *file) parameters(nodes gorgonia.Nodes, norms []*gorgonia.BatchNormOp, l loading) (loaded Loaded, set []func() error, err error) {
	skip := f.solverState()
	if f.header != nil {
		for _, name := range f.header.States { // only nodes that are asked for
			skip[name] = !slices.ContainsFunc(nodes, func(n *gorgonia.Node) bool { return n.Name() == name })
		}
	}
	tensors, err := l.find(f, skip)
	if err != nil {
		return loaded, nil, err
	}
	byName := map[string]found{}
	for _, t := range tensors {
		byName[t.as] = t
	}
	var missing []string
	for _, p := range places(nodes, norms) {
		t, ok := byName[p.name]
		if !ok {
			missing = append(missing, p.name)
			continue
		}
		delete(byName, p.name)
		dt, known := values.Dtype(p.dtype)
		if !known {
			return loaded, nil, fmt.Errorf("node %s: got a node of %v, want a type that kernels have", p.name, p.dtype)
		}
		v, err := read(t.Tensor, dt, l.transposes(p.name))
		if err == nil && !slices.Equal(v.Shape(), p.shape) {
			err = fmt.Errorf("got shape %v, want %v of shape %v", v.Shape(), p.dtype, p.shape)
		}
		if err != nil {
			return loaded, nil, fmt.Errorf("%s: %w", p.name, err)
		}
		set = append(set, func() error { return p.set(v) })
	}
	var unused []string
	for _, t := range tensors {
		if _, left := byName[t.as]; left {
			unused = append(unused, t.Name)
		}
	}
	loaded, err = l.end(f, missing, unused)
	return loaded, set, err
}

// places returns where the values of nodes and the running means and variances are.
func places(nodes gorgonia.Nodes, norms []*gorgonia.BatchNormOp) (list []place) {
	for _, n := range nodes {
		of, _ := internal.ElementType(n)
		list = append(list, place{n.Name(), of, n.Shape(), func(v gorgonia.Value) error { return internal.Bind(n, v) }})
	}
	for i, op := range norms {
		mean, variance := op.Stats()
		for k, own := range []gorgonia.Value{mean, variance} {
			list = append(list, place{averageName(i, []string{"mean", "variance"}[k]), own.Dtype(), own.Shape(), func(v gorgonia.Value) error {
				m, err := values.Bytes(v)
				if err == nil {
					err = values.Set(own, m)
				}
				return err
			}})
		}
	}
	return list
}

// solverState returns the names of tensors of a training's solver.
func (f *file) solverState() map[string]bool {
	names := map[string]bool{}
	if f.header != nil {
		for i := range f.header.Learnables {
			for _, name := range f.header.stateOf(i) {
				names[name] = true
			}
		}
	}
	return names
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
