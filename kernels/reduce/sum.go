package reduce

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
	"github.com/stheno-ml/stheno/kernels/internal/axisgroup"
)

var (
	sumRows    = sumKernels("rows", sumRowsBody[float32, float32], sumRowsBody[float32, float64], sumRowsBody[float64, float32], sumRowsBody[float64, float64])
	sumTile    = sumKernels("tile", sumTileBody[float32, float32], sumTileBody[float32, float64], sumTileBody[float64, float32], sumTileBody[float64, float64])
	sumCols    = sumKernels("cols", sumColsBody[float32, float32], sumColsBody[float32, float64], sumColsBody[float64, float32], sumColsBody[float64, float64])
	sumColsVec = sumKernels("colsvec", sumColsBody[float32, float32], sumColsBody[float32, float64], sumColsBody[float64, float32], sumColsBody[float64, float64])
	sumStrip   = sumKernels("strip", sumStripBody[float32, float32], sumStripBody[float32, float64], sumStripBody[float64, float32], sumStripBody[float64, float64])
	sumJoined  = sumKernels("joined", sumJoinedBody[float32, float32], sumJoinedBody[float32, float64], sumJoinedBody[float64, float32], sumJoinedBody[float64, float64])
	sumFew     = own.Pair("sum", "sum_few", sumFewBody[float32], sumFewBody[float64])
)

// sumKernels returns kernels by input and output type.
func sumKernels(name string, ff, fd, df, dd func(kernels.Call)) [2][2]*kernels.Kernel {
	kernel := func(types string, body func(kernels.Call)) *kernels.Kernel {
		return own.Kernel("sum", "sum_"+name+types, body)
	}
	return [2][2]*kernels.Kernel{{kernel("_f32", ff), kernel("_f32_f64", fd)}, {kernel("_f64_f32", df), kernel("_f64", dd)}}
}

// rowsArgs are the last arguments of sum_rows and dot_rows.
type rowsArgs struct {
	Out, Parts, Arrivals kernels.Ref
	N, Chunk             int64
	Splits               int64 `arg:"int32"`
	Once                 bool
	Div                  float64
}

type sumRowsArgs struct {
	In kernels.Ref
	rowsArgs
}

type sumTileArgs struct {
	In, Out              kernels.Ref
	Slabs                int64
	R, Inner, Per, Lanes int64 `arg:"int32"`
	Div                  float64
}

// Sum plans out = (sum of in over axes) / div, in row-major order: div is 1, or the number of terms for the mean. axes holds distinct axes of shape.
func Sum(dev kernels.Device, dt kernels.Dtype, shape, axes []int, mean bool) *kernels.Plan {
	terms := int64(1)
	for _, a := range axes {
		terms *= int64(shape[a])
	}
	n := kernels.Count(shape)
	out := int64(1)
	for a, d := range shape {
		if !slices.Contains(axes, a) {
			out *= int64(d)
		}
	}
	div, name := 1.0, "sum"
	if mean {
		div, name = float64(terms), "mean"
	}
	p := &kernels.Plan{Op: fmt.Sprintf("%s_%v(%v over %v)", name, dt, shape, axes), Inputs: []int64{n * dt.Size()}, Out: out * dt.Size(), Flops: n}
	if out == 0 {
		return p
	}
	groups := axisgroup.Merge(shape, axes)
	passes := 0
	for _, g := range groups {
		if g.Chosen {
			passes++
		}
	}
	if passes == 2 && appendSumTwice(p, dev, dt, groups, terms, div) {
		return p
	}
	src, in := kernels.In(0), dt
	for ; passes > 1; passes-- {
		var k int // the longest reduction first: it shrinks the data most
		for i, g := range groups {
			if g.Chosen && (!groups[k].Chosen || g.N > groups[k].N) {
				k = i
			}
		}
		outer, r, inner := axisgroup.Around(groups, k)
		dst := p.Workspace(outer * inner * 8)
		appendSum(p, dev, src, in, dst, kernels.Float64, outer, r, inner, 1)
		src, in = dst, kernels.Float64
		groups = axisgroup.Drop(groups, k)
	}
	k := slices.IndexFunc(groups, func(g axisgroup.Group) bool { return g.Chosen })
	outer, r, inner := axisgroup.Around(groups, k)
	appendSum(p, dev, src, in, kernels.At(kernels.Out, 0), dt, outer, r, inner, div)
	return p
}

// AppendSum appends the launches that add up n elements at src, of type in, into the
// element at dst, of type out, in an order that depends on n and dev alone.
func AppendSum(p *kernels.Plan, dev kernels.Device, src kernels.Ref, in kernels.Dtype, n int64, dst kernels.Ref, out kernels.Dtype) {
	appendSum(p, dev, src, in, dst, out, 1, n, 1, 1)
}

