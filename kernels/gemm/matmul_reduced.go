package gemm

import (
	"strings"

	"github.com/stheno-ml/stheno/internal/align"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// byTrans returns the kernels prefix + "nn" to "tt" of a source, by the operands that are transposed.
func byTrans(stem, prefix string, body func(transA, transB bool) func(kernels.Call)) (k [2][2]*kernels.Kernel) {
	for a, transA := range []string{"n", "t"} {
		for b, transB := range []string{"n", "t"} {
			k[a][b] = own.Kernel(stem, prefix+transA+transB, body(a == 1, b == 1))
		}
	}
	return k
}

// reduced is a kernel of matmul_hopper.cu or matmul_mma.cu for operands in TF32, BF16 or F16, whose sums are float32. Those of TF32 have rows
// along K. element is the time of an element of the tile, relative to that of others.
func reduced(stem, name string, f Form, on func(kernels.Device) bool, t tile, element kernels.Measured[float64]) *candidate {
	by := kernels.Precision(f)
	c := &candidate{name: name, form: f, able: limits{on: on, also: func(_ *candidate, x *problem) bool { return x.Round == by && countable(x) }}, tile: t,
		split: splitPolicy{blocksPerSM: 1, minK: 128}, element: element, cut: cutReduced, all: cutsReduced, rounds: true, special: emitReduced}
	if c.m = tensorTile; f == TF32 {
		c.kernels[0][1] = own.Kernel(stem, "matmul_"+name+"_nt", reducedBody(f)(false, true))
	} else {
		c.kernels = byTrans(stem, "matmul_"+name+"_", reducedBody(f))
	}
	return c
}

// clustered returns a kernel of matmul_hopper.cu with clusters of down x across blocks, one or two each: their tiles, one above the other and side by side, share columns
// of B and rows of A.
func clustered(of *candidate, suffix string, down, across int64) *candidate {
	c := of.copy()
	c.name += suffix
	c.cluster, c.across = down*across, across
	c.m, c.n = c.m*down, c.n*across
	return c
}

// block returns the columns of the tile of a block.
func (t *tile) block() int64 { return t.n / max(t.across, 1) }

// countable reports whether the kernels can count rows, columns, K, matrices, tiles and vectors of 8 elements in 32 bits.
func countable(x *problem) bool {
	const most = 1 << 30
	vectors := func(side int64) bool {
		return float64(x.Batch)*(float64(side)*float64(x.K)/8+float64(max(side, x.K))) <= most
	}
	return min(x.Batch, x.M, x.N, x.K) > 0 && max(x.Batch, x.M, x.N, x.K) <= most && vectors(x.M) && vectors(x.N)
}

// quarter reports whether operands of so many bytes an element take at most a quarter of the memory.
func quarter(x *problem, bytes int64) bool {
	return x.dev.Memory == 0 || bytes*x.Batch*(x.M*x.K+x.K*x.N) <= x.dev.Memory/4
}

// cutReduced takes the time that tiles of the group would take, those of the busiest SM one after the other.
func cutReduced(c *candidate, x *problem) (cut, bool) {
	tiles, split := c.count(x)*max(c.cluster, 1), c.split
	if x.single() {
		split = splitPolicy{}
	}
	d := split.cut(x, tiles)
	d.us = float64(kernels.CeilDiv(tiles, x.sms())*c.block()) * c.element.On(x.dev)
	return d, true
}

// single reports whether the kernel stores C itself: another launch adds up splits of K in float32 alone.
func (x *problem) single() bool { return x.halves() || x.Also != Plain }

// cutsReduced lists the cuts of a kernel of matmul_hopper.cu: whole tiles, partial sums that another launch adds up, and parts of K that clusters add up.
func cutsReduced(c *candidate, x *problem, list []cut) []cut {
	d, _ := cutReduced(c, x)
	list = append(list, d)
	tiles, steps, cluster := c.count(x), kernels.CeilDiv(x.K*c.form.stored().size, c.form.stored().slice), max(c.cluster, 1)
	if c.split.blocksPerSM > 0 && !x.single() {
		one := *c
		counts, tried := splitCounts(x, max(tiles, 1), 4)
		for _, n := range counts[:tried] {
			if one.split.exactly = n; n > 1 && x.K/n < 32 {
				break
			}
			d, _ := cutReduced(&one, x)
			list = append(list, d)
		}
	}
	if !c.divides() || !isHopper(x.dev) {
		return list
	}
	unit := c.form.stored().slice / c.form.stored().size
	for n := int64(2); n*cluster <= maxCluster && n <= steps && tiles <= x.clusters(n*cluster); n++ {
		// The sums of other parts have to fit where stages were: of all parts those of the rows of a warp in eight, or of several.
		if stage := (tensorTile + c.block()) * 128; kernels.CeilDiv(8, n)*n*16*c.block()*4 > hopperRing/stage*stage {
			continue
		}
		list = append(list, cut{parts: n, chunk: kernels.CeilDiv(steps, n) * unit, blocks: n * cluster * tiles})
	}
	return list
}

// divides reports whether clusters of the kernel's blocks add up parts of K: of operands in 16 bits on 9.0.
func (c *candidate) divides() bool {
	_, half := c.form.half()
	return half && c.rounds && strings.HasPrefix(c.name, "hopper_")
}

// clustersOf132 are the clusters of so many blocks, each alone on its SM, that an H100 of 132 SMs runs at once: with one more, drawn products took 1.4 to 1.7 times as long.
var clustersOf132 = [...]int64{3: 39, 4: 30, 5: 22, 6: 16, 7: 15, 8: 13}

// clusters returns how many clusters of so many blocks run at once.
func (x *problem) clusters(blocks int64) int64 {
	if blocks <= 2 {
		return x.sms() / blocks
	}
	return clustersOf132[blocks] * x.sms() / 132
}

// hopperRing is the bytes for stages of slices of rounded operands.
const hopperRing = 4 * 128 * (tensorTile + 256)

// maxCluster is the most blocks of a cluster.
const maxCluster = 8

// emitReduced launches a product of rounded operands, after the launch that rounds those that were not prepared and are not as the kernel
// reads them.
func emitReduced(c *candidate, p *kernels.Plan, x *problem, d cut) {
	operands, at := x.Prepares(c.form), [2]kernels.Ref{x.a, x.b}
	if !x.rounded() {
		var list []conversion
		for i, o := range operands {
			if !o.IsNoOp(x.dev) {
				to := p.Workspace(o.bytes())
				list = append(list, conversion{Prepare: o, from: at[i], to: to})
				at[i] = to
			}
		}
		appendRound(p, x.dev, list)
	}
	transA, transB, also, halves := x.A.Trans, x.B.Trans, out, int64(0)
	if c.form == TF32 {
		transA, transB = false, true
	}
	if x.Also != Plain {
		also.Offset, halves = p.Parts[1], halfAlso
	} else if x.C != Plain {
		halves = halfAlone
	}
	for i, slot := range x.epilogue.slots {
		if isHalf(x.epilogue.dtype(slot, x.Dtype)) {
			halves |= halfOperand << i
		}
	}
	x.launch(p, d, func(to kernels.Ref, e epilogueArgs) {
		args := reducedArgs{at[0], at[1], to, x.M, x.N, x.K, x.Batch, d.chunk, x.N, e, also, halves}
		kernel := c.kernels[arith.Flag(transA)][arith.Flag(transB)]
		if !hasWGMMA(x.dev) {
			p.Launch(kernel, int(d.blocks), c.threads, args).Shared = int(c.shared)
			return
		}
		// A block fetches so many lines of A and B at once. With parts of K it computes one tile.
		cluster, across, parts, blocks := max(c.cluster, 1), max(c.across, 1), max(d.parts, 1), d.blocks
		down := cluster / across
		if parts == 1 {
			blocks = min(blocks, max(x.clusters(cluster), 1)*cluster)
		} else {
			args.Chunk = arith.RoundUp(x.K, d.chunk)
		}
		args.A, args.B = operands[0].tensorMap(at[0], !transA, tensorTile/across), operands[1].tensorMap(at[1], transB, c.block()/down)
		l := p.Launch(kernel, int(blocks), c.threads, hopperReducedArgs{args, (down - 1) | (across-1)<<4 | parts<<8})
		if l.Shared = int(c.shared); cluster*parts > 1 {
			l.Cluster = int(cluster * parts)
		}
	})
}

// reducedArgs are the arguments of the kernels; operands are Refs or TensorMaps.
type reducedArgs struct {
	A, B                  any
	C                     kernels.Ref
	M, N, K, Batch, Chunk int64 `arg:"int32"`
	LDC                   int64
	epilogueArgs
	Also   kernels.Ref // C in 16 bits
	Halves int64       `arg:"int32"` // what is in 16 bits
}

// hopperReducedArgs are those of matmul_hopper.cu, whose last one describes clusters.
type hopperReducedArgs struct {
	reducedArgs
	Cluster int64 `arg:"int32"`
}

// The bits of Halves: see matmul_halves.cuh.
const halfAlso, halfAlone, halfOperand = 1, 2, 4

// alsoBody is the Go body of a product that also writes C in 16 bits.
func (p Product) alsoBody(product func(kernels.Call)) func(kernels.Call) {
	return func(c kernels.Call) {
		x := kernels.Args[reducedArgs](c)
		from, to := kernels.Slice[float32](c, x.C)[:x.M*x.N*x.Batch], kernels.Slice[uint16](c, x.Also)
		product(c)
		roundRows(p.Round, from, to, 1, int64(len(from)), int64(len(from)))
	}
}

// storedBody is the Go body of a product that writes C in 16 bits alone.
func (p Product) storedBody(product func(kernels.Call)) func(kernels.Call) {
	return func(c kernels.Call) {
		x := kernels.Args[reducedArgs](c)
		sums, to := align.Make[float32](x.M*x.N*x.Batch), kernels.Slice[uint16](c, x.Also)
		product(c.WithOutput(kernels.Bytes(sums)))
		roundRows(p.Round, sums, to, 1, int64(len(sums)), int64(len(sums)))
	}
}

// reducedBody is the product of rounded operands, by the BLAS.
func reducedBody(f Form) func(transA, transB bool) func(kernels.Call) {
	return func(transA, transB bool) func(kernels.Call) {
		return func(c kernels.Call) {
			args := kernels.Args[reducedArgs](c)
			x := operands(f, args.Batch, args.M, args.N, args.K, transA, transB)
			a, b := x[0].numbers(c, args.A), x[1].numbers(c, args.B)
			gemms(c.BLAS(), transA, transB, args.M, args.N, args.K, a, x[0].Cols, x[0].Rows*x[0].Cols, b, x[1].Cols, x[1].Rows*x[1].Cols,
				kernels.Slice[float32](c, args.C), args.Batch, args.Chunk, kernels.CeilDiv(args.K, args.Chunk))
		}
	}
}
