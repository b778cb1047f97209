package window

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
	"github.com/stheno-ml/stheno/kernels/internal/policy"
)

// appendWindowFew appends a launch whose blocks sum whole rows, or some outputs of a row.
func appendWindowFew(p *kernels.Plan, dev kernels.Device, dt kernels.Dtype, g windowArgs, each int64) {
	threads, vector := windowPolicies.On(dev).pieces, 16/dt.Size()
	for threads > windowWarp && g.Rows*g.NOut < int64(dev.SMs)*threads*each {
		threads /= 2 // so that all SMs have a block
	}
	if g.Rows*g.NOut < int64(dev.SMs)*threads*each {
		each = windowRound
	}
	most := threads * each
	rows, blocks, outputs := max(most/max(g.NIn, g.NOut), 1), kernels.CeilDiv(g.NOut, most), g.NOut
	if blocks > 1 {
		outputs = kernels.CeilDiv(kernels.CeilDiv(g.NOut, blocks), vector) * vector
	}
	// The fewest threads with the same number of iterations.
	items := rows * kernels.CeilDiv(outputs, windowRound)
	threads = min(threads, kernels.CeilDiv(kernels.CeilDiv(items, kernels.CeilDiv(items, threads)), windowWarp)*windowWarp)
	// Shared memory holds a block's elements, then its sums, both aligned as in global memory. Before each is room for elements that
	// windows may reach.
	elements := windowAround + kernels.CeilDiv(vector+rows*min(g.NIn, outputs+g.W-1), vector)*vector
	l := p.Launch(windowFewKernel[dt], int(kernels.CeilDiv(g.Rows, rows)*blocks), int(threads), g, int32(rows), int32(blocks), int32(outputs), int32(elements))
	l.Shared = int((windowAround + elements + vector + rows*outputs) * dt.Size())
}

// appendWindowShort appends a launch whose blocks sum whole rows, and returns true. It returns false if rows are too long, or too few to fill
// blocks, or if segments are faster: they hold windows of up to half a row.
//
//	H200, us                            short   segments
//	f32   4096 x 2504, radius 780          31         39
//	f32  30000 x 7000, radius 3000        632        738
//	f32  50000 x 1536, radius 600         204        309
//	f32  20000 x 5000, radius 1000        328        296
//	f64  10000 x 3001, radius 700         162        143
func appendWindowShort(p *kernels.Plan, dev kernels.Device, dt kernels.Dtype, g windowArgs) bool {
	pol, vector := windowPolicies.On(dev), 16/dt.Size()
	chunk := windowEach[dt]
	chunks := kernels.CeilDiv(g.NIn, chunk)
	across := (g.Off+g.NOut-1)/chunk + kernels.CeilDiv(-g.Off, chunk) + 1 // Off is 0 or below
	each := max(chunks, across)
	few := g.Rows < 2 || each > pol.pieces && g.Rows < int64(dev.SMs) // rows
	if g.Off > 0 || each > windowMost || g.W <= windowStream && few || g.W > windowStream && 2*g.W <= g.NOut {
		return false
	}
	// The number of rows that leaves the fewest threads of a block idle, with enough blocks.
	rows, best := max(pol.pieces/each, 1), 0.0
	for n := rows; n*each <= 2*pol.pieces && best < 0.95; n++ {
		if busy := float64(n*each) / float64(arith.RoundUp(n*each, windowWarp)); busy > best {
			rows, best = n, busy
		}
	}
	rows = min(rows, kernels.CeilDiv(g.Rows, int64(dev.SMs)))
	threads := arith.RoundUp(rows*each, windowWarp)
	levels := int64(1) // of sums of 4^level chunks; a window has at most three sums of a level
	for n := min(chunks, g.W/chunk-1); n>>(2*levels) > 0; {
		levels++
	}
	doubles := kernels.CeilDiv((1+levels)*rows*chunks, 2) * 2
	elements := kernels.CeilDiv(vector+rows*g.NIn, vector) * vector
	shared := doubles*8 + (elements+vector+rows*g.NOut)*dt.Size()
	if shared > int64(dev.SharedOptin)/2 {
		return false
	}
	p.Launch(windowShortKernel[dt], int(kernels.CeilDiv(g.Rows, rows)), int(threads), g, int32(rows), int32(elements), int32(levels), int32(doubles)).Shared = int(shared)
	return true
}

