package reduce

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// kind is a kernel with its own costs.
type kind int

const (
	tile        kind = iota // sum_tile
	row                     // sum_rows
	rowOnce                 // sum_rows of chunks, which the last block adds up
	few                     // sum_few
	columns                 // sum_colsvec
	columnsOnce             // sum_colsvec of chunks, which the last block adds up
	single                  // sum_cols
	singleOnce              // sum_cols of chunks, which the last block adds up
	unaligned               // sum_unaligned
	strip                   // sum_strip
	joined                  // sum_joined
	kinds
)

// String returns the name that records have.
func (k kind) String() string {
	return [...]string{"tile", "row", "row-once", "few", "columns", "columns-once", "single", "single-once", "unaligned", "strip", "joined"}[k]
}

// once reports whether the last block of a kernel adds up what all others leave. The kind before it is the kernel without.
func (k kind) once() bool { return k == rowOnce || k == columnsOnce || k == singleOnce }

// work is what a launch has to do.
type work struct {
	kind
	blocks, threads, shared int64   // blocks, and threads and bytes of shared memory of each
	rounds                  float64 // dependent loads of a thread
	ends                    float64 // dependent steps after them
	bytes                   float64 // moved
	block                   float64 // bytes that a block loads
	width                   int64   // contiguous bytes of a row that a block loads, 0 for whole rows
}

// cost is the time of parts of a kernel.
type cost struct {
	start float64 // us of a launch after another one, with the sum of a block
	round float64 // us of a dependent load
	end   float64 // us of a step after the loads
	share float64 // of the memory's bandwidth
	sm    float64 // bytes that an SM loads in a ns
	issue float64 // us of an SM to start a block; of rows, for each 64 threads of a block
}

// The costs were fitted to times within CUDA graphs, of 415 drawn shapes on an H200 and 94 on an H100, and to 293 shapes on an H100, each launch queued behind a copy, of which
// the short ones did not count: a launch behind a copy takes longer. Those of row-once were fitted
// to 139 times on an H200, those of unaligned to 60 shapes on an H200. bench/notes/reduce.md has how often a choice takes how much longer than the best.
var costs = kernels.Measured[[kinds]cost]{
	{90, [kinds]cost{
		tile:        {2.71, 0.00308, 0.00115, 0.752, 39.2, 0.0998},
		row:         {1.45, 0.593, 0, 0.95, 216, 0.163},
		rowOnce:     {2.25, 0.492, 0.208, 1, 83.9, 0.0821},
		few:         {1.84, 0.549, 0, 1.06, 38.3, 0.078},
		columns:     {3, 0.132, 0, 0.807, 32.2, 0.117},
		columnsOnce: {7.37, 0.869, 0.0412, 0.552, 99.6, 0.138},
		single:      {1.88, 0.851, 0, 0.893, 30.8, 0.202},
		singleOnce:  {4.86, 0.798, 0.291, 0.627, 97.1, 0.138},
		unaligned:   {1.79, 0.628, 0.0093, 0.863, 151, 0.111},
		strip:       {1.69, 1.24, 0.0603, 0.941, 277, 0.612},
		joined:      {1.44, 1.39, 0.0526, 0.826, 218, 0.773},
	}},
}

const overfetch = 12 // bytes read more for each contiguous part of a row

// time returns the predicted time of a launch, in us:
//
//	start + |(latency, bytes / bandwidth, bytes of the busiest SM / rate of an SM, blocks of the busiest SM * issue)|
//
// where latency is waves * (rounds * round + ends * end), and waves counts how often the device is filled with blocks. [kernels.Facts] of the device scale the costs.
func (w work) time(dev kernels.Device) float64 {
	all, facts, sms := costs.On(dev), dev.Facts(), float64(dev.SMs)
	c := all[w.kind]
	if w.kind == joined { // the SMs of a GPC are not a multiple of the blocks of a cluster
		sms = float64(max(stripCluster*(dev.SMs/stripCluster-1), stripCluster))
	}
	waves := max(float64(w.blocks)/(sms*w.resident(dev)), 1)
	if waves < 4 {
		waves = math.Ceil(waves)
	}
	latency := waves * (w.rounds*c.round*facts.Load + w.ends*c.end*facts.Barrier)
	memory := w.bytes / (facts.Bandwidth * c.share) * 1e6
	if w.width > 0 {
		memory *= min(1+overfetch/float64(w.width), 2)
	}
	busiest := math.Ceil(float64(w.blocks) / sms)
	load, issued := busiest*w.block/(c.sm*facts.L2)/1e3, (busiest-1)*c.issue
	if w.kind == row {
		issued *= float64(w.threads) / 64
	}
	start := c.start * facts.Launch
	if w.kind.once() {
		start += (c.start - all[w.kind-1].start) * (facts.Barrier - facts.Launch)
	}
	return start + math.Sqrt(latency*latency+memory*memory+load*load+issued*issued)
}

// resident returns the blocks that an SM has at a time.
func (w work) resident(dev kernels.Device) float64 {
	registers, threads := int64(64), int64(2048)
	switch w.kind {
	case tile:
		registers = 40
	case unaligned:
		registers = 80
	}
	if dev.Minor > 0 || dev.Major == 12 {
		threads = 1536
	}
	return float64(max(min(threads/w.threads, 32, 65536/(registers*w.threads), int64(dev.SharedOptin)/(w.shared+1024)), 1))
}
