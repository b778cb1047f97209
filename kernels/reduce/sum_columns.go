package reduce

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

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
	// Threads side by side cover the columns, evenly, as many as leave all multiprocessors a
	// block. The rest of the block goes down the rows, as long as each has enough of them.
	units, side := inner/w, pol.block
	for side > 32 && outer*kernels.CeilDiv(units, side) < 2*int64(dev.SMs) {
		side /= 2
	}
	x := kernels.CeilDiv(units, kernels.CeilDiv(units, side))
	y := max(min(pol.block/x, kernels.CeilDiv(r, pol.rows)), 1)
	tiles := kernels.CeilDiv(units, x)
	blocks := max(outer*tiles, 1)
	splits := kernels.CeilDiv(r, 1<<30) // a thread counts rows in 31 bits
	if blocks < int64(dev.SMs) {
		splits = max(min(int64(dev.SMs)*pol.blocks/blocks, r/(y*pol.chunk)), splits, 1)
	}
	chunk := kernels.CeilDiv(r, splits)
	splits = max(kernels.CeilDiv(r, max(chunk, 1)), 1)
	to, parts, typ, d, once := dst, dst, out, div, int32(0)
	if splits > 1 {
		parts = p.Workspace(outer * splits * inner * 8)
		if turns := outer * kernels.CeilDiv(inner, pol.block) * kernels.CeilDiv(splits, 8); dev.Cooperative && turns <= pol.turns {
			once = 1
		} else {
			to, typ, d = parts, kernels.Float64, 1
		}
	}
	l := p.Launch(kernel[in][typ], int(blocks*splits), int(x), src, to, parts, r, inner, chunk, int32(splits), int32(tiles), once, d)
	l.Block[1] = int(y)
	l.Cooperative = once != 0
	if y > 1 {
		l.Shared = int(x * y * w * 8)
	}
	if splits > 1 && once == 0 {
		appendSum(p, dev, parts, kernels.Float64, dst, out, outer, splits, inner, div)
	}
}

// appendSumFew appends the launch that adds up few rows of columns, and reports whether there are so few, and columns enough.
func appendSumFew(p *kernels.Plan, dev kernels.Device, src kernels.Ref, dt kernels.Dtype, dst kernels.Ref, outer, r, inner int64, div float64) bool {
	const columns = 4 // of a thread, in sum.cu
	pol := columnPolicies.On(dev)
	tiles := kernels.CeilDiv(inner, columns*pol.block)
	if r > pol.few || outer*tiles < 2*int64(dev.SMs) {
		return false
	}
	threads := arith.RoundUp(kernels.CeilDiv(kernels.CeilDiv(inner, tiles), columns), 32)
	p.Launch(sumFew[dt], int(outer*tiles), int(threads), src, dst, int32(r), inner, int32(tiles), div)
	return true
}

func sumFewBody[T kernels.Float](c kernels.Call) {
	in, out, r, inner, div := kernels.Slice[T](c, 0), kernels.Slice[T](c, 1), c.Int(2), c.Int(3), c.Float(5)
	sumColumns(in, out, int64(len(out))/inner, r, inner, r, 1, div)
}

func sumColsBody[In, To kernels.Float](c kernels.Call) {
	in, out := kernels.Slice[In](c, 0), kernels.Slice[To](c, 1)
	r, inner, chunk, splits, tiles, once, div := c.Int(3), c.Int(4), c.Int(5), c.Int(6), c.Int(7), c.Int(8), c.Float(9)
	if once != 0 { // the chunks one after the other
		chunk, splits = r, 1
	}
	parts := int64(c.Grid[0]) / tiles
	if once != 0 {
		parts /= c.Int(6)
	}
	sumColumns(in, out, parts, r, inner, chunk, splits, div)
}

// sumColumns adds up the columns of chunks of rows; splits of them make r rows.
func sumColumns[In, To kernels.Float](in []In, out []To, parts, r, inner, chunk, splits int64, div float64) {
	// One goroutine takes a part of the columns through all rows of a chunk, a
	// tile of columns at a time so that the accumulators stay in the first-level
	// cache, and eight rows at a time, so that they are read and written once for
	// eight elements. A column's order depends on its rows alone.
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
