package reduce

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

type sumColsArgs struct {
	In, Out, Parts  kernels.Ref
	R, Inner, Chunk int64
	Splits, Tiles   int64 `arg:"int32"`
	Once            bool
	Div             float64
}

type sumFewArgs struct {
	In, Out kernels.Ref
	R       int64 `arg:"int32"`
	Inner   int64
	Tiles   int64 `arg:"int32"`
	Div     float64
}

// appendSumCols appends the launches that add up columns.
func appendSumCols(p *kernels.Plan, dev kernels.Device, src kernels.Ref, in kernels.Dtype, dst kernels.Ref, out kernels.Dtype, outer, r, inner int64, div float64) {
	w, kernel := 16/in.Size(), sumColsVec
	if inner%w != 0 {
		w, kernel = 1, sumCols
	}
	pol := columnPolicies.On(dev)
	if in == out && appendSumFew(p, dev, src, in, dst, outer, r, inner, div) {
		return
	}
	// The threads along x cover the columns evenly, as many as leave a block for each SM. The threads along y split the rows, as long as
	// each has enough rows.
	units, side := inner/w, pol.block
	for side > 32 && outer*kernels.CeilDiv(units, side) < 2*int64(dev.SMs) {
		side /= 2
	}
	x := kernels.CeilDiv(units, kernels.CeilDiv(units, side))
	y := max(min(pol.block/x, kernels.CeilDiv(r, pol.minRows)), 1)
	tiles := kernels.CeilDiv(units, x)
	blocks := max(outer*tiles, 1)
	splits := kernels.CeilDiv(r, 1<<30) // a thread counts rows in 31 bits
	if blocks < int64(dev.SMs) {
		splits = max(min(int64(dev.SMs)*pol.blocksPerSM/blocks, r/(y*pol.chunkMin)), splits, 1)
	}
	chunk := kernels.CeilDiv(r, splits)
	splits = max(kernels.CeilDiv(r, max(chunk, 1)), 1)
	args, typ := sumColsArgs{src, dst, dst, r, inner, chunk, splits, tiles, false, div}, out
	if splits > 1 {
		args.Parts = p.Workspace(outer * splits * inner * 8)
		rounds := outer * kernels.CeilDiv(inner, pol.block) * kernels.CeilDiv(splits, 8)
		if args.Once = dev.Cooperative && rounds <= pol.maxRounds; !args.Once {
			args.Out, args.Div, typ = args.Parts, 1, kernels.Float64
		}
	}
	l := p.Launch(kernel[in][typ], int(blocks*splits), int(x), args)
	l.Block[1] = int(y)
	l.Cooperative = args.Once
	if y > 1 {
		l.Shared = int(x * y * w * 8)
	}
	if splits > 1 && !args.Once {
		appendSum(p, dev, args.Parts, kernels.Float64, dst, out, outer, splits, inner, div)
	}
}

// appendSumFew appends the launch that adds up columns of few rows, and returns true. It returns false for more rows or too few columns.
func appendSumFew(p *kernels.Plan, dev kernels.Device, src kernels.Ref, dt kernels.Dtype, dst kernels.Ref, outer, r, inner int64, div float64) bool {
	const columns = 4 // of a thread, in sum.cu
	pol := columnPolicies.On(dev)
	tiles := kernels.CeilDiv(inner, columns*pol.block)
	if r > pol.fewMaxRows || outer*tiles < 2*int64(dev.SMs) {
		return false
	}
	threads := arith.RoundUp(kernels.CeilDiv(kernels.CeilDiv(inner, tiles), columns), 32)
	p.Launch(sumFew[dt], int(outer*tiles), int(threads), sumFewArgs{src, dst, r, inner, tiles, div})
	return true
}

func sumFewBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[sumFewArgs](c)
	out := kernels.Slice[T](c, args.Out)
	sumColumns(kernels.Slice[T](c, args.In), out, int64(len(out))/args.Inner, args.R, args.Inner, args.R, 1, args.Div)
}

func sumColsBody[In, To kernels.Float](c kernels.Call) {
	args := kernels.Args[sumColsArgs](c)
	parts, chunk, splits := int64(c.Grid[0])/args.Tiles, args.Chunk, args.Splits
	if args.Once { // all chunks of a column, in order
		parts, chunk, splits = parts/splits, args.R, 1
	}
	sumColumns(kernels.Slice[In](c, args.In), kernels.Slice[To](c, args.Out), parts, args.R, args.Inner, chunk, splits, args.Div)
}

// sumColumns adds up the columns of chunks of rows; splits chunks make r rows.
func sumColumns[In, To kernels.Float](in []In, out []To, parts, r, inner, chunk, splits int64, div float64) {
	// A goroutine adds up a tile of columns of all rows of a chunk, so that the accumulators stay in the L1 cache. It loads and stores them
	// once for eight rows. The order of a column's sum depends only on the rows.
	const tile = 1024
	pieces := kernels.CeilDiv(inner, tile)
	kernels.Parallel(parts*pieces, max(kernels.Grain/(chunk*min(inner, tile)+1), 1), func(lo, hi int64) {
		acc := make([]float64, min(inner, tile))
		for at := lo; at < hi; at++ {
			part, col := at/pieces, at%pieces*tile
			width := min(tile, inner-col)
			first := part % splits * chunk
			acc := acc[:width]
			clear(acc)
			rows := in[part/splits*r*inner+col:]
			j, last := first, min(first+chunk, r)
			for ; j+8 <= last; j += 8 {
				addRows8(acc, rows[j*inner:], inner)
			}
			for ; j < last; j++ {
				row := rows[j*inner:][:len(acc)]
				for i, x := range row {
					acc[i] += float64(x)
				}
			}
			dst := out[part*inner+col:][:len(acc)]
			for i, x := range acc {
				dst[i] = To(x / div)
			}
		}
	})
}

// addRows8 is acc[i] += sum over eight rows j of x[j*ld+i], in double.
func addRows8[T kernels.Float](acc []float64, x []T, ld int64) {
	n := len(acc)
	a, b, c, d := x[:n], x[ld:][:n], x[2*ld:][:n], x[3*ld:][:n]
	e, f, g, h := x[4*ld:][:n], x[5*ld:][:n], x[6*ld:][:n], x[7*ld:][:n]
	for i := range acc {
		acc[i] += ((float64(a[i]) + float64(b[i])) + (float64(c[i]) + float64(d[i]))) +
			((float64(e[i]) + float64(f[i])) + (float64(g[i]) + float64(h[i])))
	}
}
