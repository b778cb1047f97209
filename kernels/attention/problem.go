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
// they hold; only kernels of the tensor cores multiply v by 0 there. Without a key to see, out is 0, and so are the gradients. In float32 the tensor cores take subnormal elements for 0.
type Problem struct {
	Dtype                                      kernels.Dtype // Float32, Float64, BF16 or F16
	Batch, Heads, KeyHeads, Queries, Keys, Dim int64
	Scale                                      float64
	Round                                      kernels.Precision // if not FullPrecision, tensor cores may round operands of float32 to TF32
	Causal, RowsFirst                          bool
	Counts                                     Counts
	In                                         [3]Strides // of q, k and v; zero for a dense operand
	unseen                                     int64      // queries before these in each head, which see no key
}

// Counts describes the numbers of keys that queries see, integers: that of query i of batch b is element b Batch + i Row. There are none if Elements is 0.
type Counts struct {
	Dtype                kernels.Dtype
	Elements, Batch, Row int64
}

// statistics is the type that a problem is computed in, and that of its statistics.
func (p *Problem) statistics() kernels.Dtype {
	if p.Dtype == kernels.Float64 {
		return kernels.Float64
	}
	return kernels.Float32
}

func (p *Problem) rows() int64           { return p.Batch * p.Heads * p.Queries }
func (p *Problem) queryBytes() int64     { return p.rows() * p.Dim * p.Dtype.Size() }
func (p *Problem) keyBytes() int64       { return p.Batch * p.KeyHeads * p.Keys * p.Dim * p.Dtype.Size() }
func (p *Problem) statisticBytes() int64 { return p.rows() * p.statistics().Size() }

// products is the number of floating-point operations of so many products of all queries with all keys, half of them if causal.
func (p *Problem) products(n int64) int64 {
	if p.Causal {
		return n * p.rows() * p.Keys * p.Dim
	}
	return 2 * n * p.rows() * p.Keys * p.Dim
}

// check returns an error unless kernels compute the problem.
func (p *Problem) check(dev kernels.Device) error {
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
	case p.Batch > most/p.Heads/p.Queries:
		return fmt.Errorf("got %d x %d x %d rows of queries, want at most %d", p.Batch, p.Heads, p.Queries, most)
	}
	for i, s := range p.In {
		if s != (Strides{}) && (min(s.Batch, s.Head, s.Row) < 1 || max(s.Batch, s.Head, s.Row) > 1<<40) {
			return fmt.Errorf("got strides %+v of %c, want 1 to 2^40 elements", s, "qkv"[i])
		}
	}
	return kernels.CheckGrid(p.Batch * max(p.Heads*p.tiles(p.Queries), p.KeyHeads*p.tiles(p.Keys)))
}

// tile returns the rows and columns of a tile of results of the portable kernels.
func (p *Problem) tile() (rows, cols int64) {
	if p.Dtype == kernels.Float64 {
		return 32, 64
	}
	return 64, 128
}

// tiles returns the number of tiles of the portable kernels that cover rows.
func (p *Problem) tiles(rows int64) int64 {
	r, c := p.tile()
	return kernels.CeilDiv(rows, r) * kernels.CeilDiv(p.Dim, c)
}

// stored returns the argument Stored of the portable kernels.
func (p *Problem) stored() int64 {
	return int64(slices.Index([]kernels.Dtype{p.statistics(), expr.BF16, expr.F16}, p.Dtype))
}

// Strides are those of an operand between batches, heads and rows, in elements.
type Strides struct{ Batch, Head, Row int64 }

// strides returns those of a dense operand with that many heads and rows.
func (p *Problem) strides(heads, rows int64) Strides {
	if p.RowsFirst {
		return Strides{heads * rows * p.Dim, p.Dim, heads * p.Dim}
	}
	return Strides{heads * rows * p.Dim, rows * p.Dim, p.Dim}
}

func (p *Problem) queryStrides() Strides { return p.strides(p.Heads, p.unseen+p.Queries) }
func (p *Problem) keyStrides() Strides   { return p.strides(p.KeyHeads, p.Keys) }

// operand is an operand of a kernel.
type operand struct {
	At kernels.Ref
	Strides
}

// inputs returns q, k and v, the first inputs of all plans.
func (p *Problem) inputs() [3]operand {
	in := [3]operand{{kernels.In(0), p.queryStrides()}, {kernels.In(1), p.keyStrides()}, {kernels.In(2), p.keyStrides()}}
	for i, s := range p.In {
		if s != (Strides{}) {
			in[i].Strides = s
		}
	}
	in[0] = p.last(in[0].At, in[0].Strides)
	return in
}

// inputBytes returns the bytes of q, k and v from their first element to their last one.
func (p *Problem) inputBytes() []int64 {
	var list []int64
	for i, in := range p.inputs() {
		heads, rows := p.KeyHeads, p.Keys
		if i == 0 {
			heads, rows = p.Heads, p.Queries
		}
		list = append(list, ((p.Batch-1)*in.Batch+(heads-1)*in.Head+(rows-1)*in.Row+p.Dim)*p.Dtype.Size())
	}
	return list
}

