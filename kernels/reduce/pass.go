package reduce

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
)

// pass reduces src[outer][r][inner] of type in to dst[outer][inner] of type out, divided by div.
type pass struct {
	dev             kernels.Device
	in, out         kernels.Dtype
	src, dst        kernels.Ref
	outer, r, inner int64
	div             float64
}

// candidate is a way to compute a pass.
type candidate struct {
	work
	params [3]int64 // kernel arguments that tell two candidates of one kernel apart
	us     float64  // predicted, with the pass over the sums of chunks
	launch func(p *kernels.Plan)
}

// String prints the kernel and its parameters.
func (c candidate) String() string { return fmt.Sprint(c.kind, c.params) }

// append appends the launches of the candidate with the least predicted time.
func (x pass) append(p *kernels.Plan) { x.best().launch(p) }

func (x pass) best() candidate {
	if x.dev.Kind == kernels.CPU {
		return x.host()
	}
	return slices.MinFunc(x.candidates(), func(a, b candidate) int { return cmp.Compare(a.us, b.us) })
}

// candidates lists the ways to compute a pass on a GPU. There is always one.
func (x pass) candidates() []candidate {
	list := make([]candidate, 0, 64)
	list = x.tiles(list)
	if x.inner == 1 {
		list = x.rows(list)
	} else {
		list = x.unaligned(x.columns(x.few(list)))
	}
	return x.strips(list)
}

// host returns how the host computes a pass, which does not depend on the model.
func (x pass) host() candidate {
	if list := x.tiles(nil); len(list) > 0 {
		return list[0]
	}
	if x.inner == 1 {
		pol := rowPolicies.On(x.dev)
		splits, chunk := pol.split(x.dev, x.outer, x.r)
		return x.row(int64(pol.block), splits, chunk)
	}
	return x.hostColumns()
}

func (x pass) sms() int64 { return int64(x.dev.SMs) }

// bytes returns the bytes that a pass moves at least.
func (x pass) bytes() float64 {
	return float64(x.outer*x.inner) * float64(x.r*x.in.Size()+x.out.Size())
}

// chunks returns the pass over the sums of chunks, [outer][splits][inner].
func (x pass) chunks(parts kernels.Ref, splits int64) pass {
	x.src, x.in, x.r = parts, kernels.Float64, splits
	return x
}

// combine is the candidate that adds up the sums of chunks.
func (x pass) combine() candidate {
	if x.inner == 1 {
		return x.row(256, 1, x.r)
	}
	return x.column(32, 8, 0, true)
}

// Candidates returns the plans that [Sum] chooses among, with their names and predicted times in us, for a sum of outer x r x inner elements over r.
func Candidates(dev kernels.Device, dt kernels.Dtype, outer, r, inner int64) (names []string, us []float64, plans []*kernels.Plan) {
	x := pass{dev, dt, dt, kernels.In(0), kernels.At(kernels.Out, 0), outer, r, inner, 1}
	seen := map[string]bool{}
	for _, c := range x.candidates() {
		if name := c.String(); !seen[name] {
			seen[name] = true
			p := &kernels.Plan{Op: name, Inputs: []int64{outer * r * inner * dt.Size()}, Out: outer * inner * dt.Size(), Flops: outer * r * inner}
			c.launch(p)
			names, us, plans = append(names, name), append(us, c.us), append(plans, p)
		}
	}
	return names, us, plans
}
