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

// Outputs returns the length of a row of n elements after a window sum. A Valid
// window needs n > 2 radius; it is checked by the op.
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
	windowWide   = 16      // shorter windows are summed element by element
	windowLong   = 1 << 17 // such windows of rows from here on are summed by direct, but for those of an even number
	windowStream = 1025    // windows up to this are summed by stream
	windowItems  = 16      // elements of a thread of stream, chunks and join
	windowWarp   = 32      // threads of stream, and of chunks and join for the windows next above
	windowTile   = windowWarp * windowItems
	windowThread = 64  // bytes of outputs of a thread of direct
	windowPiece  = 56  // bytes of outputs of a thread of few, about
	windowTurn   = 7   // outputs of a thread of few in a turn
	windowAround = 32  // places of shared memory around a block's elements for few
	windowMost   = 512 // threads of short, at most
	windowPlaces = 256 // threads of segments, at most
	windowDepth  = 4   // tiles of stream in shared memory
	windowKept   = 64  // chunk sums of stream in shared memory, for each size
	windowTurns  = 12  // segments of a window in a block of a cluster, at most
)

// windowChunk is the elements of a chunk of short, and the outputs of a thread, by type.
var windowChunk = [...]int64{kernels.Float32: 15, kernels.Float64: 9}

// windowEach is the outputs of a thread of segments, by type.
var windowEach = [...]int64{kernels.Float32: 15, kernels.Float64: 9}

var (
	windowDirectKernel = [...]*kernels.Kernel{
		kernels.Float32: own.Kernel("windowsum", "windowsum_direct_f32", WindowSumBody[float32]),
		kernels.Float64: own.Kernel("windowsum", "windowsum_direct_f64", WindowSumBody[float64]),
	}
	windowFewKernel = [...]*kernels.Kernel{
		kernels.Float32: own.Kernel("windowsum", "windowsum_few_f32", WindowSumBody[float32]),
		kernels.Float64: own.Kernel("windowsum", "windowsum_few_f64", WindowSumBody[float64]),
	}
	windowShortKernel = [...]*kernels.Kernel{
		kernels.Float32: own.Kernel("windowsum", "windowsum_short_f32", WindowSumBody[float32]),
		kernels.Float64: own.Kernel("windowsum", "windowsum_short_f64", WindowSumBody[float64]),
	}
	windowSegmentsKernel = [...]*kernels.Kernel{
		kernels.Float32: own.Kernel("windowsum", "windowsum_segments_f32", WindowSumBody[float32]),
		kernels.Float64: own.Kernel("windowsum", "windowsum_segments_f64", WindowSumBody[float64]),
	}
	windowClusterKernel = [...]*kernels.Kernel{
		kernels.Float32: own.Kernel("windowsum", "windowsum_cluster_f32", WindowSumBody[float32]),
		kernels.Float64: own.Kernel("windowsum", "windowsum_cluster_f64", WindowSumBody[float64]),
	}
	windowStreamKernel = [...]*kernels.Kernel{
		kernels.Float32: own.Kernel("windowsum", "windowsum_stream_f32", WindowSumBody[float32]),
		kernels.Float64: own.Kernel("windowsum", "windowsum_stream_f64", WindowSumBody[float64]),
	}
	windowChunksKernel = [...]*kernels.Kernel{
		kernels.Float32: own.Kernel("windowsum", "windowsum_chunks_f32", windowChunksBody[float32]),
		kernels.Float64: own.Kernel("windowsum", "windowsum_chunks_f64", windowChunksBody[float64]),
	}
	windowJoinKernel = [...]*kernels.Kernel{
		kernels.Float32: own.Kernel("windowsum", "windowsum_join_f32", windowJoinBody[float32]),
		kernels.Float64: own.Kernel("windowsum", "windowsum_join_f64", windowJoinBody[float64]),
	}
)

