package main

import (
	"errors"
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

// copyEach is out = a + b + ... + b, where b is added k times, at least once, and each
// time by all five steps: the vectors travel for every addition.
func copyEach(s *cudaops.Session, out, a, b []float32, k int) error {
	sum := a
	for range k {
		if _, err := addByHand(s, out, sum, b); err != nil {
			return err
		}
		sum = out
	}
	return nil
}

// resident is the same with vectors that stay on the device: they go there once,
// k kernels run one after the other, and one result comes back.
func resident(s *cudaops.Session, out, a, b []float32, k int) (err error) {
	n := len(out)
	if len(a) != n || len(b) != n {
		return fmt.Errorf("got vectors of %d, %d and %d elements, want equal lengths", len(a), len(b), n)
	}
	var buffers [3]*cudaops.Buffer
	for i := range buffers {
		if buffers[i], err = s.Alloc(int64(n) * 4); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Free(buffers[i])) }()
	}
	sum, added, next := buffers[0], buffers[1], buffers[2]
	if err = errors.Join(s.CopyTo(sum, kernels.Bytes(a)), s.CopyTo(added, kernels.Bytes(b))); err != nil {
		return err
	}
	plan, err := versions.Add(kernels.HostDevice(), kernels.Float32, 1, int64(n))
	if err != nil {
		return err
	}
	kernel := plan.Launches[0].Kernel
	grid, block := [3]int{(n + 511) / 512, 1, 1}, [3]int{512, 1, 1}
	for range k {
		if err = s.Launch(kernel, grid, block, 0, sum, added, next, int64(n)); err != nil {
			return err
		}
		sum, next = next, sum // the kernel must not write its operands
	}
	return s.CopyFrom(kernels.Bytes(out), sum) // once all kernels are done
}
