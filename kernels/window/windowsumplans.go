package window

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// appendWindowFew appends a launch whose blocks sum whole rows, or some outputs of one.
func appendWindowFew(p *kernels.Plan, dev kernels.Device, dt kernels.Dtype, in, out kernels.Ref, g windowRows) {
	threads, vector, each := windowPolicies.On(dev).pieces, 16/dt.Size(), windowPiece/dt.Size()
	for threads > windowWarp && g.rows*g.out < int64(dev.SMs)*threads*each {
		threads /= 2 // so that all multiprocessors have a block
	}
	most := threads * each
	rows, blocks, outputs := max(most/max(g.in, g.out), 1), kernels.CeilDiv(g.out, most), g.out
	if blocks > 1 {
		outputs = kernels.CeilDiv(kernels.CeilDiv(g.out, blocks), vector) * vector
	}
	// No more threads than have as many turns.
	items := rows * kernels.CeilDiv(outputs, windowTurn)
	threads = min(threads, kernels.CeilDiv(kernels.CeilDiv(items, kernels.CeilDiv(items, threads)), windowWarp)*windowWarp)
	// A block's elements in shared memory, then its sums, both wherever vectors of memory begin;
	// before each, places that windows may reach.
	elements := windowAround + kernels.CeilDiv(vector+rows*min(g.in, outputs+g.w-1), vector)*vector
	l := p.Launch(windowFewKernel[dt], int(kernels.CeilDiv(g.rows, rows)*blocks), int(threads), in, out, g.in, g.out, g.w, g.off, g.rows,
		int32(rows), int32(blocks), int32(outputs), int32(elements))
	l.Shared = int((windowAround + elements + vector + rows*outputs) * dt.Size())
}

// appendWindowShort appends a launch whose blocks take whole rows, unless these are too long, or too few for what a block takes, or twice
// as long as windows that segments hold: H200, us, these and segments, 4096 x 2504 radius 780 31, 39, 30000 x 7000 radius 3000 632, 738, 50000 x 1536
// radius 600 204, 309, but 20000 x 5000 radius 1000 328, 296, float64 10000 x 3001 radius 700 162, 143.
func appendWindowShort(p *kernels.Plan, dev kernels.Device, dt kernels.Dtype, in, out kernels.Ref, g windowRows) bool {
	pol, vector := windowPolicies.On(dev), 16/dt.Size()
	chunk := windowChunk[dt]
	chunks := kernels.CeilDiv(g.in, chunk)
	across := (g.off+g.out-1)/chunk + kernels.CeilDiv(-g.off, chunk) + 1 // off is 0 or below
	each := max(chunks, across)
	few := g.rows < 2 || each > pol.pieces && g.rows < int64(dev.SMs) // rows
	if g.off > 0 || each > windowMost || g.w <= windowStream && few || g.w > windowStream && 2*g.w <= g.out {
		return false
	}
	// As many rows as leave few of a block's threads without work, and enough blocks.
	rows, best := max(pol.pieces/each, 1), 0.0
	for n := rows; n*each <= 2*pol.pieces && best < 0.95; n++ {
		if busy := float64(n*each) / float64(arith.RoundUp(n*each, windowWarp)); busy > best {
			rows, best = n, busy
		}
	}
	rows = min(rows, kernels.CeilDiv(g.rows, int64(dev.SMs)))
	threads := arith.RoundUp(rows*each, windowWarp)
	levels := int64(1) // whose chunks, three of each, take windows together
	for n := min(chunks, g.w/chunk-1); n>>(2*levels) > 0; {
		levels++
	}
	doubles := kernels.CeilDiv((1+levels)*rows*chunks, 2) * 2
	elements := kernels.CeilDiv(vector+rows*g.in, vector) * vector
	shared := doubles*8 + (elements+vector+rows*g.out)*dt.Size()
	if shared > int64(dev.SharedOptin)/2 {
		return false
	}
	p.Launch(windowShortKernel[dt], int(kernels.CeilDiv(g.rows, rows)), int(threads), in, out, g.in, g.out, g.w, g.off, g.rows,
		int32(rows), int32(elements), int32(levels), int32(doubles)).Shared = int(shared)
	return true
}

