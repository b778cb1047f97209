package gemm

import (
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
	"github.com/stheno-ml/stheno/kernels/reduce"
)

// A block adds up 32 elements of C, with a warp for each group of partial sums, if there are many partial sums of few elements.
const (
	warpReduceMinPartials = 16
	warpReduceMaxElements = 1 << 14
)

// table lists the candidates in the order in which they are tried; of a group the one that takes the least time by its model is chosen.
// Beside limits are times in us on an H200 at their edge, of the candidate and of what else would be chosen; bench/notes/gemm.md has the rest.
var table = withRates(slices.Concat(
	[][]*candidate{
		{dot(kernels.Float32), dot(kernels.Float64)},
	},
	roundedTable(TF32), roundedTable(BF16), roundedTable(F16),
	vectorTable[float32](), vectorTable[float64](),
	[][]*candidate{
		// m x k x n                 panels  tiles
		// 10962 x 24 x 17680, A^T   289     476
		// 819 x 26 x 4044, A^T      13.1    13.8
		// 17 x (81 x 31 x 402)      10.0    9.2
		{rowPanel.when(limits{k: span{17, 48}, m: span{from: 33}, n: span{from: 96}, c: perSM{from: 1 << 14}})},
		{hopperSplit},
		// Measured on an H200 only, not on an A100. The tensor cores of 8.6, 8.9 and 12.0 are too slow for six products.
		//
		// m, k, n                   split   FMA
		// 1024                      62      68
		// 2048                      335     437
		{mmaSplit.when(limits{side: span{from: 65}, k: span{from: 64}, work: perSM{from: 3 << 20}})},
		{
			double("large", 128, 128, 16, 4, 1, 256, 8, doubleBody), streaming(double("small", 64, 64, 16, 4, 1, 128, 8, doubleBody), 2),
			double("tiny", 32, 32, 16, 4, 1, 128, 8, doubleBody), doubleRows, doubleOblong,
			double("sliced", 32, 32, 64, 3, 4, 128, 0, doubleBody),
		},
		{mmaDouble.when(limits{side: span{from: 33}, k: span{from: 17}})},
	},
	[][]*candidate{slices.Concat(
		[]*candidate{inner[float32]("inner2", 2, 4), inner[float32]("inner4", 4, 4), inner[float32]("inner8", 8, 8), inner[float64]("inner2", 2, 4), inner[float64]("inner4", 4, 4)},
		narrowTable[float32](), narrowTable[float64](),
		lowKTable[float32](fewColumns[float32]("tall4", 4, 4, 4), fewColumns[float32]("tall", 128, 4, 8)), lowKTable[float64](fewColumns[float64]("tall", 128, 2, 8)),
		[]*candidate{
			// m x k x n                 strips  tiles
			// 3 x 5000 x 40000          189     270
			// 12 x 173 x 215782         84      95
			// 12 x 331 x 38845          41      32
			// 4 x 170 x 20001, float64  18.6    20.0
			strip[float32]("strip4", 1, 4, 4, 8, isGPU, 1<<19),
			strip[float32]("strip8", 5, 8, 4, 6, isGPU, 1<<19),
			strip[float32]("strip16", 9, 16, 4, 4, isHopper, 0).when(limits{large: perSM{from: 1 << 20}, also: full}),
			strip[float64]("strip4", 1, 4, 2, 6, isHopper, 0).when(limits{large: perSM{from: 1 << 19}}),
			strip[float64]("strip8", 5, 8, 2, 5, isHopper, 0).when(limits{large: perSM{from: 1 << 19}}),
		},
		tileTable[float32](tiled[float32]("large", tile{m: 128, n: 128, step: 16, slices: 1, stages: 3, threads: 256}, splitPolicy{blocksPerSM: 2, minK: 128}).
			when(limits{side: span{from: 65}, tiles: perSM{from: 1}, also: holds})),
		tileTable[float64](),
	)},
	[][]*candidate{{mmaSingle, tallHopper(9, 32, 4), tallHopper(33, 64, 3), tallHopper(49, 96, 3), tallHopper(65, 128, 3)}},
))

// dot is the product of two vectors.
func dot(dt kernels.Dtype) *candidate {
	return &candidate{name: "dot", dtype: dt, able: limits{m: span{1, 1}, n: span{1, 1}, batch: span{1, 1}},
		cut:     func(*candidate, *problem) (cut, bool) { return cut{}, true },
		special: func(_ *candidate, p *kernels.Plan, x *problem, _ cut) { *p = *reduce.Dot(x.dev, x.Dtype, 1, x.K) }}
}

