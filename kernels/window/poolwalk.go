package window

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

var poolWalkKernel = [...]*kernels.Kernel{kernels.Float32: poolWalkOf[float32](kernels.Float32), kernels.Float64: poolWalkOf[float64](kernels.Float64)}

func poolWalkOf[T kernels.Float](dt kernels.Dtype) *kernels.Kernel {
	return own.Kernel("poolwalk", fmt.Sprintf("poolwalk_max_diff_%v", dt), maxPoolDiffBody[T](false))
}

const (
	poolWalkLanes = 32 // of a warp, which is a block: the compiler then knows what all lanes share
	poolWalkRows  = 8  // least rows of a strip: around it four more are read
	poolWalkWarps = 32 // of a multiprocessor, that are enough
)

// H200, float32, 2^26 elements, us, by warps that walk down whole planes, and by tiles as in pool.cu: 56 x 56 222, 288; 28 x 28 225, 340; 14 x 14 256, 408; 7 x 7
// 307, 563; 57 x 57 253, 313. Strips of 28, 14, 8 rows of 56: 257, 319, 404. Seven rows ahead, four: 56 x 56 222, 244; float64 has four.

// poolWalk is how poolwalk.cu lays warps out: so many planes beside one another, or groups of columns of one plane,
// and strips of rows.
type poolWalk struct{ beside, wide, before, columns, groups, rows, strips int64 }

func newPoolWalk(dev kernels.Device, planes int64, w Windows) (k poolWalk) {
	const around = 2 // columns on either side that others depend on
	in, outside := int64(w.Columns.In), int64(0)
	if w.Columns.Before > 1 || w.Columns.After > 1 { // a window's middle lies there
		outside = 1
	}
	k.beside, k.wide, k.before, k.columns, k.groups = 1, poolWalkLanes, 1+outside, poolWalkLanes-2*around, 1
	if wide := in + 1 + outside; wide <= poolWalkLanes {
		k.beside, k.wide, k.before = poolWalkLanes/wide, wide, 1
	} else {
		k.groups = kernels.CeilDiv(in-around*(1-outside), k.columns) // the first and the last have a column more where nothing is outside
	}
	in = int64(w.Rows.In)
	wanted := kernels.CeilDiv(int64(dev.SMs)*poolWalkWarps, max(kernels.CeilDiv(planes, k.beside)*k.groups, 1))
	k.rows = kernels.CeilDiv(in, max(min(wanted, in/poolWalkRows), 1))
	k.strips = kernels.CeilDiv(in, k.rows)
	return k
}

// appendWalk appends the launches of the derivative of a maximum of windows of 3 x 3 by 1.
func appendWalk(p *kernels.Plan, dev kernels.Device, dt kernels.Dtype, planes int64, w Windows) *kernels.Plan {
	k := newPoolWalk(dev, planes, w)
	most := poolMost / (k.strips * k.groups) * k.beside // planes of a launch
	for first := int64(0); first < planes; first += most {
		part := min(planes-first, most)
		var args []any
		for i, bytes := range p.Inputs {
			args = append(args, kernels.At(kernels.Operand(i), bytes/planes*first))
		}
		args = append(args, kernels.At(kernels.Out, p.Out/planes*first), part)
		args = append(args, w.arguments()...)
		for _, n := range []int64{k.beside, k.wide, k.before, k.columns, k.rows} {
			args = append(args, int32(n))
		}
		for _, d := range []int64{k.strips, k.groups} {
			args = append(args, arith.Divide(d)...)
		}
		p.Launch(poolWalkKernel[dt], int(kernels.CeilDiv(part, k.beside)*k.strips*k.groups), poolWalkLanes, args...)
	}
	return p
}
