package attention

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// Updated plans attention to the rows of a cache that gets new rows first, in one launch. The cache is (Batch, Keys, 2 KeyHeads, Dim); its heads are those of the keys and then
// those of the values, or the other way round with ValuesFirst. The inputs are the cache, q, the counts, if there are, the new rows, (Batch, Count, 2 KeyHeads, Dim), and the position of
// the first of them, of Int64: one, or one for each batch. The outputs are the cache, which is the memory of the first input, and out. Where the new rows do not fit into the cache it stays as it is.
type Updated struct {
	Attention        Forward
	Count, Positions int64
	ValuesFirst      bool
}

// Updating returns attention to the new value of such a cache, whose keys and values begin at these elements of it; ok is false if no kernel of the device computes it.
func (f Forward) Updating(keys, values, count, positions int64, dev kernels.Device) (u Updated, ok bool) {
	dense := Strides{f.Keys * f.cacheRow(), f.Dim, f.cacheRow()}
	if f.Batch == 1 { // any stride, then
		f.In[1].Batch, f.In[2].Batch = dense.Batch, dense.Batch
	}
	u = Updated{f, count, positions, values < keys}
	k, v := u.offsets()
	return u, f.splits(dev) && f.rowsInPieces() && f.Out && !f.Statistics && f.In[1] == dense && f.In[2] == dense && keys == k && values == v && count >= 1 && count <= f.Keys && (positions == 1 || positions == f.Batch)
}

// cacheRow returns the elements of a row of the cache.
func (f *Forward) cacheRow() int64 { return 2 * f.KeyHeads * f.Dim }

// offsets returns where keys and values begin in a row of the cache.
func (u *Updated) offsets() (keys, values int64) {
	half := u.Attention.cacheRow() / 2
	if u.ValuesFirst {
		return half, 0
	}
	return 0, half
}

// String prints attention with its update.
func (u Updated) String() string { return fmt.Sprintf("%v, update of %d rows", u.Attention, u.Count) }

// Outputs returns the number of outputs.
func (u Updated) Outputs() int { return 2 }

// HasStrides reports whether plans read input i in given strides of its axes.
func (u Updated) HasStrides(i int, axes []int64) bool {
	return i == 1 && u.Attention.HasStrides(0, axes)
}

// Plan returns the launches.
func (u Updated) Plan(dev kernels.Device) (*kernels.Plan, error) {
	f := u.Attention
	k, v := u.offsets()
	err := f.check(dev)
	if _, ok := f.Updating(k, v, u.Count, u.Positions, dev); err == nil && !ok {
		err = fmt.Errorf("got %d new rows at %d positions, want a kernel that adds them", u.Count, u.Positions)
	}
	if err := named("attention", err); err != nil {
		return nil, err
	}
	size, row := f.Dtype.Size(), f.cacheRow()
	cache := f.Batch * f.Keys * row * size
	p, at := f.plan("attention", f.products(2), []int64{cache, f.inputBytes()[0]}, []int64{cache, f.queryBytes()})
	rows := kernels.Operand(len(p.Inputs))
	p.Inputs = append(p.Inputs, f.Batch*u.Count*row*size, u.Positions*kernels.Int64.Size())
	from := func(base kernels.Ref, element int64) kernels.Ref {
		base.Offset += element * size
		return base
	}
	in := f.inputs()
	in[0].At, in[1].At, in[2].At = kernels.In(1), from(at[0], k), from(at[0], v)
	args := forwardArgs{in, operand{at[1], f.queryStrides()}, at[1], 1, f.args(2)}
	f.launchSplit(p, dev, args, updateArgs{from(kernels.In(rows), k), from(kernels.In(rows), v), u.Count * row, kernels.In(rows + 1), int64(arith.Flag(u.Positions > 1)), u.Count})
	return p, nil
}

// update writes the new rows.
func (a splitArgs) update(h *host[float32]) {
	if a.Count == 0 {
		return
	}
	position := kernels.Slice[int64](h.Call, a.Position)
	for batch := range a.Batches {
		first := position[batch*a.Each]
		if first < 0 || first > a.Keys-a.Count {
			continue
		}
		for head := range a.Heads / a.Group {
			for i, from := range []kernels.Ref{a.K, a.V} {
				to := a.In[1+i]
				n := operand{from, Strides{a.BatchStride, to.Head, to.Row}}
				h.rows(to, batch, head, first, a.Count).copyFrom(h.rows(n, batch, head, 0, a.Count))
			}
		}
	}
}
