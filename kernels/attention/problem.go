package attention

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// MaxDim is the largest number of elements of a row of q, k and v.
const MaxDim = 256

// Problem describes attention: q, out and their gradients are (Batch, Heads, Queries, Dim), k and v (Batch, KeyHeads, Keys, Dim), or with RowsFirst (Batch, Queries, Heads,
// Dim) and (Batch, Keys, KeyHeads, Dim). Elements of BF16 and F16 are computed in float32.
//
//	out[b][h][i] = Σ_j w[j] v[b][h KeyHeads / Heads][j], w = softmax over the keys j that query i sees of Scale q[b][h][i] . k[b][h KeyHeads / Heads][j]
//
// Query i sees the keys j < Keys, with Causal j <= i + Keys - Queries alone, and with Counts j < counts[b][i] alone. Keys that a query does not see do not affect it, whatever
// they hold; only kernels of the tensor cores multiply v by 0 there. Without a key to see, out is 0, and so are the gradients.
type Problem struct {
	Dtype                                      kernels.Dtype // Float32, Float64, BF16 or F16
	Batch, Heads, KeyHeads, Queries, Keys, Dim int64
	Scale                                      float64
	Causal, RowsFirst                          bool
	Counts                                     Counts
}

// Counts describes the numbers of keys that queries see, integers: that of query i of batch b is element b Batch + i Row. There are none if Elements is 0.
type Counts struct {
	Dtype                kernels.Dtype
	Elements, Batch, Row int64
}

// statistics is the type that a problem is computed in, and that of its statistics.
func (p Problem) statistics() kernels.Dtype {
	if p.Dtype == kernels.Float64 {
		return kernels.Float64
	}
	return kernels.Float32
}

func (p Problem) rows() int64           { return p.Batch * p.Heads * p.Queries }
func (p Problem) queryBytes() int64     { return p.rows() * p.Dim * p.Dtype.Size() }
func (p Problem) keyBytes() int64       { return p.Batch * p.KeyHeads * p.Keys * p.Dim * p.Dtype.Size() }
func (p Problem) statisticBytes() int64 { return p.rows() * p.statistics().Size() }

// products is the number of floating-point operations of so many products of all queries with all keys, half of them if causal.
func (p Problem) products(n int64) int64 {
	if p.Causal {
		return n * p.rows() * p.Keys * p.Dim
	}
	return 2 * n * p.rows() * p.Keys * p.Dim
}

// check returns an error unless kernels compute the problem.
func (p Problem) check(dev kernels.Device) error {
	const most = 1 << 30
	kinds := []kernels.Dtype{kernels.Float32, kernels.Float64, expr.BF16, expr.F16}
	sizes := []int64{p.Batch, p.Heads, p.KeyHeads, p.Queries, p.Keys, p.Dim}
	switch {
	case !slices.Contains(kinds, p.Dtype):
		return fmt.Errorf("got elements of %v, want float32, float64, bf16 or f16", p.Dtype)
	case slices.Min(sizes) < 1 || slices.Max(sizes) > most:
		return fmt.Errorf("got sizes %v, want 1 to %d", sizes, most)
	case p.Dim > MaxDim:
		return fmt.Errorf("got rows of %d elements, want at most %d", p.Dim, MaxDim)
	case p.Heads%p.KeyHeads != 0:
		return fmt.Errorf("got %d heads of queries and %d of keys, want a multiple", p.Heads, p.KeyHeads)
	case p.Counts.Elements > 0 && !p.Counts.Dtype.IsInteger():
		return fmt.Errorf("got counts of %v, want integers", p.Counts.Dtype)
	case dev.SMs < 1:
		return fmt.Errorf("got a device of %d SMs, want 1 or more", dev.SMs)
	case p.rows() > most:
		return fmt.Errorf("got %d rows of queries, want at most %d", p.rows(), most)
	}
	return kernels.CheckGrid(p.Batch * max(p.Heads*p.tiles(p.Queries), p.KeyHeads*p.tiles(p.Keys)))
}

// tiles returns the number of tiles of the portable kernels that cover rows.
func (p Problem) tiles(rows int64) int64 { return kernels.CeilDiv(rows, 16*tileRows[p.Dtype]) }

// tileRows is R of the portable kernels by type.
var tileRows = map[kernels.Dtype]int64{kernels.Float32: 4, kernels.Float64: 2, expr.BF16: 4, expr.F16: 4}

// strides are those of an operand between batches, heads and rows, in elements.
type strides struct{ Batch, Head, Row int64 }

