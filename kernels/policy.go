package kernels

import (
	"math"
	"math/bits"
)

// measured holds a launch policy by architecture: the fastest one where it was measured, a line for
// each compute capability (90 for 9.0), with the measurement beside it and the alternatives it was
// compared with. Longer lists of slower alternatives are in bench/NOTES.md.
type measured[P any] []struct {
	capability int
	policy     P
}

// on returns the policy for a device. An architecture that was not measured takes the nearest line,
// the earlier of two.
func (m measured[P]) on(dev Device) P {
	distance := func(capability int) int {
		d := 10*dev.Major + dev.Minor - capability
		return max(d, -d)
	}
	best := m[0]
	for _, line := range m[1:] {
		if distance(line.capability) < distance(best.capability) {
			best = line
		}
	}
	return best.policy
}

// streamPolicy tunes kernels that stream memory.
type streamPolicy struct {
	block   int   // threads of a block; blocks come and go, none loops
	vectors int64 // vectors of 16 bytes that a thread takes
	few     int64 // elements for each multiprocessor up to which a generated kernel has a thread for each
}

var (
	streaming = measured[streamPolicy]{
		// Few, a thread for each and by vectors: H200, six functions of 2^10 to 2^18 elements, 4.4 to 6.2 us either way; the driver compiles 40 such kernels in half the time
		{90, streamPolicy{block: 256, vectors: 1, few: 2048}}, // H200, Add of 2^28 float32: 733 us; 2 or 4 vectors 736; 16 blocks an SM that loop 778, 64 of them 765
	}
	scaling = measured[streamPolicy]{
		{90, streamPolicy{block: 256, vectors: 2}}, // H200, Scale of 2^28 float32: 517 us; 1 vector 567, 4 519; blocks that loop 540 at best
	}
)

// stream appends a launch of a streaming kernel over that many bytes.
func (p *Plan) stream(k *Kernel, pol streamPolicy, bytes int64, args ...any) {
	p.Launch(k, int(max(CeilDiv(bytes, pol.vectors*16*int64(pol.block)), 1)), pol.block, args...)
}

// elementBlock is the block size of kernels with one element for each thread that are a small part
// of their plans.
const elementBlock = 256

// elements appends a launch with a thread for each of n elements.
func (p *Plan) elements(k *Kernel, n int64, args ...any) {
	p.Launch(k, int(max(CeilDiv(n, elementBlock), 1)), elementBlock, args...)
}

// rowsPolicy tunes Rows.
type rowsPolicy struct {
	elements  int64 // of a row that a thread takes, where the device has enough threads
	down      int64 // likewise of those of a vector of rows, across rows
	short     int64 // columns up to which it takes half as many
	middling  int64 // columns from which on it takes twice as many
	threads   int64 // that are enough, for each multiprocessor
	block     int64 // threads of a block that takes several rows, or a split of one
	most      int64 // threads of a block
	resident  int64 // bytes of an operand that a thread holds in registers, half as many in blocks of more than roomy threads; of the other operands only where shared memory has no place
	roomy     int64
	clustered int64 // likewise, of all operands, in clusters
	partial   int64 // likewise, where it has more than it can hold
	turn      int64 // bytes that a thread reads in a turn of a loop
	walk      int64 // likewise, where a block takes several shares of a row
	shared    int64 // elements that a thread takes of rows of more columns than a block's most threads take so: a cluster of blocks shares them
	share     int64 // columns of a block of a cluster, at most if 8 blocks are enough
	each      int64 // columns of a thread of a cluster
	part      int64 // least columns of a block of a cluster that shares a row because there are few
	long      int64 // columns from which few rows are split
	longest   int64 // likewise, where clusters can share them, of rows fewer than fill the device with their clusters
	huge      int64 // likewise, of columns that a cluster has no place for
	deep      int64 // likewise across rows
	chunk     int64 // least columns of a split
	least     int64 // least columns of a thread in a split across rows
	blocks    int64 // blocks wanted for each multiprocessor where rows are split
}

