package attention

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

var (
	deltaKernels = portable("attention_backward", "attention_delta", productsOfRows[float32], productsOfRows[float64])
	dqKernels    = portable("attention_backward", "attention_dq", gradientOfQueries[float32], gradientOfQueries[float64])
	dkvKernels   = portable("attention_backward", "attention_dkv", gradientOfKeys[float32], gradientOfKeys[float64])
)

// Backward plans gradients of attention. Its inputs are q, k, v, the statistics of [Forward], out, the gradient w.r.t. out and, if there are, the counts; its outputs the
// gradients w.r.t. q, k and v that are wanted, in this order. It is a kernels.Planner.
type Backward struct {
	Problem
	Q, K, V bool
	Packed  bool // one output, (Batch, Queries, Heads + 2 KeyHeads, Dim), has all three gradients
}

// Packs returns the plan with one output for the gradients of q, k and v that are parts of one operand, and false if the device has no kernels for it, or if they cannot be such parts.
func (b Backward) Packs(dev kernels.Device) (Backward, bool) {
	b.Packed = true
	return b, isHopper(dev) && b.checkPacked() == nil
}

// checkPacked returns an error if the output is packed and the kernels of compute capability 9.0, whose Go bodies the host runs, do not write it.
func (b *Backward) checkPacked() error {
	if b.Packed && !((b.forHopper() || b.forSlabs()) && b.RowsFirst && b.Queries == b.Keys && b.Q && b.K && b.V) {
		return fmt.Errorf("got one output for gradients %+v, want those w.r.t. q, k and v with rows first, as many queries as keys, 16-bit elements and rows of a multiple of 8, at most 128, or float32 and a multiple of 4, at most 64", b)
	}
	return nil
}

// gradients returns the gradients w.r.t. q, k and v as operands, given where each output of a plan is.
func (b *Backward) gradients(at []kernels.Ref) [3]operand {
	if !b.Packed {
		return [3]operand{{at[0], b.queryStrides()}, {at[1], b.keyStrides()}, {at[2], b.keyStrides()}}
	}
	widths, offset := b.Widths(), int64(0)
	row := widths[0] + widths[1] + widths[2]
	var list [3]operand
	for i, width := range widths {
		list[i] = operand{kernels.At(kernels.Out, offset*b.Dtype.Size()), Strides{b.Queries * row, b.Dim, row}}
		offset += width
	}
	return list
}

// Widths returns the elements of a row of all heads of q, k and v.
func (p Problem) Widths() []int64 {
	return []int64{p.Heads * p.Dim, p.KeyHeads * p.Dim, p.KeyHeads * p.Dim}
}

// gradientInputs are arguments of the kernels.
type gradientInputs struct {
	In                [3]operand
	Grad              operand
	Statistics, Delta kernels.Ref
}

type queriesArgs struct {
	gradientInputs
	Out kernels.Ref
	problemArgs
}

type keysArgs struct {
	gradientInputs
	K, V kernels.Ref
	Strides
	Outputs int64 `arg:"int32"` // 1: K, 2: V
	problemArgs
}

type deltaArgs struct {
	Grad                      kernels.Ref
	Out                       operand
	To                        kernels.Ref
	Heads, Queries, Dim, Rows int64 `arg:"int32"`
}

// Plan returns the launches.
func (b Backward) Plan(dev kernels.Device) (*kernels.Plan, error) {
	if err := named("attention gradient", b.check(dev), b.checkPacked()); err != nil {
		return nil, err
	}
	var sizes [3]int64
	products, outputs := int64(1), int64(0)
	if b.Q {
		sizes[0], products = b.queryBytes(), products+2
	}
	if b.K {
		sizes[1], products, outputs = b.keyBytes(), products+2, 1
	}
	if b.V {
		sizes[2], products, outputs = b.keyBytes(), products+1, outputs|2
	}
	if b.Q && b.K {
		products-- // the product of the gradient with v
	}
	if b.Packed {
		sizes = [3]int64{sizes[0] + sizes[1] + sizes[2]}
	}
	p, at := b.plan("attention_gradient", b.products(products), append(b.inputBytes(), b.seen().statisticBytes(), b.queryBytes(), b.queryBytes()), sizes[:])
	if b.Problem = *b.seen(); b.Q {
		at[0] = b.afterZeros(p, at[0])
	}
	in, to, out, grad := b.inputs(), b.gradients(at), b.last(kernels.In(4), b.queryStrides()), b.last(kernels.In(5), b.queryStrides())
	switch wgmma := isHopper(dev) || dev.Kind == kernels.CPU; {
	case b.Packed && !wgmma:
		return nil, fmt.Errorf("kernels: attention gradient: got one output for all gradients on %s, want compute capability 9.0", dev.Name)
	case b.canPad(dev) && !b.rowsInPieces():
		b.launchPadded(p, dev, in, to, out, grad, outputs)
	default:
		b.launchGradients(p, dev, in, to, out, grad, outputs)
	}
	return p, nil
}

