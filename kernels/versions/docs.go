package versions

import "slices"

// Doc describes a version.
type Doc struct {
	Name string // a few words, for tables: "shared tree, one atomic per block"
	Doc  string // how it works, and why it is slower or faster
}

// Docs returns the numbered versions of an op, such as "Sum", nil for an op that has none. Element n-1 is Version(n).
func Docs(op string) []Doc { return slices.Clone(docs[op]) }

var docs = map[string][]Doc{
	"Add": {
		{"one thread per element", "Each thread loads two numbers and stores one."},
		{"fast", "The op itself: 16 bytes a thread."},
	},
	"Attention": {
		{"unfused", "A product, a softmax and a product: the matrix of scores and that of weights are in memory, 2 T^2 numbers a head."},
		{"tiled", "A block computes the scores of 64 queries with 64 keys at a time and keeps none: once for the maximum of each query, once more for the weights."},
		{"online softmax", "One pass: where a larger maximum comes, what was added up is scaled down. The op's kernel for devices without tensor cores."},
		{"tensor cores", "The same by mma.sync, with weights that stay in registers between the products and copies of keys in flight. The op's kernel for compute capability 8."},
		{"warp-specialised", "A producer copies by TMA, and two warpgroups multiply by wgmma in turns: one computes exponentials while the other multiplies. The op's kernel for compute capability 9.0."},
	},
	"Conv": {
		{"direct", "A thread computes an output and reads a filter and what is under it: 2 C R S loads from global memory for C R S multiply-adds."},
		{"im2col", "The window of each pixel is written as a row, R S times the image in memory; a product of all rows with the filters; and the result is transposed."},
		{"implicit", "The product without its matrix: a block computes a tile, and gathers pieces of windows from the image into shared memory, with multiply-adds of float32 units. The op's kernel for devices without tensor cores for it."},
		{"TMA", "TMA gathers the windows from channels-last copies of the operands, each number as three in BF16, and wgmma multiplies them: float32's accuracy on tensor cores. The op's kernel for compute capability 9.0."},
		{"BF16, channels last", "Images and outputs are stored in BF16 with their channels last, as convolutions of a network under Mixed have them: images need no copy, and one product is enough where there were six."},
	},
	"Dot": {
		{"partial sums", "640 blocks store their sums side by side, and a second launch adds them in order, so that the result stays on the device (DotPartials leaves them to the host): the same bits in every run."},
		{"a mutex", "640 blocks take turns at one cell, guarded by a lock made of compare-and-swap: each turn is several trips to memory."},
		{"an atomic per block", "640 atomics on one cell: one trip each. The order is any, so the last bit may differ from run to run."},
	},
	"Histogram": {
		{"global atomics", "Every element is an atomic on a counter in global memory, where all threads of the grid meet."},
		{"shared atomics", "Each block counts in shared memory and adds its counts to the grid's at the end: only its own threads meet."},
		{"lane-private columns", "Each lane of a warp has counters in a memory bank of its own, so that lanes never meet, whatever the data."},
	},
	"Iterate": {
		{"a launch per half step", "The end of a launch is a barrier of the whole grid: simple and never wrong, but every launch costs."},
		{"a CUDA graph of the launches", "The same launches recorded once and started as one: the device needs no word from the host between two."},
		{"one launch, counters that wrap", "Blocks count in global memory and wait with volatile reads for the count to be back at 0; all must be on the device at once. Two counters take turns: with one it can hang."},
		{"one launch, volatile counter", "One counter that only grows: a fence and a counter less."},
		{"one launch, release and acquire", "The same counter with the fences inside of the memory operations, by PTX."},
		{"cooperative launch, grid.sync's algorithm", "The device starts all blocks or none, and the counter flips a bit and so needs no reset."},
		{"weights in registers", "A cooperative launch in which blocks keep their rows of both matrices in registers, for n up to 1024."},
		{"one cluster of blocks", "Eight blocks write their results into each other's shared memory, for n up to 256. Above its n, a version is the next before it that fits; above 1024 that is a graph of launches with a warp per row."},
	},
	"MatMul": {
		{"one thread per output", "A thread computes one element and loads both factors of every product from global memory: 2 N^3 loads."},
		{"register tile", "A thread computes V x V elements and uses what it loads V times: 2 N^3 / V loads from global memory."},
		{"shared tile", "256 threads fetch pieces for L x L elements together: 2 N^3 / L loads from global memory, 2 N^3 / V from shared memory. Rows are fetched with a stride, and banks conflict."},
		{"coalesced, no bank conflicts", "The same loads: fetched in the order of memory, stored and read from different banks."},
		{"double buffered", "The next pieces are on their way (cp.async) while these are multiplied: one barrier a step instead of two, and no wait for memory."},
		{"warp tiles", "A warp's elements lie in a square, and three stages of pieces are in flight. For float64 a thread has 8 x 8 elements, not 4 x 4, and half the loads from shared memory."},
		{"tensor cores", "float64: the tensor cores' own multiply-add. float32: each number in two parts of 11 bits, three TF32 products for one, 22 bits of 24; sums of 16 terms by the tensor cores, which cut off, those sums added in float32: errors were smaller than version 5's wherever measured. Numbers below 2^-114 keep fewer bits. Before sm_80, and after 9.0, where the driver compiles PTX for 7.0: FMA in the elements' type."},
		{"wgmma, BF16", "From here on for BF16 operands on compute capability 9.0. A warpgroup of 128 threads multiplies 64 x 128 x 16 elements at a time, which the tensor cores read from shared memory by themselves: threads only bring the pieces (cp.async), and wait for them."},
		{"TMA, stages ahead", "One thread asks for boxes of the matrices, the copy engine brings them and counts bytes at barriers in shared memory: no addresses to compute, and six stages in flight."},
		{"producer and consumers", "A producer warp keeps the stages filled, two warpgroups multiply; they meet at the stages' barriers, never all at once."},
		{"tiles of 128 x 256", "Twice the products for each element of A that is brought, and for each read from shared memory. The producer gives its registers to the consumers, which have 128 sums a thread (setmaxnreg)."},
		{"persistent blocks, tiles in squares", "A block for each multiprocessor takes tile after tile: the next one's pieces come while the last is written. Tiles computed at one time share rows of A and columns of B in the level-2 cache."},
		{"clusters, multicast", "Two blocks with tiles one above the other fetch half of their piece of B each, for both: a third less from the level-2 cache."},
		{"float32 as six BF16 products", "Operands in float32: each number is the sum of three in BF16, and the six largest of their nine products make one. Sums of 32 terms by the tensor cores, those sums added in float32. For numbers that are neither huge nor tiny that keeps all 24 bits."},
	},
	"Sum": {
		{"one thread", "One thread adds up everything, one element after the other: it waits for memory all the time."},
		{"one block, an atomic per thread", "256 threads share the elements and add their sums to one cell by atomics. One multiprocessor works."},
		{"16 blocks, an atomic per thread", "16 multiprocessors work; 4096 atomics on one cell are served one by one, in any order."},
		{"16 blocks, shared tree, an atomic per block", "The threads of a block add up in shared memory first: 16 atomics are left. Their order is any."},
		{"16 blocks, shared tree, partial sums", "Blocks store their sums side by side, and a second launch adds them in order, so that the result stays on the device (SumPartials leaves them to the host): the same bits in every run."},
		{"2560 blocks, thread 0 adds", "The device is full, but in each block one thread adds 1024 values while the others wait."},
		{"2560 blocks, shared tree", "Ten halving steps instead of 1024 additions; a barrier after each."},
		{"2560 blocks, shuffles", "Warps add up in registers: one barrier is left. The loop before it still loads 4 bytes at a time."},
		{"16 x 16 blocks on a 64 x 64 grid", "For matrices: each block reads 16 x 16 tiles. A row of a tile is 64 bytes, half of what lies side by side in memory."},
	},
	"WindowSum": {
		{"simple", "A thread reads its whole window from global memory: neighbours read the same elements again, out of the first-level cache."},
		{"shared memory", "256 threads fetch the 256 + 2 radius elements of their windows together, each element once, and add up from shared memory."},
		{"fast", "The op itself: vector loads, several outputs a thread, and for windows of 16 elements and more sums of chunks that neighbours share."},
	},
}
