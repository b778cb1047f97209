package reduce

import (
	"math"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
	"github.com/stheno-ml/stheno/kernels/internal/axisgroup"
)

var sumTwice = [...]*kernels.Kernel{
	kernels.Float32: own.Kernel("sum", "sum_twice_f32", sumTwiceBody[float32](false)),
	kernels.Float64: own.Kernel("sum", "sum_twice_f64", sumTwiceBody[float64](false)),
}

var sumTileTwice = [...]*kernels.Kernel{
	kernels.Float32: own.Kernel("sum", "sum_tile_twice_f32", sumTwiceBody[float32](true)),
	kernels.Float64: own.Kernel("sum", "sum_tile_twice_f64", sumTwiceBody[float64](true)),
}

// appendSumTwice appends the launch that sums over two groups at once, unless a pass for each is faster.
func appendSumTwice(p *kernels.Plan, dev kernels.Device, dt kernels.Dtype, groups []axisgroup.Group, terms int64, div float64) bool {
	first := slices.IndexFunc(groups, func(g axisgroup.Group) bool { return g.Chosen })
	second := first + 2 // groups side by side are treated differently
	slabs, r, _ := axisgroup.Around(groups, first)
	_, q, inner := axisgroup.Around(groups, second)
	middle := groups[first+1].N
	outputs := slabs * middle * inner
	if dev.Major == 0 || terms >= 1<<16 || outputs > math.MaxInt32 || terms*middle*inner > math.MaxInt32 {
		return false
	}
	sizes := []any{int32(r), int32(middle), int32(q), int32(inner)}
	if per, lanes := tilePolicies.On(dev).twice(dev, dt, slabs, r, middle, q, inner); per > 0 {
		args := append([]any{kernels.In(0), kernels.At(kernels.Out, 0), slabs}, append(sizes, int32(per), int32(lanes), div)...)
		p.Launch(sumTileTwice[dt], int(kernels.CeilDiv(slabs, per)), tilePolicies.On(dev).block, args...).Shared = int(per*terms*middle*inner*dt.Size() + 16)
		return true
	}
	block, side, ok := twicePolicies.On(dev).blocks(dev, dt, outputs, r, q, inner)
	if ok {
		args := append([]any{kernels.In(0), kernels.At(kernels.Out, 0), int32(outputs)}, append(sizes, int32(side), div)...)
		p.Launch(sumTwice[dt], int(kernels.CeilDiv(outputs, side)), int(block), args...).Shared = int(block * 8)
	}
	return ok
}

// blocks returns the threads of a block of sum_twice and how many outputs it has side by side, and reports whether that is faster than a pass for
// each group of axes.
func (pol twicePolicy) blocks(dev kernels.Device, dt kernels.Dtype, outputs, r, q, inner int64) (block, side int64, ok bool) {
	block, terms := pol.block, r*q
	if max(r, q)*dt.Size() <= pol.short && outputs >= 4*block*int64(dev.SMs) {
		return block, block, true
	}
	side = min(arith.Pow2(inner), 32)
	for side < 32 && block/side > arith.Pow2(terms) {
		side *= 2
	}
	for block < pol.most && terms*side > pol.few*block {
		block *= 2
	}
	return block, side, terms*side <= pol.terms*block && outputs*terms <= pol.elements
}

// twice is tile for slabs of r x middle x q x inner elements that are summed over r and q. It
// wants at least one slab for each multiprocessor.
func (pol tilePolicy) twice(dev kernels.Device, in kernels.Dtype, slabs, r, middle, q, inner int64) (per, lanes int64) {
	outputs, terms := middle*inner, r*q
	slab := outputs * terms * in.Size()
	if slab > pol.bytes || slabs < int64(dev.SMs) {
		return 0, 0
	}
	per = max(min(pol.bytes/slab, kernels.CeilDiv(slabs, int64(dev.SMs)*pol.blocks)), 1)
	lanes = arith.Pow2(kernels.CeilDiv(pol.busy, per*outputs))
	if inner == 1 {
		lanes = max(lanes, banks(q)/4)
	}
	if lanes = min(lanes, arith.Pow2(terms), 32); kernels.CeilDiv(terms, lanes) > pol.most {
		return 0, 0
	}
	return per, lanes
}

// sumTwiceBody takes the slabs if they are in tiles, or the outputs.
func sumTwiceBody[T kernels.Float](tiles bool) func(kernels.Call) {
	return func(c kernels.Call) {
		in, out, outputs := kernels.Slice[T](c, 0), kernels.Slice[T](c, 1), c.Int(2)
		r, middle, q, inner, last := c.Int(3), c.Int(4), c.Int(5), c.Int(6), 8
		if tiles {
			outputs, last = outputs*middle*inner, 9
		}
		div := c.Float(last)
		kernels.Parallel(outputs, max(kernels.Grain/(r*q), 1), func(lo, hi int64) {
			for o := lo; o < hi; o++ {
				row, sum := o/inner, 0.0
				for j := range r {
					x := in[((row/middle*r+j)*middle+row%middle)*q*inner+o%inner:]
					for k := range q {
						sum += float64(x[k*inner])
					}
				}
				out[o] = T(sum / div)
			}
		})
	}
}
