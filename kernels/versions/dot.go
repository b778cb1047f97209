package versions

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
)

// dotVersions have 32 x 20 blocks of 256. A block holds the lock of version 2 for about a microsecond, and all blocks request it at the same time.
//
//	H200, us, by version     1      2     3    op
//	2^28 float32           494   1220   494   488
var dotVersions = [...]version{
	1: {library.Pair("dot", "dot_tree", dotPartsBody[float32], dotPartsBody[float64]), line(32 * 20), line(256), inPartials},
	2: {library.Pair("dot", "dot_mutex", dotCellBody[float32], dotCellBody[float64]), line(32 * 20), line(256), inCell},
	3: {library.Pair("dot", "dot_atomic", dotCellBody[float32], dotCellBody[float64]), line(32 * 20), line(256), inCell},
}

type dotArgs struct {
	A, B, Out kernels.Ref
	N         int64
}

// Dot plans out = sum over i of a[i] * b[i] by version 1 to 3; the order of atomics decides the last bit of versions 2 and 3. Version 1 ends with a
// launch of the sum's own kernel over the partial sums: the result of an op stays on the device, so no op adds up on the host. [DotPartials] leaves
// that to its caller.
func Dot(dev kernels.Device, dt kernels.Dtype, v int, n int64) (*kernels.Plan, error) {
	p, first, err := newDotVersion(dt, v, n)
	if err != nil {
		return nil, err
	}
	p.Out = dt.Size()
	appendAll(p, dev, dt, dotVersions[v], first)
	return p, nil
}

// DotPartials plans only the first step of version 1: out holds the blocks' sums in double, for the caller to add up.
func DotPartials(dt kernels.Dtype, n int64) *kernels.Plan {
	p, first, _ := newDotVersion(dt, 1, n)
	p.Op += ", partial sums"
	p.Out = 8 * int64(first.Blocks())
	first.appendTo(p, out)
	return p
}

func newDotVersion(dt kernels.Dtype, v int, n int64) (*kernels.Plan, step, error) {
	if err := check("dot", v, len(dotVersions)-1); err != nil {
		return nil, step{}, err
	}
	size := n * dt.Size()
	p := &kernels.Plan{Op: fmt.Sprintf("dot_%v(%d) version %d", dt, n, v), Inputs: []int64{size, size}, Flops: 2 * n}
	return p, dotVersions[v].first(dt, func(to kernels.Ref) any { return dotArgs{in0, in1, to, n} }, n), nil
}

func dotTerms[T kernels.Float](c kernels.Call) terms {
	args := kernels.Args[dotArgs](c)
	a, b := kernels.Slice[T](c, args.A), kernels.Slice[T](c, args.B)
	return terms{args.Out, args.N, func(acc []float64, first int64) {
		x, y := a[first:][:len(acc)], b[first:][:len(acc)]
		for t := range acc {
			acc[t] += float64(x[t]) * float64(y[t])
		}
	}}
}

func dotPartsBody[T kernels.Float](c kernels.Call) { partsBody(c, dotTerms[T](c), treeSum) }

func dotCellBody[T kernels.Float](c kernels.Call) { cellBody(c, dotTerms[T](c), treeSum) }
