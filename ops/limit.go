package ops

import (
	"fmt"

	"github.com/stheno-ml/stheno/internal/values"
	"gorgonia.org/gorgonia"
)

// Limit returns what the op's primitive does, if it is [Indexing]; limited is false for other ops, and for inputs that are no integers.
func (o *Op) Limit(input int) (count, also int, limited bool) {
	if p, ok := o.primitive.(Indexing); ok && input >= 0 && input < len(o.in) && o.in[input].Dtype.IsInteger() {
		return p.Limit(input, o.in...)
	}
	return 0, 0, false
}

// bounded is a primitive whose output has integers from 0 to below a number.
type bounded interface{ below(in ...Type) int }

// Below returns the number that all elements of the output are below, and not below 0, or 0 if that is not known. So a machine need not check
// indices that the op computes.
func (o *Op) Below() int {
	if b, ok := o.primitive.(bounded); ok {
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