// strides returns those of an operand with that many heads and rows.
func (p Problem) strides(heads, rows int64) strides {
	if p.RowsFirst {
		return strides{heads * rows * p.Dim, p.Dim, heads * p.Dim}
	}
	return strides{heads * rows * p.Dim, rows * p.Dim, p.Dim}
}

func (p Problem) queryStrides() strides { return p.strides(p.Heads, p.Queries) }
func (p Problem) keyStrides() strides   { return p.strides(p.KeyHeads, p.Keys) }

// operand is an operand of a kernel.
type operand struct {
	At kernels.Ref
	strides
}

// inputs returns q, k and v, the first inputs of all plans.
func (p Problem) inputs() [3]operand {
	return [3]operand{{kernels.In(0), p.queryStrides()}, {kernels.In(1), p.keyStrides()}, {kernels.In(2), p.keyStrides()}}
}

// problemArgs are the arguments that all kernels have: attention.cuh's PROBLEM.
type problemArgs struct {
	Batches, Heads, Group, Queries, Keys, Dim int64 `arg:"int32"`
	Scale                                     any
	Causal                                    bool
	Counts                                    kernels.Ref
	CountBytes                                int64 `arg:"int32"`
	CountBatch, CountRow                      int64
}

// args returns the arguments; counts, if there are, are that input.
func (p Problem) args(counts kernels.Operand) problemArgs {
	a := problemArgs{Batches: p.Batch, Heads: p.Heads, Group: p.Heads / p.KeyHeads, Queries: p.Queries, Keys: p.Keys, Dim: p.Dim, Scale: float32(p.Scale), Causal: p.Causal, Counts: kernels.In(0)}
	if p.Dtype == kernels.Float64 {
		a.Scale = p.Scale
	}
	if c := p.Counts; c.Elements > 0 {
		a.Counts, a.CountBytes, a.CountBatch, a.CountRow = kernels.In(counts), c.Dtype.Size(), c.Batch, c.Row
	}
	return a
}

// plan returns a plan without launches for inputs of given sizes, then the counts, and outputs of given sizes, those that are not 0. at has where in the output each is.
func (p Problem) plan(name string, flops int64, inputs, outputs []int64) (plan *kernels.Plan, at []kernels.Ref) {
	plan = &kernels.Plan{Op: fmt.Sprintf("%s_%v(%d x %d/%d x %d/%d x %d)", name, p.Dtype, p.Batch, p.Heads, p.KeyHeads, p.Queries, p.Keys, p.Dim), Inputs: inputs, Flops: flops}
	if n := p.Counts.Elements; n > 0 {
		plan.Inputs = append(plan.Inputs, n*p.Counts.Dtype.Size())
	}
	wanted := slices.DeleteFunc(slices.Clone(outputs), func(n int64) bool { return n == 0 })
	parts, bytes := arith.LayOut(wanted)
	plan.Out = bytes
	at = make([]kernels.Ref, len(outputs))
	k := 0
	for i, n := range outputs {
		if at[i] = kernels.At(kernels.Out, 0); n > 0 {
			at[i].Offset = parts[k]
			k++
		}
	}
	if len(parts) > 1 {
		plan.Parts = parts
	}
	return plan, at
}

// byDim has kernels by the width of rows that they are for, 64, 128 and 256, and element type.
type byDim [3]map[kernels.Dtype]*kernels.Kernel

// kernelsOf returns the kernels prefix + width + type of a source.
func kernelsOf(stem, prefix string, body func(kernels.Dtype) func(kernels.Call)) (list byDim) {
	for i := range list {
		list[i] = ofTypes(stem, fmt.Sprintf("%s_%d", prefix, 64<<i), body)
	}
	return list
}

func ofTypes(stem, prefix string, body func(kernels.Dtype) func(kernels.Call)) map[kernels.Dtype]*kernels.Kernel {
	list := map[kernels.Dtype]*kernels.Kernel{}
	for dt := range tileRows {
		list[dt] = own.Kernel(stem, fmt.Sprintf("%s_%v", prefix, dt), body(dt))
	}
	return list
}

// of returns the kernel for a problem.
func (k byDim) of(p Problem) *kernels.Kernel {
	i := 0
	for p.Dim > 64<<i {
		i++
	}
	return k[i][p.Dtype]
}

// portableThreads is the number of threads of a block of the portable kernels.
const portableThreads = 256

// named returns an error with the name of a plan.
func named(name string, errs ...error) error {
	if err := cmp.Or(errs...); err != nil {
		return fmt.Errorf("kernels: %s: %w", name, err)
	}
	return nil
}

func count(wanted ...bool) (n int) {
	for _, is := range wanted {
		if is {
			n++
		}
	}
	return n
}
