package attention

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
)

// slabStep is the number of rows of a stage of attention_wgmma_float.cu.
const slabStep = 64

// The kernels of attention_wgmma_float.cu by kind of operands.
var (
	slabForward = slabs("attention_wgmma", forward[float32])
	slabDQ      = slabs("attention_wgmma_dq", stridedGradientOfQueries)
	slabDKV     = slabs("attention_wgmma_dkv", gradientOfKeys[float32])
)

func slabs[A any](prefix string, body func(kernels.Call, kernels.Dtype, A)) map[string]*kernels.Kernel {
	k := map[string]*kernels.Kernel{}
	for _, kind := range []string{"tf32", "f32"} { // the Go body computes in float32
		k[kind] = own.Kernel("attention_wgmma_float", fmt.Sprintf("%s_%s", prefix, kind), func(c kernels.Call) { body(c, kernels.Float32, kernels.Args[A](c)) })
	}
	return k
}

// bySlabs reports whether the kernels of attention_wgmma_float.cu compute the problem on a device.
func (p *Problem) bySlabs(dev kernels.Device) bool { return isHopper(dev) && p.forSlabs() }

// forSlabs reports whether the kernels of attention_wgmma_float.cu, whose Go bodies the host runs, compute the problem.
func (p *Problem) forSlabs() bool { return p.Dtype == kernels.Float32 && p.Dim <= 64 && p.inPieces() }

type slabQueriesArgs struct {
	gradientInputs
	Out operand
	problemArgs
}

func stridedGradientOfQueries(c kernels.Call, dt kernels.Dtype, a slabQueriesArgs) {
	writeGradientOfQueries[float32](c, dt, queriesArgs{a.gradientInputs, a.Out.At, a.problemArgs}, a.Out)
}

// launchSlabs launches blocks of `groups` warpgroups, with a tile of 64 rows of a head for each. The shared memory of a block holds tiles of its rows, of `own` operands, a stage of two operands,
// and `slabs` slabs, which are doubled where float32 is split into parts.
func launchSlabs[A any](p *Problem, plan *kernels.Plan, k map[string]*kernels.Kernel, heads, rows, groups, own, slabs int64, args A) {
	if p.kind() == "tf32" {
		plan.Precision = kernels.TF32
	} else {
		slabs *= 2
	}
	const aligned = 1024 // of which slabs begin at a multiple
	tile := groups * mmaTile
	plan.Launch(k[p.kind()], int(heads*kernels.CeilDiv(rows, tile)), int(groups)*mmaThreads, args).Shared = int(aligned + p.tileBytes(own*tile+(2+slabs)*slabStep))
}
