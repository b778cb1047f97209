package basic

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

var (
	topK     = own.Pair("topk", "topk", topKBody[float32], topKBody[float64])
	topKPart = own.Pair("topk", "topk_part", nothing, nothing)
	topKJoin = own.Pair("topk", "topk_join", topKJoinBody[float32], topKJoinBody[float64])
)

// Constants of select.cuh, and the largest k.
const (
	MaxTopK         = 1 << 10
	selectPerThread = 8
	selectLimit     = 1 << 9  // min of the candidates that a block keeps between tiles
	selectBlock     = 256     // max threads of a block that reads a row once
	selectWide      = 1 << 12 // bytes of elements, one for each thread of the largest blocks
)

type topKArgs struct {
	X, Out, Values               kernels.Ref
	N, K, Goal, Capacity, Valued int64 `arg:"int32"`
}

type topKPartArgs struct {
	X, List                           kernels.Ref
	N, K, Goal, Capacity, Parts, Each int64 `arg:"int32"`
}

type topKJoinArgs struct {
	X, List, Out, Values                kernels.Ref
	N, K, Goal, Capacity, Parts, Valued int64 `arg:"int32"`
}

// selectPolicy tunes the selection of the largest elements of rows.
type selectPolicy struct {
	blocks  int64 // for each SM below which rows are cut in parts
	minPart int64 // min elements of a part
	maxList int64 // max elements that all parts of a row list
}

var selectPolicies = kernels.Measured[selectPolicy]{
	// H100, rows of 50304 float32, us   1 row   1024   8192
	// TopK of 50                           21    137    769
	// Categorical, no restriction          11     98    637
	// Categorical, k = 50                  25    142    894
	// Categorical, p = 0.9                480   1669  11680
	// H200, with a first threshold
	// TopK of 50                           18    114    718
	// Categorical, k = 1                   15     71    509
	// Categorical, k = 50                  19    119    871
	// H100
	// PyTorch, topk                        54      -   5017
	// PyTorch, topk and multinomial        87      -   5083
	// PyTorch, softmax and multinomial     70      -   6708
	{90, selectPolicy{blocks: 1, minPart: 1 << 11, maxList: 1 << 14}},
}

// selection is the grid of blocks that select k of n elements.
type selection struct {
	threads, goal, capacity int64
}

// selectionOf returns the grid for rows, or parts of rows, of n elements, in blocks of up to `most` threads.
func selectionOf(n, k, most int64) selection {
	threads := min(max(arith.Pow2(n/selectPerThread), 32), most)
	goal := 2 * arith.Pow2(k)
	return selection{threads, goal, selectPerThread*threads + max(goal, selectLimit)}
}

// shared returns the bytes of shared memory of a block: a key and an index for each candidate.
func (s selection) shared(dt kernels.Dtype) int64 { return s.capacity * (dt.Size() + 4) }

// parts returns the number of parts in which a row of n elements is selected from, each but the last of `each` elements, a multiple of `multiple`.
func (pol selectPolicy) parts(dev kernels.Device, whole bool, rows, n, k, multiple int64) (parts, each int64) {
	parts = min(kernels.CeilDiv(pol.blocks*int64(dev.SMs), rows), n/pol.minPart, pol.maxList/k)
	if dev.Kind == kernels.CPU || whole || parts <= 1 {
		return 1, n
	}
	each = arith.RoundUp(kernels.CeilDiv(n, parts), arith.RoundUp(selectPerThread*selectBlock, multiple)) // whole tiles
	return kernels.CeilDiv(n, each), each
}

// blockThreads returns the most threads of a block for rows: as many as a block can have, for whole rows, if there are not many more SMs than rows.
func (pol selectPolicy) blockThreads(dev kernels.Device, dt kernels.Dtype, rows, n, k int64) (most int64, whole bool) {
	most = selectWide / dt.Size()
	if sms := int64(dev.SMs); dev.Kind == kernels.GPU && rows <= sms && 2*rows > sms && n > selectPerThread*selectBlock && selectionOf(n, k, most).shared(dt) <= int64(dev.SharedOptin) {
		return most, true
	}
	return selectBlock, false
}

// TopK plans [Largest] of rows of n elements, without values.
func TopK(dev kernels.Device, dt kernels.Dtype, rows, n, k int64) (*kernels.Plan, error) {
	return Largest{dt, rows, n, k, false}.Plan(dev)
}

// Largest are the indices, as Int64, of the K largest of the N elements of each row, from the largest on, and with Values these elements as a second output. Of equal
// elements the first one counts as larger, and NaN counts as largest. 1 <= K <= N, and K is at most MaxTopK. Types are Float32 and Float64.
type Largest struct {
	Dtype      kernels.Dtype
	Rows, N, K int64
	Values     bool
}

