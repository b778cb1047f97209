package kernels

// measured holds a launch policy by architecture: what was fastest where it was
// measured, a line for each compute capability (90 for 9.0), with the measurement
// beside it and what it was measured against. What was tried and lost at length is
// in bench/NOTES.md.
type measured[P any] []struct {
	capability int
	policy     P
}

// on returns the policy for a device. An architecture that was not measured takes the
// nearest line, the earlier of two.
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
	vectors int64 // of 16 bytes, that a thread takes
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

// elementBlock is the block of kernels that take an element a thread and are a small
// part of their plans.
const elementBlock = 256

// elements appends a launch with a thread for each of n elements.
func (p *Plan) elements(k *Kernel, n int64, args ...any) {
	p.Launch(k, int(max(CeilDiv(n, elementBlock), 1)), elementBlock, args...)
}

// rowsPolicy tunes Rows.
type rowsPolicy struct {
	elements int64 // of a row that a thread takes, where the device has enough threads
	short    int64 // columns up to which it takes half as many
	threads  int64 // that are enough, for each multiprocessor
	block    int64 // threads of a block that takes several rows, or a split of one
	most     int64 // threads of a block
	resident int64 // bytes of operands that a thread holds in registers
	partial  int64 // likewise, where it has more than it can hold
	turn     int64 // bytes that a thread reads in a turn of a loop
	shared   int64 // elements that a thread takes of rows of more columns than a block's most threads take so: a cluster of blocks shares them
	share    int64 // columns of a block of a cluster, at most if 8 blocks are enough
	long     int64 // columns from which few rows are split
	deep     int64 // likewise across rows
	chunk    int64 // least columns of a split
	least    int64 // least columns of a thread in a split across rows
	blocks   int64 // blocks wanted for each multiprocessor where rows are split
}

var rowsPolicies = measured[rowsPolicy]{
	// H200, 16384 rows of float32, us. Elements 16, 8, 32: cross-entropy of 4096 columns 187, 197, 191, layer norm 134, 143, 134, softmax 133, 131, 133;
	// of 1000 columns (short) 53.1, 50.2, 52.0, and 36.2, 35.8, 36.4, and 34.8, 34.6, 35.8. Block 128 for 256: softmax of 128 columns 7.6, 7.4.
	// Blocks 8, 4, 16, least 16: sums down 16384 x 4096 71.6, 72.5, 72.5, 72.9. Turn 128 for 64, partial 96 for 64: no faster. Threads, long, deep and chunk
	// were not swept. Clusters, share 2^14, 2^13 and without, 2048 rows of 50 257: softmax 262, 262, 284, cross-entropy 414, 420, 491; of 100 003: 576, 577,
	// 747, and 934, 934, 1260.
	{90, rowsPolicy{elements: 16, short: 1024, threads: 1024, block: 256, most: 1024, resident: 128, partial: 64, turn: 64, shared: 32, share: 1 << 14, long: 1 << 16, deep: 256, chunk: 1 << 13, least: 4, blocks: 8}},
}

// rowPolicy tunes reductions along rows.
type rowPolicy struct {
	short  int64 // rows up to this length take a group of lanes each
	block  int   // threads of a block on a long row
	chunk  int64 // least elements of a chunk when a row is split
	blocks int64 // blocks wanted for each multiprocessor
}

var rowPolicies = measured[rowPolicy]{
	// not measured alone: 1024 float32 are a 16-byte load for each of 256 threads; 32 blocks are four waves of the 8 that fit
	{90, rowPolicy{short: 1024, block: 256, chunk: 1 << 14, blocks: 32}},
}

// columnPolicy tunes reductions along columns.
type columnPolicy struct {
	block  int64 // threads of a block
	rows   int64 // least rows of a thread
	chunk  int64 // least rows of a thread when columns are split
	blocks int64 // blocks wanted for each multiprocessor, so that the last wave is a small part of the whole
}

var columnPolicies = measured[columnPolicy]{
	{90, columnPolicy{block: 256, rows: 4, chunk: 16, blocks: 32}}, // not measured alone
}

// reducePolicy tunes Reduce, which has the loop of the rows of Sum.
type reducePolicy struct {
	block  int
	chunk  int64 // least elements of a block
	blocks int64 // blocks wanted for each multiprocessor
	join   int   // threads of the block that joins
}

var reducePolicies = measured[reducePolicy]{
	{90, reducePolicy{block: 256, chunk: 1 << 14, blocks: 32, join: 1024}}, // not measured alone: as for rows
}