// Strided returns the problem with input i, of q, k and v, in given strides of its four axes; that of an axis of extent 1 does not matter. ok is false if elements of a row are not
// contiguous, or rows repeat.
func (p Problem) Strided(i int, axes []int64) (_ Problem, ok bool) {
	s := Strides{axes[0], axes[1], axes[2]}
	if p.RowsFirst {
		s.Head, s.Row = s.Row, s.Head
	}
	heads, rows := p.KeyHeads, p.Keys
	if i == 0 {
		heads, rows = p.Heads, p.Queries
	}
	dense := p.strides(heads, rows)
	for _, axis := range []struct {
		extent int64
		stride *int64
		dense  int64
	}{{p.Batch, &s.Batch, dense.Batch}, {heads, &s.Head, dense.Head}, {rows, &s.Row, dense.Row}} {
		if axis.extent == 1 && *axis.stride < 1 {
			*axis.stride = axis.dense
		}
	}
	p.In[i] = s
	return p, (axes[3] == 1 || p.Dim == 1) && min(s.Batch, s.Head, s.Row) > 0
}

// HasStrides reports whether plans read input i in given strides of its axes.
func (p Problem) HasStrides(i int, axes []int64) bool {
	if i > 2 {
		return false
	}
	other, ok := p.Strided(i, axes)
	return ok && other.In == p.In
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
func (p *Problem) args(counts kernels.Operand) problemArgs {
	a := problemArgs{Batches: p.Batch, Heads: p.Heads, Group: p.Heads / p.KeyHeads, Queries: p.Queries, Keys: p.Keys, Dim: p.Dim, Scale: float32(p.Scale), Causal: p.Causal, Counts: kernels.In(0)}
	if p.Dtype == kernels.Float64 {
		a.Scale = p.Scale
	}
	if c := p.Counts; c.Elements > 0 {
		a.Counts, a.CountBytes, a.CountBatch, a.CountRow = kernels.At(counts, p.unseen*c.Row*c.Dtype.Size()), c.Dtype.Size(), c.Batch, c.Row
	}
	return a
}

// plan returns a plan without launches for inputs of given sizes, then the counts, and outputs of given sizes, those that are not 0. at has where in the output each is.
func (p *Problem) plan(name string, flops int64, inputs, outputs []int64) (plan *kernels.Plan, at []kernels.Ref) {
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

// portableThreads is the number of threads of a block of the portable kernels.
const portableThreads = 256

// stored are the arguments of the portable kernels: those that other kernels have, too, and how elements are stored.
type stored[A any] struct {
	Args   A
	Stored int64 `arg:"int32"` // 0: in the type of the kernel, 1: BF16, 2: F16
}

// portable returns the kernels of a source that compute in float32 and in float64.
func portable[A any](stem, prefix string, f32, f64 func(kernels.Call, kernels.Dtype, A)) [2]*kernels.Kernel {
	return own.Pair(stem, prefix, portableBody(kernels.Float32, f32), portableBody(kernels.Float64, f64))
}

// portableBody returns the Go body of a portable kernel that computes in a type.
func portableBody[A any](dt kernels.Dtype, f func(kernels.Call, kernels.Dtype, A)) func(kernels.Call) {
	return func(c kernels.Call) {
		args := kernels.Args[stored[A]](c)
		f(c, []kernels.Dtype{dt, expr.BF16, expr.F16}[args.Stored], args.Args)
	}
}

// launch launches a block for each tile of rows of heads: a kernel of tensor cores or a portable one.
func launch[A any](p *Problem, plan *kernels.Plan, dev kernels.Device, mma mmaKernels, other [2]*kernels.Kernel, heads, rows int64, args A) {
	if p.byMMA(dev) {
		launchMMA(p, plan, mma, heads, rows, args)
		return
	}
	launchPortable(p, plan, other, heads*p.tiles(rows), args)
}

// launchMMA launches a block of a kernel of tensor cores for each tile.
func launchMMA[A any](p *Problem, plan *kernels.Plan, mma mmaKernels, heads, rows int64, args A) {
	if p.kind() == "tf32" {
		plan.Precision = kernels.TF32
	}
	plan.Launch(mma.of(p), int(heads*kernels.CeilDiv(rows, mmaTile)*mma.blocks(p)), mmaThreads, args).Shared = int(mma.shared(p))
}

// launchPortable launches blocks of a portable kernel.
func launchPortable[A any](p *Problem, plan *kernels.Plan, by [2]*kernels.Kernel, blocks int64, args A) {
	plan.Launch(by[p.statistics()], int(blocks), portableThreads, stored[A]{args, p.stored()})
}

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

// stores returns the problem with elements of 16 bits; ok is false unless they are of float32.
func (p *Problem) stores(d kernels.Dtype) (half Problem, ok bool) {
	half, ok = *p, p.Dtype == kernels.Float32
	half.Dtype, half.Round = d, kernels.FullPrecision
	return half, ok
}

// inputsStored returns which inputs have the type of a problem: those with true, and not the counts, if there are.
func (p *Problem) inputsStored(is ...bool) []bool {
	if p.Counts.Elements > 0 {
		is = append(is, false)
	}
	return is
}