// launchGradients launches the kernels of gradients.
func (b *Backward) launchGradients(p *kernels.Plan, dev kernels.Device, in, to [3]operand, out, grad operand, outputs int64) {
	wgmma := isHopper(dev) || b.Packed
	if wgmma && b.forHopper() {
		b.launchHopper(p, dev, in, to, out, grad, outputs)
		return
	}
	delta := p.Workspace(b.statisticBytes())
	const rowsOfBlock = portableThreads / 32
	p.Launch(deltaKernels[b.statistics()], int(kernels.CeilDiv(b.rows(), rowsOfBlock)), portableThreads,
		stored[deltaArgs]{deltaArgs{grad.At, out, delta, b.Heads, b.Queries, b.Dim, b.rows()}, b.stored()})
	inputs := gradientInputs{in, grad, kernels.In(3), delta}
	slabs := wgmma && b.forSlabs()
	if b.Q {
		if slabs {
			launchSlabs(&b.Problem, p, slabDQ, b.Batch*b.Heads, b.Queries, 2, 2, 3, slabQueriesArgs{inputs, to[0], b.args(6)})
		} else {
			launch(&b.Problem, p, dev, mmaDQ, dqKernels, b.Batch*b.Heads, b.Queries, queriesArgs{inputs, to[0].At, b.args(6)})
		}
	}
	if args := (keysArgs{inputs, to[1].At, to[2].At, to[1].Strides, outputs, b.args(6)}); outputs > 0 {
		if slabs {
			launchSlabs(&b.Problem, p, slabDKV, b.Batch*b.KeyHeads, b.Keys, 2, 2, 4, args)
		} else {
			launch(&b.Problem, p, dev, mmaDKV, dkvKernels, b.Batch*b.KeyHeads, b.Keys, args)
		}
	}
}

// Stored returns the plan for operands and gradients of 16 bits, if b is of float32. The statistics stay in float32.
func (b Backward) Stored(d kernels.Dtype, _ kernels.Device) (p kernels.Planner, inputs, outputs []bool, ok bool) {
	inputs, outputs = b.inputsStored(true, true, true, false, true, true), slices.Repeat([]bool{true}, b.Outputs())
	b.Problem, ok = b.stores(d)
	return b, inputs, outputs, ok
}

// Outputs returns the number of outputs.
func (b Backward) Outputs() int {
	if b.Packed {
		return 1
	}
	return count(b.Q, b.K, b.V)
}

// String prints the gradients.
func (b Backward) String() string {
	name := "attention gradient"
	if b.Packed {
		return name + " qkv"
	}
	for i, is := range []bool{b.Q, b.K, b.V} {
		if is {
			name += " " + "qkv"[i:i+1]
		}
	}
	return name
}

func productsOfRows[T kernels.Float](c kernels.Call, dt kernels.Dtype, args deltaArgs) {
	h := &host[T]{Call: c, dtype: dt, problemArgs: problemArgs{Batches: args.Rows / args.Queries / args.Heads, Heads: args.Heads, Queries: args.Queries, Dim: args.Dim}}
	to := kernels.Slice[T](c, args.To)
	h.each(args.Heads, args.Queries, func(w *work[T], batch, head, t0, n int64) {
		grad := w.load(0, h.rows(operand{args.Grad, args.Out.Strides}, batch, head, t0, n))
		out := w.load(1, h.rows(args.Out, batch, head, t0, n))
		for i := range n {
			sum := T(0)
			for k := range args.Dim {
				sum += grad[i*args.Dim+k] * out[i*args.Dim+k]
			}
			to[(batch*args.Heads+head)*args.Queries+t0+i] = sum
		}
	})
}

func gradientOfQueries[T kernels.Float](c kernels.Call, dt kernels.Dtype, args queriesArgs) {
	writeGradientOfQueries[T](c, dt, args, operand{args.Out, args.Grad.Strides})
}

