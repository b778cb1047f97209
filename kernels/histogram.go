package kernels

import (
	"fmt"
	"math/bits"
	"sync"
)

// HistogramVersions is the number of numbered versions of the histogram; the
// last one is the fast one.
const HistogramVersions = 3

var (
	histogramZero = own.Kernel("histogram", "histogram_zero", histogramZeroBody)

	// histogramKernels are the kernels by version and type.
	histogramKernels = func() (ks [1 + HistogramVersions][Int + 1]*Kernel) {
		for v, name := range []string{1: "global", "shared", "columns"} {
			if v == 0 {
				continue
			}
			for dt, body := range []func(Call){
				Float32: histogramBody[float32], Float64: histogramBody[float64],
				Uint8: histogramBytesBody, Int32: histogramBody[int32], Int64: histogramBody[int64],
			} {
				ks[v][dt] = own.Kernel("histogram", fmt.Sprintf("histogram_%s_%v", name, Dtype(dt)), body)
			}
			ks[v][Int] = ks[v][Int64]
			if Int.Size() == 4 {
				ks[v][Int] = ks[v][Int32]
			}
		}
		return ks
	}()
)

// Bins are N cells of equal width that cover Lo <= x < Hi. Cell k holds the x
// with
//
//	floor((x - Lo) * (N / (Hi - Lo))) = k
//
// in float64 arithmetic; the last cell also those that it rounds up to N. What is
// outside, NaN included, is in none. N is at least 1, Lo < Hi, and Hi - Lo and
// N / (Hi - Lo) are finite.
type Bins struct {
	N      int
	Lo, Hi float64
}

func (b Bins) scale() float64 { return float64(b.N) / (b.Hi - b.Lo) }

// histogramPolicy tunes a version.
type histogramPolicy struct {
	block  int // threads of a block
	blocks int // of them for each multiprocessor
}

// histogramTuning: versions 1 and 2 have the grid of a common text, whose sweep
// over blocks is in examples/04-atomics. For version 3, measured on an H200 in GB/s
// on 2^30 bytes, uniform and all equal, and in us on 5.8 MB of English text, whose
// time is mostly that of two launches. CUB (CUDA 13.0) in the same run: 2154, 3609,
// 7.94.
//
//	1024 threads, 1 block, 4 loads in flight   4463  4470  7.66
//	1024 threads, 2 blocks, 2 loads            4473  4490  7.98
//	1024 threads, 2 blocks, 4 loads            4465  4462  9.10
//	512 threads, 1 block, 4 loads              4189  4200  7.97
//
// Rejected, each beside 4298, 4360 of an earlier loop with 2 blocks and 2 loads:
// 16 columns 3342, 4325; 8 columns 2457, 4329; no columns 2254, 3418; red.shared
// instead of the increment that the compiler chooses 4254, 4348; counters of one
// byte for each thread, loaded and stored without atomics, 2394, 3225 at best;
// loading the next vectors before counting 4268, 4285; loads that leave no copy in
// the first-level cache 4320, 4376, too little for a line of PTX. The blocks' sums in
// memory and a second kernel that adds them up, instead of atomics: 4450, 4453, 8.10.
//
// Elements of 4 bytes: 2^28 float32 into 256 bins: 2 blocks 4272, 1 block 3472, CUB
// 3934; into 16384 bins, without columns: 4135, CUB 345.
func histogramTuning(v int, dt Dtype) histogramPolicy {
	switch {
	case v < 3:
		return histogramPolicy{block: 128, blocks: 16}
	case dt == Uint8:
		return histogramPolicy{block: 1024, blocks: 1}
	}
	return histogramPolicy{block: 1024, blocks: 2}
}

// Histogram plans counts[k] = number of x[i] in cell k, as int64, for n elements,
// by version 1 to [HistogramVersions] of the kernel. More cells than the shared
// memory of dev holds are counted in global memory by all versions.
func Histogram(dev Device, dt Dtype, v int, n int64, bins Bins) (*Plan, error) {
	if v < 1 || v > HistogramVersions {
		return nil, fmt.Errorf("kernels: histogram: got version %d, want 1 to %d", v, HistogramVersions)
	}
	if int64(bins.N)*4 > int64(dev.SharedOptin) && !(v == 3 && dt == Uint8) {
		v = 1
	}
	p := &Plan{Op: fmt.Sprintf("histogram_%v(%d into %d) version %d", dt, n, bins.N, v), Inputs: []int64{n * dt.Size()}, Out: int64(bins.N) * 8, Flops: n}
	p.Launch(histogramZero, int(CeilDiv(int64(bins.N), 256)), 256, Ref{Out, 0}, int32(bins.N))
	if n == 0 {
		return p, nil
	}
	args := []any{Ref{0, 0}, Ref{Out, 0}, n, int32(bins.N), bins.Lo, bins.Hi, bins.scale()}
	t := histogramTuning(v, dt)
	elements, shared := int64(t.block), 0 // elements that a block takes at a time
	switch v {
	case 2:
		shared = 4 * bins.N
	case 3:
		elements *= 16 / dt.Size()
		shift := columnShift(dev, bins.N)
		if shared = 4 * bins.N << shift; dt == Uint8 {
			shared = 4 * 256 << 5
		}
		args = append(args, int32(shift))
	}
	// No more blocks than there is work for, and enough that no counter of 32 bits
	// overflows.
	blocks := max(min(int64(dev.SMs*t.blocks), CeilDiv(n, elements)), CeilDiv(n, 1<<31))
	p.Launch(histogramKernels[v][dt], int(blocks), t.block, args...).Shared = shared
	return p, nil
}

// HistogramGrid is [Histogram] on a grid of the caller's, to see what the grid
// does: blocks of threads threads (whole warps, at most 1024).
func HistogramGrid(dev Device, dt Dtype, v int, n int64, bins Bins, blocks, threads int) (*Plan, error) {
	p, err := Histogram(dev, dt, v, n, bins)
	if err != nil || n == 0 {
		return p, err
	}
	count := &p.Launches[1]
	count.Grid[0], count.Block[0] = blocks, threads
	return p, nil
}

// columnShift is log2 of the columns that each counter gets: 32, so that every
// lane has its own, or as many as let two blocks share a multiprocessor. 1024 bins
// in 16, 8 or 4 columns: 4244, 4272, 4271 GB/s; in 32, so that one block fits, 3433.
func columnShift(dev Device, bins int) int {
	const reserved = 1 << 10 // of each block
	words := ((dev.SharedOptin+reserved)/2 - reserved) / 4
	return min(max(bits.Len(uint(words/bins))-1, 0), 5)
}

func histogramZeroBody(c Call) { clear(Slice[int64](c, 0)) }

// histogramBody counts for all versions: each goroutine in cells of its own, as
// the blocks of a grid do.
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
// own, and adds cell k to the counter that bin gives, if any.
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
