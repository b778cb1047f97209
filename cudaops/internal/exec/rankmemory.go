package exec

import (
	"errors"

	"github.com/stheno-ml/stheno/cudaops/internal/driver"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
)

// RankMemory is memory on the device of each rank of a process, as a home of values that several programs share.
type RankMemory struct{ of []program.Memory }

// NewRankMemory allocates zeroed memory by each of the functions, which are NewMemory of the ranks' backends.
func NewRankMemory(bytes int64, alloc []func(bytes int64) (program.Memory, error)) (*RankMemory, error) {
	m := &RankMemory{}
	for _, f := range alloc {
		own, err := f(bytes)
		if err != nil {
			return nil, driver.Join(err, m.Free())
		}
		m.of = append(m.of, own)
	}
	return m, nil
}

// Read copies bytes of the first rank.
func (m *RankMemory) Read(dst []byte, offset int64) error { return m.of[0].Read(dst, offset) }

// Write copies bytes to all ranks.
func (m *RankMemory) Write(offset int64, src []byte) error {
	for _, own := range m.of {
		if err := own.Write(offset, src); err != nil {
			return err
		}
	}
	return nil
}

// Free frees the memory of all ranks.
func (m *RankMemory) Free() error {
	var errs []error
	for _, own := range m.of {
		errs = append(errs, own.Free())
	}
	return errors.Join(errs...)
}

// ofRank returns the memory of a rank: a program of one rank has that of the first.
func ofRank(m program.Memory, rank int) program.Memory {
	if all, ok := m.(*RankMemory); ok {
		return all.of[rank]
	}
	return m
}

// DeviceMemory returns a function that allocates memory on CUDA device i, as NewMemory of its backends does.
func DeviceMemory(i int) (func(bytes int64) (program.Memory, error), error) {
	d, err := openDevice(i)
	if err != nil {
		return nil, err
	}
	return (&GPUBackend{device: d}).NewMemory, nil
}
