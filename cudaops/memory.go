package cudaops

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// alignment of every buffer in the arena, bytes: what the kernels' vector loads
// are written for, and what CUDA's own allocator gives.
const alignment = 256

// A span is a piece of the arena, in bytes from its start.
type span struct{ offset, size int64 }

// A buffer is memory that is alive from step birth to step death, both
// included.
type buffer struct {
	span
	birth, death int
}

func (b *buffer) padded() int64 { return (b.size + alignment - 1) &^ (alignment - 1) }

// overlaps says that a and b are alive at the same time.
func (b *buffer) overlaps(a *buffer) bool { return b.birth <= a.death && a.birth <= b.death }

// livePeak is the largest sum of padded sizes alive at once: no arena can be
// smaller.
func livePeak(buffers []*buffer) int64 {
	changes := map[int]int64{}
	for _, b := range buffers {
		changes[b.birth] += b.padded()
		changes[b.death+1] -= b.padded()
	}
	times := make([]int, 0, len(changes))
	for t := range changes {
		times = append(times, t)
	}
	slices.Sort(times)
	var live, peak int64
	for _, t := range times {
		live += changes[t]
		peak = max(peak, live)
	}
	return peak
}

// place gives every buffer its offset so that no two that are alive at once
// overlap, and returns the bytes of the arena.
//
// The problem is NP-hard. Placing the largest buffer first at the lowest free
// offset is mostly within a few percent of livePeak; where it is not, other
// orders are tried, at last random neighbours of the best order, until the
// arena is as small as the peak or the effort is spent. The random numbers have
// a fixed seed: one graph, one plan.
func place(buffers []*buffer) (arena int64) {
	work := make([]*buffer, 0, len(buffers))
	for _, b := range buffers {
		if b.size > 0 {
			work = append(work, b)
		}
	}
	if len(work) == 0 {
		return 0
	}
	peak := livePeak(work)
	best := int64(-1)
	var order []*buffer
	offsets := make(map[*buffer]int64, len(work))
	try := func(candidate []*buffer) bool {
		size := fit(candidate)
		if best >= 0 && size >= best {
			return false
		}
		best, order = size, slices.Clone(candidate)
		for _, b := range candidate {
			offsets[b] = b.offset
		}
		return true
	}
	area := func(b *buffer) int64 { return b.padded() * int64(b.death-b.birth+1) }
	for _, less := range []func(a, b *buffer) int{
		func(a, b *buffer) int { return cmp.Compare(b.padded(), a.padded()) },
		func(a, b *buffer) int { return cmp.Compare(area(b), area(a)) },
		func(a, b *buffer) int { return cmp.Compare(b.death-b.birth, a.death-a.birth) },
		func(a, b *buffer) int { return cmp.Compare(a.birth, b.birth) },
	} {
		if best == peak {
			break
		}
		candidate := slices.Clone(work)
		slices.SortStableFunc(candidate, less)
		try(candidate)
	}
	// Each try costs up to the square of the number of buffers; a plan within
	// 5 % is good enough.
	r := rand.New(rand.NewPCG(1, 2))
	for effort := int64(40_000_000); effort > 0 && best > peak+peak/20; effort -= int64(len(work)) * int64(len(work)) {
		candidate := slices.Clone(order)
		for range 1 + r.IntN(3) { // move a buffer forward
			from := r.IntN(len(candidate))
			b := candidate[from]
			to := r.IntN(from + 1)
			candidate = slices.Insert(slices.Delete(candidate, from, from+1), to, b)
		}
		try(candidate)
	}
	for b, offset := range offsets {
		b.offset = offset
	}
	return best
}

// fit places the buffers in the given order, each at the lowest offset that is
// free as long as it lives.
func fit(order []*buffer) (arena int64) {
	placed := make([]*buffer, 0, len(order)) // by offset
	for _, b := range order {
		b.offset = 0
		for _, p := range placed {
			if !b.overlaps(p) {
				continue
			}
			if p.offset >= b.offset+b.padded() {
				break // the gap before p is wide enough
			}
			b.offset = max(b.offset, p.offset+p.padded())
		}
		at, _ := slices.BinarySearchFunc(placed, b, func(p, b *buffer) int { return cmp.Compare(p.offset, b.offset) })
		placed = slices.Insert(placed, at, b)
		arena = max(arena, b.offset+b.padded())
	}
	return arena
}
