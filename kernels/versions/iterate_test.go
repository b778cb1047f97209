package versions

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

// iterateOnHost runs 100 steps with all weights 1/n, so that the right result is
// the mean of x in every element, and returns which elements are wrong.
func iterateOnHost(t *testing.T, n int, by IterateBy) (wrong []bool) {
	t.Helper()
	w, x := make([]float32, n*n), make([]float32, n)
	for i := range w {
		w[i] = 1 / float32(n)
	}
	mean := 0.0
	for i := range x {
		x[i] = rand.Float32()
		mean += float64(x[i]) / float64(n)
	}
	out := make([]float32, n)
	onHost(t, Iterate(kernels.HostDevice(), kernels.Float32, int64(n), 100, false, by), out, w, w, x)
	for _, v := range out {
		wrong = append(wrong, !(math.Abs(float64(v)-mean) < 1e-5*mean))
	}
	return wrong
}

// Without a barrier whole warps are wrong, with one of each block whole blocks,
// and with one of the grid none, however the rows are laid out.
func TestIterateBarriers(t *testing.T) {
	for _, c := range []struct {
		by    IterateBy
		group int // elements that are right or wrong together
		wrong bool
	}{
		{IterateBy{BarrierNone, 2, 64}, 32, true},
		{IterateBy{BarrierBlock, 2, 64}, 64, true},
		{IterateBy{BarrierBlock, 1, 128}, 128, false},
		{IterateBy{BarrierWrap, 2, 64}, 128, false},
		{IterateBy{BarrierVolatile, 2, 64}, 128, false},
		{IterateBy{BarrierAcquire, 3, 32}, 128, false},
		{IterateBy{BarrierGrid, 4, 32}, 128, false},
		{IterateBy{BarrierLaunches, 1, 32}, 128, false},
		{IterateBy{BarrierGraph, 5, 96}, 128, false},
		{IterateBy{}, 128, false},
	} {
		wrong := iterateOnHost(t, 128, c.by)
		any := false
		for i, v := range wrong {
			any = any || v
			if v != wrong[i/c.group*c.group] {
				t.Errorf("%v: element %d is wrong: %v, but the first of its group of %d: %v", c.by, i, v, c.group, !v)
				break
			}
		}
		if any != c.wrong {
			t.Errorf("%v: some element is wrong: %v, want %v", c.by, any, c.wrong)
		}
	}
}

// Grids whose blocks wait for one another are marked as co-resident.
func TestIterateCoResident(t *testing.T) {
	dev := kernels.Device{Name: "test", Major: 9, SMs: 132, Cooperative: true}
	for _, c := range []struct {
		barrier                        Barrier
		n                              int64
		coResident, cooperative, graph bool
		launches                       int
	}{
		{BarrierLaunches, 128, false, false, false, 21},
		{BarrierGraph, 128, false, false, true, 21},
		{BarrierWrap, 1 << 16, true, false, false, 2},
		{BarrierVolatile, 1 << 16, true, false, false, 2},
		{BarrierAcquire, 1 << 16, true, false, false, 2},
		{BarrierGrid, 1 << 16, true, true, false, 2},
		{BarrierHeld, 256, true, true, false, 2},
		{BarrierCluster, 257, true, true, false, 2},
		{BarrierNone, 128, false, false, false, 2},
	} {
		p := Iterate(dev, kernels.Float32, c.n, 10, false, IterateBy{Barrier: c.barrier})
		l := p.Launches[len(p.Launches)-1]
		if l.CoResident != c.coResident || l.Cooperative != c.cooperative || p.Graph != c.graph || len(p.Launches) != c.launches {
			t.Errorf("n = %d, %v: co-resident %v, cooperative %v, graph %v, %d launches, want %v, %v, %v, %d",
				c.n, c.barrier, l.CoResident, l.Cooperative, p.Graph, len(p.Launches), c.coResident, c.cooperative, c.graph, c.launches)
		}
		if l.CoResident && l.Grid[0] > dev.SMs {
			t.Errorf("n = %d, %v: %d blocks that wait for one another on %d multiprocessors", c.n, c.barrier, l.Grid[0], dev.SMs)
		}
	}
}