// doubleOblong is a kernel of matmul_double.cu. A C of one column or row takes it 1.2 to 1.5 times as long as the best other: 11618 x 1223, A^T, H200, 43.1 us, strips 31.9.
var doubleOblong = func() *candidate {
	c := double("oblong", 64, 32, 16, 6, 1, 128, 8, doubleBody)
	c.able.side.from = 2
	return c
}()

// doubleRows is the kernel of matmul_double.cu for a C of few rows, or columns.
var doubleRows = func() *candidate {
	c := streaming(double("rows", 32, 128, 16, 4, 1, 128, 0, doubleRowsBody), 2)
	c.orient, c.able.side = wide, span{to: 32}
	return c
}()

// roundedTable lists the kernels for operands that are rounded to a form.
func roundedTable(f Form) [][]*candidate {
	name := strings.ToLower(f.String())
	one := func(t tile) tile { t.threads, t.shared = hopperThreads, reducedShared; return t }
	mma := func(n int64, stages int64) tile {
		return tile{n: n, threads: int(n), shared: stages * (tensorTile + n) * 64}
	}
	// m x k x n                 TF32, float32   BF16 with rounding
	// 512 x 1024 x 512          12, 25          16
	// 512 x 512 x 512           10.5, 15        10.4, and 5 to round
	// 128 x 784 x 512           10.7, 11.1      10.9
	fast := []limits{
		{on: isHost},
		{side: span{from: 65}, k: span{from: 64}, work: perSM{from: 1 << 20}, also: func(_ *candidate, x *problem) bool { return quarter(x, 4) }},
	}
	if _, half := f.half(); half { // of operands that are in 16 bits already, see Wants
		fast = append(fast, limits{on: isHopper, side: span{from: 10}, k: span{from: 64}, work: perSM{from: 1 << 20}, also: func(_ *candidate, x *problem) bool {
			return quarter(x, 4) && max(x.A.Form, x.B.Form) == f
		}})
	}
	element := func(us float64) kernels.Measured[float64] { return kernels.Measured[float64]{{Policy: us}} }
	hopper := func(suffix string, n int64, element kernels.Measured[float64], on func(kernels.Device) bool) *candidate {
		return reduced("matmul_hopper", "hopper_"+name+suffix, f, on, one(tile{n: n}), element).when(fast...)
	}
	narrow, square := hopper("_narrow", 64, element(1), isHopper), hopper("_one", 128, kernels.Measured[float64]{{0, 1.1}, {90, 1.2}}, hasWGMMA)
	narrow.split = splitPolicy{}
	short := func(c *candidate, x *problem) bool { return x.K*f.stored().size <= 4096 && c.count(x) <= x.sms() }
	var vectors, mid, modelled []*candidate
	if _, half := f.half(); half {
		vectors = []*candidate{halfVectors(f)}
		mid = []*candidate{hopper("_mid", 192, element(1.08), hasWGMMA)}
		modelled = []*candidate{clustered(narrow, "_beside", 1, 2), clustered(narrow, "_quad", 2, 2), clustered(square, "_pair", 2, 1), clustered(square, "_beside", 1, 2),
			clustered(square, "_quad", 2, 2), clustered(mid[0], "_pair", 2, 1)}
		for i := range modelled { // limits choose none of these
			modelled[i].worth, modelled[i].able.on = []limits{{on: func(kernels.Device) bool { return false }}}, isHopper
		}
		narrow.cut = func(c *candidate, x *problem) (cut, bool) { // limits choose it for short K alone, the model for any
			d, ok := cutReduced(c, x)
			return d, ok && short(c, x)
		}
	} else {
		able := narrow.able.also
		narrow.able.also = func(c *candidate, x *problem) bool { return able(c, x) && short(c, x) }
	}
	return [][]*candidate{
		vectors,
		{narrow},
		append(mid,
			clustered(hopper("", 256, element(1), hasWGMMA), "", 2, 1), square,
			reduced("matmul_mma", "mma_"+name, f, hasMMA, mma(256, 4), element(1)).when(fast...),
			reduced("matmul_mma", "mma_"+name+"_one", f, hasMMA, mma(128, 3), element(1.1)).when(fast...),
		),
		{small(name, kernels.Precision(f))},
		modelled,
	}
}

