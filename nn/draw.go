package nn

import (
	"math/bits"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"

	"github.com/stheno-ml/stheno/kernels"
)

// drawnFirst is the number of elements that are drawn in order first.
const drawnFirst = 1 << 14

// drawAll draws elements one after the other with the random words of a seed. Long lists are drawn concurrently, with the same values. How many words an element takes is known only
// when it is drawn, so the elements of a chunk of words begin at the chunk's first word; they are right from the first element on that begins where an element of the list
// begins, mostly the first or second. The elements before it are drawn again. An Init that takes no word for some elements may have a state of its own: it is called in order.
func drawAll[T float32 | float64](list []T, seed pcgState, init Init) {
	first, inOrder := words{PCG: seed.after(0)}, runtime.GOMAXPROCS(0) == 1
	r := rand.New(&first)
	i := 0
	for ; i < len(list) && i < drawnFirst && !inOrder; i++ {
		before := first.taken
		list[i] = T(init(r))
		inOrder = first.taken == before
	}
	for ; inOrder && i < len(list); i++ {
		list[i] = T(init(r))
	}
	if i == len(list) {
		return
	}
	d := drawing[T]{list: list, seed: seed, init: init, from: first.taken, word: first.taken, drawn: i}
	d.changed.L = &d.mu
	left := int64(float64(len(list)-i) * float64(first.taken) / float64(i)) // words, nearly
	workers := min(int64(runtime.GOMAXPROCS(0)), kernels.CeilDiv(left, minChunk))
	d.words = uint64(max(minChunk, min(left/(8*workers), maxChunk)))
	d.likely = kernels.CeilDiv(left, int64(d.words))
	for range 2 * workers {
		c, _ := spare.Get().(*chunk[T])
		if c == nil {
			c = new(chunk[T])
		}
		d.free = append(d.free, c)
	}
	all := slices.Clone(d.free)
	d.ready = make([]*chunk[T], len(all))
	kernels.Parallel(workers, 1, func(int64, int64) { d.work() })
	for _, c := range all {
		spare.Put(c)
	}
}

// minChunk and maxChunk are the least and the greatest number of random words of a chunk.
const minChunk, maxChunk = 1 << 12, 1 << 15

// spare holds chunks that are not in use: a model has many parameters.
var spare sync.Pool

// drawing is a list that several goroutines draw by chunks of words. A chunk is drawn, joined to the list in order, and copied to its place. No goroutine waits for the turn of
// its chunk, but draws or copies another one: to wake one takes 0.1 ms (H100), as long as to draw 8000 elements.
type drawing[T float32 | float64] struct {
	list   []T
	seed   pcgState
	init   Init
	from   uint64 // the number of the first chunk's first word
	words  uint64 // of a chunk
	likely int64  // the number of chunks that are needed, nearly

	mu      sync.Mutex // guards the rest
	changed sync.Cond
	free    []*chunk[T]
	begun   int64       // chunks
	ready   []*chunk[T] // drawn ones that are not joined, by their number modulo the length
	next    int64       // the chunk to join next
	drawn   int         // elements of the list
	word    uint64      // the number of the next element's first word
	joined  []*chunk[T] // that are not copied
	over    bool        // all elements are drawn, or an Init has panicked
}

// work draws, joins and copies chunks until the list is drawn. Chunks after the likely number are drawn when it is known that they are needed.
func (d *drawing[T]) work() {
	d.mu.Lock()
	defer func() {
		d.over = true
		d.changed.Broadcast()
		d.mu.Unlock()
	}()
	unlocked := func(f func()) {
		d.mu.Unlock()
		defer d.mu.Lock()
		f()
	}
	for {
		if n := len(d.joined) - 1; n >= 0 {
			c := d.joined[n]
			d.joined = d.joined[:n]
			unlocked(func() { copy(d.list[c.to:], c.used) })
			d.free = append(d.free, c)
			d.changed.Signal()
			continue
		}
		n := len(d.free) - 1
		switch {
		case d.over:
			return
		case n >= 0 && (d.begun < d.likely || d.begun == d.next):
			c, number := d.free[n], d.begun
			d.free, d.begun = d.free[:n], d.begun+1
			unlocked(func() { c.draw(d.seed.after(d.from+uint64(number)*d.words), d.words, d.init) })
			d.ready[number%int64(len(d.ready))] = c
			d.join()
		default:
			d.changed.Wait()
		}
	}
}

