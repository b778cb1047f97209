package cudaops

import (
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// boundary passes values between Gorgonia's nodes and a program: inputs before a run, outputs after it.
type boundary struct {
	graph  *lower.Graph
	inputs []program.Type          // in the order of graph.Inputs, of the values of all ranks
	split  map[*gorgonia.Node]bool // inputs of Split on several ranks
	// handed is, for each output of the program, whether its value is new in each run and has a single user, who gets it
	// without a copy.
	handed []bool
	// derived is, for each of graph.Gradients, the index in graph.Outputs of its derivative, or -1.
	derived []int
}

func newBoundary(g *lower.Graph, c *config) *boundary {
	b := &boundary{graph: g, split: map[*gorgonia.Node]bool{}, handed: make([]bool, len(g.Program.Outputs))}
	for i, v := range g.Program.Inputs() {
		t := v.Type
		if v.Def.Op.(program.Input).Split {
			b.split[g.Inputs[i].Node], t.Shape = true, c.ofRanks(t.Shape)
		}
		b.inputs = append(b.inputs, t)
	}
	used := map[*program.Value]bool{}
	for _, in := range g.Program.Instrs {
		for _, v := range in.In {
			used[v] = true
		}
	}
	for i, v := range g.Program.Outputs {
		b.handed[i] = program.Is[program.Copy](v.Def.Op) && !used[v]
	}
	bound := map[*gorgonia.Node]int{} // indices in g.Outputs
	for i, o := range g.Outputs {
		if o.Read == nil && o.State == nil {
			bound[o.Node] = i
		}
	}
	for _, d := range g.Gradients {
		at, ok := bound[d.Derivative]
		if !ok {
			at = -1
		}
		b.derived = append(b.derived, at)
	}
	return b
}

// fetch returns the values of the inputs, or an error if one has the wrong type or shape.
func (b *boundary) fetch() ([]gorgonia.Value, error) {
	in := make([]gorgonia.Value, len(b.inputs))
	for i, input := range b.graph.Inputs {
		if err := guard.Recover("its value", func() error { in[i] = input.Value(); return check(in[i], b.inputs[i]) }); err != nil {
			return nil, fmt.Errorf("input %s has %w", internal.Name(input.Node), err)
		}
		if err := b.graph.CheckInput(input.Node, in[i]); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// check returns an error that describes v unless it is a value of the type.
func check(v gorgonia.Value, t program.Type) error {
	if guard.IsNil(v) {
		return errors.New("no value: set it with gorgonia.Let")
	}
	if want := values.Tensor(t.Dtype); t.Numeric && (v.Dtype() != want || !v.Shape().Eq(t.Shape)) {
		return fmt.Errorf("a value of %v and shape %v, want %v and shape %v", v.Dtype(), v.Shape(), want, t.Shape)
	}
	return nil
}

// deliver binds the outputs of a run to nodes and variables, all or nothing; no other part of a run changes the user's data.
// Each node is bound to a new value that shares no memory. Gradients are added to the previous gradients of inputs for
// which adds returns true.
func (b *boundary) deliver(out []gorgonia.Value, adds func(input *gorgonia.Node) bool) error {
	delivered, err := b.ready(out)
	if err != nil {
		return err
	}
	gradients, err := b.gradients(delivered, adds)
	if err != nil {
		return err
	}
	for i, o := range b.graph.Outputs {
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
			return fmt.Errorf("node %s: %w", internal.Name(o.Node), err)
		}
	}
	for i, g := range b.graph.Gradients {
		if gradients[i] == nil {
			continue
		}
		// These options of Gorgonia panic for unsuitable values.
		if err := guard.Recover("it", func() error { gorgonia.WithGrad(gradients[i])(g.Input); return nil }); err != nil {
			return fmt.Errorf("gradient of %s: %w", internal.Name(g.Input), err)
		}
	}
	return nil
}

// ready returns the value to assign to each of the graph's outputs.
func (b *boundary) ready(out []gorgonia.Value) ([]gorgonia.Value, error) {
	delivered := make([]gorgonia.Value, len(b.graph.Outputs))
	taken := make([]bool, len(out))
	for i, o := range b.graph.Outputs {
		v, output := out[o.Index], b.graph.Program.Outputs[o.Index]
		if _, ok := inPlace(o.Read, v); ok && v.Shape().Eq(output.Shape) {
			delivered[i] = v
			continue
		}
		if b.handed[o.Index] && !taken[o.Index] && !o.Vector {
			taken[o.Index], delivered[i] = true, v
			continue
		}
		shape := output.Shape
		if o.Vector {
			shape = tensor.Shape{1}
		}
		var err error
		if delivered[i], err = fresh(v, o.Node.IsScalar() && !o.Vector, shape); err != nil {
			return nil, fmt.Errorf("node %s: %w", internal.Name(o.Node), err)
		}
	}
	return delivered, nil
}

// gradients returns the gradients of the inputs; an input without a gradient has nil.
func (b *boundary) gradients(delivered []gorgonia.Value, adds func(input *gorgonia.Node) bool) ([]gorgonia.Value, error) {
	list := make([]gorgonia.Value, len(b.graph.Gradients))
	for i, g := range b.graph.Gradients {
		if b.split[g.Input] { // the derivative is that of the first rank's rows
			continue
		}
		d := g.Derivative.Value()
		if at := b.derived[i]; at >= 0 {
			d = delivered[at]
		}
		var err error
		if list[i], err = gradient(d, g.Input.Value()); err == nil && list[i] != nil && adds(g.Input) {
			err = add(list[i], g.Input)
		}
		if err != nil {
			return nil, fmt.Errorf("gradient of %s: %w", internal.Name(g.Input), err)
		}
	}
	return list, nil
}

// fresh returns a row-major copy of a value in the node's shape, which the values of some of Gorgonia's ops do not have.
func fresh(v gorgonia.Value, scalar bool, shape tensor.Shape) (gorgonia.Value, error) {
	dt, ok := values.Dtype(v.Dtype())
	if !ok {
		return values.Clone(v)
	}
	m, err := values.Bytes(v)
	if err != nil {
		return values.Clone(v)
	}
	if !scalar && len(shape) == 0 || int64(shape.TotalSize())*dt.Size() != int64(len(m)) {
		shape = v.Shape()
	}
	out, to, err := values.Make(dt, shape)
	if err != nil {
		return nil, err
	}
	copy(to, m)
	if _, dense := v.(*tensor.Dense); dense && shape.IsScalar() { // ops on the host return such scalars
		return tensor.New(tensor.FromScalar(out.Data())), nil
	}
	return out, nil
}

// inPlace returns the memory of a variable's value if it has the type of v.
func inPlace(to *gorgonia.Value, v gorgonia.Value) ([]byte, bool) {
	dt, ok := values.Dtype(v.Dtype())
	if !ok || to == nil {
		return nil, false
	}
	return values.Own(*to, dt, v.Shape())
}

// read assigns a value to the variable of a Read statement, in place if the variable has a value of that type.
func read(to *gorgonia.Value, v gorgonia.Value) error {
	memory, ok := inPlace(to, v)
	if !ok {
		*to = v
		return nil
	}
	from, err := values.Bytes(v)
	copy(memory, from)
	return err
}

// add adds the previous gradient of an input, if any, to a value.
func add(to gorgonia.Value, n *gorgonia.Node) error {
	had, err := n.Grad()
	if err != nil || guard.IsNil(had) {
		return nil // no previous gradient
	}
	x, err := values.Bytes(had)
	if err != nil {
		return err
	}
	sum, err := values.Bytes(to)
	if err != nil {
		return err
	}
	if had.Dtype() != to.Dtype() || len(x) != len(sum) {
		return fmt.Errorf("got %v of shape %v to add to, want %v of shape %v", had.Dtype(), had.Shape(), to.Dtype(), to.Shape())
	}
	if to.Dtype() == tensor.Float32 {
		addElements(kernels.Elements[float32](sum), kernels.Elements[float32](x))
	} else {
		addElements(kernels.Elements[float64](sum), kernels.Elements[float64](x))
	}
	return nil
}

func addElements[T float32 | float64](to, x []T) {
	for i := range to {
		to[i] += x[i]
	}
}

// gradient returns the gradient of an input: a copy of the derivative with the type and shape of the input's value, since
// solvers combine the two in place. It returns nil if the input has no value or no derivative.
func gradient(d, value gorgonia.Value) (gorgonia.Value, error) {
	if d == nil || value == nil {
		return nil, nil
	}
	if d.Dtype() != value.Dtype() || kernels.Count(d.Shape()) != kernels.Count(value.Shape()) {
		return nil, fmt.Errorf("got %v of shape %v, want %v of shape %v as in the node's value", d.Dtype(), d.Shape(), value.Dtype(), value.Shape())
	}
	own, err := fresh(d, value.Shape().IsScalar(), value.Shape())
	if err != nil {
		return nil, err
	}
	if source, dense := value.(*tensor.Dense); dense {
		if value.Shape().IsScalar() {
			own = tensor.New(tensor.FromScalar(own.Data()))
		}
		if t, ok := own.(*tensor.Dense); ok {
			tensor.WithEngine(source.Engine())(t)
		}
	}
	return own, nil
}
