package reduce

import "github.com/stheno-ml/stheno/kernels"

type sumStripArgs struct {
	In, Out                     kernels.Ref
	R                           int64
	Inner                       int64 `arg:"int32"`
	Chunk                       int64
	Splits, Fold, Lanes, Strips int64 `arg:"int32"`
	Div                         float64
}

const stripCluster = 8 // blocks of a cluster of sum_joined

// strips are the candidates whose blocks, or clusters of them, have a strip of columns. Rows that are no multiple of a vector count several as one, in a
// single strip.
func (x pass) strips(list []candidate) []candidate {
	w, fold := 16/x.in.Size(), int64(1)
	for x.inner*fold%w != 0 {
		fold *= 2
	}
	if x.r < fold || x.outer > 1 && x.r%fold != 0 || x.inner > 1<<28 {
		return list
	}
	units := x.inner * fold / w
	for lanes := int64(1); lanes <= 32 && (lanes == 1 || lanes < 2*units); lanes *= 2 {
		strips := kernels.CeilDiv(units, lanes)
		if fold > 1 && strips > 1 {
			continue
		}
		for _, cluster := range [...]int64{1, stripCluster} {
			if cluster > 1 && !x.dev.HasClusters() {
				continue
			}
			for _, threads := range [...]int64{256, 512} {
				list = append(list, x.strip(fold, lanes, cluster, threads, 1))
				for _, perSM := range [...]int64{1, 2} {
					splits := min(perSM*x.sms()/max(x.outer*strips*cluster, 1), x.r/fold/(cluster*threads/lanes))
					if splits > 1 {
						list = append(list, x.strip(fold, lanes, cluster, threads, splits))
					}
				}
			}
		}
	}
	return list
}

// strip is the candidate with so many splits of the rows.
func (x pass) strip(fold, lanes, cluster, threads, splits int64) candidate {
	w := 16 / x.in.Size()
	rows, strips := x.r/fold, kernels.CeilDiv(x.inner*fold/w, lanes)
	chunk := kernels.CeilDiv(rows, splits)
	splits = kernels.CeilDiv(rows, chunk)
	kind, kernel, width := strip, sumStrip, int64(0)
	if cluster > 1 {
		kind, kernel = joined, sumJoined
	}
	if strips > 1 {
		width = 16 * lanes
	}
	c := candidate{params: [3]int64{lanes, threads, splits}, work: work{
		kind: kind, blocks: x.outer * splits * strips * cluster, threads: threads, shared: (threads/32 + cluster) * lanes * w * 8,
		rounds: float64(kernels.CeilDiv(kernels.CeilDiv(chunk, cluster), 8*threads/lanes)), ends: float64(threads / 32),
		bytes: x.bytes(), block: float64(16 * lanes * chunk / cluster), width: width,
	}}
	if c.us = c.time(x.dev); splits > 1 {
		c.us += x.chunks(x.src, splits).combine().us
	}
	c.launch = func(p *kernels.Plan) {
		args, typ := sumStripArgs{x.src, x.dst, x.r, x.inner, chunk, splits, fold, lanes, strips, x.div}, x.out
		if splits > 1 {
			args.Out, args.Div, typ = p.Workspace(x.outer*splits*x.inner*8), 1, kernels.Float64
		}
		p.Launch(kernel[x.in][typ], int(c.blocks), int(threads), args).Shared = int(c.shared)
		if splits > 1 {
			x.chunks(args.Out, splits).combine().launch(p)
		}
	}
	return c
}

func sumStripBody[In, To kernels.Float](c kernels.Call)  { stripBody[In, To](c, 1) }
func sumJoinedBody[In, To kernels.Float](c kernels.Call) { stripBody[In, To](c, stripCluster) }

func stripBody[In, To kernels.Float](c kernels.Call, cluster int64) {
	args := kernels.Args[sumStripArgs](c)
	sumColumns(kernels.Slice[In](c, args.In), kernels.Slice[To](c, args.Out), int64(c.Grid[0])/args.Strips/cluster, args.R, args.Inner, args.Chunk*args.Fold, args.Splits, args.Div)
}
