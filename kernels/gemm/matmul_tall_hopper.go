package gemm

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// tallHopper is a kernel of matmul_tall_hopper.cu for a C of `least` to `columns` columns, or rows; a block has `groups` warpgroups. The model alone chooses it.
func tallHopper(least, columns, groups int64) *candidate {
	name := fmt.Sprintf("tall_hopper%d_f32", columns)
	return &candidate{
		name: name, dtype: kernels.Float32, strided: true, shares: true, copies: elements, orient: tall,
		able:   limits{on: mmaSingle.able.on, side: span{least, columns}, k: span{from: 33}, elements: span{to: maxChunk}},
		tile:   tile{threads: int(128 * groups)},
		worth:  mmaSingle.worth,
		kernel: own.Kernel("matmul_tall_hopper", "matmul_"+name, productBody[float32](true)), args: lowKArguments,
		cut: func(_ *candidate, x *problem) (cut, bool) { return cutTallHopper(x, columns, groups) },
	}
}

// cutTallHopper gives a block every each-th tile of a matrix, of 64 rows, of which its warpgroups compute one at a time. An SM has one block.
func cutTallHopper(x *problem, columns, groups int64) (d cut, ok bool) {
	const (
		rows, slots = 64, 2 // of a tile; slices of A of a warp in shared memory
		begin       = 256   // terms of a tile that take as long as what a block does once
		alone       = 2     // time of a tile whose latency nothing hides, in those of a tile among many
		maxTurns    = 8
		fixed       = 16 // bytes of shared memory that are not dynamic
	)
	terms, tiles := arith.RoundUp(x.K, 16), kernels.CeilDiv(x.M, rows)
	shared := (2*terms*columns + groups*4*(slots*512+8*columns+32)) * 4
	least := int64(0)
	for parts := int64(1); parts <= tiles; parts++ {
		turns, each := kernels.CeilDiv(x.Batch*parts, x.sms()), kernels.CeilDiv(tiles, parts)
		if parts > 1 && turns > maxTurns {
			break
		}
		work := (each+alone*kernels.CeilDiv(each, groups))*terms + begin
		if us := turns * work; least == 0 || us <= least {
			least, d = us, cut{each: parts, blocks: x.Batch * parts, shared: shared, work: work * rows * columns}
		}
	}
	lda, _ := x.A.strides(x.M, x.K)
	return d, shared+fixed <= int64(x.dev.SharedOptin) && lda < 1<<29 && kernels.CheckGrid(d.blocks) == nil
}