var rowsPolicies = measured[rowsPolicy]{
	// H200, 16384 rows of float32, us. Elements 8, 16, 32: softmax of 1000 columns (short) 34.5, 34.4, 35.2, its gradient 50.1, 49.0, 49.7, that of layer
	// norm 62.4, 57.4, 55.8, cross-entropy 49.6, 51.6, 55.4; of 4096 columns 131, 133, 133, and 238, 186, 188, and 293, 273, 204, and 196, 187, 187. Elements 32,
	// 64: gradient of softmax of 32768 columns 1746, 1506, of layer norm 2001, 1746; 64 from which column on was not swept. Block 128 for 256: softmax of
	// 128 columns 7.6, 7.4. One operand in registers, two: gradient of layer norm of 1000 columns 50.1, 57.4, of 4096 194, 204, of softmax of 1000 49.7, 49.0,
	// cross-entropy 49.5, 51.8. Blocks 8, 4, 16, least 16: sums down 16384 x 4096 71.6, 72.5, 72.5, 72.9. Turn 128 for 64, partial 96 for 64: no faster. Threads,
	// deep and chunk were not swept. Walk 128, 64: sums of [64, 256, 56, 56] over [0, 2, 3] 50.1, 51.9, each share by a block of a cluster 114.
	// Clusters, share 2^14, 2^13 and without, 2048 rows of 50 257: softmax 262, 262, 284, cross-entropy 414, 420, 491; of 100 003: 576, 577, 747, and 934, 934, 1260.
	// Each 32, 64 and this with clustered 64 for 128: gradient of log-softmax of 920 x 87415 450, -, 369; BatchNorm of [64, 256, 56, 56] 242, 167, 148 and with 32 130, its gradient
	// 658, 334, 314; cross-entropy of 2048 x 50 257 411, 396, -. Part: cross-entropy of 46 x 31622 by clusters of 4 11.5, without 16.2; clusters of 2 are slower: 100 x 32768 23.3, 22.0.
	// Longest: the sum of 66737 by a cluster 4.3, by splits 8.6, of 200 000 6.7, 8.4; layer norm of 57 x 145080 28.3 by clusters, 66.2 by splits. Huge follows from the memory of 8 multiprocessors.
	{90, rowsPolicy{elements: 32, down: 16, short: 1024, middling: 1 << 13, threads: 1024, block: 256, most: 1024, resident: 256, roomy: 512, clustered: 32, partial: 64, turn: 64, walk: 128,
		shared: 32, share: 1 << 14, each: 64, part: 6 << 10, long: 1 << 16, longest: 1 << 18, huge: 7 << 16, deep: 256, chunk: 1 << 13, least: 4, blocks: 8}},
}

// rowPolicy tunes reductions along rows.
type rowPolicy struct {
	short  int64 // Dot: rows up to this length take a group of lanes each
	block  int   // threads of a block on a long row
	chunk  int64 // least elements of a chunk when a row is split
	blocks int64 // blocks for each multiprocessor then, as many as are there at a time
}

var rowPolicies = measured[rowPolicy]{
	// H200, us, and by two launches: float64 32768 6.2, 10.6; float32 247112 5.9, 13.0; 547242 7.0, 12.3; 10^8 95.1, 102.6; products of 600266 7.5, 12.5;
	// of 10^8 182.8, 184.7. Blocks 2, chunk 8192: 6.7, 6.5, 6.9, -, 7.7. Short was not swept
	{90, rowPolicy{short: 1024, block: 256, chunk: 1 << 12, blocks: 4}},
}

// tilePolicy tunes sums of slabs that fit into shared memory.
type tilePolicy struct {
	block  int   // threads
	bytes  int64 // of a tile, at most
	blocks int64 // wanted for each multiprocessor, so that small inputs have small tiles
	busy   int64 // least threads with work, if there is enough
	most   int64 // terms of a lane
	few    int64 // elements up to which few slabs of several columns are as good
}

var tilePolicies = measured[tilePolicy]{
	// H200, float32, us, bytes 2^15, 2^14: 2^20 x 33 38.7, 40.4; 2^20 x 100 107, 102; 262144 x 1025 254, 302; 10^7 x 3 x 4 158, 181; 442609 x 245 x 2 202, 203;
	// busy 64 for 128 at 2^14: 40.1, 102, 310, -, 206. Blocks and few were not swept
	{90, tilePolicy{block: 256, bytes: 1 << 15, blocks: 4, busy: 128, most: 64, few: 1 << 14}},
}

// columnPolicy tunes reductions along columns.
type columnPolicy struct {
	block  int64 // threads of a block
	rows   int64 // least rows of a thread
	chunk  int64 // least rows of a thread when columns are split
	blocks int64 // blocks for each multiprocessor when columns are split
	turns  int64 // that the last block takes to add up chunks, at most: 8 chunks of a block's columns each
}

