package reduce

import "github.com/stheno-ml/stheno/kernels"

var sumUnaligned = own.Kernel("sum", "sum_unaligned_f32", sumUnalignedBody)

type sumUnalignedArgs struct {
	In, Out         kernels.Ref
	R, Inner, Chunk int64
	Splits, Tiles   int64 `arg:"int32"`
	Wide            bool
	Div             float64
}

const unalignedWidth = 4 // elements of a vector of sum_unaligned

// unaligned are the candidates that load vectors of float32 where rows are not whole vectors.
func (x pass) unaligned(list []candidate) []candidate {
	const w, least = unalignedWidth, 48 // rows: sum_few is faster for fewer
	if x.in != kernels.Float32 || x.inner%w == 0 || x.inner < 4*w || x.r < least {
		return list
	}
	period, units := w/(x.inner&-x.inner), kernels.CeilDiv(x.inner, w) // period: rows that are whole vectors
	for side := int64(8); side <= 64; side *= 2 {
		tiles := kernels.CeilDiv(units, side-1)
		threads := kernels.CeilDiv(units, tiles) + 1 // one that the next tile has, too
		for _, block := range [...]int64{256, 128} {
			for _, minRows := range [...]int64{8, 2} {
				strands := min(block/threads, kernels.CeilDiv(x.r, minRows)) / period * period
				if strands == 0 {
					continue
				}
				list = append(list, x.vectors(threads, strands, 1))
				for _, perSM := range [...]int64{1, 3} {
					if splits := min(x.sms()*perSM/(x.outer*tiles), x.r/(strands*minRows)); splits > 1 {
						list = append(list, x.vectors(threads, strands, splits))
					}
				}
			}
		}
	}
	return list
}

// vectors is the candidate of sum_unaligned with so many threads along the columns, strands, and splits of the rows.
func (x pass) vectors(threads, strands, splits int64) candidate {
	const flight = 8
	columns := (threads - 1) * unalignedWidth
	tiles, chunk := kernels.CeilDiv(x.inner, columns), kernels.CeilDiv(x.r, splits)
	splits = kernels.CeilDiv(x.r, chunk)
	c := candidate{params: [3]int64{threads, strands, splits}, work: work{
		kind: unaligned, blocks: x.outer * tiles * splits, threads: threads * strands, shared: columns * strands * 8,
		rounds: float64(kernels.CeilDiv(chunk, flight*strands)), ends: float64(strands), bytes: x.bytes(), block: float64(threads * chunk * 16),
	}}
	if tiles > 1 {
		c.width = columns * x.in.Size()
	}
	if c.us = c.time(x.dev); splits > 1 {
		c.us += x.chunks(x.src, splits).combine().us / 2 // the launch begins early
	}
	c.launch = func(p *kernels.Plan) {
		args := sumUnalignedArgs{x.src, x.dst, x.r, x.inner, chunk, splits, tiles, x.out == kernels.Float64, x.div}
		if splits > 1 {
			args.Out, args.Wide, args.Div = p.Workspace(x.outer*splits*x.inner*8), true, 1
		}
		l := p.Launch(sumUnaligned, int(c.blocks), int(threads), args)
		l.Block[1], l.Shared = int(strands), int(c.shared)
		if splits > 1 {
			x.chunks(args.Out, splits).combine().launch(p)
		}
	}
	return c
}

func sumUnalignedBody(c kernels.Call) {
	if args := kernels.Args[sumUnalignedArgs](c); args.Wide {
		sumUnalignedTo[float64](c, args)
	} else {
		sumUnalignedTo[float32](c, args)
	}
}

func sumUnalignedTo[To kernels.Float](c kernels.Call, args sumUnalignedArgs) {
	sumColumns(kernels.Slice[float32](c, args.In), kernels.Slice[To](c, args.Out), int64(c.Grid[0])/args.Tiles, args.R, args.Inner, args.Chunk, args.Splits, args.Div)
}
