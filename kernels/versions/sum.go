package versions

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
)

// sumVersions have the grids of the notebooks that show them, so that times can be
// compared: 2 to 5 those of examples/05-step-by-step, 6 to 9 those of
// examples/01-reduction. On an H200, 10^9 float32 took 924 us by version 6, 888 by 7,
// 881 by 8 and 874 by the op; 2^18 of them, launches included, 10699 us by 1, 117 by
// 2, 19.5 by 3, 14 by 4, 13.5 by 5 and 9.54 by the op; a matrix of 20000 x 20000
// 509 us by 9 and 357 by the op.
var sumVersions = [...]version{
	1: {pair("sum", "thread", sumThreadBody[float32], sumThreadBody[float64]), line(1), line(1), inResult},
	2: {pair("sum", "atomic", sumAtomicBody[float32], sumAtomicBody[float64]), line(1), line(256), inCell},
	3: {pair("sum", "atomic", sumAtomicBody[float32], sumAtomicBody[float64]), line(16), line(256), inCell},
	4: {pair("sum", "blockatomic", sumBlockAtomicBody[float32], sumBlockAtomicBody[float64]), line(16), line(256), inCell},
	5: {pair("sum", "tree", sumPartsBody[float32](treeSum), sumPartsBody[float64](treeSum)), line(16), line(256), inPartials},
	6: {pair("sum", "naive", sumPartsBody[float32](naiveSum), sumPartsBody[float64](naiveSum)), line(32 * 80), line(1024), inPartials},
	7: {pair("sum", "tree", sumPartsBody[float32](treeSum), sumPartsBody[float64](treeSum)), line(32 * 80), line(1024), inPartials},
	8: {pair("sum", "shuffle", sumPartsBody[float32](shuffleSum), sumPartsBody[float64](shuffleSum)), line(32 * 80), line(1024), inPartials},
	9: {pair("sum", "blocks2d", sumBlocks2dBody[float32], sumBlocks2dBody[float64]), [3]int{64, 64, 1}, [3]int{16, 16, 1}, inPartials},
}

var (
	sumClear = library.Kernel("sum", "sum_clear", sumClearBody)
	sumRound = pair("sum", "round", sumRoundBody[float32], sumRoundBody[float64])
)

// Sum plans out = sum of in by version 1 to 9; version 9 takes a matrix, and the
// order of atomics decides the last bit of versions 2 to 4. Versions 5 to 9 end with a launch of the sum's own
// kernel over the partial sums: the result of an op stays on the device, so no op
// adds up on the host. [SumPartials] leaves that to its caller.
func Sum(dev kernels.Device, dt kernels.Dtype, v int, shape []int) (*kernels.Plan, error) {
	p, step, err := newSumVersion(dt, v, shape)
	if err != nil {
		return nil, err
	}
	p.Out = dt.Size()
	appendAll(p, dev, dt, sumVersions[v], step, []kernels.Ref{in0})
	return p, nil
}

// SumPartials plans the first step of version 5 to 9 alone: out holds the
// blocks' sums in double, for the caller to add up.
func SumPartials(dt kernels.Dtype, v int, shape []int) (*kernels.Plan, error) {
	p, step, err := newSumVersion(dt, v, shape)
	if err != nil {
		return nil, err
	}
	if sumVersions[v].end != inPartials {
		return nil, fmt.Errorf("versions: sum: version %d leaves no partial sums, want one of 5 to %d", v, len(sumVersions)-1)
	}
	p.Op += ", partial sums"
	p.Out = 8 * int64(step.Blocks())
	appendStep(p, step, []kernels.Ref{in0}, out)
	return p, nil
}

func newSumVersion(dt kernels.Dtype, v int, shape []int) (*kernels.Plan, kernels.Launch, error) {
	if err := check("sum", v, len(sumVersions)-1); err != nil {
		return nil, kernels.Launch{}, err
	}
	n := kernels.Count(shape)
	extents := []int64{n}
	if v == 9 {
		if len(shape) != 2 {
			return nil, kernels.Launch{}, fmt.Errorf("versions: sum: version 9 got shape %v, want a matrix", shape)
		}
		extents = []int64{int64(shape[0]), int64(shape[1])}
	}
	p := &kernels.Plan{Op: fmt.Sprintf("sum_%v(%v) version %d", dt, shape, v), Inputs: []int64{n * dt.Size()}, Flops: n}
	return p, sumVersions[v].first(dt, extents), nil
}

func sumTerms[T kernels.Float](c kernels.Call) func(acc []float64, first int64) {
	in := kernels.Slice[T](c, 0)
	return func(acc []float64, first int64) { addTo(acc, in[first:]) }
}

func sumThreadBody[T kernels.Float](c kernels.Call) {
	var sum [1]float64
	threadSums(sum[:], c.Int(2), 0, 1, sumTerms[T](c))
	kernels.Slice[T](c, 1)[0] = T(sum[0])
}

func sumAtomicBody[T kernels.Float](c kernels.Call) {
	cellBody(c, kernels.Slice[float64](c, 1), c.Int(2), naiveSum, sumTerms[T](c))
}

func sumBlockAtomicBody[T kernels.Float](c kernels.Call) {
	cellBody(c, kernels.Slice[float64](c, 1), c.Int(2), treeSum, sumTerms[T](c))
}

func sumPartsBody[T kernels.Float](combine func([]float64) float64) func(kernels.Call) {
	return func(c kernels.Call) { partsBody(c, kernels.Slice[float64](c, 1), c.Int(2), combine, sumTerms[T](c)) }
}

func sumBlocks2dBody[T kernels.Float](c kernels.Call) {
	in, out := kernels.Slice[T](c, 0), kernels.Slice[float64](c, 1)
	rows, cols := c.Int(2), c.Int(3)
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

func sumClearBody(c kernels.Call) { clear(kernels.Slice[float64](c, 0)[:2]) }

func sumRoundBody[T kernels.Float](c kernels.Call) {
	kernels.Slice[T](c, 1)[0] = T(kernels.Slice[float64](c, 0)[0])
}