var columnPolicies = measured[columnPolicy]{
	{90, columnPolicy{block: 256, rows: 8, chunk: 16, blocks: 3, turns: 16}}, // H200, us, by the last block and by another launch: 23583 x 39, 13 turns, 11.0, 13.7; the rest was not swept
}

// reducePolicy tunes Reduce, which has the loop of the rows of Sum.
type reducePolicy struct {
	block  int
	chunk  int64 // least elements of a block
	blocks int64 // blocks for each multiprocessor, all there at a time
}

var reducePolicies = measured[reducePolicy]{
	{90, reducePolicy{block: 256, chunk: 1 << 12, blocks: 3}}, // not measured alone: as for rows
}

// windowPolicy tunes window sums. No kernel needs more shared memory than the 48 KiB
// that a launch may ask for on every device.
type windowPolicy struct {
	direct int64    // threads of direct: 64 bytes of outputs each
	pieces int64    // threads of few and short
	chunk  [2]int64 // threads of chunks and join by type: 16 elements each
	warps  int64    // of stream on a multiprocessor, about
	run    int64    // tiles of a run of stream, at most
}

var windowPolicies = measured[windowPolicy]{
	// H200, 2^28 float32, radius 32 and 512: 555 and 563 us; runs of 8 tiles 551 and 577, of 32 563 and 563, one for each warp that fits (249 tiles) 580 and 572
	{90, windowPolicy{direct: 256, pieces: 128, chunk: [2]int64{Float32: 128, Float64: 64}, warps: 16, run: 16}},
}

// histogramPolicy tunes histograms.
type histogramPolicy struct {
	block  int // threads of a block
	blocks int // of them for each multiprocessor
}

var (
	byteHistogram = measured[histogramPolicy]{
		{90, histogramPolicy{block: 1024, blocks: 1}}, // H200, 2^30 bytes: 4463 GB/s; 2 blocks 4465; 512 threads 4189; CUB 2154
	}
	tableHistogram = measured[histogramPolicy]{
		{90, histogramPolicy{block: 1024, blocks: 2}}, // H200, 2^28 float32 into 256 bins: 4272 GB/s; 1 block 3472; CUB 3934
	}
	globalHistogram = measured[manyBinsPolicy]{
		// H200, us, in ranges and in global memory, uniform and skewed: 10^8 into 64256 239, 236 and 1255, 9742; 5.4 million into 312229 62, 55 and 62, 442;
		// a million into 100000 20.7, 18.9 and 17.0, 92; 10^8 into 10^6 1833, 2004 in ranges. Blocks were not swept
		{90, manyBinsPolicy{histogramPolicy: histogramPolicy{block: 256, blocks: 8}, ranges: 24, elements: 1 << 18}},
	}
)

// manyBinsPolicy tunes histograms with more bins than shared memory holds.
type manyBinsPolicy struct {
	histogramPolicy       // of the kernel that counts in global memory
	ranges          int   // of bins, each counted by blocks of its own, up to which that is faster
	elements        int64 // for each range, from which it is
}

// iteratePolicy tunes Iterate.
type iteratePolicy struct {
	held    int64 // largest n for weights held in registers
	cluster int64 // largest n for one cluster
}

var iteratePolicies = measured[iteratePolicy]{
	// H200, a half step of 128 float32: cluster 0.46 to 0.49 us, held 1.4, graph of launches 4.7; of 1024: held 1.72, graph 31
	{90, iteratePolicy{held: heldMost, cluster: clusterBlocks * 32}},
}

// widePolicy tunes half steps of Iterate that are bound by memory.
type widePolicy struct {
	rows    int // threads of a block with a row for each warp
	columns int // most threads of a block where the matrix is transposed
}

var widePolicies = measured[widePolicy]{
	// H200, a half step of 4096 float32: rows 18.8 us; transposed, 32 columns a block: 19.6, 256 threads 41.1
	{90, widePolicy{rows: 256, columns: 1024}},
}

// splitPolicy tunes how sums of k terms are cut into splits where there are too few blocks
// for the device.
type splitPolicy struct {
	blocks int64 // wanted for each multiprocessor
	terms  int64 // least of a split: shorter ones cost more in partial sums than they win
	least  int64 // splits; fewer don't pay
	enough int64 // blocks for each multiprocessor that are not cut, if not 0
	join   int64 // terms of a split up to which a cluster makes fewer splits than are wanted: a second launch costs more
	full   int64 // terms from which blocks that leave a quarter of the device idle are cut in more splits, if not 0
}

