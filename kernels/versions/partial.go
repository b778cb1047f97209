package versions

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reduce"
)

// A version of a sum or a dot product has a first step, in which each block of a grid adds up its
// part of the terms, and an ending, which makes one result of the blocks' sums.
type version struct {
	kernel [2]*kernels.Kernel
	grid   [3]int // at most; fewer blocks where there is less to do
	block  [3]int
	end    ending
}

// An ending is where the blocks leave their sums.
type ending int

const (
	inResult   ending = iota // one thread writes the result
	inCell                   // all add into one cell, which is then rounded into the result
	inPartials               // side by side, for a second step that adds them in order
)

func line(n int) [3]int { return [3]int{n, 1, 1} }

// first is the launch of a version's first step, without its operands.
func (v version) first(dt kernels.Dtype, extents []int64) kernels.Launch {
	l := kernels.Launch{Kernel: v.kernel[dt], Grid: v.grid, Block: v.block}
	for i, n := range extents {
		axis := len(extents) - 1 - i // the last extent lies along x
		l.Grid[axis] = int(min(int64(l.Grid[axis]), max(kernels.CeilDiv(n, int64(l.Block[axis])), 1)))
		l.Args = append(l.Args, n)
	}
	return l
}

// appendStep appends a first step that reads in and leaves its sums in to.
func appendStep(p *kernels.Plan, l kernels.Launch, in []kernels.Ref, to kernels.Ref) {
	var args []any
	for _, r := range in {
		args = append(args, r)
	}
	l.Args = append(append(args, to), l.Args...)
	p.Launches = append(p.Launches, l)
}

// appendAll appends a first step and the launches that make one result of its sums.
func appendAll(p *kernels.Plan, dev kernels.Device, dt kernels.Dtype, v version, l kernels.Launch, in []kernels.Ref) {
	switch v.end {
	case inResult:
		appendStep(p, l, in, out)
	case inCell:
		cell := p.Workspace(16)
		p.Launch(sumClear, 1, 1, cell)
		appendStep(p, l, in, cell)
		p.Launch(sumRound[dt], 1, 1, cell, out)
	case inPartials:
		parts := int64(l.Blocks())
		part := p.Workspace(8 * parts)
		appendStep(p, l, in, part)
		reduce.AppendSum(p, dev, part, kernels.Float64, parts, out, dt)
	}
}

// threadSums adds to acc the sums of the threads of block b of a grid, one for each element: thread
// g of all G takes the terms g, g + G, ... of n. add adds the term first and those after it to its
// first argument.
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

// treeSum adds the upper half to the lower one until one is left; len(s) is a
// power of two.
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

// partsBody is the body of a kernel that leaves one sum for each block in out.
func partsBody(c kernels.Call, out []float64, n int64, combine func([]float64) float64, add func(acc []float64, first int64)) {
	blocks := int64(c.Blocks())
	kernels.Parallel(blocks, max(kernels.Grain/max(n/blocks, 1), 1), func(lo, hi int64) {
		s := make([]float64, c.Block[0])
		for b := lo; b < hi; b++ {
			clear(s)
			threadSums(s, n, b, blocks, add)
			out[b] = combine(s)
		}
	})
}

// cellBody is the body of a kernel whose blocks add into a cell, here one after
// the other.
func cellBody(c kernels.Call, cell []float64, n int64, combine func([]float64) float64, add func(acc []float64, first int64)) {
	parts := make([]float64, c.Blocks())
	partsBody(c, parts, n, combine, add)
	for _, sum := range parts {
		cell[0] += sum
	}
}