// segmentsArgs are the last arguments of a launch of segments, and clusterArgs those of one by clusters.
type (
	segmentsArgs struct {
		Q, Least, Longer, Run, Runs int64 `arg:"int32"`
	}
	clusterArgs struct {
		segmentsArgs
		Segments int64 `arg:"int32"`
	}
)

// appendWindowSegments appends a launch whose blocks walk along rows and keep the segments of a window, and returns true. It returns
// false if a window has more than held segments.
func appendWindowSegments(p *kernels.Plan, dev kernels.Device, dt kernels.Dtype, g windowArgs, held int64) bool {
	pol, vector := windowPolicies.On(dev), 16/dt.Size()
	q := kernels.CeilDiv(g.W, windowPlaces*windowEach[dt])
	threads := arith.RoundUp(kernels.CeilDiv(kernels.CeilDiv(g.W, q), windowEach[dt]), windowWarp)
	shared := (q + 2) * arith.RoundUp(threads*windowEach[dt]+vector-1, vector) * dt.Size()
	resident := int64(dev.SMs) * min(pol.resident/threads, int64(dev.SharedOptin)/(shared+2<<10))
	if q > held || resident == 0 {
		return false
	}
	segments, least, longer := g.segments(q)
	run := kernels.CeilDiv(segments, min(max(resident/g.Rows, 1), segments)) // all segments of a block, which loads the elements before them once
	runs := kernels.CeilDiv(segments, run)
	p.Launch(windowSegmentsKernel[dt], int(g.Rows*runs), int(threads), g, segmentsArgs{q, least, longer, run, runs}).Shared = int(shared)
	return true
}

// appendWindowCluster appends a launch in which the blocks of a cluster together keep the segments of a window, and returns true. It returns
// false if an SM has no room for two blocks.
func appendWindowCluster(p *kernels.Plan, dev kernels.Device, dt kernels.Dtype, g windowArgs) bool {
	pol, vector := windowPolicies.On(dev), 16/dt.Size()
	var q, threads, shared, each int64 // each: blocks of an SM
	for q = arith.RoundUp(kernels.CeilDiv(g.W, windowPlaces*windowEach[dt]), policy.ClusterBlocks); ; q += policy.ClusterBlocks {
		if !dev.HasClusters() || q/policy.ClusterBlocks > windowSegmentsMax {
			return false
		}
		threads = arith.RoundUp(kernels.CeilDiv(kernels.CeilDiv(g.W, q), windowEach[dt]), windowWarp)
		shared = (q/policy.ClusterBlocks + 3) * arith.RoundUp(threads*windowEach[dt]+vector-1, vector) * dt.Size()
		if each = min(pol.clustered/threads, int64(dev.SharedOptin)/(shared+3<<10)); each >= 2 {
			break
		}
	}
	// Co-resident clusters: the SMs of a GPC are not a multiple of ClusterBlocks. An H200 has 15 clusters if each is 1, then 30 and 45.
	clusters := each * (int64(dev.SMs)/policy.ClusterBlocks - 1)
	if clusters < 1 {
		return false
	}
	segments, least, longer := g.segments(q)
	run := arith.RoundUp(kernels.CeilDiv(segments, min(max(clusters/g.Rows, 1), kernels.CeilDiv(segments, policy.ClusterBlocks))), policy.ClusterBlocks)
	runs := kernels.CeilDiv(segments, run)
	p.Launch(windowClusterKernel[dt], int(g.Rows*runs*policy.ClusterBlocks), int(threads), g, clusterArgs{segmentsArgs{q, least, longer, run, runs}, segments}).Shared = int(shared)
	return true
}

// segments returns the number of segments of a row that have outputs. A window is q segments of least elements; the first longer
// segments have one element more.
func (g windowRows) segments(q int64) (n, least, longer int64) {
	least, longer = g.W/q, g.W%q
	rest := g.NOut % g.W
	long := min(rest, longer*(least+1)) // outputs in the longer segments
	return g.NOut/g.W*q + kernels.CeilDiv(long, least+1) + kernels.CeilDiv(rest-long, least), least, longer
}
