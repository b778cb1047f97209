package cudaops

import (
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"gorgonia.org/tensor"
)

// Pinned tensors are tensors of zeros, of all types, with or without a GPU.
func TestPinned(t *testing.T) {
	for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64, tensor.Byte, tensor.Int32, tensor.Int64, tensor.Int, tensor.Bool} {
		x := testutil.Get[*tensor.Dense](t)(Pinned(dt, 3, 700))
		if x.Dtype() != dt || !slices.Equal(x.Shape(), []int{3, 700}) || testutil.Get[any](t)(x.At(2, 699)) != testutil.Get[any](t)(tensor.New(tensor.Of(dt), tensor.WithShape(1)).At(0)) {
			t.Errorf("got %v of shape %v, want zeros of %v of shape (3, 700)", x.Dtype(), x.Shape(), dt)
		}
	}
	for want, make := range map[string]func() (*tensor.Dense, error){
		"got elements of string":              func() (*tensor.Dense, error) { return Pinned(tensor.String, 3) },
		"got shape ()":                        func() (*tensor.Dense, error) { return Pinned(tensor.Float32) },
		"got shape (3, 0)":                    func() (*tensor.Dense, error) { return Pinned(tensor.Float32, 3, 0) },
		"got float32 of shape (-1)":           func() (*tensor.Dense, error) { return Pinned(tensor.Float32, -1) },
		"of host memory, want at most":        func() (*tensor.Dense, error) { return Pinned(tensor.Float32, 1<<43) },
		"got float64 of shape (1099511627776": func() (*tensor.Dense, error) { return Pinned(tensor.Float64, 1<<40, 1<<40) },
	} {
		if _, err := make(); err == nil || !strings.HasPrefix(err.Error(), "cudaops: Pinned: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}
