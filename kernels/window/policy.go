package window

import "github.com/stheno-ml/stheno/kernels"

// windowPolicy tunes window sums. Blocks of short use up to half of the shared memory of an SM, blocks of segments up to all of it, and
// blocks of the other kernels at most the 48 KiB that every device has.
type windowPolicy struct {
	direct       int64    // threads of direct: 64 bytes of outputs each
	pieces       int64    // threads of few, and of short if rows need no more
	resident     int64    // threads of segments on an SM, by their registers
	maxHeld      int64    // max segments of a window
	maxAlone     int64    // max segments of a window if clusters cannot hold them
	clustered    int64    // threads of cluster on an SM, by their registers
	chunk        [2]int64 // threads of chunks and join by type: 16 elements each
	unalignedMin int64    // min elements of a window for segments if rows are unaligned
	warpsPerSM   int64    // warps of stream on an SM, about
	maxRun       int64    // max tiles of a run of stream
	// Few outputs per SM leave stream too few warps. Windows of at most fewMax elements are then summed by few, longer windows by segments.
	fewMax          int64
	fewOutputsPerSM int64 // max outputs
	fewWorkPerSM    int64 // max elements of the windows of all outputs for few
	segmentOutputs  int64 // max outputs for segments by elements of a window: a block has few segments
}

var windowPolicies = kernels.Measured[windowPolicy]{
	// H200: bench/notes/window.md has the times by field
	{90, windowPolicy{direct: 256, pieces: 128, resident: 1024, maxHeld: 6, maxAlone: 12, clustered: 768, chunk: [2]int64{kernels.Float32: 128, kernels.Float64: 64}, unalignedMin: 361, warpsPerSM: 16, maxRun: 16,
		fewMax: 150, fewOutputsPerSM: 1 << 14, fewWorkPerSM: 1 << 20, segmentOutputs: 40}},
}

// isSmall reports whether a window sum of a window of some elements has so few outputs that few or segments is faster than stream.
func (pol windowPolicy) isSmall(dev kernels.Device, g windowArgs) bool {
	sms, outputs := int64(dev.SMs), g.Rows*g.NOut
	if g.W <= pol.fewMax {
		return outputs <= pol.fewOutputsPerSM*sms && outputs*g.W <= pol.fewWorkPerSM*sms
	}
	return g.W <= windowStream && outputs <= min(pol.fewOutputsPerSM, pol.segmentOutputs*g.W)*sms
}
