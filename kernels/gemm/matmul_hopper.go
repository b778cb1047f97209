package gemm

import (
	"math"

	"github.com/stheno-ml/stheno/internal/align"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// A block of matmul_hopper.cu computes a tile of tensorTile rows of C and is alone on its SM. With split operands its slices have
// hopperStep elements along K.
const (
	hopperStep    = 32
	hopperThreads = 384
	hopperFinish  = 8 * 16 * 40 * 4 // bytes of shared memory that stage sums before the store to C: 8 warps, 16 rows of 32 sums and 8 unused
	// Of rounded operands: barriers, stages of slices of A and B of 128 bytes, and what steps on sums and rows that begin anywhere take, with
	// a row of an operand of steps for each of 8 warps.
	reducedShared = 2048 + 4*128*(tensorTile+256) + hopperFinish + 8*256*4
)

// hopperSplit is the kernel of matmul_hopper.cu for split operands, with four stages; hopperPair is that for clusters of two blocks.
var (
	hopperSplit = candidate{
		name: "hopper_split", form: BF16Split, able: limits{on: isHopper, also: splittable},
		tile:    tile{m: tensorTile, n: tensorTile, step: hopperStep, threads: hopperThreads, shared: 2048 + 4*3*2*(tensorTile+tensorTile)*hopperStep + hopperFinish},
		cost:    kernels.Measured[cost]{{Capability: 90, Policy: cost{step: 1.07, block: 1, second: 2.8, copied: 0.33, even: 3.6, part: 1.1, uneven: 10}}},
		kernels: byTrans("matmul_hopper", "matmul_hopper_f32_", splitProductBody), cut: cutHopper, special: emitSplit,
	}
	hopperPair = byTrans("matmul_hopper", "matmul_hopper_f32_pair_", splitProductBody)
)

// splittable reports whether the kernels can count rows, columns, K, matrices and tiles in 32 bits, and split operands take at most a
// quarter of the memory.
func splittable(c candidate, x problem) bool {
	return !x.dev.FMA && max(x.Batch, x.M, x.N, x.K, c.count(x)) <= 1<<30 && quarter(x, 6)
}

// cutHopper returns the cut of the least time by a rough model of the measured times: whole tiles, partial sums, or stream-K.
func cutHopper(c candidate, x problem) (best cut, ok bool) {
	cost, cluster := c.cost.On(x.dev), int64(1)
	if c.count(x) >= 7*x.sms() && x.M > c.m {
		cluster = 2
	}
	c.m *= cluster
	tiles, steps, most := c.count(x), kernels.CeilDiv(x.K, c.step), max(x.sms()/cluster, 1)
	waves := kernels.CeilDiv(tiles, most)
	best = cut{partials: 1, chunk: x.K, cluster: cluster, blocks: min(tiles, most), us: float64(waves*steps)*cost.step + float64(waves-1)*cost.block}
	try := func(blocks, streamed, partials, chunk, steps int64, more float64) {
		if us := float64(steps)*cost.step + more; us < best.us {
			best = cut{partials: partials, chunk: chunk, cluster: cluster, blocks: blocks, streamed: streamed, us: us}
		}
	}
	for n := int64(2); n*tiles <= most && n <= steps; n++ {
		chunk := arith.RoundUp(kernels.CeilDiv(x.K, n), c.step)
		partials := kernels.CeilDiv(x.K, chunk)
		try(n*tiles, 0, partials, arith.RoundUp(kernels.CeilDiv(x.K, partials), c.step), chunk/c.step, cost.second+cost.copied*float64(n*x.elements()*x.size())/1e6)
		try(n*tiles, tiles, 1, x.K, kernels.CeilDiv(steps, n), cost.even+cost.part*float64(n-1))
	}
	// All blocks are at different places along K, so the splits of few tiles have to be in L2 as a whole, with room to spare: 768 x 3072 x 768,
	// 28 of 60 MB, took 57 and 67 us in two runs, by partial sums 58.
	streamed := tiles - max(tiles/most-1, 0)*most
	if tiles%most != 0 && tiles*steps >= most && (tiles > most || 6*x.Batch*(x.M+x.N)*x.K <= x.dev.L2*3/8) {
		try(most, streamed, 1, x.K, kernels.CeilDiv(streamed*steps, most)+(tiles-streamed)/most*steps, cost.uneven)
	}
	return best, true
}

// emitSplit launches a float32 product on the tensor cores: it splits each operand that was not prepared; splits them again with scaling,
// into scratch memory, if the ranges of both ask for it; then multiplies (six BF16 products).
func emitSplit(c candidate, p *kernels.Plan, x problem, d cut) {
	var operands [2]conversion
	var rescaled [2]kernels.Ref
	var missing []*conversion
	prepared := kernels.Operand(2 + len(x.epilogue.operands))
	for i, o := range x.Prepares(BF16Split) {
		rescaled[i] = p.Workspace(o.bytes())
		operands[i] = conversion{o, [2]kernels.Ref{x.a, x.b}[i], rescaled[i], kernels.Ref{}, 0}
		if [2]Operand{x.A, x.B}[i].Form == Plain {
			missing = append(missing, &operands[i])
			continue
		}
		operands[i].to, operands[i].ranges = kernels.In(prepared), kernels.At(prepared, o.bytes())
		setBlocks(x.dev, &operands[i])
		prepared++
	}
	if len(missing) > 0 {
		missing[0].ranges = p.Workspace(rangesBytes)
	}
	appendSplit(p, x.dev, missing...)
	a, b := &operands[0], &operands[1]
	args := rescaleArgs{
		Operands: [2]splitOperand{a.operand(rescaled[0]), b.operand(rescaled[1])},
		Batch:    x.Batch, Ranges: [2]blockRanges{{a.ranges, a.blocks}, {b.ranges, b.blocks}},
		// Lines that are stored contiguously are read faster, and a smaller operand.
		Columns: [2]bool{x.A.Trans, !x.B.Trans}, Preferred: x.N < x.M,
		Scaling: p.Workspace(4 * (scalingHead + x.Batch*max(x.M, x.N))),
	}
	if args.Columns[0] != args.Columns[1] {
		args.Preferred = args.Columns[0]
	}
	hopper, cluster := d.cluster > 0, max(d.cluster, 1)
	if args.Arrivals = args.Scaling; hopper {
		args.Apart, args.Count = true, d.streamed*cluster*2 // counters of the blocks that share tiles
		args.Arrivals = p.Workspace(max(args.Count, 1) * 4)
	}
	// Two blocks an SM: as many loads in flight as splits that are written again need.
	p.Launch(rescaleKernel, int(min(a.blocks+b.blocks, 2*x.sms(), splitMaxBlocks)), splitThreads, args)
	products, stream := c.kernels, []any(nil)
	if cluster == 2 {
		products = hopperPair
	}
	if hopper {
		parts := int64(1) // elements of the parts of tiles
		if d.streamed > 0 {
			parts = d.blocks * cluster * 2 * tensorTile * tensorTile
		}
		stream = []any{streamArgs{d.streamed, p.Workspace(parts * 4), args.Arrivals}}
	}
	x.launch(p, d, func(to kernels.Ref, e epilogueArgs) {
		product := splitProductArgs{[4]any{a.to, b.to, rescaled[0], rescaled[1]}, to, args.Scaling, x.M, x.N, x.K, x.Batch, d.chunk, x.N, e}
		for i, at := range product.Operands {
			if hopper && i%2 == 0 {
				product.Operands[i] = a.tensorMap(at.(kernels.Ref), !x.A.Trans, tensorTile)
			} else if hopper {
				product.Operands[i] = b.tensorMap(at.(kernels.Ref), x.B.Trans, tensorTile/cluster)
			}
		}
		kernel := products[arith.Flag(x.A.Trans)][arith.Flag(x.B.Trans)]
		p.Launch(kernel, int(d.blocks*cluster), c.threads, append([]any{product}, stream...)...).Shared = int(c.shared)
	})
}

// splitProductArgs are the first arguments of the kernels of both sources.
type splitProductArgs struct {
	Operands              [4]any // A and B, and both as they may be written again: Refs or TensorMaps
	C, Scaling            kernels.Ref
	M, N, K, Batch, Chunk int64 `arg:"int32"`
	LDC                   int64
	epilogueArgs
}

// streamArgs are those after them in matmul_hopper.cu.
type streamArgs struct {
	Tiles           int64 `arg:"int32"` // whose K slices are dealt out
	Parts, Arrivals kernels.Ref
}

// splitProductBody is the product of split operands, by the BLAS.
func splitProductBody(transA, transB bool) func(kernels.Call) {
	return func(c kernels.Call) {
		args := kernels.Args[splitProductArgs](c)
		out, scaling := kernels.Slice[float32](c, args.C), kernels.Slice[int32](c, args.Scaling)
		m, n, k, batch, chunk, ld := args.M, args.N, args.K, args.Batch, args.Chunk, args.LDC
		lines, scale := int(scaling[2]), float64(scaleOf(scaling[0]))
		operands := operands(BF16Split, batch, m, n, k, transA, transB)
		var splits [2][]uint16
		for i := range splits {
			from := i
			if scaling[1]>>i&1 != 0 { // written again
				from += 2
			}
			splits[i] = kernels.Slice[uint16](c, place(args.Operands[from]))
		}
		for matrix := range batch {
			a, b := operands[0].joined(splits[0], matrix, scale), operands[1].joined(splits[1], matrix, scale)
			for split := range kernels.CeilDiv(k, chunk) {
				k0 := split * chunk
				a, b := fromTerm(a, k0, operands[0].Cols, transA), fromTerm(b, k0, operands[1].Cols, !transB)
				to := out[(split*batch+matrix)*m*ld:][:m*ld]
				gemm(c.BLAS(), transA, transB, m, n, min(chunk, k-k0), a, operands[0].Cols, b, operands[1].Cols, to)
				if lines < 0 {
					continue
				}
				for i, v := range to {
					line := matrix*m + int64(i)/ld
					if lines == 1 {
						line = matrix*n + int64(i)%ld
					}
					to[i] = float32(math.Ldexp(float64(v), -int(scaling[scalingHead+line])))
				}
			}
		}
	}
}

// joined puts a matrix of the batch together again, rows of Cols elements.
func (x Prepare) joined(splits []uint16, matrix int64, scale float64) []float32 {
	out, pitch := align.Make[float32](x.Rows*x.Cols), x.pitch()
	split := x.Rows * pitch
	splits = splits[matrix*3*split:]
	for row := range x.Rows {
		for col := range x.Cols {
			i := row*pitch + col
			out[row*x.Cols+col] = float32(float64(fromBF16(splits[i])) + float64(fromBF16(splits[split+i]))/scale + float64(fromBF16(splits[2*split+i]))/(scale*scale))
		}
	}
	return out
}
