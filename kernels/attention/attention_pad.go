package attention

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// A block of attention_pad.cu has padThreads threads. A thread copies a piece of padWidth elements, or as many columns of a row of results.
const (
	padThreads = 256
	padWidth   = 8
)

var (
	padKernel  = own.Kernel("attention_pad", "attention_pad", padRows)
	joinKernel = own.Kernel("attention_pad", "attention_join", joinSections)
)

// padSource is an operand and its padded rows, (batches, Heads, Rows), of Pieces pieces. Batches that are sections begin Step rows after one another, of Count rows.
type padSource struct {
	From                             operand
	To                               kernels.Ref
	Heads, Rows, Pieces, Step, Count int64 `arg:"int32"`
}

// padArgs has q, k and v or others. With Sections the launch writes Counts.
type padArgs struct {
	Sources           [3]padSource
	Dim               int64 `arg:"int32"`
	Counts            kernels.Ref
	Sections, Queries int64 `arg:"int32"`
	Causal            bool
}

// joinArgs are padded results of Sections of Rows rows. With one the statistics are not read.
type joinArgs struct {
	From, Sectioned kernels.Ref // results and statistics
	Sections        int64       `arg:"int32"`
	Out             operand
	Statistics      kernels.Ref

	Outputs, Heads, Queries, Rows, Dim, Width, Stored int64 `arg:"int32"`
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

// maxSections is the largest number of sections of keys, and minSectionGain how many times as fast they must be by prediction where rows are whole pieces.
const (
	maxSections    = 32
	minSectionGain = 1.3
)

// minPadGain is how many times as fast padded rows must be by prediction. Tests set it.
var minPadGain = 1.0

// canPad reports whether kernels of tensor cores compute the problem with copies of its rows: elements of 16 bits, where that was measured, of more than one query, which would read keys once.
func (p *Problem) canPad(dev kernels.Device) bool {
	const most = 1 << 30 // elements of an operand
	rows := p.Batch * max(p.Heads*p.Queries, p.KeyHeads*p.Keys)
	return isHopper(dev) && p.Dtype.Size() == 2 && p.Queries > 1 && p.Scale > 0 && rows <= most/p.wideDim()
}

// pads reports whether rows are padded: whether the prediction is that tensor cores, and copies to scratch memory and back, are faster than the kernel of rows at any address. Rows of whole pieces are
// copied for sections alone.
func (f *Forward) pads(dev kernels.Device) bool {
	if !f.canPad(dev) {
		return false
	}
	sections, gain := f.sections(dev), minPadGain
	if f.rowsInPieces() {
		if gain *= minSectionGain; sections == 1 || f.splits(dev) {
			return false
		}
	}
	return gain*f.paddedCost(dev, sections) < f.anyCost(dev)
}

// canSection reports whether keys may be in sections: batches and heads are one axis of q, k and v, and there are no counts.
func (f *Forward) canSection() bool {
	for i, in := range f.inputs() {
		heads := f.KeyHeads
		if i == 0 {
			heads = f.Heads
		}
		if f.Batch > 1 && in.Batch != heads*in.Head {
			return false
		}
	}
	return f.Out && f.Counts.Elements == 0
}

// sections returns the number of sections of keys that is the fastest by prediction.
func (f *Forward) sections(dev kernels.Device) int64 {
	best := int64(1)
	for n := int64(2); f.canSection() && n <= maxSections && n <= kernels.CeilDiv(f.Keys, hopperTile); n++ {
		if f.paddedCost(dev, n) < f.paddedCost(dev, best) {
			best = n
		}
	}
	return best
}

// paddedCost predicts the time of attention of padded rows with keys in so many sections.
func (f *Forward) paddedCost(dev kernels.Device, sections int64) float64 {
	w := f.sectioned(sections)
	us := f.copyCost(w) + w.tensorCost(dev)
	if sections > 1 {
		us += float64(sections*f.rows()*(w.Dim*f.Dtype.Size()+f.statistics().Size())) / padPolicy.bytes
	}
	return us
}

// copyCost predicts the time of a copy of q, k and v to padded rows, and of one of the result.
func (p *Problem) copyCost(wide *Problem) float64 {
	queries, keys := p.Batch*p.Heads*p.Queries, p.Batch*p.KeyHeads*p.Keys
	elements := 2*(queries+keys)*p.Dim + (wide.Batch*wide.Heads*wide.Queries+queries+2*wide.Batch*wide.KeyHeads*wide.Keys)*wide.Dim
	return 2*padPolicy.launch + float64(elements*p.Dtype.Size())/padPolicy.bytes
}

// seenKeys is the number of keys that a query sees, about.
func (p *Problem) seenKeys() int64 {
	if p.Causal {
		return max(p.Keys-p.Queries/2, p.Keys/2, 1)
	}
	return p.Keys
}

// tensorCost predicts the time of attention on tensor cores.
func (p *Problem) tensorCost(dev kernels.Device) float64 {
	s, heads, sms := padPolicy, p.Batch*p.Heads, int64(dev.SMs)
	if p.Dim > 128 {
		return s.launch + float64(kernels.CeilDiv(heads*kernels.CeilDiv(p.Queries, mmaTile), 2*sms))*(s.tile+s.wide*float64(kernels.CeilDiv(p.seenKeys(), 32)))
	}
	return s.launch + float64(kernels.CeilDiv(heads*kernels.CeilDiv(p.Queries, 64*p.hopperGroups()), sms))*(s.tile+s.step*float64(kernels.CeilDiv(p.seenKeys(), hopperTile)))
}

// anyCost predicts the time of attention of rows at any address.
func (f *Forward) anyCost(dev kernels.Device) float64 {
	s := padPolicy
	switch {
	case f.rowsInPieces():
		return f.tensorCost(dev)
	case f.splits(dev):
		parts, _ := f.splitParts(dev)
		return s.launch + s.spread*float64(f.spreadCost(dev, parts))
	case f.seesFew(dev):
		return s.launch + float64(f.rows()*f.Keys*f.Dim)/float64(dev.SMs)/s.few
	}
	return f.portableCost(dev)
}

// portableCost predicts the time of attention.cu.
func (p *Problem) portableCost(dev kernels.Device) float64 {
	blocks, steps := p.Batch*p.Heads*p.tiles(p.Queries), kernels.CeilDiv(p.seenKeys(), partsQueries)
	parts := max(1, min(steps, portableBlocks*int64(dev.SMs)/blocks))
	multiplyAdds := partsQueries * partsQueries * (arith.RoundUp(p.Dim, 32) + min(arith.RoundUp(p.Dim, 64), partsColumns)) // of a step
	return padPolicy.launch + float64(kernels.CeilDiv(blocks*parts, int64(dev.SMs))*kernels.CeilDiv(steps, parts)*multiplyAdds)/padPolicy.portable
}

// wideDim is the size of padded rows.
func (p *Problem) wideDim() int64 { return arith.RoundUp(p.Dim, padWidth) }

// sectioned returns the problem with padded rows whose keys are in n sections, about. These are its batches, and batches of p are heads.
func (p *Problem) sectioned(n int64) *Problem {
	w := *p
	w.Dim, w.In, w.RowsFirst = p.wideDim(), [3]Strides{}, false
	if n > 1 {
		w.Keys = arith.RoundUp(kernels.CeilDiv(p.Keys, n), hopperTile)
		w.Batch, w.Heads, w.KeyHeads = kernels.CeilDiv(p.Keys, w.Keys), p.Batch*p.Heads, p.Batch*p.KeyHeads
		w.Counts = Counts{kernels.Int32, w.Batch * p.Queries, p.Queries, 1}
		w.Causal, w.unseen = false, 0
	}
	return &w
}

// pad launches what copies up to three operands, the first `queries` of them of queries and the others of keys, to scratch memory as a padded problem has them, and returns these. Where its batches are
// sections of keys it returns the memory of its counts, too.
func (p *Problem) pad(plan *kernels.Plan, wide *Problem, queries int, from ...operand) (to [3]operand, counts kernels.Ref) {
	args, blocks, sections := padArgs{Dim: p.Dim, Counts: from[0].At}, int64(0), wide.Keys < p.Keys
	if sections {
		args.Sections, args.Queries, args.Causal = wide.Batch, p.Queries, p.Causal
		args.Counts = plan.Workspace(wide.Counts.Elements * kernels.Int32.Size())
	}
	for i := range args.Sources {
		s := &args.Sources[i]
		if s.From, s.To = from[0], from[0].At; i >= len(from) {
			continue
		}
		s.From, s.Heads, s.Rows, s.Count = from[i], wide.KeyHeads, wide.Keys, wide.Keys
		switch {
		case i < queries:
			if s.Heads, s.Rows, s.Count = wide.Heads, wide.Queries, wide.Queries; sections {
				s.From.Batch = 0
			}
		case sections:
			s.From.Batch, s.Step, s.Count = wide.Keys*s.From.Row, wide.Keys, p.Keys
		}
		s.Pieces = wide.Batch * s.Heads * s.Rows * wide.Dim / padWidth
		s.To = plan.Workspace(s.Pieces * padWidth * p.Dtype.Size())
		to[i], blocks = operand{s.To, wide.strides(s.Heads, s.Rows)}, blocks+kernels.CeilDiv(s.Pieces, padThreads)
	}
	plan.Graph = true
	plan.Launch(padKernel, int(blocks), padThreads, args)
	return to, args.Counts
}

// join launches what copies padded results of so many heads and rows, or joins those of sections, to an operand.
func (p *Problem) join(plan *kernels.Plan, a joinArgs, heads, rows int64) {
	a.Heads, a.Queries, a.Rows, a.Dim, a.Width, a.Stored = heads, rows, p.Batch*heads*rows, p.Dim, p.wideDim(), p.stored()
	plan.Launch(joinKernel, int(kernels.CeilDiv(a.Rows*arith.Pow2(kernels.CeilDiv(p.Dim, padWidth)), padThreads)), padThreads, a)
}

// launchPadded launches what computes attention of padded rows, in sections of keys if these are faster.
func (f *Forward) launchPadded(p *kernels.Plan, dev kernels.Device, args *forwardArgs) {
	wide := Forward{Problem: *f.sectioned(f.sections(dev))}
	result := joinArgs{Sections: 1, Out: args.Out, Statistics: args.Statistics, Sectioned: args.Statistics}
	var counts kernels.Ref
	args.In, counts = f.pad(p, &wide.Problem, 1, args.In[:]...)
	result.From = p.Workspace(wide.queryBytes())
	args.Out = operand{result.From, wide.strides(wide.Heads, wide.Queries)}
	if args.Dim = wide.Dim; wide.Keys < f.Keys {
		result.Sections, result.Sectioned, result.Outputs = wide.Batch, p.Workspace(wide.statisticBytes()), args.Outputs
		args.Statistics, args.Outputs, args.problemArgs = result.Sectioned, 3, wide.args(kernels.Scratch)
		args.Counts = counts
	}
	if wide.launchTensor(p, dev, args); f.Out {
		f.join(p, result, f.Heads, f.Queries)
	}
}

// pads reports whether rows are padded, as that of [Forward] does: gradients take about three times as long.
func (b *Backward) pads(dev kernels.Device) bool {
	return b.canPad(dev) && !b.rowsInPieces() && minPadGain*(2*b.copyCost(b.sectioned(1))+3*b.tensorCost(dev)) < 3*b.portableCost(dev)
}

// launchPadded launches what computes gradients of padded rows.
func (b *Backward) launchPadded(p *kernels.Plan, dev kernels.Device, in, to [3]operand, out, grad operand, outputs int64) {
	wide, padded := Backward{Problem: *b.sectioned(1), Q: b.Q, K: b.K, V: b.V}, to
	in, _ = b.pad(p, &wide.Problem, 1, in[:]...)
	two, _ := b.pad(p, &wide.Problem, 2, out, grad)
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
			b.join(p, joinArgs{From: padded[i].At, Sectioned: padded[i].At, Sections: 1, Out: to[i], Statistics: padded[i].At}, heads, rows)
		}
	}
}

