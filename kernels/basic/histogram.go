package basic

import (
	"fmt"
	"math/bits"
	"sync"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
)

var (
	histogramZero = own.Kernel("histogram", "histogram_zero", histogramZeroBody)

	// histogramColumns are the kernels by type. The kernels after it count more bins than shared memory holds, which bytes do not have.
	histogramColumns   = HistogramKernels(own, "columns", HistogramBody, kernels.Float32, kernels.Float64, kernels.Uint8, kernels.Int32, kernels.Int64)
	histogramAggregate = HistogramKernels(own, "aggregate", HistogramBody, kernels.Float32, kernels.Float64, kernels.Int32, kernels.Int64)
	histogramHalves    = HistogramKernels(own, "halves", HistogramBody, kernels.Float32, kernels.Float64, kernels.Int32, kernels.Int64)
	histogramSort      = HistogramKernels(own, "sort", histogramSortBodyOf, kernels.Float32, kernels.Float64, kernels.Int32, kernels.Int64)
	histogramCount     = own.Kernel("histogram", "histogram_count", histogramCountBody)
	histogramJoin      = own.Kernel("histogram", "histogram_join", nothing) // Go bodies count without parts
)

// HistogramKernels returns the kernels histogram_name of a library's histogram.cu, by type.
func HistogramKernels(l *kernels.Library, name string, body func(kernels.Dtype) func(kernels.Call), types ...kernels.Dtype) (ks [kernels.Int + 1]*kernels.Kernel) {
	for _, dt := range types {
		ks[dt] = l.Kernel("histogram", fmt.Sprintf("histogram_%s_%v", name, dt), body(dt))
	}
	ks[kernels.Int] = ks[kernels.Int64]
	if kernels.Int.Size() == 4 {
		ks[kernels.Int] = ks[kernels.Int32]
	}
	return ks
}

// Bins are N cells of equal width that cover Lo <= x < Hi. Cell k holds the x with
//
//	floor((x - Lo) * (N / (Hi - Lo))) = k
//
// in float64 arithmetic; the last cell also holds the x for which it rounds up to N. No cell holds elements
// outside, NaN included. N is at least 1, Lo < Hi, and Hi - Lo and N / (Hi - Lo) are finite.
type Bins struct {
	N      int
	Lo, Hi float64
}

// HistogramArgs are the first arguments of kernels that count N elements in bins.
type HistogramArgs struct {
	X, Counts kernels.Ref
	N         int64
	Range     binRange
}

// Args returns the first arguments of kernels that count n elements.
func (b Bins) Args(n int64) HistogramArgs {
	return HistogramArgs{kernels.In(0), kernels.At(kernels.Out, 0), n, b.arguments()}
}

// binRange is histogram.cuh's Range.
type binRange struct {
	Bins          int64 `arg:"int32"`
	Lo, Hi, Scale float64
}

func (b Bins) arguments() binRange {
	return binRange{int64(b.N), b.Lo, b.Hi, float64(b.N) / (b.Hi - b.Lo)}
}

func (r binRange) has(x float64) bool { return x >= r.Lo && x < r.Hi }

// cell returns the cell of a number in the range.
func (r binRange) cell(x float64) int { return min(int((x-r.Lo)*r.Scale), int(r.Bins)-1) }

type histogramZeroArgs struct {
	Counts kernels.Ref
	Bins   int64 `arg:"int32"`
	Sizes  kernels.Ref
	Ranges int64 `arg:"int32"`
}

type histogramSortArgs struct {
	X, Sorted, Begins, Sizes kernels.Ref
	N                        int64
	Range                    binRange
	Ranges                   int64 `arg:"int32"`
	Width                    arith.Divide
}

type histogramCountArgs struct {
	Counts, Sorted, Begins, Sizes kernels.Ref
	Tiles, Bins, Ranges, Width    int64 `arg:"int32"`
}

