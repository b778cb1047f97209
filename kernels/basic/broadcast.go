package basic

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
	"github.com/stheno-ml/stheno/kernels/internal/axisgroup"
	"github.com/stheno-ml/stheno/kernels/internal/policy"
)

var broadcastKernel = own.Pair("broadcast", "broadcast", broadcastBody[float32], broadcastBody[float64])

const broadcastVectors = 2 // of a thread, in broadcast.cu

type broadcastArgs struct {
	In, Out         kernels.Ref
	Total, R, Inner int64
	ByR, ByInner    arith.Divide // of indices below 2^31
	Div             float64
}

// Broadcast plans the adjoint of Sum: out, of the given shape, repeats the input along axes; the input has shape without these axes. With mean, the
// values are divided by the number of repetitions, each quotient rounded once; float32 divides by the number as a float32, which is exact up to 2^24.
func Broadcast(dev kernels.Device, dt kernels.Dtype, shape, axes []int, mean bool) *kernels.Plan {
	total := kernels.Count(shape)
	copies := int64(1)
	for _, a := range axes {
		copies *= int64(shape[a])
	}
	in := int64(1)
	for a, d := range shape {
		if !slices.Contains(axes, a) {
			in *= int64(d)
		}
	}
	div := 1.0
	if mean {
		div = float64(copies)
	}
	p := &kernels.Plan{Op: fmt.Sprintf("broadcast_%v(%v along %v)", dt, shape, axes), Inputs: []int64{in * dt.Size()}, Out: total * dt.Size(), Flops: total}
	if total == 0 {
		return p
	}
	groups := axisgroup.Merge(shape, axes)
	var chosen []int
	for i, g := range groups {
		if g.Chosen {
			chosen = append(chosen, i)
		}
	}
	// The input has the groups that are not chosen. Each pass adds one chosen group, the longest last, since every pass
	// writes the groups of all earlier passes again.
	slices.SortFunc(chosen, func(a, b int) int { return int(groups[a].N - groups[b].N) })
	present := make([]bool, len(groups))
	for i, g := range groups {
		present[i] = !g.Chosen
	}
	src := kernels.In(0)
	for pass, k := range chosen {
		outer, inner := int64(1), int64(1)
		for i, g := range groups {
			if present[i] && i < k {
				outer *= g.N
			} else if present[i] {
				inner *= g.N
			}
		}
		r := groups[k].N
		present[k] = true
		dst, d := kernels.At(kernels.Out, 0), div
		if pass < len(chosen)-1 {
			dst, d = p.Workspace(outer*r*inner*dt.Size()), 1
		}
		n, byR, byInner := outer*r*inner, arith.DivideBy(1), arith.DivideBy(1)
		if n < 1<<31 {
			byR, byInner = arith.DivideBy(r), arith.DivideBy(inner)
		}
		appendStream(p, broadcastKernel[dt], policy.Stream{Block: 256, Vectors: broadcastVectors}, n*dt.Size(), broadcastArgs{src, dst, n, r, inner, byR, byInner, d})
		src = dst
	}
	return p
}

func broadcastBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[broadcastArgs](c)
	in, out, r, inner, div := kernels.Slice[T](c, args.In), kernels.Slice[T](c, args.Out), args.R, args.Inner, T(args.Div)
	kernels.Parallel(kernels.CeilDiv(args.Total, inner), max(kernels.Grain/inner, 1), func(lo, hi int64) {
		for row := lo; row < hi; { // row counts outer * r + j
			o := row / r
			next := min((o+1)*r, hi)
			rest := out[row*inner : next*inner] // the remaining copies of row o of the input
			row = next
			for i, x := range in[o*inner : (o+1)*inner] {
				rest[i] = x / div
			}
			for done := int(inner); done < len(rest); done *= 2 {
				copy(rest[done:], rest[:done])
			}
		}
	})
}
