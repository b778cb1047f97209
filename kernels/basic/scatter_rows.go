package basic

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

var (
	scatterRows  = own.Pair("scatter_rows", "scatter_rows", scatterRowsBody[float32], scatterRowsBody[float64])
	indicesWiden = own.Kernel("widen", "widen", widenBody)
)

// Constants of scatter_rows.cu.
const (
	scatterRowsBlock = 512
	scatterRowsHeld  = 1 << 13 // indices of a round
	scatterRowsMost  = 1 << 12 // rows of a block
	scatterRowsMany  = 32      // min indices of a row in a list of its own
	// scatterRowsShared is the bytes of the lists: of 16 bits 3 of the indices of a round, 1 of rows and 1 of those of many indices, of 32 bits 2 of rows, and 4 numbers.
	scatterRowsShared = 3*2*scatterRowsHeld + (2+2*4)*scatterRowsMost + 2*scatterRowsHeld/scatterRowsMany + 4*4
)

type scatterRowsArgs struct {
	G, Indices, Out kernels.Ref
	Count           int64
	Rows            int64 `arg:"int32"`
	Inner           int64
	Blocks          arith.Divide
	Onto            int64 `arg:"int32"`
	Next            kernels.Ref
}

// widenArgs are those of the conversion of N indices to int64.
type widenArgs struct {
	Indices indexArgs
	Out     kernels.Ref
	N       int64
}

// scatterRowsPolicy tunes the scatter to long rows: where it is used in place of scatter.cu.
type scatterRowsPolicy struct {
	minRow             int64 // min bytes of a row
	minRows            int64
	minCount, maxCount int64 // indices: each block reads all of them
	maxMean            int64 // max mean of the indices of a row
}

var scatterRowsPolicies = kernels.Measured[scatterRowsPolicy]{
	// H100, us, indices of rows         this   scatter.cu
	//  8192 of 50304 x 768, uniform       77           93
	//  8192 of 50304 x 768, zipf          93          286
	//  8192 of 50304 x 768, all equal    104          169
	// 16384 of 50304 x 768, uniform      111          106
	// 16384 of 50304 x 768, zipf         131          299
	// 32768 of 50304 x 768, uniform      163          130
	// 32768 of 50304 x 768, zipf         216          466
	//  8192 of  1024 x 768                26           38
	//   700 of  2000 x 128                 9           28
	//    64 of   300 x 1024                8            7
	//  8192 of    64 x 768                81           47
	//  8192 of   2^20 x 64               149          115
	{90, scatterRowsPolicy{minRow: 256, minRows: 64, minCount: 512, maxCount: 1 << 14, maxMean: 32}},
}

// takes reports whether scatter_rows is the kernel for these sums.
func (pol scatterRowsPolicy) takes(dev kernels.Device, dt kernels.Dtype, outer, rows, inner, count int64) bool {
	size := inner * dt.Size()
	return dev.Kind == kernels.GPU && outer == 1 && size%16 == 0 && size >= pol.minRow && rows >= pol.minRows && rows <= scatterRowsMost*int64(dev.SMs) &&
		count >= pol.minCount && count <= min(pol.maxCount, pol.maxMean*rows) && dev.SharedOptin >= scatterRowsShared+12<<10
}

// ScatterOnto plans [ScatterBy] along axis 0 of a tensor to which the sums are added: out[v] = base[v] + (g[k] + g[l] + ...) of the k < l < ... with this index,
// and base[v] if there are none. The first input, base, has the memory of the output; g and the indices follow. ok is false if the device has no kernel for it.
func ScatterOnto(dev kernels.Device, dt, index kernels.Dtype, shape []int, count int64) (p *kernels.Plan, ok bool, err error) {
	p, outer, rows, inner, err := newIndexed("scatter onto", dt, index, shape, 0, count)
	if err != nil || !dt.IsFloat() || count > scatterRowsHeld || !scatterRowsPolicies.On(dev).takes(dev, dt, outer, rows, inner, count) {
		return nil, false, err
	}
	each := index.Size()
	p.Out, p.Flops = rows*inner*dt.Size(), count*inner
	p.Inputs = []int64{p.Out, count * inner * dt.Size(), count * each}
	indices := appendWidened(p, kernels.In(2), each, count)
	appendScatterRows(p, dev, dt, kernels.In(1), indices, rows, inner, count, 1)
	return p, true, nil
}

// appendWidened appends the launch that converts indices to Int64, unless they are, and returns them.
func appendWidened(p *kernels.Plan, indices kernels.Ref, each, count int64) kernels.Ref {
	if each == kernels.Int64.Size() {
		return indices
	}
	to := p.Workspace(count * kernels.Int64.Size())
	p.LaunchElements(indicesWiden, count, widenArgs{indexArgs{indices, each}, to, count})
	return to
}

// appendScatterRows appends the launch. With onto the sums are added to the output.
func appendScatterRows(p *kernels.Plan, dev kernels.Device, dt kernels.Dtype, g, indices kernels.Ref, rows, inner, count, onto int64) {
	blocks := min(int64(dev.SMs), rows)
	p.Launch(scatterRows[dt], int(blocks), scatterRowsBlock,
		scatterRowsArgs{g, indices, kernels.At(kernels.Out, 0), count, rows, inner, arith.DivideBy(blocks), onto, kernels.At(kernels.Arrivals, 0)}).Shared = scatterRowsShared
}

func scatterRowsBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[scatterRowsArgs](c)
	g, indices, out := kernels.Slice[T](c, args.G), kernels.Slice[int64](c, args.Indices)[:args.Count], kernels.Slice[T](c, args.Out)
	if args.Onto == 0 {
		sumInOrder(g, indices, out, 1, args.Rows, args.Inner)
		return
	}
	sums, added := make([]T, args.Rows*args.Inner), make([]bool, args.Rows)
	sumInOrder(g, indices, sums, 1, args.Rows, args.Inner)
	for _, v := range indices {
		if v < 0 || v >= args.Rows || added[v] {
			continue
		}
		added[v] = true
		for i := v * args.Inner; i < (v+1)*args.Inner; i++ {
			out[i] += sums[i]
		}
	}
}

func widenBody(c kernels.Call) {
	args := kernels.Args[widenArgs](c)
	copy(kernels.Slice[int64](c, args.Out)[:args.N], args.Indices.load(c, args.N))
}
