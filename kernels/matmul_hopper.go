package kernels

import (
	"math"
	"slices"
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
var hopperProducts = [2][2][2]*Kernel{hopperKernels("matmul_hopper_f32_"), hopperKernels("matmul_hopper_f32_pair_")}

// hopperKernels returns the kernels of the entry points prefix + "nn" to "tt".
func hopperKernels(prefix string) (k [2][2]*Kernel) {
	for a, transA := range []string{"n", "t"} {
		for b, transB := range []string{"n", "t"} {
			k[a][b] = own.Kernel("matmul_hopper", prefix+transA+transB, hopperBody(a == 1, b == 1))
		}
	}
	return k
}

// hopperFits reports whether plans use matmul_hopper.cu for a float32 product: one that
// is large enough for it, on a device that it is compiled for, and not so large that its
// planes take more than a quarter of the memory.
func hopperFits(dev Device, batch, m, n, k int64) bool {
	const most = 1 << 30 // the kernel counts rows, columns, terms, matrices and tiles in 32 bits
	tiles := CeilDiv(m, hopperTile) * CeilDiv(n, hopperTile) * batch
	pol := hopperPolicies.on(dev)
	return pol.chosen && dev.Major == 9 && dev.Minor == 0 && max(batch, m, n, k) <= most && tiles <= most &&
		min(m, n) > hopperTile/2 && k >= pol.terms && float64(batch)*float64(m)*float64(n)*float64(k) >= pol.products*float64(dev.SMs) &&
		(dev.Memory == 0 || 6*batch*(m*k+k*n) <= dev.Memory/4)
}

// matmulHopper appends the launches of a float32 product on the tensor cores of
// compute capability 9.0: the planes of those operands for which made has none; planes
// again, in scratch memory, if the ranges of both ask for it; then the six products of planes.
func (p *Plan) matmulHopper(dev Device, c result, k int64, transA, transB bool, made [2]*Ref) {
	batch, m, n := c.batch, c.m, c.n
	operands := hopperOperands(batch, m, n, k, transA, transB)
	var planes [2]planar
	var again [2]Ref
	var missing []*planar
	for i, x := range operands {
		planes[i] = planar{x, Ref{Operand(i), 0}, p.Workspace(x.bytes()), Ref{}, 0}
		again[i] = planes[i].to
		if made[i] == nil {
			missing = append(missing, &planes[i])
			continue
		}
		planes[i].to, planes[i].ranges = *made[i], Ref{made[i].Operand, made[i].Offset + x.bytes()}
		planes[i].blocks = planesBlocks(dev, x)[0]
	}
	if len(missing) > 0 {
		missing[0].ranges = p.Workspace(hopperRanges)
	}
	p.planes(dev, missing...)
	scaling := p.Workspace(3 * 4)
	args := slices.Concat(operands[0].arguments(Ref{0, 0}, again[0]), operands[1].arguments(Ref{1, 0}, again[1]), []any{int32(batch)})
	for _, x := range planes {
		args = append(args, x.ranges, int32(x.blocks))
	}
	p.Launch(hopperRescale, int(min(planes[0].blocks+planes[1].blocks, int64(dev.SMs))), planesThreads, append(args, scaling)...)

	pol := hopperPolicies.on(dev)
	cluster := int64(1)
	if CeilDiv(m, hopperTile)*CeilDiv(n, hopperTile)*batch >= pol.pairs*int64(dev.SMs) && m > hopperTile {
		cluster = 2
	}
	tiles := CeilDiv(m, cluster*hopperTile) * cluster * CeilDiv(n, hopperTile) * batch
	kernel := hopperProducts[cluster-1][flag(transA)][flag(transB)]
	p.split(dev, c, tiles, splitPolicy{blocks: 1, terms: pol.least}, k, func(to Ref, e Epilogue, splits, chunk int64) {
		var args []any
		for _, from := range [][2]Ref{{planes[0].to, planes[1].to}, again} {
			args = append(args, operands[0].tensorMap(from[0], !transA, hopperTile), operands[1].tensorMap(from[1], transB, hopperTile/cluster))
		}
		args = append(args, to, scaling, int32(m), int32(n), int32(k), int32(batch), int32(chunk), n)
		p.Launch(kernel, int(min(tiles*splits, max(int64(dev.SMs)/cluster, 1)*cluster)), hopperThreads, append(args, e.arguments(Float32)...)...).Shared = hopperShared
	})
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

// hopperBody is the product of operands in planes, by the BLAS that Gorgonia uses.
func hopperBody(transA, transB bool) func(Call) {
	return func(c Call) {
		out, scaling := Slice[float32](c, 4), Slice[int32](c, 5)
		m, n, k, batch, chunk, ld := c.Int(6), c.Int(7), c.Int(8), c.Int(9), c.Int(10), c.Int(11)
		e, scale := -int(scaling[0]+scaling[1]), 1.0
		if scaling[2] != 0 {
			scale = planeScale
		}
		operand := func(i int) (Planes, []uint16) {
			if scaling[i] != 0 || scaling[2] != 0 { // written again
				i += 2
			}
			t := c.Args[i].(TensorMap)
			return Planes{batch, t.Extents[1], t.Extents[0]}, Slice[uint16](c, i)
		}
		mapA, planesA := operand(0)
		mapB, planesB := operand(1)
		for matrix := range batch {
			a, b := mapA.matrix(planesA, matrix, scale), mapB.matrix(planesB, matrix, scale)
			for split := range CeilDiv(k, chunk) {
				k0 := split * chunk
				a, b := fromTerm(a, k0, mapA.Cols, transA), fromTerm(b, k0, mapB.Cols, !transB)
				to := out[(split*batch+matrix)*m*ld:][:m*ld]
				gemm(c.blas, transA, transB, m, n, min(chunk, k-k0), a, mapA.Cols, b, mapB.Cols, to)
				if e != 0 {
					for i, v := range to {
						to[i] = float32(math.Ldexp(float64(v), e))
					}
				}
			}
		}
	}
}
