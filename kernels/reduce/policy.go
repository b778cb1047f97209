package reduce

import (
	"github.com/stheno-ml/stheno/kernels"
)

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

var rowPolicies = kernels.Measured[rowPolicy]{
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

var tilePolicies = kernels.Measured[tilePolicy]{
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

var columnPolicies = kernels.Measured[columnPolicy]{
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

var twicePolicies = kernels.Measured[twicePolicy]{
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

var reducePolicies = kernels.Measured[reducePolicy]{
	{90, reducePolicy{block: 256, chunk: 1 << 12, blocks: 3}}, // not measured alone: as for rows
}