// splits returns how many splits are wanted for a number of blocks, each with sums of k terms.
func (s splitPolicy) splits(dev Device, blocks, k int64) int64 {
	sms := int64(dev.SMs)
	if dev.Major == 0 || s.blocks == 0 || s.enough > 0 && blocks >= s.enough*sms {
		return 1
	}
	wanted := sms * s.blocks
	if s.full > 0 && k >= s.full && wanted/blocks*blocks*4 < wanted*3 {
		wanted *= 2
	}
	if n := min(wanted/blocks, k/s.terms); n >= max(s.least, 2) {
		return n
	}
	return 1
}

// joined returns how many splits the blocks of clusters of that size add up among
// themselves, a power of 2: 1 if a second launch adds them up, or there are none.
func (s splitPolicy) joined(dev Device, blocks, k, cluster int64) int64 {
	n := s.splits(dev, blocks, k)
	if n > cluster && cluster > 0 && CeilDiv(k, cluster) <= s.join {
		n = cluster
	}
	if n == 1 || n > cluster || k > mostTerms || !hasClusters(dev) {
		return 1
	}
	if up := int64(1) << bits.Len64(uint64(n-1)); up == n || k/up >= s.terms {
		return up
	}
	if down := int64(1) << (bits.Len64(uint64(n)) - 1); down >= s.least {
		return down
	}
	return 1
}

// matmulPolicy tunes products that are not run on the tensor cores. The sizes of tiles
// are compiled into matmul.cu.
type matmulPolicy struct {
	small         int64 // products with fewer multiply-adds for each multiprocessor have small tiles
	short         int64 // sums of up to this many terms are short
	many          int64 // tiles for each multiprocessor that are as good as short sums
	splits        matmulSplits
	rows, columns splitPolicy // of a matrix, times a vector
	flat          splitPolicy // of a matrix of few columns
	few           int64       // columns that are few
	shortRows     [2]int64    // terms up to which a row takes a group of lanes, by type
	copies        int64       // splits from which warps add them up in turn
	wide          int64       // elements of C for each multiprocessor from which products of few terms have kernels of their own
	tiny          int64       // multiply-adds for each small tile up to which matrices of a batch are tiny
	outer, tall   int64       // terms up to which a long and a narrow C have a kernel of their own
	plenty        int64       // elements of a long C for each multiprocessor from which that is so for more than very few terms
}

// matmulSplits is how sums are cut, by form.
type matmulSplits struct{ large, medium, short, small, thin splitPolicy }

var matmulPolicies = measured[matmulPolicy]{
	// H200, float32, us, and cuBLAS SGEMM. small: 512 x 128 x 512 (m x k x n) 5.3, medium 5.7, cuBLAS 4.9; 400: 9.7, 10.4, 10.4; 512 x 256 x 512: 8.5, 7.7, 7.4;
	// 1024 x 256 x 256: 9.6, 8.1, 8.1; 512: 17, 12.5, 12.9. many: 851 x 109 x 2189, 490 tiles, short 19.3, medium 20.8.
	// short: 10000 x 10 x 10000 142, large 143 to 202, medium 270, cuBLAS 178; 2048 x (128 x 32 x 64) 50, medium 73, 57.
	// thin: 10000 x 784 x 10 19.6, small 29, cuBLAS 23. Splits of small: 256, 8 of 32 terms 5.0, 4 5.4, none 8.2; 129, 8 3.7, 4 3.9, none 5.8;
	// 512 x 128 x 512, 2 6.3, none 5.3; of thin: 128 x 512 x 10, 8 3.5, 4 3.9, none 6.6; 512 x 128 x 10, 2 3.4, none 3.1;
	// 512 x 4096 x 10, 16 8.1, 8 9.7. join: small, 64 x 256 x 256, 8 in a cluster 3.8, 16 by two launches 5.0; 64 x 784 x 512, 7.1, 7.1; thin, 100 x 625 x 10, 3.8, 5.0.
	// terms: small, 411 x 84 x 197, 8 of 11 5.0, 4 4.5. full: medium, 960 x 2582 x 145, 45 tiles, 5 38.8,
	// 2 46.0; 756 x 398 x 432, 84 tiles, 3 16.7, none 15.2. Of large, rows and columns: not measured alone.
	{90, matmulPolicy{
		small: 500_000,
		short: 64,
		many:  3,
		splits: matmulSplits{
			large:  splitPolicy{blocks: 2, terms: 128},
			medium: splitPolicy{blocks: 1, terms: 128, full: 1024},
			small:  splitPolicy{blocks: 4, terms: 16, least: 3, join: 128},
			thin:   splitPolicy{blocks: 2, terms: 64, least: 4, join: 128},
		},
		rows:      splitPolicy{blocks: 16, terms: 1024, enough: 8},
		columns:   splitPolicy{blocks: 32, terms: 128, enough: 16},
		flat:      splitPolicy{blocks: 4, terms: 128, enough: 1},
		few:       64,
		shortRows: [2]int64{Float32: 32, Float64: 32},
		copies:    16,
		wide:      64,
		tiny:      2800,
		outer:     16,
		tall:      64,
		plenty:    4096,
	}},
}

