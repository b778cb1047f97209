package ops

import (
	"fmt"

	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// indexed is a primitive with inputs whose elements must be integers from 0 to below a count, or also. Kernels ignore other
// elements; the machines report them.
type indexed interface {
	limit(input int, in ...Type) (count, also int, limited bool)
}

// Limit reports whether the elements of an input must be integers from 0 to below count, or also. A machine returns an
// error if they are not.
func (o *Op) Limit(input int) (count, also int, limited bool) {
	if p, ok := o.primitive.(indexed); ok && input >= 0 && input < len(o.in) {
		return p.limit(input, o.in...)
	}
	return 0, 0, false
}

// checkLimits returns an error that names the first element that is outside of its limits.
func (o *Op) checkLimits(in []gorgonia.Value) error {
	for i, v := range in {
		if count, also, limited := o.Limit(i); limited {
			if err := values.CheckIndices(v, count, also); err != nil {
				return fmt.Errorf("ops: %v: input %d: %w", o, i, err)
			}
		}
	}
	return nil
}

// inPlace is a primitive whose output differs from its first input in the elements that its launches write over it.
type inPlace interface {
	planInPlace(dev kernels.Device, in ...Type) (*kernels.Plan, error)
}

// InPlace returns a planner of the op that writes over the first input only the elements in which the output differs; ok is false
// for an op that has none.
func (o *Op) InPlace() (p kernels.Planner, ok bool) {
	_, ok = o.primitive.(inPlace)
	return overInput{o}, ok
}

// overInput plans an op in place.
type overInput struct{ *Op }

// Plan implements kernels.Planner.
func (o overInput) Plan(dev kernels.Device) (*kernels.Plan, error) {
	p, err := o.primitive.(inPlace).planInPlace(dev, o.in...)
	if err == nil {
		err = o.checkPlan(p, dev)
	}
	if err != nil {
		return nil, fmt.Errorf("ops: %v in place: %w", o, err)
	}
	return p, nil
}

// String names the op.
func (o overInput) String() string { return o.name + " in place" }
