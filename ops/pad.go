package ops

import (
	"fmt"

	"gorgonia.org/gorgonia"
)

// Pad puts zeros, or false, before and after the elements of x, of any type, along an axis. A negative axis counts from the end.
//
//	out[..., before + i, ...] = x[..., i, ...]   and 0 elsewhere
//
// It is an error if before or after is negative or above 2^48.
func Pad(x *gorgonia.Node, axis, before, after int) (*gorgonia.Node, error) {
	t, axes, err := anyInputAlong(x, []int{axis})
	if err != nil {
		return nil, fmt.Errorf("ops: Pad: %w", err)
	}
	const most = 1 << 48 // so that sums do not overflow
	if before < 0 || after < 0 || before > most || after > most {
		return nil, fmt.Errorf("ops: Pad: got %d and %d zeros along axis %d of shape %v, want 0 to %d", before, after, axis, t.Shape, most)
	}
	if before+after == 0 {
		return x, nil
	}
	return Apply(viewing{pad{axes[0], before, after}}, x)
}