// WindowSum plans, for each of rows rows of n elements, with w = 2 radius + 1,
//
//	out[i] = sum over j in [0, w) of in[i + off + j]
//
// where elements outside the row are zero, off is 0 (Valid), -radius (Same) or
// -2 radius (Full), and i runs over mode.Outputs(n, radius) outputs. The time
// hardly depends on the radius.
func WindowSum(dev kernels.Device, dt kernels.Dtype, rows, n, radius int64, mode WindowMode) *kernels.Plan {
	outputs := mode.Outputs(n, radius)
	p := &kernels.Plan{
		Op:     fmt.Sprintf("windowsum_%v(%dx%d, radius %d, %v)", dt, rows, n, radius, mode),
		Inputs: []int64{rows * n * dt.Size()},
		Out:    rows * outputs * dt.Size(),
		Flops:  rows * outputs * 2, // an addition for each end of the window, by the plainest count
	}
	if p.Out == 0 {
		return p
	}
	g := windowRows{in: n, out: outputs, rows: rows}
	switch mode {
	case WindowSame:
		radius = min(radius, n-1) // wider windows meet no further element
		g.off = -radius
	case WindowFull:
		g.off = -2 * radius
	}
	if g.w = 2*radius + 1; g.w == 1 { // rows side by side are one row
		g.in, g.out, g.rows = n*rows, n*rows, 1
	}
	appendWindowSum(p, dev, dt, kernels.In(0), kernels.At(kernels.Out, 0), g)
	return p
}

// appendWindowSum appends the launches of a window sum over any two buffers.
func appendWindowSum(p *kernels.Plan, dev kernels.Device, dt kernels.Dtype, in, out kernels.Ref, g windowRows) {
	policy := windowPolicies.On(dev)
	positions := g.positions()
	last := positions - (g.w - 1) // no output lies from here on
	switch {
	case g.w < windowWide && g.w%2 == 1 && g.in >= windowLong:
		threads, outputs := policy.direct, g.rows*g.out
		for threads > windowWarp && outputs < int64(dev.SMs)*threads*windowThread/dt.Size() {
			threads /= 2 // so that all multiprocessors have a block
		}
		tiles := kernels.CeilDiv(outputs, threads*windowThread/dt.Size())
		direct := p.Launch(windowDirectKernel[dt], int(tiles), int(threads), in, out, g.in, g.out, g.w, g.off, g.rows)
		// elements as a block has outputs, and the last window's, of two rows; two vectors where they begin and end
		direct.Shared = int(threads*windowThread + 2*windowWide*dt.Size() + 32)

	case g.w < windowWide:
		appendWindowFew(p, dev, dt, in, out, g)

	case appendWindowShort(p, dev, dt, in, out, g):

	case g.strayed(16/dt.Size()) && g.w >= policy.strayed && appendWindowSegments(p, dev, dt, in, out, g, policy.held):

	case g.w <= windowStream:
		width := 128 / dt.Size()
		lead := mod(g.off, width)
		lag := mod(-lead-(g.w-1), width)
		if g.w-1+lag > 2*windowTile {
			lag = 0 // outputs are stored element by element
		}
		tiles := kernels.CeilDiv(positions+lead+lag, windowTile)
		q := g.w / windowItems
		tails := int64(windowKept)
		for tails < q+windowWarp {
			tails *= 2
		}
		shared := (int64(bits.Len64(uint64(q-1)))*windowKept+tails)*8 + windowDepth*windowTile*dt.Size()
		run := min(max(tiles/(int64(dev.SMs)*policy.warps), 1), policy.run)
		p.Launch(windowStreamKernel[dt], int(kernels.CeilDiv(tiles, run)), windowWarp,
			in, out, g.in, g.out, g.w, g.off, g.rows, int32(lead), int32(lag), int32(run), tiles, int32(tails)).Shared = int(shared)

	case g.off <= 0 && (appendWindowSegments(p, dev, dt, in, out, g, policy.held) || appendWindowCluster(p, dev, dt, in, out, g) || appendWindowSegments(p, dev, dt, in, out, g, policy.alone)): // the few sums of chunks go by chunks again

	default:
		threads := policy.chunk[dt]
		if g.w < 2*threads*windowItems {
			threads = windowWarp
		}
		chunk := threads * windowItems
		chunks, blocks := kernels.CeilDiv(positions, chunk), kernels.CeilDiv(last, chunk)
		sums, heads, middles := p.Workspace(chunks*8), p.Workspace(chunks*8), p.Workspace(blocks*8)
		p.Launch(windowChunksKernel[dt], int(chunks), int(threads), in, sums, heads, g.in, g.out, g.w, g.off, g.rows)
		appendWindowSum(p, dev, kernels.Float64, sums, middles, windowRows{in: chunks, out: blocks, w: g.w/chunk - 1, off: 1, rows: 1})
		join := p.Launch(windowJoinKernel[dt], int(blocks), int(threads), in, out, middles, heads, g.in, g.out, g.w, g.off, g.rows)
		// two chunks, each 16 elements followed by 16 unused bytes
		join.Shared = int(2 * (threads + 2) * (windowItems*dt.Size() + 16))
	}
}