// Histogram plans counts[k] = number of x[i] in cell k, as int64, for n elements. More
// cells than the shared memory of dev holds are counted in 16 bits each, in ranges, or in global memory.
func Histogram(dev kernels.Device, dt kernels.Dtype, n int64, bins Bins) *kernels.Plan {
	p := &kernels.Plan{Op: fmt.Sprintf("histogram_%v(%d into %d)", dt, n, bins.N), Inputs: []int64{n * dt.Size()}, Out: int64(bins.N) * 8, Flops: n}
	many, most := manyBins.On(dev), int64(dev.SharedOptin/4)
	ranges := int64(1)
	if dt != kernels.Uint8 {
		ranges = kernels.CeilDiv(int64(bins.N), most)
	}
	if ranges > 2 && ranges <= min(histogramRanges, int64(dev.SMs)/2) && n >= max(many.sortMinPerBin*int64(bins.N), many.sortMin) {
		if n < many.sortMinRangesBelow {
			least := many.sortMinRanges
			if ranges > 4 && n < many.sortMinRangesBelow/4 {
				least *= 2
			}
			ranges = max(ranges, least)
		}
		appendSortedHistogram(p, dev, dt, n, bins, ranges)
		return p
	}
	args, shift, t := bins.Args(n), columnShift(dev, bins.N), tableHistogram.On(dev)
	if dt == kernels.Uint8 {
		t = byteHistogram.On(dev)
	}
	few := dt != kernels.Uint8 && n <= min(max(many.fewMin, many.fewPerBin*int64(bins.N)), many.fewMax)
	alone := !few && ranges == 1 && n > 0 && n*dt.Size() <= t.aloneMax // a block clears the counts itself
	if !alone {
		AppendClearedCounts(p, bins)
	}
	switch {
	case n == 0:
		return p
	case few || ranges > 1 && (n < many.minPerRange*ranges || ranges > 2 && n >= many.sortMin):
		p.Launch(histogramAggregate[dt], histogramBlocks(dev, n, many.blocks, int64(many.block)), many.block, args)
		return p
	case ranges == 2 && n >= many.halvesMin || dt != kernels.Uint8 && ranges == 1 && int64(bins.N) >= many.halvesMinBins && n >= many.halvesMinOneRange:
		appendHalvedHistogram(p, dev, dt, n, bins, t.block)
		return p
	}
	if dt != kernels.Uint8 && 2*(4*bins.N<<shift+blockReserved) > dev.SharedOptin+blockReserved {
		t.blocks = 1 // as many as fit
	}
	blocks := histogramBlocks(dev, n*ranges, t.blocks, int64(t.block)*16/dt.Size())
	if blocks = max(blocks/int(ranges), int(kernels.CeilDiv(n, 1<<31))) * int(ranges); alone {
		blocks = 1
	} else {
		blocks = max(blocks, 2)
	}
	count := p.Launch(histogramColumns[dt], blocks, t.block, args, int32(shift), int32(ranges))
	if count.Shared = 4 * int(kernels.CeilDiv(int64(bins.N), ranges)) << shift; dt == kernels.Uint8 {
		count.Shared = 4 * 256 << 5
	}
	return p
}

// AppendClearedCounts appends the launch that clears the counts of bins, a plan's output.
func AppendClearedCounts(p *kernels.Plan, bins Bins) {
	appendHistogramZero(p, bins, kernels.At(kernels.Out, 0), 0)
}

// appendHistogramZero appends the launch that clears the counts of bins and the sizes of ranges.
func appendHistogramZero(p *kernels.Plan, bins Bins, sizes kernels.Ref, ranges int64) {
	p.Launch(histogramZero, int(kernels.CeilDiv(int64(bins.N), 256)), 256, histogramZeroArgs{kernels.At(kernels.Out, 0), int64(bins.N), sizes, ranges})
}

// appendHalvedHistogram appends the launches that count in 16 bits for each bin, and that add up the counts of the blocks.
func appendHalvedHistogram(p *kernels.Plan, dev kernels.Device, dt kernels.Dtype, n int64, bins Bins, block int) {
	const joined = 128 // threads of a block
	const vectors = 4  // min vectors of a thread, where more than half the SMs have a block
	blocks, words := max(histogramBlocks(dev, n, 1, vectors*int64(block)*16/dt.Size()), dev.SMs/2), kernels.CeilDiv(int64(bins.N), 2)
	parts := p.Workspace(int64(blocks) * words * 4)
	p.Launch(histogramHalves[dt], blocks, block, bins.Args(n), parts).Shared = int(words * 4)
	p.Launch(histogramJoin, int(kernels.CeilDiv(words, joined)), joined, kernels.At(kernels.Out, 0), parts, int32(bins.N), int32(blocks))
}

