package attention

import (
	"math"
	"slices"

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

// padPolicy predicts, in us on an H200, the time of kernels of tensor cores with padded rows, and in sections of keys. Where rows are not whole pieces they are always faster than attention.cu.
//
// BF16, H200, us                         others            padded   PyTorch 2.11
// 14 heads, 8 x 4214 of 135               111.4  spread      52.2           84.1
// 186 heads, 14 x 2034 of 17              180.2  spread      66.5           86.6
// 333 heads, 12 x 88 of 167               120.5  spread      36.0           65.0
// 48 heads, 14 x 2651 of 3                 28.4  spread      33.1           33.2
// 106 heads, 4 x 7175 of 5                 29.0  spread      96.1           97.0
// 200 heads, 3511 x 29 of 17              205.1  few        148.1          173.6
// 230 heads, 6420 x 12 of 6               151.8  few        212.8          259.7
// 110 heads, 17 x 968 of 103              244.7              49.4          102.3
// 129 heads, 39 x 6916 of 4               724.2              93.8           85.6
// 452 heads, 35 x 380 of 6                164.6              32.8           40.3
// 1 head, 38 x 2 of 65                     11.9              10.8           12.3
// 8 heads, 32 x 1619 of 240, no copies     73.5  tensor      33.0
// gradients, 7 heads, 208 x 396 of 51     179.4              32.0           38.9
var padPolicy = struct {
	launch, tensor float64 // the launches of padded rows, and the launch of rows as they are
	bytes          float64 // copied in a us
	tile, step     float64 // rows of up to 128 elements: a tile, and 128 keys of it
	wide           float64 // longer rows: 32 keys of a tile of 64 queries, while an SM computes two
	join, section  float64 // joining results, and each section
	minGain        float64 // how many times as fast sections must be where rows are whole pieces
	maxSections    int64
}{7.6, 5, 2.7e6, 1.4, 1.3, 1.5, 2.7, 0.3, 1.2, 32}

// minPadGain is how many times as fast padded rows must be by prediction. Tests set it.
var minPadGain = 1.0

// canPad reports whether kernels of tensor cores compute the problem with copies of its rows: elements of 16 bits, where that was measured.
func (p *Problem) canPad(dev kernels.Device) bool {
	const most = 1 << 30 // elements of an operand
	rows := p.Batch * max(p.Heads*p.Queries, p.KeyHeads*p.Keys)
	return isHopper(dev) && p.Dtype.Size() == 2 && p.Scale > 0 && rows <= most/p.wideDim()
}

// pads reports whether rows are padded. Those of whole pieces are copied for sections alone.
func (f *Forward) pads(dev kernels.Device) bool {
	if !f.canPad(dev) {
		return false
	}
	sections, us := f.sections(dev)
	switch cost := minPadGain * us; {
	case f.rowsInPieces():
		return sections > 1 && !f.splits(dev) && padPolicy.minGain*cost < padPolicy.tensor+f.tensorCost(dev)
	case f.splits(dev):
		parts, _ := f.splitParts(dev)
		return f.Queries > 1 && cost < f.splitCost(dev, parts)
	case f.seesFew(dev):
		return cost < f.fewCost(dev)
	}
	return true
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

// sections returns the number of sections of keys that is the fastest by prediction, and the time with it.
func (f *Forward) sections(dev kernels.Device) (best int64, us float64) {
	best, us = 1, f.paddedCost(dev, 1)
	if !f.canSection() {
		return best, us
	}
	for n := int64(2); n <= min(padPolicy.maxSections, kernels.CeilDiv(f.Keys, hopperTile)); n++ {
		if cost := f.paddedCost(dev, n); cost < us {
			best, us = n, cost
		}
	}
	return best, us
}

// paddedCost predicts the time of attention of padded rows with keys in so many sections.
func (f *Forward) paddedCost(dev kernels.Device, sections int64) float64 {
	s, w := padPolicy, f.sectioned(sections)
	queries, keys := f.Batch*f.Heads*f.Queries, f.Batch*f.KeyHeads*f.Keys
	elements := 2*(queries+keys)*f.Dim + 2*(w.Batch*w.Heads*w.Queries+w.Batch*w.KeyHeads*w.Keys)*w.Dim
	us := s.launch + float64(elements*f.Dtype.Size())/s.bytes + w.tensorCost(dev)
	if sections > 1 {
		us += s.join + s.section*float64(w.Batch)
	}
	return us
}

// tensorCost predicts the time of attention on tensor cores, without a launch.
func (p *Problem) tensorCost(dev kernels.Device) float64 {
	s, heads, keys := padPolicy, p.Batch*p.Heads, p.Keys
	if p.Causal { // the keys that a query sees on average, roughly
		keys = max(p.Keys-p.Queries/2, p.Keys/2, 1)
	}
	if p.Dim > 128 {
		return float64(kernels.CeilDiv(heads*kernels.CeilDiv(p.Queries, mmaTile), 2*int64(dev.SMs))*kernels.CeilDiv(keys, 32)) * s.wide
	}
	return float64(kernels.CeilDiv(heads*kernels.CeilDiv(p.Queries, 64*p.hopperGroups()), int64(dev.SMs))) * (s.tile + s.step*float64(kernels.CeilDiv(keys, hopperTile)))
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

// join launches attention_join, which copies padded results to an operand of heads and rows, or adds up those of sections.
func (p *Problem) join(plan *kernels.Plan, a joinArgs, heads, rows int64) {
	a.Heads, a.Queries, a.Rows, a.Dim, a.Width, a.Stored = heads, rows, p.Batch*heads*rows, p.Dim, p.wideDim(), p.stored()
	plan.Launch(joinKernel, int(kernels.CeilDiv(a.Rows*arith.Pow2(kernels.CeilDiv(p.Dim, padWidth)), padThreads)), padThreads, a)
}

// launchPadded launches what computes attention of padded rows, in sections of keys if these are faster.
func (f *Forward) launchPadded(p *kernels.Plan, dev kernels.Device, args *forwardArgs) {
	sections, _ := f.sections(dev)
	wide := Forward{Problem: *f.sectioned(sections)}
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
		all, tops := newPartial[float32](a.Dim), make([]float32, a.Sections)
		for s := range tops {
			if a.Sections > 1 {
				tops[s] = kernels.Slice[float32](c, a.Sectioned)[int64(s)*a.Rows+row]
			}
		}
		none := slices.Max(tops) == all.top // the result is 0, or NaN if scores are all -Inf
		for s, top := range tops {
			if none || !math.IsInf(float64(top), -1) {
				all.merge(partial[float32]{top, 1, w.load(0, h.rows(operand{a.From, Strides{Row: a.Width}}, 0, 0, int64(s)*a.Rows+row, 1))})
			}
		}
		if none {
			all.total = 1
		}
		head := row / a.Queries
		h.finish(forwardArgs{Out: a.Out, Statistics: a.Statistics, Outputs: a.Outputs | 1, problemArgs: problemArgs{Heads: a.Heads, Queries: a.Queries}}, head/a.Heads, head%a.Heads, row%a.Queries, 1, all)
	}
}
