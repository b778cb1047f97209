package passes

import (
	"slices"
	"sort"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
)

// timeline records which bytes of the arena are occupied at which instructions, for many buffers. It is
// a segment tree over the instructions: node 1 covers all of them, and node i is the parent of
// nodes 2i and 2i+1. Each node stores merged spans, so that thousands of adjacent buffers are a single span.
type timeline struct {
	leaves int
	whole  []spans // by node: occupied at all of its instructions
	part   []spans // by node: occupied at some of its instructions
}

func newTimeline(instrs int) *timeline {
	leaves := 1
	for leaves < instrs {
		leaves *= 2
	}
	return &timeline{leaves, make([]spans, 2*leaves), make([]spans, 2*leaves)}
}

// nodes returns the fewest nodes that cover the life of a buffer exactly, and the nodes that
// contain its first or its last instruction.
func (t *timeline) nodes(b *program.Buffer) (inside, around []int) {
	first, last := b.Birth+t.leaves, b.Death+t.leaves
	for lo, hi := first, last+1; lo < hi; lo, hi = lo/2, hi/2 {
		if lo%2 == 1 {
			inside = append(inside, lo)
			lo++
		}
		if hi%2 == 1 {
			hi--
			inside = append(inside, hi)
		}
	}
	for ; first > 0; first, last = first/2, last/2 {
		if around = append(around, first); last != first {
			around = append(around, last)
		}
	}
	return inside, around
}

// add places a buffer at the lowest offset that is free during its life.
func (t *timeline) add(b *program.Buffer) {
	inside, around := t.nodes(b)
	b.Offset = 0
	for before := int64(-1); b.Offset != before; {
		before = b.Offset
		for _, i := range inside {
			b.Offset = t.part[i].free(b.Offset, b.Padded())
		}
		for _, i := range around {
			b.Offset = t.whole[i].free(b.Offset, b.Padded())
		}
	}
	taken := span{b.Offset, b.Offset + b.Padded()}
	for _, i := range inside {
		t.whole[i].add(taken)
		t.part[i].add(taken)
	}
	for _, i := range around {
		t.part[i].add(taken)
	}
}

// span is a half-open range of bytes of the arena.
type span struct{ from, end int64 }

// spans are sorted, disjoint and not adjacent.
type spans []span

// free returns the lowest offset, at least from, at which size bytes overlap no span.
func (s spans) free(from, size int64) int64 {
	for _, taken := range s[sort.Search(len(s), func(i int) bool { return s[i].end > from }):] {
		if taken.from >= from+size {
			break
		}
		from = max(from, taken.end)
	}
	return from
}

// add adds a range, which may overlap existing spans.
func (s *spans) add(more span) {
	list := *s
	lo := sort.Search(len(list), func(i int) bool { return list[i].end >= more.from })
	hi := lo + sort.Search(len(list)-lo, func(i int) bool { return list[lo+i].from > more.end })
	if lo < hi {
		more = span{min(more.from, list[lo].from), max(more.end, list[hi-1].end)}
	}
	*s = slices.Replace(list, lo, hi, more)
}
