package basic

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// iterateTuning returns the policy, limited by what the device supports.
func iterateTuning(dev kernels.Device) iteratePolicy {
	p := iteratePolicies.On(dev)
	p.held = min(p.held, int64(dev.SMs)*heldRows) // a block for eight rows, a multiprocessor for each block
	if !dev.Cooperative {
		p.held = 0
	}
	if !dev.HasClusters() {
		p.cluster = 0
	}
	return p
}

// heldRows is the number of rows in a block of the held kernel, and heldMost its largest n: four
// columns of eight rows of both matrices in each of 256 threads take 128 registers for weights,
// which is all that fits.
const (
	heldRows = 8
	heldMost = 1024
)

type iterateKernels struct {
	begin, wide, chain, rows *kernels.Kernel
	held1, held2, held4      *kernels.Kernel
	cluster16, cluster32     *kernels.Kernel
}

var iterateKernel = [...]iterateKernels{kernels.Float32: iterateOf[float32](kernels.Float32), kernels.Float64: iterateOf[float64](kernels.Float64)}

func iterateOf[T kernels.Float](dt kernels.Dtype) (k iterateKernels) {
	kernel := func(name string, body func(kernels.Call)) *kernels.Kernel {
		return own.Kernel("iterate", fmt.Sprintf("iterate_%s_%v", name, dt), body)
	}
	k.begin, k.wide, k.chain, k.rows = kernel("begin", iterateBegin[T]), kernel("wide", iterateWide[T]), kernel("chain", iterateChain[T]), kernel("rows", iterateRows[T])
	k.held1, k.held2, k.held4 = kernel("held1", iterateHeld[T]), kernel("held2", iterateHeld[T]), kernel("held4", iterateHeld[T])
	k.cluster16, k.cluster32 = kernel("cluster16", iterateCluster[T]), kernel("cluster32", iterateCluster[T])
	return k
}

// Iterate plans steps times P = w1 X, X = w2 P from X = x, out = X, for n x n matrices and vectors
// of n; transposed uses both matrices' transposes. Inputs are w1, w2, x. It is one cluster of
// blocks, one cooperative launch with the weights in registers, or a graph of launches: the first
// of these that n and dev allow.
func Iterate(dev kernels.Device, dt kernels.Dtype, n int64, steps int, transposed bool) *kernels.Plan {
	return newIterate(dev, dt, n, steps, transposed, iterateTuning(dev))
}

// IterateHeld is [Iterate] with the weights in registers, if n and dev allow it, also for an n that
// fits one cluster.
func IterateHeld(dev kernels.Device, dt kernels.Dtype, n int64, steps int, transposed bool) *kernels.Plan {
	pol := iterateTuning(dev)
	if n <= pol.held {
		pol.cluster = 0
	}
	return newIterate(dev, dt, n, steps, transposed, pol)
}

func newIterate(dev kernels.Device, dt kernels.Dtype, n int64, steps int, transposed bool, pol iteratePolicy) *kernels.Plan {
	matrix, vector := n*n*dt.Size(), n*dt.Size()
	p := &kernels.Plan{Op: fmt.Sprintf("iterate_%v(%d, %d steps)", dt, n, steps), Inputs: []int64{matrix, matrix, vector}, Out: vector, Flops: 4 * n * n * int64(steps)}
	k := &iterateKernel[dt]
	w, out, trans := [2]kernels.Ref{{Operand: 0, Offset: 0}, {Operand: 1, Offset: 0}}, kernels.At(kernels.Out, 0), arith.Flag(transposed)
	switch {
	case n == 0:
	case n <= pol.cluster:
		kernel, rows := k.cluster16, 16
		if n > kernels.ClusterBlocks*16 {
			kernel, rows = k.cluster32, 32
		}
		p.Launch(kernel, kernels.ClusterBlocks, kernels.ClusterBlocks*rows, w[0], w[1], kernels.In(2), out, int32(n), int32(steps), trans)
	case n <= pol.held:
		kernel, blocks, threads, padded := k.heldGrid(n)
		state, counter := beginIterate(p, k, n, padded)
		l := p.Launch(kernel, blocks, threads, w[0], w[1], state[0], state[1], counter, out, n, int32(steps), trans)
		l.CoResident, l.Cooperative = true, true
	default:
		p.Graph = true
		state, _ := beginIterate(p, k, n, n)
		blocks, threads, columns := wideGrid(dev, n, transposed)
		for i := range 2 * steps {
			p.Launch(k.wide, blocks, threads, w[i%2], state[i%2], state[1-i%2], out, arith.Flag(i == 2*steps-1), n, columns)
		}
	}
	return p
}

