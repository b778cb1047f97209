package gemm

import (
	"github.com/stheno-ml/stheno/kernels/internal/arith"
	"math"
	"slices"

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
	args := slices.Concat(operands[0].arguments(kernels.In(0), again[0]), operands[1].arguments(kernels.In(1), again[1]), []any{int32(batch)})
	for _, x := range planes {
		args = append(args, x.ranges, int32(x.blocks))
	}
	// Lines that lie side by side in memory are read faster, and a smaller operand.
	columns, preferred := [2]int32{arith.Flag(transA), arith.Flag(!transB)}, arith.Flag(n < m)
	if columns[0] != columns[1] {
		preferred = columns[0]
	}
	args = append(args, columns[0], columns[1], preferred)
	x := planesProduct{operands, [2]kernels.Ref{planes[0].to, planes[1].to}, again, scaling, k, transA, transB}
	rescale := func(apart int32, arrivals kernels.Ref, count int64) {
		// Two blocks a multiprocessor: as many loads on their way as planes that are written again need.
		p.Launch(hopperRescale, int(min(planes[0].blocks+planes[1].blocks, 2*int64(dev.SMs), planesMost)), planesThreads, append(args, scaling, apart, arrivals, int32(count))...)
	}
	if tensorCoresOf(dev) == mmaCores {
		rescale(0, scaling, 0)
		appendMMAPlanes(p, dev, c, x)
		return
	}
	cut := hopperPolicies.On(dev).cut(dev, c, k)
	arrivals := p.Workspace(max(cut.arrivals(), 1) * 4)
	rescale(1, arrivals, cut.arrivals())
	appendHopperPlanes(p, dev, c, x, cut, arrivals)
}

// planesProduct is a product of operands in planes, or of those that were written again, as scaling says.
type planesProduct struct {
	operands       [2]Planes
	at, again      [2]kernels.Ref
	scaling        kernels.Ref
	k              int64
	transA, transB bool
}

// arguments returns those after the operands of the kernels of both sources.
func (x planesProduct) arguments(c result, to kernels.Ref, chunk int64, e Epilogue) []any {
	args := []any{to, x.scaling, int32(c.m), int32(c.n), int32(x.k), int32(c.batch), int32(chunk), c.n}
	return append(args, e.arguments(kernels.Float32)...)
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
		var args []any
		for _, from := range [][2]kernels.Ref{x.at, x.again} {
			args = append(args, x.operands[0].tensorMap(from[0], !x.transA, hopperTile), x.operands[1].tensorMap(from[1], x.transB, hopperTile/d.cluster))
		}
		args = append(append(args, x.arguments(c, to, chunk, e)...), int32(d.shared), parts, arrivals)
		p.Launch(kernel, int(d.blocks*d.cluster), hopperThreads, args...).Shared = hopperShared
	}
	if d.copies == 1 {
		launch(kernels.At(kernels.Out, 0), c.epilogue, x.k)
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
		out, scaling := kernels.Slice[float32](c, 4), kernels.Slice[int32](c, 5)
		m, n, k, batch, chunk, ld := c.Int(6), c.Int(7), c.Int(8), c.Int(9), c.Int(10), c.Int(11)
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
			planes[i] = kernels.Slice[uint16](c, from)
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
