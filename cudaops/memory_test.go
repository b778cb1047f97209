package cudaops

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// conflict finds two buffers that share memory while both are alive.
func conflict(buffers []*buffer, arena int64) error {
	for i, a := range buffers {
		if a.offset%alignment != 0 || a.offset < 0 || a.offset+a.size > arena {
			return fmt.Errorf("buffer %+v in an arena of %d", *a, arena)
		}
		for _, b := range buffers[:i] {
			if a.overlaps(b) && a.offset < b.offset+b.size && b.offset < a.offset+a.size {
				return fmt.Errorf("%+v and %+v share memory", *a, *b)
			}
		}
	}
	return nil
}

// liveNow is livePeak the slow way.
func liveNow(buffers []*buffer) (peak int64) {
	for _, at := range buffers {
		var sum int64
		for _, b := range buffers {
			if b.birth <= at.birth && at.birth <= b.death {
				sum += b.padded()
			}
		}
		peak = max(peak, sum)
	}
	return peak
}

func TestPlaceRandom(t *testing.T) {
	worst := 0.0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		n := 1 + r.IntN(120)
		steps := 1 + r.IntN(80)
		buffers := make([]*buffer, n)
		for i := range buffers {
			birth := r.IntN(steps)
			length := r.IntN(1 + r.IntN(steps-birth))
			size := int64(r.IntN(1 << (4 + r.IntN(16))))
			buffers[i] = &buffer{span{size: size}, birth, birth + length}
		}
		arena := place(buffers)
		if err := conflict(buffers, arena); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		peak := livePeak(buffers)
		if slow := liveNow(buffers); slow != peak {
			t.Fatalf("seed %d: livePeak gives %d, want %d", seed, peak, slow)
		}
		if peak == 0 {
			continue
		}
		ratio := float64(arena) / float64(peak)
		if worst = max(worst, ratio); ratio > 1.2 {
			t.Errorf("seed %d: %d buffers, arena %d, peak %d: ratio %.3f, want at most 1.2", seed, n, arena, peak, ratio)
		}
	}
	t.Logf("worst ratio %.3f", worst)
}

func TestConflictIsSeen(t *testing.T) {
	a, b := &buffer{span{0, 512}, 0, 2}, &buffer{span{256, 100}, 2, 3}
	if conflict([]*buffer{a, b}, 512) == nil {
		t.Error("two live buffers in one place are not seen")
	}
	b.birth = 3
	if err := conflict([]*buffer{a, b}, 512); err != nil {
		t.Error(err)
	}
	if conflict([]*buffer{a, b}, 511) == nil {
		t.Error("a buffer beyond the arena is not seen")
	}
}

func TestPlaceIsTheSameEveryTime(t *testing.T) {
	offsets := func() (s string) {
		r := rand.New(rand.NewPCG(3, 4))
		buffers := make([]*buffer, 60)
		for i := range buffers {
			birth := r.IntN(50)
			buffers[i] = &buffer{span{size: int64(r.IntN(100000))}, birth, birth + r.IntN(20)}
		}
		place(buffers)
		for _, b := range buffers {
			s += fmt.Sprint(b.offset, " ")
		}
		return s
	}
	if a, b := offsets(), offsets(); a != b {
		t.Errorf("two plans of one graph differ:\n%s\n%s", a, b)
	}
}
