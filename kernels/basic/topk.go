package basic

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

var topK = own.Pair("topk", "topk", topKBody[float32], topKBody[float64])

// Constants of select.cuh, and the largest k.
const (
	MaxTopK       = 1 << 10
	selectStep    = 32     // bytes that a thread reads before its block may stop for a threshold
	selectLimit   = 1 << 9 // min of the candidates that a block keeps until it raises the threshold
	selectThreads = 256    // max threads of a block

	// Vectors of 16 bytes of a thread in flight, and those of a k above selectLargeK.
	selectSlots      = 8
	selectSlotsLarge = 4
	selectLargeK     = 256
)

type topKArgs struct {
	X, Out, Values, List, Arrivals                 kernels.Ref
	N, K, Goal, Valued, Parts, Each, Most, Joining int64 `arg:"int32"`
}

// selectPolicy tunes the selection of the largest elements of rows.
type selectPolicy struct {
	blocks  int64 // for each SM below which rows are cut in parts
	minPart int64 // min elements of a part, and for each of the k that are selected from it
	perK    int64
	maxList int64 // max elements that all parts of a row list
}

var selectPolicies = kernels.Measured[selectPolicy]{
	// H200, rows of 50304 float32, draws with k = 50, us   1 row   4     16    64    132   264
	// 1 block for each SM, parts of 4096 elements          13.3    14.9  17.0  20.6  19.1  25.8
	// parts of 2048                                        15.1    16.4  17.0  20.5  19.1  25.8
	// parts of 8192                                        13.1    14.6  15.5  19.9  18.8  25.6
	// 2 blocks                                             13.1    14.1  16.4  20.4  22.0  25.5
	{90, selectPolicy{blocks: 1, minPart: 1 << 12, perK: 48, maxList: 1 << 14}},
}

// selection is the blocks that select k of n elements.
type selection struct {
	threads, goal int64
}

// selectionOf returns the blocks for rows, or parts of rows, of n elements.
func selectionOf(n, k int64) selection {
	const perThread = 8
	return selection{min(max(arith.Pow2(n/perThread), 32), selectThreads), 2 * arith.Pow2(k)}
}

// shared returns the bytes of shared memory of a block: vectors in flight, and a key and an index for each candidate.
func (s selection) shared(dev kernels.Device, dt kernels.Dtype, k int64) int64 {
	slots := int64(selectSlots)
	if k > selectLargeK || dev.Major < 8 {
		slots = selectSlotsLarge
	}
	return slots*16*s.threads + (selectStep/dt.Size()*s.threads+max(s.goal, selectLimit))*(dt.Size()+4)
}

// parts returns the number of parts in which a row of n elements is selected from, each but the last of `each` elements, a multiple of `multiple`.
func (pol selectPolicy) parts(dev kernels.Device, rows, n, k, multiple int64) (parts, each int64) {
	parts = min(kernels.CeilDiv(pol.blocks*int64(dev.SMs), rows), n/max(pol.minPart, pol.perK*k), pol.maxList/k)
	if dev.Kind == kernels.CPU || parts <= 1 {
		return 1, n
	}
	each = arith.RoundUp(kernels.CeilDiv(n, parts), multiple)
	return kernels.CeilDiv(n, each), each
}

// launches appends a launch of blocks that select from rows in parts, and, if there are several rows of several parts, one of blocks that join these.
func launches(p *kernels.Plan, k *kernels.Kernel, rows, parts int64, s selection, shared int64, selecting, joining any) {
	p.Launch(k, int(rows*parts), int(s.threads), selecting).Shared = int(shared)
	if rows > 1 && parts > 1 {
		p.Launch(k, int(rows), int(s.threads), joining).Shared = int(shared)
	}
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
	cut, each := selectPolicies.On(dev).parts(dev, rows, n, k, selectMultiple)
	s := selectionOf(each, k)
	most := min(s.goal, MaxTopK)
	args := topKArgs{x, out, values, out, out, n, k, s.goal, int64(bit(l.Values)), cut, each, most, 0}
	if cut > 1 {
		args.List, args.Arrivals = p.Workspace(rows*cut*most*2*dt.Size()), arrivals(rows, out)
	}
	joining := args
	joining.Joining = 1
	launches(p, topK[dt], rows, cut, s, s.shared(dev, dt, k), args, joining)
	return p, nil
}

// selectMultiple divides the elements of a part.
const selectMultiple = 256

// arrivals returns [kernels.Arrivals] for a launch of the parts of one row, whose last block joins them, and unused for another.
func arrivals(rows int64, unused kernels.Ref) kernels.Ref {
	if rows == 1 {
		return kernels.At(kernels.Arrivals, 0)
	}
	return unused
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

// selectedRows returns the rows that a launch of blocks for the parts of rows writes: all, or none if another launch joins the parts.
func selectedRows(c kernels.Call, parts, joining int64) int64 {
	switch blocks := int64(c.Grid[0]); {
	case joining != 0:
		return blocks
	case parts > 1 && blocks > parts:
		return 0
	default:
		return blocks / parts
	}
}

func topKBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[topKArgs](c)
	n, k, valued := args.N, args.K, args.Valued != 0
	x, out := kernels.Slice[T](c, args.X), kernels.Slice[int64](c, args.Out)
	var y []T
	if valued {
		y = kernels.Slice[T](c, args.Values)
	}
	kernels.Parallel(selectedRows(c, args.Parts, args.Joining), max(kernels.Grain/n, 1), func(lo, hi int64) {
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
