package gemm

import (
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

// Every candidate has a plan that an H200 can launch, and the first is the plan of the product.
func TestCandidates(t *testing.T) {
	r := testutil.Random(t)
	dev := tensorDevices[0]
	options := 0
	for range 60 {
		size := func(most int) int64 { return 1 << r.IntN(most) * (1 + int64(r.IntN(3))) }
		p := Product{Dtype: []kernels.Dtype{kernels.Float32, kernels.Float64}[r.IntN(2)], Batch: size(4), M: size(11), N: size(11), K: size(12)}
		p.A.Trans, p.B.Trans = r.IntN(2) == 0, r.IntN(2) == 0
		if p.Dtype == kernels.Float32 {
			p.Round = []kernels.Precision{kernels.FullPrecision, kernels.TF32, kernels.BF16}[r.IntN(3)]
		}
		want, err := p.Plan(dev)
		testutil.Do(t, err)
		names, _, plans, err := Candidates(p, dev)
		testutil.Do(t, err)
		options += len(names)
		for i, plan := range plans {
			if err := plan.Check(dev); err != nil {
				t.Errorf("%v %d x %d x %d x %d, %s: %v", p, p.Batch, p.M, p.K, p.N, names[i], err)
			}
		}
		if got := plans[0].Launches; len(got) != len(want.Launches) || got[0].Kernel.Entry != want.Launches[0].Kernel.Entry || got[0].Grid != want.Launches[0].Grid {
			t.Errorf("%v %d x %d x %d x %d: the first candidate is %s, want the plan's", p, p.Batch, p.M, p.K, p.N, names[0])
		}
	}
	t.Logf("%d candidates", options)
}

// An SM of an H200 holds no more blocks of a tile's launch than its share, and no fewer than it would hold of blocks of their own size, up to that share. Launches of few or many blocks
// and of clusters keep the size of their blocks.
func TestBlocksAreSpread(t *testing.T) {
	const reserved = 1 << 10 // bytes of shared memory of each block that the device takes
	r := testutil.Random(t)
	held := func(shared int64) int64 { return (int64(h200.SharedOptin) + reserved) / (shared + reserved) }
	kinds := map[string]int{}
	for range 200 {
		size := func() int64 { return 1 + int64(r.IntN(1<<(3+r.IntN(9)))) }
		x := Product{Dtype: []kernels.Dtype{kernels.Float32, kernels.Float64}[r.IntN(2)], Batch: 1 + int64(r.IntN(3)), M: size(), N: size(), K: size()}.problem(h200)
		for _, o := range x.options() {
			if o.special != nil || o.step == 0 {
				continue
			}
			p := newPlan(x.Product)
			o.emit(p, &o.as, o.cut)
			testutil.Do(t, p.Check(h200))
			l := p.Launches[0]
			own, got := o.candidate.shared+o.cut.shared, int64(l.Shared)
			share := kernels.CeilDiv(int64(l.Grid[0]), o.as.sms())
			switch few := 2*int64(l.Grid[0]) <= o.as.sms(); {
			case o.parts > 1 || few || share > 5 || share == 1 && min(o.chunk, o.as.K) <= 64:
				kinds["kept"]++
				if got != own {
					t.Errorf("%v, %v: got %d bytes of shared memory, want the %d of its slices", o, l, got, own)
				}
			default:
				if want := min(held(own), share); held(got) != want {
					t.Errorf("%v, %v: an SM holds %d blocks, want %d", o, l, held(got), want)
				}
				if got > own {
					kinds["spread"]++
				}
			}
		}
	}
	if kinds["kept"] < 100 || kinds["spread"] < 100 {
		t.Errorf("got launches %v, want 100 or more of each kind", kinds)
	}
}
