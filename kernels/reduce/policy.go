package reduce

import "github.com/stheno-ml/stheno/kernels"

// The policies were measured on an H200: bench/notes/reduce.md has the times by field. Fields without times were not swept.

// rowPolicy tunes reductions along rows.
type rowPolicy struct {
	short  int64 // Dot: max elements of a row for a group of lanes
	block  int   // threads of a block on a long row
	narrow int   // threads of a block if rows are many and at most wide
	many   int64 // min rows for each SM that are many
	wide   int64 // max elements of a row for narrow blocks
	chunk  int64 // min elements of a chunk of a split row
	blocks int64 // co-resident blocks for each SM if rows are split
	late   int64 // min elements for each row by which chunks must shorten the work of a block
}

var rowPolicies = kernels.Measured[rowPolicy]{
	{90, rowPolicy{short: 1024, block: 256, narrow: 64, many: 32, wide: 1 << 14, chunk: 1 << 12, blocks: 4, late: 450}},
}

// tilePolicy tunes sums of slabs that fit into shared memory.
type tilePolicy struct {
	block  int   // threads
	bytes  int64 // max bytes of a tile
	blocks int64 // blocks wanted for each SM, so that small inputs have small tiles
	busy   int64 // min threads with work, if there is enough
	most   int64 // max terms of a lane
	few    int64 // max elements for fewer slabs of several columns than SMs
}

var tilePolicies = kernels.Measured[tilePolicy]{
	{90, tilePolicy{block: 256, bytes: 1 << 15, blocks: 4, busy: 128, most: 64, few: 1 << 14}},
}

// columnPolicy tunes reductions along columns.
type columnPolicy struct {
	block  int64 // threads of a block
	rows   int64 // min rows of a thread
	few    int64 // max rows for several columns a thread
	chunk  int64 // min rows of a thread when columns are split
	blocks int64 // blocks for each SM when columns are split
	turns  int64 // max iterations of the last block to add up chunks: each adds 8 chunks of a block's columns
}

var columnPolicies = kernels.Measured[columnPolicy]{
	{90, columnPolicy{block: 256, rows: 8, few: 15, chunk: 8, blocks: 3, turns: 16}},
}

// twicePolicy tunes sums over two groups of axes in one launch.
type twicePolicy struct {
	block, most int64 // threads, and max threads
	few         int64 // max terms of a thread for small blocks
	terms       int64 // max terms of a thread
	elements    int64 // max elements of all terms for blocks that share outputs: beyond, another launch is faster
	short       int64 // max bytes of the terms of either group for a thread an output: another pass moves too much
}

var twicePolicies = kernels.Measured[twicePolicy]{
	{90, twicePolicy{block: 256, most: 1024, few: 8, terms: 32, elements: 1 << 19, short: 80}},
}

// reducePolicy tunes Reduce, which has the loop of the rows of Sum. Its values are those of rows; they were not swept.
type reducePolicy struct {
	block  int
	chunk  int64 // min elements of a block
	blocks int64 // co-resident blocks for each SM
}

var reducePolicies = kernels.Measured[reducePolicy]{
	{90, reducePolicy{block: 256, chunk: 1 << 12, blocks: 3}},
}
