package attention

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

var (
	forwardKernels = portable("attention", "attention", forwardParts[float32], forwardParts[float64])
	fewKernels     = portable("attention_few", "attention_few", forward[float32], forward[float64])
	partsKernels   = portable("attention", "attention_parts", mergeParts[float32], mergeParts[float64])
)

// Forward plans attention. Its inputs are q, k, v and, if there are, the counts; its outputs those that are wanted, in this order: out, and the statistics, the logarithm
// of the sum of the exponentials of each row, of float32 or float64, (Batch, Heads, Seeing()): -Inf where a query sees no key. It is a kernels.Planner.
type Forward struct {
	Problem
	Out, Statistics bool
}

type forwardArgs struct {
	In         [3]operand
	Out        operand
	Statistics kernels.Ref
	Outputs    int64 `arg:"int32"` // 1: out, 2: statistics
	problemArgs
}

// Plan returns the launches.
func (f Forward) Plan(dev kernels.Device) (*kernels.Plan, error) {
	if err := named("attention", f.check(dev)); err != nil {
		return nil, err
	}
	var sizes [2]int64
	outputs := int64(0)
	if f.Out {
		sizes[0], outputs = f.queryBytes(), 1
	}
	if f.Statistics {
		sizes[1], outputs = f.seen().statisticBytes(), outputs|2
	}
	p, at := f.plan("attention", f.products(2), f.inputBytes(), sizes[:])
	if f.Problem = *f.seen(); f.Out {
		at[0] = f.afterZeros(p, at[0])
	}
	args := forwardArgs{f.inputs(), operand{at[0], f.queryStrides()}, at[1], outputs, f.args(3)}
	switch {
	case f.pads(dev):
		f.launchPadded(p, dev, &args)
	case f.splits(dev): // before the other kernels, so that Updating plans the same kernel
		f.launchSplit(p, dev, args, updateArgs{})
	case f.byDouble(dev):
		f.launchDouble(p, dev, args)
	case f.seesFew(dev):
		p.Launch(fewKernels[f.statistics()], int(f.fewBlocks()), fewThreads, stored[forwardArgs]{args, f.stored()})
	case f.byAny(dev):
		f.launchAny(p, dev, args)
	case f.byMMA(dev):
		f.launchTensor(p, dev, &args)
	default:
		f.launchParts(p, dev, args)
	}
	return p, nil
}

// launchTensor launches kernels of tensor cores.
func (f *Forward) launchTensor(p *kernels.Plan, dev kernels.Device, args *forwardArgs) {
	switch {
	case f.onHopper(dev):
		f.launchHopper(p, dev, args)
	case f.bySlabs(dev):
		launchSlabs(&f.Problem, p, slabForward, f.Batch*f.Heads, f.Queries, 1, 1, 2, *args)
	default:
		launchMMA(&f.Problem, p, mmaForward, f.Batch*f.Heads, f.Queries, *args)
	}
}

// A block of attention_few.cu has fewThreads threads, one for each query, which sees at most fewKeys keys.
const (
	fewThreads     = 128
	fewKeys        = 32
	fewBlocksPerSM = 7  // at least: fewer blocks wait for memory
	fewQueries     = 24 // at least, of float64: threads without a query wait
)

// seesFew reports whether attention_few.cu computes the problem on a device, unless attention_split.cu does.
//
// H200, us                                      portable    few
// f32   902 heads,   554 x 1 of 43                 274.3  128.5
// f32   696 heads, 11255 x 8 of 23                1409.4 1111.9
// f32    88 heads,  1913 x 19 of 228               492.6  386.5
// f32    12 heads,  6708 x 5 of 39, 4.8 per SM      18.1   25.3
// f32    72 heads,   106 x 4 of 179, 0.5 per SM     37.2   61.2
//
// H200, us                               any    few
// f32   672 heads, 4470 x 2 of 14      654.0  265.7
// f32    77 heads, 5088 x 4 of 39      113.4   95.8
// f32   116 heads,  714 x 21 of 6       30.5   13.1
// f32   592 heads,  707 x 6 of 122     230.8  360.9
// f32   847 heads,  318 x 11 of 42      80.8  104.1
// f32    31 heads,  211 x 13 of 10       5.6    9.2
//
// H200, us                                       portable    few
// f64   352 heads, 1175 x 3 of 145                  995.5  567.8
// f64    68 heads, 2505 x 10 of 60                  130.1  124.8
// f64   132 heads, 1125 x 18 of 70                  148.8  196.5
// f64   365 heads,  250 x 5 of 5                     30.4   16.7
// f64    41 heads,  284 x 5 of 59, 0.9 per SM        16.7   25.8
// f64   304 heads,   30 x 3 of 140, 2.3 per SM       48.4   33.1
func (p *Problem) seesFew(dev kernels.Device) bool {
	if dev.Kind != kernels.GPU || p.Keys > fewKeys || p.byMMA(dev) {
		return false
	}
	if p.Dtype == kernels.Float64 {
		return isHopper(dev) && p.Keys <= 8 && p.Queries >= fewQueries && p.fewBlocks() >= 2*int64(dev.SMs)
	}
	many := p.fewBlocks() >= fewBlocksPerSM*int64(dev.SMs)
	if p.anyComputes(dev) {
		return p.Dim <= 16 && (many || p.fewBlocks() >= int64(dev.SMs) && p.Queries >= fewThreads/2) || p.Dim <= 40 && p.Keys <= 4 && many
	}
	return many
}

