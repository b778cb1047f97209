package cudaops

import (
	"fmt"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/tensor"
)

// Pinned returns a tensor of zeros in page-locked memory, which GPUs copy at the full rate of the bus. A machine with [Train]
// copies such values, or slices of them, during the previous run and without work on the host. Use it for a batch that
// is refilled again and again, or for a data set from which batches are sliced.
//
// An input's value may be changed in place after the RunAll that uses it has returned.
//
// The garbage collector frees the memory when nothing refers to it. Page-locking takes about as long as filling the memory and
// keeps it from other uses, so allocate once. Without a GPU it is ordinary memory. All machines of the process can use it,
// on any device.
func Pinned(dtype tensor.Dtype, shape ...int) (*tensor.Dense, error) {
	dt, ok := values.Dtype(dtype)
	if !ok {
		return nil, fmt.Errorf("cudaops: Pinned: got elements of %v, want numbers", dtype)
	}
	bytes, err := values.Size(dt, shape)
	if err != nil {
		return nil, fmt.Errorf("cudaops: Pinned: %w", err)
	}
	if kernels.Count(shape) == 0 || len(shape) == 0 {
		return nil, fmt.Errorf("cudaops: Pinned: got shape %v, want at least one axis and one element", tensor.Shape(shape))
	}
	m, err := exec.Pinned(bytes)
	if err != nil {
		return nil, fmt.Errorf("cudaops: Pinned: %w", err)
	}
	return values.Over(dt, shape, m).(*tensor.Dense), nil
}