// vectorTable lists the kernels for a matrix and a vector.
func vectorTable[T kernels.Float]() [][]*candidate {
	flat := ofVectors[T]("flat", splitPolicy{blocksPerSM: 4, minK: 128, unsplitBlocksPerSM: 1, halveBlocksPerSM: 4}, flatBody[T], cutColumns)
	flat.args, flat.all, flat.sized, flat.cluster = flatArguments, cutsFlat, true, 8
	columns := ofVectors[T]("columns", splitPolicy{blocksPerSM: 32, minK: 128, unsplitBlocksPerSM: 16, halveBlocksPerSM: 4}, columnsBody[T], cutColumns)
	flat.able.transA, columns.able.transA, flat.able.m = true, true, span{2, maxFlatColumns}
	const halfEmptyMaxK = 4096 // strips of lanes of which more than half have no column
	joined := func(lanes int64) *candidate {
		c := joinedColumns[T]("joined_columns", lanes)
		c.able.also = func(c *candidate, x *problem) bool {
			return aligned(c, x) && (x.K <= halfEmptyMaxK || 2*x.M*x.size() >= 16*lanes)
		}
		return c
	}
	// blocks admits a problem whose strips are nearly full and give each SM at least so many halves of a block.
	blocks := func(halves int64) func(*candidate, *problem) bool {
		return func(c *candidate, x *problem) bool {
			d, _ := c.cut(c, x)
			return aligned(c, x) && 2*d.blocks >= halves*x.sms() && 8*x.M*x.size() >= 7*arith.RoundUp(x.M*x.size(), 16*c.n)
		}
	}
	// H100, chained, m x k      rows    before: four rows a warp, K split from 1024 on
	// 768 x 3072                5.0     8.5
	// 453 x 2106                4.8     9.0
	// 100 x 10000               5.3     9.0
	// 50304 x 768               51.7    53.5
	shortRows := ofVectors[T]("shortrows", splitPolicy{}, shortRowsBody[T], cutShortRows)
	shortRows.able.k = span{to: 32}
	shortRows.able.also = alongRows
	// min K of a split          32      128
	// 453 x 2106                13.0    15.0
	// 2113 x 2981               13.4    17.0
	// 3000 x 8000               31.8    28.6
	fewStrips := columns.copy()
	fewStrips.split = splitPolicy{blocksPerSM: 16, minK: 32, kMultiple: 16}
	// H100, us, k x m, A^T      thin in a cluster   columns   thin in one block
	// 705 x 451, float64        6.8                 10.5      14.1
	// 264 x 771, float64        6.4                 9.5       8.2
	// 123 x 1629, float64       6.1                 11.0      6.2
	// 2078 x 2350, float32      17.0                14.7      20.1
	thin := thinTiles[T](splitPolicy{blocksPerSM: 1, minK: 64, clusterMaxK: 128})
	unaligned := func(c *candidate, x *problem) bool { return !aligned(c, x) }
	return [][]*candidate{
		{
			// H100, us, k x m       joined, 32 lanes   columns
			// 64 x 10000            5.1                6.7
			joined(32).when(limits{m: span{from: 64}, k: span{from: 256}, also: blocks(7)},
				limits{m: span{from: 64}, k: span{64, 255}, large: perSM{below: 1 << 15}, also: blocks(7)}),
		},
		{
			joined(16).when(limits{m: span{from: 64}, k: span{from: 256}, also: blocks(7)}, limits{m: span{from: 64}, k: span{256, 4096}, also: blocks(3)}),
		},
		{joined(8).when(limits{m: span{from: 64}, k: span{256, 4096}, large: perSM{below: 1 << 19}})},
		{flat.when(limits{m: span{to: 64}})},
		{thin.when(limits{on: isGPU, transA: true, side: span{to: 1}, k: span{from: 64}, large: perSM{below: 1 << 15}, also: unaligned})},
		hopperColumns[T](),
		{fewStrips.when(limits{k: span{256, 4096}, also: func(_ *candidate, x *problem) bool { return strips(x) <= 20 }})},
		{columns},
		{shortRows},
		rowsTable[T](),
		{bulkShort[T]()},
	}
}

// rowsTable lists the kernels for rows.
func rowsTable[T kernels.Float]() []*candidate {
	of := func(name string, cutter func(*candidate, *problem) (cut, bool)) *candidate {
		c := ofVectors[T](name, splitPolicy{blocksPerSM: 16, minK: 2048, unsplitBlocksPerSM: 2}, rowsBody[T], cutter)
		c.threads, c.able.also = rowThreads, longerRows
		c.joined, c.cluster, c.sized = c.kernel, 8, true
		return c
	}
	list := []*candidate{of("rows", cutRows)}
	if unsafe.Sizeof(T(0)) == 4 {
		// H200, us, m x k       longrows  rows
		// 768 x 3072            4.2       3.7
		// 3072 x 768            4.0       3.5
		// 4096 x 1024           4.9       6.1
		// 1024 x 16384          16.0      22.1
		// 50304 x 768           33.4      35.3
		long := of("longrows", cutLongRows)
		long.able.on, long.able.also = isHopper, func(c *candidate, x *problem) bool { return longerRows(c, x) && x.large() >= 12<<20 }
		list = append(list, long)
	}
	return list
}

