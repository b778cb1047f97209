package reduce

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

type sumColsArgs struct {
	In, Out, Parts, Arrivals kernels.Ref
	R, Inner, Chunk          int64
	Splits, Tiles            int64 `arg:"int32"`
	Once                     bool
	Div                      float64
}

type sumFewArgs struct {
	In, Out kernels.Ref
	R       int64 `arg:"int32"`
	Inner   int64
	Tiles   int64 `arg:"int32"`
	Div     float64
}

// few are the candidates for few rows, several columns a thread.
func (x pass) few(list []candidate) []candidate {
	const columns, block, most = 4, 256, 64 // columns of a thread, in sum.cu; threads; rows
	if x.in != x.out || x.r > most {
		return list
	}
	tiles := kernels.CeilDiv(x.inner, columns*block)
	threads := arith.RoundUp(kernels.CeilDiv(kernels.CeilDiv(x.inner, tiles), columns), 32)
	c := candidate{work: work{
		kind: few, blocks: x.outer * tiles, threads: threads, rounds: float64(kernels.CeilDiv(x.r, 4)), bytes: x.bytes(), block: float64(columns * threads * x.r * x.in.Size()),
	}}
	c.us = c.time(x.dev)
	c.launch = func(p *kernels.Plan) {
		p.Launch(sumFew[x.in], int(c.blocks), int(threads), sumFewArgs{x.src, x.dst, x.r, x.inner, tiles, x.div})
	}
	return append(list, c)
}

// columns are the candidates whose threads are side by side on columns, and in strands down the rows.
func (x pass) columns(list []candidate) []candidate {
	for side := int64(4); side <= 256; side *= 2 {
		for _, minRows := range [...]int64{8, 2} {
			list = append(list, x.column(side, minRows, 0, true))
			for _, perSM := range [...]int64{1, 3} {
				for _, once := range [...]bool{true, false} {
					if c := x.column(side, minRows, perSM, once); c.params[2] > 1 {
						list = append(list, c)
					}
				}
			}
		}
	}
	return list
}

// hostColumns is the candidate of the host.
func (x pass) hostColumns() candidate {
	pol, side := columnPolicies.On(x.dev), int64(256)
	w := x.columnWidth()
	for side > 32 && x.outer*kernels.CeilDiv(x.inner/w, side) < 2*x.sms() {
		side /= 2
	}
	c := x.column(side, pol.minRows, 0, true)
	if c.blocks < x.sms() {
		c = x.column(side, pol.minRows, pol.blocksPerSM, true)
		if c.ends > float64(pol.maxRounds) {
			c = x.column(side, pol.minRows, pol.blocksPerSM, false)
		}
	}
	return c
}

// columnWidth returns the columns that a thread loads at a time.
func (x pass) columnWidth() int64 {
	if w := 16 / x.in.Size(); x.inner%w == 0 {
		return w
	}
	return 1
}

// column is the candidate with about `side` threads side by side, strands of minRows rows at least, and chunks of rows that make perSM blocks for each SM, or
// none for 0. once: the last block adds up the chunks.
func (x pass) column(side, minRows, perSM int64, once bool) candidate {
	const block, maxRows = 256, 1 << 30 // threads; rows of a chunk: a thread counts them in 31 bits
	w, flight, kernel, kinds := x.columnWidth(), int64(8), sumColsVec, [2]kind{columns, columnsOnce}
	if w == 1 {
		flight, kernel, kinds = 16, sumCols, [2]kind{single, singleOnce}
	}
	units := x.inner / w
	threads := kernels.CeilDiv(units, kernels.CeilDiv(units, side)) // along the columns, which they cover evenly
	strands := max(min(block/threads, kernels.CeilDiv(x.r, minRows)), 1)
	tiles := kernels.CeilDiv(units, threads)
	splits := kernels.CeilDiv(x.r, maxRows)
	if perSM > 0 {
		splits = max(min(x.sms()*perSM/max(x.outer*tiles, 1), x.r/(strands*minRows)), splits, 1)
	}
	chunk := kernels.CeilDiv(x.r, splits)
	splits = max(kernels.CeilDiv(x.r, max(chunk, 1)), 1)
	once = once && splits > 1
	c := candidate{params: [3]int64{threads, strands, splits}, work: work{
		kind: kinds[0], blocks: max(x.outer*tiles, 1) * splits, threads: threads * strands,
		rounds: float64(kernels.CeilDiv(chunk, flight*strands)), bytes: x.bytes(), block: float64(threads * w * chunk * x.in.Size()),
	}}
	if strands > 1 {
		c.shared = threads * strands * w * 8
	}
	if tiles > 1 {
		c.width = threads * w * x.in.Size()
	}
	if once {
		c.kind, c.ends = kinds[1], float64(x.outer*kernels.CeilDiv(x.inner, block)*kernels.CeilDiv(splits, 8))
	}
	if c.us = c.time(x.dev); splits > 1 && !once {
		c.us += x.chunks(x.src, splits).combine().us
	}
	c.launch = func(p *kernels.Plan) {
		args, typ := sumColsArgs{x.src, x.dst, x.dst, arrivals(once, x.dst), x.r, x.inner, chunk, splits, tiles, once, x.div}, x.out
		if splits > 1 {
			args.Parts = p.Workspace(x.outer * splits * x.inner * 8)
			if !once {
				args.Out, args.Div, typ = args.Parts, 1, kernels.Float64
			}
		}
		l := p.Launch(kernel[x.in][typ], int(c.blocks), int(threads), args)
		l.Block[1], l.Shared = int(strands), int(c.shared)
		if splits > 1 && !once {
			x.chunks(args.Parts, splits).combine().launch(p)
		}
	}
	return c
}

func sumFewBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[sumFewArgs](c)
	sumColumns(kernels.Slice[T](c, args.In), kernels.Slice[T](c, args.Out), int64(c.Grid[0])/args.Tiles, args.R, args.Inner, args.R, 1, args.Div)
}

func sumColsBody[In, To kernels.Float](c kernels.Call) {
	args := kernels.Args[sumColsArgs](c)
	parts, chunk, splits := int64(c.Grid[0])/args.Tiles, args.Chunk, args.Splits
	if args.Once { // all chunks of a column, in order
		parts, chunk, splits = parts/splits, args.R, 1
	}
	sumColumns(kernels.Slice[In](c, args.In), kernels.Slice[To](c, args.Out), parts, args.R, args.Inner, chunk, splits, args.Div)
}

// sumColumns adds up the columns of chunks of rows; splits chunks make r rows, with the rest in the last.
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
			j, last := first, r
			if part%splits < splits-1 {
				last = first + chunk
			}
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
