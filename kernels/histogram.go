package kernels

import (
	"fmt"
	"math/bits"
	"sync"
)

var (
	histogramZero = own.Kernel("histogram", "histogram_zero", histogramZeroBody)

	// histogramColumns are the kernels by type, and histogramAggregate those for more
	// bins than shared memory holds, which bytes do not have.
	histogramColumns   = histogramKernels("columns", Float32, Float64, Uint8, Int32, Int64)
	histogramAggregate = histogramKernels("aggregate", Float32, Float64, Int32, Int64)
)

func histogramKernels(name string, types ...Dtype) (ks [Int + 1]*Kernel) {
	for _, dt := range types {
		ks[dt] = own.Kernel("histogram", fmt.Sprintf("histogram_%s_%v", name, dt), HistogramBody(dt))
	}
	ks[Int] = ks[Int64]
	if Int.Size() == 4 {
		ks[Int] = ks[Int32]
	}
	return ks
}

// Bins are N cells of equal width that cover Lo <= x < Hi. Cell k holds the x
// with
//
//	floor((x - Lo) * (N / (Hi - Lo))) = k
//
// in float64 arithmetic; the last cell also those that it rounds up to N. Elements
// outside, NaN included, are in none. N is at least 1, Lo < Hi, and Hi - Lo and
// N / (Hi - Lo) are finite.
type Bins struct {
	N      int
	Lo, Hi float64
}

func (b Bins) scale() float64 { return float64(b.N) / (b.Hi - b.Lo) }

// Histogram plans counts[k] = number of x[i] in cell k, as int64, for n elements. More
// cells than the shared memory of dev holds are counted in ranges, or in global memory.
func Histogram(dev Device, dt Dtype, n int64, bins Bins) *Plan {
	p := &Plan{Op: fmt.Sprintf("histogram_%v(%d into %d)", dt, n, bins.N), Inputs: []int64{n * dt.Size()}, Out: int64(bins.N) * 8, Flops: n}
	p.Launch(histogramZero, int(CeilDiv(int64(bins.N), 256)), 256, Ref{Out, 0}, int32(bins.N))
	if n == 0 {
		return p
	}
	args := bins.Args(n)
	ranges, shift, t := 1, columnShift(dev, bins.N), tableHistogram.on(dev)
	if dt == Uint8 {
		t = byteHistogram.on(dev)
	} else if most := dev.SharedOptin / 4; bins.N > most {
		g := globalHistogram.on(dev)
		if ranges = int(CeilDiv(int64(bins.N), int64(most))); ranges > g.ranges || n < g.elements*int64(ranges) {
			p.Launch(histogramAggregate[dt], histogramBlocks(dev, n, g.blocks, int64(g.block)), g.block, args...)
			return p
		}
		t.blocks = 1
	}
	blocks := histogramBlocks(dev, n*int64(ranges), t.blocks, int64(t.block)*16/dt.Size())
	blocks = max(blocks/ranges, int(CeilDiv(n, 1<<31))) * ranges
	count := p.Launch(histogramColumns[dt], blocks, t.block, append(args, int32(shift), int32(ranges))...)
	if count.Shared = 4 * int(CeilDiv(int64(bins.N), int64(ranges))) << shift; dt == Uint8 {
		count.Shared = 4 * 256 << 5
	}
	return p
}

// Args returns the arguments that kernels which count n elements begin with: the
// elements, the counters, n, and the bins.
func (b Bins) Args(n int64) []any {
	return []any{Ref{0, 0}, Ref{Out, 0}, n, int32(b.N), b.Lo, b.Hi, b.scale()}
}

// histogramBlocks returns the blocks of a grid, each of which takes `each` elements
// at a time: no more than there is work for, and enough that no counter of 32 bits
// overflows.
func histogramBlocks(dev Device, n int64, each int, elements int64) int {
	return int(max(min(int64(dev.SMs*each), CeilDiv(n, elements)), CeilDiv(n, 1<<31)))
}

// columnShift is log2 of the columns that each counter gets: 32, so that every
// lane has its own, or as many as let two blocks share a multiprocessor. H200,
// 1024 bins: 4244 to 4272 GB/s; in 32 columns, so that one block fits, 3433.
func columnShift(dev Device, bins int) int {
	const reserved = 1 << 10 // of each block
	words := ((dev.SharedOptin+reserved)/2 - reserved) / 4
	return min(max(bits.Len(uint(words/bins))-1, 0), 5)
}

func histogramZeroBody(c Call) { clear(Slice[int64](c, 0)) }

// HistogramBody returns the Go body of kernels that count elements of type dt; their
// arguments begin with [Bins.Args].
func HistogramBody(dt Dtype) func(Call) {
	switch dt {
	case Float64:
		return histogramBody[float64]
	case Uint8:
		return histogramBytesBody
	case Int32:
		return histogramBody[int32]
	case Int64:
		return histogramBody[int64]
	case Int:
		return histogramBody[int]
	}
	return histogramBody[float32]
}

// histogramBody counts in each goroutine in cells of its own, as the blocks of a grid
// do.
func histogramBody[T Element](c Call) {
	lo, hi, scale := c.Float(4), c.Float(5), c.Float(6)
	last := int(c.Int(3)) - 1
	x := Slice[T](c, 0)
	countApart(c, last+1, func(cells []int64, from, to int64) {
		for _, e := range x[from:to] {
			if v := float64(e); v >= lo && v < hi {
				cells[min(int((v-lo)*scale), last)]++
			}
		}
	}, func(k int) int { return k })
}

// histogramBytesBody counts the 256 values, four bytes at a time in cells apart,
// so that equal neighbours do not wait for each other, and finds their bins at the
// end.
func histogramBytesBody(c Call) {
	lo, hi, scale := c.Float(4), c.Float(5), c.Float(6)
	bins := int(c.Int(3))
	x := Slice[uint8](c, 0)
	countApart(c, 256, func(cells []int64, from, to int64) {
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
		if v := float64(k); v >= lo && v < hi {
			return min(int((v-lo)*scale), bins-1)
		}
		return -1
	})
}

// countApart calls count on disjoint parts of the elements, each with cells of its
// own, and adds cell k to the counter that bin returns, if any.
func countApart(c Call, cells int, count func(cells []int64, from, to int64), bin func(k int) int) {
	counts := Slice[int64](c, 1)
	var mu sync.Mutex
	Parallel(c.Int(2), Grain+int64(cells), func(from, to int64) {
		own := make([]int64, cells)
		count(own, from, to)
		mu.Lock()
		defer mu.Unlock()
		for k, n := range own {
			if n == 0 {
				continue
			}
			if b := bin(k); b >= 0 {
				counts[b] += n
			}
		}
	})
}
