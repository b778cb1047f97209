package attention

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// A block of attention_pad.cu has padThreads threads. A thread of attention_pad copies a piece of padWidth elements, and one of attention_unpad padCount elements.
const (
	padThreads = 256
	padWidth   = 8
	padCount   = 8
)

var (
	padKernel   = own.Kernel("attention_pad", "attention_pad", padRows)
	unpadKernel = own.Kernel("attention_pad", "attention_unpad", unpadRows)
)

// padSource is an operand's rows in memory's order, (batches, Outers, Inners), and the padded rows, which are dense and have Pieces pieces.
type padSource struct {
	From                   kernels.Ref
	Batch, Outer, Inner    int64 // strides
	To                     kernels.Ref
	Outers, Inners, Pieces int64 `arg:"int32"`
}

type padArgs struct {
	Sources [3]padSource
	Dim     int64 `arg:"int32"`
}

// unpadArgs are runs of N elements, Stride elements apart, of Blocks blocks each: rows of Dim elements, which are Width elements apart in the source.
type unpadArgs struct {
	From, To              kernels.Ref
	Stride                int64
	N, Blocks, Dim, Width int64 `arg:"int32"`
}

// padPolicy predicts, in us on an H200, whether padded rows on tensor cores are faster than rows at any address on other units.
var padPolicy = struct {
	launch     float64 // of each launch
	bytes      float64 // copied in a us
	tile, step float64 // of the kernels of up to 128 elements: a tile, and 128 keys of it
	wide       float64 // of those of more: 32 keys of a tile of 64 queries, of two on an SM
	spread     float64 // of a step of attention_spread
	portable   float64 // of the portable kernels, multiply-adds of an SM in a us
	few        float64 // of attention_few, the same
}{2, 2.5e6, 1.5, 1.6, 2.2, 2.5, 5.8e4, 5e4}

// minPadGain is how many times as fast padded rows must be by prediction. Tests set it.
var minPadGain = 1.0

// canPad reports whether kernels of tensor cores compute the problem with padded rows: elements of 16 bits, where that was measured.
func (p Problem) canPad(dev kernels.Device) bool {
	const most = 1 << 30 // elements of an operand
	rows := p.Batch * max(p.Heads*p.Queries, p.KeyHeads*p.Keys)
	return isHopper(dev) && p.Dtype.Size() == 2 && p.Scale > 0 && !p.rowsInPieces() && rows <= most/p.padded().Dim
}

// pads reports whether rows are padded: whether the prediction is that tensor cores, and copies to scratch memory and back, are faster than the kernel of rows at any address.
func (f Forward) pads(dev kernels.Device) bool {
	return f.canPad(dev) && minPadGain*(f.copyCost(1)+f.tensorCost(dev)) < f.anyCost(dev)
}

// copyCost predicts the time of copies of operands, so many times q, k, v and a result.
func (p Problem) copyCost(times float64) float64 {
	bytes := float64(2*p.Batch*(p.Heads*p.Queries+p.KeyHeads*p.Keys)) * float64((p.Dim+p.padded().Dim)*p.Dtype.Size())
	return times * (2*padPolicy.launch + bytes/padPolicy.bytes)
}

// seenKeys is the number of keys that a query sees, about.
func (p Problem) seenKeys() int64 {
	if p.Causal {
		return max(p.Keys-p.Queries/2, p.Keys/2, 1)
	}
	return p.Keys
}

// tensorCost predicts the time of attention on tensor cores.
func (p Problem) tensorCost(dev kernels.Device) float64 {
	s, heads, sms := padPolicy, p.Batch*p.Heads, int64(dev.SMs)
	if p.Dim > 128 {
		return s.launch + float64(kernels.CeilDiv(heads*kernels.CeilDiv(p.Queries, mmaTile), 2*sms))*(s.tile+s.wide*float64(kernels.CeilDiv(p.seenKeys(), 32)))
	}
	return s.launch + float64(kernels.CeilDiv(heads*kernels.CeilDiv(p.Queries, 64*p.hopperGroups()), sms))*(s.tile+s.step*float64(kernels.CeilDiv(p.seenKeys(), hopperTile)))
}

// anyCost predicts the time of attention of rows at any address.
func (f Forward) anyCost(dev kernels.Device) float64 {
	s := padPolicy
	switch {
	case f.splits(dev):
		parts, _ := f.splitParts(dev)
		return s.launch + s.spread*float64(f.spreadCost(dev, parts))
	case f.seesFew(dev):
		return s.launch + float64(f.rows()*f.Keys*f.Dim)/float64(dev.SMs)/s.few
	}
	return f.portableCost(dev)
}

// portableCost predicts the time of attention.cu.
func (p Problem) portableCost(dev kernels.Device) float64 {
	blocks, steps := p.Batch*p.Heads*p.tiles(p.Queries), kernels.CeilDiv(p.seenKeys(), partsQueries)
	parts := max(1, min(steps, portableBlocks*int64(dev.SMs)/blocks))
	multiplyAdds := partsQueries * partsQueries * (arith.RoundUp(p.Dim, 32) + min(arith.RoundUp(p.Dim, 64), partsColumns)) // of a step
	return padPolicy.launch + float64(kernels.CeilDiv(blocks*parts, int64(dev.SMs))*kernels.CeilDiv(steps, parts)*multiplyAdds)/padPolicy.portable
}

