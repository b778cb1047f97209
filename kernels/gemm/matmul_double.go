package gemm

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// double is a kernel of matmul_double.cu: float64 on the tensor cores, with slices of 16 along K.
func double(name string, m, n, stages int64, threads int, cluster int64, body func(kernels.Call), c cost) candidate {
	c.second, c.copied = 2.8, 0.18
	t := tile{m: m, n: n, step: 16, stages: stages, threads: threads, cluster: cluster}
	// Stages of A and B, whose rows are followed by 4 unused elements, and behind them a tile that a cluster sends; in their place at the
	// end a tile of sums, whose rows are followed by 2.
	if t.shared = stages * (m + n) * (t.step + 4); cluster > 0 {
		t.shared += m * n
	} else {
		t.shared = max(t.shared, m*(n+2))
	}
	t.shared *= 8
	return candidate{name: "double_" + name, dtype: kernels.Float64, able: limits{on: isHopper}, tile: t, cost: kernels.Measured[cost]{{Capability: 90, Policy: c}},
		kernel: own.Kernel("matmul_double", "matmul_double_"+name, body), cut: cutDouble, args: doubleArguments}
}

// cutIn returns the cut in so many partial sums, each of so many parts.
func (c candidate) cutIn(x problem, partials, parts int64) cut {
	chunk := max(arith.RoundUp(kernels.CeilDiv(x.K, parts*partials), c.step), c.step) // rows of a part stay aligned
	partials = max(kernels.CeilDiv(x.K, chunk*parts), 1)
	return cut{partials: partials, parts: parts, chunk: chunk, blocks: arith.RoundUp(c.count(x)*parts*partials, max(c.cluster, 1))}
}

// cutDouble returns the cut of the least time by the model.
func cutDouble(c candidate, x problem) (best cut, ok bool) {
	const minPart, minPartial, maxPartials, spreadMinK = 16, 48, 264, 1024
	cost, tiles := c.cost.On(x.dev), c.count(x)
	try := func(partials, parts int64) {
		d := c.cutIn(x, partials, parts)
		each := float64(kernels.CeilDiv(d.blocks, x.sms())) // blocks of the busiest SM
		d.us = cost.start + each*cost.block + float64(d.chunk/c.step)*max(cost.alone, each*cost.step)
		if partials > 1 {
			d.us += cost.second + cost.copied*float64(partials*x.elements()*x.size())/1e6
		}
		if (!ok || d.us < best.us) && kernels.CheckGrid(d.blocks) == nil && d.chunk <= maxChunk {
			best, ok = d, true
		}
	}
	for parts := int64(1); parts <= max(c.cluster, 1) && (parts == 1 || parts*minPart <= x.K); parts *= 2 {
		try(1, parts)
	}
	if c.cluster > 0 {
		return best, ok
	}
	for full := int64(1); full <= 4; full++ { // fill the device once, twice and so on
		if partials := min(full*x.sms()/tiles, x.K/minPartial, maxPartials); partials > 1 {
			try(partials, 1)
		}
	}
	if waves := kernels.CeilDiv(tiles, x.sms()); waves > 1 && waves <= 3 && x.K >= spreadMinK { // spread the last wave
		for partials := int64(2); partials <= 4; partials++ {
			try(partials, 1)
		}
	}
	return best, ok
}

func doubleArguments(c candidate, x problem, d cut, to kernels.Ref) any {
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
