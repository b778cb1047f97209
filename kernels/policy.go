package kernels

// measured holds a launch policy by architecture: the fastest one where it was measured, a line for
// each compute capability (90 for 9.0), with the measurement beside it and the alternatives it was
// compared with. Longer lists of slower alternatives are in bench/notes.
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
	// Longest: the sum of 66737 by a cluster 4.3, by splits 8.6, of 200 000 6.7, 8.4; layer norm of 57 x 145080 28.3 by clusters, 66.2 by splits. Huge follows from the memory of 8 multiprocessors; beyond it,
	// BatchNorm of [64, 256, 112, 112] by splits, by clusters 616, 647, its gradient 1208, 1683, of [64, 256, 88, 88] 384, 364, and 754, 1068.
	{90, rowsPolicy{elements: 32, down: 16, short: 1024, middling: 1 << 13, threads: 1024, block: 256, most: 1024, resident: 256, roomy: 512, clustered: 32, partial: 64, turn: 64, walk: 128,
		shared: 32, share: 1 << 14, each: 64, part: 6 << 10, long: 1 << 16, longest: 1 << 18, huge: 7 << 16, deep: 256, chunk: 1 << 13, least: 4, blocks: 8}},
}

// rowPolicy tunes reductions along rows.
type rowPolicy struct {
	short  int64 // Dot: rows up to this length take a group of lanes each
	block  int   // threads of a block on a long row
	narrow int   // the same where rows are many, and not too long
	many   int64 // rows for each multiprocessor that are
	wide   int64 // elements beyond which rows are too long
	chunk  int64 // least elements of a chunk when a row is split
	blocks int64 // blocks for each multiprocessor then, as many as are there at a time
	late   int64 // least elements by which chunks make a block's share smaller, for each row, so that adding them up pays
}

var rowPolicies = measured[rowPolicy]{
	// H200, us, and by two launches: float64 32768 6.2, 10.6; float32 247112 5.9, 13.0; 547242 7.0, 12.3; 10^8 95.1, 102.6; products of 600266 7.5, 12.5;
	// of 10^8 182.8, 184.7. Blocks 2, chunk 8192: 6.7, 6.5, 6.9, -, 7.7. Late, whole and in chunks: 126 x 10404 6.5, 15.0; 60 x 20000 7.7, 10.3;
	// float64 100 x 9000 7.0, 13.7.
	// Narrow 64, 128, 256: float64 8524 x 3914 64.6, 69.6, 84.8; 100000 x 2200 386, 396, 528; float32 8524 x 7914 69.5, 71.7, 83.8; 5000 x 2100 16.0, 17.6, 26.5; 20000 x 2500 55, 61, 97;
	// 100000 x 2200 213, 268, 448; products of 20000 x 2000 83, 102, 100; wide: 4300 x 40000 170, 161, 163. Short was not swept
	{90, rowPolicy{short: 1024, block: 256, narrow: 64, many: 32, wide: 1 << 14, chunk: 1 << 12, blocks: 4, late: 450}},
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
	few    int64 // rows up to which a thread has several columns
	chunk  int64 // least rows of a thread when columns are split
	blocks int64 // blocks for each multiprocessor when columns are split
	turns  int64 // that the last block takes to add up chunks, at most: 8 chunks of a block's columns each
}

var columnPolicies = measured[columnPolicy]{
	// H200, us, by the last block and by another launch: 23583 x 39, 13 turns, 11.0, 13.7. Chunk 8, 16: 530 x 974 7.6, 9.9; 700 x 900 9.7, 11.3; 23583 x 39 9.2, 10.9;
	// float64 2000 x 100 6.4, 7.5; 1958 x 420 9.9, 10.0; 300 x 1000 9.7, 8.9; 20000 x 7 7.3, 6.0; 4: 64 x 4000 14.0 (4.8). Few, and without: 7 x 14000003 105, 187;
	// 3 x 30000001 118, 372; 13 x 5000011 75, 79; 300 x 12 x 2502 13.7, 15.1; float64 3 x 10000001 76, 135; 2 x 40000000 135, 239; 3 x 40000000 156, 261; 4 x 30000000 137, 216; 8 x 15000000 124, 149;
	// 12 x 10000000 121, 137; 5 x 1000000 10.5, 11.8; float64 4 x 10000000 93, 102; 8 x 6000000 100, 101. The rest was not swept
	{90, columnPolicy{block: 256, rows: 8, few: 15, chunk: 8, blocks: 3, turns: 16}},
}

// twicePolicy tunes sums over two groups of axes in one launch.
type twicePolicy struct {
	block, most int64 // threads
	few         int64 // terms of a thread up to which blocks stay small
	terms       int64 // of a thread, at most
	elements    int64 // in all, up to which another launch takes longer
	short       int64 // bytes of the terms of either group up to which another pass moves too much
}

