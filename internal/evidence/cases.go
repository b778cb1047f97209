package evidence

import (
	"fmt"

	"github.com/stheno-ml/stheno/internal/results"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A Timed is a case of an op that is timed in one element type.
type Timed struct {
	Spec  ops.Spec
	Case  ops.Case
	Dtype kernels.Dtype
}

// Key names the case in the results.
func (t Timed) Key() results.Key {
	return results.Key{Op: t.Spec.Name, Case: t.Case.Name, Dtype: t.Dtype.String()}
}

// Cases are all that is timed: the Bench cases in the types that they name, in the
// order of the ops.
func Cases() (cases []Timed) {
	for _, s := range ops.All() {
		for _, c := range s.Cases {
			for _, dt := range timedTypes(c) {
				cases = append(cases, Timed{s, c, dt})
			}
		}
	}
	return cases
}

func timedTypes(c ops.Case) []kernels.Dtype {
	switch {
	case !c.Bench:
		return nil
	case c.Timed == nil:
		return []kernels.Dtype{kernels.Float32}
	}
	return c.Timed
}

// Keys are the cases of ops that are timed, those of numbered versions left out.
func Keys() (keys []results.Key) {
	for _, c := range Cases() {
		if c.Case.Version == 0 {
			keys = append(keys, c.Key())
		}
	}
	return keys
}

// Plan builds a case on inputs of the given type and shapes, and returns its plan
// on dev and the shape of its output.
func Plan(c ops.Case, dt kernels.Dtype, shapes []tensor.Shape, dev kernels.Device) (*kernels.Plan, tensor.Shape, error) {
	g := gorgonia.NewGraph()
	in := make([]*gorgonia.Node, len(shapes))
	for i, s := range shapes {
		name := gorgonia.WithName(fmt.Sprintf("in%d", i))
		if s.IsScalar() {
			in[i] = gorgonia.NewScalar(g, values.Tensor(dt), name)
		} else {
			in[i] = gorgonia.NewTensor(g, values.Tensor(dt), s.Dims(), gorgonia.WithShape(s...), name)
		}
	}
	out, err := c.Build(in...)
	if err != nil {
		return nil, nil, err
	}
	planner, ok := out.Op().(kernels.Planner)
	if !ok {
		return nil, nil, fmt.Errorf("%v has no plan", out)
	}
	p, err := planner.Plan(dev)
	if err != nil {
		return nil, nil, err
	}
	if len(p.Inputs) != len(in) {
		return nil, nil, fmt.Errorf("the plan takes %d inputs, the case has %d: it is made of several ops", len(p.Inputs), len(in))
	}
	return p, out.Shape(), nil
}