// fewCost predicts the time of attention_few.cu for 16-bit elements, in us on an H200.
func (p *Problem) fewCost(dev kernels.Device) float64 {
	return 3 + float64(p.rows())/float64(dev.SMs)*(0.0053+float64(p.Dim)*(0.00112+0.00004*float64(p.Keys)))
}

// fewBlocks is the number of blocks of attention_few.cu.
func (p *Problem) fewBlocks() int64 {
	return p.Batch * p.Heads * kernels.CeilDiv(p.Queries, fewThreads)
}

// partsArgs are the arguments of the portable kernels: Parts blocks share the keys of a tile of queries.
type partsArgs struct {
	forwardArgs
	Parts   int64 `arg:"int32"`
	Partial kernels.Ref
}

// A tile of attention.cu has partsQueries queries and partsColumns columns of results.
const (
	partsQueries = 64
	partsColumns = 128
)

// launchParts launches portable kernels. So many blocks share the keys of a tile of queries that there are blocksPerSM for each SM; then a launch merges their results.
func (f *Forward) launchParts(p *kernels.Plan, dev kernels.Device, args forwardArgs) {
	const blocksPerSM = 4
	step := int64(64) // keys
	if f.Dtype == kernels.Float64 {
		step = 32
	}
	blocks := f.Batch * f.Heads * kernels.CeilDiv(f.Queries, partsQueries) * kernels.CeilDiv(f.Dim, partsColumns)
	to := partsArgs{args, 1, kernels.At(kernels.Out, 0)}
	if dev.Kind == kernels.GPU {
		to.Parts = max(1, min(kernels.CeilDiv(f.Keys, step), blocksPerSM*int64(dev.SMs)/blocks))
	}
	to.partial(f, p)
	launchPortable(&f.Problem, p, forwardKernels, blocks*to.Parts, to)
	to.merge(f, p)
}

// partial has the plan make room for partial results, if there are.
func (a *partsArgs) partial(f *Forward, p *kernels.Plan) {
	if a.Parts > 1 {
		p.Scratch, a.Partial = f.rows()*a.Parts*(f.Dim+2)*f.statistics().Size(), kernels.At(kernels.Scratch, 0)
	}
}

// merge launches what merges partial results, if there are.
func (a partsArgs) merge(f *Forward, p *kernels.Plan) {
	if a.Parts > 1 {
		launchPortable(&f.Problem, p, partsKernels, kernels.CeilDiv(f.rows()*f.Dim, portableThreads), a)
	}
}

// Stored returns the plan for q, k, v and out of 16 bits, if f is of float32. The statistics stay in float32.
func (f Forward) Stored(d kernels.Dtype, _ kernels.Device) (p kernels.Planner, inputs, outputs []bool, ok bool) {
	inputs = f.inputsStored(true, true, true)
	if f.Out {
		outputs = append(outputs, true)
	}
	if f.Statistics {
		outputs = append(outputs, false)
	}
	f.Problem, ok = f.stores(d)
	return f, inputs, outputs, ok
}

// Outputs returns the number of outputs.
func (f Forward) Outputs() int { return count(f.Out, f.Statistics) }

// String prints attention and its outputs.
func (f Forward) String() string {
	switch {
	case !f.Statistics:
		return "attention"
	case !f.Out:
		return "attention statistics"
	}
	return "attention with statistics"
}

// forward is the Go body: a goroutine has blocks of queries of a head and goes through the keys block by block, by online softmax.
func forward[T kernels.Float](c kernels.Call, dt kernels.Dtype, args forwardArgs) {
	forwardParts[T](c, dt, partsArgs{forwardArgs: args, Parts: 1})
}

