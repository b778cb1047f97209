package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/kernels"
)

// n is the number of values of the first experiments.
const n = 128

// mostValues bounds the plane of blocks and threads.
const mostValues = 4096

// methods are the ways to wait, the first to be beaten.
var methods = []struct {
	barrier     kernels.Barrier
	short, name string
}{
	{kernels.BarrierLaunches, "launches", "a launch per half step"},
	{kernels.BarrierGraph, "graph", "a CUDA graph of those"},
	{kernels.BarrierVolatile, "volatile", "one launch, volatile"},
	{kernels.BarrierAcquire, "acquire", "one launch, release and acquire"},
	{kernels.BarrierGrid, "grid.sync", "cooperative launch, grid.sync"},
	{kernels.BarrierHeld, "registers", "weights in registers"},
	{kernels.BarrierCluster, "cluster", "one cluster of blocks"},
}

// plan is the iteration of size values, transposed so that a warp's threads read
// neighbouring weights.
func plan(dev kernels.Device, size, steps int, by kernels.IterateBy) *kernels.Plan {
	return kernels.Iterate(dev, kernels.Float32, int64(size), steps, true, by)
}

// inputs are weights of 1/size, twice, and size new values.
func inputs(size int) [][]byte {
	w, x := make([]float32, size*size), make([]float32, size)
	for i := range w {
		w[i] = 1 / float32(size)
	}
	for i := range x {
		x[i] = 0.5 + rand.Float32()
	}
	return [][]byte{kernels.Bytes(w), kernels.Bytes(w), kernels.Bytes(x)}
}

// ratios are the elements of out over what is right, the mean of x.
func ratios(in [][]byte, out []byte) []float64 {
	x, y := kernels.Elements[float32](in[2]), kernels.Elements[float32](out)
	sum := 0.0
	for _, v := range x {
		sum += float64(v)
	}
	r := make([]float64, len(y))
	for i, v := range y {
		r[i] = float64(v) * float64(len(x)) / sum
	}
	return r
}

// isWrong says whether an element is, given its ratio to what is right. The weights
// are powers of two, so that rounding the result is the only error.
func isWrong(ratio float64) bool { return !(math.Abs(ratio-1) < 1e-6) }

// runOn runs the iteration of n values once, on the host if there is no gpu.
func runOn(gpu *cudaops.Device, steps int, by kernels.IterateBy, in [][]byte) (out []byte, err error) {
	out = kernels.Bytes(make([]float32, n))
	if gpu == nil {
		return out, plan(kernels.HostDevice(), n, steps, by).Run(in, out, nil)
	}
	return out, cudaops.RunPlan(gpu.Ordinal, plan(gpu.Device, n, steps, by), in, out)
}

// stale is what came out of a kernel without a barrier of the grid, in several
// runs.
type stale struct {
	wrong    float64   // the share of wrong elements, %
	together float64   // the share of warps whose elements are all equal, %
	warps    []float64 // the mean of each warp's elements over what is right, in the last run
}

func observe(gpu *cudaops.Device, steps int, by kernels.IterateBy, runs int) (stale, error) {
	s := stale{}
	for range runs {
		in := inputs(n)
		out, err := runOn(gpu, steps, by, in)
		if err != nil {
			return s, err
		}
		s.warps = nil
		for warp := range slices.Chunk(ratios(in, out), 32) {
			for _, r := range warp {
				if isWrong(r) {
					s.wrong += 100 / float64(n*runs)
				}
			}
			if slices.Min(warp) == slices.Max(warp) {
				s.together += 100 / float64(n/32*runs)
			}
			s.warps = append(s.warps, mean(warp))
		}
	}
	return s, nil
}

// timed is the time of all steps in us, the least of 10 runs, of results that are
// right: what else the machine does can only add to it.
func timed(p *notebook.Page, key string, size int, by kernels.IterateBy) (notebook.Measured, error) {
	return p.Measure(key, "us", func() (float64, error) {
		in := inputs(size)
		t, err := cudaops.Time(p.GPU().Ordinal, plan(p.GPU().Device, size, steps, by), in, 10)
		if err != nil {
			return 0, err
		}
		if i := slices.IndexFunc(ratios(in, t.Out), isWrong); i >= 0 {
			return 0, fmt.Errorf("element %d of %d is wrong", i, size)
		}
		return float64(slices.Min(t.Runs)) / float64(time.Microsecond), nil
	})
}

// gain is how much faster than base t is, in percent.
func gain(base, t notebook.Measured) float64 { return 100 * (base.Value/t.Value - 1) }

// gainAt is the gain of the acquire barrier at a point of the plane, NaN outside.
func gainAt(p *notebook.Page, blocks, threads int) (float64, error) {
	size := blocks * threads
	if size > mostValues {
		return math.NaN(), nil
	}
	var t [2]notebook.Measured
	for i, b := range []kernels.Barrier{kernels.BarrierLaunches, kernels.BarrierAcquire} {
		var err error
		key := fmt.Sprintf("plane.%dx%d.%v", blocks, threads, b)
		if t[i], err = timed(p, key, size, kernels.IterateBy{Barrier: b, Blocks: blocks, Threads: threads}); err != nil {
			return 0, err
		}
	}
	return math.Round(gain(t[0], t[1])), nil
}

// times are those of one method over the number of blocks.
type times struct {
	name      string
	blocks, y []float64 // us a half step
}

// sweep times all methods with a grid of their own over the number of blocks, as
// many as fit.
func sweep(p *notebook.Page, name string, size int, blocks []int, threads func(blocks int) int) (all []times, err error) {
	for _, m := range methods {
		if m.barrier > kernels.BarrierGrid {
			continue
		}
		s := times{name: m.short}
		for _, b := range blocks {
			if p.GPU() != nil && b > 8*p.GPU().SMs {
				continue
			}
			t, err := timed(p, fmt.Sprintf("%s.%d.%v", name, b, m.barrier), size, kernels.IterateBy{Barrier: m.barrier, Blocks: b, Threads: threads(b)})
			if err != nil {
				return nil, err
			}
			s.blocks, s.y = append(s.blocks, float64(b)), append(s.y, t.Value/(2*steps))
		}
		all = append(all, s)
	}
	return all, nil
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

func abs(x float64) float64 { return math.Abs(x) }

func percent(x float64) string {
	if math.IsNaN(x) {
		return "-"
	}
	return fmt.Sprintf("%.0f", x)
}
