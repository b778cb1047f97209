package attention

import (
	"github.com/stheno-ml/stheno/kernels"
)

// hopperTile is the number of rows of a tile of q, k and v in attention_hopper.cu.
const (
	hopperTile    = 128
	hopperThreads = 384
	hopperStages  = 3 // of attention_hopper_backward.cu's dkv
)

var (
	hopperForward = halves("attention_hopper", "attention_hopper", mappedForward)
	hopperDQ      = halves("attention_hopper_backward", "attention_hopper_dq", mappedQueries)
	hopperDKV     = halves("attention_hopper_backward", "attention_hopper_dkv", mappedKeys)
)

// onHopper reports whether the kernels of compute capability 9.0 compute the problem.
func (p Problem) onHopper(dev kernels.Device) bool {
	return dev.Kind == kernels.GPU && dev.Major == 9 && dev.Minor == 0 && p.inPieces()
}

// tensorMap describes an operand to TMA, in boxes of rows x 64 elements.
func (o operand) tensorMap(p Problem, heads, rows, box int64) kernels.TensorMap {
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
func (p Problem) maps(queries int64) [3]kernels.TensorMap {
	in := p.inputs()
	return [3]kernels.TensorMap{in[0].tensorMap(p, p.Heads, p.Queries, queries), in[1].tensorMap(p, p.KeyHeads, p.Keys, hopperTile), in[2].tensorMap(p, p.KeyHeads, p.Keys, hopperTile)}
}

type hopperForwardArgs struct {
	In         [3]kernels.TensorMap
	Out        operand
	Statistics kernels.Ref
	Outputs    int64 `arg:"int32"`
	problemArgs
}

func mappedForward(c kernels.Call, dt kernels.Dtype, a hopperForwardArgs) {
	forward[float32](c, dt, forwardArgs{operandsOf(a.In), a.Out, a.Statistics, a.Outputs, a.problemArgs})
}

// launchHopper launches blocks that compute tiles of queries in a loop. Their shared memory has barriers, two tiles of queries, stages of keys and values, and what rows take on their way
// to memory.
func (f Forward) launchHopper(p *kernels.Plan, dev kernels.Device, args hopperForwardArgs) {
	stages := 4 - 2*f.wide()
	tiles := f.Batch * f.Heads * kernels.CeilDiv(f.Queries, hopperTile)
	p.Launch(hopperForward.of(f.Problem), int(min(tiles, int64(dev.SMs))), hopperThreads, args).Shared = int(2048 + (3+2*stages)*f.tileBytes(hopperTile))
}

// hopperInputs are arguments of the kernels of gradients: q, k, v, the gradient w.r.t. out.
type hopperInputs struct {
	In                [3]kernels.TensorMap
	Grad              kernels.TensorMap
	Statistics, Delta kernels.Ref
}

func (in hopperInputs) portable() gradientInputs {
	return gradientInputs{operandsOf(in.In), operandOf(in.Grad), in.Statistics, in.Delta}
}

type hopperQueriesArgs struct {
	hopperInputs
	Out operand
	problemArgs
}

type hopperKeysArgs struct {
	hopperInputs
	K, V kernels.Ref
	Strides
	Outputs int64 `arg:"int32"`
	problemArgs
}

func mappedQueries(c kernels.Call, dt kernels.Dtype, a hopperQueriesArgs) {
	writeGradientOfQueries[float32](c, dt, queriesArgs{a.portable(), a.Out.At, a.problemArgs}, a.Out)
}

func mappedKeys(c kernels.Call, dt kernels.Dtype, a hopperKeysArgs) {
	gradientOfKeys[float32](c, dt, keysArgs{a.portable(), a.K, a.V, a.Strides, a.Outputs, a.problemArgs})
}

// launchHopper launches a block for each tile of queries or keys. The tiles of a block's shared memory: two of its own, and stages of two others, with three numbers for each query in the
// kernel of keys.
func (b Backward) launchHopper(p *kernels.Plan, to [3]operand, delta kernels.Ref, outputs int64) {
	inputs := func(queries int64) hopperInputs {
		grad := operand{kernels.In(5), b.queryStrides()}
		return hopperInputs{b.maps(queries), grad.tensorMap(b.Problem, b.Heads, b.Queries, queries), kernels.In(3), delta}
	}
	if b.Q {
		stages := 3 - b.wide()
		p.Launch(hopperDQ.of(b.Problem), int(b.Batch*b.Heads*kernels.CeilDiv(b.Queries, hopperTile)), hopperThreads,
			hopperQueriesArgs{inputs(hopperTile), to[0], b.args(6)}).Shared = int(2048 + (2+2*stages)*b.tileBytes(hopperTile))
	}
	if outputs > 0 {
		queries := hopperTile / (1 + b.wide()) // of a stage
		p.Launch(hopperDKV.of(b.Problem), int(b.Batch*b.KeyHeads*kernels.CeilDiv(b.Keys, hopperTile)), hopperThreads,
			hopperKeysArgs{inputs(queries), to[1].At, to[2].At, to[1].Strides, outputs, b.args(6)}).Shared = int(3072 + 2*b.tileBytes(hopperTile) + hopperStages*(2*b.tileBytes(queries)+3*4*queries))
	}
}
