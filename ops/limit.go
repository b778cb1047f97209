package ops

import (
	"fmt"

	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Limit returns what the op's primitive does, if it is [Indexing]; limited is false for other ops, and for inputs that are no integers.
func (o *Op) Limit(input int) (count, also int, limited bool) {
	if v, ok := o.primitive.(viewing); ok {
		if l, ok := v.layout.(interface{ limit() int }); ok {
			return l.limit(), 0, true
		}
	}
	if p, ok := o.primitive.(Indexing); ok && input >= 0 && input < len(o.in) && o.in[input].Dtype.IsInteger() {
		return p.Limit(input, o.in...)
	}
	return 0, 0, false
}

// bounded is a primitive, or the view of one, whose output has integers from 0 to below a number.
type bounded interface{ below(in ...Type) int }

// Below returns the number that all elements of the output are below, and not below 0, or 0 if that is not known. So a machine need not check
// indices that the op computes.
func (o *Op) Below() int {
	var p any = o.primitive
	if v, ok := p.(viewing); ok {
		p = v.layout
	}
	if b, ok := p.(bounded); ok {
		return b.below(o.in...)
	}
	return 0
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
