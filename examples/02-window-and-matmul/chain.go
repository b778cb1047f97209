package main

import (
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
)

// apart is out = a + b + ... + b, where b is added k times, at least once, and each
// time by all five steps: the vectors travel for every addition.
func apart(s *cudaops.Session, out, a, b []float32, k int) error {
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
