package attention

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// hopperTile is the number of rows of a tile of k and v, and hopperThreads the number of threads of a block of attention_hopper_backward.cu.
const (
	hopperTile    = 128
	hopperThreads = 384
)

var (
	hopperForward   = halves([]string{"attention_hopper", "attention_hopper"}, "attention_hopper", mappedForward)
	hopperThree     = map[kernels.Dtype]*kernels.Kernel{expr.BF16: threeOf(expr.BF16), expr.F16: threeOf(expr.F16)}
	hopperGradients = halves([]string{"attention_hopper_backward", "attention_hopper_backward"}, "attention_hopper_gradients", mappedGradients)
	hopperDelta     = map[kernels.Dtype]*kernels.Kernel{expr.BF16: deltaOf(expr.BF16), expr.F16: deltaOf(expr.F16)}
)

// threeOf returns the kernel with three warpgroups for rows of up to 64 elements.
func threeOf(dt kernels.Dtype) *kernels.Kernel {
	return own.Kernel("attention_hopper", fmt.Sprintf("attention_hopper_three_64_%v", dt), func(c kernels.Call) { mappedForward(c, dt, kernels.Args[hopperForwardArgs](c)) })
}

func deltaOf(dt kernels.Dtype) *kernels.Kernel {
	return own.Kernel("attention_hopper_backward", fmt.Sprintf("attention_hopper_delta_%v", dt), func(c kernels.Call) {
		a := kernels.Args[hopperDeltaArgs](c)
		productsOfRows[float32](c, dt, deltaArgs{a.Grad, a.Out, a.To, a.Heads, a.Queries, a.Dim, a.Rows})
	})
}

// onHopper reports whether the kernels of compute capability 9.0 compute the problem.
func (p *Problem) onHopper(dev kernels.Device) bool { return isHopper(dev) && p.forHopper() }

func isHopper(dev kernels.Device) bool {
	return dev.Kind == kernels.GPU && dev.Major == 9 && dev.Minor == 0
}

// forHopper reports whether the kernels of compute capability 9.0, whose Go bodies the host runs, compute the problem.
func (p *Problem) forHopper() bool { return p.Dtype.Size() == 2 && p.Dim <= 128 && p.inPieces() }

// tensorMap describes an operand to TMA, in boxes of rows x 64 elements.
func (o operand) tensorMap(p *Problem, heads, rows, box int64) kernels.TensorMap {
	const bytes = 2
	return kernels.TensorMap{Ref: o.At, Element: kernels.TensorBF16, Extents: []int64{p.Dim, rows, heads, p.Batch}, Strides: []int64{bytes * o.Row, bytes * o.Head, bytes * o.Batch},
		Box: []int64{64, box, 1, 1}, Swizzle: 128}
}

// operandOf is the operand that a tensor map describes.
func operandOf(m kernels.TensorMap) operand {
	return operand{m.Ref, Strides{m.Strides[2] / 2, m.Strides[1] / 2, m.Strides[0] / 2}}
}

func operandsOf(m [3]kernels.TensorMap) [3]operand {
	return [3]operand{operandOf(m[0]), operandOf(m[1]), operandOf(m[2])}
}

// maps describes q, in boxes of that many rows, k and v.
func (p *Problem) maps(in [3]operand, queries int64) [3]kernels.TensorMap {
	return [3]kernels.TensorMap{in[0].tensorMap(p, p.Heads, p.Queries, queries), in[1].tensorMap(p, p.KeyHeads, p.Keys, hopperTile), in[2].tensorMap(p, p.KeyHeads, p.Keys, hopperTile)}
}

type hopperForwardArgs struct {
	In         [3]kernels.TensorMap
	Out        operand
	Statistics kernels.Ref
	Outputs    int64 `arg:"int32"`
	Counter    kernels.Ref
	problemArgs
}

func mappedForward(c kernels.Call, dt kernels.Dtype, a hopperForwardArgs) {
	forward[float32](c, dt, forwardArgs{operandsOf(a.In), a.Out, a.Statistics, a.Outputs, a.problemArgs})
}

// hopperGroups is the number of warpgroups that compute in a block of attention_hopper.cu, 64 queries each: three for rows of up to 64 elements, unless so many queries are too coarse.
//
// Attention, bf16, 32 heads of 64, H200, us    two      three
// full      32 x 512                          199.5      188.9
// full       8 x 2048                         686.3      582.6
// full       2 x 8192                        2765.1     2202.3
// full       1 x 16384                       5610.0     4395.9
// causal    32 x 512                          142.5      161.7
// causal     8 x 2048                         391.2      372.9
// causal     2 x 8192                        1392.3     1191.2
func (p *Problem) hopperGroups() int64 {
	if p.width() == 0 && (!p.Causal && p.Queries >= 512 || p.Queries >= 2048) {
		return 3
	}
	return 2
}

