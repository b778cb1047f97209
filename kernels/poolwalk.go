package kernels

import "fmt"

var poolWalkKernel = [...]*Kernel{Float32: poolWalkOf[float32](Float32), Float64: poolWalkOf[float64](Float64)}

func poolWalkOf[T Float](dt Dtype) *Kernel {
	return own.Kernel("poolwalk", fmt.Sprintf("poolwalk_max_diff_%v", dt), maxPoolDiffBody[T](false))
}

const (
	poolWalkAround = 2  // columns on either side that those of a warp depend on
	poolWalkRows   = 8  // least rows of a strip: around it four more are read
	poolWalkWarps  = 32 // of a multiprocessor, that are enough
)

// poolWalk is how poolwalk.cu lays warps out: so many planes beside one another, or groups of columns of one plane,
// and strips of rows.
type poolWalk struct{ beside, wide, before, columns, groups, rows, strips int64 }

func newPoolWalk(dev Device, planes int64, w Windows) (k poolWalk) {
	const lanes = 32
	in := int64(w.Columns.In)
	if k.wide = in + poolWalkAround; k.wide <= lanes { // a lane between planes, on either side
		k.beside, k.before, k.columns, k.groups = lanes/k.wide, poolWalkAround/2, in, 1
	} else {
		k.beside, k.wide, k.before, k.columns = 1, lanes, poolWalkAround, lanes-2*poolWalkAround
		k.groups = CeilDiv(in, k.columns)
	}
	in = int64(w.Rows.In)
	wanted := CeilDiv(int64(dev.SMs)*poolWalkWarps, max(CeilDiv(planes, k.beside)*k.groups, 1))
	k.rows = CeilDiv(in, max(min(wanted, in/poolWalkRows), 1))
	k.strips = CeilDiv(in, k.rows)
	return k
}

// walk appends the launches of the derivative of a maximum of windows of 3 x 3 by 1.
func (p *Plan) walk(dev Device, dt Dtype, planes int64, w Windows) *Plan {
	k := newPoolWalk(dev, planes, w)
	most := max(poolMost/(k.strips*k.groups), 1) * k.beside // planes of a launch
	for first := int64(0); first < planes; first += most {
		part := min(planes-first, most)
		warps := CeilDiv(part, k.beside) * k.strips * k.groups
		var args []any
		for i, bytes := range p.Inputs {
			args = append(args, Ref{Operand(i), bytes / planes * first})
		}
		args = append(args, Ref{Out, p.Out / planes * first}, part)
		args = append(args, w.arguments()...)
		for _, n := range []int64{k.beside, k.wide, k.before, k.columns, k.rows, warps} {
			args = append(args, int32(n))
		}
		for _, d := range []int64{k.strips, k.groups} {
			args = append(args, divideBy(d)...)
		}
		p.Launch(poolWalkKernel[dt], int(CeilDiv(warps, poolThreads/32)), poolThreads, args...)
	}
	return p
}
