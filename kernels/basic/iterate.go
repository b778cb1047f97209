package basic

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
	"github.com/stheno-ml/stheno/kernels/internal/policy"
)

// iterateTuning returns the policy, limited by what the device supports.
func iterateTuning(dev kernels.Device) iteratePolicy {
	p := iteratePolicies.On(dev)
	p.maxHeld = min(p.maxHeld, int64(dev.SMs)*heldRows) // a block for eight rows, an SM for each block
	if !dev.Cooperative {
		p.maxHeld = 0
	}
	if !dev.HasClusters() {
		p.maxCluster = 0
	}
	return p
}

// heldRows is the number of rows in a block of the held kernel, and heldMost its largest n. Each of 256 threads then keeps four columns
// of eight rows of both matrices: 128 registers for weights, which is the maximum.
const (
	heldRows = 8
	heldMost = 1024
)

type iterateBeginArgs struct {
	X         kernels.Ref
	State     [2]kernels.Ref // X and P
	Counter   kernels.Ref
	N, Padded int64
}

type iterateWideArgs struct {
	W, In, Out, Y kernels.Ref
	Last          bool
	N             int64
	Columns       int64 `arg:"int32"`
}

type iterateMatvecArgs struct {
	W, In, Out, Y kernels.Ref
	Last          bool
	N, Period     int64 `arg:"int32"`
}

type iterateFirstArgs struct {
	W, X, Out kernels.Ref
	N, Period int64 `arg:"int32"`
}

type iterateHeldArgs struct {
	W, State   [2]kernels.Ref
	Counter, Y kernels.Ref
	N          int64
	Steps      int64 `arg:"int32"`
	Transposed bool
}

type iterateClusterArgs struct {
	W          [2]kernels.Ref
	X, Y       kernels.Ref
	N, Steps   int64 `arg:"int32"`
	Transposed bool
}

type chainRefs struct{ W, In, U, Out kernels.Ref }

type iterateChainArgs struct {
	chainRefs
	N       int64
	Columns int64 `arg:"int32"`
}

type iterateLinkArgs struct {
	chainRefs
	N, Period int64 `arg:"int32"`
}

// rowsBlock is the block size of iterateRows.
const rowsBlock = 256

type iterateRowsArgs struct {
	In, Out               kernels.Ref
	N                     int64
	First, Stride, Narrow int64 `arg:"int32"`
	Put                   bool
}

var (
	iterateBegin  = own.Pair("iterate", "iterate_begin", iterateBeginBody[float32], iterateBeginBody[float64])
	iterateMatvec = own.Pair("iterate", "iterate_matvec", iterateMatvecBody[float32], iterateMatvecBody[float64])
	iterateFirst  = own.Pair("iterate", "iterate_first", iterateFirstBody[float32], iterateFirstBody[float64])
	iterateWide   = own.Pair("iterate", "iterate_wide", iterateWideBody[float32], iterateWideBody[float64])
	iterateChain  = own.Pair("iterate", "iterate_chain", iterateChainBody[float32], iterateChainBody[float64])
	iterateLink   = own.Pair("iterate", "iterate_link", iterateLinkBody[float32], iterateLinkBody[float64])
	iterateRows   = own.Pair("iterate", "iterate_rows", iterateRowsBody[float32], iterateRowsBody[float64])
	// By the columns of a thread, and by the rows of a block.
	iterateHeld    = iterateKernels("held", iterateHeldBody[float32], iterateHeldBody[float64], 1, 2, 4)
	iterateCluster = iterateKernels("cluster", iterateClusterBody[float32], iterateClusterBody[float64], 16, 32)
)

func iterateKernels(name string, f32, f64 func(kernels.Call), sizes ...int64) map[int64][2]*kernels.Kernel {
	all := map[int64][2]*kernels.Kernel{}
	for _, n := range sizes {
		all[n] = own.Pair("iterate", fmt.Sprintf("iterate_%s%d", name, n), f32, f64)
	}
	return all
}

// Iterate plans steps times P = w1 X, X = w2 P from X = x, out = X, for n x n matrices and vectors of n; transposed uses both matrices' transposes.
// Inputs are w1, w2, x. The plan is one cluster of blocks, one cooperative launch with the weights in registers, or a graph of launches: the first of
// these that n and dev allow.
func Iterate(dev kernels.Device, dt kernels.Dtype, n int64, steps int, transposed bool) *kernels.Plan {
	return newIterate(dev, dt, n, steps, transposed, iterateTuning(dev))
}