// form returns the form of the tiled kernel for a product, and how it splits k.
func (p matmulPolicy) form(dev Device, dt Dtype, x product) (matmulForm, splitPolicy) {
	small, short, thin := matmulSmall[dt], matmulShort[dt], matmulThin[dt]
	side, tiles, sms := min(x.m, x.n), short.count(x.batch, x.m, x.n), int64(dev.SMs)
	switch {
	case dev.Major == 0:
		return small, p.splits.small
	case x.k <= p.short && side > small.n && tiles >= sms:
		return short, p.splits.short
	case side <= thin.n && x.k > p.short:
		return thin, p.splits.thin
	case side <= small.n || float64(x.batch)*float64(x.m)*float64(x.n)*float64(x.k) < float64(p.small*sms):
		return small, p.splits.small
	case dt == Float32 && side > matmulLarge.m/2 && matmulLarge.count(x.batch, x.m, x.n) >= sms && int64(dev.SharedOptin) >= matmulLarge.shared(dt, true):
		return matmulLarge, p.splits.large
	case tiles >= p.many*sms || int64(dev.SharedOptin) < matmulMedium[dt].shared(dt, true):
		return short, p.splits.short
	}
	return matmulMedium[dt], p.splits.medium
}

// doublePolicy tunes float64 products on the tensor cores. A product takes the form and the cut that take the least
// time by a rough account of what was measured.
type doublePolicy struct {
	chosen bool  // whether plans use them
	terms  int64 // least k
	least  int64 // least terms of a part of a cluster
	part   int64 // likewise of a copy
	most   int64 // copies
	forms  [len(doubleForms)]doubleCost
	second float64 // us of another launch, which adds copies up
	copied float64 // and for each megabyte of them
}

// doubleCost is what a form takes, in us.
type doubleCost struct {
	start float64 // of a launch
	block float64 // of each block of a multiprocessor
	step  float64 // of each piece of the factors of a block
	alone float64 // of a piece, at least
}

var doublePolicies = measured[doublePolicy]{
	{80, doublePolicy{}}, // not timed
	// H200, fitted to 150 times of 50 shapes, taken before the kernels had their present form: 10 % off on the average; of the cuts that were timed it takes ones
	// 1 % slower than the fastest, on the shapes that it was fitted to. It also takes cuts that were not timed. The times are in
	// bench/NOTES.md. terms: 237 x 8 x 6570 small 14.0, by FMA 8.1; 120 x 22 x 39253 24.4, 26.4
	{90, doublePolicy{chosen: true, terms: 17, least: 16, part: 48, most: 264, second: 2.8, copied: 0.18, forms: [...]doubleCost{
		doubleLarge: {start: 4.5, block: 6.6, step: 1.16, alone: 1.0},
		doubleSmall: {start: 2.3, block: 1.1, step: 0.306, alone: 0.44},
		doubleTiny:  {start: 2.3, block: 0.62, step: 0.154, alone: 0.234},
	}}},
	{100, doublePolicy{}}, // not timed
}

