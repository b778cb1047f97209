package reduce

import (
	"math"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
	"github.com/stheno-ml/stheno/kernels/internal/axisgroup"
)

var (
	sumTwice       = own.Pair("sum", "sum_twice", sumTwiceBody[float32], sumTwiceBody[float64])
	sumTwiceJoined = own.Pair("sum", "sum_twice_joined", sumTwiceBody[float32], sumTwiceBody[float64])
	sumTileTwice   = own.Pair("sum", "sum_tile_twice", sumTileTwiceBody[float32], sumTileTwiceBody[float64])
)

type sumTwiceArgs struct {
	In, Out kernels.Ref
	Outputs int64 `arg:"int32"`
	twiceSizes
	Side int64 `arg:"int32"`
	Div  float64
}

type sumTileTwiceArgs struct {
	In, Out kernels.Ref
	Slabs   int64
	twiceSizes
	Per, Lanes int64 `arg:"int32"`
	Div        float64
}

// twiceSizes are the axes of a slab, which is summed over R and Q.
type twiceSizes struct {
	R, Middle, Q, Inner int64 `arg:"int32"`
}

// appendSumTwice appends the launch that sums over two groups at once, and returns true. It returns false if two passes are faster.
func appendSumTwice(p *kernels.Plan, dev kernels.Device, dt kernels.Dtype, groups []axisgroup.Group, terms int64, div float64) bool {
	first := slices.IndexFunc(groups, func(g axisgroup.Group) bool { return g.Chosen })
	second := first + 2 // neighbouring groups are not both chosen
	slabs, r, _ := axisgroup.Around(groups, first)
	_, q, inner := axisgroup.Around(groups, second)
	middle := groups[first+1].N
	outputs := slabs * middle * inner
	if dev.Kind == kernels.CPU || terms >= 1<<16 || outputs > math.MaxInt32 || terms*middle*inner > math.MaxInt32 {
		return false
	}
	in, out, sizes := kernels.In(0), kernels.At(kernels.Out, 0), twiceSizes{r, middle, q, inner}
	if per, lanes := tilePolicies.On(dev).twice(dev, dt, slabs, r, middle, q, inner); per > 0 {
		args := sumTileTwiceArgs{in, out, slabs, sizes, per, lanes, div}
		p.Launch(sumTileTwice[dt], int(kernels.CeilDiv(slabs, per)), tilePolicies.On(dev).block, args).Shared = int(per*terms*middle*inner*dt.Size() + 16)
		return true
	}
	pol := twicePolicies.On(dev)
	block, side, ok := pol.blocks(dev, dt, outputs, r, q, inner)
	if ok {
		p.Launch(sumTwice[dt], int(kernels.CeilDiv(outputs, side)), int(block), sumTwiceArgs{in, out, outputs, sizes, side, div}).Shared = int(block * 8)
		return true
	}
	if block, side, ok = pol.clusters(dev, outputs, terms, inner); ok {
		l := p.Launch(sumTwiceJoined[dt], stripCluster*int(kernels.CeilDiv(outputs, side)), int(block), sumTwiceArgs{in, out, outputs, sizes, side, div})
		l.Shared = int(block*8 + stripCluster*side*16)
	}
	return ok
}

// clusters returns the threads and the outputs of a block of sum_twice_joined, and reports whether it is faster than a pass for each group of axes.
func (pol twicePolicy) clusters(dev kernels.Device, outputs, terms, inner int64) (block, side int64, ok bool) {
	block, side = pol.block/2, min(arith.Pow2(inner), 32)
	if terms*side > pol.joinedSmallMaxTerms*stripCluster*block {
		block *= 2
	}
	return block, side, dev.HasClusters() && kernels.CeilDiv(outputs, side) <= int64(dev.SMs) && outputs*terms <= pol.joinedMaxElements && terms*side <= pol.maxTerms*stripCluster*block
}

// blocks returns the threads and the outputs of a block of sum_twice, and reports whether it is faster than a pass for each group of axes.
func (pol twicePolicy) blocks(dev kernels.Device, dt kernels.Dtype, outputs, r, q, inner int64) (block, side int64, ok bool) {
	block, terms := pol.block, r*q
	if max(r, q)*dt.Size() <= pol.shortMaxBytes && outputs >= 4*block*int64(dev.SMs) {
		return block, block, true
	}
	side = min(arith.Pow2(inner), 32)
	for side < 32 && block/side > arith.Pow2(terms) {
		side *= 2
	}
	for block < pol.maxBlock && terms*side > pol.smallMaxTerms*block {
		block *= 2
	}
	return block, side, terms*side <= pol.maxTerms*block && outputs*terms <= pol.maxElements
}

// twice is tile for slabs of r x middle x q x inner elements that are summed over r and q. It returns 0 for fewer slabs than SMs.
func (pol tilePolicy) twice(dev kernels.Device, in kernels.Dtype, slabs, r, middle, q, inner int64) (per, lanes int64) {
	if slabs < int64(dev.SMs) {
		return 0, 0
	}
	row := q
	if inner > 1 {
		row = 1
	}
	return pol.lanes(dev, in, slabs, middle*inner, r*q, row, 32)
}

func sumTwiceBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[sumTwiceArgs](c)
	sumSlabs(kernels.Slice[T](c, args.In), kernels.Slice[T](c, args.Out), args.Outputs, args.twiceSizes, args.Div)
}

func sumTileTwiceBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[sumTileTwiceArgs](c)
	sumSlabs(kernels.Slice[T](c, args.In), kernels.Slice[T](c, args.Out), args.Slabs*args.Middle*args.Inner, args.twiceSizes, args.Div)
}

// sumSlabs sums slabs over R and Q.
func sumSlabs[T kernels.Float](in, out []T, outputs int64, s twiceSizes, div float64) {
	kernels.Parallel(outputs, max(kernels.Grain/(s.R*s.Q), 1), func(lo, hi int64) {
		for o := lo; o < hi; o++ {
			row, sum := o/s.Inner, 0.0
			for j := range s.R {
				x := in[((row/s.Middle*s.R+j)*s.Middle+row%s.Middle)*s.Q*s.Inner+o%s.Inner:]
				for k := range s.Q {
					sum += float64(x[k*s.Inner])
				}
			}
			out[o] = T(sum / div)
		}
	})
}
