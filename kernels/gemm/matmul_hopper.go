package gemm

import (
	"github.com/stheno-ml/stheno/kernels/internal/arith"
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// A block of matmul_hopper.cu computes a tile of hopperTile x hopperTile elements of
// C, by pieces of hopperStep terms of k, and is alone on its multiprocessor.
const (
	hopperTile    = 128
	hopperStep    = 32
	hopperThreads = 384
	hopperShared  = 2048 + 4*3*2*(hopperTile+hopperTile)*hopperStep + hopperFinish // barriers; 4 stages of 3 planes of BF16 of a piece of A and one of B
	hopperFinish  = 8 * 16 * 40 * 4                                                // for sums on their way to C: of 8 warps, 16 rows of 32 and 8 unused
)

// hopperProducts are by blocks in a cluster, less 1, by transA and by transB.
var hopperProducts = [2][2][2]*kernels.Kernel{planesKernels("matmul_hopper", "matmul_hopper_f32_"), planesKernels("matmul_hopper", "matmul_hopper_f32_pair_")}

// planesKernels returns the kernels of the entry points prefix + "nn" to "tt" of a source.
func planesKernels(stem, prefix string) (k [2][2]*kernels.Kernel) {
	for a, transA := range []string{"n", "t"} {
		for b, transB := range []string{"n", "t"} {
			k[a][b] = own.Kernel(stem, prefix+transA+transB, planesBody(a == 1, b == 1))
		}
	}
	return k
}

// planesFit reports whether plans take the operands of a float32 product apart for the tensor cores: of one that
// is large enough for them, on a device with kernels that are faster than FMA, and not so large that the
// planes take more than a quarter of the memory.
func planesFit(dev kernels.Device, batch, m, n, k int64) bool {
	const most = 1 << 30 // the kernels count rows, columns, terms, matrices and tiles in 32 bits
	tiles := kernels.CeilDiv(m, hopperTile) * kernels.CeilDiv(n, hopperTile) * batch
	pol := hopperPolicies.On(dev)
	products := pol.products
	if pol.tiled > 0 && tiles*6 >= int64(dev.SMs) {
		products = pol.tiled
	}
	terms := pol.terms
	if pol.few > 0 && batch == 1 && tiles >= 12*int64(dev.SMs) {
		terms = pol.few
	}
	return pol.chosen && !dev.FMA && dev.Major != 0 && tensorCoresOf(dev) != noTensorCores && max(batch, m, n, k) <= most && tiles <= most &&
		min(m, n) > hopperTile/2 && k >= terms && float64(batch)*float64(m)*float64(n)*float64(k) >= products*float64(dev.SMs) &&
		(dev.Memory == 0 || 6*batch*(m*k+k*n) <= dev.Memory/4)
}

// appendMatMulPlanes appends the launches of a float32 product on the tensor cores: the planes of those operands for which made has none; planes
// again, in scratch memory, if the ranges of both ask for it; then the six products of planes.
func appendMatMulPlanes(p *kernels.Plan, dev kernels.Device, c result, k int64, transA, transB bool, made [2]*kernels.Ref) {
	batch, m, n := c.batch, c.m, c.n
	operands := hopperOperands(batch, m, n, k, transA, transB)
	var planes [2]planar
	var again [2]kernels.Ref
	var missing []*planar
	for i, x := range operands {
		planes[i] = planar{x, kernels.At(kernels.Operand(i), 0), p.Workspace(x.bytes()), kernels.Ref{}, 0}
		again[i] = planes[i].to
		if made[i] == nil {
			missing = append(missing, &planes[i])
			continue
		}
		planes[i].to, planes[i].ranges = *made[i], kernels.At(made[i].Operand, made[i].Offset+x.bytes())
		planes[i].blocks = planesBlocks(dev, x)[0]
	}
	if len(missing) > 0 {
		missing[0].ranges = p.Workspace(hopperRanges)
	}
	appendPlanes(p, dev, missing...)
	scaling := p.Workspace(4 * (scalingHead + batch*max(m, n)))
	args := rescaleArgs{
		Operands: [2]splitOperand{operands[0].arguments(kernels.In(0), again[0]), operands[1].arguments(kernels.In(1), again[1])},
		Batch:    batch, Ranges: [2]blockRanges{{planes[0].ranges, planes[0].blocks}, {planes[1].ranges, planes[1].blocks}},
		// Lines that lie side by side in memory are read faster, and a smaller operand.
		Columns: [2]bool{transA, !transB}, Preferred: n < m,
		Scaling: scaling, Arrivals: scaling,
	}
	if args.Columns[0] != args.Columns[1] {
		args.Preferred = args.Columns[0]
	}
	x := planesProduct{operands, [2]kernels.Ref{planes[0].to, planes[1].to}, again, scaling, k, transA, transB}
	hopper, cut := tensorCoresOf(dev) != mmaCores, hopperPolicies.On(dev).cut(dev, c, k)
	if hopper {
		args.Apart, args.Arrivals, args.Count = true, p.Workspace(max(cut.arrivals(), 1)*4), cut.arrivals()
	}
	// Two blocks a multiprocessor: as many loads on their way as planes that are written again need.
	p.Launch(hopperRescale, int(min(planes[0].blocks+planes[1].blocks, 2*int64(dev.SMs), planesMost)), planesThreads, args)
	if hopper {
		appendHopperPlanes(p, dev, c, x, cut, args.Arrivals)
	} else {
		appendMMAPlanes(p, dev, c, x)
	}
}

// planesProduct is a product of operands in planes, or of those that were written again, as scaling says.
type planesProduct struct {
	operands       [2]Planes
	at, again      [2]kernels.Ref
	scaling        kernels.Ref
	k              int64
	transA, transB bool
}

// planesArgs are the first arguments of the kernels of both sources.
type planesArgs struct {
	Operands              [4]any // A and B, and both as they may be written again: Refs or TensorMaps
	C, Scaling            kernels.Ref
	M, N, K, Batch, Chunk int64 `arg:"int32"`
	LDC                   int64
	epilogueArgs
}

func (x planesProduct) arguments(operands [4]any, c result, to kernels.Ref, chunk int64, e Epilogue) planesArgs {
	return planesArgs{operands, to, x.scaling, c.m, c.n, x.k, c.batch, chunk, c.n, e.arguments(c.dt)}
}

// shareArgs are those after them in matmul_hopper.cu.
type shareArgs struct {
	Shared          int64 `arg:"int32"`
	Parts, Arrivals kernels.Ref
}

// hopperCut is how the tiles of C go to blocks: whole ones, copies for splits of k, or shares of tiles that blocks add up among
// themselves (matmul_shares.cuh).
type hopperCut struct {
	cluster int64 // blocks that work together
	blocks  int64 // clusters
	shared  int64 // tiles of a cluster that are shared
	copies  int64
}

// arrivals returns how many counters the blocks that share tiles need.
func (d hopperCut) arrivals() int64 { return d.shared * d.cluster * 2 }

// parts returns how many elements of parts of tiles they need place for.
func (d hopperCut) parts() int64 {
	if d.shared == 0 {
		return 0
	}
	return d.blocks * d.cluster * 2 * hopperTile * hopperTile
}

// appendHopperPlanes appends the launches of a product of planes by matmul_hopper.cu.
func appendHopperPlanes(p *kernels.Plan, dev kernels.Device, c result, x planesProduct, d hopperCut, arrivals kernels.Ref) {
	kernel, parts := hopperProducts[d.cluster-1][arith.Flag(x.transA)][arith.Flag(x.transB)], p.Workspace(max(d.parts(), 1)*4)
	launch := func(to kernels.Ref, e Epilogue, chunk int64) {
		var maps [4]any
		for i, from := range [][2]kernels.Ref{x.at, x.again} {
			maps[2*i], maps[2*i+1] = x.operands[0].tensorMap(from[0], !x.transA, hopperTile), x.operands[1].tensorMap(from[1], x.transB, hopperTile/d.cluster)
		}
		p.Launch(kernel, int(d.blocks*d.cluster), hopperThreads, x.arguments(maps, c, to, chunk, e), shareArgs{d.shared, parts, arrivals}).Shared = hopperShared
	}
	if d.copies == 1 {
		launch(out, c.epilogue, x.k)
		return
	}
	partial := p.Workspace(d.copies * c.count() * c.dt.Size())
	launch(partial, Epilogue{}, hopperChunk(x.k, d.copies))
	appendCombine(p, dev, c, partial, d.copies)
}

// hopperChunk returns the terms of each of so many splits of k.
func hopperChunk(k, splits int64) int64 {
	return kernels.CeilDiv(kernels.CeilDiv(k, splits), hopperStep) * hopperStep
}

// hopperOperands returns the operands of a product as they are stored.
func hopperOperands(batch, m, n, k int64, transA, transB bool) [2]Planes {
	a, b := Planes{batch, m, k}, Planes{batch, k, n}
	if transA {
		a.Rows, a.Cols = k, m
	}
	if transB {
		b.Rows, b.Cols = n, k
	}
	return [2]Planes{a, b}
}

// planesBody is the product of operands in planes, by the BLAS that Gorgonia uses.
func planesBody(transA, transB bool) func(kernels.Call) {
	return func(c kernels.Call) {
		args := kernels.Args[planesArgs](c)
		out, scaling := kernels.Slice[float32](c, args.C), kernels.Slice[int32](c, args.Scaling)
		m, n, k, batch, chunk, ld := args.M, args.N, args.K, args.Batch, args.Chunk, args.LDC
		lines, scale := int(scaling[2]), 1.0
		if scaling[0] == planesScaled {
			scale = planeScale
		}
		operands := hopperOperands(batch, m, n, k, transA, transB)
		var planes [2][]uint16
		for i := range planes {
			from := i
			if scaling[1]>>i&1 != 0 { // written again
				from += 2
			}
			planes[i] = kernels.Slice[uint16](c, place(args.Operands[from]))
		}
		for matrix := range batch {
			a, b := operands[0].matrix(planes[0], matrix, scale), operands[1].matrix(planes[1], matrix, scale)
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