var twicePolicies = measured[twicePolicy]{
	// H200, us, and by two launches. elements: 14 x 2 x 1024 over 0 and 2 5.5, 7.7; 300 x 10 x 3 x 40 7.9, 12.0; 8 x 3 x 10 x 32 4.0, 7.5. short: 3 x 5 x 7 x 1000000 126, 221;
	// 14 x 3000 x 12 x 200 113, 149; float64 7 x 3000 x 8 x 300 101, 124; by tiles 1000000 x 3 x 5 x 7 over 1 and 3 130, 174, not by tiles 133; 400000 x 12 x 3 x 8 131, 151, 188. The rest was not swept
	{90, twicePolicy{block: 256, most: 1024, few: 8, terms: 32, elements: 1 << 19, short: 80}},
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

// windowPolicy tunes window sums. Blocks of short take up to half of a multiprocessor's shared memory, those of segments up to all of it, the
// others no more than the 48 KiB that a launch may ask for on every device.
type windowPolicy struct {
	direct    int64    // threads of direct: 64 bytes of outputs each
	pieces    int64    // threads of few, and of short for rows that take no more
	resident  int64    // threads of segments on a multiprocessor, by their registers
	held      int64    // segments of a window, at most
	alone     int64    // the same, where clusters cannot hold them
	clustered int64    // as resident, of clusters
	chunk     [2]int64 // threads of chunks and join by type: 16 elements each
	strayed   int64    // elements of a window from which segments walk along rows that begin anywhere
	warps     int64    // of stream on a multiprocessor, about
	run       int64    // tiles of a run of stream, at most
}

var windowPolicies = measured[windowPolicy]{
	// H200, 2^28 float32, radius 32 and 512: 555 and 563 us; runs of 8 tiles 551 and 577, of 32 563 and 563, one for each warp that fits (249 tiles) 580 and 572.
	// Threads of segments on a multiprocessor 1024, 768, 512: 2^26, radius 600 174, 165, 190, 1919 167, 165, 164, 3000 170, 175, 190, float64 2^25, radius 1100 159, 158, 155.
	// Segments held by a block, by a cluster, and chunks and join, 2^26: 4 (radius 7528) 171, -, 298, 6 (10 000) 182, 189, 284, 8 (15 000) 250, 177, 300, 13 (24 000) -, 208, 285; 10^7,
	// 11 (20 000) 53, 43, 62; float64 2^25, 9 (10 000) 196, 164, 234. Clusters of one, two or three blocks of a multiprocessor, 10^8 radius 69127 485, 424, -, 30407646 radius 42861 -, 102, 113.
	// Rows that begin anywhere, by stream and by segments: 232 x 39670 radius 283 50.2, 36.6; 8 x 965746 radius 379, Full, 38.6, 26.4; 107 x 21075 radius 185 25.1, 12.1; 42 x 284869 radius 192, Full, 46.4, 37.4;
	// 111 x 169092 radius 108 62, 91; 63 x 469075 radius 92 83, 167
	// Pieces of short 128 and 256, an earlier kernel: 150000 x 511 radius 200 284, 264, 70001 x 1001 radius 12 290, 225; since then from 128 to twice as many, as rows fill them
	{90, windowPolicy{direct: 256, pieces: 128, resident: 1024, held: 6, alone: 12, clustered: 768, chunk: [2]int64{Float32: 128, Float64: 64}, strayed: 361, warps: 16, run: 16}},
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
	manyBins = measured[manyBinsPolicy]{
		// H200, us, in two ranges and in global memory, uniform and skewed: 10^8 into 64256 239, 236 and 1255, 9742; a million into 100000 20.7, 18.9 and 17.0, 92.
		// In 16 bits, and in two ranges: 10^8 into 64256 174, 243; 17449260 into 101938 55.4, 69.2, skewed 56.1, 66.2, equal 51.6, 51.2; 2 million into 100000 25.4, 27.4.
		// Sorted, and in global memory: 10^8 into 10^6 424, 678 and 1072, 8202; 5.4 million into 312229 53, 55 and 63, 444; 4 into a million 48, 50 and 49, 320;
		// 3 into 600000 41, 46 and 38, 244; 2 into 200000 36, 42 and 27, 157; a million into 200000 33, 40 and 17, 89.
		// Ranges 12, no more than needed, 8, 16: 3 million into 200000 32, 37, 33, 31, skewed 36, 43, 38, 37; 5.4 into 312229 47, 53, 51, 45, skewed 48, 55, 52, 56;
		// 10^8 into 238429 395, 398, 385, 394, skewed -, 418, 443, 662
		{90, manyBinsPolicy{histogramPolicy: histogramPolicy{block: 256, blocks: 8}, elements: 1 << 18, sorted: 4, least: 1 << 21, middling: 1 << 23, ranges: 12}},
	}
)

// manyBinsPolicy tunes histograms with more bins than shared memory holds.
type manyBinsPolicy struct {
	histogramPolicy       // of the kernel that counts in global memory
	elements        int64 // for each range of bins, from which on blocks for each range are faster
	sorted          int64 // elements for each bin from which on it is faster to sort them by range, if there are more than two
	ranges          int64 // that fewer than middling elements are sorted by, at least: the narrower, the fewer counters do blocks add to memory
	middling        int64
	least           int64 // elements from which on it is, in place of blocks for each range; from as many on counters have 16 bits in place of two ranges
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