// IterateHeld is [Iterate] with the weights in registers, if n and dev allow it, also for an n that fits one cluster.
func IterateHeld(dev kernels.Device, dt kernels.Dtype, n int64, steps int, transposed bool) *kernels.Plan {
	pol := iterateTuning(dev)
	if n <= pol.maxHeld {
		pol.maxCluster, pol.wideBytes = 0, 0
	}
	return newIterate(dev, dt, n, steps, transposed, pol)
}

func newIterate(dev kernels.Device, dt kernels.Dtype, n int64, steps int, transposed bool, pol iteratePolicy) *kernels.Plan {
	matrix, vector := n*n*dt.Size(), n*dt.Size()
	p := &kernels.Plan{Op: fmt.Sprintf("iterate_%v(%d, %d steps)", dt, n, steps), Inputs: []int64{matrix, matrix, vector}, Out: vector, Flops: 4 * n * n * int64(steps)}
	w, out := [2]kernels.Ref{kernels.In(0), kernels.In(1)}, kernels.At(kernels.Out, 0)
	switch {
	case n == 0:
	case n <= pol.maxCluster:
		rows := int64(16)
		if n > policy.ClusterBlocks*16 {
			rows = 32
		}
		p.Launch(iterateCluster[rows][dt], policy.ClusterBlocks, policy.ClusterBlocks*int(rows), iterateClusterArgs{w, kernels.In(2), out, n, int64(steps), transposed})
	case n <= pol.maxHeld && int64(steps)*n*dt.Size() > pol.wideBytes:
		kernel, blocks, threads, padded := heldGrid(dt, n)
		state, counter := beginIterate(p, dt, n, padded)
		l := p.Launch(kernel, blocks, threads, iterateHeldArgs{w, state, counter, out, n, int64(steps), transposed})
		l.CoResident, l.Cooperative = true, true
	default:
		p.Graph = true
		if !transposed {
			blocks, period := matvecGrid(dt, n)
			state := [2]kernels.Ref{p.Workspace(n * 8), p.Workspace(n * 8)}
			p.Launch(iterateFirst[dt], blocks, matvecThreads, iterateFirstArgs{w[0], kernels.In(2), state[1], n, period})
			for i := 1; i < 2*steps; i++ {
				p.Launch(iterateMatvec[dt], blocks, matvecThreads, iterateMatvecArgs{w[i%2], state[i%2], state[1-i%2], out, i == 2*steps-1, n, period})
			}
			return p
		}
		blocks, threads, columns := wideGrid(dev, n)
		state, _ := beginIterate(p, dt, n, n)
		for i := range 2 * steps {
			p.Launch(iterateWide[dt], blocks, threads, iterateWideArgs{w[i%2], state[i%2], state[1-i%2], out, i == 2*steps-1, n, columns})
		}
	}
	return p
}

const matvecThreads = 128 // of a block of iterate_matvec

// matvecGrid returns the blocks of iterate_matvec, and how many rows lie between two that begin at the same place within 16 bytes: a block has four such rows.
func matvecGrid(dt kernels.Dtype, n int64) (blocks int, period int64) {
	width := 16 / dt.Size()
	period = width / min(n&-n, width)
	return int(kernels.CeilDiv(n, 4*period) * period), period
}

// beginIterate appends the launch that sets X and P, padded vectors in scratch memory, and the counter of the barrier.
func beginIterate(p *kernels.Plan, dt kernels.Dtype, n, padded int64) (state [2]kernels.Ref, counter kernels.Ref) {
	state, counter = [2]kernels.Ref{p.Workspace(padded * 8), p.Workspace(padded * 8)}, p.Workspace(4)
	p.LaunchElements(iterateBegin[dt], padded, iterateBeginArgs{kernels.In(2), state, counter, n, padded})
	return state, counter
}

// heldGrid returns the kernel that holds the weights of n rows in registers, its grid, and the
// length of the vectors that its threads read: a multiple of the elements of a thread.
func heldGrid(dt kernels.Dtype, n int64) (kernel *kernels.Kernel, blocks, threads int, padded int64) {
	if threads = 128; n > 128 {
		threads = 256
	}
	columns := arith.Pow2(kernels.CeilDiv(n, 256)) // of a thread
	return iterateHeld[columns][dt], int(kernels.CeilDiv(n, heldRows)), threads, int64(threads) * columns
}