func writeGradientOfQueries[T kernels.Float](c kernels.Call, dt kernels.Dtype, args queriesArgs, to operand) {
	h := newHost[T](c, dt, args.problemArgs)
	lse, delta := kernels.Slice[T](c, args.Statistics), kernels.Slice[T](c, args.Delta)
	h.each(args.Heads, args.Queries, func(w *work[T], batch, head, t0, n int64) {
		limits, most := h.limits(batch, t0, n)
		q, grad := w.load(0, h.rows(args.In[0], batch, head, t0, n)), w.load(1, h.rows(args.Grad, batch, head, t0, n))
		sum := w.buffer(2, n*args.Dim)
		clear(sum)
		at := (batch*args.Heads+head)*args.Queries + t0
		for j0 := int64(0); j0 < most; j0 += hostBlock {
			m := min(hostBlock, args.Keys-j0)
			s, dp := w.buffer(3, n*m), w.buffer(4, n*m)
			k := w.load(5, h.rows(args.In[1], batch, head/args.Group, j0, m))
			w.scores(s, q, k, n, m)
			w.scores(dp, grad, w.load(6, h.rows(args.In[2], batch, head/args.Group, j0, m)), n, m)
			h.weigh(s, dp, m, lse[at:at+n], delta[at:at+n], func(i int64) int64 { return limits[i] - j0 })
			w.accumulate(sum, dp, k, false, n, m, func(i, j int64) bool { return j0+j < limits[i] })
		}
		h.rows(to, batch, head, t0, n).store(sum)
	})
}

// weigh makes the weights of rows of m scores, of queries, and ds of dp, the products of the gradient with v. lse and delta are the statistics and deltas of the queries, and
// sees(i) is how many of the keys query i sees.
func (h *host[T]) weigh(s, dp []T, m int64, lse, delta []T, sees func(i int64) int64) {
	for i := range int64(len(lse)) {
		row, ds := s[i*m:(i+1)*m], dp[i*m:(i+1)*m]
		seen := row[:min(max(sees(i), 0), m)]
		clear(row[len(seen):])
		clear(ds[len(seen):])
		for j := range seen {
			seen[j] = min(seen[j]*h.scale-lse[i], 0) // of huge scores the rounding error alone would overflow
		}
		expr.Exponentials(seen, seen)
		for j, x := range seen {
			ds[j] = x * (ds[j] - delta[i]) * h.scale
		}
	}
}

func gradientOfKeys[T kernels.Float](c kernels.Call, dt kernels.Dtype, args keysArgs) {
	h := newHost[T](c, dt, args.problemArgs)
	lse, delta := kernels.Slice[T](c, args.Statistics), kernels.Slice[T](c, args.Delta)
	h.each(args.Heads/args.Group, args.Keys, func(w *work[T], batch, head, j0, n int64) {
		k, v := w.load(0, h.rows(args.In[1], batch, head, j0, n)), w.load(1, h.rows(args.In[2], batch, head, j0, n))
		sumK, sumV := w.buffer(2, n*args.Dim), w.buffer(3, n*args.Dim)
		clear(sumK)
		clear(sumV)
		for row := range args.Group * args.Queries { // of a group's heads, one after the other
			if row%args.Queries%hostBlock != 0 {
				continue
			}
			from, t0 := head*args.Group+row/args.Queries, row%args.Queries
			m := min(hostBlock, args.Queries-t0)
			limits, most := h.limits(batch, t0, m)
			if most <= j0 {
				continue
			}
			q, grad := w.load(4, h.rows(args.In[0], batch, from, t0, m)), w.load(5, h.rows(args.Grad, batch, from, t0, m))
			s, dp := w.buffer(6, n*m), w.buffer(7, n*m)
			w.scores(s, q, k, m, n)
			w.scores(dp, grad, v, m, n)
			at := (batch*args.Heads+from)*args.Queries + t0
			h.weigh(s, dp, n, lse[at:at+m], delta[at:at+m], func(i int64) int64 { return limits[i] - j0 })
			seen := func(i, j int64) bool { return j0+j < limits[i] }
			w.accumulate(sumV, s, grad, true, m, n, seen)
			w.accumulate(sumK, dp, q, true, m, n, seen)
		}
		if args.Outputs&1 != 0 {
			h.rows(operand{args.K, args.Strides}, batch, head, j0, n).store(sumK)
		}
		if args.Outputs&2 != 0 {
			h.rows(operand{args.V, args.Strides}, batch, head, j0, n).store(sumV)
		}
	})
}
