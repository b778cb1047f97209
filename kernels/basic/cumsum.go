package basic

import (
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// The kernels by element type.
var (
	cumSumRows    = cumSumKernels("rows", false)
	cumSumColumns = cumSumKernels("columns", true)
)

func cumSumKernels(name string, columns bool) map[kernels.Dtype]*kernels.Kernel {
	all := map[kernels.Dtype]*kernels.Kernel{}
	for dt, body := range map[kernels.Dtype]func(columns bool) func(kernels.Call){
		kernels.Float32: cumSumBody[float32, float32], kernels.Float64: cumSumBody[float64, float64], kernels.Int32: cumSumBody[int32, int64], kernels.Int64: cumSumBody[int64, int64],
	} {
		all[dt] = own.Kernel("cumsum", fmt.Sprintf("cumsum_%s_%v", name, dt), body(columns))
	}
	return all
}

type cumSumArgs struct {
	X, Totals, Out  kernels.Ref
	Outer, N        int64
	Parts           int64 `arg:"int32"`
	Each            int64
	Reversed, Write bool
}

type cumSumRowsArgs struct {
	cumSumArgs
	Block bool
}

type cumSumColumnsArgs struct {
	cumSumArgs
	Inner int64
}

// H100, float32, us         CumSum   PyTorch
// 4096 x 50304, axis 1         592      1010
// 64 x 1024 x 1024, axis 1     214       490
// 2^26                         311       262
// 50304                         11         6
//
// Constants of cumsum.cu, and how rows and columns are cut in parts. None depends on the device, because the order of a sum, and with it the
// bits of the result, depend on them.
const (
	cumSumBlock      = 256
	cumSumThreadRow  = 1 << 5  // max elements of a row that a thread sums
	cumSumWarpRow    = 1 << 10 // max elements of a row, or a part of one, that a warp sums
	cumSumRowPart    = 1 << 12 // elements of which the parts of a row are multiples
	cumSumRowBlocks  = 1 << 9  // blocks from which on rows are not cut
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
	args := cumSumArgs{kernels.In(0), kernels.At(kernels.Out, 0), kernels.At(kernels.Out, 0), outer, n, 1, n, reversed, true}
	cut := func(parts, multiple int64) {
		args.Each = arith.RoundUp(kernels.CeilDiv(n, max(min(parts, cumSumMaxParts), 1)), multiple)
		args.Parts = kernels.CeilDiv(n, args.Each)
	}
	var blocks int64
	launch := func() { p.Launch(cumSumColumns[dt], int(blocks), cumSumBlock, cumSumColumnsArgs{args, inner}) }
	if inner == 1 && n > cumSumThreadRow {
		cut(cumSumRowBlocks/outer, cumSumRowPart)
		block := n > cumSumWarpRow
		if blocks = outer * args.Parts; !block {
			blocks = kernels.CeilDiv(blocks, cumSumBlock/32)
		}
		launch = func() { p.Launch(cumSumRows[dt], int(blocks), cumSumBlock, cumSumRowsArgs{args, block}) }
	} else {
		cut(cumSumThreads/(outer*inner), cumSumColumnPart)
		blocks = kernels.CeilDiv(outer*args.Parts*inner, cumSumBlock)
	}
	if args.Parts > 1 {
		args.Totals = p.Workspace(outer * args.Parts * inner * size)
		args.Write = false
		launch()
		args.Write = true
	}
	launch()
	return p.Or(kernels.CheckGrid(blocks))
}

func cumSumBody[X, A kernels.Element](columns bool) func(kernels.Call) {
	return func(c kernels.Call) {
		inner := int64(1)
		if columns {
			inner = kernels.Args[cumSumColumnsArgs](c).Inner
		}
		cumSum[X, A](c, kernels.Args[cumSumArgs](c), inner)
	}
}

// cumSum sums whole columns in the launch that writes, and does nothing in that of the totals.
func cumSum[X, A kernels.Element](c kernels.Call, a cumSumArgs, inner int64) {
	if !a.Write {
		return
	}
	x, out := kernels.Slice[X](c, a.X), kernels.Slice[A](c, a.Out)
	kernels.Parallel(a.Outer*inner, max(kernels.Grain/a.N, 1), func(lo, hi int64) {
		for column := lo; column < hi; column++ {
			at, step := column/inner*a.N*inner+column%inner, inner
			if a.Reversed {
				at, step = at+(a.N-1)*inner, -inner
			}
			var sum A
			for range a.N {
				sum += A(x[at])
				out[at] = sum
				at += step
			}
		}
	})
}