// appendSum appends the launches that reduce src[outer][r][inner] to dst[outer][inner], dividing by div.
func appendSum(p *kernels.Plan, dev kernels.Device, src kernels.Ref, in kernels.Dtype, dst kernels.Ref, out kernels.Dtype, outer, r, inner int64, div float64) {
	const copyMaxBytes = 1 << 23 // larger copies go through tiles
	if r == 1 && dev.Kind != kernels.CPU && outer*inner*in.Size() <= copyMaxBytes {
		outer, inner = 1, outer*inner
	}
	pass{dev, in, out, src, dst, outer, r, inner, div}.append(p)
}

// tiles are the candidates whose blocks copy slabs to shared memory.
func (x pass) tiles(list []candidate) []candidate {
	pol := tilePolicies.On(x.dev)
	for _, pol.maxBytes = range [...]int64{1 << 15, 1 << 14} {
		for _, pol.blocksPerSM = range [...]int64{4, 1, 8} {
			if per, lanes := pol.tile(x.dev, x.in, x.outer, x.r, x.inner); per > 0 {
				list = append(list, x.tile(int64(pol.block), per, lanes))
			}
		}
	}
	return list
}

// tile is the candidate with so many slabs a block, and lanes for each output.
func (x pass) tile(block, per, lanes int64) candidate {
	slabs := per * x.r * x.inner
	c := candidate{params: [3]int64{per, lanes}, work: work{
		kind: tile, blocks: kernels.CeilDiv(x.outer, per), threads: block, shared: slabs*x.in.Size() + 16, // the first element may be unaligned
		rounds: 1, ends: float64(kernels.CeilDiv(per*x.inner*lanes, block) * kernels.CeilDiv(x.r, lanes)), bytes: x.bytes(), block: float64(slabs * x.in.Size()),
	}}
	c.us = c.time(x.dev)
	c.launch = func(p *kernels.Plan) {
		p.Launch(sumTile[x.in][x.out], int(c.blocks), int(block), sumTileArgs{x.src, x.dst, x.outer, x.r, x.inner, per, lanes, x.div}).Shared = int(c.shared)
	}
	return c
}

// rows are the candidates with a block for each row, or for each chunk of a row.
func (x pass) rows(list []candidate) []candidate {
	for _, block := range [...]int64{256, 128, 64} {
		list = append(list, x.row(block, 1, x.r))
		for _, perSM := range [...]int64{1, 2, 4} {
			pol := rowPolicy{blocksPerSM: perSM, chunkMin: 1 << 11}
			if splits, chunk := pol.split(x.dev, x.outer, x.r); splits > 1 {
				list = append(list, x.row(block, splits, chunk))
			}
		}
	}
	return list
}

// row is the candidate with so many chunks of each row.
func (x pass) row(block, splits, chunk int64) candidate {
	c := candidate{params: [3]int64{block, splits}, work: work{
		kind: row, blocks: x.outer * splits, threads: block,
		rounds: float64(kernels.CeilDiv(chunk*x.in.Size(), 64*block)), bytes: x.bytes(), block: float64(chunk * x.in.Size()),
	}}
	if splits > 1 {
		c.kind, c.ends = rowOnce, float64(kernels.CeilDiv(x.outer, block/32)*kernels.CeilDiv(splits, 32))
	}
	c.us = c.time(x.dev)
	c.launch = func(p *kernels.Plan) {
		appendRows(p, sumRows[x.in][x.out], x.src, x.dst, block, x.outer, x.r, splits, chunk, x.div)
	}
	return c
}

// appendRows appends the launch of a kernel that adds up rows of n terms; its arguments are src, then rowsArgs.
func appendRows(p *kernels.Plan, k *kernels.Kernel, src any, dst kernels.Ref, block, rows, n, splits, chunk int64, div float64) {
	parts := dst
	if splits > 1 {
		parts = p.Workspace(rows * splits * 8)
	}
	p.Launch(k, int(rows*splits), int(block), src, rowsArgs{dst, parts, arrivals(splits > 1, dst), n, chunk, splits, splits > 1, div})
}

// arrivals returns [kernels.Arrivals] for a launch whose last block adds up what the others leave, and unused for another.
func arrivals(once bool, unused kernels.Ref) kernels.Ref {
	if once {
		return kernels.At(kernels.Arrivals, 0)
	}
	return unused
}

