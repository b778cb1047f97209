package ops_test

import (
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
)

// TestTransposedConvErrors: errors of the transposed convolution name the op, the input and the accepted inputs.
func TestTransposedConvErrors(t *testing.T) {
	for want, opts := range map[string][]ops.ConvOption{
		"ops: ConvTranspose1d: got output padding 2 at stride 2, want 0 or more and less than the stride": {ops.Stride(2), ops.OutputPadding(2)},
		"ops: ConvTranspose1d: got Padding [1 2 3], want one number, or one for each of 1 axes":           {ops.Padding(1, 2, 3)},
		"got 0 groups":   {ops.Groups(0)},
		"stride -1":      {ops.Stride(-1)},
		"got 0 elements": {ops.Padding(4)},
		"got Stride []":  {ops.Stride()},
	} {
		g := G.NewGraph()
		x, w := G.NewTensor(g, G.Float32, 3, G.WithShape(2, 3, 6)), G.NewTensor(g, G.Float32, 3, G.WithShape(3, 4, 3))
		if _, err := ops.ConvTranspose1d(x, w, nil, opts...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
