package main

import (
	"fmt"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
)

// addByHand is out = a + b on a device: allocate, copy, launch, copy back, free.
// It notes the time after each of these steps.
func addByHand(s *cudaops.Session, out, a, b []float32) (steps []time.Time, err error) {
	n := len(out)
	if len(a) != n || len(b) != n {
		return nil, fmt.Errorf("got vectors of %d, %d and %d elements, want equal lengths", len(a), len(b), n)
	}
	note := func() { steps = append(steps, time.Now()) }
	note()

	// Allocate: the device has memory of its own.
	var buffers [3]*cudaops.Buffer
	for i := range buffers {
		if buffers[i], err = s.Alloc(int64(n) * 4); err != nil {
			return nil, err
		}
		defer func() { // where a step below fails
			if err != nil {
				s.Free(buffers[i])
			}
		}()
	}
	note()

	// Copy the operands to the device.
	if err = s.CopyTo(buffers[0], kernels.Bytes(a)); err != nil {
		return nil, err
	}
	if err = s.CopyTo(buffers[1], kernels.Bytes(b)); err != nil {
		return nil, err
	}
	note()

	// Launch: blocks of 512 threads, as many as cover n elements. The call comes
	// back at once; Sync waits for the kernel.
	plan, err := versions.Add(kernels.HostDevice(), kernels.Float32, 1, int64(n))
	if err != nil {
		return nil, err
	}
	kernel := plan.Launches[0].Kernel
	grid, block := [3]int{(n + 511) / 512, 1, 1}, [3]int{512, 1, 1}
	if err = s.Launch(kernel, grid, block, 0, buffers[0], buffers[1], buffers[2], int64(n)); err != nil {
		return nil, err
	}
	if err = s.Sync(); err != nil {
		return nil, err
	}
	note()

	// Copy the result back.
	if err = s.CopyFrom(kernels.Bytes(out), buffers[2]); err != nil {
		return nil, err
	}
	note()

	// Free.
	for _, m := range buffers {
		if err = s.Free(m); err != nil {
			return nil, err
		}
	}
	note()
	return steps, nil
}
