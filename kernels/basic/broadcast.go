package basic

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/axisgroup"
)

var broadcastKernel = [2]*kernels.Kernel{
	kernels.Float32: own.Kernel("broadcast", "broadcast_f32", broadcastBody[float32]),
	kernels.Float64: own.Kernel("broadcast", "broadcast_f64", broadcastBody[float64]),
}

// Broadcast plans the adjoint of Sum: out, of the given shape, repeats the input
// along axes; the input has shape without these axes. With mean, the values are
// divided by the number of repetitions, each quotient rounded once; float32 divides
// by the number as a float32, which is exact up to 2^24.
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
	// The input's groups are those not chosen; each pass puts one chosen group
	// in, the longest last, since every pass writes all that came before it.
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
		n := outer * r * inner
		appendStream(p, broadcastKernel[dt], kernels.Streaming.On(dev), n*dt.Size(), src, dst, n, r, inner, d)
		src = dst
	}
	return p
}

func broadcastBody[T kernels.Float](c kernels.Call) {
	in, out := kernels.Slice[T](c, 0), kernels.Slice[T](c, 1)
	total, r, inner, div := c.Int(2), c.Int(3), c.Int(4), T(c.Float(5))
	kernels.Parallel(kernels.CeilDiv(total, inner), max(kernels.Grain/inner, 1), func(lo, hi int64) {
		for row := lo; row < hi; { // row counts outer * r + j
			o := row / r
			next := min((o+1)*r, hi)
			rest := out[row*inner : next*inner] // the copies of row o of the input that are left
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