// beginIterate appends the launch that sets X and P, padded vectors in scratch memory, and the
// counter of the barrier.
func beginIterate(p *kernels.Plan, k *iterateKernels, n, padded int64) (state [2]kernels.Ref, counter kernels.Ref) {
	state, counter = [2]kernels.Ref{p.Workspace(padded * 8), p.Workspace(padded * 8)}, p.Workspace(4)
	p.LaunchElements(k.begin, padded, kernels.In(2), state[0], state[1], counter, n, padded)
	return state, counter
}

// heldGrid returns the kernel that holds the weights of n rows in registers, its grid, and the
// length of the vectors that its threads read: a multiple of the elements of a thread.
func (k *iterateKernels) heldGrid(n int64) (kernel *kernels.Kernel, blocks, threads int, padded int64) {
	kernel, threads = k.held1, 128
	if n > 128 {
		threads = 256
	}
	columns := arith.Pow2(kernels.CeilDiv(n, 256)) // of a thread
	switch columns {
	case 2:
		kernel = k.held2
	case 4:
		kernel = k.held4
	}
	return kernel, int(kernels.CeilDiv(n, heldRows)), threads, int64(threads) * columns
}

// wideGrid returns the grid of a half step by iterate_wide or iterate_chain, and the
// columns that a block of it takes, 0 for a warp per row: 32 columns are 128 bytes of
// a row of float32, 16 keep more multiprocessors at work on small matrices.
func wideGrid(dev kernels.Device, n int64, transposed bool) (blocks, threads int, columns int32) {
	pol := widePolicies.On(dev)
	if !transposed {
		return int(kernels.CeilDiv(n, int64(pol.rows/32))), pol.rows, 0
	}
	columns = 32
	if 2*kernels.CeilDiv(n, 32) <= int64(dev.SMs) {
		columns = 16
	}
	return int(kernels.CeilDiv(n, int64(columns))), int(min(max(arith.Pow2(n), 256), int64(pol.columns))), columns
}

// IterateChain plans the chain z[0] = u[0], z[k] = A z[k-1] + u[k], k = 1, 2, ...,
// 2 steps, where A is w1 for odd k and w2 for even k, or their transposes. reversed
// goes the other way: z[2 steps] = u[2 steps], z[k-1] = A z[k] + u[k-1]. Inputs are
// w1, w2, both n x n, and u; u and the output are (2 steps + 1) x n.
func IterateChain(dev kernels.Device, dt kernels.Dtype, n int64, steps int, transposed, reversed bool) *kernels.Plan {
	matrix, row := n*n*dt.Size(), n*dt.Size()
	last := int64(2 * steps)
	p := &kernels.Plan{Op: fmt.Sprintf("iterate_chain_%v(%d, %d steps)", dt, n, steps), Inputs: []int64{matrix, matrix, (last + 1) * row}, Out: (last + 1) * row,
		Flops: last * (2*n*n + n), Graph: true}
	if n == 0 {
		return p
	}
	blocks, threads, columns := wideGrid(dev, n, transposed)
	from, step := int64(0), int64(1)
	if reversed {
		from, step = last, -1
	}
	k := &iterateKernel[dt]
	p.Launch(k.rows, 1, kernels.ElementBlock, kernels.In(2), kernels.At(kernels.Out, from*row), n, int32(from), int32(1), int32(1), int32(0))
	for i := range last {
		at := from + step*i
		w := kernels.Operand(1 - max(at, at+step)%2) // w1 leads to and from odd rows
		p.Launch(k.chain, blocks, threads, kernels.At(w, 0), kernels.At(kernels.Out, at*row), kernels.At(2, (at+step)*row), kernels.At(kernels.Out, (at+step)*row), n, columns)
	}
	return p
}

