package attention

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

var forwardKernels = portable("attention", "attention", forward[float32], forward[float64])

// Forward plans attention. Its inputs are q, k, v and, if there are, the counts; its outputs those that are wanted, in this order: out, and the statistics, the logarithm
// of the sum of the exponentials of each row, of float32 or float64, (Batch, Heads, Queries): -Inf where a query sees no key. It is a kernels.Planner.
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
		sizes[1], outputs = f.statisticBytes(), outputs|2
	}
	p, at := f.plan("attention", f.products(2), f.inputBytes(), sizes[:])
	args := forwardArgs{f.inputs(), operand{at[0], f.queryStrides()}, at[1], outputs, f.args(3)}
	if f.splits(dev) {
		f.launchSplit(p, dev, args, updateArgs{})
		return p, nil
	}
	if f.onHopper(dev) {
		f.launchHopper(p, dev, args.Out, at[1], outputs)
		return p, nil
	}
	if f.bySlabs(dev) {
		launchSlabs(f.Problem, p, slabForward, f.Batch*f.Heads, f.Queries, 1, 1, 2, args)
		return p, nil
	}
	launch(f.Problem, p, dev, mmaForward, forwardKernels, f.Batch*f.Heads, f.Queries, args)
	return p, nil
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
	h := newHost[T](c, dt, args.problemArgs)
	var lse []T
	if args.Outputs&2 != 0 {
		lse = kernels.Slice[T](c, args.Statistics)
	}
	h.each(args.Heads, args.Queries, func(w *work[T], batch, head, t0, n int64) {
		limits, most := h.limits(batch, t0, n)
		q := w.load(0, h.rows(args.In[0], batch, head, t0, n))
		sum, top, total := w.buffer(1, n*args.Dim), w.buffer(2, n), w.buffer(3, n)
		clear(sum)
		clear(total)
		fill(top, T(math.Inf(-1)))
		for j0 := int64(0); j0 < most; j0 += hostBlock {
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
			factor, statistic := 1/total[i], top[i]+T(math.Log(float64(total[i])))
			if limits[i] == 0 {
				factor, statistic = 0, T(math.Inf(-1))
			}
			if lse != nil {
				lse[(batch*args.Heads+head)*args.Queries+t0+i] = statistic
			}
			for k := range args.Dim {
				sum[i*args.Dim+k] *= factor
			}
		}
		if args.Outputs&1 != 0 {
			h.rows(args.Out, batch, head, t0, n).store(sum)
		}
	})
}
