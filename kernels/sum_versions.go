package kernels

import "fmt"

// SumVersions is the number of numbered versions of the sum.
const SumVersions = 9

// A version of a sum adds up in blocks: body gives the kernel of the first step,
// and how the blocks' sums become one is the way that it ends.
type version struct {
	kernel [2]*Kernel
	grid   [3]int // at most; fewer blocks where there is less to do
	block  [3]int
	end    ending
}

// ending says where the blocks leave their sums.
type ending int

const (
	inResult   ending = iota // one thread writes the result
	inCell                   // all add into one cell, which is then rounded into the result
	inPartials               // side by side, for a second step that adds them in order
)

// sumVersions have the grids of the texts that tell of them, so that times can be
// set beside theirs: 2 to 5 those of examples/05-step-by-step, 6 to 9 those of
// examples/01-reduction. On an H200, 10^9 float32 took 924 us by version 6, 888 by 7,
// 881 by 8 and 874 by the op; 2^18 of them, launches included, 10699 us by 1, 117 by
// 2, 19.5 by 3, 14 by 4, 13.5 by 5 and 9.54 by the op; a matrix of 20000 x 20000
// 509 us by 9 and 357 by the op.
var sumVersions = [1 + SumVersions]version{
	1: {sumKernel("thread", sumThreadBody[float32], sumThreadBody[float64]), line(1), line(1), inResult},
	2: {sumKernel("atomic", sumAtomicBody[float32], sumAtomicBody[float64]), line(1), line(256), inCell},
	3: {sumKernel("atomic", sumAtomicBody[float32], sumAtomicBody[float64]), line(16), line(256), inCell},
	4: {sumKernel("blockatomic", sumBlockAtomicBody[float32], sumBlockAtomicBody[float64]), line(16), line(256), inCell},
	5: {sumKernel("tree", sumPartsBody[float32](treeSum), sumPartsBody[float64](treeSum)), line(16), line(256), inPartials},
	6: {sumKernel("naive", sumPartsBody[float32](naiveSum), sumPartsBody[float64](naiveSum)), line(32 * 80), line(1024), inPartials},
	7: {sumKernel("tree", sumPartsBody[float32](treeSum), sumPartsBody[float64](treeSum)), line(32 * 80), line(1024), inPartials},
	8: {sumKernel("shuffle", sumPartsBody[float32](shuffleSum), sumPartsBody[float64](shuffleSum)), line(32 * 80), line(1024), inPartials},
	9: {sumKernel("blocks2d", sumBlocks2dBody[float32], sumBlocks2dBody[float64]), [3]int{64, 64, 1}, [3]int{16, 16, 1}, inPartials},
}

var (
	sumClear = own.Kernel("sum_versions", "sum_clear", sumClearBody)
	sumRound = sumKernel("round", sumRoundBody[float32], sumRoundBody[float64])
)

func sumKernel(variant string, f32, f64 func(Call)) [2]*Kernel {
	return [2]*Kernel{
		Float32: own.Kernel("sum_versions", "sum_"+variant+"_f32", f32),
		Float64: own.Kernel("sum_versions", "sum_"+variant+"_f64", f64),
	}
}

func line(n int) [3]int { return [3]int{n, 1, 1} }

// SumVersion plans out = sum of in by version 1 to [SumVersions] of the kernel;
// version 9 takes a matrix. Versions 5 to 9 end with a launch of the sum's own
// kernel over the partial sums: the result of an op stays on the device, so no op
// adds up on the host. [SumPartials] leaves that to its caller.
func SumVersion(dev Device, dt Dtype, v int, shape []int) (*Plan, error) {
	p, step, err := newSumVersion(dt, v, shape)
	if err != nil {
		return nil, err
	}
	p.Out = dt.Size()
	p.combine(dev, dt, sumVersions[v], step, []Ref{{0, 0}})
	return p, nil
}

// SumPartials plans the first step of version 5 to 9 alone: out holds the
// blocks' sums in double, for the caller to add up.
func SumPartials(dt Dtype, v int, shape []int) (*Plan, error) {
	p, step, err := newSumVersion(dt, v, shape)
	if err != nil {
		return nil, err
	}
	if sumVersions[v].end != inPartials {
		return nil, fmt.Errorf("kernels: sum: version %d leaves no partial sums, want one of 5 to %d", v, SumVersions)
	}
	p.Op += ", partial sums"
	p.Out = 8 * int64(step.Blocks())
	p.step(step, []Ref{{0, 0}}, Ref{Out, 0})
	return p, nil
}

func newSumVersion(dt Dtype, v int, shape []int) (*Plan, Launch, error) {
	if v < 1 || v > SumVersions {
		return nil, Launch{}, fmt.Errorf("kernels: sum: got version %d, want 1 to %d", v, SumVersions)
	}
	n := Count(shape)
	extents := []int64{n}
	if v == 9 {
		if len(shape) != 2 {
			return nil, Launch{}, fmt.Errorf("kernels: sum: version 9 got shape %v, want a matrix", shape)
		}
		extents = []int64{int64(shape[0]), int64(shape[1])}
	}
	p := &Plan{Op: fmt.Sprintf("sum_%v(%v) version %d", dt, shape, v), Inputs: []int64{n * dt.Size()}, Flops: n}
	return p, sumVersions[v].first(dt, extents), nil
}

