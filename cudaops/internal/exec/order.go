package exec

import (
	"container/heap"
	"slices"
	"sort"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
)

// Work is a piece of work to be captured.
type Work struct {
	Queue func() error
	// After are the indices of the pieces before it that must be done before it
	// begins; those that another one of them waits for may be left out.
	After []int
}

// An order finds the instructions that an instruction must wait for, from the memory that it reads
// and writes: buffers share memory, so one that writes waits for those that read the
// earlier contents.
type order struct {
	segments []segment // of the arena, disjoint, by offset
}

// segment is a piece of the arena with the instructions that use it.
type segment struct {
	from, to int64
	writer   int   // the last, -1 for none
	readers  []int // since then
}

// add adds instruction i and returns those before it that it waits for.
func (o *order) add(i int, in *program.Instr) []int {
	var after []int
	for _, v := range in.In {
		if b := v.Base.Buffer; b != nil && b.Size > 0 {
			for k := range o.within(b) {
				s := &o.segments[k]
				after = append(after, s.writer)
				s.readers = append(s.readers, i)
			}
		}
	}
	write := func(b *program.Buffer) {
		if b == nil || b.Size == 0 {
			return
		}
		for k := range o.within(b) {
			s := &o.segments[k]
			after = append(append(after, s.writer), s.readers...)
			s.writer, s.readers = i, nil
		}
	}
	for _, v := range in.Out {
		write(v.Base.Buffer)
	}
	write(in.Scratch)
	slices.Sort(after)
	return slices.DeleteFunc(slices.Compact(after), func(j int) bool { return j < 0 || j == i })
}

// within yields the segments of a buffer, which are split and made so that they cover
// it and nothing else.
func (o *order) within(b *program.Buffer) func(yield func(k int) bool) {
	from, to := b.Offset, b.Offset+b.Size
	o.split(from)
	o.split(to)
	k := o.search(from)
	for at := from; at < to; k++ {
		if k == len(o.segments) || o.segments[k].from > at { // unused so far
			end := to
			if k < len(o.segments) {
				end = min(end, o.segments[k].from)
			}
			o.segments = slices.Insert(o.segments, k, segment{at, end, -1, nil})
		}
		at = o.segments[k].to
	}
	first := o.search(from)
	return func(yield func(k int) bool) {
		for i := first; i < k && yield(i); i++ {
		}
	}
}

// search returns the first segment that does not end before or at an offset.
func (o *order) search(at int64) int {
	return sort.Search(len(o.segments), func(k int) bool { return o.segments[k].to > at })
}

// split makes two segments of one that an offset lies within.
func (o *order) split(at int64) {
	k := o.search(at)
	if k == len(o.segments) || o.segments[k].from >= at {
		return
	}
	o.segments[k].readers = slices.Clip(o.segments[k].readers) // the two halves append to it separately
	right := o.segments[k]
	right.from = at
	o.segments[k].to = at
	o.segments = slices.Insert(o.segments, k+1, right)
}

// reduced leaves out edges between pieces of work that follow from other edges, as far as these lead
// through the last thousand pieces. Each edge costs time in a graph: without the redundant ones a
// step of 313 launches took 1.21 ms instead of 1.50 (H200, bench/notes/engine.md).
func reduced(work []Work) {
	const words = 16 // of 64 pieces each that come before a piece
	first := func(k int) int { return max(k/64-words+1, 0) }
	before := make([][words]uint64, len(work)) // pieces that a piece waits for, from first(k)*64 on
	for k := range work {
		has := func(j int) bool { return j/64 >= first(k) && before[k][j/64-first(k)]>>(j%64)&1 != 0 }
		var after []int
		for _, j := range slices.Backward(work[k].After) {
			if has(j) {
				continue
			}
			after = append(after, j)
			for w := first(k); w <= j/64; w++ {
				before[k][w-first(k)] |= before[j][w-first(j)]
			}
			if j/64 >= first(k) {
				before[k][j/64-first(k)] |= 1 << (j % 64)
			}
		}
		slices.Reverse(after)
		work[k].After = after
	}
}

// longestFirst returns work in another order: of the pieces that could come next it takes the one with the longest chain of
// pieces that wait for it, one after the other. Of several pieces that wait for the same one, the device starts the one that was
// recorded first: in this order a step of 13 launches took 49.3 us instead of 50.0 (H200, bench/notes/engine.md).
func longestFirst(work []Work) []Work {
	height, readers, waits := make([]int, len(work)), make([][]int, len(work)), make([]int, len(work))
	for i := len(work) - 1; i >= 0; i-- {
		for _, j := range work[i].After {
			height[j] = max(height[j], height[i]+1)
			readers[j] = append(readers[j], i)
		}
		waits[i] = len(work[i].After)
	}
	ready := &readyWork{height: height}
	for i := range work {
		if waits[i] == 0 {
			heap.Push(ready, i)
		}
	}
	list, place := make([]Work, 0, len(work)), make([]int, len(work))
	for ready.Len() > 0 {
		i := heap.Pop(ready).(int)
		place[i] = len(list)
		w := Work{Queue: work[i].Queue}
		for _, j := range work[i].After {
			w.After = append(w.After, place[j])
		}
		slices.Sort(w.After)
		list = append(list, w)
		for _, r := range readers[i] {
			if waits[r]--; waits[r] == 0 {
				heap.Push(ready, r)
			}
		}
	}
	return list
}

// readyWork is a heap of pieces of work that could come next: the highest first, of equally high ones the earliest.
type readyWork struct {
	list   []int
	height []int // of all pieces
}

func (r *readyWork) Len() int      { return len(r.list) }
func (r *readyWork) Swap(i, j int) { r.list[i], r.list[j] = r.list[j], r.list[i] }
func (r *readyWork) Push(i any)    { r.list = append(r.list, i.(int)) }

func (r *readyWork) Less(i, j int) bool {
	a, b := r.list[i], r.list[j]
	return r.height[a] > r.height[b] || r.height[a] == r.height[b] && a < b
}

func (r *readyWork) Pop() any {
	last := len(r.list) - 1
	i := r.list[last]
	r.list = r.list[:last]
	return i
}
