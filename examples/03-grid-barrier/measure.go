package main

import (
	"fmt"
	"image/color"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/bench"
	"github.com/stheno-ml/stheno/examples/internal/notebook"
	"github.com/stheno-ml/stheno/internal/figure"
	"github.com/stheno-ml/stheno/internal/test/iteratetest"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/versions"
	"gonum.org/v1/gonum/stat"
)

// n is the number of values of the first experiments, and most that of the sweeps.
const (
	n    = 128
	most = 1024
)

// methods are the ways to wait, the first to be beaten.
var methods = []struct {
	barrier     versions.Barrier
	short, name string
}{
	{versions.BarrierLaunches, "launches", "a launch per half step"},
	{versions.BarrierGraph, "graph", "a CUDA graph of those"},
	{versions.BarrierWrap, "wrap", "one launch, counters that wrap"},
	{versions.BarrierVolatile, "volatile", "one launch, volatile"},
	{versions.BarrierAcquire, "acquire", "one launch, release and acquire"},
	{versions.BarrierGrid, "grid.sync's algorithm", "cooperative launch, grid.sync's algorithm"},
	{versions.BarrierHeld, "registers", "weights in registers"},
	{versions.BarrierCluster, "cluster", "one cluster of blocks"},
}

// on is a barrier with a grid, where it does not choose its own.
func on(b versions.Barrier, blocks, threads int) versions.IterateBy {
	if b > versions.BarrierGrid && b <= versions.BarrierCluster {
		return versions.IterateBy{Barrier: b}
	}
	return versions.IterateBy{Barrier: b, Blocks: blocks, Threads: threads}
}

// plan is the iteration of size values, transposed so that a warp's threads read
// neighbouring weights.
func plan(dev kernels.Device, size, steps int, by versions.IterateBy) *kernels.Plan {
	return versions.Iterate(dev, kernels.Float32, int64(size), steps, true, by)
}

// inputs are weights of 1/n, twice, and n new values.
func inputs() [][]byte {
	w, x := make([]float32, n*n), make([]float32, n)
	for i := range w {
		w[i] = 1. / n
	}
	for i := range x {
		x[i] = 0.5 + rand.Float32()
	}
	return [][]byte{kernels.Bytes(w), kernels.Bytes(w), kernels.Bytes(x)}
}

// ratios are the elements of out divided by the right result, the mean of x.
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

// isWrong reports whether an element is wrong, given its ratio to the right result. The weights are
// powers of two, so that rounding the result is the only error.
func isWrong(ratio float64) bool { return !(math.Abs(ratio-1) < 1e-6) }

// runOn runs the iteration of n values once, on the host if there is no gpu.
func runOn(gpu *cudaops.Device, steps int, by versions.IterateBy, in [][]byte) (out []byte) {
	if gpu == nil {
		return notebook.OnHost(plan(kernels.HostDevice(), n, steps, by), in...)
	}
	out = kernels.Bytes(make([]float32, n))
	notebook.Check(bench.Run(gpu.Ordinal, plan(gpu.Device, n, steps, by), in, out))
	return out
}

// stale describes the results of a kernel without a barrier of the grid, in several runs on blocks
// of 64 threads. All but off are shares in percent.
type stale struct {
	wrong  float64         // of the elements
	partly float64         // of the runs: some elements wrong and some right
	warps  float64         // of the warps: all 32 elements wrong, or all right
	blocks float64         // of the blocks: all 64 elements wrong, or all right
	off    [n / 32]float64 // how far the mean of each warp's elements was from the right one in the last run, percent
}

// figures are the values with names.
func (s *stale) figures() map[string]*float64 {
	f := map[string]*float64{"wrong": &s.wrong, "partly wrong": &s.partly, "whole warps": &s.warps, "whole blocks": &s.blocks}
	for w := range s.off {
		f[fmt.Sprintf("warp %d off", w)] = &s.off[w]
	}
	return f
}

func observe(gpu *cudaops.Device, steps int, by versions.IterateBy, runs int) (s stale) {
	for range runs {
		in := inputs()
		out := runOn(gpu, steps, by, in)
		all := ratios(in, out)
		wrong, _ := share(all, 1)
		s.wrong += wrong / float64(runs)
		if wrong > 0 && wrong < 100 {
			s.partly += 100 / float64(runs)
		}
		_, warps := share(all, 32)
		_, blocks := share(all, 64)
		s.warps, s.blocks = s.warps+warps/float64(runs), s.blocks+blocks/float64(runs)
		w := 0
		for warp := range slices.Chunk(all, 32) {
			s.off[w] = 0
			if slices.ContainsFunc(warp, isWrong) {
				s.off[w] = 100 * (stat.Mean(warp, nil) - 1)
			}
			w++
		}
	}
	return s
}

// share is how many of the groups of elements are all wrong, and how many are all
// wrong or all right, in percent.
func share(ratios []float64, size int) (wrong, whole float64) {
	each := 100 * float64(size) / float64(len(ratios))
	for group := range slices.Chunk(ratios, size) {
		bad := 0
		for _, r := range group {
			if isWrong(r) {
				bad++
			}
		}
		if bad == size {
			wrong += each
		}
		if bad == size || bad == 0 {
			whole += each
		}
	}
	return wrong, whole
}

