package versions

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
)

// dotVersions have 32 x 20 blocks of 256. On an H200, 2^28 float32 took 494 us by
// version 1, 1220 by 2, 494 by 3 and 488 by the op: a turn at the lock is about a
// microsecond, and all blocks come at the same time.
var dotVersions = [...]version{
	1: {pair("dot", "tree", dotPartsBody[float32], dotPartsBody[float64]), line(32 * 20), line(256), inPartials},
	2: {pair("dot", "mutex", dotCellBody[float32], dotCellBody[float64]), line(32 * 20), line(256), inCell},
	3: {pair("dot", "atomic", dotCellBody[float32], dotCellBody[float64]), line(32 * 20), line(256), inCell},
}

// Dot plans out = sum over i of a[i] * b[i] by version 1 to 3; the order of atomics
// decides the last bit of versions 2 and 3. Version 1 ends with a launch of the sum's own
// kernel over the partial sums: the result of an op stays on the device, so no op
// adds up on the host. [DotPartials] leaves that to its caller.
func Dot(dev kernels.Device, dt kernels.Dtype, v int, n int64) (*kernels.Plan, error) {
	p, step, err := newDotVersion(dt, v, n)
	if err != nil {
		return nil, err
	}
	p.Out = dt.Size()
	appendAll(p, dev, dt, dotVersions[v], step, []kernels.Ref{in0, in1})
	return p, nil
}

// DotPartials plans the first step of version 1 alone: out holds the blocks'
// sums in double, for the caller to add up.
func DotPartials(dt kernels.Dtype, n int64) *kernels.Plan {
	p, step, _ := newDotVersion(dt, 1, n)
	p.Op += ", partial sums"
	p.Out = 8 * int64(step.Blocks())
	appendStep(p, step, []kernels.Ref{in0, in1}, out)
	return p
}

func newDotVersion(dt kernels.Dtype, v int, n int64) (*kernels.Plan, kernels.Launch, error) {
	if err := check("dot", v, len(dotVersions)-1); err != nil {
		return nil, kernels.Launch{}, err
	}
	size := n * dt.Size()
	p := &kernels.Plan{Op: fmt.Sprintf("dot_%v(%d) version %d", dt, n, v), Inputs: []int64{size, size}, Flops: 2 * n}
	return p, dotVersions[v].first(dt, []int64{n}), nil
}

func dotTerms[T kernels.Float](c kernels.Call) func(acc []float64, first int64) {
	a, b := kernels.Slice[T](c, 0), kernels.Slice[T](c, 1)
	return func(acc []float64, first int64) {
		x, y := a[first:][:len(acc)], b[first:][:len(acc)]
		for t := range acc {
			acc[t] += float64(x[t]) * float64(y[t])
		}
	}
}

func dotPartsBody[T kernels.Float](c kernels.Call) {
	partsBody(c, kernels.Slice[float64](c, 2), c.Int(3), treeSum, dotTerms[T](c))
}

func dotCellBody[T kernels.Float](c kernels.Call) {
	cellBody(c, kernels.Slice[float64](c, 2), c.Int(3), treeSum, dotTerms[T](c))
}
