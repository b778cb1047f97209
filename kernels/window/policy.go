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
}

var windowPolicies = kernels.Measured[windowPolicy]{
	// H200: bench/notes/window.md has the times by field
	{90, windowPolicy{direct: 256, pieces: 128, resident: 1024, maxHeld: 6, maxAlone: 12, clustered: 768, chunk: [2]int64{kernels.Float32: 128, kernels.Float64: 64}, unalignedMin: 361, warpsPerSM: 16, maxRun: 16}},
}
