package versions

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reduce"
)

// A version of a sum or a dot product has a first step, in which each block of a grid adds up its
// part of the terms, and an ending, which makes one result of the blocks' sums.
type version struct {
	kernel [2]*kernels.Kernel
	grid   [3]int // max; fewer blocks if there is less to do
	block  [3]int
	end    ending
}

// An ending is where the blocks write their sums.
type ending int

const (
	inResult   ending = iota // one thread writes the result
	inCell                   // all blocks add to one cell, which is then rounded into the result
	inPartials               // consecutively, for a second step that adds them in order
)

func line(n int) [3]int { return [3]int{n, 1, 1} }

// step is the first step of a version. args returns its arguments for sums at to.
type step struct {
	kernels.Launch
	args func(to kernels.Ref) any
}

// first returns the first step over terms of extents, the last of which is along x.
func (v version) first(dt kernels.Dtype, args func(to kernels.Ref) any, extents ...int64) step {
	l := kernels.Launch{Kernel: v.kernel[dt], Grid: v.grid, Block: v.block}
	for i, n := range extents {
		axis := len(extents) - 1 - i
		l.Grid[axis] = int(min(int64(l.Grid[axis]), max(kernels.CeilDiv(n, int64(l.Block[axis])), 1)))
	}
	return step{l, args}
}

// appendTo appends the step with sums at to.
func (s step) appendTo(p *kernels.Plan, to kernels.Ref) {
	l := p.Launch(s.Kernel, 0, 0, s.args(to))
	l.Grid, l.Block = s.Grid, s.Block
}

// appendAll appends a first step and the launches that make one result of its sums.
func appendAll(p *kernels.Plan, dev kernels.Device, dt kernels.Dtype, v version, s step) {
	switch v.end {
	case inResult:
		s.appendTo(p, out)
	case inCell:
		cell := p.Workspace(16)
		p.Launch(sumClear, 1, 1, sumClearArgs{cell})
		s.appendTo(p, cell)
		p.Launch(sumRound[dt], 1, 1, sumRoundArgs{cell, out})
	case inPartials:
		parts := int64(s.Blocks())
		part := p.Workspace(8 * parts)
		s.appendTo(p, part)
		reduce.AppendSum(p, dev, part, kernels.Float64, parts, out, dt)
	}
}

// terms are what a Go body sums: N terms into Out. add adds the terms from first on to acc, element by element.
type terms struct {
	out kernels.Ref
	n   int64
	add func(acc []float64, first int64)
}

// threadSums adds to acc the sums of the threads of block b of a grid, one for each element: thread
// g of all G adds up the terms g, g + G, ... of n. add adds consecutive terms from first on to acc.
func threadSums(acc []float64, n, b, blocks int64, add func(acc []float64, first int64)) {
	threads := int64(len(acc))
	for first := b * threads; first < n; first += blocks * threads {
		add(acc[:min(threads, n-first)], first)
	}
}

// addTo adds x to acc, element by element.
func addTo[T kernels.Float](acc []float64, x []T) {
	for t, v := range x[:len(acc)] {
		acc[t] += float64(v)
	}
}

// naiveSum adds in order.
func naiveSum(s []float64) float64 {
	sum := s[0]
	for _, v := range s[1:] {
		sum += v
	}
	return sum
}

// treeSum adds the upper half to the lower one until one is left; len(s) is a power of two.
func treeSum(s []float64) float64 {
	for half := len(s) / 2; half > 0; half /= 2 {
		for tid := range half {
			s[tid] += s[tid+half]
		}
	}
	return s[0]
}

// shuffleSum adds warps, and then their sums, by trees.
func shuffleSum(s []float64) float64 {
	var warps [32]float64
	for w := range len(s) / 32 {
		warps[w] = treeSum(s[w*32 : w*32+32])
	}
	return treeSum(warps[:])
}

// partsBody is the body of a kernel that writes one sum for each block.
func partsBody(c kernels.Call, t terms, combine func([]float64) float64) {
	blockSums(c, kernels.Slice[float64](c, t.out), t, combine)
}

func blockSums(c kernels.Call, out []float64, t terms, combine func([]float64) float64) {
	blocks := int64(c.Blocks())
	kernels.Parallel(blocks, max(kernels.Grain/max(t.n/blocks, 1), 1), func(lo, hi int64) {
		s := make([]float64, c.Block[0])
		for b := lo; b < hi; b++ {
			clear(s)
			threadSums(s, t.n, b, blocks, t.add)
			out[b] = combine(s)
		}
	})
}

// cellBody is the body of a kernel whose blocks add to a cell, here in order.
func cellBody(c kernels.Call, t terms, combine func([]float64) float64) {
	parts, cell := make([]float64, c.Blocks()), kernels.Slice[float64](c, t.out)
	blockSums(c, parts, t, combine)
	for _, sum := range parts {
		cell[0] += sum
	}
}
