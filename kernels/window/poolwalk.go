package window

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

var poolWalkKernel = own.Pair("poolwalk", "poolwalk_max_diff", maxPoolDiffBody[float32], maxPoolDiffBody[float64])

// Sizes of poolwalk.cu.
//
//	H200, float32, 2^26 elements, us   56 x 56   28 x 28   14 x 14   7 x 7   57 x 57
//	warps walk down whole planes           222       225       256     307       253
//	warps walk down 28 rows                257         -         -       -         -
//	warps walk down 14 rows                319         -         -       -         -
//	warps walk down 8 rows                 404         -         -       -         -
//	tiles as in pool.cu                    288       340       408     563       313
//
// These warps load seven rows ahead. With four rows, as for float64, 56 x 56 takes 244 us.
const (
	poolWalkLanes = 32 // of a warp, which is a block: the compiler then knows which values are uniform
	poolWalkRows  = 8  // min rows of a strip, which reads four more rows around it
	poolWalkWarps = 32 // warps wanted for each SM
)

// poolWalk is the layout of warps in poolwalk.cu: Beside planes side by side, or groups of columns of one plane, and strips of rows.
type poolWalk struct {
	Beside, Wide, Before, Columns, Rows int64 `arg:"int32"`
	Strips, Groups                      arith.Divide
}

func newPoolWalk(dev kernels.Device, planes int64, w Windows) (k poolWalk) {
	const around = 2 // columns on either side that the results of a warp depend on
	in, outside, groups := int64(w.Columns.In), int64(0), int64(1)
	if w.Columns.Before > 1 || w.Columns.After > 1 { // the middle of a window is outside
		outside = 1
	}
	k.Beside, k.Wide, k.Before, k.Columns = 1, poolWalkLanes, 1+outside, poolWalkLanes-2*around
	if wide := in + 1 + outside; wide <= poolWalkLanes {
		k.Beside, k.Wide, k.Before = poolWalkLanes/wide, wide, 1
	} else {
		groups = kernels.CeilDiv(in-around*(1-outside), k.Columns) // the first and the last group have one more column if outside is 0
	}
	in = int64(w.Rows.In)
	wanted := kernels.CeilDiv(int64(dev.SMs)*poolWalkWarps, max(kernels.CeilDiv(planes, k.Beside)*groups, 1))
	k.Rows = kernels.CeilDiv(in, max(min(wanted, in/poolWalkRows), 1))
	k.Strips, k.Groups = arith.DivideBy(kernels.CeilDiv(in, k.Rows)), arith.DivideBy(groups)
	return k
}

// appendWalk appends the launches of the gradient of a maximum of windows of 3 x 3 with stride 1.
func appendWalk(p *kernels.Plan, dev kernels.Device, dt kernels.Dtype, planes int64, w Windows) *kernels.Plan {
	k := newPoolWalk(dev, planes, w)
	warps := k.Strips.D * k.Groups.D // of Beside planes
	inParts(p, planes, poolMost/warps*k.Beside, func(part int64, at func(kernels.Operand) kernels.Ref) {
		p.Launch(poolWalkKernel[dt], int(kernels.CeilDiv(part, k.Beside)*warps), poolWalkLanes, maxPoolDiffArgs{at(0), at(1), at(kernels.Out), part, w.axes()}, k)
	})
	return p
}