// forwardParts does so for each part of the keys of a block of queries.
func forwardParts[T kernels.Float](c kernels.Call, dt kernels.Dtype, args partsArgs) {
	h := newHost[T](c, dt, args.problemArgs)
	h.each(args.Heads, args.Queries, func(w *work[T], batch, head, t0, n int64) {
		limits, most := h.limits(batch, t0, n)
		q := w.load(0, h.rows(args.In[0], batch, head, t0, n))
		sum, top, total := w.buffer(1, n*args.Dim), w.buffer(2, n), w.buffer(3, n)
		each := kernels.CeilDiv(kernels.CeilDiv(most, hostBlock), args.Parts) * hostBlock
		for part := range args.Parts {
			clear(sum)
			clear(total)
			fill(top, T(math.Inf(-1)))
			for j0 := part * each; j0 < min((part+1)*each, most); j0 += hostBlock {
				m := min(hostBlock, args.Keys-j0)
				s := w.buffer(4, n*m)
				w.scores(s, q, w.load(5, h.rows(args.In[1], batch, head/args.Group, j0, m)), n, m)
				for i := range n {
					row := s[i*m : (i+1)*m]
					seen := row[:min(max(limits[i]-j0, 0), m)]
					high := top[i]
					for j := range seen {
						seen[j] *= h.scale
						high = max(high, seen[j])
					}
					from := high
					if math.IsInf(float64(high), -1) {
						from = 0
					}
					for j := range seen {
						seen[j] -= from
					}
					expr.Exponentials(seen, seen)
					factor, add := T(math.Exp(float64(top[i]-from))), T(0)
					for _, x := range seen {
						add += x
					}
					clear(row[len(seen):])
					top[i], total[i] = high, total[i]*factor+add
					for k, row := 0, sum[i*args.Dim:(i+1)*args.Dim]; k < len(row); k++ {
						row[k] *= factor
					}
				}
				if args.Outputs&1 != 0 {
					w.accumulate(sum, s, w.load(5, h.rows(args.In[2], batch, head/args.Group, j0, m)), false, n, m, func(i, j int64) bool { return j0+j < limits[i] })
				}
			}
			for i := range n {
				row := (batch*args.Heads+head)*args.Queries + t0 + i
				x := partial[T]{top[i], total[i], sum[i*args.Dim : (i+1)*args.Dim]}
				if args.Parts == 1 {
					h.finish(args.forwardArgs, batch, head, t0+i, limits[i], x)
				} else {
					x.keep(kernels.Slice[T](c, args.Partial)[(row*args.Parts+part)*(args.Dim+2):])
				}
			}
		}
	})
}

// mergeParts merges the parts of each row.
func mergeParts[T kernels.Float](c kernels.Call, dt kernels.Dtype, args partsArgs) {
	h, list := newHost[T](c, dt, args.problemArgs), kernels.Slice[T](c, args.Partial)
	for row := range args.Batches * args.Heads * args.Queries {
		all := newPartial[T](args.Dim)
		for part := range args.Parts {
			all.merge(partialOf(list[(row*args.Parts+part)*(args.Dim+2):], args.Dim))
		}
		batch, head, query := row/args.Queries/args.Heads, row/args.Queries%args.Heads, row%args.Queries
		_, limit := h.limits(batch, query, 1)
		h.finish(args.forwardArgs, batch, head, query, limit, all)
	}
}

// partial is attention of a query to some of the keys: the maximum of the scores, the sum of the exponentials of scores less that, and of values with these weights.
type partial[T kernels.Float] struct {
	top, total T
	sum        []T
}

// newPartial returns attention to no key.
func newPartial[T kernels.Float](dim int64) partial[T] {
	return partial[T]{top: T(math.Inf(-1)), sum: make([]T, dim)}
}

// partialOf is the one that begins a list: its maximum, its total and its sum.
func partialOf[T kernels.Float](list []T, dim int64) partial[T] {
	return partial[T]{list[0], list[1], list[2 : 2+dim]}
}

// keep writes it to the beginning of a list, as partialOf reads it.
func (p partial[T]) keep(list []T) {
	list[0], list[1] = p.top, p.total
	copy(list[2:], p.sum)
}

// merge adds attention to other keys.
func (p *partial[T]) merge(x partial[T]) {
	high := max(p.top, x.top)
	from := high
	if math.IsInf(float64(high), -1) {
		from = 0
	}
	a, b := T(math.Exp(float64(p.top-from))), T(math.Exp(float64(x.top-from)))
	p.top, p.total = high, p.total*a+x.total*b
	for e, y := range x.sum {
		p.sum[e] = p.sum[e]*a + y*b
	}
}

// finish stores the outputs of a query that has attended to all `limit` keys that it sees.
func (h *host[T]) finish(args forwardArgs, batch, head, query, limit int64, x partial[T]) {
	factor, statistic := 1/x.total, x.top+T(math.Log(float64(x.total)))
	if limit == 0 {
		factor, statistic = 0, T(math.Inf(-1))
	}
	if args.Outputs&2 != 0 {
		kernels.Slice[T](h.Call, args.Statistics)[(batch*args.Heads+head)*args.Queries+query] = statistic
	}
	if args.Outputs&1 == 0 {
		return
	}
	for k := range x.sum {
		x.sum[k] *= factor
	}
	h.rows(args.Out, batch, head, query, 1).store(x.sum)
}