func padRows(c kernels.Call) {
	a := kernels.Args[padArgs](c)
	width := arith.RoundUp(a.Dim, padWidth)
	for _, s := range a.Sources {
		from, to := kernels.Slice[uint16](c, s.From.At), kernels.Slice[uint16](c, s.To)
		for i := range s.Pieces * padWidth / width {
			row, head, x := i%s.Rows, i/s.Rows, to[i*width:][:width]
			clear(x)
			if head/s.Heads*s.Step+row < s.Count {
				copy(x, from[head/s.Heads*s.From.Batch+head%s.Heads*s.From.Head+row*s.From.Row:][:a.Dim])
			}
		}
	}
	for i := range a.Sections * a.Queries {
		keys := a.Sources[1]
		n := keys.Count
		if a.Causal {
			n = min(n, i%a.Queries+n-a.Queries+1)
		}
		kernels.Slice[int32](c, a.Counts)[i] = int32(max(min(n-i/a.Queries*keys.Step, keys.Step), 0))
	}
}

func joinSections(c kernels.Call) {
	a := kernels.Args[joinArgs](c)
	h := &host[float32]{Call: c, dtype: []kernels.Dtype{kernels.Float32, expr.BF16, expr.F16}[a.Stored], problemArgs: problemArgs{Dim: a.Dim}}
	w := &work[float32]{dim: a.Dim}
	for row := range a.Rows {
		all, limit := newPartial[float32](a.Dim), int64(0)
		for at := row; at < a.Sections*a.Rows; at += a.Rows {
			one := partial[float32]{0, 1, w.load(0, h.rows(operand{a.From, Strides{Row: a.Width}}, 0, 0, at, 1))}
			if a.Sections > 1 {
				one.top = kernels.Slice[float32](c, a.Sectioned)[at]
			}
			all.merge(one)
		}
		if all.total != 0 { // or NaN
			limit = 1
		}
		head := row / a.Queries
		h.finish(forwardArgs{Out: a.Out, Statistics: a.Statistics, Outputs: a.Outputs | 1, problemArgs: problemArgs{Heads: a.Heads, Queries: a.Queries}}, head/a.Heads, head%a.Heads, row%a.Queries, limit, all)
	}
}
