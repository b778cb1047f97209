package kernels

import (
	"math"
	"math/rand/v2"
	"testing"
)

// iterateOnHost runs 100 steps with all weights 1/n, so that the right result is
// the mean of x in every element, and says which elements are wrong.
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
	p := Iterate(HostDevice(), Float32, int64(n), 100, false, by)
	out := make([]float32, n)
	if err := p.Run([][]byte{Bytes(w), Bytes(w), Bytes(x)}, Bytes(out), nil); err != nil {
		t.Fatal(err)
	}
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

// Grids whose blocks wait for one another say so, and those that the library
// chooses by itself are started cooperatively, with a multiprocessor for each
// block.
func TestIterateCoResident(t *testing.T) {
	dev := Device{Name: "test", Major: 9, SMs: 132, Cooperative: true}
	small := dev
	small.Cooperative, small.Major = false, 8
	for _, c := range []struct {
		dev                            Device
		n                              int64
		by                             IterateBy
		coResident, cooperative, graph bool
		launches                       int
	}{
		{dev, 128, IterateBy{}, false, false, false, 1},
		{dev, 256, IterateBy{Barrier: BarrierHeld}, true, true, false, 2},
		{dev, 257, IterateBy{Barrier: BarrierCluster}, true, true, false, 2},
		{dev, 1024, IterateBy{}, true, true, false, 2},
		{dev, 1025, IterateBy{}, false, false, true, 21},
		{small, 128, IterateBy{}, false, false, true, 21},
		{dev, 128, IterateBy{Barrier: BarrierLaunches}, false, false, false, 21},
		{dev, 128, IterateBy{Barrier: BarrierGraph}, false, false, true, 21},
		{dev, 1 << 16, IterateBy{Barrier: BarrierWrap}, true, false, false, 2},
		{dev, 1 << 16, IterateBy{Barrier: BarrierVolatile}, true, false, false, 2},
		{dev, 1 << 16, IterateBy{Barrier: BarrierAcquire}, true, false, false, 2},
		{dev, 1 << 16, IterateBy{Barrier: BarrierGrid}, true, true, false, 2},
		{dev, 128, IterateBy{Barrier: BarrierNone}, false, false, false, 2},
	} {
		p := Iterate(c.dev, Float32, c.n, 10, false, c.by)
		l := p.Launches[len(p.Launches)-1]
		if l.CoResident != c.coResident || l.Cooperative != c.cooperative || p.Graph != c.graph || len(p.Launches) != c.launches {
			t.Errorf("n = %d, %v: co-resident %v, cooperative %v, graph %v, %d launches, want %v, %v, %v, %d",
				c.n, c.by, l.CoResident, l.Cooperative, p.Graph, len(p.Launches), c.coResident, c.cooperative, c.graph, c.launches)
		}
		if l.CoResident && l.Grid[0] > c.dev.SMs {
			t.Errorf("n = %d, %v: %d blocks that wait for one another on %d multiprocessors", c.n, c.by, l.Grid[0], c.dev.SMs)
		}
	}
}