// appendWindowSegments appends a launch whose blocks walk along rows, and hold the segments of a window meanwhile, unless these
// are more than held.
func appendWindowSegments(p *kernels.Plan, dev kernels.Device, dt kernels.Dtype, in, out kernels.Ref, g windowRows, held int64) bool {
	pol, vector := windowPolicies.On(dev), 16/dt.Size()
	q := kernels.CeilDiv(g.w, windowPlaces*windowEach[dt])
	threads := arith.RoundUp(kernels.CeilDiv(kernels.CeilDiv(g.w, q), windowEach[dt]), windowWarp)
	shared := (q + 2) * arith.RoundUp(threads*windowEach[dt]+vector-1, vector) * dt.Size()
	resident := int64(dev.SMs) * min(pol.resident/threads, int64(dev.SharedOptin)/(shared+2<<10))
	if q > held || resident == 0 {
		return false
	}
	least, longer := g.w/q, g.w%q
	segments := g.segments(least, longer, q)
	run := kernels.CeilDiv(segments, min(max(resident/g.rows, 1), segments)) // all of a block's, so that it reads what is before them once
	runs := kernels.CeilDiv(segments, run)
	p.Launch(windowSegmentsKernel[dt], int(g.rows*runs), int(threads), in, out, g.in, g.out, g.w, g.off, g.rows,
		int32(q), int32(least), int32(longer), int32(run), int32(runs)).Shared = int(shared)
	return true
}

// appendWindowCluster appends a launch whose clusters of blocks hold them together, unless that takes so much that a multiprocessor has room for
// one block alone.
func appendWindowCluster(p *kernels.Plan, dev kernels.Device, dt kernels.Dtype, in, out kernels.Ref, g windowRows) bool {
	pol, vector := windowPolicies.On(dev), 16/dt.Size()
	var q, threads, shared, each int64 // each: blocks of a multiprocessor
	for q = arith.RoundUp(kernels.CeilDiv(g.w, windowPlaces*windowEach[dt]), kernels.ClusterBlocks); ; q += kernels.ClusterBlocks {
		if !dev.HasClusters() || q/kernels.ClusterBlocks > windowTurns {
			return false
		}
		threads = arith.RoundUp(kernels.CeilDiv(kernels.CeilDiv(g.w, q), windowEach[dt]), windowWarp)
		shared = (q/kernels.ClusterBlocks + 3) * arith.RoundUp(threads*windowEach[dt]+vector-1, vector) * dt.Size()
		if each = min(pol.clustered/threads, int64(dev.SharedOptin)/(shared+3<<10)); each >= 2 {
			break
		}
	}
	// Clusters that the device has room for: groups of multiprocessors are no multiples of ClusterBlocks. An H200 has room for 15, where
	// each is 1, 30 and 45.
	clusters := each * (int64(dev.SMs)/kernels.ClusterBlocks - 1)
	if clusters < 1 {
		return false
	}
	least, longer := g.w/q, g.w%q
	segments := g.segments(least, longer, q)
	run := arith.RoundUp(kernels.CeilDiv(segments, min(max(clusters/g.rows, 1), kernels.CeilDiv(segments, kernels.ClusterBlocks))), kernels.ClusterBlocks)
	runs := kernels.CeilDiv(segments, run)
	p.Launch(windowClusterKernel[dt], int(g.rows*runs*kernels.ClusterBlocks), int(threads), in, out, g.in, g.out, g.w, g.off, g.rows,
		int32(q), int32(least), int32(longer), int32(run), int32(runs), int32(segments)).Shared = int(shared)
	return true
}

// segments returns how many segments of a row have outputs. A window is q of them, of least elements each, and longer of
// them have one more.
func (g windowRows) segments(least, longer, q int64) int64 {
	rest := g.out % g.w
	long := min(rest, longer*(least+1)) // outputs of those that have
	return g.out/g.w*q + kernels.CeilDiv(long, least+1) + kernels.CeilDiv(rest-long, least)
}