// mod returns a modulo n, 0 to n - 1.
func mod(a, n int64) int64 { return (a%n + n) % n }

// windowRows is the geometry of a window sum: rows of in elements to rows of
// out windows of w elements, window i starting at element i + off. As in
// windowsum.cu, a row takes out + w - 1 flat positions.
type windowRows struct{ in, out, w, off, rows int64 }

func windowArgs(c kernels.Call, i int) windowRows {
	return windowRows{c.Int(i), c.Int(i + 1), c.Int(i + 2), c.Int(i + 3), c.Int(i + 4)}
}

func (g windowRows) length() int64 { return g.out + g.w - 1 }

func (g windowRows) positions() int64 { return g.rows * g.length() }

// strayed reports whether rows begin at other places within a vector than the first, so that a walk over all of them goes by
// elements.
func (g windowRows) strayed(vector int64) bool {
	return g.rows > 1 && g.off <= 0 && (g.in%vector != 0 || g.out%vector != 0)
}

// windowRead fills dst with the elements at the flat positions from start on,
// zeros outside the rows.
func windowRead[T kernels.Float](g windowRows, in []T, dst []float64, start int64) {
	clear(dst)
	for len(dst) > 0 && start < g.positions() {
		row, at := start/g.length(), start%g.length()
		n := min(g.length()-at, int64(len(dst)))
		lo, hi := max(at+g.off, 0), min(at+n+g.off, g.in) // elements of the row
		if lo < hi {
			to := dst[lo-at-g.off : hi-at-g.off]
			for i, x := range in[row*g.in+lo : row*g.in+hi] {
				to[i] = float64(x)
			}
		}
		dst, start = dst[n:], start+n
	}
}

// windowWrite stores src at those flat positions from start on that are
// outputs.
func windowWrite[T kernels.Float](g windowRows, out []T, src []float64, start int64) {
	for len(src) > 0 && start < g.positions() {
		row, at := start/g.length(), start%g.length()
		n := min(g.length()-at, int64(len(src)))
		if k := min(g.out-at, n); k > 0 {
			to := out[row*g.out+at : row*g.out+at+k]
			for i, x := range src[:k] {
				to[i] = T(x)
			}
		}
		src, start = src[n:], start+n
	}
}

// WindowSumBody is the Go body of kernels that compute a window sum; the arguments
// begin with in, out, the elements of a row, its outputs, the elements of a window,
// where the first one starts, and rows. It takes any window: short ones are summed
// directly, long ones by van Herk's method. Cut in segments of w elements, a window
// is a suffix of one and a prefix of the next, so each element is added twice
// whatever the width.
func WindowSumBody[T kernels.Float](c kernels.Call) {
	const short, piece = 6, 4096
	in, out, g := kernels.Slice[T](c, 0), kernels.Slice[T](c, 1), windowArgs(c, 2)
	w, last := g.w, g.positions()-(g.w-1)
	step := piece / w * w // whole segments, as many as stay in the cache
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

// windowSegment sets sum[i] = x[i] + ... + x[i+w-1]; len(sum) <= w. It needs a prefix of as many elements.
func windowSegment(sum, prefix, x []float64, w int64) {
	n := len(sum)
	left, right := 0.0, 0.0
	for i := int(w) - 1; i >= n; i-- {
		left += x[i]
	}
	suffix, prefix, next := x[:n], prefix[:n], x[w:w+int64(n)-1]
	prefix[0] = 0
	for i, e := range next { // two sums side by side, since an addition waits for the one before
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
	in, sums, heads, g := kernels.Slice[T](c, 0), kernels.Slice[float64](c, 1), kernels.Slice[float64](c, 2), windowArgs(c, 3)
	chunk := int64(c.Block[0]) * windowItems
	rest := g.w % chunk
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
	in, out, middles, heads, g := kernels.Slice[T](c, 0), kernels.Slice[T](c, 1), kernels.Slice[float64](c, 2), kernels.Slice[float64](c, 3), windowArgs(c, 4)
	chunk := int64(c.Block[0]) * windowItems
	q, rest := g.w/chunk, g.w%chunk
	kernels.Parallel(int64(c.Grid[0]), max(kernels.Grain/chunk, 1), func(lo, hi int64) {
		x, y := make([]float64, chunk), make([]float64, chunk)
		for b := lo; b < hi; b++ {
			windowRead(g, in, x, b*chunk)
			windowRead(g, in, y, b*chunk+g.w)
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