// A lab is a page with its measurements.
type lab struct {
	*notebook.Page
	random *rand.Rand
	sms    int // multiprocessors of the GPU, or of the one in the record; 0 if unknown
	times  map[string]timing
}

// timing is the mean time of all steps, and its standard deviation.
type timing struct{ mean, spread notebook.Measured }

// half is the time of a half step in us.
func (t timing) half() float64 { return t.mean.Value / (2 * steps) }

// gain is how much faster t is than base, in percent.
func gain(base, t timing) float64 { return 100 * (base.mean.Value/t.mean.Value - 1) }

func newLab(p *notebook.Page) *lab {
	l := &lab{Page: p, random: rand.New(rand.NewPCG(rand.Uint64(), 0)), times: map[string]timing{}}
	if m := p.Measure("multiprocessors", "", func() float64 { return float64(p.GPU().SMs) }); m.Known() {
		l.sms = int(m.Value)
	}
	return l
}

// upTo are the numbers of blocks that are less than the device has multiprocessors,
// and as many.
func (p *lab) upTo(blocks ...int) []int {
	if p.sms == 0 {
		return blocks
	}
	blocks = slices.DeleteFunc(blocks, func(b int) bool { return b >= p.sms })
	return append(blocks, p.sms)
}

// time returns the time of all steps on the GPU, over 10 runs whose results are right to the bit:
// with these weights no late value goes unnoticed. Each setting is timed once.
func (p *lab) time(size int, by versions.IterateBy) (t timing) {
	key := fmt.Sprintf("%d values, %v", size, by.Barrier)
	if by.Blocks > 0 {
		key += fmt.Sprintf(" on %dx%d", by.Blocks, by.Threads)
	}
	if t, ok := p.times[key]; ok {
		return t
	}
	t.mean, t.spread = p.MeanAndSpread(key, func() []time.Duration {
		in := iteratetest.New(p.random, size, true)
		timed := notebook.Must(bench.Time(p.GPU().Ordinal, plan(p.GPU().Device, size, steps, by), in.Inputs(), 10))
		if !slices.Equal(kernels.Elements[float32](timed.Out), in.After(steps)) {
			notebook.Fail("the result is wrong")
		}
		return timed.Runs
	})
	p.times[key] = t
	return t
}

// worst is the greatest spread of all times so far, in percent of the mean, NaN if
// there is none.
func (p *lab) worst() float64 {
	worst := math.NaN()
	for _, t := range p.times {
		if s := 100 * t.spread.Value / t.mean.Value; !(s <= worst) && !math.IsNaN(s) {
			worst = s
		}
	}
	return worst
}

// A plane is gains, in percent, over blocks and threads.
type plane [][]float64

// planes are the gains of barriers over a launch per half step, of as many values as
// there are threads, up to most.
func (p *lab) planes(blocks, threads []int, barriers []versions.Barrier) []plane {
	planes := make([]plane, len(barriers))
	for i := range planes {
		planes[i] = make(plane, len(blocks))
	}
	for row, b := range blocks {
		for _, t := range threads {
			size := min(b*t, most)
			base := p.time(size, on(versions.BarrierLaunches, b, t))
			for i, barrier := range barriers {
				time := p.time(size, on(barrier, b, t))
				planes[i][row] = append(planes[i][row], math.Round(10*gain(base, time))/10)
			}
		}
	}
	return planes
}

// minus is the difference in points, and the row and the column where it is
// greatest either way.
func (a plane) minus(b plane) (points plane, row, column int) {
	greatest := math.Inf(-1)
	for r := range a {
		points = append(points, nil)
		for c := range a[r] {
			d := math.Round(10*(a[r][c]-b[r][c])) / 10
			points[r] = append(points[r], d)
			if math.Abs(d) > greatest {
				greatest, row, column = math.Abs(d), r, c
			}
		}
	}
	return points, row, column
}

// sweep times all methods with a grid of their own over the number of blocks, in us a half step.
func (p *lab) sweep(size int, blocks []int, threads func(blocks int) int) (all []figure.Series) {
	colours := []color.RGBA{figure.Red, figure.Amber, figure.Ink, figure.Muted, figure.Blue, figure.Green}
	for _, m := range methods {
		if m.barrier > versions.BarrierGrid {
			continue
		}
		s := figure.Series{Name: m.short, Colour: colours[len(all)%len(colours)]}
		for _, b := range blocks {
			t := p.time(size, on(m.barrier, b, threads(b)))
			s.X, s.Y = append(s.X, float64(b)), append(s.Y, t.half())
			s.Spread = append(s.Spread, t.spread.Value/(2*steps))
		}
		all = append(all, s)
	}
	return all
}

// labels are numbers as the names of the rows or columns of a map.
func labels(v []int) (names []string) {
	for _, n := range v {
		names = append(names, fmt.Sprint(n))
	}
	return names
}
