package basic

import "github.com/stheno-ml/stheno/kernels"

var (
	scatterPartsKernel = own.Pair("scatter_parts", "scatter_parts", scatterPartsBody[float32], scatterPartsBody[float64])
	scatterPartsJoin   = own.Pair("scatter_parts", "scatter_parts_join", scatterPartsJoinBody[float32], scatterPartsJoinBody[float64])
)

type scatterPartsArgs struct {
	G, Indices, Partial kernels.Ref
	Outer               int64
	Rows                int64 `arg:"int32"`
	Count, Inner        int64
	Parts               int64 `arg:"int32"`
}

type scatterPartsJoinArgs struct {
	Partial, Out kernels.Ref
	Elements     int64
	Parts        int64 `arg:"int32"`
}

// Constants of scatter_parts.cu, and limits on what is summed by parts. None depends on the device, because the order of a sum,
// and with it the bits of the result, depend on them.
const (
	ScatterLanes        = 256      // threads that add up the parts of an element, see [ScatterParts]
	scatterPartsAcross  = 4        // elements that a block adds up
	scatterPartsRows    = 96       // max rows
	scatterPartsShared  = 48 << 10 // bytes of shared memory that every device has
	scatterPartsCount   = 1 << 12  // min indices
	scatterPartsEach    = 64       // min indices of a part, and min mean of the indices of a row
	scatterPartsOfRow   = 16       // min indices of a part for each row: a part writes a sum for every row
	scatterPartsMost    = 1 << 15  // max parts
	scatterPartsThreads = 128
	// scatterPartsSums is the max number of sums, a sum for each heavyColumns columns of a row. With more of them the blocks of
	// scatter.cu keep a device busy.
	//
	//	H200, us                     by parts   by scatter.cu
	//	 8 M indices, 10 rows x 16        232          12 744
	//	32 M indices,  2 rows x 3         216         384 196
	//	64 M indices,  1 row  x 1         354         846 286
	//
	// 1 M indices of 96 rows x 256, which are 768 sums, take 799 us.
	scatterPartsSums = 512
)

// ScatterParts returns the number of parts in which [Scatter] sums count indices into outer x rows x inner elements: 1, or more
// where many indices fall into few rows. Part p of n parts sums the indices p, p + n and so on, in order; lane l of ScatterLanes
// sums the parts l, l + ScatterLanes and so on, in order; and the lanes' sums are added up in order.
func ScatterParts(outer, rows, inner, count int64) int64 {
	if rows > scatterPartsRows || count < max(scatterPartsCount, scatterPartsEach*rows) || outer*rows*kernels.CeilDiv(inner, heavyColumns) > scatterPartsSums {
		return 1
	}
	return min(count/max(scatterPartsEach, scatterPartsOfRow*rows), scatterPartsMost)
}

// appendScatterParts appends the launches of a scatter by parts.
func appendScatterParts(p *kernels.Plan, dt kernels.Dtype, indices kernels.Ref, outer, rows, count, inner, parts int64) (*kernels.Plan, error) {
	elements, threads := outer*rows*inner, int64(scatterPartsThreads)
	for rows*threads*dt.Size() > scatterPartsShared {
		threads /= 2
	}
	blocks := kernels.CeilDiv(outer*parts*inner, threads)
	partial := p.Workspace(parts * elements * dt.Size())
	p.Launch(scatterPartsKernel[dt], int(blocks), int(threads),
		scatterPartsArgs{kernels.In(0), indices, partial, outer, rows, count, inner, parts}).Shared = int(rows * threads * dt.Size())
	p.Launch(scatterPartsJoin[dt], int(kernels.CeilDiv(elements, scatterPartsAcross)), ScatterLanes*scatterPartsAcross,
		scatterPartsJoinArgs{partial, kernels.At(kernels.Out, 0), elements, parts})
	return p.Or(kernels.CheckGrid(max(blocks, kernels.CeilDiv(elements, scatterPartsAcross))))
}

func scatterPartsBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[scatterPartsArgs](c)
	g, indices, partial := kernels.Slice[T](c, args.G), kernels.Slice[int64](c, args.Indices), kernels.Slice[T](c, args.Partial)
	outer, rows, count, inner, parts := args.Outer, args.Rows, args.Count, args.Inner, args.Parts
	kernels.Parallel(parts, max(kernels.Grain/(kernels.CeilDiv(count, parts)*outer*inner), 1), func(lo, hi int64) {
		clear(partial[lo*outer*rows*inner : hi*outer*rows*inner])
		for o := range outer {
			for first := int64(0); first < count; first += parts {
				for part := lo; part < min(hi, count-first); part++ {
					k := first + part
					if v := indices[k]; v >= 0 && v < rows {
						sum, x := partial[((part*outer+o)*rows+v)*inner:][:inner], g[(o*count+k)*inner:][:inner]
						for i := range sum {
							sum[i] += x[i]
						}
					}
				}
			}
		}
	})
}

func scatterPartsJoinBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[scatterPartsJoinArgs](c)
	partial, out, elements, parts := kernels.Slice[T](c, args.Partial), kernels.Slice[T](c, args.Out), args.Elements, args.Parts
	kernels.Parallel(elements, max(kernels.Grain/parts, 1), func(lo, hi int64) {
		lane := make([]T, hi-lo)
		clear(out[lo:hi])
		for l := range min(parts, ScatterLanes) {
			clear(lane)
			for r := l; r < parts; r += ScatterLanes {
				for i, x := range partial[r*elements+lo : r*elements+hi] {
					lane[i] += x
				}
			}
			for i, x := range lane {
				out[lo+int64(i)] += x
			}
		}
	})
}