// alongRows admits a matrix whose rows are contiguous.
func alongRows(_ *candidate, x *problem) bool { return !x.A.Trans }

// longerRows admits a matrix whose rows are contiguous, but not very many short rows that are not aligned.
//
// H200, us, m x k       rows  narrow4
// 1449036 x 43          148   98
// 778905 x 59           84    65
// 268140 x 62           31.3  29.3
// 92664 x 118           20.2  22.2
// 330871 x 85, float64  107   73
// 332263 x 101          109   85
// 193776 x 167          89.9  82.7
func longerRows(c *candidate, x *problem) bool {
	const minRowsPerSM, minK, maxK = 300, 40, 16 // maxK: by bytes of an element
	short := x.K >= minK && x.K <= maxK*x.size() && x.K*x.size()%16 != 0 && x.M*x.Batch >= minRowsPerSM*x.sms()
	return alongRows(c, x) && !(short && isHopper(x.dev))
}

// joinedColumns is a kernel for strips of columns, each of so many vectors of 16 bytes.
//
// H100, us, k x m   lanes 4, cluster of 8   8, 8   16, 8   32, 8   wide 8, 2   wide 16, 1
// 768 x 768         2.50                    2.33   2.79    3.24    2.97        4.63
// 1024 x 1024       3.03                    2.85   3.56    4.16    3.58        5.93
// 768 x 3072        7.16                    5.63   5.49    5.04    5.35        6.08
// 1024 x 4096       9.55                    7.50   7.15    7.35    7.32        8.51
// 4096 x 4096       29.2                    24.9   25.2    24.9    24.4        28.5
// 1024 x 16384      32.5                    24.8   25.4    24.4    25.7        23.9
// 8192 x 8192       118                     94.9   92.7    94.4    94.4        91.8
func joinedColumns[T kernels.Float](name string, lanes int64) *candidate {
	c := ofVectors[T](name, splitPolicy{}, joinedColumnsBody[T], cutJoinedColumns)
	c.name = strings.Replace(c.name, "columns", fmt.Sprint("columns", lanes), 1) // each has times of its own
	c.n, c.cluster, c.sized, c.all = lanes, 8, true, allJoinedColumns
	c.able.on, c.able.transA = kernels.Device.HasClusters, true
	return c
}

// hopperColumns lists the kernels for strips of columns that only the model chooses: narrow ones, those of larger blocks, and those of rows that begin anywhere.
func hopperColumns[T kernels.Float]() (list []*candidate) {
	add := func(name string, lanes int64, threads int, also func(*candidate, *problem) bool) {
		c := joinedColumns[T](name, lanes)
		c.threads, c.able.on, c.able.also = threads, isHopper, also
		list = append(list, c)
	}
	// H200, us, k x m           unaligned  others
	// 4099 x 4099               20.3       22.7, columns
	// 1001 x 1001               4.5        5.8, thin
	// 1000 x 3001               6.0        8.2, columns
	// 453 x 2106                4.0        5.7, thin
	// 416 x 38                  2.4        2.3, thin
	// 43 x 555                  2.8        1.9, thin
	// 31799 x 2                 52.5       4.3, flat
	add("joined_unaligned", 16, vectorThreads, func(_ *candidate, x *problem) bool {
		return x.M*x.size()%16 != 0 && (x.K >= 256 || x.K >= 8 && x.M*x.size() >= 16*15*x.sms()) && (x.K <= 4096 || 2*x.M*x.size() >= 16*16)
	})
	add("joined_columns", 4, vectorThreads, aligned)
	if unsafe.Sizeof(T(0)) == 4 {
		for lanes := int64(4); lanes <= 32; lanes *= 2 {
			add("joined_columns_wide", lanes, wideThreads, aligned)
		}
	}
	return list
}

// aligned admits rows of columns that begin at multiples of 16 bytes.
func aligned(_ *candidate, x *problem) bool { return x.M*x.size()%16 == 0 }

