package window

import (
	"fmt"
	"math/bits"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

// WindowMode is how a window sum treats the ends of a row of n elements.
type WindowMode uint8

// The modes. With w = 2 radius + 1:
const (
	WindowValid WindowMode = iota // windows that lie inside the row: n - w + 1 outputs
	WindowSame                    // zeros outside the row: n outputs
	WindowFull                    // every window that meets the row: n + w - 1 outputs
)

// String returns Valid, Same or Full.
func (m WindowMode) String() string { return [...]string{"Valid", "Same", "Full"}[m] }

// Outputs returns the length of a row of n elements after a window sum. A Valid window needs n > 2 radius; it is checked by the op.
func (m WindowMode) Outputs(n, radius int64) int64 {
	switch m {
	case WindowValid:
		return n - 2*radius
	case WindowFull:
		return n + 2*radius
	}
	return n
}

// The sizes that windowsum.cu is compiled with.
const (
	windowWide        = 16      // shorter windows are summed element by element
	windowLong        = 1 << 17 // min elements of a row for direct, which sums shorter windows of odd length
	windowStream      = 1025    // max elements of a window for stream
	windowItems       = 16      // elements of a thread of stream, chunks and join
	windowWarp        = 32      // threads of stream, and of chunks and join for their shortest windows
	windowTile        = windowWarp * windowItems
	windowThread      = 64  // bytes of outputs of a thread of direct
	windowPiece       = 56  // bytes of outputs of a thread of few, about
	windowRound       = 7   // outputs of a thread of few in an iteration
	windowAround      = 32  // elements of shared memory before and after a block's elements for few
	windowMost        = 512 // max threads of short
	windowPlaces      = 256 // max threads of segments
	windowDepth       = 4   // tiles of stream in shared memory
	windowKept        = 64  // chunk sums of stream in shared memory, for each size
	windowSegmentsMax = 12  // max segments of a window in a block of a cluster
)

// windowEach is the outputs of a thread of segments and of short, whose chunks have as many elements, by type.
var windowEach = [...]int64{kernels.Float32: 15, kernels.Float64: 9}

var (
	windowDirectKernel   = own.Pair("windowsum", "windowsum_direct", WindowSumBody[float32], WindowSumBody[float64])
	windowFewKernel      = own.Pair("windowsum", "windowsum_few", WindowSumBody[float32], WindowSumBody[float64])
	windowShortKernel    = own.Pair("windowsum", "windowsum_short", WindowSumBody[float32], WindowSumBody[float64])
	windowSegmentsKernel = own.Pair("windowsum", "windowsum_segments", WindowSumBody[float32], WindowSumBody[float64])
	windowClusterKernel  = own.Pair("windowsum", "windowsum_cluster", WindowSumBody[float32], WindowSumBody[float64])
	windowStreamKernel   = own.Pair("windowsum", "windowsum_stream", WindowSumBody[float32], WindowSumBody[float64])
	windowChunksKernel   = own.Pair("windowsum", "windowsum_chunks", windowChunksBody[float32], windowChunksBody[float64])
	windowJoinKernel     = own.Pair("windowsum", "windowsum_join", windowJoinBody[float32], windowJoinBody[float64])
)

// WindowSum plans, for each of rows rows of n elements, with w = 2 radius + 1,
//
//	out[i] = sum over j in [0, w) of in[i + off + j]
//
// where elements outside the row are zero, off is 0 (Valid), -radius (Same) or
// -2 radius (Full), and i runs over mode.Outputs(n, radius) outputs. The time is almost independent of the radius.
func WindowSum(dev kernels.Device, dt kernels.Dtype, rows, n, radius int64, mode WindowMode) *kernels.Plan {
	outputs := mode.Outputs(n, radius)
	p := &kernels.Plan{
		Op:     fmt.Sprintf("windowsum_%v(%dx%d, radius %d, %v)", dt, rows, n, radius, mode),
		Inputs: []int64{rows * n * dt.Size()},
		Out:    rows * outputs * dt.Size(),
		Flops:  rows * outputs * 2, // an addition for each end of the window
	}
	if p.Out == 0 {
		return p
	}
	g := windowRows{NIn: n, NOut: outputs, Rows: rows}
	switch mode {
	case WindowSame:
		radius = min(radius, n-1) // wider windows contain no further element
		g.Off = -radius
	case WindowFull:
		g.Off = -2 * radius
	}
	if g.W = 2*radius + 1; g.W == 1 { // contiguous rows are one row
		g.NIn, g.NOut, g.Rows = n*rows, n*rows, 1
	}
	appendWindowSum(p, dev, dt, windowArgs{kernels.In(0), kernels.At(kernels.Out, 0), g})
	return p
}

// appendWindowSum appends the launches of a window sum over any two buffers.
func appendWindowSum(p *kernels.Plan, dev kernels.Device, dt kernels.Dtype, g windowArgs) {
	policy := windowPolicies.On(dev)
	positions := g.positions()
	last := positions - (g.W - 1) // position after the last output
	small := g.Off <= 0 && policy.isSmall(dev, g)
	switch {
	case g.W < windowWide && g.W%2 == 1 && g.NIn >= windowLong:
		threads, outputs := policy.direct, g.Rows*g.NOut
		for threads > windowWarp && outputs < int64(dev.SMs)*threads*windowThread/dt.Size() {
			threads /= 2 // so that all SMs have a block
		}
		tiles := kernels.CeilDiv(outputs, threads*windowThread/dt.Size())
		direct := p.Launch(windowDirectKernel[dt], int(tiles), int(threads), g)
		// an element for each output of a block, the last windows of two rows, and a vector at either end
		direct.Shared = int(threads*windowThread + 2*windowWide*dt.Size() + 32)

	case g.W < windowWide:
		appendWindowFew(p, dev, dt, g, windowPiece/dt.Size())

	case appendWindowShort(p, dev, dt, g):

	case small && g.W <= policy.fewMax:
		appendWindowFew(p, dev, dt, g, windowRound)

	case small && appendWindowSegments(p, dev, dt, g, policy.maxHeld):

	case g.unaligned(16/dt.Size()) && g.W >= policy.unalignedMin && appendWindowSegments(p, dev, dt, g, policy.maxHeld):

	case g.W <= windowStream:
		width := 128 / dt.Size()
		lead := mod(g.Off, width)
		lag := mod(-lead-(g.W-1), width)
		if g.W-1+lag > 2*windowTile {
			lag = 0 // outputs are stored element by element
		}
		tiles := kernels.CeilDiv(positions+lead+lag, windowTile)
		q := g.W / windowItems
		tails := int64(windowKept)
		for tails < q+windowWarp {
			tails *= 2
		}
		shared := (int64(bits.Len64(uint64(q-1)))*windowKept+tails)*8 + windowDepth*windowTile*dt.Size()
		run := min(max(tiles/(int64(dev.SMs)*policy.warpsPerSM), 1), policy.maxRun)
		p.Launch(windowStreamKernel[dt], int(kernels.CeilDiv(tiles, run)), windowWarp, g, int32(lead), int32(lag), int32(run), tiles, int32(tails)).Shared = int(shared)

	case g.Off <= 0 && (appendWindowSegments(p, dev, dt, g, policy.maxHeld) || appendWindowCluster(p, dev, dt, g) || appendWindowSegments(p, dev, dt, g, policy.maxAlone)): // Off is 1 for sums of chunks

	default:
		threads := policy.chunk[dt]
		if g.W < 2*threads*windowItems {
			threads = windowWarp
		}
		chunk := threads * windowItems
		chunks, blocks := kernels.CeilDiv(positions, chunk), kernels.CeilDiv(last, chunk)
		sums, heads, middles := p.Workspace(chunks*8), p.Workspace(chunks*8), p.Workspace(blocks*8)
		p.Launch(windowChunksKernel[dt], int(chunks), int(threads), windowChunksArgs{g.In, sums, heads, g.windowRows})
		appendWindowSum(p, dev, kernels.Float64, windowArgs{sums, middles, windowRows{NIn: chunks, NOut: blocks, W: g.W/chunk - 1, Off: 1, Rows: 1}})
		join := p.Launch(windowJoinKernel[dt], int(blocks), int(threads), windowJoinArgs{g.In, g.Out, middles, heads, g.windowRows})
		// two chunks, each 16 elements followed by 16 unused bytes
		join.Shared = int(2 * (threads + 2) * (windowItems*dt.Size() + 16))
	}
}

// mod returns a modulo n, 0 to n - 1.
func mod(a, n int64) int64 { return (a%n + n) % n }

// windowRows is the geometry of a window sum: rows of NIn elements to rows of NOut windows of W elements, window i starting at element
// i + Off. As in windowsum.cu, a row has NOut + W - 1 flat positions.
type windowRows struct{ NIn, NOut, W, Off, Rows int64 }

// windowArgs are the first arguments of most kernels.
type windowArgs struct {
	In, Out kernels.Ref
	windowRows
}

type windowChunksArgs struct {
	In, Sums, Heads kernels.Ref
	windowRows
}

type windowJoinArgs struct {
	In, Out, Middles, Heads kernels.Ref
	windowRows
}

func (g windowRows) length() int64 { return g.NOut + g.W - 1 }

func (g windowRows) positions() int64 { return g.Rows * g.length() }

// unaligned reports whether some row does not begin at a vector, so that a walk over all rows loads and stores by elements.
func (g windowRows) unaligned(vector int64) bool {
	return g.Rows > 1 && g.Off <= 0 && (g.NIn%vector != 0 || g.NOut%vector != 0)
}

// windowRead fills dst with the elements at the flat positions from start on, zeros outside the rows.
func windowRead[T kernels.Float](g windowRows, in []T, dst []float64, start int64) {
	clear(dst)
	for len(dst) > 0 && start < g.positions() {
		row, at := start/g.length(), start%g.length()
		n := min(g.length()-at, int64(len(dst)))
		lo, hi := max(at+g.Off, 0), min(at+n+g.Off, g.NIn) // elements of the row
		if lo < hi {
			to := dst[lo-at-g.Off : hi-at-g.Off]
			for i, x := range in[row*g.NIn+lo : row*g.NIn+hi] {
				to[i] = float64(x)
			}
		}
		dst, start = dst[n:], start+n
	}
}

// windowWrite stores the elements of src whose flat positions, from start on, are outputs.
func windowWrite[T kernels.Float](g windowRows, out []T, src []float64, start int64) {
	for len(src) > 0 && start < g.positions() {
		row, at := start/g.length(), start%g.length()
		n := min(g.length()-at, int64(len(src)))
		if k := min(g.NOut-at, n); k > 0 {
			to := out[row*g.NOut+at : row*g.NOut+at+k]
			for i, x := range src[:k] {
				to[i] = T(x)
			}
		}
		src, start = src[n:], start+n
	}
}

// WindowSumBody is the Go body of kernels that compute a window sum. Their arguments begin with in, out, the elements of a row, its outputs, the
// elements of a window, the offset of the first window, and rows. It sums short windows directly, long windows by van Herk's method. If a row is
// split into segments of w elements, a window is a suffix of one segment and a prefix of the next, so each element is added twice for any width.
func WindowSumBody[T kernels.Float](c kernels.Call) {
	const short, piece = 6, 4096
	args := kernels.Args[windowArgs](c)
	in, out, g := kernels.Slice[T](c, args.In), kernels.Slice[T](c, args.Out), args.windowRows
	w, last := g.W, g.positions()-(g.W-1)
	step := piece / w * w // whole segments that fit in the cache
	if step == 0 {
		step = w
	}
	step = min(step, arith.RoundUp(last, w))
	kernels.Parallel(kernels.CeilDiv(last, step), max(kernels.Grain/step, 1), func(lo, hi int64) {
		x, sum, prefix := make([]float64, step+w-1), make([]float64, step), make([]float64, min(w, step))
		for start := lo * step; start < min(hi*step, last); start += step {
			n := min(step, last-start)
			x, sum := x[:n+w-1], sum[:n]
			windowRead(g, in, x, start)
			if w <= short {
				copy(sum, x)
				j := int64(1)
				for ; j+1 < w; j += 2 {
					next := x[j+1 : j+1+n]
					for i, e := range x[j : j+n] {
						sum[i] = sum[i] + e + next[i]
					}
				}
				if j < w {
					for i, e := range x[j : j+n] {
						sum[i] += e
					}
				}
			} else {
				for at := int64(0); at < n; at += w {
					windowSegment(sum[at:min(at+w, n)], prefix, x[at:], w)
				}
			}
			windowWrite(g, out, sum, start)
		}
	})
}

// windowSegment sets sum[i] = x[i] + ... + x[i+w-1]; len(sum) <= w. prefix is scratch memory of at least len(sum) elements.
func windowSegment(sum, prefix, x []float64, w int64) {
	n := len(sum)
	left, right := 0.0, 0.0
	for i := int(w) - 1; i >= n; i-- {
		left += x[i]
	}
	suffix, prefix, next := x[:n], prefix[:n], x[w:w+int64(n)-1]
	prefix[0] = 0
	for i, e := range next { // two independent sums hide the latency of additions
		left += suffix[n-1-i]
		sum[n-1-i] = left
		right += e
		prefix[i+1] = right
	}
	sum[0] = left + suffix[0]
	for i, e := range prefix {
		sum[i] += e
	}
}

func windowChunksBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[windowChunksArgs](c)
	in, sums, heads, g := kernels.Slice[T](c, args.In), kernels.Slice[float64](c, args.Sums), kernels.Slice[float64](c, args.Heads), args.windowRows
	chunk := int64(c.Block[0]) * windowItems
	rest := g.W % chunk
	kernels.Parallel(int64(c.Grid[0]), max(kernels.Grain/chunk, 1), func(lo, hi int64) {
		x := make([]float64, chunk)
		for b := lo; b < hi; b++ {
			windowRead(g, in, x, b*chunk)
			sum := 0.0
			for _, e := range x[:rest] {
				sum += e
			}
			heads[b] = sum
			for _, e := range x[rest:] {
				sum += e
			}
			sums[b] = sum
		}
	})
}

func windowJoinBody[T kernels.Float](c kernels.Call) {
	args := kernels.Args[windowJoinArgs](c)
	in, out, g := kernels.Slice[T](c, args.In), kernels.Slice[T](c, args.Out), args.windowRows
	middles, heads := kernels.Slice[float64](c, args.Middles), kernels.Slice[float64](c, args.Heads)
	chunk := int64(c.Block[0]) * windowItems
	q, rest := g.W/chunk, g.W%chunk
	kernels.Parallel(int64(c.Grid[0]), max(kernels.Grain/chunk, 1), func(lo, hi int64) {
		x, y := make([]float64, chunk), make([]float64, chunk)
		for b := lo; b < hi; b++ {
			windowRead(g, in, x, b*chunk)
			windowRead(g, in, y, b*chunk+g.W)
			for i := chunk - 2; i >= 0; i-- {
				x[i] += x[i+1]
			}
			right := middles[b]
			if rest > 0 {
				right += heads[b+q]
			}
			for i := range x {
				x[i] += right
				right += y[i]
			}
			windowWrite(g, out, x, b*chunk)
		}
	})
}
