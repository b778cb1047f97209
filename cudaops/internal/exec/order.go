package exec

import (
	"cmp"
	"container/heap"
	"slices"
	"sort"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
)

// Work is a piece of work to capture.
type Work struct {
	Queue func() error
	// After lists the indices of earlier pieces that must complete before this one starts. Dependencies implied by others
	// may be omitted.
	After []int
}

// order computes the dependencies of instructions from the memory that they read and write. Buffers share memory, so a
// writer also depends on the readers of the earlier contents.
type order struct {
	byHome map[program.Memory]*segments // nil is the arena
}

// segments are disjoint ranges of the arena or of other memory, sorted, in blocks of 1 to maxBlock segments.
type (
	segments []block
	block    []segment
)

var maxBlock = 512 // 2 in a test

// segment is a range of memory with the instructions that access it.
type segment struct {
	from, to int64
	writer   int   // the last writer, or -1
	readers  []int // readers since the last write
}

// add records instruction i and returns the earlier instructions that it depends on.
func (o *order) add(i int, in *program.Instr) []int {
	var after []int
	for _, v := range in.In {
		if b := v.Base.Buffer; b != nil && b.Size > 0 {
			for s := range o.within(b) {
				after = append(after, s.writer)
				s.readers = append(s.readers, i)
			}
		}
	}
	write := func(b *program.Buffer) {
		if b == nil || b.Size == 0 {
			return
		}
		for s := range o.within(b) {
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

// within yields the segments that cover exactly a buffer; it splits and inserts segments as needed.
func (o *order) within(b *program.Buffer) func(yield func(s *segment) bool) {
	list := o.byHome[b.Home]
	if list == nil {
		if list = new(segments); o.byHome == nil {
			o.byHome = map[program.Memory]*segments{}
		}
		o.byHome[b.Home] = list
	}
	from, to := b.Offset, b.Offset+b.Size
	list.split(from)
	list.split(to)
	for at := from; at < to; {
		k, i := list.search(at)
		end := to
		if k < len(*list) {
			s := (*list)[k][i]
			if s.from <= at {
				at = s.to
				continue
			}
			end = min(end, s.from)
		}
		list.insert(k, i, segment{at, end, -1, nil}) // unused so far
		at = end
	}
	return func(yield func(s *segment) bool) {
		k, i := list.search(from)
		for at := from; at < to; k, i = k+1, 0 {
			for b := (*list)[k]; i < len(b) && at < to; i++ {
				if at = b[i].to; !yield(&b[i]) {
					return
				}
			}
		}
	}
}

// search returns the block and the index in it of the first segment that ends after an offset.
func (l segments) search(at int64) (k, i int) {
	k = sort.Search(len(l), func(k int) bool { return l[k][len(l[k])-1].to > at })
	if k < len(l) {
		i = sort.Search(len(l[k]), func(i int) bool { return l[k][i].to > at })
	}
	return k, i
}

// insert inserts a segment before another one, or after the last one.
func (l *segments) insert(k, i int, s segment) {
	if len(*l) == 0 {
		*l = segments{nil}
	} else if k == len(*l) {
		k, i = k-1, len((*l)[k-1])
	}
	b := slices.Insert((*l)[k], i, s)
	(*l)[k] = b
	if half := len(b) / 2; len(b) > maxBlock {
		(*l)[k] = b[:half:half]
		*l = slices.Insert(*l, k+1, slices.Clone(b[half:]))
	}
}

// split splits the segment that contains an offset in its interior.
func (l *segments) split(at int64) {
	k, i := l.search(at)
	if k == len(*l) || (*l)[k][i].from >= at {
		return
	}
	right := &(*l)[k][i]
	right.readers = slices.Clip(right.readers) // the two halves append to it separately
	left := *right
	left.to, right.from = at, at
	l.insert(k, i, left)
}

// reduced removes edges that other edges imply (transitive reduction), considering paths through about the last thousand
// pieces. Each edge of a graph costs time: without the redundant ones a step of 313 launches took 1.21 ms instead of
// 1.50 (H200, bench/notes/engine.md).
func reduced(work []Work) {
	const words = 16 // bits for 64 predecessors each
	first := func(k int) int { return max(k/64-words+1, 0) }
	before := make([][words]uint64, len(work)) // bit set of the predecessors of piece k, from first(k)*64 on
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

// longestFirst sorts work topologically; among the pieces that could be next it selects the one with the longest chain of
// dependents. Of several pieces that wait for the same one, the device starts the one recorded first. In this order a step
// of 13 launches took 49.3 us instead of 50.0 (H200, bench/notes/engine.md).
func longestFirst(work []Work) []Work {
	height, readers, waits := make([]int, len(work)), make([][]int, len(work)), make([]int, len(work))
	for i := len(work) - 1; i >= 0; i-- {
		for _, j := range work[i].After {
			height[j] = max(height[j], height[i]+1)
			readers[j] = append(readers[j], i)
		}
		waits[i] = len(work[i].After)
	}
	next := &ready{height: height}
	for i := range work {
		if waits[i] == 0 {
			heap.Push(next, i)
		}
	}
	list, place := make([]Work, 0, len(work)), make([]int, len(work))
	for next.Len() > 0 {
		i := heap.Pop(next).(int)
		place[i] = len(list)
		w := Work{Queue: work[i].Queue}
		for _, j := range work[i].After {
			w.After = append(w.After, place[j])
		}
		slices.Sort(w.After)
		list = append(list, w)
		for _, r := range readers[i] {
			if waits[r]--; waits[r] == 0 {
				heap.Push(next, r)
			}
		}
	}
	return list
}

// ready is a heap of pieces: the first one has the greatest height, then the lowest index.
type ready struct{ pieces, height []int }

func (r *ready) Len() int { return len(r.pieces) }
func (r *ready) Less(i, j int) bool {
	a, b := r.pieces[i], r.pieces[j]
	return cmp.Or(cmp.Compare(r.height[b], r.height[a]), cmp.Compare(a, b)) < 0
}
func (r *ready) Swap(i, j int) { r.pieces[i], r.pieces[j] = r.pieces[j], r.pieces[i] }
func (r *ready) Push(x any)    { r.pieces = append(r.pieces, x.(int)) }
func (r *ready) Pop() any {
	last := len(r.pieces) - 1
	x := r.pieces[last]
	r.pieces = r.pieces[:last]
	return x
}