// windowPolicy tunes window sums. No kernel needs more shared memory than the 48 KiB
// that a launch may ask for on every device.
type windowPolicy struct {
	direct int64    // threads of direct: 64 bytes of outputs each
	chunk  [2]int64 // threads of chunks and join by type: 16 elements each
	warps  int64    // of stream on a multiprocessor, about
	run    int64    // tiles of a run of stream, at most
}

var windowPolicies = measured[windowPolicy]{
	// H200, 2^28 float32, radius 32 and 512: 555 and 563 us; runs of 8 tiles 551 and 577, of 32 563 and 563, one for each warp that fits (249 tiles) 580 and 572
	{90, windowPolicy{direct: 256, chunk: [2]int64{Float32: 128, Float64: 64}, warps: 16, run: 16}},
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
	globalHistogram = measured[histogramPolicy]{
		{90, histogramPolicy{block: 128, blocks: 16}}, // not swept: for bins that shared memory does not hold
	}
)

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

// splitPolicy tunes how sums of k terms are cut into splits where there are fewer blocks
// than multiprocessors.
type splitPolicy struct {
	blocks int64 // wanted for each multiprocessor, about as many as fit
	terms  int64 // least of a split: shorter ones cost more in partial sums than they win
}

// matmulTile is the tile of C that a block of the tiled kernel computes.
type matmulTile struct {
	m, n    int64
	threads int
	split   splitPolicy
}

// count returns the number of tiles of a batch of products of m x n elements.
func (t matmulTile) count(batch, m, n int64) int64 {
	return CeilDiv(m, t.m) * CeilDiv(n, t.n) * batch
}

// matmulPolicy tunes products that are not run on the tensor cores. The sizes of tiles
// are compiled into matmul.cu.
type matmulPolicy struct {
	large         matmulTile
	small         [2]matmulTile // by type
	rows, columns splitPolicy   // of a matrix, times a vector
}

var matmulPolicies = measured[matmulPolicy]{
	// H200, float32 at 4096, large tiles: 3217 us; float64 there, small ones: 16.7 TFLOP/s, tiles of 128 x 64 with 8 x 4
	// elements a thread (148 registers, one block a multiprocessor) 11.4; float32 at 512, k split: 25 us, on the tensor cores,
	// k whole: 41. The limits of splits, rows and columns: not measured alone.
	{90, matmulPolicy{
		large: matmulTile{m: 128, n: 128, threads: 256, split: splitPolicy{blocks: 2, terms: 128}},
		small: [2]matmulTile{
			Float32: {m: 64, n: 64, threads: 128, split: splitPolicy{blocks: 4, terms: 128}},
			Float64: {m: 64, n: 64, threads: 128, split: splitPolicy{blocks: 2, terms: 128}},
		},
		rows:    splitPolicy{blocks: 8, terms: 1024},
		columns: splitPolicy{blocks: 8, terms: 128},
	}},
}

// tensorProducts says where large products are fastest on the tensor cores.
var tensorProducts = measured[bool]{
	{80, false}, // not timed
	// H200, us, against the tiles of matmul.cu: float32, 1024: 64, 132; 2048: 330, 415; 4096: 2452, 3217; 4097: 2754, 4716;
	// 8192: 18067, 25456; float64, 4096: 2834, 7781; 512, below the limit of tiles: 41, 25 with sums cut in parts
	{90, true},
	{100, false}, // not timed
}

// hopperPolicy tunes float32 products on the tensor cores of compute capability 9.0.
type hopperPolicy struct {
	chosen   bool    // whether plans use the kernel
	products float64 // least batch * m * n * k
	terms    int64   // least k
	least    int64   // terms of a split of k
	pairs    int64   // least tiles for each multiprocessor from which blocks work in pairs
}

var hopperPolicies = measured[hopperPolicy]{
	// H200, us with planes and combining, and of cuBLAS SGEMM: 512: 18.6, 13.5 (tiles of FFMA 25); 1024: 43, 61; 2048: 200, 340; 4096: 1512, 2692 and
	// 8192: 11510, 21600, by single blocks 1579 and 11660; B or A the other way round, single blocks are 3 to 15 % slower than pairs
	// Not chosen yet: MatMul's suites pass with it, under the checkers too, but its times are not in bench/results.
	{90, hopperPolicy{chosen: false, products: 1 << 27, terms: 64, least: 128, pairs: 7}},
}
