package attention

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// A block of attention_split.cu has splitThreads threads, and a cluster of its joined kernels splitCluster blocks.
const (
	splitThreads = 256
	splitCluster = 8
)

// splitPolicy decides which problems attention_split.cu computes, and how their keys are split.
//
// Attention, H200, us                                       other kernels   a cluster a tile   several
// f32   1 x 12 heads, 1 x 1024 of 64                                139.2                9.8      20.8
// f32   1 x 12 heads, 16 x 1024 of 64                               145.2               22.2
// f32   64 x 12 heads, 1 x 1024 of 64                               579.5              152.7
// f32   1 x 32 heads, 8 of keys, 1 x 8192 of 128                   2018.0               78.6      54.3
// bf16  1 x 12 heads, 1 x 1024 of 64                                 16.6               10.8      14.8
// bf16  1 x 12 heads, 4 x 1024 of 64                                 16.8               10.4      18.6
// bf16  1 x 12 heads, 16 x 1024 of 64                                16.8               28.0
// bf16  1 x 32 heads, 8 of keys, 1 x 8192 of 128                    106.5               48.7      49.3
//
// Spread rows of float32, H200, us   portable   spread
// 21 heads, 2 x 932 of 85                51.7     20.9
// 99 heads, 9 x 238 of 156              103.0     83.4
// 390 heads, 10 x 5008 of 9            1234.2    304.3
// 16 heads, 1 x 4000 of 200             258.9     66.4
// 1024 heads, 1 x 100 of 99             177.6     59.0
// 1024 heads, 12 x 100 of 33            103.6    185.3
// 1134 heads, 4 x 59 of 11               59.5     74.0
// 12 heads, 10 x 1030 of 117             36.4     37.7
var splitPolicy = struct {
	maxRows     int64 // of queries that share a head of keys
	maxHalfRows int64 // the same in 16 bits, where the other kernels run on tensor cores
	smsPerHead  int64 // at least, in 16 bits: more heads are enough blocks of the other kernels
	maxKeys     int64 // of a block where a tile has one cluster
	minKeys     int64 // of a block where it has more
	blocksPerSM int64 // where tiles have more
	maxClusters int64 // of a tile
	wholeTiles  int64 // tiles per SM from which on one block computes a tile of spread rows, or any tile without clusters
	wholeKeys   int64 // the most keys for which it does so in any case
	shortKeys   int64 // the most keys for which the portable kernel may be faster than spread rows of float32,
	manyTiles   int64 // from this number of tiles per SM on, if a tile has several rows
	fewHeads    int64 // of keys, where attention_any.cu is the other kernel
}{16, 4, 4, 256, 64, 2, 8, 2, 64, 128, 6, 16}

// splitKernels compute attention of few queries, whose keys are split among blocks.
var splitKernels, mergeKernels = splitPair("attention_split", splitBody), splitPair("attention_merge", mergeBody)

// spreadKernels are those of rows that lanes do not have in one piece of 16 bytes each.
var spreadKernels = splitPair("attention_spread", splitBody)

// splitPair returns the kernels of a name by element type.
func splitPair(name string, body func(kernels.Call, kernels.Dtype)) map[kernels.Dtype]*kernels.Kernel {
	list := map[kernels.Dtype]*kernels.Kernel{}
	for _, dt := range []kernels.Dtype{kernels.Float32, expr.BF16, expr.F16} {
		list[dt] = own.Kernel("attention_split", fmt.Sprintf("%s_%v", name, dt), func(c kernels.Call) { body(c, dt) })
	}
	return list
}

// sharing is the number of rows of queries that share a head of keys.
func (p *Problem) sharing() int64 { return p.Heads / p.KeyHeads * p.Queries }

// tileRows is the number of rows of a tile, of that many that share a head of keys.
func tileRows(sharing int64) int64 {
	if sharing == 1 {
		return 1
	}
	return 4
}

// splits reports whether attention_split.cu computes the problem on a device.
func (p *Problem) splits(dev kernels.Device) bool {
	const most = 1 << 27 // tiles: a grid, and bytes of a batch's counts, are eight times as many
	switch rows := p.sharing(); {
	case dev.Kind != kernels.GPU || p.Dtype == kernels.Float64 || p.splitTiles() > most || p.spreads() && !p.anyComputes(dev) && !p.paysSpread(dev):
		return false
	case p.anyComputes(dev) && (rows > 1 || p.Keys <= fewKeys) && !p.paysSplit(dev):
		return false
	case p.byMMA(dev):
		return rows <= splitPolicy.maxHalfRows && splitPolicy.smsPerHead*p.Batch*p.Heads <= int64(dev.SMs)
	default:
		return rows <= splitPolicy.maxRows
	}
}

