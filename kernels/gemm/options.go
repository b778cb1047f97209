package gemm

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
)

// option is a candidate with the problem as it computes it and one of its cuts.
type option struct {
	candidate
	as problem
	cut
}

// String prints the candidate and its cut.
func (o option) String() string {
	d := o.cut
	return fmt.Sprint(o.name, []int64{max(d.partials, 1), max(d.parts, 1), d.chunk, max(d.cluster, 1), d.streamed, d.each})
}

// options lists all ways to compute a problem on a GPU, the chosen one first.
func (x problem) options() (list []option) {
	c, as, d := choose(x)
	list = append(list, option{c, as, d})
	for _, group := range table {
		for _, c := range group {
			x := x
			if c.orient != nil {
				x = c.orient(x)
			}
			if c.can(x) && (!c.able.plain || c.pays(x)) { // the kernels for few terms have all their limits where they pay
				for _, d := range c.cuts(x) {
					list = append(list, option{c, x, d})
				}
			}
		}
	}
	return list
}

// cuts lists the cuts of a problem that a candidate can compute: the one of its policy, and those into other numbers of splits that leave no more
// than four blocks for each SM.
func (c candidate) cuts(x problem) (list []cut) {
	const most, minK = 4, 32
	whole, ok := c.cut(c, x)
	if !ok && c.split.blocksPerSM == 0 {
		return nil
	}
	if ok {
		list = append(list, whole)
	}
	blocks := max(c.count(x), 1)
	if c.m == 0 {
		blocks = max(whole.blocks/max(whole.partials, 1), 1)
	}
	for _, n := range []int64{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128} {
		if n > 1 && (blocks*n > most*x.sms() || x.K/n < minK) {
			break
		}
		switch {
		case c.cost != nil && c.dtype == kernels.Float64: // of matmul_double.cu
			if c.cluster > 0 {
				if n <= c.cluster && n&(n-1) == 0 {
					list = append(list, c.cutIn(x, 1, n))
				}
				continue
			}
			list = append(list, c.cutIn(x, n, 1))
		case c.split.blocksPerSM > 0:
			one := c
			one.split.exactly, one.split.minBlocksPerSM = n, 0
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
	}
	return list
}

// Candidates returns the plans that a product of dense operands can have on a GPU, with their names, that of [Product.Plan] first. It is an error if
// there is none.
func (p Product) Candidates(dev kernels.Device) (names []string, plans []*kernels.Plan, err error) {
	if _, err := p.Plan(dev); err != nil {
		return nil, nil, err
	}
	if min(p.Batch, p.M, p.N, p.K) < 1 || p.strided() || dev.Kind != kernels.GPU {
		return nil, nil, fmt.Errorf("%v of %d x %d x %d x %d elements on %s: got no candidates, want dense operands with elements and a GPU", p, p.Batch, p.M, p.K, p.N, dev.Name)
	}
	seen := map[string]bool{}
	for _, o := range p.problem(dev).options() {
		if name := o.String(); !seen[name] {
			seen[name] = true
			plan := newPlan(p)
			o.emit(plan, o.as, o.cut)
			p.finish(plan)
			if plan.Check(dev) == nil { // the device has the shared memory
				names, plans = append(names, name), append(plans, plan)
			}
		}
	}
	return names, plans, nil
}
