package versions

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
)

// Barrier is how all blocks of a grid wait for one another between the half
// steps of [Iterate]. Those up to BarrierCluster are the numbers of its versions.
type Barrier uint8

// The barriers. Those from BarrierWrap to BarrierHeld are one launch whose blocks must all be on the device at once; those after BarrierCluster are
// wrong on purpose.
const (
	BarrierFastest  Barrier = iota // the op's own, chosen by size and device
	BarrierLaunches                // one launch for each half step: the end of a launch is the barrier
	BarrierGraph                   // the same launches as one CUDA graph
	BarrierWrap                    // two alternating counters in global memory, each reset to 0 when all blocks have arrived; volatile reads poll
	BarrierVolatile                // one counter that only grows; volatile reads poll
	BarrierAcquire                 // one counter that only grows; red.release and ld.acquire of PTX
	BarrierGrid                    // a cooperative launch and grid.sync's algorithm: a counter whose top bit flips
	BarrierHeld                    // a cooperative launch with the weights in registers; n up to 1024, else as BarrierFastest
	BarrierCluster                 // one cluster of blocks and its barrier; n up to 256 from compute capability 9 on, else as BarrierFastest
	BarrierNone                    // WRONG: no barrier
	BarrierBlock                   // WRONG: a barrier of each block's own threads
)

// String returns the name, a part of the names of entry points.
func (b Barrier) String() string {
	return [...]string{"fastest", "launches", "graph", "wrap", "volatile", "acquire", "grid", "held", "cluster", "none", "block"}[b]
}

// IterateBy selects how [Iterate] runs. The zero value is the op's own way.
type IterateBy struct {
	Barrier Barrier
	// Blocks of Threads threads, 0 for enough of them: for experiments. A thread takes row t, t + Blocks * Threads, ... More blocks than fit on the
	// device at once are an error of the launch, where they wait for one another. BarrierFastest, BarrierHeld and BarrierCluster choose their own.
	Blocks, Threads int
}

type iterateBeginArgs struct {
	X        kernels.Ref
	State    [2]kernels.Ref // X and P
	Counters kernels.Ref
	N        int64
}

type iterateHalfArgs struct {
	W, In, Out, Y kernels.Ref
	Last          bool
	N             int64
	Transposed    bool
}

type iterateWholeArgs struct {
	W, State    [2]kernels.Ref
	Counters, Y kernels.Ref
	N           int64
	Steps       int64 `arg:"int32"`
	Transposed  bool
}

type iterateKernels struct {
	begin, half *kernels.Kernel
	whole       [BarrierBlock + 1]*kernels.Kernel
}

var iterateKernel = [...]iterateKernels{kernels.Float32: iterateOf[float32](kernels.Float32), kernels.Float64: iterateOf[float64](kernels.Float64)}

func iterateOf[T kernels.Float](dt kernels.Dtype) (k iterateKernels) {
	kernel := func(name string, body func(kernels.Call)) *kernels.Kernel {
		return library.Kernel("iterate", fmt.Sprintf("iterate_%s_%v", name, dt), body)
	}
	k.begin, k.half = kernel("begin", iterateBegin[T]), kernel("half", iterateHalf[T])
	together := iterateWhole[T](func(l *kernels.Launch) int { return l.Grid[0] * l.Block[0] })
	k.whole[BarrierWrap], k.whole[BarrierVolatile] = kernel("wrap", together), kernel("volatile", together)
	k.whole[BarrierAcquire], k.whole[BarrierGrid] = kernel("acquire", together), kernel("flip", together)
	k.whole[BarrierNone] = kernel("none", iterateWhole[T](func(*kernels.Launch) int { return 32 }))
	k.whole[BarrierBlock] = kernel("block", iterateWhole[T](func(l *kernels.Launch) int { return l.Block[0] }))
	return k
}

