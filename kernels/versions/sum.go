package versions

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
)

// sumVersions have the grids of the notebooks that show them, so that times can be
// compared: versions 2 to 5 those of examples/05-step-by-step, 6 to 9 those of examples/01-reduction.
//
//	H200, float32, us, by version      1     2      3    4      5     6     7     8     9      op
//	2^18, launches included        10699   117   19.5   14   13.5     -     -     -     -    9.54
//	10^9                               -     -      -    -      -   924   888   881     -     874
//	20000 x 20000                      -     -      -    -      -     -     -     -   509     357
var sumVersions = [...]version{
	1: {library.Pair("sum", "sum_thread", sumThreadBody[float32], sumThreadBody[float64]), line(1), line(1), inResult},
	2: {library.Pair("sum", "sum_atomic", sumAtomicBody[float32], sumAtomicBody[float64]), line(1), line(256), inCell},
	3: {library.Pair("sum", "sum_atomic", sumAtomicBody[float32], sumAtomicBody[float64]), line(16), line(256), inCell},
	4: {library.Pair("sum", "sum_blockatomic", sumBlockAtomicBody[float32], sumBlockAtomicBody[float64]), line(16), line(256), inCell},
	5: {library.Pair("sum", "sum_tree", sumPartsBody[float32](treeSum), sumPartsBody[float64](treeSum)), line(16), line(256), inPartials},
	6: {library.Pair("sum", "sum_naive", sumPartsBody[float32](naiveSum), sumPartsBody[float64](naiveSum)), line(32 * 80), line(1024), inPartials},
	7: {library.Pair("sum", "sum_tree", sumPartsBody[float32](treeSum), sumPartsBody[float64](treeSum)), line(32 * 80), line(1024), inPartials},
	8: {library.Pair("sum", "sum_shuffle", sumPartsBody[float32](shuffleSum), sumPartsBody[float64](shuffleSum)), line(32 * 80), line(1024), inPartials},
	9: {library.Pair("sum", "sum_blocks2d", sumBlocks2dBody[float32], sumBlocks2dBody[float64]), [3]int{64, 64, 1}, [3]int{16, 16, 1}, inPartials},
}

var (
	sumClear = library.Kernel("sum", "sum_clear", sumClearBody)
	sumRound = library.Pair("sum", "sum_round", sumRoundBody[float32], sumRoundBody[float64])
)

// sumArgs writes to Out the result, the cell or the sums of the blocks.
type sumArgs struct {
	In, Out kernels.Ref
	N       int64
}

type sum2dArgs struct {
	In, Out    kernels.Ref
	Rows, Cols int64
}

type sumClearArgs struct{ Cell kernels.Ref }

type sumRoundArgs struct{ Cell, Out kernels.Ref }

// Sum plans out = sum of in by version 1 to 9; version 9 takes a matrix, and the order of atomics decides the last bit of versions 2 to 4. Versions 5
// to 9 end with a launch of the sum's own kernel over the partial sums: the result of an op stays on the device, so no op adds up on the host.
// [SumPartials] leaves that to its caller.
func Sum(dev kernels.Device, dt kernels.Dtype, v int, shape []int) (*kernels.Plan, error) {
	p, first, err := newSumVersion(dt, v, shape)
	if err != nil {
		return nil, err
	}
	p.Out = dt.Size()
	appendAll(p, dev, dt, sumVersions[v], first)
	return p, nil
}

// SumPartials plans only the first step of version 5 to 9: out holds the blocks' sums in double, for the caller to add up.
func SumPartials(dt kernels.Dtype, v int, shape []int) (*kernels.Plan, error) {
	p, first, err := newSumVersion(dt, v, shape)
	if err != nil {
		return nil, err
	}
	if sumVersions[v].end != inPartials {
		return nil, fmt.Errorf("versions: sum: version %d leaves no partial sums, want one of 5 to %d", v, len(sumVersions)-1)
	}
	p.Op += ", partial sums"
	p.Out = 8 * int64(first.Blocks())
	first.appendTo(p, out)
	return p, nil
}

func newSumVersion(dt kernels.Dtype, v int, shape []int) (*kernels.Plan, step, error) {
	if err := check("sum", v, len(sumVersions)-1); err != nil {
		return nil, step{}, err
	}
	n := kernels.Count(shape)
	p := &kernels.Plan{Op: fmt.Sprintf("sum_%v(%v) version %d", dt, shape, v), Inputs: []int64{n * dt.Size()}, Flops: n}
	if v != 9 {
		return p, sumVersions[v].first(dt, func(to kernels.Ref) any { return sumArgs{in0, to, n} }, n), nil
	}
	if len(shape) != 2 {
		return nil, step{}, fmt.Errorf("versions: sum: version 9 got shape %v, want a matrix", shape)
	}
	rows, cols := int64(shape[0]), int64(shape[1])
	return p, sumVersions[v].first(dt, func(to kernels.Ref) any { return sum2dArgs{in0, to, rows, cols} }, rows, cols), nil
}

func sumTerms[T kernels.Float](c kernels.Call) terms {
	args := kernels.Args[sumArgs](c)
	in := kernels.Slice[T](c, args.In)
	return terms{args.Out, args.N, func(acc []float64, first int64) { addTo(acc, in[first:]) }}
}

func sumThreadBody[T kernels.Float](c kernels.Call) {
	sum, t := make([]float64, 1), sumTerms[T](c)
	threadSums(sum, t.n, 0, 1, t.add)
	kernels.Slice[T](c, t.out)[0] = T(sum[0])
}

func sumAtomicBody[T kernels.Float](c kernels.Call) { cellBody(c, sumTerms[T](c), naiveSum) }

func sumBlockAtomicBody[T kernels.Float](c kernels.Call) { cellBody(c, sumTerms[T](c), treeSum) }

func sumPartsBody[T kernels.Float](combine func([]float64) float64) func(kernels.Call) {
	return func(c kernels.Call) { partsBody(c, sumTerms[T](c), combine) }
}

func sumBlocks2dBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[sum2dArgs](c)
	in, out, rows, cols := kernels.Slice[T](c, args.In), kernels.Slice[float64](c, args.Out), args.Rows, args.Cols
	blocks, gx, gy := int64(c.Blocks()), int64(c.Grid[0]), int64(c.Grid[1])
	kernels.Parallel(blocks, max(kernels.Grain/max(rows*cols/blocks, 1), 1), func(lo, hi int64) {
		bx, by := c.Block[0], c.Block[1]
		s := make([]float64, bx*by)
		for b := lo; b < hi; b++ {
			clear(s)
			for top := b / gx * int64(by); top < rows; top += gy * int64(by) {
				for ty := range min(int64(by), rows-top) {
					row := in[(top+ty)*cols:][:cols]
					threadSums(s[int(ty)*bx:][:bx], cols, b%gx, gx, func(acc []float64, first int64) { addTo(acc, row[first:]) })
				}
			}
			out[b] = treeSum(s)
		}
	})
}

func sumClearBody(c kernels.Call) {
	clear(kernels.Slice[float64](c, kernels.Args[sumClearArgs](c).Cell)[:2])
}

func sumRoundBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[sumRoundArgs](c)
	kernels.Slice[T](c, args.Out)[0] = T(kernels.Slice[float64](c, args.Cell)[0])
}