// Outputs returns the number of outputs.
func (l Largest) Outputs() int { return 1 + bit(l.Values) }

// String prints the op.
func (l Largest) String() string {
	if l.Values {
		return fmt.Sprintf("TopK[%d] with values", l.K)
	}
	return fmt.Sprintf("TopK[%d]", l.K)
}

// Plan returns the launches.
func (l Largest) Plan(dev kernels.Device) (*kernels.Plan, error) {
	dt, rows, n, k := l.Dtype, l.Rows, l.N, l.K
	p := &kernels.Plan{Op: fmt.Sprintf("topk_%v(%d of %d x %d)", dt, k, rows, n)}
	err := checkFloats(dev, dt)
	switch {
	case err != nil:
	case rows < 0 || n >= 1<<31:
		err = fmt.Errorf("got %d rows of %d elements, want rows of less than 2^31", rows, n)
	case k < 1 || k > min(n, MaxTopK):
		err = fmt.Errorf("got k = %d, want 1 to %d", k, min(n, MaxTopK))
	default:
		err = kernels.CheckGrid(rows)
	}
	sizes := []int64{rows * k * kernels.Int64.Size(), rows * k * dt.Size()}
	parts, bytes := arith.LayOut(sizes[:l.Outputs()])
	if p.Inputs, p.Out = []int64{rows * n * dt.Size()}, bytes; err != nil || rows == 0 {
		return p.Or(err)
	}
	x, out, values := kernels.In(0), kernels.At(kernels.Out, 0), kernels.At(kernels.Out, 0)
	if l.Values {
		p.Parts, values.Offset = parts, parts[1]
	}
	valued := int64(bit(l.Values))
	pol := selectPolicies.On(dev)
	threads, whole := pol.blockThreads(dev, dt, rows, n, k)
	cut, each := pol.parts(dev, whole, rows, n, k, 4)
	s := selectionOf(each, k, threads)
	if cut == 1 {
		p.Launch(topK[dt], int(rows), int(s.threads), topKArgs{x, out, values, n, k, s.goal, s.capacity, valued}).Shared = int(s.shared(dt))
		return p, nil
	}
	list := p.Workspace(rows * cut * k * 4)
	p.Launch(topKPart[dt], int(rows*cut), int(s.threads), topKPartArgs{x, list, n, k, s.goal, s.capacity, cut, each}).Shared = int(s.shared(dt))
	s = selectionOf(cut*k, k, selectBlock)
	p.Launch(topKJoin[dt], int(rows), int(s.threads), topKJoinArgs{x, list, out, values, n, k, s.goal, s.capacity, cut, valued}).Shared = int(s.shared(dt))
	return p, nil
}

// falling compares elements, given their indices: the larger one comes first, NaN before all, and of equal ones the first.
func falling[T kernels.Float](x, y T, i, j int64) int {
	return cmp.Or(cmp.Compare(bit(y != y), bit(x != x)), cmp.Compare(y, x), cmp.Compare(i, j))
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// largest returns the indices of the k largest elements of a row, in order.
func largest[T kernels.Float](x []T, k int64) []int64 {
	list := make([]int64, 0, k+1)
	for i, v := range x {
		if n := int64(len(list)); n == k && falling(x[list[n-1]], v, list[n-1], int64(i)) < 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(list, int64(i), func(a, b int64) int { return falling(x[a], x[b], a, b) })
		list = slices.Insert(list, at, int64(i))
		list = list[:min(int64(len(list)), k)]
	}
	return list
}

func topKBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[topKArgs](c)
	topKRows[T](c, args.X, args.Out, args.Values, args.N, args.K, args.Valued != 0)
}

func topKJoinBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[topKJoinArgs](c)
	topKRows[T](c, args.X, args.Out, args.Values, args.N, args.K, args.Valued != 0)
}

func topKRows[T kernels.Float](c kernels.Call, from, to, values kernels.Ref, n, k int64, valued bool) {
	x, out := kernels.Slice[T](c, from), kernels.Slice[int64](c, to)
	var y []T
	if valued {
		y = kernels.Slice[T](c, values)
	}
	kernels.Parallel(int64(c.Grid[0]), max(kernels.Grain/n, 1), func(lo, hi int64) {
		for r := lo; r < hi; r++ {
			row := x[r*n : (r+1)*n]
			list := largest(row, k)
			copy(out[r*k:], list)
			if valued {
				for i, at := range list {
					y[r*k+int64(i)] = row[at]
				}
			}
		}
	})
}
