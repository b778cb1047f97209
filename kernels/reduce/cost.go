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
	strip                   // sum_strip
	joined                  // sum_joined
	kinds
)

// String returns the name that records have.
func (k kind) String() string {
	return [...]string{"tile", "row", "row-once", "few", "columns", "columns-once", "single", "single-once", "strip", "joined"}[k]
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

// The costs were fitted to the times of 2581 candidates of 155 shapes on an H100, each queued behind a copy. Of these shapes the chosen candidate takes 1.000 times the least
// time in the median, and up to 1.10 times for 95 %; of 155 shapes drawn later 1.000 times, and up to 1.77 times with those that were timed while the host was busy.
//
// The time to start a block of columns was 0.138 us, too, so few was not chosen for few rows of many columns, where it is faster:
//
//	H200, us                  columns    few
//	2 x 8000000                  49.4   29.7
//	3 x 5362740                  38.2   23.8
//	4 x 4000000                  32.0   21.7
//	float64 4 x 10000000        101.3   93.8
//
// With 0.6 us the chosen candidates of 108 drawn shapes on an H200 take 1.12 times the least time for 95 %, at most 1.25 times (before 1.15 and 1.62); of the
// 310 shapes on the H100 1.20 times for 95 % (1.23).
//
// A block of a row was started in 0.138 us whatever its threads, too:
//
//	H200, us                64 threads   128    256
//	5677 x 1730                   14.1   19.0   24.8
//	float64 13176 x 1756          45.2   51.1   75.7
//
// Of the 310 shapes on the H100 95 % are within 1.16 now, of 90 shapes drawn later on an H200 1.22 (before 1.31).
var costs = kernels.Measured[[kinds]cost]{
	{90, [kinds]cost{
		tile:        {3.03, 0.0886, 0.0116, 0.80, 40.6, 0.138},
		row:         {2.72, 0.573, 0, 0.95, 43.6, 0.138},
		rowOnce:     {5.45, 0.482, 0.0951, 0.904, 101, 0.138},
		few:         {2.16, 0.586, 0, 0.86, 53, 0.138},
		columns:     {3.28, 0.12, 0, 0.95, 47.6, 0.6},
		columnsOnce: {7.37, 0.869, 0.0412, 0.552, 99.6, 0.138},
		single:      {2.54, 0.665, 0, 0.95, 36.7, 0.138},
		singleOnce:  {4.86, 0.798, 0.291, 0.627, 97.1, 0.138},
		strip:       {3.06, 0.889, 0.0318, 0.922, 62.9, 0.138},
		joined:      {2.80, 1.13, 0.0632, 0.94, 124, 0.138},
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
	if w.kind == tile {
		registers = 40
	}
	if dev.Minor > 0 || dev.Major == 12 {
		threads = 1536
	}
	return float64(max(min(threads/w.threads, 32, 65536/(registers*w.threads), int64(dev.SharedOptin)/(w.shared+1024)), 1))
}