// lowKTable lists the kernels for few terms, after others.
func lowKTable[T kernels.Float](others ...*candidate) []*candidate {
	outer := func(name string, rows int64, k span) *candidate {
		c := lowK[T]("matmul_outer", name, tile{m: rows, threads: 256}, k, longRows, cutOuter)
		c.copies, c.turns = acrossK, k.from > 4
		return c.when(limits{c: perSM{from: 64}, also: isLong})
	}
	// m x k x n                 low K   tiles
	// 10000 x 10 x 10000        120     142
	// 142 x 3 x 14713, 12 of    29.0    66.9
	return append(others,
		outer("outer4", 8, span{1, 4}), outer("outer8", 16, span{5, 8}), outer("outer16", 32, span{9, 16}),
	)
}

// narrowTable lists the kernels for a C of few rows where rows of the large operand run along K.
func narrowTable[T kernels.Float]() []*candidate {
	// m x k x n                 narrow  tiles
	// 12 x 90 x 1000000         158     307
	// 9 x 2137 x 2088           21.5    17.8
	// 16 x 170 x 20000          15.4    13.9
	list := []*candidate{narrow[T]("narrow4", 1, 4, 1, 3, 3), narrow[T]("narrow8", 5, 8, 1, 3, 3)}
	if unsafe.Sizeof(T(0)) == 4 { // in float64 tiles on tensor cores are as fast
		list = append(list, narrow[T]("narrow12", 9, 12, 2, 2, 2), narrow[T]("narrow16", 13, 16, 2, 2, 2).when(limits{k: span{to: 128}}))
	}
	return list
}

// thinTiles is the kernel of matmul.cu for a C of few columns, or rows.
func thinTiles[T kernels.Float](split splitPolicy) *candidate {
	return tiled[T]("thin", tile{m: 32, n: 16, step: 256 / int64(unsafe.Sizeof(T(0))), slices: 8, stages: 3, threads: 256, cluster: 8}, split)
}

// tileTable lists the tiles, with large ones before the middle ones.
func tileTable[T kernels.Float](large ...*candidate) []*candidate {
	size := int64(unsafe.Sizeof(T(0)))
	middle := tile{m: 64, n: 64, step: 128 / size, slices: 2, stages: 3, threads: 256, cluster: 2}
	if size == 8 { // parts of K in a cluster gained 2 % at most of 37 drawn products of each device, by the model
		middle.cluster = 0
	}
	medium := tiled[T]("medium", middle, splitPolicy{blocksPerSM: 1, minK: 128, fillTailMinK: 1024})
	short := tiled[T]("short", tile{m: 64, n: 64, step: 64 / size, slices: 1, stages: 3, threads: 128}, splitPolicy{})
	small := tiled[T]("small", tile{m: 32, n: 32, step: 16, slices: 1, stages: 3, threads: 64, cluster: 8}, splitPolicy{blocksPerSM: 4, minK: 16, minSplits: 3, clusterMaxK: 128})
	thin := thinTiles[T](splitPolicy{blocksPerSM: 2, minK: 64, minSplits: 4, clusterMaxK: 128})
	// m x k x n                 chosen  other
	// 10000 x 10 x 10000        142     143 to 202, large; 270, medium
	// 10000 x 784 x 10          19.6    29, small
	// 512 x 128 x 512           5.3     5.7, medium
	// 512 x 256 x 512           7.7     8.5, small
	middles := []*candidate{medium.when(limits{tiles: perSM{below: 3}, also: holds})}
	if size == 8 {
		// float64, by the model: mean time of fine where medium is chosen otherwise, of that of medium
		// V100  T4    L40S  RTX 5090
		// 0.57  0.53  0.55  0.51
		doubles := func(dev kernels.Device) bool { return isHopper(dev) || dev.Major == 10 }
		fine := small.copy()
		fine.split = splitPolicy{blocksPerSM: 4, minK: 128, fillTailMinK: 512}
		fine.able.on = func(dev kernels.Device) bool { return isGPU(dev) && !doubles(dev) }
		middles[0].able.on = doubles
		middles = append(middles, fine.when(limits{tiles: perSM{below: 12}}))
	}
	return slices.Concat(
		[]*candidate{
			small.when(limits{on: isHost}),
			short.when(limits{k: span{to: 64}, side: span{from: 33}, tiles: perSM{from: 1}}),
			thin.when(limits{k: span{from: 65}, side: span{to: 16}}),
			small.when(limits{side: span{to: 32}}, limits{work: perSM{below: 500_000}}),
		},
		large,
		middles,
		[]*candidate{short},
	)
}