// Iterate plans [basic.Iterate] with a barrier of the caller's choice.
func Iterate(dev kernels.Device, dt kernels.Dtype, n int64, steps int, transposed bool, by IterateBy) *kernels.Plan {
	own := basic.Iterate(dev, dt, n, steps, transposed)
	switch {
	case n == 0 || by.Barrier == BarrierFastest || by.Barrier == BarrierCluster:
		return own
	case by.Barrier == BarrierHeld:
		return basic.IterateHeld(dev, dt, n, steps, transposed)
	}
	if by.Threads == 0 {
		by.Threads = 128
	}
	if by.Blocks == 0 {
		by.Blocks = int(min(kernels.CeilDiv(n, int64(by.Threads)), int64(dev.SMs)))
	}
	p := &kernels.Plan{Op: fmt.Sprintf("%s, barrier %v", own.Op, by.Barrier), Inputs: own.Inputs, Out: own.Out, Flops: own.Flops, Graph: by.Barrier == BarrierGraph}
	k := &iterateKernel[dt]
	w := [2]kernels.Ref{in0, in1}
	state := [2]kernels.Ref{p.Workspace(n * 8), p.Workspace(n * 8)}
	counters := p.Workspace(8)
	p.Launch(k.begin, int(kernels.CeilDiv(n, 256)), 256, iterateBeginArgs{kernels.In(2), state, counters, n})
	if by.Barrier > BarrierGraph {
		l := p.Launch(k.whole[by.Barrier], by.Blocks, by.Threads, iterateWholeArgs{w, state, counters, out, n, int64(steps), transposed})
		l.CoResident = by.Barrier <= BarrierGrid
		l.Cooperative = by.Barrier == BarrierGrid
		return p
	}
	for i := range 2 * steps {
		p.Launch(k.half, by.Blocks, by.Threads, iterateHalfArgs{w[i%2], state[i%2], state[1-i%2], out, i == 2*steps-1, n, transposed})
	}
	return p
}

func iterateBegin[T kernels.Float](c kernels.Call) {
	args := kernels.Args[iterateBeginArgs](c)
	x := kernels.Slice[float64](c, args.State[0])
	for j, v := range kernels.Slice[T](c, args.X)[:args.N] {
		x[j] = float64(v)
	}
	clear(kernels.Slice[float64](c, args.State[1])[:args.N])
}

func iterateHalf[T kernels.Float](c kernels.Call) {
	args := kernels.Args[iterateHalfArgs](c)
	w, in, out := kernels.Slice[T](c, args.W), kernels.Slice[float64](c, args.In)[:args.N], kernels.Slice[float64](c, args.Out)[:args.N]
	for j := range out {
		out[j] = rowOf(w, in, j, args.Transposed)
	}
	if args.Last {
		roundTo(kernels.Slice[T](c, args.Y), out)
	}
}

// iterateWhole is the body of kernels in which only the threads of a group wait for one another: each group goes through all steps before the next
// one starts. A kernel whose grid is one group is right.
func iterateWhole[T kernels.Float](group func(*kernels.Launch) int) func(kernels.Call) {
	return func(c kernels.Call) {
		args := kernels.Args[iterateWholeArgs](c)
		w, n := [2][]T{kernels.Slice[T](c, args.W[0]), kernels.Slice[T](c, args.W[1])}, int(args.N)
		state := [2][]float64{kernels.Slice[float64](c, args.State[0])[:n], kernels.Slice[float64](c, args.State[1])[:n]}
		size, threads := group(c.Launch), c.Grid[0]*c.Block[0]
		for first := 0; first < min(n, threads); first += size {
			for i := range 2 * args.Steps {
				in, out := state[i%2], state[1-i%2]
				for rows := first; rows < n; rows += threads {
					for j := rows; j < min(rows+size, n); j++ {
						out[j] = rowOf(w[i%2], in, j, args.Transposed)
					}
				}
			}
		}
		roundTo(kernels.Slice[T](c, args.Y), state[0])
	}
}

// rowOf returns element j of w in, or of w^T in.
func rowOf[T kernels.Float](w []T, in []float64, j int, transposed bool) (sum float64) {
	n := len(in)
	if transposed {
		for k, x := range in {
			sum += float64(w[k*n+j]) * x
		}
		return sum
	}
	for k, a := range w[j*n:][:n] {
		sum += float64(a) * in[k]
	}
	return sum
}

// roundTo rounds float64 to the operands' type.
func roundTo[T kernels.Float](out []T, in []float64) {
	for j, v := range in {
		out[j] = T(v)
	}
}
