package gemm

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// tallHopper is a kernel of matmul_tall_hopper.cu, `columns` columns of C at a time, or rows, for a C of `least` or more; a block has `groups` warpgroups. The model alone chooses it.
func tallHopper(least, columns, groups int64) *candidate {
	name := fmt.Sprintf("tall_hopper%d_f32", columns)
	return &candidate{
		name: name, dtype: kernels.Float32, strided: true, shares: true, copies: elements, orient: tall,
		able:   limits{on: mmaSingle.able.on, side: span{least, 2048}, k: span{from: 33}, elements: span{to: maxChunk}, also: addressed},
		tile:   tile{threads: int(128 * groups)},
		worth:  mmaSingle.worth,
		kernel: own.Kernel("matmul_tall_hopper", "matmul_"+name, tallHopperBody),
		args:   func(_ *candidate, x *problem, d cut, to kernels.Ref) any { return x.arguments(to, d.chunk, d.each) },
		cut: func(c *candidate, x *problem) (cut, bool) {
			list := cutsTallHopper(nil, x, columns, groups)
			return append(list, cut{})[0], len(list) > 0
		},
		all: func(_ *candidate, x *problem, list []cut) []cut { return cutsTallHopper(list, x, columns, groups) },
	}
}

// addressed reports whether the bytes of a row of A fit in 32 bits.
func addressed(_ *candidate, x *problem) bool {
	lda, _ := x.A.strides(x.M, x.K)
	return lda < 1<<29
}

// cutsTallHopper appends cuts of K. A block has a chunk of K and some of the columns of a matrix, and computes every each-th tile of 64 rows, of which its warpgroups compute one at a time.
// An SM has one block.
func cutsTallHopper(list []cut, x *problem, columns, groups int64) []cut {
	const (
		rows, slots = 64, 2 // of a tile; slices of A of a warp in shared memory
		begin       = 64    // terms of a tile that take as long as what a block does once, beside the copy of B, which takes as long as a tile
		end         = 64    // terms that take as long as storing a tile
		alone       = 2     // time of a tile whose latency nothing hides, in those of a tile among many
		maxTurns    = 8
		maxSplits   = 64
		minK        = 48
		fixed       = 16 // bytes of shared memory that are not dynamic
	)
	tiles, sms, first := kernels.CeilDiv(x.M, rows), x.sms(), len(list)
	for splits := int64(1); splits <= maxSplits; splits++ {
		chunk := arith.RoundUp(kernels.CeilDiv(x.K, splits), 16)
		jobs := x.Batch * kernels.CeilDiv(x.N, columns) * splits
		if splits > 1 && chunk < minK || len(list) > first && jobs*kernels.CeilDiv(tiles, groups) > 4*sms {
			break
		}
		shared := (2*chunk*(columns+1) + groups*4*(slots*512+8*columns+32)) * 4
		if kernels.CeilDiv(x.K, chunk) < splits || shared+fixed > int64(x.dev.SharedOptin) {
			continue
		}
		d, least := cut{partials: splits, chunk: chunk, shared: shared}, int64(0)
		for turns := int64(1); turns <= maxTurns || least == 0; turns++ {
			if turns*sms < jobs {
				turns = kernels.CeilDiv(jobs, sms)
			}
			each := kernels.CeilDiv(tiles, min(turns*sms/jobs, tiles))
			work := (each+alone*kernels.CeilDiv(each, groups))*(chunk+end) + chunk + begin
			if us := turns * work; least == 0 || us < least {
				least, d.each, d.work = us, kernels.CeilDiv(tiles, each), work*rows*columns
			}
			if each == 1 {
				break
			}
		}
		if d.blocks = jobs * d.each; kernels.CheckGrid(d.blocks) == nil {
			list = append(list, d)
		}
	}
	return list
}

func tallHopperBody(c kernels.Call) {
	x := kernels.Args[tileArgs](c)
	x.Splits = kernels.CeilDiv(x.K, x.Chunk)
	multiplyAll[float32](c, x)
}
