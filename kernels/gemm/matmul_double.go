package gemm

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// double is a kernel of matmul_double.cu: float64 on the tensor cores, with slices of 16 along K.
func double(name string, m, n, stages int64, threads int, cluster int64, body func(kernels.Call)) candidate {
	t := tile{m: m, n: n, step: 16, stages: stages, threads: threads, cluster: cluster}
	// Stages of A and B, whose rows are followed by 4 unused elements; in their place at the end a tile of sums, whose rows are followed by 2.
	t.shared = max(stages*(m+n)*(t.step+4), m*(n+2)) * 8
	return candidate{name: "double_" + name, dtype: kernels.Float64, able: limits{on: isHopper, k: span{from: 17}}, tile: t, sized: cluster > 0,
		kernel: own.Kernel("matmul_double", "matmul_double_"+name, body), all: cutsDouble, args: doubleArguments}
}

// cutIn returns the cut in so many partial sums, each of so many parts.
func (c *candidate) cutIn(x *problem, partials, parts int64) cut {
	chunk := max(arith.RoundUp(kernels.CeilDiv(x.K, parts*partials), c.step), c.step) // rows of a part stay aligned
	partials = max(kernels.CeilDiv(x.K, chunk*parts), 1)
	d := cut{partials: partials, parts: parts, chunk: chunk, blocks: c.count(x) * parts * partials}
	if parts > 1 { // else blocks of a cluster share an SM where others have none
		d.shared = max(arith.RoundUp(int64(x.dev.SharedOptin)/(kernels.CeilDiv(d.blocks, x.sms())+1), 1024)-c.shared, 0)
	}
	return d
}

// cutsDouble lists cuts into parts of a cluster, or into partial sums.
func cutsDouble(c *candidate, x *problem, list []cut) []cut {
	const minPart, minPartial, joinedBlocksPerSM = 16, 48, 8
	if kernels.CheckGrid(c.count(x)) != nil || x.K > maxChunk {
		return list
	}
	for parts := int64(1); parts <= max(c.cluster, 1) && (parts == 1 || parts*minPart <= x.K && parts*c.count(x) <= joinedBlocksPerSM*x.sms()); parts *= 2 {
		list = append(list, c.cutIn(x, 1, parts))
	}
	counts, tried := splitCounts(x, c.count(x), 4)
	for _, n := range counts[1:tried] {
		if x.K >= n*minPartial {
			list = append(list, c.cutIn(x, n, 1))
		}
	}
	return list
}

func doubleArguments(c *candidate, x *problem, d cut, to kernels.Ref) any {
	if c.n > c.m {
		d.parts = int64(arith.Flag(x.transC))
	}
	return doubleArgs{x.dense(to), x.Batch, d.chunk, d.parts}
}

// doubleArgs are the first arguments of the kernels.
type doubleArgs struct {
	denseArgs
	Batch, Chunk int64
	Parts        int64 `arg:"int32"` // of a partial sum; of the kernel for few rows whether C is stored transposed
}

func doubleBody(c kernels.Call) {
	x := kernels.Args[doubleArgs](c)
	denseBody[float64](c, x.denseArgs, false, false, x.Batch, x.Chunk*x.Parts)
}

func doubleRowsBody(c kernels.Call) {
	x := kernels.Args[doubleArgs](c)
	denseBody[float64](c, x.denseArgs, false, x.Parts == 1, x.Batch, x.Chunk)
}
