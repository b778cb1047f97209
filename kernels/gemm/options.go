package gemm

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// option is a candidate with the problem as it computes it and one of its cuts.
type option struct {
	*candidate
	as problem
	cut
}

// String prints the candidate and its cut.
func (o option) String() string {
	d := o.cut
	return fmt.Sprint(o.name, []int64{max(d.partials, 1), max(d.parts, 1), d.chunk, max(d.cluster, 1), d.streamed, d.each})
}

// each calls f for all kernels that compute a problem on a GPU and read operands in a form, Plain: all of them, with the problem as they compute it.
func (x *problem) each(read Form, f func(c *candidate, as *problem)) {
	fits, side, as := quarter(x, 6), min(x.M, x.N), problem{}
	for _, group := range table {
		for i := range group {
			c := group[i]
			if c.dtype != x.Dtype || read != Plain && c.form != read || !c.able.side.has(side) || !c.able.k.has(x.K) || read == Plain && c.form != Plain && !fits {
				continue
			}
			at := x
			if c.orient != nil {
				as = c.orient(*x)
				at = &as
			}
			// The kernels for few terms have all their limits where they pay.
			if c.can(at) && (!c.able.plain || c.pays(at)) {
				f(c, at)
			}
		}
	}
}

// options lists all ways to compute a problem on a GPU, the chosen one first.
func (x problem) options() (list []option) {
	if c, as, d := choose(x); c != nil {
		list = append(list, option{c, as, d})
	}
	x.each(max(x.A.Form, x.B.Form), func(c *candidate, as *problem) {
		for _, d := range c.cuts(as, new(candidate), nil) {
			list = append(list, option{c, *as, d})
		}
	})
	return list
}

// cuts appends the cuts of a problem that a candidate can compute: that of its policy, and cuts into other numbers of splits. It overwrites one.
func (c *candidate) cuts(x *problem, one *candidate, list []cut) []cut {
	const minK = 32
	if c.all != nil {
		return c.all(c, x, list)
	}
	whole, ok := c.cut(c, x)
	if !ok && c.split.blocksPerSM == 0 {
		return list
	}
	if ok {
		list = append(list, whole)
	}
	if c.split.blocksPerSM == 0 || x.single() {
		return list
	}
	blocks := max(c.count(x), 1)
	if c.m == 0 {
		blocks = max(whole.blocks/(max(whole.partials, 1)*max(whole.parts, 1)), 1)
	}
	*one = *c
	one.split.minBlocksPerSM = 0
	counts, tried := splitCounts(x, blocks, c.maxBlocksPerSM())
	for _, n := range counts[:tried] {
		if n > 1 && x.K/n < minK {
			break
		}
		one.split.exactly, one.cluster = n, c.cluster
		if d, ok := c.cut(one, x); ok {
			list = append(list, d)
		}
		if c.joined != nil { // another launch adds the splits
			one.cluster = 0
			if d, ok := c.cut(one, x); ok {
				list = append(list, d)
			}
		}
	}
	return list
}

// maxBlocksPerSM returns the most blocks per SM of a split that is tried. Where an SM has few tiles, small splits spread the work of a launch more evenly over the SMs.
func (c *candidate) maxBlocksPerSM() int64 {
	if c.m > 0 && (c.apart || c.dtype == kernels.Float64) { // more gained nothing
		return 4
	}
	return 32
}

// counts are numbers of splits that are tried, waves those of blocks for each SM.
var (
	counts = [...]int64{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128}
	waves  = [...]int64{1, 2, 3, 4, 6, 8, 12, 16, 24, 32}
)

// splitCounts returns the numbers of splits of so many blocks that are tried, in order: 1, and of those that leave at most so many blocks for each SM
// the ones of a list and of whole waves.
func splitCounts(x *problem, blocks, most int64) (list [len(counts) + len(waves)]int64, n int) {
	i, j := 0, 0
	for i < len(counts) || j < len(waves) {
		next := int64(math.MaxInt64)
		if i < len(counts) {
			next = counts[i]
		}
		if j < len(waves) && waves[j]*x.sms()/blocks < next {
			next, j = waves[j]*x.sms()/blocks, j+1
		} else {
			i++
		}
		if next > 1 && blocks*next > most*x.sms() {
			break
		}
		if next > 0 && (n == 0 || next > list[n-1]) {
			list[n], n = next, n+1
		}
	}
	return list, n
}

// Candidates returns the plans that a product of dense operands can have on a GPU, with their names and predicted times in us, 0 without a prediction. The
// first is that of [Product.Plan]. It is an error if there is none.
func Candidates(p Product, dev kernels.Device) (names []string, us []float64, plans []*kernels.Plan, err error) {
	if _, err := p.Plan(dev); err != nil {
		return nil, nil, nil, err
	}
	if min(p.Batch, p.M, p.N, p.K) < 1 || p.strided() || dev.Kind != kernels.GPU {
		return nil, nil, nil, fmt.Errorf("%v of %d x %d x %d x %d elements on %s: got no candidates, want dense operands with elements and a GPU", p, p.Batch, p.M, p.K, p.N, dev.Name)
	}
	seen := map[string]bool{}
	for _, o := range p.problem(dev).options() {
		if name := o.String(); !seen[name] {
			seen[name] = true
			plan := newPlan(p)
			o.emit(plan, &o.as, o.cut)
			p.finish(plan)
			if plan.Check(dev) == nil { // the device has the shared memory
				names, us, plans = append(names, name), append(us, o.predicted()), append(plans, plan)
			}
		}
	}
	return names, us, plans, nil
}

// Predicted returns the time in us that the model predicts for the product's plan on a GPU, at least that of moving the operands at the memory's peak. It
// returns 0 if it has no constants of the plan's kernel. They are of 9.0: [kernels.Device.Facts] of another GPU scale them. Only on GPUs of 9.0 the plan is the
// one of the least predicted time.
func (p Product) Predicted(dev kernels.Device) float64 {
	if p.check(dev) != nil || min(p.Batch, p.M, p.N, p.K) < 1 || dev.Kind != kernels.GPU || dev.SMs < 1 {
		return 0
	}
	c, as, d := choose(p.problem(dev))
	if c == nil {
		return 0
	}
	o := option{c, as, d}
	us := o.scaled()
	if us > 0 {
		read := p.Batch * (p.M*p.K + p.K*p.N + p.M*p.N) * p.Dtype.Size()
		us = max(us, float64(read)/dev.Facts().Bandwidth*1e6)
	}
	return us
}

// predicted returns an option's time in us by the model where that chooses, else 0.
func (o *option) predicted() float64 {
	if !o.as.predictable() {
		return 0
	}
	return o.scaled()
}

// scaled returns an option's time in us by the model, 0 if the kernel has no constants.
func (o *option) scaled() float64 {
	r := o.rates[o.rateOf(&o.cut)]
	if r == nil {
		return 0
	}
	p := r.of(o.candidate, &o.as, o.as.halves())
	return p.time(&o.cut)
}