// tile returns the number of slabs of r x inner elements of a tile, and the number of lanes that add up an output. It returns 0 if
// a slab fits no tile, if an output has too many terms, or if there are too few slabs.
func (pol tilePolicy) tile(dev kernels.Device, in kernels.Dtype, slabs, r, inner int64) (per, lanes int64) {
	if inner > 1 && slabs < int64(dev.SMs) && slabs*r*inner > pol.fewSlabsMax {
		return 0, 0
	}
	row := r // of one column
	if inner > 1 {
		row = 1
	}
	return pol.lanes(dev, in, slabs, inner, r, row, 64/banks(inner))
}

// lanes returns the number of slabs of a tile and the number of lanes of an output, `most` of them at most, for slabs of outputs of some
// terms each, stored in rows. It returns 0 if a slab fits no tile, or if an output has too many terms.
func (pol tilePolicy) lanes(dev kernels.Device, in kernels.Dtype, slabs, outputs, terms, row, most int64) (per, lanes int64) {
	slab := outputs * terms * in.Size()
	if slab > pol.maxBytes {
		return 0, 0
	}
	per = max(min(pol.maxBytes/slab, kernels.CeilDiv(slabs, int64(dev.SMs)*pol.blocksPerSM)), 1)
	// As many lanes as keep most threads busy, but at most four in a bank. Lanes of neighbouring rows share a bank if the
	// length of rows is a multiple of a power of two, and lanes of an output if the number of columns is.
	lanes = min(max(arith.Pow2(kernels.CeilDiv(pol.minBusy, per*outputs)), banks(row)/4), arith.Pow2(terms), 32, most)
	if kernels.CeilDiv(terms, lanes) > pol.maxTerms {
		return 0, 0
	}
	return per, lanes
}

// banks returns the number of 32 lanes that share a bank of shared memory, if neighbouring lanes access elements n apart.
func banks(n int64) int64 { return min(n&-n, 32) }

// split returns the number of chunks of each row and the elements of a chunk. All blocks are co-resident and fill the device.
func (pol rowPolicy) split(dev kernels.Device, rows, n int64) (splits, chunk int64) {
	splits = min(int64(dev.SMs)*pol.blocksPerSM/max(rows, 1), n/pol.chunkMin)
	if splits <= 1 {
		return 1, n
	}
	if n-n/splits < pol.splitMinGain*rows && rows > 1 {
		return 1, n
	}
	chunk = kernels.CeilDiv(kernels.CeilDiv(n, splits), 64) * 64 // chunks start 16-byte aligned where rows do
	return kernels.CeilDiv(n, chunk), chunk
}

func sumRowsBody[In, To kernels.Float](c kernels.Call) {
	args := kernels.Args[sumRowsArgs](c)
	in := kernels.Slice[In](c, args.In)
	reduceRows[To](c, args.rowsArgs, func(from, to int64) float64 { return arith.Sum(in[from:to]) })
}

// reduceRows adds up rows by add.
func reduceRows[To kernels.Float](c kernels.Call, args rowsArgs, add func(from, to int64) float64) {
	out, n, chunk, splits := kernels.Slice[To](c, args.Out), args.N, args.Chunk, args.Splits
	sums := make([]float64, c.Grid[0])
	kernels.Parallel(int64(len(sums)), max(kernels.Grain/chunk, 1), func(lo, hi int64) {
		for b := lo; b < hi; b++ {
			row, first := b/splits*n, b%splits*chunk
			sums[b] = add(row+first, row+min(first+chunk, n))
		}
	})
	if args.Once {
		for b := range sums[:int64(len(sums))/splits] {
			sums[b] = arith.Sum(sums[int64(b)*splits:][:splits])
		}
		sums = sums[:int64(len(sums))/splits]
	}
	for b, sum := range sums {
		out[b] = To(sum / args.Div)
	}
}

func sumTileBody[In, To kernels.Float](c kernels.Call) {
	args := kernels.Args[sumTileArgs](c)
	in, out, r, inner, div := kernels.Slice[In](c, args.In), kernels.Slice[To](c, args.Out), args.R, args.Inner, args.Div
	kernels.Parallel(args.Slabs, kernels.Grain/max(r*inner, 1), func(lo, hi int64) {
		acc := make([]float64, inner)
		for s := lo; s < hi; s++ {
			slab := in[s*r*inner:][:r*inner]
			if inner == 1 {
				out[s] = To(arith.Sum(slab) / div)
				continue
			}
			clear(acc)
			for ; len(slab) > 0; slab = slab[inner:] {
				for i, x := range slab[:inner] {
					acc[i] += float64(x)
				}
			}
			for i, x := range acc {
				out[s*inner+int64(i)] = To(x / div)
			}
		}
	})
}
