package loader

import (
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

func TestCheckSizes(t *testing.T) {
	args := []any{kernels.Ref{}, kernels.TensorMap{}, int32(1), int64(1), float32(1), 1.0}
	for want, sizes := range map[string][]int{
		"":                        {8, 128, 4, 8, 4, 8},
		"got 6 arguments, want 5": {8, 128, 4, 8, 4},
		"got 6 arguments, want 0": nil,
		"argument 2: got a int32 of 4 bytes, want 8 bytes": {8, 128, 8, 8, 4, 8},
		"argument 5: got a float64 of 8":                   {8, 128, 4, 8, 4, 4},
		"argument 1: got a kernels.TensorMap of 128":       {8, 8, 4, 8, 4, 8},
	} {
		if err := checkSizes(args, sizes); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
}
