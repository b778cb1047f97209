package cudaops

import (
	"fmt"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/values"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// boundary moves values between Gorgonia's nodes and a program: inputs before a
// run, outputs after it.
type boundary struct {
	graph  *lower.Graph
	inputs []*program.Value // in the order of graph.Inputs
	// handed says of each output of the program whether a run makes it anew for
	// nobody else, so that one user may have it without a copy.
	handed []bool
}

func newBoundary(g *lower.Graph) *boundary {
	b := &boundary{graph: g, inputs: g.Program.Inputs(), handed: make([]bool, len(g.Program.Outputs))}
	used := map[*program.Value]bool{}
	for _, in := range g.Program.Instrs {
		for _, v := range in.In {
			used[v] = true
		}
	}
	for i, v := range g.Program.Outputs {
		_, copied := v.Def.Op.(program.Copy)
		b.handed[i] = copied && !used[v]
	}
	return b
}

// fetch returns the values of the inputs, checked.
func (b *boundary) fetch() ([]gorgonia.Value, error) {
	in := make([]gorgonia.Value, len(b.inputs))
	for i, input := range b.graph.Inputs {
		n, v, t := input.Node, input.Value(), b.inputs[i].Type
		if v == nil {
			return nil, fmt.Errorf("input %s has no value: set it with gorgonia.Let", n.Name())
		}
		if want := values.Tensor(t.Dtype); t.Numeric && (v.Dtype() != want || !v.Shape().Eq(t.Shape)) {
			return nil, fmt.Errorf("input %s has a value of %v and shape %v, want %v and shape %v", n.Name(), v.Dtype(), v.Shape(), want, t.Shape)
		}
		in[i] = v
	}
	return in, nil
}

// deliver hands the outputs of a run to the user: the only place where a run
// changes anything on the host. What each node is bound to is new and shares its
// memory with nothing.
func (b *boundary) deliver(out []gorgonia.Value) error {
	delivered := make([]gorgonia.Value, len(b.graph.Outputs))
	taken := make([]bool, len(out))
	for i, o := range b.graph.Outputs {
		v := out[o.Index]
		shape := b.graph.Program.Outputs[o.Index].Shape
		if o.Vector {
			shape = tensor.Shape{1}
		}
		if b.handed[o.Index] && !taken[o.Index] && !o.Vector {
			taken[o.Index], delivered[i] = true, v
			continue
		}
		if o.Read != nil && readInPlace(*o.Read, v, b.graph.Program.Outputs[o.Index]) {
			delivered[i] = v
			continue
		}
		var err error
		if delivered[i], err = fresh(v, o.Node.IsScalar() && !o.Vector, shape); err != nil {
			return fmt.Errorf("node %s: %w", o.Node.Name(), err)
		}
	}
	for i, o := range b.graph.Outputs {
		var err error
		switch {
		case o.Read != nil:
			err = read(o.Read, delivered[i])
		case o.State != nil:
			var state gorgonia.Value = o.State
			err = read(&state, delivered[i])
		default:
			err = internal.Bind(o.Node, delivered[i])
		}
		if err != nil {
			return fmt.Errorf("node %s: %w", o.Node.Name(), err)
		}
	}
	for _, g := range b.graph.Gradients {
		if err := gradient(g); err != nil {
			return fmt.Errorf("gradient of %s: %w", g.Input.Name(), err)
		}
	}
	return nil
}

// fresh returns a copy of a value: row-major, in memory of its own, and in the
// node's shape, from which some ops of Gorgonia deviate.
func fresh(v gorgonia.Value, scalar bool, shape tensor.Shape) (gorgonia.Value, error) {
	dt, ok := values.Dtype(v.Dtype())
	if !ok {
		return gorgonia.CloneValue(v)
	}
	m, err := values.Bytes(v)
	if err != nil {
		return gorgonia.CloneValue(v)
	}
	if !scalar && len(shape) == 0 || int64(shape.TotalSize())*dt.Size() != int64(len(m)) {
		shape = v.Shape()
	}
	out, to := values.New(dt, shape)
	copy(to, m)
	if _, dense := v.(*tensor.Dense); dense && shape.IsScalar() { // as an op on the host gives it
		return tensor.New(tensor.FromScalar(out.Data())), nil
	}
	return out, nil
}

// readInPlace reports whether a variable takes the elements of an output over, so that
// read needs no copy of it.
func readInPlace(to, v gorgonia.Value, output *program.Value) bool {
	dt, ok := values.Dtype(v.Dtype())
	if !ok || !v.Shape().Eq(output.Shape) {
		return false
	}
	_, ok = values.Own(to, dt, v.Shape())
	return ok
}

// read puts a value into the variable of a Read statement, in place if the
// variable has a value of that type already.
func read(to *gorgonia.Value, v gorgonia.Value) error {
	dt, ok := values.Dtype(v.Dtype())
	if !ok {
		*to = v
		return nil
	}
	memory, ok := values.Own(*to, dt, v.Shape())
	if !ok {
		*to = v
		return nil
	}
	from, err := values.Bytes(v)
	if err != nil {
		return err
	}
	copy(memory, from)
	return nil
}

// gradient gives an input its gradient: a copy of the derivative, with the type and
// shape of the input's value, since solvers combine the two in place.
func gradient(g lower.Gradient) error {
	d, value := g.Derivative.Value(), g.Input.Value()
	if d == nil || value == nil {
		return nil
	}
	own, err := fresh(d, value.Shape().IsScalar(), value.Shape())
	if err != nil {
		return err
	}
	if of, dense := value.(*tensor.Dense); dense {
		if value.Shape().IsScalar() {
			own = tensor.New(tensor.FromScalar(own.Data()))
		}
		if t, ok := own.(*tensor.Dense); ok {
			tensor.WithEngine(of.Engine())(t)
		}
	}
	return apply(g.Input, gorgonia.WithGrad(own))
}

// apply applies Gorgonia's construction option to a node; such options panic
// where they do not fit.
func apply(n *gorgonia.Node, o gorgonia.NodeConsOpt) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	o(n)
	return nil
}