// join joins the next chunks that are ready.
func (d *drawing[T]) join() {
	for !d.over {
		at := d.next % int64(len(d.ready))
		c := d.ready[at]
		if c == nil {
			return
		}
		d.ready[at] = nil
		d.append(c, d.from+uint64(d.next)*d.words)
		d.joined, d.next, d.over = append(d.joined, c), d.next+1, d.drawn == len(d.list)
		d.changed.Broadcast()
	}
}

// append finds which elements of a chunk are the next of the list, and draws those before them.
func (d *drawing[T]) append(c *chunk[T], begin uint64) {
	own := words{PCG: d.seed.after(d.word)}
	r := rand.New(&own)
	c.to, c.used = 0, nil
	for at := d.word; at < begin+d.words && d.drawn < len(d.list); at = d.word + own.taken {
		if at >= begin {
			if k, found := slices.BinarySearch(c.starts, uint16(at-begin)); found {
				c.to, c.used = d.drawn, c.values[k:min(len(c.values), k+len(d.list)-d.drawn)]
				d.word, d.drawn = begin+c.taken, d.drawn+len(c.used)
				return
			}
		}
		d.list[d.drawn] = T(d.init(r))
		d.drawn++
	}
	d.word += own.taken
}

// chunk is the elements that begin in a chunk of words, if one begins at its first word.
type chunk[T float32 | float64] struct {
	values []T
	starts []uint16 // of each value, the number of words before it
	taken  uint64   // words of all values
	used   []T      // the last values, which are those of the list from element `to` on
	to     int
}

func (c *chunk[T]) draw(source rand.PCG, n uint64, init Init) {
	own := words{PCG: source}
	r := rand.New(&own)
	c.values, c.starts = slices.Grow(c.values[:0], int(n)), slices.Grow(c.starts[:0], int(n))
	for own.taken < n && uint64(len(c.values)) < n { // an Init need not take words for ever
		c.starts = append(c.starts, uint16(own.taken))
		c.values = append(c.values, T(init(r)))
	}
	c.taken = own.taken
}

// words is a source that counts the words that are taken.
type words struct {
	rand.PCG
	taken uint64
}

func (w *words) Uint64() uint64 {
	w.taken++
	return w.PCG.Uint64()
}

// pcgState is a state of a rand.PCG, a number of 128 bits: its high and low words, which are the seeds of rand.NewPCG.
type pcgState struct{ hi, lo uint64 }

// after returns a rand.PCG whose next word is number n of those that follow the state. A step of rand.PCG is state·a + c, so n steps are by squaring.
func (s pcgState) after(n uint64) rand.PCG {
	a, c := pcgState{2549297995355413924, 4865540595714422341}, pcgState{6364136223846793005, 1442695040888963407}
	for ; n > 0; n /= 2 {
		if n%2 == 1 {
			s = s.times(a).plus(c)
		}
		a, c = a.times(a), c.times(a).plus(c)
	}
	return *rand.NewPCG(s.hi, s.lo)
}

func (s pcgState) times(t pcgState) pcgState {
	hi, lo := bits.Mul64(s.lo, t.lo)
	return pcgState{hi + s.hi*t.lo + s.lo*t.hi, lo}
}

func (s pcgState) plus(t pcgState) pcgState {
	lo, carry := bits.Add64(s.lo, t.lo, 0)
	return pcgState{s.hi + t.hi + carry, lo}
}
