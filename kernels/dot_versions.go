package kernels

import "fmt"

// DotVersions is the number of numbered versions of the dot product.
const DotVersions = 3

// dotVersions have 32 x 20 blocks of 256. On an H200, 2^28 float32 took 494 us by
// version 1, 1220 by 2, 494 by 3 and 488 by the op: a turn at the lock is about a
// microsecond, and all blocks come at the same time.
var dotVersions = [1 + DotVersions]version{
	1: {dotKernel("tree", dotPartsBody[float32], dotPartsBody[float64]), line(32 * 20), line(256), inPartials},
	2: {dotKernel("mutex", dotCellBody[float32], dotCellBody[float64]), line(32 * 20), line(256), inCell},
	3: {dotKernel("atomic", dotCellBody[float32], dotCellBody[float64]), line(32 * 20), line(256), inCell},
}

func dotKernel(variant string, f32, f64 func(Call)) [2]*Kernel {
	return [2]*Kernel{
		Float32: own.Kernel("dot_versions", "dot_"+variant+"_f32", f32),
		Float64: own.Kernel("dot_versions", "dot_"+variant+"_f64", f64),
	}
}

// DotVersion plans out = sum over i of a[i] * b[i] by version 1 to
// [DotVersions] of the kernel. Version 1 ends with a launch of the sum's own
// kernel over the partial sums: the result of an op stays on the device, so no op
// adds up on the host. [DotPartials] leaves that to its caller.
func DotVersion(dev Device, dt Dtype, v int, n int64) (*Plan, error) {
	p, step, err := newDotVersion(dt, v, n)
	if err != nil {
		return nil, err
	}
	p.Out = dt.Size()
	p.combine(dev, dt, dotVersions[v], step, []Ref{{0, 0}, {1, 0}})
	return p, nil
}

// DotPartials plans the first step of version 1 alone: out holds the blocks'
// sums in double, for the caller to add up.
func DotPartials(dt Dtype, n int64) *Plan {
	p, step, _ := newDotVersion(dt, 1, n)
	p.Op += ", partial sums"
	p.Out = 8 * int64(step.Blocks())
	p.step(step, []Ref{{0, 0}, {1, 0}}, Ref{Out, 0})
	return p
}

func newDotVersion(dt Dtype, v int, n int64) (*Plan, Launch, error) {
	if v < 1 || v > DotVersions {
		return nil, Launch{}, fmt.Errorf("kernels: dot: got version %d, want 1 to %d", v, DotVersions)
	}
	size := n * dt.Size()
	p := &Plan{Op: fmt.Sprintf("dot_%v(%d) version %d", dt, n, v), Inputs: []int64{size, size}, Flops: 2 * n}
	return p, dotVersions[v].first(dt, []int64{n}), nil
}

func dotTerms[T Float](c Call) func(acc []float64, first int64) {
	a, b := Slice[T](c, 0), Slice[T](c, 1)
	return func(acc []float64, first int64) {
		x, y := a[first:][:len(acc)], b[first:][:len(acc)]
		for t := range acc {
			acc[t] += float64(x[t]) * float64(y[t])
		}
	}
}

func dotPartsBody[T Float](c Call) {
	partsBody(c, Slice[float64](c, 2), c.Int(3), treeSum, dotTerms[T](c))
}

func dotCellBody[T Float](c Call) {
	cellBody(c, Slice[float64](c, 2), c.Int(3), treeSum, dotTerms[T](c))
}