// paysSpread reports whether there is a kernel of spread rows for the problem, which is faster than others.
func (p *Problem) paysSpread(dev kernels.Device) bool {
	few := p.Dtype == kernels.Float32 && p.Keys <= splitPolicy.shortKeys && p.splitTiles() >= splitPolicy.manyTiles*int64(dev.SMs)
	return (p.Dtype == kernels.Float32 || isHopper(dev)) && p.Keys > fewKeys && (p.sharing() == 1 || !few)
}

// paysSplit reports whether keys are split among blocks for several queries, or few keys, of float32 on 9.0, where attention_any.cu computes the others.
//
// H200, us                          split    any
// f32    2 heads,  1 x 28 of 248      3.5    9.0
// f32  155 heads,  1 x 13 of 184      7.3    8.3
// f32    3 heads,  7 x 3 of 162       6.1   10.3
// f32   10 heads, 10 x 661 of 223    27.3   38.2
// f32   19 heads,  3 x 4 of 32        6.4    4.3
// f32   50 heads, 10 x 89 of 106     68.2   16.2
// f32  241 heads,  4 x 730 of 46    124.2   51.8
func (p *Problem) paysSplit(dev kernels.Device) bool {
	if p.sharing() == 1 {
		return p.splitTiles() <= 2*int64(dev.SMs)
	}
	return p.Batch*p.KeyHeads <= splitPolicy.fewHeads && (p.Keys > fewKeys || p.Dim > 64)
}

// splitTiles is the number of tiles of queries.
func (p *Problem) splitTiles() int64 {
	return p.Batch * p.KeyHeads * kernels.CeilDiv(p.sharing(), tileRows(p.sharing()))
}

// spreads reports whether lanes load elements of rows one by one.
func (p *Problem) spreads() bool { return !p.rowsInPieces() || p.Dim*p.Dtype.Size() > 32*16 }

// splitArgs are the arguments of split and of merge. A tile has Parts blocks; with Joined each splitCluster of them are a cluster, which has one partial result.
type splitArgs struct {
	forwardArgs
	Parts   int64 `arg:"int32"`
	Joined  bool
	Partial kernels.Ref
	updateArgs
}

// updateArgs are those of new rows, whose batches are Batch elements apart, Count of them for each: none if it is 0.
type updateArgs struct {
	K, V        kernels.Ref
	BatchStride int64
	Position    kernels.Ref
	Each, Count int64 `arg:"int32"` // Each: whether each batch has a position of its own
}

// launchSplit launches blocks for each tile of rows, and where these have more than one partial result, a launch that merges them.
func (f *Forward) launchSplit(p *kernels.Plan, dev kernels.Device, args forwardArgs, update updateArgs) {
	tiles := f.splitTiles()
	parts, joined := f.splitParts(dev)
	to, by := splitArgs{args, parts, joined, kernels.At(kernels.Out, 0), update}, splitKernels[f.Dtype]
	if f.spreads() {
		by = spreadKernels[f.Dtype]
	}
	partials := to.partials()
	if partials > 1 {
		p.Scratch, to.Partial = tiles*partials*tileRows(f.sharing())*(f.Dim+2)*f.statistics().Size(), kernels.At(kernels.Scratch, 0)
	}
	p.Launch(by, int(arith.RoundUp(tiles*to.Parts, splitCluster)), splitThreads, to)
	if partials > 1 {
		p.Launch(mergeKernels[f.Dtype], int(f.rows()), splitThreads, to)
	}
}

// splitParts returns how many blocks share the keys of a tile, and whether clusters of them have one partial result each.
func (p *Problem) splitParts(dev kernels.Device) (parts int64, joined bool) {
	s, tiles := splitPolicy, p.splitTiles()
	clusters := min(kernels.CeilDiv(p.Keys, splitCluster*s.minKeys), s.blocksPerSM*int64(dev.SMs)/(splitCluster*tiles), s.maxClusters)
	if p.Keys <= splitCluster*s.maxKeys {
		clusters = 1
	}
	parts = max(clusters, 1) * splitCluster
	if (p.spreads() || p.Queries > 1 && p.Dtype.Size() == 2 || !dev.HasClusters()) && (tiles >= s.wholeTiles*int64(dev.SMs) || p.Keys <= s.wholeKeys || dev.HasClusters() && p.splitCost(dev, 1) <= p.splitCost(dev, parts)) {
		return 1, false
	}
	return parts, dev.HasClusters()
}

