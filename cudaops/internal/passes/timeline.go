package passes

import (
	"slices"
	"sort"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
)

// timeline records which bytes of the arena are occupied at which instructions, for many buffers. It is
// a segment tree over the instructions: node 1 covers all of them, and node i is the parent of
// nodes 2i and 2i+1. Each node stores merged spans, so that thousands of adjacent buffers are a single span.
//
// For buffers that are placed in the order of their births it also has the bytes that are occupied at one instruction, merged. The lowest free range of a buffer's life seldom
// begins after that of its first instruction.
type timeline struct {
	leaves int
	whole  []spans // by node: occupied at all of its instructions
	part   []spans // by node: occupied at some of its instructions

	births, deaths [][]span // ranges that buffers begin or cease to occupy, by instruction
	now            int      // an instruction, or -1
	live           spans    // occupied at instruction now
	lists          []spans  // memory of add
}

func newTimeline(instrs int) *timeline {
	leaves := 1
	for leaves < instrs {
		leaves *= 2
	}
	return &timeline{leaves, make([]spans, 2*leaves), make([]spans, 2*leaves), make([][]span, instrs+1), make([][]span, instrs+1), -1, nil, nil}
}

// rewind sets now to -1.
func (t *timeline) rewind() { t.now, t.live = -1, nil }

// advance increases now.
func (t *timeline) advance(to int) {
	for t.now < to {
		t.now++
		for _, s := range t.deaths[t.now] {
			t.live.remove(s)
		}
		for _, s := range t.births[t.now] {
			t.live.add(s)
		}
	}
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
	lists := t.lists[:0]
	for _, i := range inside {
		lists = append(lists, t.part[i])
	}
	for _, i := range around {
		lists = append(lists, t.whole[i])
	}
	from := int64(0)
	if b.Birth == t.now {
		lists = append(lists, t.live)
		from = free([]spans{t.live}, 0, b.Padded())
	}
	b.Offset, t.lists = free(lists, from, b.Padded()), lists
	taken := span{b.Offset, b.Offset + b.Padded()}
	for _, i := range inside {
		t.whole[i].add(taken)
		t.part[i].add(taken)
	}
	for _, i := range around {
		t.part[i].add(taken)
	}
	t.births[b.Birth], t.deaths[b.Death+1] = append(t.births[b.Birth], taken), append(t.deaths[b.Death+1], taken)
	if b.Birth == t.now {
		t.live.add(taken)
	}
}

// span is a half-open range of bytes of the arena.
type span struct{ from, end int64 }

// spans are sorted, disjoint and not adjacent.
type spans []span

// free returns the lowest offset, at least from, at which size bytes overlap no span of any list. It visits the spans up to that offset in the order of their beginnings. lists
// becomes a heap by the first remaining span of each.
func free(lists []spans, from, size int64) int64 {
	n := 0
	for _, s := range lists {
		if s = s.after(from); len(s) > 0 {
			lists[n] = s
			n++
		}
	}
	lists = lists[:n]
	down := func(i int) { // restores the heap below index i
		for {
			least := i
			for k := 2*i + 1; k <= 2*i+2 && k < len(lists); k++ {
				if lists[k][0].from < lists[least][0].from {
					least = k
				}
			}
			if least == i {
				return
			}
			lists[i], lists[least], i = lists[least], lists[i], least
		}
	}
	for i := len(lists)/2 - 1; i >= 0; i-- {
		down(i)
	}
	for len(lists) > 0 && lists[0][0].from < from+size {
		from = max(from, lists[0][0].end)
		if lists[0] = lists[0].after(from); len(lists[0]) == 0 {
			lists[0] = lists[len(lists)-1]
			lists = lists[:len(lists)-1]
		}
		down(0)
	}
	return from
}

// after returns the spans that end after an offset.
func (s spans) after(offset int64) spans {
	n := 1
	for n < len(s) && s[n-1].end <= offset {
		n *= 2
	}
	n = min(n, len(s))
	return s[n/2+sort.Search(n-n/2, func(i int) bool { return s[n/2+i].end > offset }):]
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

// remove removes a range, which is part of a span.
func (s *spans) remove(less span) {
	list := *s
	i := sort.Search(len(list), func(i int) bool { return list[i].end > less.from })
	var rest spans
	if s := list[i]; s.from < less.from {
		rest = append(rest, span{s.from, less.from})
	}
	if s := list[i]; less.end < s.end {
		rest = append(rest, span{less.end, s.end})
	}
	*s = slices.Replace(list, i, i+1, rest...)
}