// first is the launch of a version's first step, without its operands.
func (v version) first(dt Dtype, extents []int64) Launch {
	l := Launch{Kernel: v.kernel[dt], Grid: v.grid, Block: v.block}
	for i, n := range extents {
		axis := len(extents) - 1 - i // the last extent lies along x
		l.Grid[axis] = int(min(int64(l.Grid[axis]), max(CeilDiv(n, int64(l.Block[axis])), 1)))
		l.Args = append(l.Args, n)
	}
	return l
}

// step appends a first step that reads in and leaves its sums in to.
func (p *Plan) step(l Launch, in []Ref, to Ref) {
	var args []any
	for _, r := range in {
		args = append(args, r)
	}
	l.Args = append(append(args, to), l.Args...)
	p.Launches = append(p.Launches, l)
}

// combine appends a first step and what makes one result of its sums.
func (p *Plan) combine(dev Device, dt Dtype, v version, l Launch, in []Ref) {
	out := Ref{Out, 0}
	switch v.end {
	case inResult:
		p.step(l, in, out)
	case inCell:
		cell := p.Workspace(16)
		p.Launch(sumClear, 1, 1, cell)
		p.step(l, in, cell)
		p.Launch(sumRound[dt], 1, 1, cell, out)
	case inPartials:
		parts := int64(l.Blocks())
		part := p.Workspace(8 * parts)
		p.step(l, in, part)
		p.sumPass(dev, part, Float64, out, dt, 1, parts, 1, 1)
	}
}

// threadSums adds to acc what the threads of block b of a grid add up, a thread
// for each element: thread g of all G takes the terms g, g + G, ... of n. add
// adds the term first and those after it to its first argument.
func threadSums(acc []float64, n, b, blocks int64, add func(acc []float64, first int64)) {
	threads := int64(len(acc))
	for first := b * threads; first < n; first += blocks * threads {
		add(acc[:min(threads, n-first)], first)
	}
}

// addTo adds x to acc, element by element.
func addTo[T Float](acc []float64, x []T) {
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
func partsBody(c Call, out []float64, n int64, combine func([]float64) float64, add func(acc []float64, first int64)) {
	blocks := int64(c.Blocks())
	Parallel(blocks, max(grain/max(n/blocks, 1), 1), func(lo, hi int64) {
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
func cellBody(c Call, cell []float64, n int64, combine func([]float64) float64, add func(acc []float64, first int64)) {
	parts := make([]float64, c.Blocks())
	partsBody(c, parts, n, combine, add)
	for _, sum := range parts {
		cell[0] += sum
	}
}

func sumTerms[T Float](c Call) func(acc []float64, first int64) {
	in := Slice[T](c, 0)
	return func(acc []float64, first int64) { addTo(acc, in[first:]) }
}

func sumThreadBody[T Float](c Call) {
	var sum [1]float64
	threadSums(sum[:], c.Int(2), 0, 1, sumTerms[T](c))
	Slice[T](c, 1)[0] = T(sum[0])
}

func sumAtomicBody[T Float](c Call) {
	cellBody(c, Slice[float64](c, 1), c.Int(2), naiveSum, sumTerms[T](c))
}

func sumBlockAtomicBody[T Float](c Call) {
	cellBody(c, Slice[float64](c, 1), c.Int(2), treeSum, sumTerms[T](c))
}

func sumPartsBody[T Float](combine func([]float64) float64) func(Call) {
	return func(c Call) { partsBody(c, Slice[float64](c, 1), c.Int(2), combine, sumTerms[T](c)) }
}

func sumBlocks2dBody[T Float](c Call) {
	in, out := Slice[T](c, 0), Slice[float64](c, 1)
	rows, cols := c.Int(2), c.Int(3)
	blocks, gx, gy := int64(c.Blocks()), int64(c.Grid[0]), int64(c.Grid[1])
	Parallel(blocks, max(grain/max(rows*cols/blocks, 1), 1), func(lo, hi int64) {
		bx, by := c.Block[0], c.Block[1]
		s := make([]float64, bx*by)
		for b := lo; b < hi; b++ {
			clear(s)
			for top := b / gx * int64(by); top < rows; top += gy * int64(by) {
				for ty := range min(int64(by), rows-top) {
					row := in[(top+ty)*cols:][:cols]
					threadSums(s[int(ty)*bx:][:bx], cols, b%gx, gx, func(acc []float64, first int64) { addTo(acc, row[first:]) })
				}
			}
			out[b] = treeSum(s)
		}
	})
}

func sumClearBody(c Call) { clear(Slice[float64](c, 0)[:2]) }

func sumRoundBody[T Float](c Call) { Slice[T](c, 1)[0] = T(Slice[float64](c, 0)[0]) }