// splitCost predicts the time of tiles of a number of blocks each, in us on an H200. A block loads 4 keys for each group of lanes in a step, and an SM has one block at a time.
//
// BF16, H200, us                    a block   a cluster
// 48 heads, 14 x 2651 of 3             28.1       100.7
// 56 heads, 2 x 10508 of 117          476.0       268.0
// 60 heads, 10 x 78 of 30              16.2        91.1
// 5 heads, 11 x 461 of 81              28.1        10.5
// 52 heads, 5 x 813 of 6               10.9        50.3
// 14 heads, 5 x 1306 of 7              12.0        18.4
// 2 heads, 2 x 2746 of 17              30.2        20.5, and a launch
// 3 heads, 2 x 2264 of 4               12.0        16.2, and a launch
// 16 heads, 2 x 439 of 95              23.5        14.4
// 48 heads, 15 x 170 of 38             21.2        96.8
// 31 heads, 4 x 45 of 32               10.6        20.5
// 33 heads, 3 x 506 of 8                9.1        20.1
// 16 heads, 3 x 48 of 104               8.6        13.2
func (p *Problem) splitCost(dev kernels.Device, parts int64) float64 {
	const (
		launch, cluster, merge = 3.2, 2.2, 7.9 // of clusters, and of another launch that merges their results
		step, row              = 3, 0.8        // of a block: a step, and a row of results
		elements               = 8             // of a lane
	)
	keys := 4 * splitThreads / min(arith.Pow2(kernels.CeilDiv(p.Dim, elements)), 32)
	steps, rows := kernels.CeilDiv(kernels.CeilDiv(p.Keys, parts), keys), min(p.sharing(), tileRows(p.sharing()))
	us := launch + float64(kernels.CeilDiv(p.splitTiles()*parts, int64(dev.SMs)))*(step*float64(steps)+row*float64(rows))
	if parts > 1 {
		us += cluster
	}
	if parts > splitCluster {
		us += merge
	}
	return us
}

// partials is the number of partial results of a tile.
func (a splitArgs) partials() int64 {
	if a.Joined {
		return a.Parts / splitCluster
	}
	return a.Parts
}

// splitBody computes the partial results of each row of a tile: the maximum of its scores, the sum of their exponentials, and the sum of values.
func splitBody(c kernels.Call, dt kernels.Dtype) {
	a := kernels.Args[splitArgs](c)
	a.update(newHost[float32](c, dt, a.problemArgs))
	if a.partials() == 1 {
		forward[float32](c, dt, a.forwardArgs)
		return
	}
	h, list, rows := newHost[float32](c, dt, a.problemArgs), kernels.Slice[float32](c, a.Partial), a.Group*a.Queries
	side, heads := tileRows(rows), a.Heads/a.Group
	tiles := kernels.CeilDiv(rows, side)
	kernels.Parallel(a.Batches*heads*tiles, 1, func(lo, hi int64) {
		w := &work[float32]{by: h.BLAS(), dim: h.Dim}
		for id := lo; id < hi; id++ {
			batch, head, row0 := id/tiles/heads, id/tiles%heads, id%tiles*side
			limits, most := make([]int64, min(side, rows-row0)), int64(0)
			for r := range limits {
				_, limits[r] = h.limits(batch, (row0+int64(r))%a.Queries, 1)
				most = max(most, limits[r])
			}
			each := kernels.CeilDiv(most, a.Parts) * a.Parts / a.partials()
			for part := range a.partials() {
				begin := min(part*each, most)
				n := min(begin+each, most) - begin
				k, v := w.load(0, h.rows(a.In[1], batch, head, begin, n)), w.load(1, h.rows(a.In[2], batch, head, begin, n))
				for r, limit := range limits {
					row := row0 + int64(r)
					q := w.load(2, h.rows(a.In[0], batch, head*a.Group+row/a.Queries, row%a.Queries, 1))
					all := newPartial[float32](h.Dim)
					for j := range min(n, limit-begin) {
						x := partial[float32]{0, 1, v[j*h.Dim:][:h.Dim]}
						for e, y := range k[j*h.Dim:][:h.Dim] {
							x.top += q[e] * y
						}
						x.top *= h.scale
						all.merge(x)
					}
					all.keep(list[((id*a.partials()+part)*side+int64(r))*(h.Dim+2):])
				}
			}
		}
	})
}

// mergeBody merges the partial results of each row.
func mergeBody(c kernels.Call, dt kernels.Dtype) {
	a := kernels.Args[splitArgs](c)
	h, list, rows := newHost[float32](c, dt, a.problemArgs), kernels.Slice[float32](c, a.Partial), a.Group*a.Queries
	side, heads := tileRows(rows), a.Heads/a.Group
	tiles := kernels.CeilDiv(rows, side)
	for i := range a.Batches * heads * rows {
		row, id := i%rows, i/rows
		batch, head, query := id/heads, id%heads*a.Group+row/a.Queries, row%a.Queries
		all := newPartial[float32](h.Dim)
		for part := range a.partials() {
			all.merge(partialOf(list[(((id*tiles+row/side)*a.partials()+part)*side+row%side)*(h.Dim+2):], h.Dim))
		}
		_, limit := h.limits(batch, query, 1)
		h.finish(a.forwardArgs, batch, head, query, limit, all)
	}
}
