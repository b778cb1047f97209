package attention

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// A block of attention_any.cu has four warps, and one of attention_double.cu four pairs of warps: workers with shareSide queries and steps of shareSide keys each.
const (
	workers   = 4
	shareSide = 16
)

// sharePolicy decides which problems the kernels compute whose warps share keys, attention_any.cu and attention_double.cu.
//
// H200, us                                 others   shared keys
// f32   192 heads,   11 x 312 of 240         181.9          74.9
// f32    18 heads,  241 x 4716 of 197       1454.6         637.7; with tiles of 32, 1175.2
// f32    69 heads,   40 x 92 of 252           65.3          28.6; with tiles of 64, 38.3
// f32   273 heads,   23 x 1009 of 35         327.9         135.6
// f32   300 heads, causal, 6490 x 26 of 24   324.0         216.4
// f32   128 heads,   10 x 2000 of 128        180.5          89.5
// f32     9 heads,    9 x 238 of 156          17.9          27.3
// f32   714 heads,    4 x 806 of 74          282.7         212.1
// f32    26 heads,    3 x 3994 of 195        120.4         133.1
// f64    14 heads, 1461 x 2108 of 161       2879.3        1579.1
// f64   252 heads, causal, 7 x 4043 of 197  4779.1        1103.2
// f64    28 heads, 1101 x 1014 of 125        911.0         760.5
// f64    28 heads,  594 x 551 of 62          240.3         240.2
var sharePolicy = struct {
	minWorkPerSM float64 // of float64, see shareWork
	maxWorkPerSM float64 // of float32 in whole pieces, up to which it was timed
	minSteps     int64   // of a block that shares the keys of a tile with others
	shortKeys    int64   // the most keys for which tiles are made smaller than the queries need
	doubleDim    int64   // the longest rows of float64 that others compute faster, of more than
	doubleRows   int64   // so many queries
}{1 << 17, 1 << 22, 2, 256, 64, 32}

// anyKernels are those of attention_any.cu by the width of rows.
var anyKernels = func() (k [3]*kernels.Kernel) {
	for i := range k {
		k[i] = own.Kernel("attention_any", fmt.Sprintf("attention_any_%d_f32", 64<<i), sharedBody[float32](kernels.Float32))
	}
	return k
}()

// sharedBody is the Go body of kernels whose warps share keys.
func sharedBody[T kernels.Float](dt kernels.Dtype) func(kernels.Call) {
	return func(c kernels.Call) { forwardParts[T](c, dt, kernels.Args[sharedArgs](c).partsArgs) }
}

// sharedArgs are the arguments of kernels whose warps share keys: Shares of them, or pairs, have the same queries.
type sharedArgs struct {
	partsArgs
	Shares int64 `arg:"int32"`
}

// paysShares reports whether the problem is large enough for attention_double.cu.
func (p *Problem) paysShares(dev kernels.Device) bool {
	return p.shareWork() >= sharePolicy.minWorkPerSM*float64(dev.SMs)
}

// shareWork is the number of multiply-adds of one product, with queries and keys in multiples of shareSide.
func (p *Problem) shareWork() float64 {
	return float64(p.Batch*p.Heads*arith.RoundUp(p.Queries, shareSide)) * float64(arith.RoundUp(p.Keys, shareSide)*p.Dim)
}

// anyComputes reports whether attention_any.cu can compute the problem on a device.
func (p *Problem) anyComputes(dev kernels.Device) bool {
	return isHopper(dev) && p.Dtype == kernels.Float32 && p.Scale > 0 && (!p.inPieces() || p.kind() != "tf32")
}

// byAny reports whether attention_any.cu computes the problem on a device, unless attention_split.cu or attention_few.cu does.
//
// H200, us                              others    any
// f32   15 heads,  53 x 1801 of 4         71.0   20.4
// f32 1487 heads,  14 x 5 of 36           40.8   17.4
// f32  107 heads, 169 x 1 of 108          19.3   12.3
// f32   13 heads,  62 x 43 of 140         22.2   12.7
// f32   16 heads, 342 x 4 of 24            6.4    5.0
// f32  654 heads, 320 x 108 of 4         122.3  124.9
// f32    1 head,  278 x 237 of 55         13.9   19.1
func (p *Problem) byAny(dev kernels.Device) bool {
	switch small := p.shareWork() <= sharePolicy.maxWorkPerSM*float64(dev.SMs); {
	case !p.anyComputes(dev):
		return false
	case !p.inPieces():
		return true
	case p.Dim <= 64:
		return p.Keys <= fewKeys || p.Queries <= workers*shareSide && small
	default:
		return p.Queries <= shareSide || p.Keys <= fewKeys && small
	}
}

// launchAny launches attention_any.cu.
func (f *Forward) launchAny(p *kernels.Plan, dev kernels.Device, args forwardArgs) {
	f.launchShared(p, dev, args, anyKernels[f.width()], workers*32, []int64{4, 3, 2}[f.width()], func(rows int64) int64 { return rows * arith.RoundUp(f.Dim, 32) * 4 })
}

// halvesTiles reports whether tiles of half the queries are faster where there are more blocks than the SMs compute at a time: they see fewer keys, and fewer of their rows are beyond the last query.
//
// H200, causal, few keys, us        whole   half
// f32   144 heads,  75 x 75 of 164   51.3   35.2
// f32   136 heads,  90 x 90 of 214   74.3   51.6
// f32   141 heads,  73 x 73 of 176   51.5   34.8
// f32   456 heads, 135 x 135 of 160 173.7  170.8
func (p *Problem) halvesTiles() bool { return p.Causal && p.Dtype == kernels.Float32 }

// launchShared launches blocks of a kernel whose workers share keys, as many as an SM computes at a time on each, and what merges their results. memory is the shared memory for rows of a block.
// A tile is no larger than the queries need or, with few keys, than gives enough blocks; it is half as large if whole tiles are more than the SMs compute at a time (halvesTiles). Where there are
// too few, blocks share the keys of a tile.
func (f *Forward) launchShared(p *kernels.Plan, dev kernels.Device, args forwardArgs, by *kernels.Kernel, threads int, blocksPerSM int64, memory func(rows int64) int64) {
	to := sharedArgs{partsArgs: partsArgs{args, 1, kernels.At(kernels.Out, 0)}}
	var blocks, atATime, step, shared int64
	for shares := int64(workers); shares > 0; shares /= 2 {
		tile := workers * shareSide / shares
		to.Shares, step = shares, shareSide*shares
		blocks, shared = f.Batch*f.Heads*kernels.CeilDiv(f.Queries, tile), memory(tile+2*step)
		atATime = min(blocksPerSM, int64(dev.SharedOptin)/shared) * int64(dev.SMs)
		fits := blocks <= atATime || shares == 2 && f.halvesTiles() && f.Batch*f.Heads*kernels.CeilDiv(f.Queries, 2*tile) > atATime
		if atATime > 0 && step < f.Keys+shareSide && (tile >= f.Queries || f.Keys <= sharePolicy.shortKeys && fits) {
			break
		}
	}
	to.Parts = max(1, min(f.Keys/(sharePolicy.minSteps*step), atATime/blocks))
	to.partial(f, p)
	p.Launch(by, int(blocks*to.Parts), threads, to).Shared = int(shared)
	to.merge(f, p)
}