// launchHopper launches blocks that compute tiles of queries in a loop. Their shared memory has barriers, two tiles of queries, stages of keys and values, and what rows take on their way
// to memory.
func (f *Forward) launchHopper(p *kernels.Plan, dev kernels.Device, args *forwardArgs) {
	kernel, stages, rows := hopperForward.of(&f.Problem), 4-2*int64(f.width()), 64*f.hopperGroups()
	if f.hopperGroups() == 3 {
		kernel = hopperThree[f.Dtype]
	}
	tiles := f.Batch * f.Heads * kernels.CeilDiv(f.Queries, rows)
	p.Launch(kernel, int(min(tiles, int64(dev.SMs))), int(128*(1+f.hopperGroups())),
		hopperForwardArgs{f.maps(args.In, rows), args.Out, args.Statistics, args.Outputs, kernels.At(kernels.Arrivals, 0), args.problemArgs}).Shared = int(2048 + 3*f.tileBytes(rows) + 2*stages*f.tileBytes(hopperTile))
}

type hopperDeltaArgs struct {
	Grad                      kernels.Ref
	Out                       operand
	To, Turns                 kernels.Ref
	Heads, Queries, Dim, Rows int64 `arg:"int32"`
}

// hopperGradientArgs are the arguments of a launch for the blocks of keys of each head from First on: as many as run at the same time.
type hopperGradientArgs struct {
	In                [3]kernels.TensorMap
	Grad              kernels.TensorMap
	Statistics, Delta kernels.Ref
	K, V              kernels.Ref
	Strides
	Q                      operand
	Sums, Turns            kernels.Ref
	Outputs, First, Blocks int64 `arg:"int32"` // 1: K, 2: V, 4: Q
	problemArgs
}

// mappedGradients computes in the first launch what all compute.
func mappedGradients(c kernels.Call, dt kernels.Dtype, a hopperGradientArgs) {
	if a.First > 0 {
		return
	}
	in := gradientInputs{operandsOf(a.In), operandOf(a.Grad), a.Statistics, a.Delta}
	gradientOfKeys[float32](c, dt, keysArgs{in, a.K, a.V, a.Strides, a.Outputs, a.problemArgs})
	if a.Outputs&4 != 0 {
		writeGradientOfQueries[float32](c, dt, queriesArgs{in, a.Q.At, a.problemArgs}, a.Q)
	}
}

// launchHopper launches a block for each tile of keys of as many heads as run at the same time; others follow in the same blocks, and tiles beyond those that run at the same time in another
// launch. The shared memory of a block: two tiles of keys, two stages of two tiles of queries, with three numbers for each query, two tiles of ds, and one of dq in float32.
func (b *Backward) launchHopper(p *kernels.Plan, dev kernels.Device, in, to [3]operand, out, grad operand, outputs int64) {
	queries := int64(hopperTile >> b.width()) // of a stage
	tiles, keyTiles, heads := kernels.CeilDiv(b.Queries, queries), kernels.CeilDiv(b.Keys, hopperTile), b.Batch*b.KeyHeads
	sumBytes := 2 * b.tileBytes(queries)
	args := hopperGradientArgs{In: b.maps(in, queries), Grad: grad.tensorMap(&b.Problem, b.Heads, b.Queries, queries), Statistics: kernels.In(3), Delta: p.Workspace(b.statisticBytes()),
		K: to[1].At, V: to[2].At, Strides: to[1].Strides, Q: to[0], Turns: p.Workspace(b.statisticBytes()), Outputs: outputs, problemArgs: b.args(6)}
	if args.Sums = args.Turns; keyTiles > 1 {
		args.Sums = p.Workspace(b.Batch * b.Heads * tiles * sumBytes)
	}
	if b.Q {
		args.Outputs |= 4
	}
	lanes := int64(8 << b.width()) // of a row
	p.Launch(hopperDelta[b.Dtype], int(kernels.CeilDiv(b.rows()*lanes, portableThreads)), portableThreads,
		hopperDeltaArgs{grad.At, out, args.Delta, args.Turns, b.Heads, b.Queries, b.Dim, b.rows()})
	for sms := int64(dev.SMs); args.First < keyTiles; args.First += sms {
		args.Blocks = min(keyTiles-args.First, sms)
		l := p.Launch(hopperGradients.of(&b.Problem), int(args.Blocks*min(sms/args.Blocks, heads)), hopperThreads, args)
		l.Shared = int(2048 + 2*b.tileBytes(hopperTile) + 2*(2*b.tileBytes(queries)+3*4*queries+16) + 2*2*hopperTile*queries + sumBytes + 128 + 16*128)
		l.Cooperative = args.Blocks > 1
	}
}
