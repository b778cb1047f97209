package gemm

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// double is a kernel of matmul_double.cu: float64 on the tensor cores. Groups of its warps share the terms of a slice along K, each with a part of it.
func double(name string, m, n, step, stages, groups int64, threads int, cluster int64, body func(kernels.Call)) *candidate {
	t := tile{m: m, n: n, step: step, slices: groups, stages: stages, threads: threads, cluster: cluster}
	size := func(l int64) int64 { return max(l*(step+4), step*(l+4)) } // of a slice, whose rows are followed by 4 unused elements
	// Stages of A and B. In their place at the end a tile of sums of each group, whose rows are followed by 2.
	t.shared = max(stages*(size(m)+size(n)), groups*m*(n+2)) * 8
	return &candidate{name: "double_" + name, dtype: kernels.Float64, able: limits{on: isHopper, k: span{from: 17}}, tile: t, sized: cluster > 0,
		kernel: own.Kernel("matmul_double", "matmul_double_"+name, body), all: cutsDouble, args: doubleArguments}
}

// streaming returns a kernel whose blocks, so many on an SM, compute several tiles of a short K, and have copies for the next while they multiply and write
// one. In shared memory 8 rows of 32 sums of each warp follow the stages.
//
// H200, us, A B^T                 one tile, 3 an SM   streaming, 2 an SM
// 279 x 27 x 232017               297                 211
// 279 x 28 x 232016               270                 195
// 4096 x 64 x 4096, A B           72.6                66.0
// 283878 x 116 x 90, A^T B        284                 248
func streaming(of *candidate, blocks int64) *candidate {
	c := of.copy()
	c.resident, c.shared = blocks, c.shared+int64(c.threads)/32*8*40*8
	return c
}

// grid returns how many blocks of a cut are launched: with fewer than one a tile they compute several. Blocks that multiply longer are left to the device
// to deal out, and an epilogue reads the place of the stages.
func (c *candidate) grid(x *problem, d cut, e epilogueArgs) int64 {
	const maxK, minTilesPerBlock = 256, 4
	if most := c.resident * x.sms(); c.resident > 0 && d.parts <= 1 && d.chunk <= maxK && e.Steps == 0 && d.blocks >= minTilesPerBlock*most {
		return most
	}
	return d.blocks
}

// cutIn returns the cut in so many partial sums, each of so many parts.
func (c *candidate) cutIn(x *problem, partials, parts int64) cut {
	chunk := max(arith.RoundUp(kernels.CeilDiv(x.K, parts*partials), c.step), c.step) // rows of a part stay aligned
	partials = max(kernels.CeilDiv(x.K, chunk*parts), 1)
	d := cut{partials: partials, parts: parts, chunk: chunk, blocks: c.count(x) * parts * partials}
	if parts > 1 { // else blocks of a cluster share an SM where others have none
		d.shared = max(arith.RoundUp(int64(x.dev.SharedOptin)/(kernels.CeilDiv(d.blocks, max(x.clusters(parts)*parts, 1))+1), 1024)-c.shared, 0)
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
	counts, tried := splitCounts(x, c.count(x), c.maxBlocksPerSM())
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
	return doubleArgs{x.dense(to), x.Batch, d.chunk, d.blocks, d.parts}
}

// doubleArgs are the first arguments of the kernels.
type doubleArgs struct {
	denseArgs
	Batch, Chunk int64
	Count        int64 `arg:"int32"` // of tiles, or of their parts
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