// IterateRows plans the choice of rows first, first + stride, ... from a matrix of wide rows of n
// elements, narrow of them; with put it goes the other way: narrow rows are put into wide ones
// among zeros.
func IterateRows(dt kernels.Dtype, wide, narrow, n int64, first, stride int, put bool) *kernels.Plan {
	in, out, flag := wide, narrow, int32(0)
	if put {
		in, out, flag = narrow, wide, 1
	}
	p := &kernels.Plan{Op: fmt.Sprintf("iterate_rows_%v(%d to %d, %d)", dt, in, out, n), Inputs: []int64{in * n * dt.Size()}, Out: out * n * dt.Size()}
	if out*n > 0 {
		p.Launch(iterateKernel[dt].rows, int(out), kernels.ElementBlock, kernels.In(0), kernels.At(kernels.Out, 0), n, int32(first), int32(stride), int32(narrow), flag)
	}
	return p
}

func iterateBegin[T kernels.Float](c kernels.Call) {
	x, a, b := kernels.Slice[T](c, 0), kernels.Slice[float64](c, 1), kernels.Slice[float64](c, 2)
	n, padded := c.Int(4), c.Int(5)
	clear(a[:padded])
	clear(b[:padded])
	for i, v := range x[:n] {
		a[i] = float64(v)
	}
}

func iterateWide[T kernels.Float](c kernels.Call) {
	w, in, out := kernels.Slice[T](c, 0), kernels.Slice[float64](c, 1), kernels.Slice[float64](c, 2)
	last, n, transposed := c.Int(4), c.Int(5), c.Int(6) != 0
	matVec(w, in[:n], out[:n], transposed)
	if last != 0 {
		round(kernels.Slice[T](c, 3), out[:n])
	}
}

func iterateHeld[T kernels.Float](c kernels.Call) {
	n := c.Int(6)
	iterate(c, [2][]float64{kernels.Slice[float64](c, 2)[:n], kernels.Slice[float64](c, 3)[:n]}, kernels.Slice[T](c, 5)[:n], c.Int(7), c.Int(8) != 0)
}

func iterateCluster[T kernels.Float](c kernels.Call) {
	n := c.Int(4)
	state := [2][]float64{make([]float64, n), make([]float64, n)}
	for i, v := range kernels.Slice[T](c, 2)[:n] {
		state[0][i] = float64(v)
	}
	iterate(c, state, kernels.Slice[T](c, 3)[:n], c.Int(5), c.Int(6) != 0)
}

// iterate applies all steps to X and P, which lie in state.
func iterate[T kernels.Float](c kernels.Call, state [2][]float64, out []T, steps int64, transposed bool) {
	w := [2][]T{kernels.Slice[T](c, 0), kernels.Slice[T](c, 1)}
	for i := range 2 * steps {
		matVec(w[i%2], state[i%2], state[1-i%2], transposed)
	}
	round(out, state[0])
}

func iterateChain[T kernels.Float](c kernels.Call) {
	w, n := kernels.Slice[T](c, 0), c.Int(4)
	in, u, out := make([]float64, n), kernels.Slice[T](c, 2)[:n], kernels.Slice[T](c, 3)[:n]
	for i, v := range kernels.Slice[T](c, 1)[:n] {
		in[i] = float64(v)
	}
	sum := make([]float64, n)
	matVec(w, in, sum, c.Int(5) != 0)
	for i, v := range sum {
		out[i] = T(v + float64(u[i]))
	}
}

func iterateRows[T kernels.Float](c kernels.Call) {
	in, out := kernels.Slice[T](c, 0), kernels.Slice[T](c, 1)
	n, first, stride, narrow, put := c.Int(2), c.Int(3), c.Int(4), c.Int(5), c.Int(6) != 0
	for row := range int64(c.Grid[0]) {
		dst := out[row*n : (row+1)*n]
		i := first + row*stride
		if put {
			if i = (row - first) / stride; row < first || (row-first)%stride != 0 || i >= narrow {
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
			for ; k+4 <= len(in); k += 4 { // four rows at a time, so that dst is read and written once for them
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

// round rounds numbers of double precision to the operands' type.
func round[T kernels.Float](out []T, in []float64) {
	for i, v := range in {
		out[i] = T(v)
	}
}