// wideGrid returns the grid of a half step by iterate_wide or iterate_chain, and the columns of a block: 32 are 128 bytes of a row of float32, 16 occupy more
// SMs with small matrices.
func wideGrid(dev kernels.Device, n int64) (blocks, threads int, columns int64) {
	columns = 32
	if 2*kernels.CeilDiv(n, 32) <= int64(dev.SMs) {
		columns = 16
	}
	return int(kernels.CeilDiv(n, columns)), int(min(max(arith.Pow2(n), 256), int64(widePolicies.On(dev).columns))), columns
}

// IterateChain plans the chain z[0] = u[0], z[k] = A z[k-1] + u[k], k = 1, 2, ..., 2 steps, where A is w1 for odd k and w2 for even k, or their
// transposes. reversed goes the other way: z[2 steps] = u[2 steps], z[k-1] = A z[k] + u[k-1]. Inputs are w1, w2, both n x n, and u; u and the output
// are (2 steps + 1) x n.
func IterateChain(dev kernels.Device, dt kernels.Dtype, n int64, steps int, transposed, reversed bool) *kernels.Plan {
	matrix, row := n*n*dt.Size(), n*dt.Size()
	last := int64(2 * steps)
	p := &kernels.Plan{Op: fmt.Sprintf("iterate_chain_%v(%d, %d steps)", dt, n, steps), Inputs: []int64{matrix, matrix, (last + 1) * row}, Out: (last + 1) * row,
		Flops: last * (2*n*n + n), Graph: true}
	if n == 0 {
		return p
	}
	blocks, threads, columns := wideGrid(dev, n)
	links, period := matvecGrid(dt, n)
	from, step := int64(0), int64(1)
	if reversed {
		from, step = last, -1
	}
	p.Launch(iterateRows[dt], 1, rowsBlock, iterateRowsArgs{In: kernels.In(2), Out: kernels.At(kernels.Out, from*row), N: n, First: from, Stride: 1, Narrow: 1})
	for i := range last {
		at := from + step*i
		w := kernels.Operand(1 - max(at, at+step)%2) // w1 leads to and from odd rows
		args := chainRefs{kernels.In(w), kernels.At(kernels.Out, at*row), kernels.At(2, (at+step)*row), kernels.At(kernels.Out, (at+step)*row)}
		if transposed {
			p.Launch(iterateChain[dt], blocks, threads, iterateChainArgs{args, n, columns})
		} else {
			p.Launch(iterateLink[dt], links, matvecThreads, iterateLinkArgs{args, n, period})
		}
	}
	return p
}

// IterateRows plans the copy of narrow rows, first, first + stride, ..., from a matrix of wide rows of n elements. With put it copies in
// the opposite direction and writes zeros to all other rows of the wide matrix.
func IterateRows(dt kernels.Dtype, wide, narrow, n int64, first, stride int, put bool) *kernels.Plan {
	in, out := wide, narrow
	if put {
		in, out = narrow, wide
	}
	p := &kernels.Plan{Op: fmt.Sprintf("iterate_rows_%v(%d to %d, %d)", dt, in, out, n), Inputs: []int64{in * n * dt.Size()}, Out: out * n * dt.Size()}
	if out*n > 0 {
		p.Launch(iterateRows[dt], int(out), rowsBlock, iterateRowsArgs{kernels.In(0), kernels.At(kernels.Out, 0), n, int64(first), int64(stride), narrow, put})
	}
	return p
}

func iterateBeginBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[iterateBeginArgs](c)
	x := kernels.Slice[float64](c, args.State[0])
	clear(x[:args.Padded])
	clear(kernels.Slice[float64](c, args.State[1])[:args.Padded])
	widen(x, kernels.Slice[T](c, args.X)[:args.N])
}

func iterateMatvecBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[iterateMatvecArgs](c)
	halfStep[T](c, args.W, args.In, args.Out, args.Y, args.N, false, args.Last)
}

func iterateFirstBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[iterateFirstArgs](c)
	x := make([]float64, args.N)
	widen(x, kernels.Slice[T](c, args.X)[:args.N])
	matVec(kernels.Slice[T](c, args.W), x, kernels.Slice[float64](c, args.Out)[:args.N], false)
}

func iterateWideBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[iterateWideArgs](c)
	halfStep[T](c, args.W, args.In, args.Out, args.Y, args.N, true, args.Last)
}

// halfStep is to = w from, or to = w^T from, in float64, and after the last one y = to, rounded.
func halfStep[T kernels.Float](c kernels.Call, w, from, to, y kernels.Ref, n int64, transposed, last bool) {
	in, out := kernels.Slice[float64](c, from)[:n], kernels.Slice[float64](c, to)[:n]
	matVec(kernels.Slice[T](c, w), in, out, transposed)
	if last {
		round(kernels.Slice[T](c, y), out)
	}
}

func iterateHeldBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[iterateHeldArgs](c)
	state := [2][]float64{kernels.Slice[float64](c, args.State[0])[:args.N], kernels.Slice[float64](c, args.State[1])[:args.N]}
	iterate(c, args.W, state, kernels.Slice[T](c, args.Y)[:args.N], args.Steps, args.Transposed)
}

func iterateClusterBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[iterateClusterArgs](c)
	state := [2][]float64{make([]float64, args.N), make([]float64, args.N)}
	widen(state[0], kernels.Slice[T](c, args.X)[:args.N])
	iterate(c, args.W, state, kernels.Slice[T](c, args.Y)[:args.N], args.Steps, args.Transposed)
}

// iterate applies all steps to X and P, which are in state.
func iterate[T kernels.Float](c kernels.Call, weights [2]kernels.Ref, state [2][]float64, out []T, steps int64, transposed bool) {
	w := [2][]T{kernels.Slice[T](c, weights[0]), kernels.Slice[T](c, weights[1])}
	for i := range 2 * steps {
		matVec(w[i%2], state[i%2], state[1-i%2], transposed)
	}
	round(out, state[0])
}

func iterateChainBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[iterateChainArgs](c)
	chain[T](c, args.chainRefs, args.N, true)
}

func iterateLinkBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[iterateLinkArgs](c)
	chain[T](c, args.chainRefs, args.N, false)
}

// chain is out = w in + u, or out = w^T in + u.
func chain[T kernels.Float](c kernels.Call, args chainRefs, n int64, transposed bool) {
	u, out := kernels.Slice[T](c, args.U), kernels.Slice[T](c, args.Out)
	in, sum := make([]float64, n), make([]float64, n)
	widen(in, kernels.Slice[T](c, args.In)[:n])
	matVec(kernels.Slice[T](c, args.W), in, sum, transposed)
	for i, v := range sum {
		out[i] = T(v + float64(u[i]))
	}
}

func iterateRowsBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[iterateRowsArgs](c)
	in, out, n := kernels.Slice[T](c, args.In), kernels.Slice[T](c, args.Out), args.N
	for row := range int64(c.Grid[0]) {
		dst := out[row*n : (row+1)*n]
		i := args.First + row*args.Stride
		if args.Put {
			if i = (row - args.First) / args.Stride; row < args.First || (row-args.First)%args.Stride != 0 || i >= args.Narrow {
				clear(dst)
				continue
			}
		}
		copy(dst, in[i*n:(i+1)*n])
	}
}

// matVec is out = w in, or out = w^T in.
func matVec[T kernels.Float](w []T, in, out []float64, transposed bool) {
	n := int64(len(in))
	kernels.Parallel(n, kernels.Grain/n, func(lo, hi int64) {
		if transposed {
			dst := out[lo:hi]
			clear(dst)
			row := func(k int) []T { return w[int64(k)*n+lo:][:len(dst)] }
			k := 0
			for ; k+4 <= len(in); k += 4 { // loads and stores dst once for four rows
				a, b, c, d := row(k), row(k+1), row(k+2), row(k+3)
				for j := range dst {
					dst[j] = dst[j] + float64(a[j])*in[k] + float64(b[j])*in[k+1] + float64(c[j])*in[k+2] + float64(d[j])*in[k+3]
				}
			}
			for ; k < len(in); k++ {
				for j, a := range row(k) {
					dst[j] += float64(a) * in[k]
				}
			}
			return
		}
		for j := lo; j < hi; j++ {
			var acc0, acc1, acc2, acc3 float64 // in registers, which an array is not
			row := w[j*n : (j+1)*n]
			k := 0
			for ; k+4 <= len(row); k += 4 {
				a, x := row[k:k+4:k+4], in[k:k+4:k+4]
				acc0 += float64(a[0]) * x[0]
				acc1 += float64(a[1]) * x[1]
				acc2 += float64(a[2]) * x[2]
				acc3 += float64(a[3]) * x[3]
			}
			for ; k < len(row); k++ {
				acc0 += float64(row[k]) * in[k]
			}
			out[j] = (acc0 + acc1) + (acc2 + acc3)
		}
	})
}

// round rounds float64 to the operands' type.
func round[T kernels.Float](out []T, in []float64) {
	for i, v := range in {
		out[i] = T(v)
	}
}

// widen converts operands to float64.
func widen[T kernels.Float](out []float64, in []T) {
	for i, v := range in {
		out[i] = float64(v)
	}
}
