package passes

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
)

// conflict returns the error of Verify about buffers in an arena.
func conflict(buffers []*program.Buffer, arena int64) error {
	p := program.Program{Stage: program.Placed, Buffers: buffers, Arena: arena}
	return program.Verify(&p)
}

// liveNow is livePeak the slow way.
func liveNow(buffers []*program.Buffer) (peak int64) {
	for _, at := range buffers {
		var sum int64
		for _, b := range buffers {
			if b.Birth <= at.Birth && at.Birth <= b.Death {
				sum += b.Padded()
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
		buffers := make([]*program.Buffer, n)
		for i := range buffers {
			birth := r.IntN(steps)
			length := r.IntN(1 + r.IntN(steps-birth))
			size := int64(r.IntN(1 << (4 + r.IntN(16))))
			buffers[i] = &program.Buffer{Size: size, Birth: birth, Death: birth + length}
		}
		arena := pack(buffers)
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
		if worst = max(worst, ratio); ratio > 1.05 {
			t.Errorf("seed %d: %d buffers, arena %d, peak %d: ratio %.3f, want at most 1.05", seed, n, arena, peak, ratio)
		}
	}
	t.Logf("worst ratio %.3f", worst)
}

func TestConflictIsSeen(t *testing.T) {
	a, b := &program.Buffer{Offset: 0, Size: 512, Birth: 0, Death: 2}, &program.Buffer{Offset: 256, Size: 100, Birth: 2, Death: 3}
	if conflict([]*program.Buffer{a, b}, 512) == nil {
		t.Error("two live buffers in one place are not seen")
	}
	b.Birth = 3
	if err := conflict([]*program.Buffer{a, b}, 512); err != nil {
		t.Error(err)
	}
	if conflict([]*program.Buffer{a, b}, 511) == nil {
		t.Error("a buffer beyond the arena is not seen")
	}
}

func TestPlaceIsTheSameEveryTime(t *testing.T) {
	offsets := func() (s string) {
		r := rand.New(rand.NewPCG(3, 4))
		buffers := make([]*program.Buffer, 60)
		for i := range buffers {
			birth := r.IntN(50)
			buffers[i] = &program.Buffer{Size: int64(r.IntN(100000)), Birth: birth, Death: birth + r.IntN(20)}
		}
		pack(buffers)
		for _, b := range buffers {
			s += fmt.Sprint(b.Offset, " ")
		}
		return s
	}
	if a, b := offsets(), offsets(); a != b {
		t.Errorf("two plans of one graph differ:\n%s\n%s", a, b)
	}
}

// A timeline finds the places that comparing every two buffers finds.
func TestTimelineIsFit(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 8))
		steps := 1 + r.IntN(100)
		buffers := make([]*program.Buffer, 1+r.IntN(300))
		for i := range buffers {
			birth := r.IntN(steps)
			size := 1 + r.IntN(1<<(1+r.IntN(16)))
			buffers[i] = &program.Buffer{Size: int64(size), Birth: birth, Death: birth + r.IntN(1+r.IntN(steps-birth))}
		}
		if seed%3 > 0 { // in runs in the order of births
			run := len(buffers)/(1+r.IntN(4)) + 1
			for i := 0; i < len(buffers); i += run {
				slices.SortFunc(buffers[i:min(i+run, len(buffers))], func(a, b *program.Buffer) int { return a.Birth - b.Birth })
			}
		}
		arena := fit(buffers)
		want := make([]int64, len(buffers))
		for i, b := range buffers {
			want[i], b.Offset = b.Offset, 1<<20 // as another order has placed it
		}
		if got := fitMany(buffers); got != arena {
			t.Fatalf("seed %d: an arena of %d bytes, want %d", seed, got, arena)
		}
		for i, b := range buffers {
			if b.Offset != want[i] {
				t.Fatalf("seed %d: buffer %d of %d at %d, want %d", seed, i, len(buffers), b.Offset, want[i])
			}
		}
	}
}