// The sizes that histogram_sort.cuh is compiled with.
const (
	histogramTile    = 1 << 13 // elements of a tile
	histogramThreads = 256     // of a block that sorts
	histogramRanges  = 64      // max
	histogramSlab    = 1 << 26 // elements that are sorted before they are counted, a multiple of a tile; each takes two bytes of scratch memory
)

// appendSortedHistogram appends the launches that sort the elements by range of bins and count each range separately.
func appendSortedHistogram(p *kernels.Plan, dev kernels.Device, dt kernels.Dtype, n int64, bins Bins, ranges int64) {
	slabs, width := kernels.CeilDiv(n, histogramSlab), kernels.CeilDiv(int64(bins.N), ranges)
	tiles := kernels.CeilDiv(min(n, histogramSlab), histogramTile)
	sizes := p.Workspace(slabs * ranges * 8)
	sorted, begins := p.Workspace(tiles*histogramTile*2), p.Workspace((ranges+1)*tiles*2)
	appendHistogramZero(p, bins, sizes, slabs*ranges)
	for first := int64(0); first < n; first += histogramSlab {
		own := min(n-first, histogramSlab)
		tiles := kernels.CeilDiv(own, histogramTile)
		sort := p.Launch(histogramSort[dt], int(tiles), histogramThreads,
			histogramSortArgs{kernels.At(0, first*dt.Size()), sorted, begins, sizes, own, bins.arguments(), ranges, arith.DivideBy(width)})
		sort.Shared = int(ranges*histogramThreads*2 + histogramTile*2)
		// Each block clears and adds up its own counters, width of them, so it should have at least as many elements.
		blocks := min(int64(dev.SMs), max(ranges+ranges/2, own/width))
		count := p.Launch(histogramCount, int(blocks), 1024, histogramCountArgs{kernels.At(kernels.Out, 0), sorted, begins, sizes, tiles, int64(bins.N), ranges, width})
		count.Shared = int(width * 4)
		sizes.Offset += ranges * 8
	}
}

// histogramBlocks returns the blocks of a grid: each blocks for an SM, but no more than one for `elements` elements, and
// enough that no counter of 32 bits overflows.
func histogramBlocks(dev kernels.Device, n int64, each int, elements int64) int {
	return int(max(min(int64(dev.SMs*each), kernels.CeilDiv(n, elements)), kernels.CeilDiv(n, 1<<31)))
}

const blockReserved = 1 << 10 // bytes of shared memory that the device reserves for each block

// columnShift returns log2 of the columns of each counter: 32 columns, one for each lane, or the most that let two blocks share an SM.
//
//	H200, 1024 bins, GB/s
//	two blocks share an SM            4244 to 4272
//	32 columns, one block fits             3433
func columnShift(dev kernels.Device, bins int) int {
	words := ((dev.SharedOptin+blockReserved)/2 - blockReserved) / 4
	return min(max(bits.Len(uint(words/bins))-1, 0), 5)
}

func histogramZeroBody(c kernels.Call) {
	args := kernels.Args[histogramZeroArgs](c)
	clear(kernels.Slice[int64](c, args.Counts)[:args.Bins])
	clear(kernels.Slice[int64](c, args.Sizes)[:args.Ranges])
}

// HistogramBody returns the Go body of kernels that count elements of type dt; their arguments begin with [HistogramArgs].
func HistogramBody(dt kernels.Dtype) func(kernels.Call) {
	return [...]func(kernels.Call){kernels.Float32: histogramBody[float32], kernels.Float64: histogramBody[float64], kernels.Uint8: histogramBytesBody,
		kernels.Int32: histogramBody[int32], kernels.Int64: histogramBody[int64], kernels.Int: histogramBody[int]}[dt]
}

func histogramBody[T kernels.Element](c kernels.Call) {
	args := kernels.Args[HistogramArgs](c)
	x, r := kernels.Slice[T](c, args.X), args.Range
	countParts(c, args, int(r.Bins), func(cells []int64, from, to int64) {
		for _, e := range x[from:to] {
			if v := float64(e); r.has(v) {
				cells[r.cell(v)]++
			}
		}
	}, nil)
}

