package basic

import (
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// The kernels by element type, with what their host bodies ask of a launch: whether it writes, and the elements between those of a sum.
var (
	cumSumRows   = cumSumKernels("rows", func(kernels.Call) (bool, int64) { return true, 1 })
	cumSumJoined = cumSumKernels("joined", func(kernels.Call) (bool, int64) { return true, 1 })
	cumSumTiles  = cumSumKernels("tiles", func(c kernels.Call) (bool, int64) { return kernels.Args[cumSumTotals](c).Write, 1 })

	cumSumColumns = cumSumKernels("columns", func(c kernels.Call) (bool, int64) {
		a := kernels.Args[cumSumColumnsArgs](c)
		return a.Write, a.Inner
	})
)

func cumSumKernels(name string, of func(kernels.Call) (write bool, inner int64)) map[kernels.Dtype]*kernels.Kernel {
	all := map[kernels.Dtype]*kernels.Kernel{}
	for dt, sum := range map[kernels.Dtype]func(kernels.Call, int64){
		kernels.Float32: cumSum[float32, float32, float64], kernels.Float64: cumSum[float64, float64, float64], kernels.Int32: cumSum[int32, int64, int64], kernels.Int64: cumSum[int64, int64, int64],
	} {
		all[dt] = own.Kernel("cumsum", fmt.Sprintf("cumsum_%s_%v", name, dt), func(c kernels.Call) {
			if write, inner := of(c); write {
				sum(c, inner)
			}
		})
	}
	return all
}

// cumSumArgs are the first arguments of all kernels.
type cumSumArgs struct {
	X, Out   kernels.Ref
	Outer, N int64
	Reversed bool
}

type cumSumRowsArgs struct {
	cumSumArgs
	Block bool
}

// cumSumTotals are the arguments of kernels that are launched twice: first without Write, when columns adds up its Count parts and tiles clears the sums of its Count tiles of a row.
type cumSumTotals struct {
	cumSumArgs
	Totals kernels.Ref
	Write  bool
	Count  int64 `arg:"int32"`
}

type cumSumTilesArgs struct {
	cumSumTotals
	Arrivals kernels.Ref
}

type cumSumColumnsArgs struct {
	cumSumTotals
	Each, Inner int64
}

// H100, float32, us         CumSum   PyTorch
// 4096 x 50304, axis 1         592      1010
// 64 x 1024 x 1024, axis 1     214       490
// 2^26                         311       262
// 50304                        2.4       3.5
//
// Constants of cumsum.cu, and how rows and columns are cut in parts. None depends on the device, because the order of a sum, and with it the
// bits of the result, depend on them.
const (
	cumSumBlock      = 256
	cumSumThreadRow  = 1 << 5  // max elements of a row that a thread sums
	cumSumWarpRow    = 1 << 10 // max elements of a row, or a part of one, that a warp sums
	cumSumTileGroup  = 1 << 7  // tiles of a group
	cumSumCluster    = 1 << 3  // max tiles of a row that a cluster sums
	cumSumJoinedRows = 1 << 6  // max rows that clusters sum
	cumSumRowBlocks  = 1 << 9  // rows from which on tiles of a row have no blocks of their own
	cumSumMaxParts   = 1 << 9
	cumSumColumnPart = 1 << 6  // elements of which the parts of a column are multiples
	cumSumThreads    = 1 << 15 // threads from which on columns are not cut
)

// CumSum plans out[o][k][c] = the sum of x[o][j][c] over j <= k along an axis, or over j >= k if reversed, which is the adjoint. Types are Float32 and
// Float64, and Int32, Int64 and Int, of which out is Int64 and sums wrap. The order of sums follows from the shape alone.
func CumSum(dev kernels.Device, dt kernels.Dtype, shape []int, axis int, reversed bool) (*kernels.Plan, error) {
	outer, n, inner, err := alongAxis(shape, axis, 0)
	p := &kernels.Plan{Op: fmt.Sprintf("cumsum_%v(%v along %d)", dt, shape, axis)}
	if dt == kernels.Int && kernels.Int.Size() == kernels.Int64.Size() {
		dt = kernels.Int64
	}
	if err == nil && cumSumRows[dt] == nil {
		err = errors.New("want float32, float64, int32, int64 or int")
	}
	size := kernels.Int64.Size() // of a sum
	if dt.IsFloat() {
		size = dt.Size()
	}
	p.Inputs, p.Out, p.Flops = []int64{outer * n * inner * dt.Size()}, outer*n*inner*size, outer*n*inner
	if err != nil || p.Out <= 0 {
		return p.Or(err)
	}
	args := cumSumArgs{kernels.In(0), kernels.At(kernels.Out, 0), outer, n, reversed}
	var blocks int64
	tile := int64(cumSumBlock * 32)
	if size > 4 {
		tile = cumSumBlock * 8
	}
	switch {
	case inner == 1 && n > tile && n <= cumSumCluster*tile && outer <= cumSumJoinedRows && dev.Kind == kernels.GPU && dev.Major == 9:
		blocks = outer * cumSumCluster
		p.Launch(cumSumJoined[dt], int(blocks), cumSumBlock, args)
	case inner == 1 && n > tile && outer < cumSumRowBlocks:
		count := kernels.CeilDiv(n, tile)
		sums := outer * (count + count/cumSumTileGroup)
		args := cumSumTilesArgs{cumSumTotals{args, p.Workspace(2 * sums * size), false, count}, kernels.At(kernels.Arrivals, 0)}
		p.Launch(cumSumTiles[dt], int(min(kernels.CeilDiv(sums, cumSumBlock), cumSumRowBlocks)), cumSumBlock, args)
		blocks, args.Write = outer*count, true
		p.Launch(cumSumTiles[dt], int(blocks), cumSumBlock, args)
	case inner == 1 && n > cumSumThreadRow:
		block := n > cumSumWarpRow
		if blocks = outer; !block {
			blocks = kernels.CeilDiv(outer, cumSumBlock/32)
		}
		p.Launch(cumSumRows[dt], int(blocks), cumSumBlock, cumSumRowsArgs{args, block})
	default:
		args := cumSumColumnsArgs{cumSumTotals{args, args.Out, true, 1}, n, inner}
		args.Each = arith.RoundUp(kernels.CeilDiv(n, max(min(cumSumThreads/(outer*inner), cumSumMaxParts), 1)), cumSumColumnPart)
		args.Count = kernels.CeilDiv(n, args.Each)
		blocks = kernels.CeilDiv(outer*args.Count*inner, cumSumBlock)
		if args.Count > 1 {
			args.Totals, args.Write = p.Workspace(outer*args.Count*inner*size), false
			p.Launch(cumSumColumns[dt], int(blocks), cumSumBlock, args)
			args.Write = true
		}
		p.Launch(cumSumColumns[dt], int(blocks), cumSumBlock, args)
	}
	return p.Or(kernels.CheckGrid(blocks))
}

// cumSum sums whole rows or columns in S.
func cumSum[X, A, S kernels.Element](c kernels.Call, inner int64) {
	a := kernels.Args[cumSumArgs](c)
	x, out := kernels.Slice[X](c, a.X), kernels.Slice[A](c, a.Out)
	kernels.Parallel(a.Outer*inner, max(kernels.Grain/a.N, 1), func(lo, hi int64) {
		for column := lo; column < hi; column++ {
			at, step := column/inner*a.N*inner+column%inner, inner
			if a.Reversed {
				at, step = at+(a.N-1)*inner, -inner
			}
			var sum S
			for range a.N {
				sum += S(x[at])
				out[at] = A(sum)
				at += step
			}
		}
	})
}