// cut returns the form and the cut of a float64 product on the tensor cores, or false if it has none: C is narrow, or
// sums are short.
func (p doublePolicy) cut(dev Device, c result, k int64) (best doubleCut, ok bool) {
	if !p.chosen || c.dt != Float64 || dev.Major != 9 || dev.Minor != 0 || min(c.m, c.n) <= 32 || k < p.terms {
		return best, false
	}
	least := math.Inf(1)
	try := func(d doubleCut) {
		blocks := d.blocks(c, k)
		if t := p.time(dev, d, c, k, blocks); t < least && CheckGrid(blocks) == nil && d.chunk(k) <= mostTerms {
			least, best, ok = t, d, true
		}
	}
	for form, f := range doubleForms {
		for parts := int64(1); parts <= max(f.join, 1) && (parts == 1 || parts*p.least <= k); parts *= 2 {
			try(doubleCut{form, parts, 1})
		}
		// Copies that fill the device once, twice and so on.
		for full := int64(1); full <= 4; full++ {
			copies := min(full*int64(dev.SMs)/f.count(c.batch, c.m, c.n), k/p.part, p.most)
			if f.join == 0 && copies > 1 {
				try(doubleCut{form, 1, copies})
			}
		}
	}
	return best, ok
}

// time returns about how many us a cut of so many blocks takes.
func (p doublePolicy) time(dev Device, d doubleCut, c result, k, blocks int64) float64 {
	cost, pieces := p.forms[d.form], float64(d.chunk(k)/doubleForms[d.form].step)
	each := float64(CeilDiv(blocks, int64(dev.SMs))) // of the busiest multiprocessor
	t := cost.start + each*cost.block + pieces*max(cost.alone, each*cost.step)
	if d.copies > 1 {
		t += p.second + p.copied*float64(d.copies*c.count()*c.dt.Size())/1e6
	}
	return t
}

// hopperPolicy tunes float32 products on the tensor cores of compute capability 9.0.
type hopperPolicy struct {
	chosen   bool    // whether plans use the kernel
	products float64 // least batch * m * n * k for each multiprocessor
	terms    int64   // least k
	least    int64   // terms of a split of k
	pairs    int64   // least tiles for each multiprocessor from which blocks work in pairs
	split    int64   // most blocks for each multiprocessor of the kernel that writes the planes
}

var hopperPolicies = measured[hopperPolicy]{
	// H200, us with planes and combining, tiles of FMA, and cuBLAS SGEMM: 768: 31, -, 34; 784: -, 41, 35; 1024: 44, 64, 56 to 68; 2048: 200, 414, 340; 4096 x 784 x 512: 53, 88, 72; below
	// the limit, 1024 x 512 x 512: 23, 19, 19; 4096: 1391 (the product by single blocks: 6 % more), -, 2699. Planes of 4096 x 784 and 784 x 512 and their ranges by 3, 4, 6, 8 blocks a
	// multiprocessor: 15.4, 15.3, 16.0, 15.3; of 4096: 96, 96, 97, 93
	{90, hopperPolicy{chosen: true, products: 3 << 20, terms: 64, least: 128, pairs: 7, split: 4}},
}

// reducedPolicy tunes products of rounded operands.
type reducedPolicy struct {
	chosen   bool    // whether plans use the kernels
	products float64 // least batch * m * n * k for each multiprocessor
	side     int64   // least rows and columns
	terms    int64   // least k
	round    int64   // most blocks for each multiprocessor of the kernels that round operands
	smaller  float64 // time of an element of a smaller tile, that of a larger one 1
	splits   splitPolicy
}

var reducedPolicies = measured[reducedPolicy]{
	{80, reducedPolicy{round: 8, smaller: 1}},
	// H200, us, float32, TF32 as operands lie, BF16 with rounding: 512 x 512 x 1024 (m x n x k) 25, 12, 16; 768 31, 14, 17; 1024 45, 19, 22; 4096 x 512 x 512 40, 13, 16; below the
	// limit, 512: 15, 10.5, and BF16 10.4 before 5 for rounding; 128 x 512 x 784 11.1, 10.7, 10.9. Smaller, round and splits were not swept.
	{90, reducedPolicy{chosen: true, products: 1 << 20, side: 65, terms: 64, round: 8, smaller: 1.2, splits: splitPolicy{blocks: 1, terms: 128}}},
}

// form returns the form of a product that takes the least time: that of a tile for each that a multiprocessor computes.
func (p reducedPolicy) form(dev Device, by Precision, c result) (best reducedForm) {
	least := math.Inf(1)
	for i, f := range reducedForms[by] {
		time := float64(CeilDiv(f.tiles(c.batch, c.m, c.n), int64(dev.SMs)) * f.columns)
		if i > 0 {
			time *= p.smaller
		}
		if time < least {
			best, least = f, time
		}
	}
	return best
}