// padded returns the problem with rows of whole pieces.
func (p Problem) padded() Problem {
	p.Dim, p.In = arith.RoundUp(p.Dim, padWidth), [3]Strides{}
	return p
}

// pad launches what copies up to three operands, the first `queries` of them of queries and the others of keys, to scratch memory with padded rows, and returns these.
func (p Problem) pad(plan *kernels.Plan, queries int, from ...operand) (to [3]operand) {
	args, blocks, wide := padArgs{Dim: p.Dim}, int64(0), p.padded()
	for i, o := range from {
		heads, rows := p.KeyHeads, p.Keys
		if i < queries {
			heads, rows = p.Heads, p.Queries
		}
		pieces := p.Batch * heads * rows * wide.Dim / padWidth
		to[i] = operand{plan.Workspace(pieces * padWidth * p.Dtype.Size()), wide.strides(heads, rows)}
		s := padSource{o.At, o.Batch, o.Head, o.Row, to[i].At, heads, rows, pieces}
		if p.RowsFirst {
			s.Outer, s.Inner, s.Outers, s.Inners = o.Row, o.Head, rows, heads
		}
		args.Sources[i], blocks = s, blocks+kernels.CeilDiv(pieces, padThreads)
	}
	for i := len(from); i < len(args.Sources); i++ {
		args.Sources[i] = padSource{From: from[0].At, To: to[0].At}
	}
	plan.Graph = true
	plan.Launch(padKernel, int(blocks), padThreads, args)
	return to
}

// unpad launches what copies padded results of so many heads and rows to a dense operand, in which those of each head may be the last ones of more.
func (p Problem) unpad(plan *kernels.Plan, from kernels.Ref, to operand, heads, rows int64) {
	a, runs := unpadArgs{From: from, To: to.At, Stride: to.Batch, N: heads * rows * p.Dim, Dim: p.Dim, Width: p.padded().Dim}, p.Batch
	if !p.RowsFirst {
		runs, a.Stride, a.N = runs*heads, to.Head, rows*p.Dim
	}
	if a.Stride == a.N {
		runs, a.N = 1, runs*a.N
	}
	a.Blocks = kernels.CeilDiv(a.N, padThreads*padCount)
	plan.Launch(unpadKernel, int(runs*a.Blocks), padThreads, a)
}

// launchPadded launches what computes attention of padded rows.
func (f Forward) launchPadded(p *kernels.Plan, dev kernels.Device, args forwardArgs) {
	wide, out := f, args.Out
	wide.Problem, args.In = f.padded(), f.pad(p, 1, args.In[:]...)
	args.Dim = wide.Dim
	if f.Out {
		args.Out = operand{p.Workspace(wide.queryBytes()), wide.strides(f.Heads, f.Queries)}
	}
	wide.launchTensor(p, dev, args)
	if f.Out {
		f.unpad(p, args.Out.At, out, f.Heads, f.Queries)
	}
}

// pads reports whether rows are padded, as that of [Forward] does: gradients take about three times as long.
func (b Backward) pads(dev kernels.Device) bool {
	return b.canPad(dev) && minPadGain*(b.copyCost(2)+3*b.tensorCost(dev)) < 3*b.portableCost(dev)
}

// launchPadded launches what computes gradients of padded rows.
func (b Backward) launchPadded(p *kernels.Plan, dev kernels.Device, in, to [3]operand, out, grad operand, outputs int64) {
	wide, padded := b, to
	wide.Problem, in = b.padded(), b.pad(p, 1, in[:]...)
	two := b.pad(p, 2, out, grad)
	wanted := []bool{b.Q, b.K, b.V}
	for i, is := range wanted {
		if padded[i].Strides = in[i].Strides; is {
			padded[i].At = p.Workspace([]int64{wide.queryBytes(), wide.keyBytes(), wide.keyBytes()}[i])
		}
	}
	wide.launchGradients(p, dev, in, padded, two[0], two[1], outputs)
	for i, is := range wanted {
		if heads, rows := b.KeyHeads, b.Keys; is {
			if i == 0 {
				heads, rows = b.Heads, b.Queries
			}
			b.unpad(p, padded[i].At, to[i], heads, rows)
		}
	}
}

func padRows(c kernels.Call) {
	a := kernels.Args[padArgs](c)
	width := arith.RoundUp(a.Dim, padWidth)
	for _, s := range a.Sources {
		from, to := kernels.Slice[uint16](c, s.From), kernels.Slice[uint16](c, s.To)
		for row := range s.Pieces * padWidth / width {
			inner, outer := row%s.Inners, row/s.Inners
			x := to[row*width:][:width]
			clear(x[copy(x, from[outer/s.Outers*s.Batch+outer%s.Outers*s.Outer+inner*s.Inner:][:a.Dim]):])
		}
	}
}

func unpadRows(c kernels.Call) {
	a := kernels.Args[unpadArgs](c)
	from, to := kernels.Slice[uint16](c, a.From), kernels.Slice[uint16](c, a.To)
	for run := range int64(c.Grid[0]) / a.Blocks {
		for row := range a.N / a.Dim {
			copy(to[run*a.Stride+row*a.Dim:][:a.Dim], from[(run*(a.N/a.Dim)+row)*a.Width:])
		}
	}
}
