package gemm

import (
	"math"

	"github.com/stheno-ml/stheno/internal/align"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
	"github.com/stheno-ml/stheno/kernels/internal/bf16split"
)

// A block of matmul_hopper.cu computes a tile of tensorTile rows of C and is alone on its SM. With split operands its slices have
// hopperStep elements along K.
const (
	hopperStep    = 32
	hopperThreads = 384
	hopperFinish  = 8 * 16 * 40 * 4 // bytes of shared memory that stage sums before the store to C: 8 warps, 16 rows of 32 sums and 8 unused
	// Of rounded operands: barriers, stages of slices of A and B of 128 bytes, and what steps on sums and rows that begin anywhere take, with
	// a row of an operand of steps for each of 8 warps.
	reducedShared = 2048 + hopperRing + hopperFinish + 8*256*4
)

// hopperSplit is the kernel of matmul_hopper.cu for split operands, with four stages; hopperPair is that for clusters of two blocks.
var (
	hopperSplit = &candidate{
		name: "hopper_split", form: BF16Split, able: limits{on: isHopper, also: splittable},
		tile:    tile{m: tensorTile, n: tensorTile, step: hopperStep, threads: hopperThreads, shared: 2048 + 4*3*2*(tensorTile+tensorTile)*hopperStep + hopperFinish},
		kernels: byTrans("matmul_hopper", "matmul_hopper_f32_", splitProductBody), all: cutsHopper, special: emitSplit,
	}
	hopperPair = byTrans("matmul_hopper", "matmul_hopper_f32_pair_", splitProductBody)
)

// splittable reports whether the kernels can count rows, columns, K, matrices and tiles in 32 bits, and split operands take at most a
// quarter of the memory.
func splittable(c *candidate, x *problem) bool {
	return !x.dev.FMA && max(x.Batch, x.M, x.N, x.K, c.count(x)) <= 1<<30 && quarter(x, 6)
}

// cutsHopper lists the cuts for one block and for clusters of two.
func cutsHopper(c *candidate, x *problem, list []cut) []cut {
	list = c.cutsIn(x, 1, list)
	if x.M > c.m && c.count(x) >= 2*x.sms() {
		list = c.cutsIn(x, 2, list)
	}
	return list
}

// cutsIn appends cuts for clusters of so many blocks: whole tiles, partial sums, and stream-K.
func (c *candidate) cutsIn(x *problem, cluster int64, list []cut) []cut {
	tile := c.tile
	tile.m *= cluster
	tiles, steps, most := tile.count(x), kernels.CeilDiv(x.K, c.step), max(x.sms()/cluster, 1)
	list = append(list, cut{partials: 1, chunk: x.K, cluster: cluster, blocks: min(tiles, most)})
	for n := int64(2); n*tiles <= most && n <= steps; n++ {
		partials := kernels.CeilDiv(x.K, arith.RoundUp(kernels.CeilDiv(x.K, n), c.step))
		list = append(list,
			cut{partials: partials, chunk: arith.RoundUp(kernels.CeilDiv(x.K, partials), c.step), cluster: cluster, blocks: min(n, partials) * tiles},
			cut{partials: 1, chunk: x.K, cluster: cluster, blocks: n * tiles, streamed: tiles})
	}
	// All blocks are at different places along K, so the splits of few tiles have to be in L2 as a whole, with room to spare: 768 x 3072 x 768,
	// 28 of 60 MB, took 57 and 67 us in two runs, by partial sums 58.
	if tiles%most != 0 && tiles*steps >= most && (tiles > most || 6*x.Batch*(x.M+x.N)*x.K <= x.dev.L2*3/8) {
		list = append(list, cut{partials: 1, chunk: x.K, cluster: cluster, blocks: most, streamed: tiles - max(tiles/most-1, 0)*most})
	}
	return list
}

// emitSplit launches a float32 product on the tensor cores: it splits each operand that was not prepared; splits them again with scaling,
// into scratch memory, if the ranges of both ask for it; then multiplies (six BF16 products).
func emitSplit(c *candidate, p *kernels.Plan, x *problem, d cut) {
	var operands [2]conversion
	var rescaled [2]kernels.Ref
	var missing []*conversion
	prepared := kernels.Operand(2 + len(x.epilogue.operands))
	for i, o := range x.Prepares(BF16Split) {
		rescaled[i] = p.Workspace(o.bytes())
		operands[i] = conversion{o, [2]kernels.Ref{x.a, x.b}[i], rescaled[i], kernels.Ref{}, 0, false}
		switch o := [2]Operand{x.A, x.B}[i]; {
		case o.Form == Plain:
			missing = append(missing, &operands[i])
			continue
		case o.Ranges > 0:
			y := &operands[i]
			y.to, y.blocks, y.joins = y.from, o.Ranges, true
			y.ranges = kernels.At(y.from.Operand, y.bytes())
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
				for i, v := range to {
					exponent := lines + 1
					if lines >= 0 {
						line := matrix*m + int64(i)/ld
						if lines == 1 {
							line = matrix*n + int64(i)%ld
						}
						exponent = -int(scaling[scalingHead+line])
					}
					to[i] = float32(math.Ldexp(float64(v), exponent))
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
			out[row*x.Cols+col] = float32(float64(bf16split.Float(splits[i])) + float64(bf16split.Float(splits[split+i]))/scale + float64(bf16split.Float(splits[2*split+i]))/(scale*scale))
		}
	}
	return out
}