// histogramSortBodyOf returns the Go body of histogram_sort for a type.
func histogramSortBodyOf(dt kernels.Dtype) func(kernels.Call) {
	return [...]func(kernels.Call){kernels.Float32: histogramSortBody[float32], kernels.Float64: histogramSortBody[float64],
		kernels.Int32: histogramSortBody[int32], kernels.Int64: histogramSortBody[int64]}[dt]
}

func histogramSortBody[T kernels.Element](c kernels.Call) {
	args := kernels.Args[histogramSortArgs](c)
	x, sorted, begins := kernels.Slice[T](c, args.X), kernels.Slice[uint16](c, args.Sorted), kernels.Slice[uint16](c, args.Begins)
	sizes, r, width, tiles := kernels.Slice[int64](c, args.Sizes), args.Range, args.Width.D, int64(c.Grid[0])
	found := make([][]uint16, args.Ranges) // a tile's elements in each range, as bins within the range
	for tile := range tiles {
		for i := range found {
			found[i] = found[i][:0]
		}
		for _, e := range x[tile*histogramTile : min((tile+1)*histogramTile, args.N)] {
			if v := float64(e); r.has(v) {
				k := int64(r.cell(v))
				found[k/width] = append(found[k/width], uint16(k%width))
			}
		}
		begin := int64(0)
		for i, bins := range found {
			begins[int64(i)*tiles+tile] = uint16(begin)
			begin += int64(copy(sorted[tile*histogramTile+begin:], bins))
			sizes[i] += int64(len(bins))
		}
		begins[args.Ranges*tiles+tile] = uint16(begin)
	}
}

// histogramCountBody counts what histogram_sort sorted.
func histogramCountBody(c kernels.Call) {
	args := kernels.Args[histogramCountArgs](c)
	counts, sorted, begins, tiles := kernels.Slice[int64](c, args.Counts), kernels.Slice[uint16](c, args.Sorted), kernels.Slice[uint16](c, args.Begins), args.Tiles
	for i := range args.Ranges {
		for tile := range tiles {
			for _, k := range sorted[tile*histogramTile+int64(begins[i*tiles+tile]) : tile*histogramTile+int64(begins[(i+1)*tiles+tile])] {
				counts[i*args.Width+int64(k)]++
			}
		}
	}
}

// histogramBytesBody counts each of the 256 values and then adds the counts to their bins. It counts four consecutive bytes in separate
// cells, so that equal neighbours do not wait for each other.
func histogramBytesBody(c kernels.Call) {
	args := kernels.Args[HistogramArgs](c)
	x, r := kernels.Slice[uint8](c, args.X), args.Range
	countParts(c, args, 256, func(cells []int64, from, to int64) {
		var four [4][256]int64
		x := x[from:to]
		for ; len(x) >= 4; x = x[4:] {
			four[0][x[0]]++
			four[1][x[1]]++
			four[2][x[2]]++
			four[3][x[3]]++
		}
		for _, e := range x {
			four[0][e]++
		}
		for k := range cells {
			cells[k] = four[0][k] + four[1][k] + four[2][k] + four[3][k]
		}
	}, func(k int) int {
		if v := float64(k); r.has(v) {
			return r.cell(v)
		}
		return -1
	})
}

// countParts calls count on disjoint parts of the elements, each with its own cells, as the blocks of a grid have. It adds cell k to the
// counter that bin returns, -1 for none. Without bin, cells are counters, and a single part counts in the output.
func countParts(c kernels.Call, args HistogramArgs, cells int, count func(cells []int64, from, to int64), bin func(k int) int) {
	counts := kernels.Slice[int64](c, args.Counts)
	if c.Grid[0] == 1 {
		clear(counts[:args.Range.Bins])
	}
	var mu sync.Mutex
	kernels.Parallel(args.N, kernels.Grain+int64(cells), func(from, to int64) {
		if bin == nil && to-from == args.N {
			count(counts[:cells], from, to)
			return
		}
		own := make([]int64, cells)
		count(own, from, to)
		mu.Lock()
		defer mu.Unlock()
		for k, n := range own {
			if n == 0 {
				continue
			}
			b := k
			if bin != nil {
				b = bin(k)
			}
			if b >= 0 {
				counts[b] += n
			}
		}
	})
}
